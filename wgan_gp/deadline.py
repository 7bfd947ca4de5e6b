"""An end to waiting for other machines."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

from .errors import UserError


def end_program(message: str) -> None:
    """Ends it with a line and status 2, whatever its threads wait for."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    os._exit(2)  # nothing gentler ends a thread that waits inside TensorFlow


@contextlib.contextmanager
def deadline(
    seconds: float, what: str, remedy: str, *, end: Callable[[str], None] = end_program
) -> Iterator[None]:
    """Ends the program with the line of a UserError, unless what is inside is done in time."""
    timer = threading.Timer(seconds, end, [str(UserError(what, remedy))])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
