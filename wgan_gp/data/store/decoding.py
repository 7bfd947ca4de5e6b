"""Decodes the examples of slow files in order, with all cores and in bounded memory.

Processes that only decode import this module, so it does not import TensorFlow.
"""

from __future__ import annotations

import itertools
import math
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from ...errors import UserError, printable, reason
from ..sources.encoded import Encoded, Item, Unreadable, computed_ahead, read_item

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_MOST_PROCESSES = 64  # that one process can feed
# Items of a task, which takes as long as a small picture itself, but delays the end.
_FIRST_ITEMS, _MOST_ITEMS, _TASK_SECONDS = 16, 128, 0.1
_TASK_BYTES = 2**20  # of encoded items or of examples
_WINDOW_BYTES = 2**27  # of decoded examples that wait for an earlier one
# After so many seconds processes are started, if the rest takes as long as several starts of them.
_TRIAL_SECONDS, _WORTH_SECONDS = 0.2, 3.0
_IDLE_SECONDS = 60  # after which a process ends whose parent was killed
# Each process would otherwise start a thread for each core.
_ENVIRONMENT = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1")


class Part(NamedTuple):
    """Consecutive examples.

    Attributes:
      names: Their names.
      examples: `[K, ...]`, undefined at the places of those that cannot be read.
      labels: `[K]` int64.
      unreadable: The reasons why examples cannot be read, by their places.
    """

    names: list[str]
    examples: np.ndarray
    labels: np.ndarray
    unreadable: dict[int, str]


def decode_items(
    decode: Callable[[Any], np.ndarray],
    items: list[Item],
    origin: str,
    shape: tuple[int, ...],
    dtype: np.dtype,
) -> tuple[np.ndarray, dict[int, str]]:
    """Returns the examples and the reasons of a Part; see `Encoded` for the arguments."""
    examples, unreadable = np.empty([len(items), *shape], dtype), {}
    for place, item in enumerate(items):
        try:
            example = read_item(item, decode, origin)
        except Unreadable as error:
            unreadable[place] = str(error)
            continue
        if example.shape != shape or example.dtype != dtype:
            raise ValueError(
                f"an example is {example.dtype} {example.shape} in place of {dtype} {shape}"
            )
        examples[place] = example
    return examples, unreadable


def decoded(source: Encoded, first: int) -> Generator[Part, None, None]:
    """Yields the examples of a source in order, from the index `first` on.

    Threads decode them, or processes if these save more time than they take to start.

    Raises:
      UserError: If a process ends, or whatever `items` and `decode` raise.
    """
    cores = min(_CORES, _MOST_PROCESSES)
    example_bytes = max(1, math.prod(source.shape) * source.dtype.itemsize)
    fitting = max(1, _TASK_BYTES // example_bytes)
    most = min(_FIRST_ITEMS, fitting)
    window = max(
        cores, min(4 * cores, _WINDOW_BYTES // (min(_MOST_ITEMS, fitting) * example_bytes))
    )
    items, processes, done = source.items(first), _Processes(source.origin), 0

    def run(task: list[Item]) -> Part:
        examples, unreadable = processes.run(
            decode_items, source.decode, task, source.origin, source.shape, source.dtype
        )
        labels = np.array([item.label for item in task], np.int64)
        return Part([item.name for item in task], examples, labels, unreadable)

    tasks = iter(lambda: take(items, most), [])
    # Threads that wait for processes are one more than these, so that none of them waits.
    parts = computed_ahead(run, tasks, cores + 1 if cores > 1 else 1, window)
    begin, is_tried = time.monotonic(), cores == 1
    try:
        for part in parts:
            yield part
            done += len(part.labels)
            seconds = time.monotonic() - begin
            if not is_tried and seconds > _TRIAL_SECONDS:
                is_tried, each = True, seconds / done
                if each * (source.size - first - done) > _WORTH_SECONDS:
                    processes.start(cores)
                    most = min(max(1, int(_TASK_SECONDS / (each * cores))), _MOST_ITEMS, fitting)
    finally:
        processes.close()


def take(items: Iterator[Item], most: int) -> list[Item]:
    """Returns the next items, fewer than `most` if they have more than _TASK_BYTES."""
    taken, size = [], 0
    for item in itertools.islice(items, most):
        taken.append(item)
        content = item.content
        size += len(content) if isinstance(content, bytes) else getattr(content, "nbytes", 0)
        if size >= _TASK_BYTES:
            break
    return taken


class _Processes:
    """Processes that run functions once they are started; until then, the caller runs them."""

    def __init__(self, origin: str):
        self._origin = origin
        self._pool: Any = None
        self._has_failed = False
        self._first: Future[int] | None = None  # of the first process that has started

    def start(self, count: int) -> None:
        """Starts processes, which takes seconds and does not wait."""
        from joblib.externals import loky  # noqa: PLC0415, which takes half a second

        try:
            self._pool = loky.ProcessPoolExecutor(
                count, timeout=_IDLE_SECONDS, initializer=_be_quiet, env=_ENVIRONMENT
            )
            self._first = self._pool.submit(os.getpid)
        except Exception as error:  # of many types, for example without sys.executable
            self._give_up(error)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns the result of a function.

        Raises:
          UserError: If a process is killed or crashes.
        """
        first = self._first
        if first is None or not first.done():
            return function(*arguments)
        if (failed := first.exception()) is not None:
            self._give_up(failed)
            return function(*arguments)
        try:
            return self._pool.submit(function, *arguments).result()
        except BrokenProcessPool as error:
            name = printable(arguments[1][0].name)
            raise UserError(
                f"a process that decoded {self._origin} was killed or crashed at {name} or after "
                "it, as when memory is short",
                "free memory and start again; if it is repeated, remove damaged files",
            ) from error

    def _give_up(self, error: BaseException) -> None:
        is_first, self._has_failed, self._first = not self._has_failed, True, None
        if is_first:
            logging.info(
                f"note: {self._origin}: threads decode, which takes longer, because no process can "
                f"be started for it ({reason(error)})"
            )

    def close(self) -> None:
        """Ends the processes at once."""
        if self._pool is not None:
            self._pool.shutdown(kill_workers=True)


def _be_quiet() -> None:
    """Hides what libraries print in a process, which Ctrl-C does not interrupt by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
