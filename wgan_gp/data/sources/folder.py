"""Pictures of any size in a folder or a zip archive, with subfolders or files as labels."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import os
import posixpath
import threading
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from ...config import DataSettings
from ...errors import UserError, printable, reason
from ...run_directory.json_files import digest
from ..source import Source
from ..spec import DataSpec
from ..store.opening import slow
from . import decode as pictures
from . import listing
from .decode import Form, Header, choose_form
from .encoded import Encoded, Item, Unreadable, computed_ahead
from .listing import local_path
from .picture_labels import (
    LABEL_FILES,
    Pictures,
    divide,
    find_classes,
    read_labels,
    split_name,
)
from .shapes import default_square

_INSPECTED = 100  # images whose headers are read at the start
_PARALLEL_READS = 32  # to a bucket, where a request takes longer than to decode a picture
_HEAD_BYTES = 2**16  # a header is rarely longer
_HELD_OUT = ("test", "validation")
_IGNORED_FOLDER = "__MACOSX"  # in which macOS keeps what a zip archive cannot hold
_IGNORED_FILES = ("thumbs.db", "desktop.ini")  # which Windows writes into folders


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
        if (local := local_path(path)) is not None:
            return pictures.read_local(local, count)
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
        members = {  # by their paths relative to the archive
            posixpath.normpath("/" + each.filename.replace("\\", "/")).lstrip("/"): each
            for each in self._zip.infolist()
        }
        self._members = {
            name: each
            for name, each in members.items()
            if not each.is_dir() and not _is_ignored(name)
        }
        self.names = sorted(self._members)

    def read(self, name: str, count: int = -1) -> bytes:
        """Returns the content of a file, or its first `count` bytes.

        Raises:
          Unreadable: If it is damaged or encrypted, or has more than 1 GiB.
        """
        member = self._members[name]
        pictures.check_size(member.file_size)
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


def _is_ignored(name: str) -> bool:
    """Returns True for files that an operating system or a program keeps for itself."""
    *folders, file = name.split("/")
    is_hidden = name.startswith(".") or "/." in name
    return is_hidden or _IGNORED_FOLDER in folders or file.lower() in _IGNORED_FILES


@dataclasses.dataclass
class FolderSource(Encoded):
    """The pictures of a folder or an archive.

    Attributes:
      origin: The flag and the path, for messages.
      files: The folder or the archive.
      splits: The pictures of each split; "" is the only one if there are no splits.
      split: The split whose pictures are the examples.
      form: The form into which they are decoded.
      headers: Headers of some pictures of the split for training.
    """

    origin: str
    files: Folder | Zip
    splits: dict[str, Pictures]
    split: str
    form: Form
    headers: Sequence[Header]

    def __post_init__(self) -> None:
        self.shape, self.dtype = self.form.shape, self.form.dtype
        self.decode = functools.partial(pictures.decode, form=self.form)
        self._names, self._labels, self.class_names = self.splits[self.split]
        self.size = len(self._names)
        self.square_side = default_square(self.headers[0].size)[0]
        known = self.class_names
        for split in _HELD_OUT[::-1]:
            if split in self.splits and split != self.split:
                names = self.splits[split].class_names
                if (names is None) == (known is None) and {*(names or ())} <= {*(known or ())}:
                    self.held_out_split = split

    def fingerprint(self) -> dict[str, Any]:
        return {
            "files": self.size,
            "names": digest(self._names),
            "classes": digest([self.class_names, self._labels]),
            "sizes": self._content["sizes"],
        }

    def identity(self) -> dict[str, Any]:
        return {
            "files": self.size,
            "names": digest(self._names),
            "classes": digest(self.class_names),
            "labels": digest(self._labels),
            **self._content,
            "form": dataclasses.asdict(self.form),
        }

    @functools.cached_property
    def _content(self) -> dict[str, Any]:
        """The sizes and times of all files, for which each of them is asked once."""
        return self.files.identity(self._names)

    def items(self, first: int = 0) -> Iterator[Item]:
        """Yields the path of each picture in a local folder, or else its content."""
        names = self._names[first:]
        contents: Iterator[Any]
        if isinstance(self.files, Folder) and (folder := local_path(self.files.path)) is not None:
            contents = (posixpath.join(folder, name) for name in names)
        else:
            contents = computed_ahead(self._read, names, _PARALLEL_READS, 2 * _PARALLEL_READS)
        yield from map(Item, names, self._labels[first:], contents)

    def _read(self, name: str) -> bytes | Unreadable:
        try:
            return self.files.read(name)
        except Unreadable as error:
            return error

    def has_colors(self, name: str) -> bool:
        """Returns True if the header of a picture says that it has colors."""
        header = _read_header(self.files, name)
        return header is not None and header.channels > 2

    def of_split(self, split: str) -> FolderSource:
        return dataclasses.replace(self, split=split)

    def of_one_size(self) -> FolderSource:
        """Returns the same pictures, which must all have the size of the examples."""
        return dataclasses.replace(self, form=dataclasses.replace(self.form, exact=True))

    def resized(self, settings: DataSettings) -> FolderSource:
        form = choose_form(self.origin, self.headers, settings)
        return dataclasses.replace(self, form=form)


def find_source(settings: DataSettings, flag: str, like: DataSpec | None = None) -> Source:
    """Finds the pictures of a folder or an archive; see `find_encoded` and `slow`."""
    return slow(find_encoded(settings, flag), settings, like)


def find_encoded(
    settings: DataSettings, flag: str = "--data_dir", *, only_pictures: bool = False
) -> FolderSource:
    """Finds the pictures in the folder or the archive of `flag`, --data_dir or --test_data_dir.

    Args:
      settings: The settings of the data.
      flag: The flag.
      only_pictures: Whether all pictures are one split without classes.

    Raises:
      UserError: If there is no such folder, it contains no pictures that can be read, or it has no
        split of the name --split.
      tf.errors.OpError, OSError: If it cannot be listed.
    """
    if settings.data_dir is None:
        raise UserError("--dataset=image_folder requires a folder", "add --data_dir=FOLDER")
    origin = f"{flag}={settings.data_dir}"
    files = _open(settings.data_dir, origin)
    found = _find_pictures(files, origin)
    splits, split = {"": Pictures(found, [0] * len(found), None)}, ""
    if not only_pictures:
        divided = divide(found)
        split = _choose_split(origin, divided, settings.split, len(found))
        labels = read_labels(files, origin, found, settings.label_column)
        splits = find_classes(origin, divided, labels)
    headers = _read_some_headers(files, splits[split].names)
    if not headers:
        first, why = splits[split].names[0], "it cannot be read"
        try:
            pictures.decode(files.read(first), Form((1, 1, 3)))
        except Unreadable as error:
            why = str(error)
        raise UserError(
            f"{origin} contains no image that can be read; {printable(first)}: {why}",
            f"give {pictures.KINDS} files",
        )
    form = choose_form(origin, headers, settings)
    return FolderSource(origin, files, splits, split, form, headers)


def _open(path: str, origin: str) -> Folder | Zip:
    """Opens a folder or a zip archive, and lists its files.

    Raises:
      UserError: If it is neither, or does not exist.
      tf.errors.OpError, OSError: If it cannot be read.
    """
    listing.check_path(origin, path)
    if tf.io.gfile.isdir(path):
        return Folder(path, origin)
    why = "is not a folder"
    if listing.can_be_opened(path) and tf.io.gfile.exists(path):
        try:
            return Zip(path)
        except (zipfile.BadZipFile, NotImplementedError) as error:
            why = f"is neither a folder nor a .zip archive that can be read ({reason(error)})"
    raise UserError(
        f"{origin} {why}",
        "give a folder of images, or a .zip archive of one; unpack other archives first",
    )


def _find_pictures(files: Folder | Zip, origin: str) -> list[str]:
    """Returns the files that have a suffix of pictures."""
    found: list[str] = []
    others: list[str] = []
    for name in files.names:
        is_picture = posixpath.splitext(name)[1].lower() in pictures.SUFFIXES
        (found if is_picture else others).append(name)
    if not found:
        raise UserError(
            f"{origin} contains no images", f"add {pictures.KINDS} files with their suffixes"
        )
    if skipped := [name for name in others if posixpath.basename(name) not in LABEL_FILES]:
        more = f" and {len(skipped) - 1:,} more" if len(skipped) > 1 else ""
        logging.info(
            f"note: {origin}: files that are not images are skipped: {printable(skipped[0])}{more}"
        )
    return found


def _choose_split(
    origin: str, divided: dict[str, list[tuple[str, str]]], wanted: str, total: int
) -> str:
    """Returns the split that --split selects, or "" for pictures without splits."""
    if "" in divided:
        if wanted != "train":
            raise UserError(
                f"--split={wanted}, but {origin} has no folders train, validation or test",
                "omit it",
            )
        return ""
    split = split_name(wanted) or wanted
    names = ", ".join(sorted(divided))
    if split not in divided:
        raise UserError(f"--split={wanted} is not a split of {origin}", f"use one of {names}")
    logging.info(
        f"note: {origin}: its folders are the splits {names}; --split={split} selects "
        f"{len(divided[split]):,} of {total:,} images"
    )
    return split


def _read_header(files: Folder | Zip, name: str) -> Header | None:
    """Returns the header of a picture, or None if it cannot be read."""
    try:
        beginning = files.read(name, _HEAD_BYTES)
        header = pictures.read_header(beginning, name)
        if header is None and len(beginning) == _HEAD_BYTES:
            header = pictures.read_header(files.read(name), name)
        return header
    except Unreadable:
        return None


def _read_some_headers(files: Folder | Zip, names: Sequence[str]) -> list[Header]:
    """Returns the header of the first readable picture, and others at equal distances after it.

    At most _INSPECTED headers are read after the first one.
    """
    read = functools.partial(_read_header, files)
    first = next((number for number, name in enumerate(names) if read(name)), None)
    if first is None:
        return []
    others = names[first + 1 :: max(1, (len(names) - first) // _INSPECTED)][:_INSPECTED]
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_READS) as pool:
        return list(filter(None, pool.map(read, [names[first], *others])))
