"""Pictures and labels in TFRecord files of tf.train.Example, also of those that others wrote.

TensorFlow reads the records, and compares each with its checksum. The iterator of TensorFlow 1 does
so in place of tf.data, which would start the runtime before the devices of the run are known.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import posixpath
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import google.protobuf.message
import numpy as np
import tensorflow as tf
from absl import logging

from ...config import DataSettings
from ...errors import UserError, printable, reason, shorten
from ..source import Source
from ..spec import DataSpec
from ..store.opening import slow
from . import decode as pictures
from . import listing
from .decode import MAX_COLOR_CHANNELS, Header, choose_form
from .encoded import Encoded, Item, Unreadable
from .labels import number_labels
from .shapes import default_square

_INSPECTED = 20  # examples whose pictures decide the default size
_PARALLEL_FILES = 16
_DAMAGED = object()  # in the place of a label
_COMPRESSIONS = ("", "GZIP", "ZLIB")
# Without its decorator, which would log that tf.data is newer.
_read = tf.compat.v1.io.tf_record_iterator.__wrapped__

# The names of features that are looked for, the first one that an example has.
_STYLEGAN = "data"
_IMAGES = ("image", "image/encoded", "image_raw", "image_bytes", "encoded", _STYLEGAN)
_LABELS = ("label", "image/class/label", "class", "labels", "target")
_SIDES = (
    ("height", "image/height", "rows"),
    ("width", "image/width", "cols", "columns"),
    ("depth", "image/depth", "channels", "image/channels"),
)
_SHAPE = "shape"
_LONG_TEXT = 200  # bytes


class _File(NamedTuple):
    """A TFRecord file.

    Attributes:
      path: Its path.
      size: Its size in bytes.
      time: When it was changed, in nanoseconds since 1970.
      compression: A member of _COMPRESSIONS.
    """

    path: str
    size: int
    time: int
    compression: str

    def examples(self) -> Iterator[tf.train.Example | None]:
        """Yields the examples, or None for a record that is none.

        Raises:
          tf.errors.DataLossError: At a damaged record, behind which there are no others.
          tf.errors.OpError: If the file cannot be read.
        """
        for record in _read(self.path, tf.io.TFRecordOptions(self.compression)):
            try:
                yield tf.train.Example.FromString(record)
            except google.protobuf.message.DecodeError:
                yield None


class _Features(NamedTuple):
    """The features that are read.

    Attributes:
      image: The name of the feature of the picture.
      label: The name of the feature of the label; None without labels.
      is_raw: Whether pictures are raw pixels. A single example could not tell, because some encoded
        pictures have as many bytes as pixels.
    """

    image: str
    label: str | None
    is_raw: bool


class RecordSource(Encoded):
    """The pictures of TFRecord files, in the order of the files.

    Only the first examples are read until more is needed.

    Args:
      origin: The flag and its value, for messages.
      files: The files.
      settings: The settings of the data.

    Raises:
      UserError: If no example has a picture.
    """

    def __init__(self, origin: str, files: Sequence[_File], settings: DataSettings):
        self.origin, self._files = origin, files
        first = list(itertools.islice(_intact(files), _INSPECTED))
        self._features = _find_features([example for _, example in first], origin)
        headers = (_header_of(_content(each, self._features), name) for name, each in first)
        self._headers = list(filter(None, headers))
        self._use_form(settings)

    def _use_form(self, settings: DataSettings) -> None:
        self._form = choose_form(self.origin, self._headers, settings)
        self.shape, self.dtype = self._form.shape, self._form.dtype
        self.decode = functools.partial(pictures.decode, form=self._form)
        self.square_side = default_square(self._headers[0].size if self._headers else None)[0]

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of records, for which all files are read once."""
        return self._scanned[0][-1]

    @property
    def class_names(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """The names of the classes, for which the labels of all records are read."""
        return None if self._classes is None else self._classes[1]

    @functools.cached_property
    def _scanned(self) -> tuple[list[int], list[Any]]:
        """The index of the first record of each file and the number of all; the labels of all.

        Damaged files are named.
        """
        label = self._features.label
        what = "counting the records" if label is None else "reading the labels"
        with concurrent.futures.ThreadPoolExecutor(_PARALLEL_FILES) as pool:
            scans = pool.map(functools.partial(_scan, feature=label), self._files)
            title = f"{what} of {self.origin}"
            found = list(listing.progress_bar(title, "files", len(self._files), scans))
        for file, (labels, damage) in zip(self._files, found, strict=True):
            if damage is not None:
                logging.warning(
                    f"{self.origin}: {printable(file.path)} is damaged ({damage}): only its "
                    f"first {len(labels):,} records are read"
                )
        begins = list(itertools.accumulate((len(labels) for labels, _ in found), initial=0))
        return begins, [label for labels, _ in found for label in labels]

    @functools.cached_property
    def _classes(self) -> tuple[np.ndarray, tuple[str, ...]] | None:
        """The numbers and the names of the classes of all records; None without classes."""
        if self._features.label is None:
            return None
        values = self._scanned[1]
        known = [value for value in values if value is not _DAMAGED]
        if not known:
            return None
        try:
            if None in known:
                raise UserError(f"{self.origin}: some examples have no label", "add it")
            found, names = number_labels(np.array(known), self.origin)
        except (UserError, ValueError) as error:
            why = error.what if isinstance(error, UserError) else f"{self.origin}: {reason(error)}"
            logging.info(f"note: {why}: {self._features.label} is not used as classes")
            return None
        numbers = np.zeros([len(values)], np.int64)
        numbers[[value is not _DAMAGED for value in values]] = found
        return numbers, names

    def fingerprint(self) -> dict[str, Any]:
        return listing.fingerprint_of([file.path for file in self._files], [self._features.label])

    def identity(self) -> dict[str, Any]:
        return {
            "files": [(posixpath.basename(path), *others) for path, *others in self._files],
            "features": self._features,
            "form": dataclasses.asdict(self._form),
        }

    def items(self, first: int = 0) -> Iterator[Item]:
        """Yields the encoded or raw picture of each record."""
        begins = self._scanned[0]
        for begin, end, file in zip(begins, begins[1:], self._files, strict=False):
            skipped = max(0, first - begin)
            examples = enumerate(file.examples()) if first < end else ()
            for number, example in itertools.islice(examples, skipped, end - begin):
                label = 0 if self._classes is None else int(self._classes[0][begin + number])
                yield Item(_name(number, file), label, _content(example, self._features))

    def resized(self, settings: DataSettings) -> RecordSource:
        other = copy.copy(self)
        other._use_form(settings)
        return other


def find_source(settings: DataSettings, flag: str, like: DataSpec | None = None) -> Source:
    """Finds the pictures of TFRecord files; see `find_encoded` and `slow`."""
    return slow(find_encoded(settings, flag), settings, like, use_record=True)


def find_encoded(settings: DataSettings, flag: str = "--data_dir") -> RecordSource:
    """Finds the files of `flag`, --data_dir or --test_data_dir.

    Its value is a path, a folder, a pattern, or several of these, separated by commas.

    Raises:
      UserError: If no file matches, or no example has a picture.
      tf.errors.OpError, OSError: If a file cannot be read.
    """
    given = settings.data_dir
    if given is None:
        raise UserError(
            "--dataset=tfrecord requires files", "add --data_dir='PATTERN', such as DIR/*.tfrecord"
        )
    origin = f"{flag}={given}"
    listing.check_path(origin, given)
    # A path that exists is no list and no pattern, even if it contains commas and wildcards.
    parts = [given] if tf.io.gfile.exists(given) else given.split(",")
    stripped = filter(None, map(str.strip, parts))
    paths = dict.fromkeys(path for part in stripped for path in _paths(part, origin))
    found = listing.regular_files(origin, paths)
    if not found:
        raise UserError(
            f"{origin} matches no files",
            "give a folder, or a pattern in quotes, such as 'DIR/*.tfrecord'",
        )
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_FILES) as pool:
        files = list(pool.map(_open, found))
    usable = [file for file in files if file is not None]
    if usable:
        others = [path for path, file in zip(found, files, strict=True) if file is None]
        listing.warn_of_skipped(origin, {"files without readable TFRecords are skipped": others})
    return RecordSource(origin, usable, settings)


def _paths(part: str, origin: str) -> list[str]:
    """Returns the paths that one part of the flag stands for."""
    listing.check_path(origin, part)
    if tf.io.gfile.isdir(part):
        return [posixpath.join(part, name) for name in listing.list_files(origin, part)]
    if tf.io.gfile.exists(part):
        return [part]
    return tf.io.gfile.glob(part)


def _open(path: str) -> _File | None:
    """Finds the size and the compression of a file; returns None if its beginning has no record.

    A file without any record is empty.

    Raises:
      tf.errors.OpError, OSError: If it cannot be read.
    """
    for compression in _COMPRESSIONS:
        file = _File(path, *listing.size_and_time(path), compression)
        with contextlib.suppress(tf.errors.DataLossError):
            next(file.examples(), None)
            return file
    return None


def _scan(file: _File, feature: str | None) -> tuple[list[Any], str | None]:
    """Returns the labels of the readable records, and the reason why there are no others.

    The label of an example without this feature is None; without a feature, all are None.
    """
    labels: list[Any] = []
    try:
        if feature is None:
            labels.extend(None for _ in _read(file.path, tf.io.TFRecordOptions(file.compression)))
        else:
            labels.extend(
                _DAMAGED if example is None else _value(example, feature)
                for example in file.examples()
            )
    except tf.errors.DataLossError as error:
        return labels, reason(error)
    return labels, None


def _intact(files: Sequence[_File]) -> Iterator[tuple[str, tf.train.Example]]:
    """Yields the names of examples, and the examples, without damaged ones."""
    for file in files:
        with contextlib.suppress(tf.errors.DataLossError):
            for number, example in enumerate(file.examples()):
                if example is not None:
                    yield _name(number, file), example


def _name(number: int, file: _File) -> str:
    return f"record {number} of {file.path}"


def _find_features(examples: Sequence[tf.train.Example], origin: str) -> _Features:
    """Finds the features of the picture and of the label, in the first examples that have them.

    Raises:
      UserError: If there is none.
    """
    if not examples:
        raise UserError(
            f"{origin} contains no tf.train.Example", "give TFRecord files of tf.train.Example"
        )
    image = next(filter(None, map(_image_feature, examples)), None)
    if image is None:
        names = shorten(", ".join(sorted(examples[0].features.feature)) or "none")
        raise UserError(
            f"{origin}: the first example has no image (its features: {printable(names)})",
            "store one image in each example, as the content of a file or as raw uint8 pixels, and "
            f"name its feature {_IMAGES[0]}",
        )
    found = [each for each in examples if _is_bytes(each, image)]
    label = next(
        (name for each in found for name in _LABELS if _value(each, name) is not None), None
    )
    raw = [each for each in found if _raw_pixels(each, image) is not None]
    encoded = [each for each in found if pictures.read_header(_bytes(each, image), "")]
    return _Features(image, label, 2 * len(raw) > len(found) > 2 * len(encoded))


def _image_feature(example: tf.train.Example) -> str | None:
    """Returns the name of the feature of the picture: a usual one, or the only one of bytes."""
    features = example.features.feature
    of_bytes = [each for each in features if features[each].HasField("bytes_list")]
    name = next((each for each in _IMAGES if each in features), None)
    if name is None and len(of_bytes) == 1:
        (name,) = of_bytes
    return name if name is not None and _is_bytes(example, name) else None


def _header_of(content: bytes | np.ndarray | Unreadable, name: str) -> Header | None:
    """Returns the header of the picture of an example, or None if it cannot be read."""
    if isinstance(content, bytes):
        return pictures.read_header(content, name)
    if isinstance(content, Unreadable):
        return None
    height, width, channels = content.shape
    return Header(name, (height, width), 8 * content.dtype.itemsize, channels)


def _content(
    example: tf.train.Example | None, features: _Features
) -> bytes | np.ndarray | Unreadable:
    """Returns the encoded or raw picture of an example."""
    if example is None:
        return Unreadable("it is not a tf.train.Example")
    if not _is_bytes(example, features.image):
        return Unreadable(f"it has no single {features.image}")
    if not features.is_raw:
        return _bytes(example, features.image)
    pixels = _raw_pixels(example, features.image)
    if pixels is None:
        return Unreadable(f"its {features.image} has another size than its height and width")
    return pixels


def _value(example: tf.train.Example, name: str) -> Any | None:
    """Returns the value of a feature, a tuple if it has several, or None if it has none.

    A long text, which may even be a picture, is not the name of a class, so it is None.
    """
    features = example.features.feature
    if name not in features or (kind := features[name].WhichOneof("kind")) is None:
        return None
    values = tuple(getattr(features[name], kind).value)
    if len(values) != 1:
        return values or None
    return None if isinstance(values[0], bytes) and len(values[0]) > _LONG_TEXT else values[0]


def _is_bytes(example: tf.train.Example, name: str) -> bool:
    """Returns True if an example has a feature of one value of bytes."""
    features = example.features.feature
    return name in features and len(features[name].bytes_list.value) == 1


def _bytes(example: tf.train.Example, name: str) -> bytes:
    return example.features.feature[name].bytes_list.value[0]


def _raw_pixels(example: tf.train.Example, name: str) -> np.ndarray | None:
    """Returns raw pixels `[H, W, C]`, or None if the content has another size.

    They are `[H, W, C]` with features of their height, width and perhaps depth, or of the feature
    `shape`, which is `[C, H, W]` in the files of StyleGAN. uint16 needs the depth or the shape.
    """
    content, shape, is_planar = _bytes(example, name), _value(example, _SHAPE), False
    if not isinstance(shape, tuple) or not all(isinstance(side, int) for side in shape):
        height, width, depth = (
            next((value for each in names if type(value := _value(example, each)) is int), None)
            for names in _SIDES
        )
        if not height or not width:
            return None
        shape = height, width, len(content) // (height * width) if depth is None else depth
    elif len(shape) == 3:
        is_last, is_first = (1 <= shape[axis] <= MAX_COLOR_CHANNELS for axis in (2, 0))
        is_planar = is_first and (name == _STYLEGAN or not is_last)
    else:
        shape = (*shape, 1)
    if len(shape) != 3 or min(shape) < 1 or shape[0 if is_planar else 2] > MAX_COLOR_CHANNELS:
        return None
    count = math.prod(shape)
    if len(content) not in (count, 2 * count):
        return None
    dtype = np.dtype(np.uint8 if len(content) == count else "<u2")
    pixels = np.frombuffer(content, dtype).reshape(shape)
    return pixels.transpose(1, 2, 0) if is_planar else pixels
