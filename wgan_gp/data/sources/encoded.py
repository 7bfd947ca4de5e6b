"""Examples of slow files, such as pictures, which are decoded once, with all cores, into a store.

Processes that only decode import this module, so it does not import TensorFlow.
"""

from __future__ import annotations

import abc
import collections
import itertools
import math
import os
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple, TypeVar

import numpy as np
from absl import logging

from ...config import DataSettings
from ...errors import UserError, naming, printable, reason

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

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


class Item(NamedTuple):
    """An encoded example.

    Attributes:
      name: Its name for messages, such as the path of its file.
      label: The number of its class or NO_LABEL; 0 without classes.
      content: What `Encoded.decode` takes, or Unreadable if there is nothing to decode.
    """

    name: str
    label: int
    content: Any


class Unreadable(Exception):  # noqa: N818
    """An example that cannot be read. It is named in a warning, and left out.

    Args:
      reason: The reason in a few words, such as "it has no pixels".
    """


class Encoded(abc.ABC):
    """Examples in files of one kind, in a fixed order.

    Its properties are known after reading at most some headers. It does not start TensorFlow's
    runtime and builds no graphs; `tf.io.gfile` opens its files, which may be in a bucket.

    Attributes:
      origin: The flag and its value for messages, such as "--data_dir=photos".
      shape: The shape of an example, `(H, W, C)` for pictures.
      dtype: The dtype of an example; for pictures np.uint8 or np.uint16.
      class_names: The names of the classes in the order of their numbers; None without labels.
      size: The number of examples, including those that turn out to be unreadable.
      decode: Returns the example of the content of an item, or raises Unreadable. Threads call it
        at the same time, and other processes, for which it is pickled. Its module does not import
        TensorFlow, which would take seconds and hundreds of megabytes in each process.
      is_prepared: False for a dataset that must be downloaded first, whose `size` is unknown.
      square_side: The side of the default square of pictures, for networks that do not support
        rectangles.
      held_out_split: The name of a split, "test" or "validation", that is not the split of these
        examples; None if there is none.
    """

    origin: str
    shape: tuple[int, ...]
    dtype: np.dtype
    class_names: tuple[str, ...] | None
    size: int
    decode: Callable[[Any], np.ndarray]
    is_prepared: bool = True
    square_side: int | None = None
    held_out_split: str | None = None

    def prepare(self) -> None:  # noqa: B027
        """Downloads the data if `is_prepared` is False, after which its `size` is known."""

    @abc.abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Returns the fingerprint of the files, which is the same on every machine."""

    @abc.abstractmethod
    def identity(self) -> dict[str, Any]:
        """Returns a JSON object that changes if any example changes.

        It contains, for example, the names, sizes and times of files, and how they are decoded.
        """

    @abc.abstractmethod
    def items(self, first: int = 0) -> Iterator[Item]:
        """Yields the encoded examples in order, from the index `first` on."""

    def read(self, item: Item) -> np.ndarray:
        """Returns the example of an item; see `read_item`."""
        return read_item(item, self.decode, self.origin)

    @abc.abstractmethod
    def resized(self, settings: DataSettings) -> Encoded:
        """Returns the same examples for another --image_size."""

    def of_split(self, split: str) -> Encoded:
        """Returns the examples of another split in the same form; see `held_out_split`."""
        raise NotImplementedError(f"{type(self).__name__} has no splits")


def read_item(item: Item, decode: Callable[[Any], np.ndarray], origin: str) -> np.ndarray:
    """Returns the example of an item.

    Raises:
      Unreadable: If it cannot be read.
      UserError: A mistake of the user, with the name of the item.
    """
    if isinstance(item.content, Unreadable):
        raise item.content
    with naming(f"{origin}: {item.name}"):
        return decode(item.content)


def computed_ahead(
    function: Callable[[_Given], _Result], values: Iterable[_Given], threads: int, window: int
) -> Iterator[_Result]:
    """Yields the results of a function in order, of which threads compute `window` ahead.

    The end does not wait for threads that still compute.
    """
    pool, waiting = ThreadPoolExecutor(threads), collections.deque[Future[_Result]]()
    try:
        for value in values:
            waiting.append(pool.submit(function, value))
            if len(waiting) > window:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


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
    """Processes that decode once one has started; until then, the caller decodes."""

    def __init__(self, origin: str):
        self._origin = origin
        self._pool: Any = None
        self._first: Future[int] | None = None  # a sign of the first process that has started

    def start(self, count: int) -> None:
        """Starts processes, which takes seconds and does not wait."""
        from joblib.externals import loky  # noqa: PLC0415, which takes half a second

        self._pool = loky.ProcessPoolExecutor(
            count, timeout=_IDLE_SECONDS, initializer=_be_quiet, env=_ENVIRONMENT
        )
        try:
            self._first = self._pool.submit(os.getpid)
        except Exception as error:  # of many types, for example without sys.executable
            logging.info(
                f"note: {self._origin}: threads decode, because no process starts ({reason(error)})"
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
