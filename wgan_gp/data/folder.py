"""A folder of JPEG, PNG or GIF images of any size, with its subfolders as labels."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import posixpath
import warnings
from typing import Any

import numpy as np
import PIL.Image
import tensorflow as tf
from absl import logging

from ..config import DataSettings, DeviceSettings
from ..errors import UserError
from . import listing
from .encoded_images import EncodedImages, open_images, unread_images
from .fingerprint import compute_fingerprint
from .shapes import image_shape, limit_side
from .shuffling import shuffled
from .source import InMemoryData, StreamedData, UnreadData

EXTENSIONS = (".jpg", ".jpeg", ".png", ".gif")
_PILLOW_FORMATS = ("JPEG", "PNG", "GIF")  # TensorFlow decodes the same formats


@dataclasses.dataclass(frozen=True)
class ImageFolder:
    """The images of a folder.

    Attributes:
      path: The path of the folder.
      files: The paths of the images relative to the folder, in the order of the dataset.
      labels: The label of each image, which is the index of its subfolder in `class_names`.
      class_names: The sorted names of the subfolders that contain images. They include "" if an
        image is not in a subfolder.
    """

    path: str
    files: list[str]
    labels: list[int]
    class_names: list[str]


class FolderReader:
    """Reads a folder of images; see datasets.DatasetReader."""

    def __init__(self, folder: ImageFolder, example_shape: tuple[int, ...]):
        self._folder = folder
        self.example_shape = example_shape
        self.label_count = 0 if "" in folder.class_names else len(folder.class_names)

    def open(
        self, settings: DataSettings, *, classes: int, devices: DeviceSettings
    ) -> InMemoryData | StreamedData:
        images = FolderImages(self._folder, settings.seed)
        return open_images(images, self.example_shape, settings, devices)

    def open_unread(self, settings: DataSettings, *, devices: DeviceSettings) -> UnreadData:
        folder = self._folder
        origin, count = f"--data_dir={folder.path}", len(folder.files)
        return unread_images(origin, count, self.example_shape, settings, devices)

    def fingerprint(self, settings: DataSettings) -> dict[str, Any]:
        folder = self._folder
        return compute_fingerprint(folder.path, folder.files, folder.class_names)


class FolderImages(EncodedImages):
    """The images of a folder, in the order of `folder.files`; a payload is (path, label)."""

    classes = 0

    def __init__(self, folder: ImageFolder, seed: int):
        self.origin = f"--data_dir={folder.path}"
        self.size = len(folder.files)
        self._files = folder.files
        self._paths = tf.constant([posixpath.join(folder.path, file) for file in folder.files])
        self._labels = tf.constant(folder.labels, tf.int64)
        self._seed = seed

    def in_order(self) -> tf.data.Dataset:
        return tf.data.Dataset.range(self.size).map(self._elements)

    def shuffled(self, first: int, count: int) -> tf.data.Dataset:
        offsets = tf.range(count, dtype=tf.int64)
        return tf.data.Dataset.range(first, np.iinfo(np.int64).max, count).map(
            lambda start: self._elements(shuffled(self._seed, start + offsets, self.size))
        )

    def read(self, payload: Any) -> tuple[tf.Tensor, tf.Tensor]:
        path, label = payload
        return tf.io.read_file(path), label

    def name(self, index: int) -> str:
        return self._files[index]

    def _elements(self, indices: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        return indices, (tf.gather(self._paths, indices), tf.gather(self._labels, indices))


def find_reader(settings: DataSettings) -> FolderReader:
    """Lists the images of --data_dir; see `list_images` for errors."""
    folder = list_images(settings.data_dir)
    side = settings.image_size or limit_side(first_image_side(folder))
    return FolderReader(folder, image_shape(settings, side, 3))


def list_images(path: str | None) -> ImageFolder:
    """Lists the images in a folder at any depth.

    The label of an image is its top-level subfolder.

    Raises:
      UserError: If the folder does not exist, cannot be reached, contains no images or contains BMP
        files.
      tf.errors.OpError, OSError: If the folder cannot be listed.
    """
    if path is None:
        raise UserError("--dataset=image_folder requires a folder", "add --data_dir=FOLDER")
    origin = f"--data_dir={path}"
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
    return ImageFolder(path, files, [labels[name] for name in subfolders], class_names)


def _refuse_bmp(origin: str, files: list[str]) -> None:
    bmp = [file for file in files if file.lower().endswith(".bmp")]
    if bmp:
        more = f" and {len(bmp) - 1} more" if len(bmp) > 1 else ""
        raise UserError(
            f"{origin} contains BMP files, which are not supported: {bmp[0]}{more}",
            "convert them to PNG",
        )


def first_image_side(folder: ImageFolder) -> int | None:
    """Returns the shorter side of the first readable image in pixels, or None if none is."""
    for file in folder.files:
        with (
            contextlib.suppress(tf.errors.OpError),
            tf.io.gfile.GFile(posixpath.join(folder.path, file), "rb") as opened,
        ):
            side = shorter_side(opened.read())
            if side is not None:
                return side
    return None


def shorter_side(encoded: bytes) -> int | None:
    """Returns the shorter side of an image in pixels, from its header, or None if unreadable."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about large images; see pixels.MAX_PIXELS
            with PIL.Image.open(io.BytesIO(encoded), formats=_PILLOW_FORMATS) as image:
                return min(image.size)
    # For damaged files, Pillow raises exceptions of many types.
    except Exception:
        return None
