"""A lock that one process at a time holds, to write to a run directory or to build a store."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import time
import uuid
from typing import Any

import psutil
import tensorflow as tf
from absl import logging

from ..errors import UserError
from .files import local_path, read_file, write_atomic

_POLL = 0.5  # seconds between two attempts of a process that waits
_SETTLING = 0.1  # seconds after which the last of several writers of a lock is known
_SILENCE = 120.0  # seconds without a sign of life after which a waiting process takes over
_SIGNS = 20.0  # seconds between two signs of life


class Lock:
    """A lock in a file that names the process that holds it.

    A process cannot take the lock from a running process on the same machine. It can take the lock
    from a process on another machine, because that process may have been preempted, which cannot
    be detected from here. If the previous holder still runs, it stops before its next write.

    Args:
      path: The path of the file.
      flag: The flag that names the folder of the file, for messages.
    """

    def __init__(self, path: str, flag: str = "--model_dir"):
        self._path = path
        self._flag = flag
        self._holder = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": _start_time(os.getpid()),
            "token": uuid.uuid4().hex,
        }
        self._signs, self._shown = (
            0,
            0.0,
        )  # the number of signs of life, and the time of the last one

    def acquire(self) -> None:
        """Acquires the lock.

        Raises:
          UserError: If another process on this machine holds the lock.
        """
        if (other := self.other_process()) is not None:
            raise UserError(
                f"process {other} on this machine is writing to "
                f"{self._flag}={os.path.dirname(self._path)}",
                f"stop that process first, or give another {self._flag}",
            )
        self._write()

    def wait(self, purpose: str) -> None:
        """Acquires the lock once its holder has released it, has ended, or is silent for long.

        The holder may be another thread. One on another machine shows by `keep` that it is alive.

        Args:
          purpose: The work of the holder, for a message.
        """
        seen: dict[str, Any] = {}
        seen_at, is_waiting = time.monotonic(), False
        while True:
            if (found := self._read()) != seen:
                seen, seen_at = found, time.monotonic()
            is_here = found.get("host") == self._holder["host"]
            is_silent = time.monotonic() - seen_at > _SILENCE and self.other_process() is None
            is_held = bool(found) and not is_silent and (_is_running(found) or not is_here)
            if not is_held and self._take(is_new=not found and not is_silent):
                return
            if is_held and not is_waiting:
                is_waiting = True
                logging.info(f"another process is {purpose}: waiting for it")
            time.sleep(_POLL)

    def keep(self) -> None:
        """Shows waiting processes that the holder is alive; call it often during long work.

        Raises:
          UserError: As `check` does.
        """
        if time.monotonic() - self._shown > _SIGNS:
            self.check()
            self._write()

    def other_process(self) -> int | None:
        """Returns the ID of the other running process of this machine with the lock, or None."""
        found = self._read()
        is_other = found.get("pid") != self._holder["pid"]
        is_here = found.get("host") == self._holder["host"]
        return found["pid"] if is_here and is_other and _is_running(found) else None

    def check(self) -> None:
        """Raises UserError if this process no longer holds the lock; call it before each write.

        Raises:
          tf.errors.OpError, OSError: If the file cannot be read, which says nothing about the lock.
        """
        found = self._read(ignored=FileNotFoundError)
        if found.get("token") != self._holder["token"]:
            raise UserError(
                f"this process no longer holds the lock {self._path}"
                + (f"; process {found.get('pid')} on {found.get('host')} does" if found else ""),
                f"give each process its own {self._flag}; this one has stopped and changed no more "
                "files",
            )

    def release(self) -> None:
        """Releases the lock if this process still holds it.

        Errors are ignored, because the lock file of an ended process does not block others.
        """
        with contextlib.suppress(tf.errors.OpError):
            if self._read().get("token") == self._holder["token"]:
                tf.io.gfile.remove(self._path)

    def _take(self, *, is_new: bool) -> bool:
        """Returns True if this process holds the lock after an attempt to write its file.

        Args:
          is_new: Whether no file was found. On this machine, only one of several processes can then
            write it; otherwise the last one holds the lock.
        """
        local = local_path(self._path)
        if is_new and local is not None:
            try:
                with open(local, "x", encoding="utf-8") as file:
                    file.write(self._content())
            except FileExistsError:
                return False
            return True
        self._write()
        time.sleep(_SETTLING)
        return self._read().get("token") == self._holder["token"]

    def _write(self) -> None:
        write_atomic(self._path, self._content(), mark=f".{self._holder['token']}")

    def _content(self) -> str:
        self._signs, self._shown = self._signs + 1, time.monotonic()
        return json.dumps({**self._holder, "signs": self._signs}) + "\n"

    def _read(self, ignored: type[Exception] = OSError) -> dict[str, Any]:
        """Returns the content of the file; {} if it is missing, damaged or not a regular file."""
        try:
            found = json.loads(read_file(self._path))
        except (ValueError, RecursionError, tf.errors.NotFoundError, ignored):
            return {}
        return found if isinstance(found, dict) else {}


def _is_running(holder: dict[str, Any]) -> bool:
    """Returns True if a holder on this machine has not ended."""
    started = holder.get("started")
    return started is not None and started == _start_time(holder.get("pid"))


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
