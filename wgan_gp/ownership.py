"""That one process at a time writes a run directory."""

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
from .files import replace_text


class Ownership:
    """A marker in the run directory: who writes it.

    A process on the same machine that still runs is not disturbed. Of another machine nobody
    knows whether it was preempted, so the newcomer takes over, and the former owner, should it
    still run, stops before it writes the next time.

    Args:
      path: of the marker.
    """

    def __init__(self, path: str):
        self._path = path
        self._mark = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": _started(os.getpid()),
            "token": uuid.uuid4().hex,
        }

    def claim(self) -> None:
        """Writes the marker.

        Raises:
          UserError: another process on this machine is writing the directory.
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
        replace_text(self._path, json.dumps(self._mark) + "\n")

    def check(self) -> None:
        """Raises UserError if another process has taken over; asked before anything is written."""
        found = self._read()
        if found.get("token") != self._mark["token"]:
            raise UserError(
                f"{self._path} no longer names this process"
                + (f", but {found.get('pid')} on {found.get('host')}" if found else ""),
                "this run stops, and leaves everything as it is: give each run its own --model_dir",
            )

    def release(self) -> None:
        """Removes the marker, if it is still this process's; one that is left hinders nobody."""
        with contextlib.suppress(tf.errors.OpError):
            if self._read().get("token") == self._mark["token"]:
                tf.io.gfile.remove(self._path)

    def _read(self) -> dict[str, Any]:
        try:
            with tf.io.gfile.GFile(self._path) as file:
                found = json.loads(file.read())
        except (tf.errors.NotFoundError, ValueError, RecursionError):  # no marker, or a damaged one
            return {}
        return found if isinstance(found, dict) else {}


def _started(pid: Any) -> str | None:
    """When a process of this machine began, in the kernel's ticks; None where nobody knows.

    With it a number that the kernel has given to another process since is told apart.
    """
    if type(pid) is not int:  # of a damaged marker
        return None
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return status.rpartition(")")[2].split()[19]
