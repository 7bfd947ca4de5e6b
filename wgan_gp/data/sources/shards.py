"""TFRecord files: the features of their examples and the positions of undamaged records."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import struct
import sys

import tensorflow as tf
import tqdm
from absl import logging

PARALLEL_SHARDS = 16

_HEADER_BYTES = 12  # the length of a record, 8 bytes, and its checksum
_FRAME_BYTES = _HEADER_BYTES + 4  # the header and the checksum after the content
_READ_BYTES = 2**18  # bytes per read


@dataclasses.dataclass(frozen=True)
class Shards:
    """TFRecord files with the features of their examples.

    Attributes:
      origin: The flag for messages, such as "--data_dir=shards-*".
      files: The paths of the files.
      image_key: The name of the image feature.
      label_key: The name of the label feature. None sets all labels to 0.
      classes: The number of classes; labels must be 0 ... classes - 1. 0 disables the check.
      first_images: The encoded images of the first valid examples, at most 20. Empty if they were
        not read.
    """

    origin: str
    files: list[str]
    image_key: str
    label_key: str | None
    classes: int = 0
    first_images: tuple[bytes, ...] = ()


@dataclasses.dataclass(frozen=True)
class Segment:
    """A sequence of undamaged records in a file.

    Attributes:
      file: The path of the file.
      offset: The position of the first record, in bytes.
      count: The number of records.
      bytes: The total size of the records, in bytes.
    """

    file: str
    offset: int
    count: int
    bytes: int


def _length(header: bytes) -> int:
    return struct.unpack("<Q", header[:8])[0]


def scan_shards(shards: Shards) -> list[Segment]:
    """Returns the segments of undamaged records in all files, and reports damage on stderr.

    All files are read once, without decoding the images.
    """
    with (
        concurrent.futures.ThreadPoolExecutor(PARALLEL_SHARDS) as pool,
        tqdm.tqdm(
            total=len(shards.files),
            desc=f"counting {shards.origin}",
            unit=" files",
            disable=not sys.stderr.isatty(),
            leave=False,
        ) as bar,
    ):
        segments = []
        for file, (undamaged, damage) in zip(
            shards.files, pool.map(scan_file, shards.files), strict=True
        ):
            segments += undamaged
            bar.update()
            if damage:
                more = f" and in {len(damage) - 1} more places" if len(damage) > 1 else ""
                logging.warning(
                    f"{shards.origin}: {file} is damaged at byte {damage[0]:,}{more}; "
                    "the readable records after it are used"
                )
    return segments


def scan_file(file: str) -> tuple[list[Segment], list[int]]:
    """Returns the segments of undamaged records in a file, and the offsets of damage."""
    length = tf.io.gfile.stat(file).length
    segments, damage, offset = [], [], 0
    while offset < length:
        count, size = _count_records(file, offset)
        if count:
            segments.append(Segment(file, offset, count, size))
        offset += size
        if offset < length:
            damage.append(offset)
            # The length of the damaged record, if it is intact, gives the start of the next one.
            with tf.io.gfile.GFile(file, "rb") as opened:
                opened.seek(offset)
                header = opened.read(_HEADER_BYTES)
            # Records are never empty. A length of 0 comes from the zeros of an incomplete copy.
            if len(header) < _HEADER_BYTES or not _length(header):
                break
            offset += _length(header) + _FRAME_BYTES
    return segments, damage


@tf.function(input_signature=[tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)])
def _count_op(file: tf.Tensor, offset: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    # TensorFlow can run a dataset with a byte offset only inside flat_map.
    undamaged = tf.data.Dataset.from_tensors((file, offset)).flat_map(read_records).ignore_errors()
    return undamaged.reduce(
        (tf.constant(0, tf.int64), tf.constant(0, tf.int64)),
        lambda sums, record: (
            sums[0] + 1,
            sums[1] + tf.cast(tf.strings.length(record), tf.int64) + _FRAME_BYTES,
        ),
    )


def _count_records(file: str, offset: int) -> tuple[int, int]:
    """Returns the number of records from an offset to the first damage, and their total bytes."""
    count, size = _count_op(tf.constant(file), tf.constant(offset, tf.int64))
    return int(count), int(size)


def read_records(file: tf.Tensor, offset: tf.Tensor) -> tf.data.Dataset:
    """Returns the records of a file, starting at a byte offset."""
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=[file], compression_type="", buffer_size=_READ_BYTES, byte_offsets=[offset]
    )
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
