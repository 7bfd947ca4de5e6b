"""The files of a folder or a zip archive, read by their paths without extracting them."""

from __future__ import annotations

import abc
import lzma
import os
import posixpath
import threading
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ....errors import UserError, printable, reason
from ....run_directory.json_files import digest
from .. import listing
from ..listing import local_path
from ..source import Unreadable
from .items import check_size, read_local

_IGNORED_FOLDER = "__MACOSX"  # in which macOS keeps what a zip archive cannot hold
_IGNORED_FILES = ("thumbs.db", "desktop.ini")  # which Windows writes into folders
_ZIP_SIGNATURE = b"PK\x03\x04"
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_REMEDY = "give a folder of images, or a .zip archive of one; unpack other archives first"
_DAMAGED = (zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, NotImplementedError)


class FileTree(abc.ABC):
    """Files that are read by their paths.

    Attributes:
      path: The path of the folder or the archive.
      names: The paths of the files inside it, without hidden files, in the best order to read them.
      in_parallel: True if several threads read faster than one; otherwise one thread should read
        the files in their order.
    """

    path: str
    names: list[str]
    in_parallel: bool = False

    @abc.abstractmethod
    def read(self, name: str, count: int = -1) -> bytes:
        """Returns the content of a file, or its first `count` bytes.

        Raises:
          Unreadable: If it is damaged, is missing, or has more than 1 GiB.
          tf.errors.OpError: If a bucket cannot be reached.
        """

    @abc.abstractmethod
    def identity(self, names: Sequence[str]) -> dict[str, Any]:
        """Returns a JSON object that changes if the content of one of these files changes."""


def open_tree(path: str, origin: str) -> FileTree:
    """Opens a folder or an archive, and lists its files.

    Args:
      path: The path of the folder, or of a zip archive.
      origin: The flag and the path, for messages.

    Raises:
      UserError: If it is neither, does not exist, or is encrypted or damaged.
      tf.errors.OpError, OSError: If it cannot be read.
    """
    listing.check_path(origin, path)
    if tf.io.gfile.isdir(path):
        return Folder(path, origin)
    if not listing.can_be_opened(path) or not tf.io.gfile.exists(path):
        raise UserError(f"{origin} is not a folder", _REMEDY)
    file = _open(path)
    try:
        beginning = file.read(len(_ZIP_SIGNATURE))
        if zipfile.is_zipfile(file) or beginning == _ZIP_SIGNATURE:
            return Zip(path, file, origin)
    except _DAMAGED as error:
        raise UserError(
            f"{origin} is a damaged archive ({reason(error) or type(error).__name__})",
            "copy or download it again",
        ) from error
    raise UserError(f"{origin} is neither a folder nor a .zip archive", _REMEDY)


class Folder(FileTree):
    """The files of a folder at any depth, sorted by their paths."""

    in_parallel = True

    def __init__(self, path: str, origin: str):
        self.path = path
        self.names = [name for name in listing.list_files(origin, path) if not _is_ignored(name)]

    def read(self, name: str, count: int = -1) -> bytes:
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
        folder = local_path(self.path)
        if folder is None:  # each size would take a request
            return {"sizes": None, "times": None, "folder": self.path.rstrip("/")}
        stats = [listing.size_and_time(os.path.join(folder, name)) for name in names]
        return {
            "sizes": digest([size for size, _ in stats]),
            "times": digest([time for _, time in stats]),
        }


class Zip(FileTree):
    """The files of a zip archive, sorted by their paths."""

    def __init__(self, path: str, file: Any, origin: str):
        self.path = path
        self._lock = threading.Lock()
        self._zip = zipfile.ZipFile(file)
        self._members: dict[str, zipfile.ZipInfo] = {}
        replaced = []
        for member in self._zip.infolist():
            name = _inside(member.filename)
            if member.is_dir() or _is_ignored(name):
                continue
            if name in self._members:
                replaced.append(name)
            self._members[name] = member
        listing.warn_of_skipped(origin, {listing.REPLACED: replaced})
        for name, member in self._members.items():
            if member.flag_bits & 1:
                raise UserError(
                    f"{origin} is encrypted ({printable(name)})", "unpack it, and give the folder"
                )
            if member.compress_type not in _ZIP_METHODS:
                raise UserError(
                    f"{origin} is compressed by method {member.compress_type}, which Python "
                    f"cannot read ({printable(name)})",
                    "unpack it, and give the folder",
                )
        self.names = sorted(self._members)

    def read(self, name: str, count: int = -1) -> bytes:
        member = self._members[name]
        check_size(member.file_size)
        with self._lock:  # there is one position in the file
            try:
                with self._zip.open(member) as opened:
                    return opened.read(count)
            except (*_DAMAGED, OSError, ValueError) as error:
                raise Unreadable(reason(error) or type(error).__name__) from error

    def identity(self, names: Sequence[str]) -> dict[str, Any]:
        size, time = listing.size_and_time(self.path)
        return {"sizes": size, "times": time}


def _open(path: str) -> Any:
    """Opens a file for reading, whose handle is closed when it is not used any longer."""
    local = local_path(path)
    return open(local, "rb") if local is not None else tf.io.gfile.GFile(path, "rb")


def _inside(name: str) -> str:
    """Returns the path of a member, as it is written, relative to the archive."""
    return posixpath.normpath("/" + name.replace("\\", "/")).lstrip("/")


def _is_ignored(name: str) -> bool:
    """Returns True for files that an operating system or a program keeps for itself."""
    *folders, file = name.split("/")
    is_hidden = name.startswith(".") or "/." in name
    return is_hidden or _IGNORED_FOLDER in folders or file.lower() in _IGNORED_FILES
