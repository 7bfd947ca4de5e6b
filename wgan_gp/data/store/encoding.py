"""Encodes the pictures of a store whose decoded examples do not fit on the disk.

A file ends each picture with its CRC-32, because a decoder would report a damaged picture with a
text that names no file, or decode a damaged JPEG without an error.
"""

from __future__ import annotations

import math
import posixpath
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import UserError
from ..sources.arrays.npy_files import NpyRows, Rows

PNG, JPEG = "png", "jpeg"
ENCODINGS = (PNG, JPEG)  # in the order in which they are tried
NAMES = {PNG: "PNG", JPEG: "JPEG of quality 95, which loses detail"}
SAMPLE = 100  # pictures from which the size of all is estimated
_CHECKSUM = 4  # bytes
_MARGIN = 1.2  # because the first pictures are often of one class


def encodings_of(shape: tuple[int, ...], dtype: np.dtype) -> tuple[str, ...]:
    """Returns the encodings that hold examples of a shape and a dtype."""
    if len(shape) != 3 or shape[2] not in (1, 3):
        return ()
    return {np.dtype(np.uint8): ENCODINGS, np.dtype(np.uint16): (PNG,)}.get(dtype, ())


def encoded(pictures: np.ndarray, encoding: str) -> np.ndarray:
    """Returns encoded pictures, `[B]` bytes; the pictures `[B, H, W, C]` if `encoding` is ""."""
    if not encoding:
        return pictures
    with ThreadPoolExecutor() as pool:
        return _objects(pool.map(lambda picture: _encode(picture, encoding), pictures))


def estimated_bytes(pictures: np.ndarray, encoding: str) -> int:
    """Returns the expected size of a picture, with a margin, from some decoded pictures."""
    return math.ceil(_MARGIN * np.mean(list(map(len, encoded(pictures, encoding)))))


def _encode(picture: np.ndarray, encoding: str) -> bytes:
    with tf.device("CPU:0"):
        if encoding == PNG:  # the levels above 1 take three times as long for 6% fewer bytes
            return tf.io.encode_png(picture, compression=1).numpy()
        return tf.io.encode_jpeg(picture, quality=95, chroma_downsampling=False).numpy()


def _objects(contents: Iterable[bytes]) -> np.ndarray:
    """Returns `[B]` objects; an array of bytes would drop the zeros at their ends."""
    contents = list(contents)
    objects = np.empty([len(contents)], object)
    objects[:] = contents
    return objects


def content_of_file(pictures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the content of a file of encoded pictures, `[bytes]` uint8, and where each ends."""
    content, ends = bytearray(), []
    for picture in pictures:
        content += picture
        content += _checksum(picture)
        ends.append(len(content))
    return np.frombuffer(content, np.uint8), np.array(ends)


def _checksum(picture: bytes) -> bytes:
    return zlib.crc32(picture).to_bytes(_CHECKSUM, "little")


class EncodedShard:
    """The encoded pictures of one file, `[N]` bytes; see `Rows`.

    Args:
      path: The file.
      content: The pictures, each with its checksum, one after the other, `[bytes]` uint8.
      places: `[N + 1]`, where each picture begins, and where the last one ends.
    """

    dtype = np.dtype(object)

    def __init__(self, path: str, content: Rows, places: np.ndarray):
        self.shape = (len(places) - 1,)
        self._path, self._content, self._places = path, content, places

    def __getitem__(self, indices: Any) -> np.ndarray:
        numbers = np.arange(self.shape[0])[indices]
        begins, ends = self._places[numbers].tolist(), self._places[numbers + 1].tolist()
        if isinstance(self._content, NpyRows) and not isinstance(indices, slice):
            return _objects(map(self._checked, self._content.read_ranges(begins, ends)))
        first = begins[0] if begins else 0
        content = np.asarray(self._content[first : ends[-1] if ends else 0]).tobytes()
        return _objects(
            self._checked(content[begin - first : end - first])
            for begin, end in zip(begins, ends, strict=True)
        )

    def _checked(self, content: bytes) -> bytes:
        """Returns a picture without its checksum; raises UserError if it is damaged."""
        picture = content[:-_CHECKSUM]
        if _checksum(picture) != content[-_CHECKSUM:]:
            raise UserError(
                f"{self._path} has a damaged picture",
                f"delete {posixpath.dirname(self._path)}, which is built again",
            )
        return picture


class EncodedRows:
    """Pictures that are decoded when they are read; see `Rows`.

    Args:
      contents: The encoded pictures, `[N]` bytes.
      encoding: PNG or JPEG.
      shape, dtype: Those of a picture.

    Attributes:
      contents: As above.
    """

    def __init__(self, contents: Rows, encoding: str, shape: tuple[int, ...], dtype: np.dtype):
        self.contents = contents
        self.shape, self.dtype = (contents.shape[0], *shape), dtype
        self._encoding = encoding

    def decode(self, content: tf.Tensor) -> tf.Tensor:
        """Returns a decoded picture `[H, W, C]`; part of an input pipeline."""
        channels = self.shape[-1]
        if self._encoding == PNG:
            picture = tf.io.decode_png(content, channels, tf.as_dtype(self.dtype))
        else:
            # The default of some machines is faster, and not the same everywhere.
            picture = tf.io.decode_jpeg(content, channels, dct_method="INTEGER_ACCURATE")
        return tf.ensure_shape(picture, self.shape[1:])

    def __getitem__(self, indices: Any) -> np.ndarray:
        contents = self.contents[indices]
        pictures = np.empty([len(contents), *self.shape[1:]], self.dtype)

        def decode(place: int) -> None:
            with tf.device("CPU:0"):
                pictures[place] = self.decode(contents[place]).numpy()

        with ThreadPoolExecutor() as pool:
            list(pool.map(decode, range(len(contents))))
        return pictures
