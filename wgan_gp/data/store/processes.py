"""Processes that decode examples, because Python's lock lets threads decode few at a time.

A process is a new interpreter that imports this module and the decoder, but neither TensorFlow nor
the user's script. It receives fetched items through a pipe and answers with their examples. It
ends when its pipe is closed, and so also when this process is killed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from ...errors import UserError, printable, reason
from ..sources.encoded import Encoded, Example, Unreadable

_PROGRAM = "import sys; sys.path[:] = {path}; from {module} import serve; serve()"
# Each process would otherwise start a thread for each core.
_ENVIRONMENT = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1")
_BUFFER_BYTES = 2**16  # the capacity of a pipe
TASK_BYTES = 2**20  # of items or examples, about as many as are sent at a time


class Part(NamedTuple):
    """Consecutive examples of a source.

    Attributes:
      examples: Those that can be read, `[K, ...]`.
      labels: `[K]` int64.
      unreadable: The others: their places among all, and the reasons.
    """

    examples: np.ndarray
    labels: np.ndarray
    unreadable: list[tuple[int, str]]


def read_part(
    read: Callable[[Any], Example],
    items: Iterable[Any],
    shape: tuple[int, ...],
    dtype: np.dtype,
) -> Part:
    """Reads consecutive items `[count, ...]` of a shape `[count, *example]`.

    Args:
      read: Reads an item; see `Encoded.read`.
      items: The items.
      shape: The shape of all examples, which begins with the number of items.
      dtype: The dtype of an example.
    """
    examples, labels = np.empty(shape, dtype), np.empty(shape[:1], np.int64)
    unreadable, count = [], 0
    for place, item in enumerate(items):
        try:
            array, label = read(item)
        except Unreadable as error:
            unreadable.append((place, str(error)))
            continue
        if array.shape != shape[1:] or array.dtype != dtype:
            raise ValueError(
                f"an example is {array.dtype} {array.shape} in place of {dtype} {shape[1:]}"
            )
        examples[count], labels[count] = array, label
        count += 1
    return Part(examples[:count], labels[:count], unreadable)


def take(items: Iterator[Any], most: int) -> list[Any]:
    """Returns the next items, fewer than `most` if their files have more than TASK_BYTES."""
    taken, size = [], 0
    for item in itertools.islice(items, most):
        taken.append(item)
        size += _size(item)
        if size >= TASK_BYTES:
            break
    return taken


def _size(item: Any) -> int:
    if isinstance(item, tuple):
        return sum(map(_size, item))
    return len(item) if isinstance(item, bytes) else 0


class Readers:
    """Threads that read the items of a source, themselves or each in a process of its own.

    Args:
      source: The source.
      threads: The number of threads.
      processes: The largest number of processes.
    """

    def __init__(self, source: Encoded, threads: int, processes: int):
        self._source, self._most = source, processes
        self._pool = ThreadPoolExecutor(threads)
        self._own = threading.local()
        self._lock = threading.Lock()
        self._processes: list[_Process] = []
        self._is_closed = False
        self._decoder: bytes | None = None  # None: threads read

    def use_processes(self) -> bool:
        """Lets threads start processes; returns False if only this process can read the source."""
        decoder = self._source.decoder()
        with contextlib.suppress(Exception):  # what cannot be pickled raises errors of many types
            if decoder is not None and sys.executable:
                self._decoder = pickle.dumps(decoder)
        return self._decoder is not None

    def submit(self, first: int, items: Sequence[Any]) -> Future[Part]:
        """Begins to read consecutive items.

        Args:
          first: The index of the first item, for messages.
          items: The items.

        Returns:
          The examples, or UserError if a process was killed, or what `Encoded.read` raises.
        """
        return self._pool.submit(self._read, first, items)

    def close(self) -> None:
        """Ends the processes at once, and waits until the threads have read their last example."""
        with self._lock:
            self._is_closed = True
        for process in self._processes:
            process.kill()
        self._pool.shutdown(cancel_futures=True)
        for process in self._processes:
            process.close()

    def _read(self, first: int, items: Sequence[Any]) -> Part:
        source = self._source
        shape = (len(items), *source.shape)
        process = self._process()
        if process is None:
            return read_part(source.read, items, shape, source.dtype)
        try:
            return process.read(map(self._fetched, items), shape, source.dtype)
        except _EndedError:
            names = [printable(source.name(first + place)) for place in (0, len(items) - 1)]
            what = f"{source.origin} ({names[0]} to {names[1]})"
            raise _explained(what, process.ending()) from None
        except BaseException:
            process.kill()  # it waits for the other items
            raise

    def _fetched(self, item: Any) -> Any:
        try:
            return self._source.fetch(item)
        except Unreadable as error:
            return error

    def _process(self) -> _Process | None:
        """Returns the process of this thread, which is started when it is first needed."""
        process, decoder = getattr(self._own, "process", None), self._decoder
        if process is not None or decoder is None:
            return process
        try:
            with self._lock:
                if self._is_closed or len(self._processes) == self._most:
                    return None
                process = _Process()
                self._processes.append(process)
        except OSError as error:
            self._give_up(reason(error))
            return None
        try:
            process.begin(decoder)
        except _EndedError:
            self._give_up(process.ending())
            return None
        self._own.process = process
        return process

    def _give_up(self, why: str) -> None:
        with self._lock:
            is_first, self._decoder = self._decoder is not None, None
        if is_first and not self._is_closed:
            logging.info(
                f"note: {self._source.origin}: threads decode, which takes longer, because no "
                f"process can be started for it ({why})"
            )


class _EndedError(Exception):
    """A process ended before it answered."""


class _Process:
    """A process that decodes; one thread uses it."""

    def __init__(self) -> None:
        path = list(map(str, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(path=path, module=__name__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # of libraries; errors are answers
            bufsize=_BUFFER_BYTES,
            env=os.environ | _ENVIRONMENT,
            start_new_session=True,  # Ctrl-C interrupts this process only, which ends the others
        )

    def begin(self, decoder: bytes) -> None:
        """Waits until the process has loaded the pickled decoder."""
        self._send([decoder])
        self._receive()

    def read(self, items: Iterator[Any], shape: tuple[int, ...], dtype: np.dtype) -> Part:
        """Reads consecutive fetched items; see `read_part`."""
        # In groups, because all items may be too large for the memory.
        groups = iter(lambda: take(items, shape[0]), [])
        self._send(itertools.chain([(shape, dtype)], groups))
        answer = self._receive()
        if isinstance(answer, Exception):
            raise answer
        return Part(*answer)

    def ending(self) -> str:
        """Returns how the process ended."""
        status = self._process.wait()
        return signal.Signals(-status).name if status < 0 else f"status {status}"

    def kill(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Closes the pipes of a process that ended."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # of what was not sent
                pipe.close()

    def _send(self, values: Iterable[Any]) -> None:
        inbox = self._process.stdin
        assert inbox is not None
        # A process that ended may have answered before.
        with contextlib.suppress(BrokenPipeError):
            for value in values:
                pickle.dump(value, inbox, pickle.HIGHEST_PROTOCOL)
            inbox.flush()

    def _receive(self) -> Any:
        outbox = self._process.stdout
        assert outbox is not None
        try:
            return pickle.load(outbox)
        except (EOFError, pickle.UnpicklingError) as error:  # nothing, or a part of an answer
            raise _EndedError from error


def _explained(what: str, ending: str) -> UserError:
    if ending == "SIGKILL":
        return UserError(
            f"a process that decoded {what} was killed, as systems do when memory is short",
            "free memory, and start again",
        )
    return UserError(
        f"a process that decoded {what} ended by {ending}",
        "start again; if it is repeated, remove damaged files",
    )


def serve() -> None:
    """Decodes what arrives on the standard input until it is closed; the program of a process."""
    inbox, outbox = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", _BUFFER_BYTES)
    os.dup2(2, 1)  # what a library prints is no answer

    def answer(value: Any) -> None:
        pickle.dump(value, outbox, pickle.HIGHEST_PROTOCOL)
        outbox.flush()

    def received(item: Any) -> Example:
        if isinstance(item, Unreadable):
            raise item
        return decode(item)

    with contextlib.suppress(EOFError, BrokenPipeError):  # the other process ended
        decode = pickle.loads(pickle.load(inbox))
        answer(None)
        while True:
            shape, dtype = pickle.load(inbox)
            groups = iter(lambda: pickle.load(inbox), None)
            items = itertools.islice(itertools.chain.from_iterable(groups), shape[0])
            try:
                part = read_part(received, items, shape, dtype)
            except UserError as error:
                answer(error)
                break
            except Exception:
                answer(RuntimeError(traceback.format_exc()))
                break
            answer(tuple(part))
    os._exit(0)  # without writing the rest of an answer to a closed pipe
