"""Training on several machines with GPUs, with one process on each, configured by TF_CONFIG."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from .config import Config, as_text
from .deadline import deadline_from_outside
from .errors import UserError, shorten
from .json_files import digest

_EXAMPLE = (
    '{"cluster": {"worker": ["HOST1:PORT", "HOST2:PORT"]}, "task": {"type": "worker", "index": 0}}'
)
_LAST_PORT = 65_535


@dataclasses.dataclass(frozen=True)
class Workers:
    """The processes that train together.

    Attributes:
      addresses: HOST:PORT of every process, that of the chief first.
      index: The index of this process in `addresses`.
    """

    addresses: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        return self.index == 0


ALONE = Workers(("localhost",), 0)


def find(config: Config) -> Workers:
    """Returns the processes that train a run; on a TPU, this is one process."""
    return ALONE if config.tpu is not None else from_environment()


def from_environment(environment: Mapping[str, str] = os.environ) -> Workers:
    """Returns the processes in TF_CONFIG, or ALONE if it is unset or names one process only.

    Args:
      environment: The environment variables.

    Raises:
      UserError: If TF_CONFIG is invalid.
    """
    text = environment.get("TF_CONFIG", "").strip()
    if not text:
        return ALONE
    try:
        settings = json.loads(text)
        cluster, task = settings.get("cluster", {}), settings.get("task", {})
        chiefs, others = _addresses(cluster, "chief"), _addresses(cluster, "worker")
        if not chiefs and not others:
            return ALONE
        own, before = {"chief": (chiefs, 0), "worker": (others, len(chiefs))}[task["type"]]
        index = int(str(task["index"]))  # rejects 0.5
        if not 0 <= index < len(own):
            raise IndexError(f"there is no task {index}")
        everybody = (*chiefs, *others)
        if len(set(everybody)) < len(everybody):
            raise ValueError("an address is there twice")
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise UserError(
            "TF_CONFIG is no cluster of chief and worker with a task in it "
            f"({shorten(repr(error))})",
            f"set it as {_EXAMPLE}, or unset it to train on this machine alone",
        ) from error
    return Workers(everybody, before + index) if len(everybody) > 1 else ALONE


def _addresses(cluster: dict[str, Any], kind: str) -> list[str]:
    """Returns the addresses of the processes of type `kind`.

    Raises:
      ValueError: If an address is not HOST:PORT.
    """
    addresses = cluster.get(kind, [])
    if not isinstance(addresses, list):
        raise ValueError(f"{kind} is not a list")
    for address in addresses:
        match = re.fullmatch(r"[!-~]+:([0-9]{1,5})", str(address))
        if match is None or not 1 <= int(match[1]) <= _LAST_PORT:
            raise ValueError(f"{str(address)!r} is not HOST:PORT with a port of 1 to {_LAST_PORT}")
    return addresses


def connect(workers: Workers, config: Config) -> tf.distribute.Strategy:
    """Waits for all processes and returns a strategy over their GPUs, or over their CPUs.

    Raises:
      UserError: If this process cannot use its address, another process does not start in time,
        or the processes have different flags.
    """
    wait_for_all(workers, config.start_timeout)
    late = (
        f"not all of TF_CONFIG's {', '.join(workers.addresses)} answered as this program within "
        f"--start_timeout={config.start_timeout} seconds"
    )
    remedy = "look for one that ended, or for another program at its port, and start them all again"
    try:
        with deadline_from_outside(config.start_timeout, late, remedy):
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise _no_place(workers, error) from error
    # The check must come before variables are created, which synchronizes all processes.
    check_same_flags(strategy, config)
    return strategy


def wait_for_all(workers: Workers, seconds: float) -> None:
    """Waits until every other process answers at its address.

    TensorFlow also waits for them, but forever and where no Python timer can end it.

    Raises:
      UserError: If a process does not answer in time, or this process cannot use its address.
    """
    port = int(workers.addresses[workers.index].rpartition(":")[2])
    missing = [address for place, address in enumerate(workers.addresses) if place != workers.index]
    until = time.monotonic() + seconds
    # Other processes connect to this socket until TensorFlow's server replaces it.
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
    """Returns the `numbers` of every replica, `[replicas, n]`; all processes must call it."""
    return _gatherer(strategy)(tf.constant([numbers], tf.int64)).numpy()


@functools.lru_cache(maxsize=1)  # called after every loop and traced once
def _gatherer(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    @tf.function
    def of_all(own: tf.Tensor) -> tf.Tensor:
        return strategy.gather(strategy.run(lambda: tf.identity(own)), axis=0)

    return of_all


def agree_to_stop(strategy: tf.distribute.Strategy, signal: int | None) -> int | None:
    """Returns a signal that any process received, so that all stop after the same loop."""
    return int(gather(strategy, [signal or 0]).max()) or None


def check_same_flags(strategy: tf.distribute.Strategy, config: Config) -> None:
    """Raises UserError unless all processes have the same program version and flags.

    Settings that are declared `per_process` may differ.
    """
    names = [
        field.name for field in dataclasses.fields(config) if not field.metadata["per_process"]
    ]
    if _differ(gather(strategy, [_digest([tf.__version__, names])])[:, 0]):
        raise UserError(
            "the processes of TF_CONFIG are of different versions of this program or of TensorFlow",
            "install the same on every machine",
        )
    digests = gather(strategy, [_digest(getattr(config, name)) for name in names])
    differing = [name for name, each in zip(names, digests.T, strict=True) if _differ(each)]
    if differing:
        here = ", ".join(
            f"--{name}={shorten(as_text(getattr(config, name)))}" for name in differing
        )
        raise UserError(
            f"the processes of TF_CONFIG were not given the same flags (this one: {here})",
            "start the same command on every machine",
        )


def check_same_run(
    strategy: tf.distribute.Strategy,
    examples: int | None,
    fingerprint: dict[str, Any] | None,
    held_out: bool,
    iteration: int,
) -> None:
    """Raises UserError unless all processes have the same data and start at the same iteration.

    Args:
      strategy: The strategy over all processes.
      examples: The number of examples in this process's dataset. None if they are generated.
      fingerprint: The fingerprint of the dataset's files; see data/fingerprint.py.
      held_out: Whether this process has held-out data, which the probe evaluates.
      iteration: The iteration at which this process starts.
    """
    # File sizes are not compared, because they are known for local files only.
    files = _digest([fingerprint and fingerprint[name] for name in ("names", "classes")])
    numbers = [examples or 0, files, int(held_out), iteration]
    sizes, names, held_outs, iterations = gather(strategy, numbers).T
    if _differ(sizes):
        raise UserError(
            f"the processes of TF_CONFIG find {_distinct(sizes)} images: their --data_dir differ",
            "give all machines the same files",
        )
    if _differ(names):
        raise UserError(
            "the processes of TF_CONFIG find files or classes of other names: their --data_dir "
            "differ",
            "give all machines the same files",
        )
    if _differ(held_outs):
        raise UserError(
            "some processes of TF_CONFIG have data that is not trained on, and others have none",
            "give all machines --test_data_dir, or none, and the same splits of a dataset",
        )
    if _differ(iterations):
        raise UserError(
            f"the processes of TF_CONFIG stand at iterations {_distinct(iterations)}: "
            "they do not read the same --model_dir",
            "give a directory that all machines share, such as gs://BUCKET/RUN",
        )


def _digest(content: Any) -> int:
    """Returns 56 bits of a hash of JSON content."""
    return int(digest(content)[:14], 16)


def _differ(values: np.ndarray) -> bool:
    return len(_distinct(values)) > 1


def _distinct(values: np.ndarray) -> list[int]:
    return sorted(set(values.tolist()))
