"""Time limits for waiting for other machines."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

from ..errors import UserError


def end_program(message: str) -> None:
    """Prints an error and ends the program with status 2, even if a thread waits in TensorFlow."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    os._exit(2)  # sys.exit would not end such a thread


@contextlib.contextmanager
def deadline(
    seconds: float, what: str, remedy: str, *, end: Callable[[str], None] = end_program
) -> Iterator[None]:
    """Ends the program with an error if the code inside the context takes too long.

    Args:
      seconds: The time limit.
      what: See `UserError`.
      remedy: See `UserError`.
      end: Ends the program with a message.
    """
    timer = threading.Timer(seconds, end, [str(UserError(what, remedy))])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


# Kills the parent process after a time limit, and ends when the parent has ended.
_WATCHDOG = """
import os, signal, sys, time
parent, seconds, line = os.getppid(), float(sys.argv[1]), sys.argv[2]
end = time.monotonic() + seconds
while time.monotonic() < end:
    time.sleep(0.2)
    if os.getppid() != parent:
        sys.exit()
print(line, file=sys.stderr, flush=True)
os.kill(parent, signal.SIGKILL)
"""


@contextlib.contextmanager
def deadline_from_outside(seconds: float, what: str, remedy: str) -> Iterator[None]:
    """Limits the time like `deadline`, but from another process.

    It is necessary where TensorFlow waits while it holds Python's global interpreter lock, because
    no thread of this process can then run. The program is killed, so its exit status is that of
    SIGKILL.

    Args:
      seconds: The time limit.
      what: See `UserError`.
      remedy: See `UserError`.
    """
    line = f"error: {UserError(what, remedy)}"
    watchdog = subprocess.Popen([sys.executable, "-S", "-c", _WATCHDOG, str(seconds), line])
    try:
        yield
    finally:
        watchdog.send_signal(signal.SIGKILL)
        watchdog.wait()
