"""Keeps a run going when its terminal, or what reads its output, is gone."""

from __future__ import annotations

import io
import os
import sys


def protect() -> None:
    """Lets no write to stdout or stderr fail; to be called once, before anything is printed.

    What is written to a pipe that was closed (`| head -1`), to a full disk or to a terminal that
    was hung up is lost, and training goes on. A stream that was closed at the start (`2>&-`) leads
    to nowhere; otherwise the next file that the program opens would take its number, and receive
    what TensorFlow writes to stderr.
    """
    for number in (0, 1, 2):
        _open_if_closed(number)
    sys.stdout, sys.stderr = _Stream(1), _Stream(2)


def _open_if_closed(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
        os.set_inheritable(nowhere, True)


class _Stream(io.TextIOWrapper):
    """A text stream over stdout or stderr; a line is written when it is complete."""

    def __init__(self, number: int):
        encoding = getattr(sys.__stderr__, "encoding", "utf-8")
        super().__init__(
            io.BufferedWriter(_Output(number)),
            encoding=encoding,
            errors="backslashreplace",  # a path need not be of the terminal's characters
            line_buffering=True,
        )


class _Output(io.FileIO):
    """A file descriptor that takes whatever is written, and loses what it cannot write on."""

    def __init__(self, number: int):
        super().__init__(number, "w", closefd=False)
        self._number = number
        self._lost = False

    def write(self, content) -> int:
        if not self._lost:
            try:
                written = super().write(content)
                # None: a stream that does not wait for its reader, who is slow.
                return len(content) if written is None else written
            except OSError as error:
                self._lost = True
                _warn(self._number, error)
        return len(content)


def _warn(number: int, error: OSError) -> None:
    """Says on stderr that stdout is lost; of a reader that has seen enough, nothing."""
    if number == 1 and not isinstance(error, BrokenPipeError):
        print(f"warning: stdout cannot be written ({error.strerror})", file=sys.stderr)
