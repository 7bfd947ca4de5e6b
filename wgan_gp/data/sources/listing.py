"""Lists the files of a dataset, and skips files that would block or cannot be opened."""

from __future__ import annotations

import contextlib
import os
import posixpath
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tqdm
from absl import logging

from ...errors import UserError, printable, reason
from ...run_directory.buckets import explain_bucket_error
from ...run_directory.files import local_path
from ...run_directory.json_files import digest
from ...runtime.streams import is_terminal
from ...runtime.tensorflow_patches import DOWNLOAD_TIMEOUTS

# Seconds to look up a path. TensorFlow itself would retry for minutes or hours.
_LOOKUP_TIMEOUT = 60.0

# The reasons for skipping a path.
_LINK = "skipped links to folders that were already listed or that contain the link"
SPECIAL = "skipped entries that are not regular files, such as pipes and broken links"
NAME = "skipped names that are not UTF-8"

_CONNECTION_ERRORS = (
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnavailableError,
)


def is_utf8(name: str) -> bool:
    """Returns True if a file name is valid UTF-8, which TensorFlow requires."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextlib.contextmanager
def reading(origin: str, find_store: Callable[[str], str | None] | None = None) -> Iterator[None]:
    """Turns errors of the file system into a UserError.

    Args:
      origin: The flag and the path, such as "--data_dir=gs://bucket/photos".
      find_store: Returns the store of --data_cache that a text names, or None.

    Raises:
      UserError: If the code inside raises such an error.
    """
    try:
        yield
    except (tf.errors.OpError, OSError, UnicodeError) as error:
        remedy = "check the path, the permission to read it and the network"
        store = None if find_store is None else find_store(str(error))
        if store is not None:
            origin = f"--data_cache: {store}"
            remedy = f"delete {store}, which is built again, or give another --data_cache"
        if explained := explain_bucket_error(error, origin, "read"):
            raise explained from error
        verb = "reached" if "://" in origin and isinstance(error, _CONNECTION_ERRORS) else "read"
        raise UserError(f"{origin} cannot be {verb} ({reason(error)})", remedy) from error


def check_path(origin: str, path: str) -> None:
    """Checks that TensorFlow can look up a path, whether or not the path exists.

    Raises:
      UserError: If the path is not UTF-8, or the lookup times out.
      tf.errors.OpError: If the lookup fails.
    """
    if not is_utf8(path):
        raise UserError(f"{printable(origin)} is not UTF-8", "rename it")
    if local_path(path) is not None:
        return
    failures: list[Exception] = []

    def look_up() -> None:
        try:
            # isdir and listdir report an unreachable path as missing.
            tf.io.gfile.exists(path)
        except Exception as error:
            failures.append(error)

    # A daemon thread does not delay the end of the program.
    lookup = threading.Thread(target=look_up, daemon=True)
    lookup.start()
    lookup.join(_LOOKUP_TIMEOUT)
    if lookup.is_alive():
        raise UserError(
            f"{origin} cannot be reached: no answer within {_LOOKUP_TIMEOUT:.0f} seconds",
            "check the network and the proxy",
        )
    if failures:
        raise failures[0]


def list_files(origin: str, path: str) -> list[str]:
    """Returns the sorted relative paths of the files in a folder at any depth.

    Names that begin with a dot are ignored. In a local folder, a link to a folder is followed
    unless that folder was already listed or contains the link, and files that are not regular
    are skipped. Skipped paths are reported on stderr.

    Args:
      origin: The flag and the path, for warnings.
      path: The folder.
    """
    skipped: dict[str, list[str]] = {}
    local = local_path(path)
    files = sorted(_walk_remote(path) if local is None else _walk_local(local, skipped))
    warn_of_skipped(origin, skipped)
    return files


def can_be_opened(path: str) -> bool:
    """Returns False if an existing path is a pipe, socket or device, which may block."""
    local = local_path(path)
    return local is None or os.path.isfile(local) or os.path.isdir(local)


def size_and_time(path: str) -> tuple[int, int]:
    """Returns the size of a file in bytes, and its time in nanoseconds since 1970; -1 without it.

    TensorFlow rounds the times of local files to seconds, in which a file can be written twice.
    """
    local = local_path(path)
    if local is None:
        remote = tf.io.gfile.stat(path)
        return remote.length, remote.mtime_nsec
    try:
        found = os.stat(local)
    except OSError:  # for example a deleted file, which is reported when it is read
        return -1, -1
    return found.st_size, found.st_mtime_ns


def regular_files(origin: str, paths: Iterable[str]) -> list[str]:
    """Returns the sorted paths of regular files, and reports special files on stderr."""
    files: list[str] = []
    special: list[str] = []
    for path in sorted(paths):
        local = local_path(path)
        if not (tf.io.gfile.isdir(path) if local is None else os.path.isdir(local)):
            (files if can_be_opened(path) else special).append(path)
    warn_of_skipped(origin, {SPECIAL: special})
    return files


def fingerprint_of(paths: Sequence[str], classes: Any) -> dict[str, Any]:
    """Returns the fingerprint of files in the order of a dataset, as stored in data.json.

    Args:
      paths: The paths of the files.
      classes: The names of the classes, or their number.

    Returns:
      The number of "files" and hashes of their "names", "classes" and "sizes". "sizes" is None
      if a file is not local, because each size would take a request.
    """
    are_local = all(local_path(path) is not None for path in paths)
    return {
        "files": len(paths),
        "names": digest(list(map(posixpath.basename, paths))),
        "classes": digest(classes),
        "sizes": digest([size_and_time(path)[0] for path in paths]) if are_local else None,
    }


def warn_of_skipped(origin: str, skipped: dict[str, list[str]]) -> None:
    """Prints one warning for each reason, with the first path and the number of other paths."""
    for cause, paths in skipped.items():
        if paths:
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            logging.warning(f"{origin}: {cause}: {printable(min(paths))}{more}")


def progress_bar(
    title: str, unit: str, total: int, items: Iterable | None = None, initial: int = 0
) -> Any:
    """Returns a progress bar of tqdm, over items if there are some, which only a terminal shows."""
    return tqdm.tqdm(
        items,
        title,
        total,
        initial=initial,
        unit=f" {unit}",
        disable=not is_terminal(sys.stderr),
        leave=False,
    )


@contextlib.contextmanager
def socket_timeout(seconds: float = DOWNLOAD_TIMEOUTS[1]) -> Iterator[None]:
    """Sets the default timeout of sockets, which urllib uses, inside the context."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _walk_remote(top: str) -> Iterator[str]:
    """Yields the files below a folder that is not local; such folders have no links."""
    for folder, _, names in tf.io.gfile.walk(top):
        inside = folder[len(top) :].strip("/")
        if any(part.startswith(".") for part in inside.split("/")):
            continue  # hidden, such as .git
        yield from (posixpath.join(inside, name) for name in names if not name.startswith("."))


def _walk_local(top: str, skipped: dict[str, list[str]]) -> Iterator[str]:
    """Yields the files below a local folder.

    Links are followed last, so that a file inside the folder is listed under its own path.
    """

    def fail(error: OSError) -> None:
        raise error

    def skip(cause: str, *paths: str) -> None:
        skipped.setdefault(cause, []).extend(path[len(top) :].strip("/") for path in paths)

    def shown(folder: str, names: list[str]) -> list[str]:
        names = [name for name in names if not name.startswith(".")]  # such as .git
        skip(NAME, *(posixpath.join(folder, name) for name in names if not is_utf8(name)))
        return list(filter(is_utf8, names))

    seen: set[str] = set()  # real paths
    links = [top]
    for link in links:  # the loop body appends to it
        target, parent = os.path.realpath(link), os.path.realpath(posixpath.dirname(link))
        if link != top and os.path.commonpath([target, parent]) == target:
            skip(_LINK, link)
            continue
        for folder, inner, names in os.walk(link, onerror=fail):  # it does not follow links
            real = os.path.realpath(folder)
            if real in seen:
                skip(_LINK, folder)
                inner.clear()
                continue
            seen.add(real)
            inner[:] = shown(folder, inner)
            links += filter(os.path.islink, (posixpath.join(folder, name) for name in inner))
            for name in shown(folder, names):
                path = posixpath.join(folder, name)
                if os.path.isfile(path):
                    yield path[len(top) :].lstrip("/")
                else:
                    skip(SPECIAL, path)
