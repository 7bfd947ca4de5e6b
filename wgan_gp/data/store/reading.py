"""Reads the examples of a source in order, with all cores and in bounded memory."""

from __future__ import annotations

import collections
import math
import os
import sys
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
import tqdm
from absl import logging

from ...errors import UserError, printable, shorten
from ...runtime.streams import is_terminal
from ..sources.encoded import Encoded
from .processes import TASK_BYTES, Part, Readers, take
from .store import MOST_NAMES, Record

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_MOST_PROCESSES = 64  # that one process can feed
_PARALLEL_REQUESTS = 32  # to a bucket, where a request takes longer than to decode a picture
# Examples of a task, which takes as long as a small picture itself, but delays the end.
_THREAD_ITEMS, _MOST_ITEMS, _TASK_SECONDS = 16, 128, 0.1
_WINDOW_BYTES = 2**27  # of decoded examples that wait for an earlier one
_TRIAL_SECONDS = 0.2  # after which processes are started, if the rest takes _WORTH_SECONDS
_WORTH_SECONDS = 1.0  # three times as long as it takes to start a process
_MOST_NAMED = 20


class Reading:
    """The reading of a source from an example on, in a context that ends it.

    Args:
      source: The source.
      begin: The state of an earlier reading, which is continued.

    Attributes:
      read: The number of examples that were read, including those before.
      unreadable: The number of these that are left out.
      left_out: The names of the first MOST_NAMES of them.
    """

    def __init__(self, source: Encoded, begin: Record):
        self._source = source
        self.read = begin.read
        self.unreadable = begin.unreadable
        self.left_out = list(begin.left_out)
        self._reasons: dict[str, str] = {}  # by the names of the first examples that are left out
        self._parts = _parts(source, begin.read)
        self._rest: collections.deque[_Run | str] = collections.deque()  # of the last part
        self._bar = tqdm.tqdm(
            total=source.size,
            initial=self.read,
            desc=f"reading {source.origin}",
            unit=" examples",
            disable=not is_terminal(sys.stderr),
            leave=False,
        )

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()
        self._bar.close()

    def read_into(self, examples: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Reads the next examples into arrays.

        Args:
          examples: `[B, ...]`.
          labels: `[B]` int64.

        Returns:
          `[K]`, the indices of the examples in the source. K is less than B only at the end.

        Raises:
          UserError: If the source has no example that can be read, or cannot be read any longer.
        """
        indices, count = np.empty([len(labels)], np.int64), 0
        while count < len(labels) and self._has_rest():
            run = self._rest.popleft()
            if isinstance(run, str):
                self._leave_out(run)
                continue
            taken = min(len(run.labels), len(labels) - count)
            place = slice(count, count + taken)
            examples[place], labels[place] = run.examples[:taken], run.labels[:taken]
            indices[place] = np.arange(self.read, self.read + taken)
            if taken < len(run.labels):
                self._rest.appendleft(_Run(run.examples[taken:], run.labels[taken:]))
            self._count(taken)
            count += taken
        return indices[:count]

    def _has_rest(self) -> bool:
        """Returns False if all examples were read."""
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                if self.read == self.unreadable:
                    raise self._nothing()
                return False
            self._rest.extend(_runs(part))
        return True

    def _nothing(self) -> UserError:
        first = next(iter(self._reasons.items()), None)
        why = f"{printable(first[0])}: {first[1]}" if first else "there are none"
        return UserError(
            f"{self._source.origin} has no example that can be read ({why})", "give readable files"
        )

    def _count(self, number: int) -> None:
        self.read += number
        self._bar.update(number)

    def warn(self) -> None:
        """Names the examples that are left out on stderr, with each reason once."""
        if not self.unreadable:
            return
        names, said = [], set()
        for name in self.left_out[:_MOST_NAMED]:
            reason = self._reasons.get(name)
            is_new = reason is not None and reason not in said
            names.append(f"{printable(name)} ({reason})" if is_new else printable(name))
            said.add(reason)
        more = f" and {self.unreadable - len(names)} more" if self.unreadable > len(names) else ""
        logging.warning(
            f"{self._source.origin}: {self.unreadable} of {self.read} examples cannot be read and "
            f"{'is' if self.unreadable == 1 else 'are'} left out: {', '.join(names)}{more}"
        )

    def _leave_out(self, reason: str) -> None:
        name = self._source.name(self.read)
        self._count(1)
        self.unreadable += 1
        if len(self.left_out) < MOST_NAMES:
            self.left_out.append(name)
        if len(self._reasons) < _MOST_NAMED:
            self._reasons[name] = shorten(reason)


class _Run(NamedTuple):
    """Consecutive examples that can be read, see `Part`."""

    examples: np.ndarray
    labels: np.ndarray


def _runs(part: Part) -> Iterator[_Run | str]:
    """Yields the examples of a part, and the reason for each that cannot be read, in order."""
    begin = 0
    for number, (place, reason) in enumerate(part.unreadable):
        end = place - number
        if begin < end:
            yield _Run(part.examples[begin:end], part.labels[begin:end])
        yield reason
        begin = end
    if begin < len(part.labels):
        yield _Run(part.examples[begin:], part.labels[begin:])


def _parts(source: Encoded, first: int) -> Generator[Part, None, None]:
    """Yields the examples in order, which are read ahead, in a bounded window.

    Threads read them, or processes if these save more time than they take to start.
    """
    cores = min(_CORES, _MOST_PROCESSES)
    threads = _PARALLEL_REQUESTS if "://" in source.origin else cores
    example_bytes = max(1, math.prod(source.shape) * source.dtype.itemsize)
    fitting = max(1, TASK_BYTES // example_bytes)
    most = min(_THREAD_ITEMS, fitting)
    task_bytes = min(_MOST_ITEMS, fitting) * example_bytes
    window = max(threads, min(4 * threads, _WINDOW_BYTES // task_bytes))
    items, end, done = source.items(first), first, 0
    waiting: collections.deque[Future[Part]] = collections.deque()
    readers = Readers(source, threads, cores)
    begin, is_tried = time.monotonic(), cores == 1
    try:
        while task := take(items, most):
            waiting.append(readers.submit(end, task))
            end += len(task)
            if len(waiting) <= window:
                continue
            part = waiting.popleft().result()
            yield part
            done += len(part.labels) + len(part.unreadable)
            seconds = time.monotonic() - begin
            if not is_tried and seconds > _TRIAL_SECONDS:
                is_tried = True
                each = seconds / done
                if each * (source.size - first - done) > _WORTH_SECONDS and readers.use_processes():
                    most = min(max(1, int(_TASK_SECONDS / (each * cores))), _MOST_ITEMS, fitting)
        while waiting:
            yield waiting.popleft().result()
    finally:
        readers.close()
