"""Several machines with GPUs: one process each, introduced to each other by TF_CONFIG."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from .config import Config
from .deadline import deadline_from_outside
from .errors import UserError

_EXAMPLE = (
    '{"cluster": {"worker": ["HOST1:PORT", "HOST2:PORT"]}, "task": {"type": "worker", "index": 0}}'
)


@dataclasses.dataclass(frozen=True)
class Workers:
    """Who trains together.

    Attributes:
      addresses: HOST:PORT of every process, the chief's first.
      index: of this process among them.
    """

    addresses: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        return self.index == 0


ALONE = Workers(("localhost",), 0)


def find(config: Config) -> Workers:
    """Who trains this run: on a TPU one process, whatever TF_CONFIG says."""
    return ALONE if config.tpu is not None else from_environment()


def from_environment(environment: Mapping[str, str] = os.environ) -> Workers:
    """What TF_CONFIG says; ALONE where it says nothing, or names one process.

    Raises:
      UserError: it is no such thing.
    """
    text = environment.get("TF_CONFIG", "").strip()
    if not text:
        return ALONE
    try:
        settings = json.loads(text)
        cluster, task = settings.get("cluster", {}), settings.get("task", {})
        addresses = {kind: list(cluster.get(kind, [])) for kind in ("chief", "worker")}
        if not any(addresses.values()):
            return ALONE
        for address in [*addresses["chief"], *addresses["worker"]]:
            int(address.rpartition(":")[2])  # there is a port
        before = len(addresses["chief"]) if task["type"] == "worker" else 0
        addresses[task["type"]][int(task["index"])]  # there is such a process
        if int(task["index"]) < 0:
            raise IndexError(task["index"])
        everybody = (*addresses["chief"], *addresses["worker"])
        workers = Workers(everybody, before + int(task["index"]))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise UserError(
            f"TF_CONFIG is no cluster of chief and worker with a task in it ({error!r})",
            f"set it as {_EXAMPLE}, or unset it to train on this machine alone",
        ) from error
    return workers if len(everybody) > 1 else ALONE


def connect(workers: Workers, config: Config) -> tf.distribute.Strategy:
    """A strategy over the GPUs, or else the CPU, of all processes; waits for all of them.

    Raises:
      UserError: this process cannot take its place, or others do not come.
    """
    wait_for_all(workers, config.start_timeout)
    late = (
        f"not all of TF_CONFIG's {', '.join(workers.addresses)} answered as this program within "
        f"--start_timeout={config.start_timeout} seconds"
    )
    remedy = "look for one that ended, or for another program at its port, and start them all again"
    try:
        with deadline_from_outside(config.start_timeout, late, remedy):
            return tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise _no_place(workers, error) from error


def wait_for_all(workers: Workers, seconds: float) -> None:
    """Returns once every other process has been seen at its address.

    TensorFlow waits for them too, but for ever, and where no timer of Python's can end it.

    Raises:
      UserError: one did not come in time, or this process's own address cannot be had.
    """
    port = int(workers.addresses[workers.index].rpartition(":")[2])
    missing = [address for place, address in enumerate(workers.addresses) if place != workers.index]
    until = time.monotonic() + seconds
    # Others look for this one here, until TensorFlow's server takes its place.
    try:
        door = socket.create_server(("", port))
    except OSError as error:
        raise _no_place(workers, error) from error
    with door:
        while missing:
            missing = [address for address in missing if not _is_there(address)]
            if missing and time.monotonic() > until:
                raise UserError(
                    f"TF_CONFIG names {', '.join(missing)}, which "
                    f"{'is' if len(missing) == 1 else 'are'} not there after "
                    f"--start_timeout={seconds:g} seconds",
                    "start the same command on every machine, each with its own index, and let "
                    "them reach each other",
                )
            time.sleep(0.1)


def _is_there(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False


def _no_place(workers: Workers, error: Exception) -> UserError:
    reason = str(error).partition("\n")[0]
    return UserError(
        f"TF_CONFIG: {workers.addresses[workers.index]} cannot be this process ({reason})",
        "give each process an address of its own machine, and a free port",
    )


def gather(strategy: tf.distribute.Strategy, numbers: list[int]) -> np.ndarray:
    """Every replica's `numbers`, `[replicas, n]`; all processes must ask at the same place."""
    return _gatherer(strategy)(tf.constant([numbers], tf.int64)).numpy()


@functools.lru_cache(maxsize=1)  # asked after every loop, and not to be traced each time
def _gatherer(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    @tf.function
    def of_all(own: tf.Tensor) -> tf.Tensor:
        return strategy.gather(strategy.run(lambda: tf.identity(own)), axis=0)

    return of_all


def agree_to_stop(strategy: tf.distribute.Strategy, signal: int | None) -> int | None:
    """The signal that any of the processes was sent, so that all stop after the same loop."""
    return int(gather(strategy, [signal or 0]).max()) or None


def check_same_run(
    strategy: tf.distribute.Strategy, config: Config, examples: int | None, iteration: int
) -> None:
    """Raises UserError unless all processes have one configuration, dataset and place in it.

    Args:
      strategy: over all of them.
      config: of this process.
      examples: in its dataset; None: no fixed number.
      iteration: that it begins at.
    """
    rollback = (config.on_nonfinite, config.max_rollbacks)  # free, but for all the same
    content = json.dumps([config.binding(), rollback], sort_keys=True).encode()
    settings = int.from_bytes(hashlib.sha256(content).digest()[:7], "big")
    all_settings, sizes, iterations = gather(strategy, [settings, examples or 0, iteration]).T
    if len(set(all_settings.tolist())) > 1:
        raise UserError(
            "the processes of TF_CONFIG were not given the same flags",
            "start the same command on every machine",
        )
    if len(set(sizes.tolist())) > 1:
        raise UserError(
            f"the processes of TF_CONFIG find {sorted(set(sizes.tolist()))} images: their "
            "--data_dir differ",
            "give all machines the same files",
        )
    distinct = sorted(set(iterations.tolist()))
    if len(distinct) > 1:
        raise UserError(
            f"the processes of TF_CONFIG stand at iterations {distinct}: "
            "they do not read the same --model_dir",
            "give a directory that all machines share, such as gs://BUCKET/RUN",
        )
