"""An end to waiting for other machines."""

import contextlib
import os
import signal
import subprocess
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


# Ends its parent, unless it is ended itself, or its parent goes.
_WATCHDOG = """
import os, signal, sys, time
parent, seconds, line = os.getppid(), float(sys.argv[1]), sys.argv[2]
until = time.monotonic() + seconds
while time.monotonic() < until:
    time.sleep(0.2)
    if os.getppid() != parent:
        sys.exit()
print(line, file=sys.stderr, flush=True)
os.kill(parent, signal.SIGKILL)
"""


@contextlib.contextmanager
def deadline_from_outside(seconds: float, what: str, remedy: str) -> Iterator[None]:
    """The same where TensorFlow waits with Python's lock in its hands: no thread could end it.

    The program is then killed, so its exit status is that of SIGKILL.
    """
    line = f"error: {UserError(what, remedy)}"
    watchdog = subprocess.Popen([sys.executable, "-S", "-c", _WATCHDOG, str(seconds), line])
    try:
        yield
    finally:
        watchdog.send_signal(signal.SIGKILL)
        watchdog.wait()
