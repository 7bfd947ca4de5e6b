"""Trains the runs of a sweep in child processes of the same program."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from absl import logging

from ...errors import UserError, printable, shorten

_MAX_STARTS = 3  # of a process that a signal ends
_SAVED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Errors of the disk in the words of the operating system, with which libraries report them.
_DISK_ERRORS = [os.strerror(each) for each in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)]


class StoppedError(Exception):
    """The sweep was told to stop before a run reached its iteration."""


class Processes:
    """Child processes, of which a limited number runs at a time.

    A process of its own frees its memory at its end, and a crash ends only its run.

    Args:
      parallel: The number of processes at a time.
      environment: Their environment variables.
      program: The command that starts the program. Defaults to that of this process.

    Attributes:
      stopping: An event that is set once the processes are told to stop.
    """

    def __init__(
        self, parallel: int, environment: Mapping[str, str], program: Sequence[str] | None = None
    ):
        self.parallel = parallel
        self.stopping = threading.Event()
        self._environment = environment
        self._program = program or own_program()
        self._slots = threading.Semaphore(parallel)
        self._lock = threading.Lock()  # no process starts while others are told to stop
        self._running = set[subprocess.Popen[str]]()

    def train(self, name: str, arguments: Sequence[str]) -> str | None:
        """Runs the program until it ends, and returns its error, or None if it succeeds.

        A process that a signal ends is started again, and continues from its last checkpoint.

        Args:
          name: The name of the run, which precedes each line of its output.
          arguments: The command line.

        Raises:
          StoppedError: If the processes are told to stop.
          UserError: If the disk is full or fails, which says nothing about the run.
        """
        for _ in range(_MAX_STARTS):
            with self._slots:
                status, line = self._run(name, arguments)
            if status == 0:
                return None
            if self.stopping.is_set():
                raise StoppedError
            if status > 0 and status - 128 not in _SAVED_SIGNALS:
                break
            logging.warning(f"{name}: ended with status {status}")
        if status < 0:
            return f"signal {-status} ended it"
        if any(each in line for each in _DISK_ERRORS):
            self.stop()
            what, _, remedy = line.partition(" — ")
            raise UserError(
                f"the run {name} has stopped: {shorten(what, 300)}",
                remedy or "free disk space; then start again",
            )
        return shorten(line, 300) or f"it ended with status {status}"

    def _run(self, name: str, arguments: Sequence[str]) -> tuple[int, str]:
        """Runs one process; returns its status, and its error or the last line of its output."""
        with self._lock:
            if self.stopping.is_set():
                raise StoppedError
            # In a session of its own, it does not receive the Ctrl-C of the terminal as well.
            process = subprocess.Popen(
                [*self._program, *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.add(process)
        last = ""
        with process:
            for line in process.stdout or ():
                print(f"{name}: {line.rstrip()}", file=sys.stderr, flush=True)
                if line.startswith("error: ") or not last.startswith("error: "):
                    last = line.strip() or last
        with self._lock:
            self._running.remove(process)
        return process.returncode, printable(last.removeprefix("error: "))

    def stop(self) -> None:
        """Tells all processes to save and end, once; no further one starts."""
        with self._lock:
            if not self.stopping.is_set():
                self.stopping.set()
                for process in self._running:
                    process.terminate()


def own_program() -> list[str]:
    """Returns the command that starts the program of this process, without its arguments."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m wgan_gp
        return [sys.executable, "-m", spec.name.removesuffix(".__main__")]
    return [sys.executable, str(main.__file__)]
