"""Locks that let one process at a time build a store; a process that was killed blocks no other."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import posixpath
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import tensorflow as tf
from absl import logging

from ...run_directory.files import local_path

_POLL = 0.5  # seconds between two attempts
_BEAT = 20.0  # seconds between two signs of life of a process that builds in a bucket
_SILENCE = 120.0  # seconds without a sign of life after which another process takes over
_SETTLING = 1.0  # seconds after which the last of several writers of a lock is known


@contextlib.contextmanager
def locked(path: str, is_done: Callable[[], bool]) -> Iterator[bool]:
    """Waits until no other process builds a store.

    Args:
      path: The folder of the store.
      is_done: Returns True if the store is complete.

    Yields:
      True if this process has to build the store, False if another process completed it.
    """
    local = local_path(path)
    lock: _LocalLock | _RemoteLock
    if local is not None:
        lock = _LocalLock(f"{local}.lock")
    else:  # a prefix of a name in a bucket is like a folder, so the path does not begin the name
        folder, name = posixpath.split(path)
        lock = _RemoteLock(posixpath.join(folder, f"lock-{name}"))
    is_waiting = False
    while not lock.acquire():
        if not is_waiting:
            logging.info(f"another process is building {path}: waiting for it")
        is_waiting = True
        time.sleep(_POLL)
    try:
        yield not is_done()
    finally:
        lock.release()


class _LocalLock:
    """A lock on a local file, which the operating system releases when the process ends."""

    def __init__(self, path: str):
        self._path = path
        self._handle = -1

    def acquire(self) -> bool:
        """Returns True if the lock was free and is now held."""
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have deleted the file, which it no longer needed.
            if os.path.samestat(os.fstat(self._handle), os.stat(self._path)):
                return True
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
                raise
            return True  # this file system has no locks
        os.close(self._handle)
        return False

    def release(self) -> None:
        """Releases the lock."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self._handle)


class _RemoteLock:
    """A lock in a bucket: an object that its holder writes again as a sign of life.

    Buckets have no locks. Should two processes build a store at the same time nevertheless, they
    write the same bytes, because a source determines its store.
    """

    def __init__(self, path: str):
        self._path = path
        self._token = uuid.uuid4().hex
        self._seen: str | None = None
        self._seen_at = 0.0
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def acquire(self) -> bool:
        """Returns True if the lock was free and is now held."""
        content = self._read()
        if content is not None:
            if content != self._seen:
                self._seen, self._seen_at = content, time.monotonic()
            if time.monotonic() - self._seen_at < _SILENCE:
                return False
            with contextlib.suppress(tf.errors.NotFoundError):  # another process takes over, too
                tf.io.gfile.remove(self._path)
        self._write(0)
        time.sleep(_SETTLING)
        if not (self._read() or "").startswith(self._token):
            return False
        self._thread.start()
        return True

    def release(self) -> None:
        """Releases the lock."""
        self._released.set()
        self._thread.join()
        with contextlib.suppress(tf.errors.OpError):
            if (self._read() or "").startswith(self._token):
                tf.io.gfile.remove(self._path)

    def _beat(self) -> None:
        count = 0
        while not self._released.wait(_BEAT):
            count += 1
            with contextlib.suppress(tf.errors.OpError):  # the next sign of life may succeed
                self._write(count)

    def _write(self, count: int) -> None:
        with tf.io.gfile.GFile(self._path, "w") as file:
            file.write(f"{self._token} {count}")

    def _read(self) -> str | None:
        try:
            with tf.io.gfile.GFile(self._path, "r") as file:
                return file.read()
        except tf.errors.NotFoundError:
            return None
