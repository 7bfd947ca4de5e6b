"""Pictures and labels in TFRecord files of tf.train.Example, also of those that others wrote.

TensorFlow reads the records, and compares each with its checksum. The iterator of TensorFlow 1 does
so in place of tf.data, which would start the runtime before the devices of the run are known.
"""

from __future__ import annotations

import bisect
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import posixpath
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import google.protobuf.message
import numpy as np
import tensorflow as tf
import tqdm
from absl import logging

from ....config import DataSettings
from ....errors import UserError, naming, printable, reason, shorten
from ....runtime.streams import is_terminal
from .. import listing
from ..fingerprint import compute_fingerprint
from ..labels import number_labels
from ..pictures.forms import choose_form
from ..shapes import default_square
from ..source import Example, Source, Unreadable
from . import record_features

_INSPECTED = 20  # examples whose pictures decide the default size
_PARALLEL_FILES = 16
_LEVEL_OF_DETAIL = re.compile(r"(.*)-r(\d\d)\.tfrecords")  # of StyleGAN: 2^8 pixels in r08
_SHARDED = re.compile(r"(.+)@(\d{1,5})")  # NAME@10 for NAME-00000-of-00010 and so on
_DAMAGED = object()  # in the place of a label
_COMPRESSIONS = ("", "GZIP", "ZLIB")
# Without its decorator, which would log that tf.data is newer.
_read = tf.compat.v1.io.tf_record_iterator.__wrapped__


class RecordFile(NamedTuple):
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

    def records(self) -> Iterator[bytes]:
        """Yields the records.

        Raises:
          tf.errors.DataLossError: At a damaged record, behind which there are no others.
          tf.errors.OpError: If the file cannot be read.
        """
        yield from _read(self.path, tf.io.TFRecordOptions(self.compression))


class _Scan(NamedTuple):
    """The readable content of a file.

    Attributes:
      size: The number of readable records.
      labels: Their labels, if they are needed.
      damage: The reason why there are no others; None for an intact file.
    """

    size: int
    labels: list[Any]
    damage: str | None


class _Labels(NamedTuple):
    """The labels of all records.

    Attributes:
      numbers: `[N]` int64, the numbers of their classes.
      class_names: The names of the classes.
    """

    numbers: np.ndarray
    class_names: tuple[str, ...]


class RecordFiles:
    """TFRecord files, of which only the first examples are read until more is needed.

    Attributes:
      origin: The flag and its value, for messages.
      files: The files.
      features: The features that are read.
      num_classes: The value of --num_classes.
      headers: The headers of the first readable pictures.

    Raises:
      UserError: If no example has a picture.
    """

    def __init__(self, origin: str, files: Sequence[RecordFile], settings: DataSettings):
        self.origin = origin
        self.files = files
        self.num_classes = settings.num_classes
        first = list(itertools.islice(self._examples(), _INSPECTED))
        self.features = record_features.find_features(
            [example for _, example in first], settings, origin
        )
        found = (record_features.header_of(each, self.features, name) for name, each in first)
        self.headers = [header for header in found if header is not None]

    @functools.cached_property
    def begins(self) -> list[int]:
        """The index of the first record of each file, and the number of all records."""
        return list(itertools.accumulate((scan.size for scan in self._scanned), initial=0))

    @functools.cached_property
    def labels(self) -> _Labels | None:
        """The labels of all records, or None if there are none that are classes."""
        values = [value for scan in self._scanned for value in scan.labels]
        known = [value for value in values if value is not _DAMAGED]
        if not known:
            return None
        try:
            if None in known:
                raise UserError(f"{self.origin}: some examples have no label", "add it")
            found, names = number_labels(_as_array(known), self.origin)
        except UserError as error:
            logging.info(f"note: {error.what}: {self.features.label} is not used as classes")
            return None
        numbers = np.zeros([len(values)], np.int64)
        numbers[[value is not _DAMAGED for value in values]] = found
        return _Labels(numbers, names)

    def name(self, index: int) -> str:
        """Returns the name of a record, which is counted from 0 in its file."""
        number = bisect.bisect_right(self.begins, index) - 1
        number = min(number, len(self.files) - 1)
        return f"record {index - self.begins[number]} of {self.files[number].path}"

    def records(self, first: int) -> Iterator[tuple[int, bytes]]:
        """Yields the indices of records, and the records, from an index on."""
        for begin, end, file in zip(self.begins, self.begins[1:], self.files, strict=False):
            if first < end:
                records = enumerate(file.records(), begin)
                yield from itertools.islice(records, max(0, first - begin), end - begin)

    @functools.cached_property
    def _scanned(self) -> list[_Scan]:
        """The number and the labels of the records of each file, of which damaged ones are named.

        The labels are read only if nothing else says the classes; otherwise there are none.
        """
        label = None if self.num_classes is not None else self.features.label
        scan = functools.partial(_scan, feature=label)
        what = "counting the records" if label is None else "reading the labels"
        with (
            concurrent.futures.ThreadPoolExecutor(_PARALLEL_FILES) as pool,
            tqdm.tqdm(
                total=len(self.files),
                desc=f"{what} of {self.origin}",
                unit=" files",
                disable=not is_terminal(sys.stderr),
                leave=False,
            ) as bar,
        ):
            found = []
            for each in pool.map(scan, self.files):
                found.append(each)
                bar.update()
        for file, each in zip(self.files, found, strict=True):
            if each.damage is not None:
                logging.warning(
                    f"{self.origin}: {printable(file.path)} is damaged ({each.damage}): only its "
                    f"first {each.size:,} records are read"
                )
        return found

    def _examples(self) -> Iterator[tuple[str, tf.train.Example]]:
        """Yields the names of examples, and the examples."""
        for file in self.files:
            with contextlib.suppress(tf.errors.DataLossError):
                for number, record in enumerate(file.records()):
                    if (example := _parse(record)) is not None:
                        yield f"record {number} of {file.path}", example


class RecordSource(Source):
    """The pictures of TFRecord files, in the order of the files.

    Args:
      files: The files.
      settings: --image_size, --image_channels and --crop.
    """

    def __init__(self, files: RecordFiles, settings: DataSettings):
        self.origin = files.origin
        self._files = files
        self._form = choose_form(files.origin, files.headers, settings)
        self.shape, self.dtype = self._form.shape, self._form.dtype
        self.square_side = default_square(files.headers[0].size if files.headers else None)[0]

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of records, for which all files are read once; see `RecordFiles`."""
        return self._files.begins[-1]

    @property
    def class_names(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """The names of the classes; without --num_classes, the labels of all records are read."""
        if self._files.features.label is None:
            return None
        if self._files.num_classes is not None:
            return tuple(map(str, range(self._files.num_classes)))
        labels = self._files.labels
        return None if labels is None else labels.class_names

    def fingerprint(self) -> dict[str, Any]:
        classes = [self._files.features.label, self._files.num_classes]
        return compute_fingerprint("", [file.path for file in self._files.files], classes)

    def identity(self) -> dict[str, Any]:
        return {
            "files": [
                (posixpath.basename(path), *properties) for path, *properties in self._files.files
            ],
            "features": self._files.features,
            "num_classes": self._files.num_classes,
            "form": dataclasses.asdict(self._form),
        }

    def items(self, first: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yields the index of each record, and the record."""
        return self._files.records(first)

    def read(self, item: tuple[int, bytes]) -> Example:
        index, record = item
        if (example := _parse(record)) is None:
            raise Unreadable("it is not a tf.train.Example")
        with naming(f"{self.origin}: {self.name(index)}"):
            array = record_features.decode(example, self._files.features, self._form)
        return Example(array, self._label(example, index))

    def name(self, index: int) -> str:
        return self._files.name(index)

    def resized(self, settings: DataSettings) -> RecordSource:
        """Returns the same pictures for another --image_size."""
        return RecordSource(self._files, settings)

    def _label(self, example: tf.train.Example, index: int) -> int:
        """Returns the number of the class of an example.

        Raises:
          UserError: If it is not a class of --num_classes.
        """
        files = self._files
        if files.features.label is None:
            return 0
        if files.num_classes is None:
            return 0 if files.labels is None else int(files.labels.numbers[index])
        label = record_features.label_of(example, files.features.label)
        if type(label) is not int or not 0 <= label < files.num_classes:
            raise UserError(
                f"{self.origin} has the label {shorten(str(label))} ({self.name(index)}), but its "
                f"classes are 0 ... {files.num_classes - 1}",
                "set --num_classes to the number of classes, or omit it to find the classes",
            )
        return label


def find_source(settings: DataSettings, flag: str = "--data_dir") -> RecordSource:
    """Finds the files of `flag`, --data_dir or --test_data_dir.

    Its value is a path, a folder, a pattern, `NAME@N` for NAME-00000-of-N and so on, or several of
    these, separated by commas.

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
    found = _finest(listing.regular_files(origin, paths), origin)
    if not found:
        raise UserError(
            f"{origin} matches no files",
            "give a folder, or a pattern in quotes, such as 'DIR/*.tfrecord'",
        )
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_FILES) as pool:
        files = list(pool.map(_open, found))
    others = [path for path, file in zip(found, files, strict=True) if file is None]
    if others and len(others) < len(found):
        more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
        logging.warning(
            f"{origin}: files without readable TFRecords are skipped: {printable(others[0])}{more}"
        )
    usable = [file for file in files if file is not None]
    return RecordSource(RecordFiles(origin, usable, settings), settings)


def _paths(part: str, origin: str) -> list[str]:
    """Returns the paths that one part of the flag stands for."""
    listing.check_path(origin, part)
    if tf.io.gfile.isdir(part):
        return [posixpath.join(part, name) for name in listing.list_files(origin, part)]
    if tf.io.gfile.exists(part):
        return [part]
    if found := _SHARDED.fullmatch(part):
        count = int(found[2])
        paths = [f"{found[1]}-{number:05}-of-{count:05}" for number in range(count)]
        if missing := [path for path in paths if not tf.io.gfile.exists(path)]:
            raise UserError(
                f"{origin} lacks {len(missing)} of {count} files, such as {missing[0]}",
                "add the files, or correct the number after @",
            )
        return paths
    return listing.glob_paths(origin, part)


def _finest(paths: list[str], origin: str) -> list[str]:
    """Returns the file of the largest pictures, if all are one dataset at several sizes."""
    found = [_LEVEL_OF_DETAIL.fullmatch(path) for path in paths]
    if len(paths) < 2 or None in found or len({match[1] for match in found if match}) > 1:
        return paths
    finest = max(paths)
    logging.info(f"note: {origin}: the same pictures at several sizes; reading {finest}")
    return [finest]


def _open(path: str) -> RecordFile | None:
    """Finds the size and the compression of a file; returns None if its beginning has no record.

    A file without any record is empty.

    Raises:
      tf.errors.OpError, OSError: If it cannot be read.
    """
    for compression in _COMPRESSIONS:
        file = RecordFile(path, *listing.size_and_time(path), compression)
        with contextlib.suppress(tf.errors.DataLossError):
            next(file.records(), None)
            return file
    return None


def _parse(record: bytes) -> tf.train.Example | None:
    """Returns the example of a record, or None if it is none."""
    try:
        return tf.train.Example.FromString(record)
    except google.protobuf.message.DecodeError:
        return None


def _scan(file: RecordFile, feature: str | None) -> _Scan:
    """Reads a file; the label of an example without this feature is None."""
    labels: list[Any] = []
    count, damage = 0, None
    try:
        for record in file.records():
            count += 1
            if feature is not None:
                example = _parse(record)
                found = example and record_features.label_of(example, feature)
                labels.append(_DAMAGED if example is None else found)
    except tf.errors.DataLossError as error:
        damage = reason(error)
    return _Scan(count, labels, damage)


def _as_array(labels: Sequence[Any]) -> np.ndarray:
    """Returns labels `[N]`, or rows of numbers `[N, K]`."""
    is_row = [isinstance(label, tuple) for label in labels]
    if not any(is_row):
        kinds = {type(label) for label in labels}
        return np.array(labels) if len(kinds) == 1 else np.array(labels, object)
    if len({len(label) if each else 0 for label, each in zip(labels, is_row, strict=True)}) > 1:
        raise UserError("labels of several lengths", "give each example one label")
    return np.array(labels)
