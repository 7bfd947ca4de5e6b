"""Handles Ctrl-C, SIGTERM (preemption) and SIGHUP (a closed terminal) as requests to stop."""

from __future__ import annotations

import os
import signal
import socket
import threading
from types import FrameType, TracebackType


def exit_on_interrupt() -> None:
    """Makes Ctrl-C end the program at once with status 130 and without a traceback.

    This is for the time before training, when nothing needs to be saved. By default, Python would
    raise KeyboardInterrupt at any point, even during an import.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        return  # a shell starts a program in the background so
    signal.signal(signal.SIGINT, lambda number, frame: None)  # _Watch ends the program
    _Watch(ends_at=1)


class StopRequest:
    """A context that records the first signal; a second SIGINT or SIGTERM ends the program.

    SIGHUP never ends the program, because closing a terminal sends it twice, from the shell and
    from the kernel. SIGHUP is not handled if it is ignored, as under nohup.

    Attributes:
      signal: The number of the first signal, or None.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> StopRequest:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        heeded = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
        self._former = {number: signal.signal(number, self._note) for number in heeded}
        self._watch = _Watch(ends_at=2)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watch.close()
        for number, handler in self._former.items():
            signal.signal(number, handler)


class _Watch:
    """A thread that ends the program at the n-th SIGINT or SIGTERM.

    Python's own handlers run only after a call of TensorFlow, such as a device loop, returns. The
    thread is notified by the low-level handler (signal.set_wakeup_fd) and can end the program
    during the call.

    Args:
      ends_at: The number n of the signal that ends the program.
    """

    def __init__(self, ends_at: int):
        self._ends_at = ends_at
        self._told, self._teller = socket.socketpair()
        self._teller.setblocking(False)
        self._former_fd = signal.set_wakeup_fd(self._teller.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        heard = 0
        while told := self._told.recv(1):
            heard += told[0] in (signal.SIGINT, signal.SIGTERM)
            if heard == self._ends_at:
                os._exit(128 + told[0])  # a thread may wait inside TensorFlow

    def close(self) -> None:
        signal.set_wakeup_fd(self._former_fd)
        self._teller.close()  # this ends the thread
        self._thread.join()
        self._told.close()
