"""Warnings and progress as lines on stderr; output streams whose writes never fail."""

from __future__ import annotations

import io
import logging
import os
import pathlib
import sys
from typing import Any

from absl import logging as absl_logging

from ..errors import printable

_PACKAGE = pathlib.Path(__file__).parents[1]
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


def is_terminal(file: Any) -> bool:
    """Returns True if a file is a terminal. A file may be None, or lack the method `isatty`.

    Without a stderr, sys.stderr is None, and a notebook or a service may replace it.
    """
    return hasattr(file, "isatty") and file.isatty()


def stdout_failed() -> bool:
    """Returns True if a write to stdout failed for a reason other than a closed pipe."""
    return _stdout_failed


class _LineHandler(logging.Handler):
    """Prints records to the current stderr, warnings with a prefix.

    absl's own handler would add a date and keep the stderr of the moment when it was created.
    """

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        # A message may quote a file, and its characters must not control the terminal.
        lines = record.getMessage().split("\n")
        print(prefix + "\n".join(map(printable, lines)), file=sys.stderr, flush=True)

    def filter(self, record: logging.LogRecord) -> bool:
        # Other packages that use absl, such as tensorflow-datasets, also log their progress.
        return (
            record.levelno >= logging.WARNING or _PACKAGE in pathlib.Path(record.pathname).parents
        )


def show_log_lines() -> None:
    """Shows what this package logs with absl.logging as one line each on stderr.

    Programs call it; a program that imports this package configures absl.logging itself.
    """
    logger = absl_logging.get_absl_logger()
    logger.handlers = [_LineHandler()]
    logger.propagate = False
    absl_logging.set_verbosity(absl_logging.INFO)
