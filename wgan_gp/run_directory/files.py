"""Atomic and durable writes, directory listings, and the conversion of file errors."""

import contextlib
import errno
import os
import posixpath
from collections.abc import Iterator

import tensorflow as tf

from ..errors import UserError, reason
from .buckets import explain_bucket_error


def write_atomic(path: str, content: bytes | str) -> None:
    """Writes a file atomically and durably: a reader finds either the old or the new content."""
    temporary = f"{path}.new"
    with tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    fsync(temporary)
    tf.io.gfile.rename(temporary, path, overwrite=True)
    fsync(posixpath.dirname(path) or ".")


def fsync(path: str) -> None:
    """Waits until a local file or directory is on the disk, so that it survives a power failure.

    Remote files, such as on gs://, are durable once they are closed, so this function ignores
    them. tf.io.gfile has no such function: flushing a GFile leaves the data in the operating
    system's cache.
    """
    if "://" in path:
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems do not support fsync.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def list_prefix(prefix: str) -> list[str]:
    """Returns the sorted paths in the directory of `prefix` that start with `prefix`.

    The result is empty if the directory does not exist. Unlike tf.io.gfile.glob, this function
    does not interpret the characters [ ] * ? and \\ in a user's path as a pattern.
    """
    directory, name_prefix = posixpath.split(prefix)
    if not tf.io.gfile.isdir(directory or "."):
        return []
    # On gs://, the names of folders end with a slash.
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(directory or "."))
    return sorted(posixpath.join(directory, name) for name in names if name.startswith(name_prefix))


def check_new_folder(flag: str, path: str) -> None:
    """Raises UserError if `path`, the value of `flag`, is a file or a folder that is not empty."""
    if not tf.io.gfile.exists(path):
        return
    if not tf.io.gfile.isdir(path):
        raise UserError(f"{flag} is a file", "give a new or empty folder")
    if tf.io.gfile.listdir(path):
        raise UserError(f"{flag} already contains files", "delete them, or give a new --output")


@contextlib.contextmanager
def convert_file_errors(what: str, done: str, remedy: str) -> Iterator[None]:
    """Converts file errors inside the context to a UserError.

    Args:
      what: The flag or the path, for the error message.
      done: The operation in the error message, "read" or "written".
      remedy: See `UserError`.

    Raises:
      UserError: If the code inside the context raises a file error.
    """
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        if explained := explain_bucket_error(error, what, done):
            raise explained from error
        raise UserError(f"{what} cannot be {done} ({reason(error)})", remedy) from error
