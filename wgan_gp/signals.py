"""Ctrl-C and SIGTERM (preemption) as a request to stop, rather than a death."""

from __future__ import annotations

import os
import signal
import socket
import threading
from types import FrameType, TracebackType


class StopRequest:
    """While entered, the first SIGINT or SIGTERM is noted, and a second one ends the program.

    Python's own handlers wait until a device loop returns. So a thread is told by the kernel
    (signal.set_wakeup_fd), and ends the program in the midst of one.

    Attributes:
      signal: the signal's number, or None while there was none.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> StopRequest:
        self._former = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
        }
        self._told, self._teller = socket.socketpair()
        self._teller.setblocking(False)
        self._former_fd = signal.set_wakeup_fd(self._teller.fileno(), warn_on_full_buffer=False)
        self._watch = threading.Thread(target=self._end_at_the_second, daemon=True)
        self._watch.start()
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number

    def _end_at_the_second(self) -> None:
        heard = 0
        while told := self._told.recv(1):
            if told[0] in self._former:
                heard += 1
            if heard > 1:
                os._exit(128 + told[0])  # a thread may wait inside TensorFlow

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.set_wakeup_fd(self._former_fd)
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._teller.close()  # which ends the thread
        self._watch.join()
        self._told.close()
