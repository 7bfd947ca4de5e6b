"""Ctrl-C and SIGTERM (preemption) as a request to stop, rather than a death."""

import signal
from types import FrameType, TracebackType


class StopRequest:
    """While entered, the first SIGINT or SIGTERM is noted and a second one kills.

    Attributes:
      signal: the signal's number, or None while there was none.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> "StopRequest":
        self._former = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        for each in self._former:
            signal.signal(each, signal.SIG_DFL)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
