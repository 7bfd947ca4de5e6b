"""A folder of JPEG, PNG, GIF or TIFF images of any size, with its subfolders as labels."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import posixpath
from typing import Any

import tensorflow as tf
from absl import logging

from ...config import DataSettings, DeviceSettings
from ...errors import UserError
from ..feed.shuffling import shuffled
from ..opened_data import InMemoryData, StreamedData, UnreadData
from . import listing, tiff
from .decoding import EncodedImages
from .encoded_images import open_images, unread_images
from .fingerprint import compute_fingerprint
from .headers import Header, ImageForm, choose_form, read_header
from .shapes import default_square

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
