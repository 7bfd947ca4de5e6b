"""Pictures of any size in a folder or an archive, with its subfolders or files as labels."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ...config import DataSettings, DeviceSettings
from ...errors import UserError, naming, printable
from ...run_directory.json_files import digest
from ..feed.shuffling import shuffled
from ..opened_data import InMemoryData, StreamedData, UnreadData
from . import listing, pictures, tiff
from .decoding import EncodedImages
from .encoded_images import open_images, unread_images
from .file_trees import FileTree, open_tree
from .fingerprint import compute_fingerprint
from .forms import Form
from .forms import choose_form as choose_picture_form
from .headers import Header, ImageForm, choose_form, read_header
from .labels import numbered_like
from .picture_labels import (
    LABEL_FILES,
    Pictures,
    Placed,
    divide,
    find_classes,
    read_labels,
    split_name,
)
from .shapes import default_square
from .source import Example, Source, Unreadable

EXTENSIONS = (".jpg", ".jpeg", ".png", ".gif", *tiff.EXTENSIONS)
_INSPECTED = 100  # images whose headers are read at the start
_PARALLEL_READS = 16
_HEAD_BYTES = 2**16  # a header is rarely longer


@dataclasses.dataclass(frozen=True)
class ImageFolder:
    """The images of a folder.

    Attributes:
      origin: The flag and the path, for messages.
      path: The path of the folder.
      files: The paths of the images relative to the folder, in the order of the dataset.
      labels: The label of each image, which is the index of its subfolder in `class_names`.
      class_names: The sorted names of the subfolders that contain images. They include "" if an
        image is not in a subfolder.
    """

    origin: str
    path: str
    files: list[str]
    labels: list[int]
    class_names: list[str]


class FolderReader:
    """Reads a folder of images; see datasets.DatasetReader."""

    def __init__(self, folder: ImageFolder, headers: list[Header], settings: DataSettings):
        self._folder = folder
        self._headers = headers
        self._form = find_form(folder, headers, settings)
        self.example_shape: tuple[int, ...] = self._form.shape
        self.label_count = 0 if "" in folder.class_names else len(folder.class_names)

    def open(
        self, settings: DataSettings, *, classes: int, devices: DeviceSettings
    ) -> InMemoryData | StreamedData:
        images = FolderImages(self._folder, settings.seed)
        return open_images(images, self._form, settings, devices)

    def open_unread(self, settings: DataSettings, *, devices: DeviceSettings) -> UnreadData:
        folder = self._folder
        return unread_images(folder.origin, len(folder.files), self._form, settings, devices)

    @property
    def square_side(self) -> int:
        """The side of the default square, for networks that do not support rectangles."""
        return default_square(self._headers[0].size if self._headers else None)[0]

    def resized(self, settings: DataSettings) -> FolderReader:
        """Returns a reader of the same images for another --image_size."""
        return FolderReader(self._folder, self._headers, settings)

    def fingerprint(self, settings: DataSettings) -> dict[str, Any]:
        folder = self._folder
        return compute_fingerprint(folder.path, folder.files, folder.class_names)


class FolderImages(EncodedImages):
    """The images of a folder, in the order of `folder.files`; a payload is (path, label)."""

    classes = 0

    def __init__(self, folder: ImageFolder, seed: int):
        self.origin = folder.origin
        self.size = len(folder.files)
        self._files = folder.files
        self._paths = tf.constant([posixpath.join(folder.path, file) for file in folder.files])
        self._labels = tf.constant(folder.labels, tf.int64)
        self._seed = seed

    def in_order(self) -> tf.data.Dataset:
        return tf.data.Dataset.range(self.size).map(self._elements)

    def shuffled(self, first: int, count: int) -> tf.data.Dataset:
        return shuffled(self._seed, self.size, first, count).map(self._elements)

    def read(self, payload: Any) -> tuple[tf.Tensor, tf.Tensor]:
        path, label = payload
        return tf.io.read_file(path), label

    def name(self, index: int) -> str:
        return self._files[index]

    def _elements(self, indices: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        return indices, (tf.gather(self._paths, indices), tf.gather(self._labels, indices))


def find_reader(settings: DataSettings, flag: str) -> FolderReader:
    """Lists the images of `flag`, --data_dir or --test_data_dir; see `list_images` for errors."""
    if settings.data_dir is None:
        raise UserError("--dataset=image_folder requires a folder", "add --data_dir=FOLDER")
    folder = list_images(settings.data_dir, f"{flag}={settings.data_dir}")
    return FolderReader(folder, read_headers(folder), settings)


def list_images(path: str, origin: str) -> ImageFolder:
    """Lists the images in a folder at any depth.

    The label of an image is its top-level subfolder.

    Args:
      path: The path of the folder.
      origin: The flag and the path, for messages.

    Raises:
      UserError: If the folder does not exist, cannot be reached, contains no images or contains BMP
        files.
      tf.errors.OpError, OSError: If the folder cannot be listed.
    """
    listing.check_path(origin, path)
    if not tf.io.gfile.isdir(path):
        raise UserError(f"{origin} is not a folder", "give the folder of the images")
    all_files = listing.list_files(origin, path)
    _refuse_bmp(origin, all_files)
    files = [file for file in all_files if file.lower().endswith(EXTENSIONS)]
    if len(files) < len(all_files):
        logging.warning(
            f"{origin}: files that do not end in {', '.join(EXTENSIONS)} are skipped: "
            f"{len(all_files) - len(files)}"
        )
    if not files:
        raise UserError(
            f"{origin} contains no images", f"add files that end in {', '.join(EXTENSIONS)}"
        )
    subfolders = [file.partition("/")[0] if "/" in file else "" for file in files]
    class_names = sorted(set(subfolders))
    labels = {name: label for label, name in enumerate(class_names)}
    return ImageFolder(origin, path, files, [labels[name] for name in subfolders], class_names)


def _refuse_bmp(origin: str, files: list[str]) -> None:
    bmp = [file for file in files if file.lower().endswith(".bmp")]
    if bmp:
        more = f" and {len(bmp) - 1} more" if len(bmp) > 1 else ""
        raise UserError(
            f"{origin} contains BMP files, which are not supported: {bmp[0]}{more}",
            "convert them to PNG",
        )


def find_form(folder: ImageFolder, headers: list[Header], settings: DataSettings) -> ImageForm:
    """Returns the form into which the images of a folder are decoded; see `choose_form`."""
    has_tiff = any(file.lower().endswith(tiff.EXTENSIONS) for file in folder.files)
    return choose_form(folder.origin, headers, settings, has_tiff=has_tiff)


def read_headers(folder: ImageFolder) -> list[Header]:
    """Returns the headers of the first readable image and of images at equal distances after it.

    At most _INSPECTED headers are read after the first one.
    """

    def read(file: str) -> Header | None:
        try:
            with tf.io.gfile.GFile(posixpath.join(folder.path, file), "rb") as opened:
                beginning = opened.read(_HEAD_BYTES)
                header = read_header(file, beginning)
                if header is None and len(beginning) == _HEAD_BYTES:
                    header = read_header(file, beginning + opened.read())
                return header
        except tf.errors.OpError:
            return None

    found = ((number, read(file)) for number, file in enumerate(folder.files))
    number, first = next((pair for pair in found if pair[1]), (0, None))
    if first is None:
        return []
    others = folder.files[number + 1 :: max(1, (len(folder.files) - number) // _INSPECTED)]
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_READS) as pool:
        return [first, *filter(None, pool.map(read, others[:_INSPECTED]))]


_HELD_OUT = ("test", "validation")
_NO_PICTURES = (  # suffixes of files that are not opened to see whether they are pictures
    *(
        ".txt",
        ".csv",
        ".tsv",
        ".json",
        ".jsonl",
        ".md",
        ".html",
        ".xml",
        ".yaml",
        ".yml",
        ".caption",
    ),
    *(".py", ".ipynb", ".npy", ".npz", ".mat", ".h5", ".parquet", ".pdf", ".zip", ".tar", ".gz"),
    *(".mp4", ".mov", ".avi", ".wav", ".mp3"),
)


class FolderSource(Source):
    """The pictures of a folder or an archive.

    Args:
      origin: The flag and the path, for messages.
      files: The folder or the archive.
      splits: The pictures of each split; "" is the only one if there are no splits.
      split: The split whose pictures are the examples.
      form: The form into which they are decoded.
      headers: Headers of some pictures of the split for training.
    """

    def __init__(
        self,
        origin: str,
        files: FileTree,
        splits: dict[str, Pictures],
        split: str,
        form: Form,
        headers: Sequence[pictures.Header],
    ):
        self.origin = origin
        self.shape = form.shape
        self.dtype = form.dtype
        self._files, self._splits, self._split = files, splits, split
        self._form, self._headers = form, headers
        chosen = splits[split]
        self._names, self._labels = chosen.names, chosen.labels
        self.class_names = chosen.class_names
        self.size = len(chosen.names)

    def identity(self) -> dict[str, Any]:
        return {
            "files": self.size,
            "names": digest(self._names),
            "classes": digest(self.class_names),
            "labels": digest(self._labels),
            **self._files.identity(self._names),
            "form": dataclasses.asdict(self._form),
        }

    def items(self, first: int = 0) -> Iterator[tuple[int, bytes | Unreadable | None]]:
        """Yields the index of each picture and, if one thread must read the files, its content."""
        for index in range(first, self.size):
            content: bytes | Unreadable | None = None
            if not self._files.in_parallel:
                try:
                    content = self._files.read(self._names[index])
                except Unreadable as error:
                    content = error
            yield index, content

    def read(self, item: tuple[int, bytes | Unreadable | None]) -> Example:
        index, content = item
        if isinstance(content, Unreadable):
            raise content
        with listing.reading(self.origin), naming(f"{self.origin}: {self._names[index]}"):
            if content is None:
                content = self._files.read(self._names[index])
            return Example(pictures.decode(content, self._form), self._labels[index])

    def name(self, index: int) -> str:
        return self._names[index]

    @property
    def label_count(self) -> int:
        """The number of classes, 0 without labels."""
        return len(self.class_names or ())

    @property
    def square_side(self) -> int:
        """The side of the default square, for networks that do not support rectangles."""
        return default_square(self._headers[0].size if self._headers else None)[0]

    @property
    def held_out_split(self) -> str | None:
        """The name of "test" or "validation" if it has the classes of the examples, else None."""
        for split in _HELD_OUT:
            found = self._splits.get(split)
            if split != self._split and found and found.class_names == self.class_names:
                return split
        return None

    def of_split(self, split: str) -> FolderSource:
        """Returns the pictures of another split, in the same form."""
        return FolderSource(
            self.origin, self._files, self._splits, split, self._form, self._headers
        )

    def resized(self, settings: DataSettings) -> FolderSource:
        """Returns the same pictures for another --image_size."""
        form = choose_picture_form(self.origin, self._headers, settings)
        return FolderSource(
            self.origin, self._files, self._splits, self._split, form, self._headers
        )

    def use_classes(self, class_names: tuple[str, ...]) -> None:
        """Renumbers the classes as in the training data; raises UserError if it lacks one."""
        labels, names = np.array(self._labels, np.int64), self.class_names or ()
        self._labels = numbered_like(class_names, labels, names, self.origin).tolist()
        self.class_names = class_names


def find_source(settings: DataSettings, flag: str = "--data_dir") -> FolderSource:
    """Finds the pictures in the folder or the archive of `flag`, --data_dir or --test_data_dir.

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
    divided = divide(found)
    split = _choose_split(origin, divided, settings.split, len(found))
    labels = read_labels(files, origin, found, getattr(settings, "label_column", None))
    splits = find_classes(origin, divided, labels)
    headers = _read_some_headers(files, splits[split].names)
    if not headers:
        raise _no_readable_picture(origin, files, splits[split].names)
    form = choose_picture_form(origin, headers, settings)
    return FolderSource(origin, files, splits, split, form, headers)


def _find_pictures(files: FileTree, origin: str) -> list[str]:
    """Returns the files that are pictures by their suffix or, if it is unknown, their content."""

    def is_picture(name: str) -> bool:
        suffix = posixpath.splitext(name)[1].lower()
        if suffix in pictures.SUFFIXES or suffix in _NO_PICTURES:
            return suffix in pictures.SUFFIXES
        try:
            return pictures.is_picture(files.read(name, _HEAD_BYTES))
        except Unreadable:
            return False

    unknown = [name for name in files.names if not name.lower().endswith(pictures.SUFFIXES)]
    kinds = dict(zip(unknown, _map(files, is_picture, unknown), strict=True))
    found = [name for name in files.names if kinds.get(name, True)]
    if not found:
        raise UserError(f"{origin} contains no images", f"add {pictures.KINDS} files")
    skipped = [
        name
        for name, is_found in kinds.items()
        if not is_found and posixpath.basename(name) not in LABEL_FILES
    ]
    if skipped:
        more = f" and {len(skipped) - 1:,} more" if len(skipped) > 1 else ""
        logging.info(
            f"note: {origin}: files that are not images are skipped: {printable(skipped[0])}{more}"
        )
    return found


def _map(files: FileTree, function: Callable[[str], Any], names: Sequence[str]) -> list[Any]:
    """Returns the results of a function that reads files."""
    if not files.in_parallel:
        return list(map(function, names))
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_READS) as pool:
        return list(pool.map(function, names))


def _choose_split(origin: str, divided: dict[str, list[Placed]], wanted: str, total: int) -> str:
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


def _read_some_headers(files: FileTree, names: Sequence[str]) -> list[pictures.Header]:
    """Returns the header of the first readable picture, and others at equal distances after it.

    At most _INSPECTED headers are read after the first one.
    """

    def read(name: str) -> pictures.Header | None:
        try:
            beginning = files.read(name, _HEAD_BYTES)
            header = pictures.read_header(beginning, name)
            if header is None and len(beginning) == _HEAD_BYTES:
                header = pictures.read_header(files.read(name), name)
            return header
        except Unreadable:
            return None

    found = ((number, read(name)) for number, name in enumerate(names))
    number, first = next((pair for pair in found if pair[1]), (0, None))
    if first is None:
        return []
    others = names[number + 1 :: max(1, (len(names) - number) // _INSPECTED)][:_INSPECTED]
    return [first, *filter(None, _map(files, read, others))]


def _no_readable_picture(origin: str, files: FileTree, names: Sequence[str]) -> UserError:
    """Returns the error of pictures of which none can be read, with the reason of the first."""
    try:
        pictures.decode(files.read(names[0]), Form((1, 1, 3)))
    except Unreadable as error:
        return UserError(
            f"{origin} contains no image that can be read; {printable(names[0])}: {error}",
            f"give {pictures.KINDS} files",
        )
    return UserError(f"{origin} contains no image that can be read", f"give {pictures.KINDS} files")
