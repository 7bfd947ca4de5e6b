"""Reads, atomic and durable writes, listings, new folders, deletion, and errors as one line."""

import contextlib
import errno
import hashlib
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator

import tensorflow as tf

from ..errors import UserError, reason, shorten
from .buckets import explain_bucket_error

# The way out for a file of --output that cannot be read or written.
OUTPUT_REMEDY = "free disk space or check the permissions, or give another --output"
_INCOMPLETE = ".incomplete"  # the folder of the files that are being written
_BLOCK_BYTES = 2**20  # per read
MOST_BYTES = 2**28  # of a file that is read whole; a matrix of data.json has up to 11 MB


def local_path(path: str) -> str | None:
    """Returns the local path that Python can open, or None for a path that is not local."""
    if path.startswith("file://"):
        return path.removeprefix("file://")
    return None if "://" in path else path


def this_machine() -> str:
    """Returns the name of the device of TensorFlow that reads and writes the files of a run.

    By default, TensorFlow accesses the file of a variable from the machine of the variable, which
    may be that of a remote TPU and not have the file. `tf.device(None)` does the same for single
    operations, whose default is then the TPU's machine.
    """
    with tf.device(None), tf.device("CPU:0"):
        return tf.constant(0).device


def check_regular(path: str) -> None:
    """Checks that reading a file would end, before it is opened.

    A run directory may come from another person. Opening a pipe waits for its writer, and a device
    such as /dev/zero has no end. tf.io.gfile does not tell them from files.

    Raises:
      tf.errors.NotFoundError: If there is no such file.
      OSError: If it is not a regular file, also behind symbolic links.
    """
    local = local_path(path)
    if local is None:
        return
    try:
        mode = os.stat(local).st_mode
    except FileNotFoundError:
        raise tf.errors.NotFoundError(None, None, f"{path}; No such file or directory") from None
    if not stat.S_ISREG(mode):
        raise OSError(f"{path} is not a regular file")


def read_file(path: str, most: int = MOST_BYTES) -> bytes:
    """Returns the content of a regular file.

    Args:
      path: The path of the file.
      most: The largest number of bytes that the file may have.

    Raises:
      tf.errors.OpError, OSError: See `check_regular`; or the file is too large.
    """
    check_regular(path)
    if tf.io.gfile.stat(path).length > most:
        raise OSError(f"{path} is larger than {most / 2**20:g} MiB")
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read()


def file_sha256(*paths: str) -> str:
    """Returns the SHA-256 of the contents of regular files, read in blocks."""
    sha256 = hashlib.sha256()
    for path in paths:
        check_regular(path)
        with tf.io.gfile.GFile(path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                sha256.update(block)
    return sha256.hexdigest()


def write_durable(path: str, content: bytes | str | Iterable[bytes]) -> None:
    """Writes a new file, and deletes it if it cannot be written completely.

    A symbolic link of this name is deleted first, because it would redirect the write.

    Args:
      path: The path of the file.
      content: Its content, whole or in parts.
    """
    parts = [content] if isinstance(content, bytes | str) else content
    local = local_path(path)
    if local is not None and os.path.islink(local):
        tf.io.gfile.remove(path)
    try:
        with tf.io.gfile.GFile(path, "wb") as file:
            for part in parts:
                file.write(part.encode() if isinstance(part, str) else part)
        fsync(path)
    except BaseException:
        # The beginning of a file that does not fit would keep the disk full.
        with contextlib.suppress(tf.errors.OpError, OSError):
            tf.io.gfile.remove(path)
        raise


def write_atomic(path: str, content: bytes | str | Iterable[bytes], mark: str = "") -> None:
    """Writes a file atomically and durably: a reader finds either the old or the new content.

    Processes that may write the same file at the same time need different marks.
    """
    temporary = f"{path}{mark}.new"
    write_durable(temporary, content)
    try:
        tf.io.gfile.rename(temporary, path, overwrite=True)
    except BaseException:
        with contextlib.suppress(tf.errors.OpError, OSError):
            tf.io.gfile.remove(temporary)
        raise
    fsync(posixpath.dirname(path) or ".")


def fsync(path: str) -> None:
    """Waits until a local file or directory is on the disk, so that it survives a power failure.

    Remote files, such as on gs://, are durable once they are closed, so this function ignores
    them. tf.io.gfile has no such function: flushing a GFile leaves the data in the operating
    system's cache.
    """
    local = local_path(path)
    if local is None:
        return
    handle = os.open(local, os.O_RDONLY)
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


def write_output(path: str, content: bytes | str, what: str | None = None) -> None:
    """Writes the file of a mode, and creates its folder.

    Args:
      path: The file.
      content: Its content.
      what: The flag for the error message. Default: the path.

    Raises:
      UserError: If it cannot be written.
    """
    with convert_file_errors(what or path, "written", OUTPUT_REMEDY):
        if folder := posixpath.dirname(path):
            tf.io.gfile.makedirs(folder)
        write_atomic(path, content)


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


def check_new_file(path: str, ending: str, requires: str) -> None:
    """Raises UserError unless `path`, the value of --output, is a new file with this ending.

    `requires` names the flag that requires the ending.
    """
    flag = f"--output={path}"
    if not path.lower().endswith(ending):
        raise UserError(
            f"{shorten(flag)} does not end in {ending}, which {requires} requires",
            f"give a file name that ends in {ending}",
        )
    with convert_file_errors(flag, "read", OUTPUT_REMEDY):
        if tf.io.gfile.isdir(path):
            raise UserError(f"{flag} is a folder", "give the name of a file")
        if tf.io.gfile.exists(path):
            raise UserError(f"{flag} already exists", "give another file name, or delete the file")


def check_new_folder(flag: str, path: str) -> None:
    """Raises UserError if `path`, the value of `flag`, is a file or a folder that is not empty.

    What a killed process left of files that it had not yet moved, see `new_folder`, does not count.
    """
    if not tf.io.gfile.exists(path):
        return
    if not tf.io.gfile.isdir(path):
        raise UserError(f"{flag} is a file", "give a new or empty folder")
    if set(list_prefix(posixpath.join(path, ""))) - {posixpath.join(path, _INCOMPLETE)}:
        raise UserError(f"{flag} already contains files", "delete them, or give a new --output")


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """Yields a folder whose files are moved to `path` when the context ends without an error.

    It is inside `path`, because only there is the file system sure to be the same. After an error,
    `path` has no new files, but files of the same names may have been replaced.
    """
    inside = posixpath.join(path, _INCOMPLETE)
    existed = tf.io.gfile.isdir(path)
    new: list[str] = []
    delete(inside)
    try:
        tf.io.gfile.makedirs(inside)
        yield inside
        for made in list_prefix(posixpath.join(inside, "")):
            target = posixpath.join(path, posixpath.basename(made))
            if not tf.io.gfile.exists(target):
                new.append(target)
            _move(made, target)
        delete(inside)
        fsync(path)
    except BaseException:
        for made in [inside, *new] if existed else [path]:
            with contextlib.suppress(tf.errors.OpError, OSError):
                delete(made)
        raise


def is_inside(folder: str, path: str) -> bool:
    """Returns True if a path is in a folder, on this machine also after symbolic links."""
    local, root = local_path(path), local_path(folder)
    if local is None or root is None:
        return path.startswith(f"{folder.rstrip('/')}/")
    real, real_root = os.path.realpath(local), os.path.realpath(root)
    return os.path.commonpath([real, real_root]) == real_root


def check_inside(folder: str, path: str) -> None:
    """Raises UserError if symbolic links lead from a path in a folder to a place outside.

    A run directory that another person made must not decide where a mode writes.
    """
    if not is_inside(folder, path):
        raise UserError(
            f"{path} is a symbolic link out of {folder}",
            "delete the link, or give --output",
        )


def delete(path: str) -> None:
    """Deletes a file or a folder, if it exists. A symbolic link is deleted, not what it names."""
    local = local_path(path)
    if local is None:
        if tf.io.gfile.isdir(path):
            tf.io.gfile.rmtree(path)
        elif tf.io.gfile.exists(path):
            tf.io.gfile.remove(path)
        return
    if os.path.lexists(local):
        if os.path.islink(local) or not tf.io.gfile.isdir(path):
            tf.io.gfile.remove(path)
            return
        for inside in list_prefix(posixpath.join(path, "")):
            delete(inside)
        tf.io.gfile.rmtree(path)


def _move(source: str, target: str) -> None:
    """Moves a file or a folder, and replaces what has its name."""
    if local_path(source) is None and tf.io.gfile.isdir(source):
        tf.io.gfile.makedirs(target)
        # Object stores have no folders that could be renamed.
        for path in list_prefix(posixpath.join(source, "")):
            _move(path, posixpath.join(target, posixpath.basename(path)))
        return
    if tf.io.gfile.isdir(target):
        delete(target)
    tf.io.gfile.rename(source, target, overwrite=True)
