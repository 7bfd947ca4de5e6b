"""Training on several machines, with one process on each, configured by TF_CONFIG."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ..config import DeviceSettings, as_text
from ..errors import UserError, reason, shorten
from ..run_directory.json_files import digest

_EXAMPLE = (
    '{"cluster": {"worker": ["HOST1:PORT", "HOST2:PORT"]}, "task": {"type": "worker", "index": 0}}'
)
_LAST_PORT = 65_535
START_SECONDS = 600  # to wait for a TPU or for the other processes


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The processes that train together.

    Attributes:
      addresses: HOST:PORT of every process, that of the chief first.
      index: The index of this process in `addresses`.
    """

    addresses: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        """True if this process writes to the run directory; the others only compute."""
        return self.index == 0

    @property
    def has_peers(self) -> bool:
        """True if there is more than one process."""
        return len(self.addresses) > 1

    @property
    def own_address(self) -> str:
        """HOST:PORT of this process."""
        return self.addresses[self.index]


SINGLE_PROCESS = Cluster(("localhost",), 0)


def find_cluster(settings: DeviceSettings) -> Cluster:
    """Returns the processes that train a run; on a TPU, this is one process."""
    return SINGLE_PROCESS if settings.tpu is not None else parse_tf_config()


def parse_tf_config(environment: Mapping[str, str] = os.environ) -> Cluster:
    """Returns the cluster that TF_CONFIG describes.

    Args:
      environment: The environment variables.

    Returns:
      The cluster, or SINGLE_PROCESS if TF_CONFIG is not set or lists only one process.

    Raises:
      UserError: If TF_CONFIG is invalid.
    """
    text = environment.get("TF_CONFIG", "").strip()
    if not text:
        return SINGLE_PROCESS
    try:
        content = json.loads(text)
        listed, task = content.get("cluster", {}), content.get("task", {})
        chiefs, workers = _addresses(listed, "chief"), _addresses(listed, "worker")
        if not chiefs and not workers:
            return SINGLE_PROCESS
        own_group, offset = {"chief": (chiefs, 0), "worker": (workers, len(chiefs))}[task["type"]]
        index = int(str(task["index"]))  # rejects 0.5
        if not 0 <= index < len(own_group):
            raise IndexError(f"the task index {index} is out of range")
        addresses = (*chiefs, *workers)
        if len(set(addresses)) < len(addresses):
            raise ValueError("an address is listed twice")
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise UserError(
            "TF_CONFIG does not describe a cluster of chief and worker processes and this "
            f"process's task ({shorten(repr(error))})",
            f"set it as in {_EXAMPLE}, or unset it to train on this machine alone",
        ) from error
    return Cluster(addresses, offset + index) if len(addresses) > 1 else SINGLE_PROCESS


def _addresses(listed: dict[str, Any], task_type: str) -> list[str]:
    """Returns the addresses of the processes of one type.

    Raises:
      ValueError: If an address is not HOST:PORT.
    """
    addresses = listed.get(task_type, [])
    if not isinstance(addresses, list):
        raise ValueError(f"{task_type} is not a list")
    for address in addresses:
        match = re.fullmatch(r"[!-~]+:([0-9]{1,5})", str(address))
        if match is None or not 1 <= int(match[1]) <= _LAST_PORT:
            raise ValueError(
                f"{str(address)!r} is not HOST:PORT with a port from 1 to {_LAST_PORT}"
            )
    return addresses


def connect_cluster(cluster: Cluster, seconds: float = START_SECONDS) -> tf.distribute.Strategy:
    """Waits for all processes and returns a strategy over their GPUs, or over their CPUs.

    Raises:
      UserError: If this process cannot use its address, or another process does not start in time.
    """
    with meeting_peers(cluster, seconds):
        pass  # TensorFlow's server replaces the socket
    late = (
        f"not all of the processes in TF_CONFIG ({', '.join(cluster.addresses)}) responded as "
        f"this program within {seconds:g} seconds"
    )
    remedy = (
        "check whether a process has ended or another program uses its port, and start all "
        "processes again"
    )
    try:
        with deadline_from_outside(seconds, late, remedy):
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise _address_error(cluster, error) from error
    return strategy


@contextlib.contextmanager
def meeting_peers(cluster: Cluster, seconds: float) -> Iterator[socket.socket]:
    """Waits until every other process accepts connections at its address.

    TensorFlow also waits for them, but without a time limit, and no Python timer can interrupt it.
    jax ends the process with a stack trace if they are late.

    Yields:
      The socket at which this process accepts connections until the context ends.

    Raises:
      UserError: If a process does not respond in time, or this process cannot use its address.
    """
    port = int(cluster.own_address.rpartition(":")[2])
    missing = [address for address in cluster.addresses if address != cluster.own_address]
    end = time.monotonic() + seconds
    try:
        listener = _listen(cluster.own_address, port)
    except OSError as error:
        raise _address_error(cluster, error) from error
    with listener:
        while missing:
            missing = [address for address in missing if not _accepts_connections(address)]
            if missing and time.monotonic() > end:
                raise UserError(
                    f"no process responds at {', '.join(missing)} of TF_CONFIG after "
                    f"{seconds:g} seconds",
                    "start the same command on every machine, each with its own index, and check "
                    "that the machines can reach each other",
                )
            time.sleep(0.1)
        yield listener


def _listen(address: str, port: int) -> socket.socket:
    if address.startswith("["):  # of IPv6
        both = socket.has_dualstack_ipv6()
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=both)
    return socket.create_server(("", port))


def _accepts_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1):
            return True
    except OSError:
        return False


def _address_error(cluster: Cluster, error: Exception) -> UserError:
    return UserError(
        f"this process cannot use its address {cluster.own_address} of TF_CONFIG ({reason(error)})",
        "give each process an address of its own machine, and a free port",
    )


class Peers(abc.ABC):
    """The connection to the other processes, each of which must make the same calls."""

    @abc.abstractmethod
    def gather(self, numbers: list[int]) -> np.ndarray:
        """Returns the `numbers` of every process, `[processes or replicas, n]`."""

    @abc.abstractmethod
    def end(self) -> None:
        """Declares that this process has no more calls to make."""


class StrategyPeers(Peers):
    """The connection that a strategy of TensorFlow has.

    Args:
      strategy: The strategy over the replicas of all processes.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        @tf.function  # called after every loop and traced once for each number of numbers
        def gather_rows(row: tf.Tensor) -> tf.Tensor:
            return strategy.gather(strategy.run(lambda: tf.identity(row)), axis=0)

        self._gather_rows = gather_rows

    def gather(self, numbers: list[int]) -> np.ndarray:
        return self._gather_rows(tf.constant([numbers], tf.int64)).numpy()

    def end(self) -> None:
        """Does nothing, because processes of TensorFlow may end at any time."""


def agree_to_stop(peers: Peers, signal: int | None, has_reason: bool) -> tuple[int | None, bool]:
    """Returns a signal that any process received, and whether any has a reason to stop.

    All processes therefore stop after the same loop.
    """
    signals, reasons = peers.gather([signal or 0, int(has_reason)]).T
    return int(signals.max()) or None, bool(reasons.max())


def check_same_flags(peers: Peers, values: Mapping[str, Any]) -> None:
    """Raises UserError unless all processes have the same program version and flags.

    It must be called before variables are created, which synchronizes all processes.

    Args:
      peers: The other processes.
      values: The settings that must be equal, by name.
    """
    names = list(values)
    if _differ(peers.gather([_digest([tf.__version__, names])])[:, 0]):
        raise UserError(
            "the processes run different versions of this program or of TensorFlow",
            "install the same versions on every machine",
        )
    digests = peers.gather([_digest(value) for value in values.values()])
    differing = [name for name, column in zip(names, digests.T, strict=True) if _differ(column)]
    if differing:
        own_flags = ", ".join(f"--{name}={shorten(as_text(values[name]))}" for name in differing)
        raise UserError(
            f"the processes have different flags (this process: {own_flags})",
            "start the same command on every machine",
        )


def check_same_run(
    peers: Peers,
    examples: int | None,
    fingerprint: dict[str, Any] | None,
    held_out: bool,
    iteration: int,
) -> None:
    """Raises UserError unless all processes have the same data and start at the same iteration.

    Args:
      peers: The other processes.
      examples: The number of examples in this process's dataset. None if they are generated.
      fingerprint: The fingerprint of the dataset, or None for a dataset without files.
      held_out: Whether this process has held-out data, which the probe evaluates.
      iteration: The iteration at which this process starts.
    """
    # File sizes are not compared, because they are known for local files only.
    compared = {name: value for name, value in (fingerprint or {}).items() if name != "sizes"}
    numbers = [examples or 0, _digest(compared), int(held_out), iteration]
    sizes, fingerprints, held_outs, iterations = peers.gather(numbers).T
    if _differ(sizes):
        raise UserError(
            f"the processes find different numbers of images {_distinct(sizes)} in --data_dir",
            "provide the same files on all machines",
        )
    if _differ(fingerprints):
        raise UserError(
            "the processes find different file names, classes or examples in their data",
            "provide the same data on all machines",
        )
    if _differ(held_outs):
        raise UserError(
            "some processes have held-out data, and others do not",
            "give --test_data_dir on all machines or on none, and prepare the same splits of a "
            "dataset everywhere",
        )
    if _differ(iterations):
        raise UserError(
            f"the processes start at different iterations {_distinct(iterations)}, "
            "so they do not share one --model_dir",
            "give a directory that all machines share, such as gs://BUCKET/RUN",
        )


def lost_peer(cause: str) -> UserError:
    """Returns the error of a process that cannot continue because another one has ended."""
    return UserError(
        f"another process has ended ({cause})",
        "start the same command on every machine: training continues from the last checkpoint",
    )


def _digest(content: Any) -> int:
    """Returns 56 bits of a hash of JSON content."""
    return int(digest(content)[:14], 16)


def _differ(values: np.ndarray) -> bool:
    return len(_distinct(values)) > 1


def _distinct(values: np.ndarray) -> list[int]:
    return sorted(set(values.tolist()))


# Kills the parent process after a time limit, and ends when the parent has ended.
_WATCHDOG = """
import os, signal, sys, time
parent, seconds, line = os.getppid(), float(sys.argv[1]), sys.argv[2]
end = time.monotonic() + seconds
while time.monotonic() < end:
    time.sleep(0.2)
    if os.getppid() != parent:
        sys.exit()
print(line, file=sys.stderr, flush=True)
os.kill(parent, signal.SIGKILL)
"""


@contextlib.contextmanager
def deadline_from_outside(seconds: float, what: str, remedy: str) -> Iterator[None]:
    """Ends the program with an error if the code inside the context takes too long.

    Another process limits the time, because TensorFlow waits here while it holds Python's global
    interpreter lock, so that no thread of this process can run. The program is killed, so its exit
    status is that of SIGKILL.

    Args:
      seconds: The time limit.
      what: See `UserError`.
      remedy: See `UserError`.
    """
    line = f"error: {UserError(what, remedy)}"
    watchdog = subprocess.Popen([sys.executable, "-S", "-c", _WATCHDOG, str(seconds), line])
    try:
        yield
    finally:
        watchdog.send_signal(signal.SIGKILL)
        watchdog.wait()
