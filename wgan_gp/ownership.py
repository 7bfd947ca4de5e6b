"""Ensures that only one process at a time writes to a run directory."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import uuid
from typing import Any

import tensorflow as tf

from .errors import UserError
from .files import write_atomic


class RunLock:
    """A lock on the run directory, held by one process and recorded in a file.

    The lock cannot be taken from a running process on the same machine. A process on another
    machine may have been preempted, which cannot be detected from here, so a new process takes
    the lock over. If the former owner is still running, it stops before its next write.

    Args:
      path: The path of the lock file.
    """

    def __init__(self, path: str):
        self._path = path
        self._mark = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": _started(os.getpid()),
            "token": uuid.uuid4().hex,
        }

    def acquire(self) -> None:
        """Takes the lock.

        Raises:
          UserError: If another process on this machine holds it.
        """
        found = self._read()
        if (
            found.get("host") == self._mark["host"]
            and found.get("pid") != self._mark["pid"]
            and found.get("started") is not None
            and found["started"] == _started(found.get("pid"))
        ):
            raise UserError(
                f"--model_dir={os.path.dirname(self._path)} is being written by process "
                f"{found['pid']} on this machine",
                "stop that one first, or give another --model_dir",
            )
        write_atomic(self._path, json.dumps(self._mark) + "\n")

    def check(self) -> None:
        """Raises UserError if this process no longer holds the lock; call it before each write."""
        found = self._read()
        if found.get("token") != self._mark["token"]:
            raise UserError(
                f"{self._path} no longer names this process"
                + (f", but {found.get('pid')} on {found.get('host')}" if found else ""),
                "this run stops, and leaves everything as it is: give each run its own --model_dir",
            )

    def release(self) -> None:
        """Releases the lock if this process still holds it.

        Errors are ignored, because the lock file of a process that has ended blocks no other.
        """
        with contextlib.suppress(tf.errors.OpError):
            if self._read().get("token") == self._mark["token"]:
                tf.io.gfile.remove(self._path)

    def _read(self) -> dict[str, Any]:
        try:
            with tf.io.gfile.GFile(self._path) as file:
                found = json.loads(file.read())
        except (tf.errors.NotFoundError, ValueError, RecursionError):  # missing or damaged
            return {}
        return found if isinstance(found, dict) else {}


def _started(pid: Any) -> str | None:
    """Returns the start time of a process on this machine in kernel ticks, or None if unknown.

    The start time distinguishes the process from a later one with the same process number.
    """
    if type(pid) is not int:  # the lock file is damaged
        return None
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return status.rpartition(")")[2].split()[19]
