"""Trains the trials of a sweep in child processes, one after the other or side by side."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from absl import logging

from ...errors import shorten
from ...runtime.signals import StopRequest

_POLL_SECONDS = 0.1
_MAX_STARTS = 3  # of a child that a signal ends
_SAVED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclasses.dataclass(frozen=True)
class Job:
    """A child process to run.

    Attributes:
      name: The name of the trial, which precedes each line of its output.
      arguments: The command line.
    """

    name: str
    arguments: Sequence[str]


class TrialProcesses:
    """Runs jobs as child processes of the same program.

    A process of its own frees its memory at its end, and a crash ends only its trial.

    Args:
      parallel: The number of processes at a time.
      environment: The environment variables of the processes.
      program: The command that starts the program. Defaults to that of this process.
    """

    def __init__(
        self, parallel: int, environment: Mapping[str, str], program: Sequence[str] | None = None
    ):
        self._parallel = parallel
        self._environment = environment
        self._program = own_program() if program is None else program

    def run(self, jobs: Sequence[Job], on_failure: Callable[[str, str], None]) -> int | None:
        """Runs jobs until all have ended.

        A signal to this process, such as Ctrl-C, is passed on to the children, which save and end.
        A child that a signal ends is started again, and continues from its last checkpoint.

        Args:
          jobs: The jobs.
          on_failure: Receives the name and the error of each job that fails, as soon as it does.
            If it raises an error, the running children are told to save and end.

        Returns:
          The number of the signal that stopped the jobs, or None.
        """
        waiting, running = collections.deque(jobs), list[_Child]()
        starts = collections.Counter[str]()
        told = False
        with StopRequest() as stop, _stopping(running):
            while running or (waiting and stop.signal is None):
                while waiting and len(running) < self._parallel and stop.signal is None:
                    job = waiting.popleft()
                    starts[job.name] += 1
                    running.append(_Child(job, [*self._program, *job.arguments], self._environment))
                if stop.signal is not None and not told:
                    told = True
                    for child in running:
                        child.stop()
                for child in [each for each in running if each.has_ended()]:
                    running.remove(child)
                    status, name = child.close(), child.job.name
                    if status == 0 or stop.signal is not None:
                        continue
                    if _is_interrupted(status) and starts[name] < _MAX_STARTS:
                        logging.warning(f"{name}: ended with status {status} and is started again")
                        waiting.appendleft(child.job)
                    else:
                        error = child.error(status)
                        logging.warning(f"{name} failed: {error}")
                        on_failure(name, error)
                time.sleep(_POLL_SECONDS)
            return stop.signal


@contextlib.contextmanager
def _stopping(children: list[_Child]) -> Iterator[None]:
    """Stops the children that run when the context ends with an error of this process."""
    try:
        yield
    finally:
        for child in children:
            child.stop()


def own_program() -> list[str]:
    """Returns the command that starts the program of this process, without its arguments."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m wgan_gp
        return [sys.executable, "-m", spec.name.removesuffix(".__main__")]
    return [sys.executable, str(main.__file__)]


def _is_interrupted(status: int) -> bool:
    """Returns True if a signal ended a process, at once or after it saved."""
    return status < 0 or status - 128 in _SAVED_SIGNALS


class _Child:
    """A child process whose output is shown on stderr, line by line, with the name of its job."""

    def __init__(self, job: Job, command: Sequence[str], environment: Mapping[str, str]):
        self.job = job
        self._last = ""
        # In a session of its own, it does not receive the Ctrl-C of the terminal a second time.
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()

    def _show(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            print(f"{self.job.name}: {line.rstrip()}", file=sys.stderr, flush=True)
            is_error = line.startswith("error: ")
            if is_error or (line.strip() and not self._last.startswith("error: ")):
                self._last = line.strip()

    def stop(self) -> None:
        """Tells the process to save and end."""
        self._process.terminate()

    def has_ended(self) -> bool:
        """Returns True if the process has ended."""
        return self._process.poll() is not None

    def close(self) -> int:
        """Returns the exit status of the process, after all its output is shown."""
        status = self._process.wait()
        self._thread.join()
        return status

    def error(self, status: int) -> str:
        """Returns the signal that ended the process, its error, or the last line of its output."""
        if status < 0:
            return f"signal {-status} ended it"
        reported = self._last.removeprefix("error: ")
        return shorten(reported, 300) if reported else f"it ended with status {status}"
