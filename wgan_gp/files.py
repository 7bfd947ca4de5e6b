"""Files that are written whole or not at all."""

import contextlib
import errno
import os
import posixpath
from collections.abc import Iterator

import tensorflow as tf

from .errors import UserError, reason


def replace_text(path: str, text: str) -> None:
    """Writes a file whole or not at all: a reader, or a crash, finds the old or the new one."""
    replace_bytes(path, text.encode())


def replace_bytes(path: str, content: bytes) -> None:
    """The same, of bytes."""
    aside = f"{path}.new"
    with tf.io.gfile.GFile(aside, "wb") as file:
        file.write(content)
    sync(aside)
    tf.io.gfile.rename(aside, path, overwrite=True)
    sync(posixpath.dirname(path) or ".")


def sync(path: str) -> None:
    """Waits until a local file or directory is on the disk, where a power failure leaves it.

    What lies elsewhere, such as on gs://, is there when its file is closed. tf.io.gfile has no such
    function: flushing a GFile leaves the data with the operating system.
    """
    if "://" in path:
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks have no such call
            raise
    finally:
        os.close(handle)


def paths_starting_with(prefix: str) -> list[str]:
    """Returns the paths that begin with `prefix`, in the directory that it names, sorted.

    A directory that does not exist holds none. This takes the place of tf.io.gfile.glob, which
    would read the characters [ ] * ? and \\ of a user's path as a pattern.
    """
    directory, beginning = posixpath.split(prefix)
    if not tf.io.gfile.isdir(directory or "."):
        return []
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(directory or "."))  # as on gs://
    return sorted(posixpath.join(directory, name) for name in names if name.startswith(beginning))


def check_new_folder(flag: str, path: str) -> None:
    """Raises UserError if `path`, given as `flag`, is a file or a folder that holds something."""
    if not tf.io.gfile.exists(path):
        return
    if not tf.io.gfile.isdir(path):
        raise UserError(f"{flag} is a file", "give a folder that is new or empty")
    if tf.io.gfile.listdir(path):
        raise UserError(f"{flag} holds files already", "delete them, or give a new --output")


@contextlib.contextmanager
def reporting(what: str, done: str, remedy: str) -> Iterator[None]:
    """Turns what fails inside into a UserError.

    Args:
      what: the flag or the path.
      done: what it cannot be: "read" or "written".
      remedy: what to do about it.
    """
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        raise UserError(f"{what} cannot be {done} ({reason(error)})", remedy) from error
