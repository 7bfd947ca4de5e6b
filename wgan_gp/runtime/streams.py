"""Output streams that let a run continue when stdout or stderr cannot be written."""

from __future__ import annotations

import io
import os
import sys

_stdout_failed = False


def ignore_output_errors() -> None:
    """Makes writes to stdout and stderr never fail. Call it once, before the first output.

    Output to a closed pipe (`| head -1`), a full disk or a closed terminal is lost, and training
    continues. A stream that is closed at the start (`2>&-`) is redirected to the null device.
    Otherwise the next file that the program opens would get the stream's file descriptor, and
    TensorFlow would write its messages to that file.
    """
    for number in (0, 1, 2):
        _open_if_closed(number)
    sys.stdout, sys.stderr = _Stream(1), _Stream(2)


def _open_if_closed(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        # This gets the lowest free file descriptor, which is `number`.
        null_device = os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(null_device, True)


class _Stream(io.TextIOWrapper):
    """A line-buffered text stream over stdout or stderr."""

    def __init__(self, number: int):
        encoding = getattr(sys.__stderr__, "encoding", "utf-8")
        super().__init__(
            io.BufferedWriter(_Output(number)),
            encoding=encoding,
            errors="backslashreplace",  # the terminal may not support all characters of a path
            line_buffering=True,
        )


class _Output(io.FileIO):
    """A file that accepts all output and discards it after the first failed write."""

    def __init__(self, number: int):
        super().__init__(number, "w", closefd=False)
        self._number = number
        self._lost = False

    def write(self, content) -> int:
        if not self._lost:
            try:
                written = super().write(content)
                # None means that a non-blocking stream is full; the output is discarded.
                return len(content) if written is None else written
            except OSError as error:
                self._lost = True
                # A closed pipe is not an error: its reader needs no more output.
                if self._number == 1 and not isinstance(error, BrokenPipeError):
                    self._warn(error)
        return len(content)

    def _warn(self, error: OSError) -> None:
        global _stdout_failed  # noqa: PLW0603
        _stdout_failed = True
        print(f"warning: stdout cannot be written ({error.strerror})", file=sys.stderr)


def stdout_failed() -> bool:
    """Returns True if a write to stdout failed for a reason other than a closed pipe."""
    return _stdout_failed
