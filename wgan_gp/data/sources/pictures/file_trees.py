"""The files of a folder or a zip archive, read by their paths without extracting them."""

from __future__ import annotations

import os
import posixpath
import threading
import zipfile
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ....errors import UserError, reason
from ....run_directory.json_files import digest
from .. import listing
from ..encoded import Unreadable
from ..listing import local_path
from .decoding import check_size, read_local

_IGNORED_FOLDER = "__MACOSX"  # in which macOS keeps what a zip archive cannot hold
_IGNORED_FILES = ("thumbs.db", "desktop.ini")  # which Windows writes into folders
_REMEDY = "give a folder of images, or a .zip archive of one; unpack other archives first"


def open_tree(path: str, origin: str) -> Folder | Zip:
    """Opens a folder or an archive, and lists its files.

    Args:
      path: The path of the folder, or of a zip archive.
      origin: The flag and the path, for messages.

    Raises:
      UserError: If it is neither, or does not exist.
      tf.errors.OpError, OSError: If it cannot be read.
    """
    listing.check_path(origin, path)
    if tf.io.gfile.isdir(path):
        return Folder(path, origin)
    if not listing.can_be_opened(path) or not tf.io.gfile.exists(path):
        raise UserError(f"{origin} is not a folder", _REMEDY)
    try:
        return Zip(path)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise UserError(
            f"{origin} is neither a folder nor a .zip archive that can be read ({reason(error)})",
            _REMEDY,
        ) from error


class Folder:
    """The files of a folder at any depth.

    Attributes:
      path: Its path.
      names: The sorted paths of the files inside it, without hidden files.
    """

    def __init__(self, path: str, origin: str):
        self.path = path
        self.names = [name for name in listing.list_files(origin, path) if not _is_ignored(name)]

    def read(self, name: str, count: int = -1) -> bytes:
        """Returns the content of a file, or its first `count` bytes.

        Raises:
          Unreadable: If it is missing, or has more than 1 GiB.
          tf.errors.OpError: If a bucket cannot be reached.
        """
        path = posixpath.join(self.path, name)
        local = local_path(path)
        if local is not None:
            return read_local(local, count)
        try:
            with tf.io.gfile.GFile(path, "rb") as remote:
                return remote.read(count)
        except (tf.errors.NotFoundError, tf.errors.PermissionDeniedError) as error:
            raise Unreadable(reason(error)) from error

    def identity(self, names: Sequence[str]) -> dict[str, Any]:
        """Returns a JSON object that changes if the content of one of these files changes."""
        folder = local_path(self.path)
        if folder is None:  # each size would take a request
            return {"sizes": None, "times": None, "folder": self.path.rstrip("/")}
        stats = [listing.size_and_time(os.path.join(folder, name)) for name in names]
        return {
            "sizes": digest([size for size, _ in stats]),
            "times": digest([time for _, time in stats]),
        }


class Zip:
    """The files of a zip archive, of which the last one of a path counts; see `Folder`.

    Raises:
      zipfile.BadZipFile, NotImplementedError: If its directory cannot be read.
    """

    def __init__(self, path: str):
        file: Any = local_path(path) or tf.io.gfile.GFile(path, "rb")
        self.path, self._lock, self._zip = path, threading.Lock(), zipfile.ZipFile(file)
        members = {_inside(member.filename): member for member in self._zip.infolist()}
        self._members = {
            name: member
            for name, member in members.items()
            if not member.is_dir() and not _is_ignored(name)
        }
        self.names = sorted(self._members)

    def read(self, name: str, count: int = -1) -> bytes:
        """Returns the content of a file, or its first `count` bytes.

        Raises:
          Unreadable: If it is damaged or encrypted, or has more than 1 GiB.
        """
        member = self._members[name]
        check_size(member.file_size)
        with self._lock:  # there is one position in the file
            try:
                with self._zip.open(member) as opened:
                    return opened.read(count)
            # The methods of compression raise exceptions of many types.
            except Exception as error:
                raise Unreadable(reason(error) or type(error).__name__) from error

    def identity(self, names: Sequence[str]) -> dict[str, Any]:
        """Returns a JSON object that changes if the archive changes."""
        size, time = listing.size_and_time(self.path)
        return {"sizes": size, "times": time}


def _inside(name: str) -> str:
    """Returns the path of a member, as it is written, relative to the archive."""
    return posixpath.normpath("/" + name.replace("\\", "/")).lstrip("/")


def _is_ignored(name: str) -> bool:
    """Returns True for files that an operating system or a program keeps for itself."""
    *folders, file = name.split("/")
    is_hidden = name.startswith(".") or "/." in name
    return is_hidden or _IGNORED_FOLDER in folders or file.lower() in _IGNORED_FILES
