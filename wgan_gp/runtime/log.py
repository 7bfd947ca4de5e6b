"""Shows warnings and progress as lines on stderr, in the programs of this package."""

from __future__ import annotations

import logging
import pathlib
import sys

from absl import logging as absl_logging

from ..errors import printable

_PACKAGE = pathlib.Path(__file__).parents[1]


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
