"""Handlers for Ctrl-C, SIGTERM (preemption) and SIGHUP (a closed terminal)."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from types import FrameType, TracebackType


def in_notebook() -> bool:
    """Returns True in a notebook of Jupyter, Colab or Kaggle. Does not import IPython."""
    # Only a program that runs in IPython has this module, or one that imported it by itself.
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    # IPython in a terminal has no kernel.
    return hasattr(get_ipython(), "kernel")


def exit_on_interrupt() -> None:
    """Makes Ctrl-C end the program immediately with status 130 and without a traceback.

    Call it for the time before training, when there is nothing to save. By default, Python would
    raise KeyboardInterrupt at any point, even during an import.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        return  # a shell starts background programs with this setting
    signal.signal(signal.SIGINT, lambda number, frame: None)  # _SignalWatcher ends the program
    _SignalWatcher(max_signals=1)


class StopRequest:
    """A context that records the first signal; a second SIGINT or SIGTERM ends the program.

    Only the main thread receives signals; in another one, the context records none.

    In a notebook, a second signal raises KeyboardInterrupt instead, because the end of the program
    would delete the user's variables.

    SIGHUP does not end the program, because closing a terminal sends it twice, once from the shell
    and once from the kernel. Signals that are ignored, such as SIGHUP under nohup, remain ignored.

    Attributes:
      signal: The number of the first signal, or None.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._in_notebook = in_notebook()

    def __enter__(self) -> StopRequest:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        is_main = threading.current_thread() is threading.main_thread()
        handled = [
            number for number in numbers if is_main and signal.getsignal(number) != signal.SIG_IGN
        ]
        self._previous = {number: signal.signal(number, self._record) for number in handled}
        has_watcher = is_main and not self._in_notebook
        self._watcher = _SignalWatcher(max_signals=2) if has_watcher else None
        return self

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and self._in_notebook:
            raise KeyboardInterrupt
        self.signal = self.signal or number

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._watcher is not None:
            self._watcher.close()
        for number, handler in self._previous.items():
            signal.signal(number, handler)


class _SignalWatcher:
    """A thread that ends the program at the n-th SIGINT or SIGTERM.

    Python's signal handlers run only after a call of TensorFlow, such as a loop of training,
    returns. The low-level handler (signal.set_wakeup_fd) notifies this thread, which can end the
    program during the call.

    Args:
      max_signals: The number n.
    """

    def __init__(self, max_signals: int):
        self._max_signals = max_signals
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)
        self._previous_fd = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        received = 0
        while number := self._receiver.recv(1):
            received += number[0] in (signal.SIGINT, signal.SIGTERM)
            if received == self._max_signals:
                os._exit(128 + number[0])  # sys.exit would not end a thread inside TensorFlow

    def close(self) -> None:
        """Stops the thread."""
        signal.set_wakeup_fd(self._previous_fd)
        self._sender.close()  # this ends the thread
        self._thread.join()
        self._receiver.close()
