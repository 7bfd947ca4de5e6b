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
_WINDOW_BYTES = 2**26  # of decoded examples that wait, for example while a file is written
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
    task_bytes = min(_MOST_ITEMS, fitting) * example_bytes
    window = max(2 * cores, min(32 * cores, _WINDOW_BYTES // task_bytes))
    items, processes, done = source.items(first), _Processes(source.origin), 0

    def run(task: list[Item]) -> Part:
        examples, unreadable = processes.decode(
            source.decode, task, source.origin, source.shape, source.dtype
        )
        labels = np.array([item.label for item in task], np.int64)
        return Part([item.name for item in task], examples, labels, unreadable)

    tasks = iter(lambda: take(items, most), [])
    # More threads than processes, so that a process finds its next task at once.
    parts = computed_ahead(run, tasks, 2 * cores if cores > 1 else 1, window)
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
    """Processes that decode once they are started; until then, the caller decodes."""

    def __init__(self, origin: str):
        self._origin = origin
        self._pool: Any = None
        self._first: Future[int] | None = None  # a sign of the first process that has started
        self._is_closed = False

    def start(self, count: int) -> None:
        """Starts processes, which takes seconds and does not wait."""
        from joblib.externals import loky  # noqa: PLC0415, which takes half a second

        first: Future[int] = Future()
        try:
            self._pool = loky.ProcessPoolExecutor(
                count, timeout=_IDLE_SECONDS, initializer=_be_quiet, env=_ENVIRONMENT
            )
            first = self._pool.submit(os.getpid)
        except Exception as error:  # of many types, for example without sys.executable
            first.set_exception(error)
        self._first = first
        first.add_done_callback(self._report)

    def _report(self, first: Future[int]) -> None:
        if not self._is_closed and (error := first.exception()) is not None:
            logging.info(
                f"note: {self._origin}: threads decode, which takes longer, because no process can "
                f"be started for it ({reason(error)})"
            )

    def decode(
        self, function: Callable[[Any], np.ndarray], items: list[Item], *others: Any
    ) -> tuple[np.ndarray, dict[int, str]]:
        """Returns the result of `decode_items`.

        Raises:
          UserError: If a process is killed or crashes.
        """
        first = self._first
        if first is None or not first.done() or first.exception() is not None:
            return decode_items(function, items, *others)
        try:
            return self._pool.submit(decode_items, function, items, *others).result()
        except BrokenProcessPool as error:
            raise UserError(
                f"a process that decoded {self._origin} was killed or crashed at "
                f"{printable(items[0].name)} or after it, as when memory is short",
                "free memory and start again; if it is repeated, remove damaged files",
            ) from error

    def close(self) -> None:
        """Ends the processes at once."""
        self._is_closed = True
        if self._pool is not None:
            # shutdown(kill_workers=True) fails for tasks that a thread submits at the same time.
            for process in list(self._pool._processes.values()):
                process.terminate()
            self._pool.shutdown()


def _be_quiet() -> None:
    """Hides what libraries print in a process, which Ctrl-C does not interrupt by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
