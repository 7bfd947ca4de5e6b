"""The lock that permits only one process at a time to write to a run directory."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import uuid
from typing import Any

import psutil
import tensorflow as tf

from ..errors import UserError
from .files import read_file, write_atomic


class RunLock:
    """A lock on a run directory, recorded in a file that names the process that holds it.

    A process cannot take the lock from a running process on the same machine. It can take the lock
    from a process on another machine, because that process may have been preempted, which cannot
    be detected from here. If the previous holder still runs, it stops before its next write.

    Args:
      path: The path of the lock file.
    """

    def __init__(self, path: str):
        self._path = path
        self._holder = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": _start_time(os.getpid()),
            "token": uuid.uuid4().hex,
        }

    def acquire(self) -> None:
        """Acquires the lock.

        Raises:
          UserError: If another process on this machine holds the lock.
        """
        if (other := self.other_process()) is not None:
            raise UserError(
                f"process {other} on this machine is writing to "
                f"--model_dir={os.path.dirname(self._path)}",
                "stop that process first, or give another --model_dir",
            )
        write_atomic(self._path, json.dumps(self._holder) + "\n")

    def other_process(self) -> int | None:
        """Returns the ID of the other running process of this machine with the lock, or None."""
        found = self._read()
        if (
            found.get("host") == self._holder["host"]
            and found.get("pid") != self._holder["pid"]
            and found.get("started") is not None
            and found["started"] == _start_time(found.get("pid"))
        ):
            return found["pid"]
        return None

    def check(self) -> None:
        """Raises UserError if this process no longer holds the lock; call it before each write.

        Raises:
          tf.errors.OpError, OSError: If the file cannot be read, which says nothing about the lock.
        """
        try:
            found = self._content()
        except (tf.errors.NotFoundError, FileNotFoundError):
            found = {}
        if found.get("token") != self._holder["token"]:
            raise UserError(
                f"this process no longer holds the lock {self._path}"
                + (f"; process {found.get('pid')} on {found.get('host')} does" if found else ""),
                "give each run its own --model_dir; this run has stopped and changed no more files",
            )

    def release(self) -> None:
        """Releases the lock if this process still holds it.

        Errors are ignored, because the lock file of an ended process does not block others.
        """
        with contextlib.suppress(tf.errors.OpError):
            if self._read().get("token") == self._holder["token"]:
                tf.io.gfile.remove(self._path)

    def _read(self) -> dict[str, Any]:
        """Returns the content of the file; {} if it is missing, damaged or not a regular file."""
        try:
            return self._content()
        except (tf.errors.NotFoundError, OSError):
            return {}

    def _content(self) -> dict[str, Any]:
        content = read_file(self._path)
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):  # damaged
            return {}
        return found if isinstance(found, dict) else {}


def _start_time(pid: Any) -> str | None:
    """Returns the start time of a process on this machine, or None if it is unknown or has ended.

    The start time distinguishes the process from a later process with the same ID.
    """
    if type(pid) is not int:  # the lock file is damaged
        return None
    try:
        if not psutil.LINUX:
            process = psutil.Process(pid)
            has_ended = process.status() == psutil.STATUS_ZOMBIE
            return None if has_ended else str(process.create_time())
        # On Linux, create_time() changes when the clock is set; the kernel's ticks do not.
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (psutil.Error, OSError, ValueError, OverflowError):
        return None
    state, *_ = fields = status.rpartition(")")[2].split()
    return None if state in "ZX" else fields[19]  # a zombie has ended, and nothing waits for it
