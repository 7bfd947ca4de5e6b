"""Ctrl-C, SIGTERM (preemption) and SIGHUP (a closed terminal) as requests to stop."""

from __future__ import annotations

import os
import signal
import socket
import threading
from types import FrameType, TracebackType


def end_at_ctrl_c() -> None:
    """Lets Ctrl-C end the program at once with status 130, and no traceback.

    For the time before training, when nothing needs to be saved. Python would raise
    KeyboardInterrupt wherever it is, in the midst of an import too.
    """
    signal.signal(signal.SIGINT, lambda number, frame: None)  # the watch does the rest
    _Watch(ends_at=1)


class StopRequest:
    """While entered, the first signal is noted, and a second SIGINT or SIGTERM ends the program.

    SIGHUP only ever asks: a terminal that is closed sends it twice, by its shell and by the
    kernel. It is left alone where it is ignored, as under nohup.

    Attributes:
      signal: the signal's number, or None while there was none.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> StopRequest:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        self._former = {number: signal.signal(number, self._note) for number in numbers}
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

    Python's own handlers wait until a device loop, or whatever else of TensorFlow, returns. So the
    thread is told by the kernel (signal.set_wakeup_fd), and ends the program in the midst of one.

    Args:
      ends_at: n.
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
        self._teller.close()  # which ends the thread
        self._thread.join()
        self._told.close()
