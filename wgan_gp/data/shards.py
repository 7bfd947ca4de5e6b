"""Files of TFRecords: what their examples hold, and where in them the good records are."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import struct
import sys
from collections.abc import Iterator

import google.protobuf.message
import tensorflow as tf
import tqdm

from ..errors import UserError
from . import listing

IMAGE_KEYS = ("image", "image/encoded")
LABEL_KEYS = ("label", "image/class/label")
SHARDS_AT_ONCE = 16
# Of features, as a message names them.
_KINDS = {"bytes_list": "a string", "float_list": "a float", "int64_list": "an integer"}

_HEADER_BYTES = 12  # a record's length, 8 bytes, and the checksum of it
_FRAME_BYTES = _HEADER_BYTES + 4  # and the checksum of its content behind it
_LOOKED_AT = 100  # records, for one that says what examples hold
_READ_BYTES = 2**18  # at a time, of a file


@dataclasses.dataclass(frozen=True)
class Shards:
    """Files of records.

    Attributes:
      origin: what an error names: "--data_dir=shards-*".
      files: their paths.
      image_key, label_key: features of an Example; without a label key, all labels are 0.
      classes: labels are 0 ... classes - 1; 0: nobody asks.
      first_image: the encoded image of the first example; empty: not looked at.
    """

    origin: str
    files: list[str]
    image_key: str
    label_key: str | None
    classes: int = 0
    first_image: bytes = b""


@dataclasses.dataclass(frozen=True)
class Segment:
    """A stretch of good records in a file: `count` of them from byte `offset` on."""

    file: str
    offset: int
    count: int
    bytes: int


@functools.lru_cache(maxsize=8)  # a bucket takes long to list
def find(pattern: str | None, classes: int | None) -> Shards:
    """The files that --data_dir, a pattern, stands for, and what their examples hold.

    What was found once is kept.

    Args:
      pattern: as the shell's.
      classes: --num_classes; None: labels do not matter.

    Raises:
      UserError: there are none, or they cannot be reached, or their first examples hold no image.
    """
    if pattern is None:
        raise UserError(
            "--dataset=tfrecord needs files", "give --data_dir='PATTERN', such as DIR/*.tfrecord"
        )
    origin = f"--data_dir={pattern}"
    listing.check_path(origin, pattern)
    # A file of that very name is meant, whatever characters of a pattern its path holds.
    exists = tf.io.gfile.exists(pattern)
    files = listing.regular_files(
        origin, [pattern] if exists else listing.matching(origin, pattern)
    )
    if not files:
        raise UserError(
            f"{origin} stands for no file",
            "give a pattern, such as 'DIR/*.tfrecord', in quotes so that no shell reads it",
        )
    return _shards(origin, files, classes)


def _shards(origin: str, files: list[str], classes: int | None) -> Shards:
    """Returns the files with the keys of image and label, from the first example that has them.

    Read without TensorFlow's runtime, which must not start before the devices are set up.

    Raises:
      UserError: none of the first examples can be used; it says why the first cannot.
    """
    first_error = None
    examples = itertools.chain.from_iterable(map(_examples, files))
    for example in itertools.islice(examples, _LOOKED_AT):
        try:
            image_key, label_key = _keys(origin, example, classes)
        except UserError as error:
            first_error = first_error or error
        else:
            image = example.features.feature[image_key].bytes_list.value[0]
            return Shards(origin, files, image_key, label_key, classes or 0, image)
    raise first_error or UserError(
        f"{origin} holds no tf.train.Example",
        "give uncompressed TFRecord files of tf.train.Example",
    )


def _keys(origin: str, example: tf.train.Example, classes: int | None) -> tuple[str, str | None]:
    """Returns the names of the image and of the label; None: labels do not matter.

    Raises:
      UserError: the example holds no image or no label, or they are of another kind.
    """
    features = example.features.feature
    image_key = next((key for key in IMAGE_KEYS if key in features), None)
    if image_key is None:
        raise UserError(
            f"{origin}: the first example holds {', '.join(sorted(features)) or 'nothing'}",
            f"call the image, a JPEG or PNG file, {' or '.join(IMAGE_KEYS)}",
        )
    if fault := _fault(features[image_key], "bytes_list"):
        raise UserError(
            f"{origin}: {image_key} of the first example {fault}",
            "write one image to an example, as the content of a JPEG or PNG file",
        )
    if classes is None:
        return image_key, None
    label_key = next((key for key in LABEL_KEYS if key in features), None)
    if label_key is None:
        raise UserError(
            f"--num_classes={classes}, but the first example of {origin} has no label",
            f"leave it out, or call the label {' or '.join(LABEL_KEYS)}",
        )
    if fault := _fault(features[label_key], "int64_list"):
        raise UserError(
            f"{origin}: {label_key} of the first example {fault}",
            "write one integer to an example, or leave out --num_classes",
        )
    return image_key, label_key


def _fault(feature: tf.train.Feature, kind: str) -> str | None:
    """Returns what keeps a feature from being one value of a kind; None if it is."""
    found = feature.WhichOneof("kind")
    values = getattr(feature, found).value if found else []
    if values and found != kind:
        return f"is {_KINDS[found]}, not {_KINDS[kind]}"
    return None if len(values) == 1 else f"holds {len(values) or 'no'} values"


def _examples(file: str) -> Iterator[tf.train.Example]:
    """The examples of a file, those that are damaged left out."""
    size = tf.io.gfile.stat(file).length
    with tf.io.gfile.GFile(file, "rb") as opened:
        while len(header := opened.read(_HEADER_BYTES)) == _HEADER_BYTES:
            length = _length(header)
            if length > size:
                return  # damaged, or no TFRecords at all
            record = opened.read(length)
            opened.read(_FRAME_BYTES - _HEADER_BYTES)
            with contextlib.suppress(google.protobuf.message.DecodeError):
                yield tf.train.Example.FromString(record)


def _length(header: bytes) -> int:
    return struct.unpack("<Q", header[:8])[0]


def survey(shards: Shards) -> list[Segment]:
    """All stretches of good records; what is damaged is said on stderr.

    Reads everything once, without decoding it.
    """
    with (
        concurrent.futures.ThreadPoolExecutor(SHARDS_AT_ONCE) as pool,
        tqdm.tqdm(
            total=len(shards.files),
            desc=f"counting {shards.origin}",
            unit=" files",
            disable=not sys.stderr.isatty(),
            leave=False,
        ) as bar,
    ):
        segments = []
        for file, (found, damage) in zip(
            shards.files, pool.map(survey_file, shards.files), strict=True
        ):
            segments += found
            bar.update()
            if damage:
                more = f" and in {len(damage) - 1} more places" if len(damage) > 1 else ""
                print(
                    f"warning: {shards.origin}: {file} is damaged at byte {damage[0]:,}{more}; "
                    "what can be read behind it is used",
                    file=sys.stderr,
                )
    return segments


def survey_file(file: str) -> tuple[list[Segment], list[int]]:
    """The stretches of good records in a file, and the offsets of damage."""
    length = tf.io.gfile.stat(file).length
    segments, damage, offset = [], [], 0
    while offset < length:
        count, size = _count(file, offset)
        if count:
            segments.append(Segment(file, offset, count, size))
        offset += size
        if offset < length:
            damage.append(offset)
            # Its length, if that is whole, says where the next one begins.
            with tf.io.gfile.GFile(file, "rb") as opened:
                opened.seek(offset)
                header = opened.read(_HEADER_BYTES)
            # None is empty: these are zeros, such as a broken copy leaves.
            if len(header) < _HEADER_BYTES or not _length(header):
                break
            offset += _length(header) + _FRAME_BYTES
    return segments, damage


@tf.function(input_signature=[tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)])
def _count_good(file: tf.Tensor, offset: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    # Behind flat_map, as everywhere here: on its own, TensorFlow cannot run the dataset that
    # begins at an offset.
    good = tf.data.Dataset.from_tensors((file, offset)).flat_map(records).ignore_errors()
    return good.reduce(
        (tf.constant(0, tf.int64), tf.constant(0, tf.int64)),
        lambda sums, record: (
            sums[0] + 1,
            sums[1] + tf.cast(tf.strings.length(record), tf.int64) + _FRAME_BYTES,
        ),
    )


def _count(file: str, offset: int) -> tuple[int, int]:
    """Good records from an offset on, up to the first damage, and their bytes."""
    count, size = _count_good(tf.constant(file), tf.constant(offset, tf.int64))
    return int(count), int(size)


def records(file: tf.Tensor, offset: tf.Tensor) -> tf.data.Dataset:
    """The records of a file from a byte on."""
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=[file], compression_type="", buffer_size=_READ_BYTES, byte_offsets=[offset]
    )
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
