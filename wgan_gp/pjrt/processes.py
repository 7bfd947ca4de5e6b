"""Several processes that train together with --runtime=pjrt, through the services of jax."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator

import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils

from ..config import DeviceSettings
from ..errors import UserError, reason
from ..runtime.cluster import (
    SINGLE_PROCESS,
    START_SECONDS,
    Cluster,
    Peers,
    lost_peer,
    meeting_peers,
    parse_tf_config,
)
from . import client

_REMEDY = (
    "start the same command on every machine, and check that the machines can reach each other and "
    "that the port is free"
)
_COMMON_FAILURE_SECONDS = 2  # in which the others report their own errors
_LATEST_SECONDS = 100  # in which the others end after the first process
_LEAVING_SECONDS = 1  # in which a process that ends leaves the service of the first one


class JaxPeers(Peers):
    """The connection of this process to the others, which lasts until the process ends.

    jax aborts this process if another one is lost, because the main thread may wait for it
    forever. Here, the process ends with an error line instead.

    Args:
      cluster: All processes.
      seconds: How long to wait for the others.
    """

    def __init__(self, cluster: Cluster, seconds: int):
        self.cluster = cluster
        self._has_ended = False
        self._is_leaving = False
        self._handle_aborts()
        self._client = client.connect_processes(
            cluster.addresses[0],
            len(cluster.addresses),
            cluster.index,
            seconds=seconds,
        )
        atexit.register(self._leave)

    def gather(self, numbers: list[int]) -> np.ndarray:
        with jax.enable_x64(True):
            try:
                return multihost_utils.process_allgather(np.array(numbers, np.int64))
            except client.RuntimeFailure as error:
                raise self.explain(error) from error

    def explain(self, error: Exception) -> UserError:
        """Returns the error of a program of all processes that this process could not run."""
        self._is_leaving = True
        return lost_peer(reason(error))

    def begin(self) -> None:
        """Declares that this process needs the others again, for another run."""
        self._has_ended = False

    def end(self) -> None:
        self._has_ended = True

    def _handle_aborts(self) -> None:
        self._handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(self._stop)
        ctypes.CDLL(None).signal(signal.SIGABRT, self._handler)

    def _stop(self, _: int) -> None:
        """Ends the process in place of abort(), in a thread of jax."""
        if self._is_leaving:
            time.sleep(_COMMON_FAILURE_SECONDS)  # the main thread ends the process
        else:
            error = lost_peer("or jax has failed, as the lines above say")
            print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(0 if self._is_leaving and self._has_ended else 2)

    def _leave(self) -> None:
        """Leaves when this process has ended, or soon after an error.

        The first process leaves last: the service to which all are connected is a part of it, and
        jax aborts the others if they lose it.
        """
        self._is_leaving = True
        first, *others = range(len(self.cluster.addresses))
        with contextlib.suppress(client.RuntimeFailure):
            if not self._has_ended:
                self._client.wait_at_barrier("failed", _COMMON_FAILURE_SECONDS * 1000)
            elif self.cluster.index == first:
                for index in others:
                    self._client.blocking_key_value_get(_ended(index), _LATEST_SECONDS * 1000)
                time.sleep(_LEAVING_SECONDS)
                self._client.shutdown()
            else:
                self._client.key_value_set(_ended(self.cluster.index), "")
                self._client.shutdown()


def _ended(index: int) -> str:
    """Returns the key that a process sets in the service when it ends."""
    return f"ended/{index}"


_connected: list[JaxPeers] = []  # at most one, because a process connects once


def connect(settings: DeviceSettings, seconds: int = START_SECONDS) -> JaxPeers | None:
    """Connects to the other processes of TF_CONFIG, or to those of a TPU pod, if there are any.

    Call it before anything else uses the devices of jax.

    Raises:
      UserError: If the other processes do not start in time.
    """
    for connected in _connected:
        connected.begin()
    if not _connected:
        with _explaining_start(seconds):
            if settings.tpu is not None:
                cluster = find_pod(seconds)
                if cluster.has_peers:
                    _connected.append(JaxPeers(cluster, seconds))
            elif (cluster := parse_tf_config()).has_peers:
                with meeting_peers(cluster, seconds) as listener:
                    if cluster.is_chief:
                        listener.close()  # jax's service uses the address
                    _connected.append(JaxPeers(cluster, seconds))
    return peers()


def peers() -> JaxPeers | None:
    """Returns the connection to the other processes, if there are any."""
    return _connected[0] if _connected else None


def find_pod(seconds: int = START_SECONDS) -> Cluster:
    """Returns the processes of a TPU of several machines, from its variables and metadata.

    A machine without Google's metadata, such as that of a notebook, has the only process.
    """
    try:
        address, processes, index = client.find_tpu_processes(seconds)
    except Exception as error:  # of the network, in many types
        logging.warning(
            f"this machine cannot ask whether its TPU has others ({reason(error)}); it trains alone"
        )
        return SINGLE_PROCESS
    others = tuple(f"process {number}" for number in range(1, processes))
    return Cluster((address, *others), index) if others else SINGLE_PROCESS


@contextlib.contextmanager
def _explaining_start(seconds: int) -> Iterator[None]:
    """Raises a UserError in place of an error in finding or connecting the processes."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of the network, of metadata, of jax
        raise UserError(
            f"the processes that train together did not connect within {seconds} seconds "
            f"({reason(error)})",
            _REMEDY,
        ) from error
