"""Folders whose files appear together, once all are written; deletion that follows no links."""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Iterator

import tensorflow as tf

from ..errors import UserError
from .files import fsync, local_path

_INCOMPLETE = ".incomplete"  # the folder of the files that are being written


def check_new_folder(flag: str, path: str) -> None:
    """Raises UserError if `path`, the value of `flag`, is a file or a folder that is not empty.

    What a killed process left of a folder, see `new_folder`, does not count.
    """
    if not tf.io.gfile.exists(path):
        return
    if not tf.io.gfile.isdir(path):
        raise UserError(f"{flag} is a file", "give a new or empty folder")
    names = _names_in(path)
    if names and _INCOMPLETE not in names:
        raise UserError(f"{flag} already contains files", "delete them, or give a new --output")


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """Yields a folder whose files are moved to `path` when the context ends without an error.

    It is inside `path`, because only there is the file system sure to be the same. After an error,
    `path` is as it was before.
    """
    inside = posixpath.join(path, _INCOMPLETE)
    existed = tf.io.gfile.isdir(path)
    delete(inside)
    try:
        tf.io.gfile.makedirs(inside)
        yield inside
        for name in _names_in(inside):
            _move(posixpath.join(inside, name), posixpath.join(path, name))
        delete(inside)
        fsync(path)
    except BaseException:
        with contextlib.suppress(tf.errors.OpError, OSError):
            delete(inside if existed else path)
        raise


def check_inside(folder: str, path: str) -> None:
    """Raises UserError if symbolic links lead from a path in a folder to a place outside.

    A run directory that another person made must not decide where a mode writes.
    """
    local, root = local_path(path), local_path(folder)
    if local is None or root is None:
        return
    real, real_root = os.path.realpath(local), os.path.realpath(root)
    if os.path.commonpath([real, real_root]) != real_root:
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
        for name in tf.io.gfile.listdir(path):
            delete(posixpath.join(path, name))
        tf.io.gfile.rmtree(path)


def _names_in(path: str) -> list[str]:
    # On gs://, the names of folders end with a slash.
    return sorted(name.rstrip("/") for name in tf.io.gfile.listdir(path))


def _move(source: str, target: str) -> None:
    """Moves a file or a folder, and replaces what has its name."""
    if local_path(source) is None and tf.io.gfile.isdir(source):
        tf.io.gfile.makedirs(target)
        for name in _names_in(source):  # object stores have no folders that could be renamed
            _move(posixpath.join(source, name), posixpath.join(target, name))
        return
    if tf.io.gfile.isdir(target):
        delete(target)
    tf.io.gfile.rename(source, target, overwrite=True)
