"""Pictures of any size in a folder or an archive, with its subfolders or files as labels."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import itertools
import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import logging

from ....config import DataSettings
from ....errors import UserError, printable
from ....run_directory.json_files import digest
from .. import listing
from ..encoded import Encoded, Example, Unreadable
from ..shapes import default_square
from . import decoding as pictures
from .file_trees import Folder, Zip, open_tree
from .forms import Form, choose_form
from .picture_labels import (
    LABEL_FILES,
    Pictures,
    divide,
    find_classes,
    read_labels,
    split_name,
)

_INSPECTED = 100  # images whose headers are read at the start
_PARALLEL_READS = 16
_HEAD_BYTES = 2**16  # a header is rarely longer
_HELD_OUT = ("test", "validation")
_NO_PICTURES = (  # suffixes of files that are not opened to see whether they are pictures
    *(".txt", ".csv", ".tsv", ".json", ".jsonl", ".md", ".html", ".xml", ".yaml", ".yml"),
    *(".caption", ".py", ".ipynb", ".npy", ".npz", ".mat", ".h5", ".parquet", ".pdf"),
    *(".zip", ".tar", ".gz", ".mp4", ".mov", ".avi", ".wav", ".mp3"),
)


class FolderSource(Encoded):
    """The pictures of a folder or an archive.

    Args:
      origin: The flag and the path, for messages.
      files: The folder or the archive.
      splits: The pictures of each split; "" is the only one if there are no splits.
      split: The split whose pictures are the examples.
      form: The form into which they are decoded.
      headers: Headers of some pictures of the split for training; also an attribute.
    """

    def __init__(
        self,
        origin: str,
        files: Folder | Zip,
        splits: dict[str, Pictures],
        split: str,
        form: Form,
        headers: Sequence[pictures.Header],
    ):
        self.origin = origin
        self.shape = form.shape
        self.dtype = form.dtype
        self._files, self._splits, self._split = files, splits, split
        self._form, self.headers = form, headers
        folder = listing.local_path(files.path) if isinstance(files, Folder) else None
        self._decoder = pictures.PictureDecoder(origin, form, folder)
        chosen = splits[split]
        self._names, self._labels = chosen.names, chosen.labels
        self.class_names = chosen.class_names
        self.size = len(chosen.names)
        self.square_side = default_square(headers[0].size)[0]
        others = (each for each in _HELD_OUT if each in splits and each != split)
        fitting = (each for each in others if _fits(splits[each].class_names, self.class_names))
        self.held_out_split = next(fitting, None)

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
            "form": dataclasses.asdict(self._form),
        }

    @functools.cached_property
    def _content(self) -> dict[str, Any]:
        """The sizes and times of all files, for which each of them is asked once."""
        return self._files.identity(self._names)

    def items(self, first: int = 0) -> Iterator[pictures.Picture]:
        """Yields each picture, without its content."""
        yield from map(pictures.Picture, self._names[first:], self._labels[first:])

    def fetch(self, item: pictures.Picture) -> pictures.Picture:
        if self._decoder.folder is not None:
            return item
        with listing.reading(self.origin):
            return item._replace(content=self._files.read(item.name))

    def decoder(self) -> pictures.PictureDecoder:
        return self._decoder

    def read(self, item: pictures.Picture) -> Example:
        return self._decoder(self.fetch(item))

    def has_colors(self, item: pictures.Picture) -> bool:
        """Returns True if the header of a picture says that it has colors."""
        header = _read_header(self._files, item.name)
        return header is not None and header.channels > 2

    def name(self, index: int) -> str:
        return self._names[index]

    def of_split(self, split: str) -> FolderSource:
        """Returns the pictures of another split, in the same form."""
        return FolderSource(self.origin, self._files, self._splits, split, self._form, self.headers)

    def of_one_size(self) -> FolderSource:
        """Returns the same pictures, which must all have the size of the examples."""
        form = dataclasses.replace(self._form, exact=True)
        return FolderSource(self.origin, self._files, self._splits, self._split, form, self.headers)

    def resized(self, settings: DataSettings) -> FolderSource:
        """Returns the same pictures for another --image_size."""
        form = choose_form(self.origin, self.headers, settings)
        return FolderSource(self.origin, self._files, self._splits, self._split, form, self.headers)


def _fits(names: tuple[str, ...] | None, known: tuple[str, ...] | None) -> bool:
    """Returns True if a split has labels as the examples have, and no other classes."""
    return (names is None) == (known is None) and set(names or ()) <= set(known or ())


def find_source(
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
    files = open_tree(settings.data_dir, origin)
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


def _find_pictures(files: Folder | Zip, origin: str) -> list[str]:
    """Returns the files that are pictures by their suffix or, if it is unknown, their content."""

    def is_picture(name: str) -> bool:
        try:
            return pictures.is_picture(files.read(name, _HEAD_BYTES))
        except Unreadable:
            return False

    suffixes = {name: posixpath.splitext(name)[1].lower() for name in files.names}
    known = {*pictures.SUFFIXES, *_NO_PICTURES}
    unknown = [name for name, suffix in suffixes.items() if suffix not in known]
    by_content = set(itertools.compress(unknown, _map(is_picture, unknown)))
    found, skipped = [], []
    for name, suffix in suffixes.items():
        if suffix in pictures.SUFFIXES or name in by_content:
            found.append(name)
        elif posixpath.basename(name) not in LABEL_FILES:
            skipped.append(name)
    if not found:
        raise UserError(f"{origin} contains no images", f"add {pictures.KINDS} files")
    if skipped:
        more = f" and {len(skipped) - 1:,} more" if len(skipped) > 1 else ""
        logging.info(
            f"note: {origin}: files that are not images are skipped: {printable(skipped[0])}{more}"
        )
    return found


def _map(function: Callable[[str], Any], names: Sequence[str]) -> list[Any]:
    """Returns the results of a function that reads files."""
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_READS) as pool:
        return list(pool.map(function, names))


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


def _read_header(files: Folder | Zip, name: str) -> pictures.Header | None:
    """Returns the header of a picture, or None if it cannot be read."""
    try:
        beginning = files.read(name, _HEAD_BYTES)
        header = pictures.read_header(beginning, name)
        if header is None and len(beginning) == _HEAD_BYTES:
            header = pictures.read_header(files.read(name), name)
        return header
    except Unreadable:
        return None


def _read_some_headers(files: Folder | Zip, names: Sequence[str]) -> list[pictures.Header]:
    """Returns the header of the first readable picture, and others at equal distances after it.

    At most _INSPECTED headers are read after the first one.
    """
    read = functools.partial(_read_header, files)
    first = next((number for number, name in enumerate(names) if read(name)), None)
    if first is None:
        return []
    others = names[first + 1 :: max(1, (len(names) - first) // _INSPECTED)][:_INSPECTED]
    return list(filter(None, _map(read, [names[first], *others])))
