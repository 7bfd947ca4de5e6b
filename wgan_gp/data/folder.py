"""A folder of pictures: JPEG, PNG, BMP or GIF, of any size; its subfolders are the labels."""

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
    """What lies in a folder.

    Attributes:
      path: the folder.
      files: every picture's path in it, sorted.
      labels: of each, the place of its subfolder among `names`; 0 without subfolders.
      names: of the subfolders, sorted.
    """

    path: str
    files: list[str]
    labels: list[int]
    names: list[str]


@functools.lru_cache(maxsize=8)  # a bucket takes long to list
def find(path: str | None) -> Folder:
    """Lists --data_dir, at any depth. A label is the first folder on the way to a picture.

    What was found once is kept.

    Raises:
      UserError: there is no such folder, or no picture in it, or it cannot be reached.
      tf.errors.OpError, OSError: it cannot be listed.
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
    """The shorter side of the first picture that has one; None if none has."""
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
    """The shorter side of a picture, from its header; None if it is no picture."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, of large pictures: see pixels.MOST_PIXELS
            with PIL.Image.open(io.BytesIO(encoded)) as picture:
                return min(picture.size)
    # Of damaged files Pillow raises whatever their formats' readers stumble over.
    except Exception:
        return None


def collection(config: Config, folder: Folder) -> Collection:
    """The pictures, in the order of their paths."""
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
