"""Reads the examples of a source in order, with all cores and in bounded memory."""

from __future__ import annotations

import collections
import itertools
import math
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tqdm
from absl import logging

from ...errors import UserError, printable, shorten
from ..sources.source import Example, Source, Unreadable
from .store import MOST_NAMES, Record

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_PARALLEL_REQUESTS = 32  # to a bucket, where a request takes longer than to decode a picture
_MOST_ITEMS = 16  # of a task; a task for each example would cost as much as a small picture
_TASK_BYTES = 2**20
_WINDOW_BYTES = 2**27  # of decoded examples that wait for an earlier one
_MOST_NAMED = 20


class Reading:
    """The reading of a source from an example on; an iterator over its readable examples.

    Args:
      source: The source.
      begin: The state of an earlier reading, which is continued.

    Attributes:
      read: The number of examples that were read, including those before.
      unreadable: The number of these that are left out.
      left_out: The names of the first MOST_NAMES of them.
    """

    def __init__(self, source: Source, begin: Record):
        self._source = source
        self.read = begin.read
        self.unreadable = begin.unreadable
        self.left_out = list(begin.left_out)
        self._reasons: dict[str, str] = {}  # by the names of the first examples that are left out

    def __iter__(self) -> Iterator[Example]:
        source, found = self._source, self.read - self.unreadable
        bar = tqdm.tqdm(
            total=source.size,
            initial=self.read,
            desc=f"reading {source.origin}",
            unit=" examples",
            disable=not sys.stderr.isatty(),
            leave=False,
        )
        with bar:
            for example in _decoded(source, self.read):
                self.read += 1
                bar.update()
                if isinstance(example, Unreadable):
                    self._leave_out(example)
                    continue
                found += 1
                yield example
        if not found:
            first = next(iter(self._reasons.items()), None)
            why = f"{printable(first[0])}: {first[1]}" if first else "there are none"
            raise UserError(
                f"{source.origin} has no example that can be read ({why})", "give readable files"
            )

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

    def _leave_out(self, reason: Unreadable) -> None:
        name = self._source.name(self.read - 1)
        self.unreadable += 1
        if len(self.left_out) < MOST_NAMES:
            self.left_out.append(name)
        if len(self._reasons) < _MOST_NAMED:
            self._reasons[name] = shorten(str(reason))


def _decoded(source: Source, first: int) -> Iterator[Example | Unreadable]:
    """Yields the examples in order; several threads read them ahead, in a bounded window."""
    threads = _PARALLEL_REQUESTS if "://" in source.origin else _CORES
    example_bytes = max(1, math.prod(source.shape) * source.dtype.itemsize)
    count = max(1, min(_MOST_ITEMS, _TASK_BYTES // example_bytes))
    window = max(threads, min(4 * threads, _WINDOW_BYTES // (count * example_bytes)))

    def read(items: Sequence[Any]) -> list[Example | Unreadable]:
        return [_read(source, item) for item in items]

    items = source.items(first)
    waiting: collections.deque[Future] = collections.deque()
    pool = ThreadPoolExecutor(threads)
    try:
        while task := list(itertools.islice(items, count)):
            waiting.append(pool.submit(read, task))
            if len(waiting) > window:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _read(source: Source, item: Any) -> Example | Unreadable:
    try:
        example = source.read(item)
    except Unreadable as error:
        return error
    if example.array.shape != tuple(source.shape) or example.array.dtype != source.dtype:
        raise ValueError(
            f"{type(source).__name__} read an example of {example.array.dtype} "
            f"{example.array.shape} in place of {source.dtype} {source.shape}"
        )
    return example
