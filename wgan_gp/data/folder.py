"""A folder of JPEG, PNG, BMP or GIF images of any size, with its subfolders as labels."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import posixpath
import sys
import warnings

import numpy as np
import PIL.Image
import tensorflow as tf

from ..config import Config
from ..errors import UserError
from ..shuffling import shuffled
from . import listing
from .collection import Collection

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif")


@dataclasses.dataclass(frozen=True)
class Folder:
    """The images of a folder.

    Attributes:
      path: The path of the folder.
      files: The paths of the images relative to the folder, in the order of the dataset.
      labels: The label of each image, which is the index of its subfolder in `names`.
      names: The sorted names of the subfolders that hold images. Includes "" if an image is
        not in a subfolder.
    """

    path: str
    files: list[str]
    labels: list[int]
    names: list[str]


@functools.lru_cache(maxsize=8)  # listing a bucket is slow
def find(path: str | None) -> Folder:
    """Lists the images of --data_dir at any depth, and caches the result.

    The label of an image is its top-level subfolder.

    Raises:
      UserError: If the folder does not exist, cannot be reached or holds no image.
      tf.errors.OpError, OSError: If the folder cannot be listed.
    """
    if path is None:
        raise UserError("--dataset=image_folder needs a folder", "give --data_dir=FOLDER")
    origin = f"--data_dir={path}"
    listing.check_path(origin, path)
    if not tf.io.gfile.isdir(path):
        raise UserError(f"{origin} is no folder", "give the folder of the pictures")
    found = listing.files_below(origin, path)
    files = [file for file in found if file.lower().endswith(ENDINGS)]
    if len(files) < len(found):
        print(
            f"warning: {origin}: files that do not end in {', '.join(ENDINGS)} are passed "
            f"over: {len(found) - len(files)}",
            file=sys.stderr,
        )
    if not files:
        raise UserError(
            f"{origin} holds no picture", f"put files ending in {', '.join(ENDINGS)} there"
        )
    tops = [file.partition("/")[0] if "/" in file else "" for file in files]
    names = sorted(set(tops))
    place = {name: index for index, name in enumerate(names)}
    return Folder(path, files, [place[top] for top in tops], names)


def native_side(folder: Folder) -> int | None:
    """Returns the shorter side of the first readable image in pixels, or None if none is."""
    for file in folder.files:
        with (
            contextlib.suppress(tf.errors.OpError),
            tf.io.gfile.GFile(posixpath.join(folder.path, file), "rb") as opened,
        ):
            found = side(opened.read())
            if found is not None:
                return found
    return None


def side(encoded: bytes) -> int | None:
    """Returns the shorter side of an image in pixels, from its header, or None if unreadable."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about large images, see pixels.MOST_PIXELS
            with PIL.Image.open(io.BytesIO(encoded)) as picture:
                return min(picture.size)
    # For damaged files, Pillow's readers raise exceptions of many types.
    except Exception:
        return None


def collection(config: Config, folder: Folder) -> Collection:
    """Returns the images of a folder as a collection, in the order of `folder.files`."""
    paths = tf.constant([posixpath.join(folder.path, file) for file in folder.files])
    labels = tf.constant(folder.labels, tf.int64)
    size = len(folder.files)

    def elements(indices: tf.Tensor) -> tuple[tf.Tensor, tuple]:
        return indices, (tf.gather(paths, indices), tf.gather(labels, indices))

    def from_position(first: int, count: int) -> tf.data.Dataset:
        batches = tf.data.Dataset.range(first, np.iinfo(np.int64).max, count)
        ahead = tf.range(count, dtype=tf.int64)
        return batches.map(lambda place: elements(shuffled(config.seed, place + ahead, size)))

    return Collection(
        origin=f"--data_dir={folder.path}",
        size=size,
        in_order=lambda: tf.data.Dataset.range(size).map(elements),
        shuffled=from_position,
        encoded=lambda payload: (tf.io.read_file(payload[0]), payload[1]),
        name=lambda index: folder.files[index],
    )
