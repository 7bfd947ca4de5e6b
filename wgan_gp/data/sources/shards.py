"""TFRecord files: the features of their examples and the positions of undamaged records."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import itertools
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence

import google.protobuf.message
import tensorflow as tf
import tqdm
from absl import logging

from ...errors import UserError
from . import listing
from .pixels import BMP_SIGNATURE

IMAGE_KEYS = ("image", "image/encoded")
LABEL_KEYS = ("label", "image/class/label")
PARALLEL_SHARDS = 16
# The names of feature types in messages.
_TYPE_NAMES = {"bytes_list": "a string", "float_list": "a float", "int64_list": "an integer"}

_HEADER_BYTES = 12  # the length of a record, 8 bytes, and its checksum
_FRAME_BYTES = _HEADER_BYTES + 4  # the header and the checksum after the content
_INSPECTED = 100  # records inspected to find one with the expected features
_MAX_FIRST_IMAGES = 20
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


def find_shards(pattern: str, origin: str, classes: int | None) -> Shards:
    """Finds the files that match a pattern and the features of their examples.

    Args:
      pattern: A glob pattern, or the path of one file.
      origin: The flag and the pattern, for messages.
      classes: The value of --num_classes. None ignores the labels.

    Raises:
      UserError: If no file matches, a file cannot be reached, or the first examples lack a valid
        image or label.
    """
    listing.check_path(origin, pattern)
    # A path that exists is not a pattern, even if it contains wildcards.
    exists = tf.io.gfile.exists(pattern)
    files = listing.regular_files(
        origin, [pattern] if exists else listing.glob_paths(origin, pattern)
    )
    if not files:
        raise UserError(
            f"{origin} matches no files",
            "give a pattern in quotes, such as 'DIR/*.tfrecord'",
        )
    return _inspect(origin, files, classes)


def _inspect(origin: str, files: list[str], classes: int | None) -> Shards:
    """Returns the files with the feature names of the first example that has an image and label.

    The examples are read without TensorFlow's runtime, which must not start before the devices
    are configured.

    Raises:
      UserError: If the first examples are all invalid, with the reason for the first one.
    """
    first_error = None
    examples = itertools.chain.from_iterable(map(_read_examples, files))
    for example in itertools.islice(examples, _INSPECTED):
        features = example.features.feature
        try:
            image_key = _find_image_key(origin, features)
            label_key = None if classes is None else _find_label_key(origin, features, classes)
        except UserError as error:
            first_error = first_error or error
        else:
            images = itertools.islice(itertools.chain([example], examples), _MAX_FIRST_IMAGES)
            encoded = [value for each in images for value in _values(each, image_key)[:1]]
            return Shards(origin, files, image_key, label_key, classes or 0, tuple(encoded))
    raise first_error or UserError(
        f"{origin} contains no tf.train.Example",
        "give uncompressed TFRecord files of tf.train.Example",
    )


def _values(example: tf.train.Example, key: str) -> Sequence[bytes]:
    return example.features.feature[key].bytes_list.value


def _find_image_key(origin: str, features: Mapping[str, tf.train.Feature]) -> str:
    """Returns the name of the image feature of an example.

    Raises:
      UserError: If the image is missing, has the wrong type or is a BMP image.
    """
    key = next((key for key in IMAGE_KEYS if key in features), None)
    if key is None:
        raise UserError(
            f"{origin}: the first example has no image (its features: "
            f"{', '.join(sorted(features)) or 'none'})",
            f"name the feature of the image {' or '.join(IMAGE_KEYS)}",
        )
    if problem := _find_problem(features[key], "bytes_list"):
        raise UserError(
            f"{origin}: {key} of the first example {problem}",
            "store one image in each example, as the content of a JPEG, PNG or GIF file",
        )
    if features[key].bytes_list.value[0].startswith(BMP_SIGNATURE):
        raise UserError(
            f"{origin}: {key} of the first example is a BMP image, which is not supported",
            "store JPEG, PNG or GIF images",
        )
    return key


def _find_label_key(origin: str, features: Mapping[str, tf.train.Feature], classes: int) -> str:
    """Returns the name of the label feature of an example.

    Raises:
      UserError: If the label is missing or has the wrong type.
    """
    key = next((key for key in LABEL_KEYS if key in features), None)
    if key is None:
        raise UserError(
            f"--num_classes={classes}, but the first example of {origin} has no label",
            f"omit it, or name the feature of the label {' or '.join(LABEL_KEYS)}",
        )
    if problem := _find_problem(features[key], "int64_list"):
        raise UserError(
            f"{origin}: {key} of the first example {problem}",
            "store one integer in each example, or omit --num_classes",
        )
    return key


def _find_problem(feature: tf.train.Feature, kind: str) -> str | None:
    """Returns the problem of a feature, or None if it has one value of the type `kind`."""
    actual = feature.WhichOneof("kind")
    values = getattr(feature, actual).value if actual else []
    if values and actual != kind:
        return f"is {_TYPE_NAMES[actual]}, not {_TYPE_NAMES[kind]}"
    return None if len(values) == 1 else f"has {len(values) or 'no'} values"


def _read_examples(file: str) -> Iterator[tf.train.Example]:
    """Yields the examples of a file and skips records that are not a tf.train.Example."""
    size = tf.io.gfile.stat(file).length
    with tf.io.gfile.GFile(file, "rb") as opened:
        while len(header := opened.read(_HEADER_BYTES)) == _HEADER_BYTES:
            length = _length(header)
            if length > size:
                return  # the file is damaged or not a TFRecord file
            record = opened.read(length)
            opened.read(_FRAME_BYTES - _HEADER_BYTES)
            with contextlib.suppress(google.protobuf.message.DecodeError):
                yield tf.train.Example.FromString(record)


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
