"""Pictures and labels in TFRecord files of tf.train.Example, also of those that others wrote.

TensorFlow reads the records, and compares each with its checksum. The iterator of TensorFlow 1 does
so in place of tf.data, which would start the runtime before the devices of the run are known.
"""

from __future__ import annotations

import bisect
import concurrent.futures
import contextlib
import copy
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
from ....errors import UserError, naming, printable, reason
from ....runtime.streams import is_terminal
from .. import listing
from ..encoded import Encoded, Example, Unreadable
from ..labels import number_labels
from ..pictures.forms import choose_form
from ..shapes import default_square
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

    def __init__(self, origin: str, files: Sequence[RecordFile], settings: DataSettings):
        self.origin = origin
        self._files = files
        first = list(itertools.islice(self._examples(), _INSPECTED))
        self._features = record_features.find_features([example for _, example in first], origin)
        found = (record_features.header_of(each, self._features, name) for name, each in first)
        self._headers = [header for header in found if header is not None]
        self._use_form(settings)

    def _use_form(self, settings: DataSettings) -> None:
        self._form = choose_form(self.origin, self._headers, settings)
        self.shape, self.dtype = self._form.shape, self._form.dtype
        self.square_side = default_square(self._headers[0].size if self._headers else None)[0]

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of records, for which all files are read once."""
        return self._scanned[0][-1]

    @functools.cached_property
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
            found = list(
                tqdm.tqdm(
                    scans,
                    total=len(self._files),
                    desc=f"{what} of {self.origin}",
                    unit=" files",
                    disable=not is_terminal(sys.stderr),
                    leave=False,
                )
            )
        for file, (size, _, damage) in zip(self._files, found, strict=True):
            if damage is not None:
                logging.warning(
                    f"{self.origin}: {printable(file.path)} is damaged ({damage}): only its "
                    f"first {size:,} records are read"
                )
        begins = list(itertools.accumulate((size for size, _, _ in found), initial=0))
        return begins, [label for _, labels, _ in found for label in labels]

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

    def _examples(self) -> Iterator[tuple[str, tf.train.Example]]:
        """Yields the names of examples, and the examples."""
        for file in self._files:
            with contextlib.suppress(tf.errors.DataLossError):
                for number, record in enumerate(file.records()):
                    if (example := _parse(record)) is not None:
                        yield f"record {number} of {file.path}", example

    def fingerprint(self) -> dict[str, Any]:
        return listing.fingerprint_of([file.path for file in self._files], [self._features.label])

    def identity(self) -> dict[str, Any]:
        return {
            "files": [(posixpath.basename(path), *others) for path, *others in self._files],
            "features": self._features,
            "form": dataclasses.asdict(self._form),
        }

    def items(self, first: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yields the index of each record, and the record."""
        begins = self._scanned[0]
        for begin, end, file in zip(begins, begins[1:], self._files, strict=False):
            if first < end:
                records = enumerate(file.records(), begin)
                yield from itertools.islice(records, max(0, first - begin), end - begin)

    def read(self, item: tuple[int, bytes]) -> Example:
        index, record = item
        if (example := _parse(record)) is None:
            raise Unreadable("it is not a tf.train.Example")
        with naming(f"{self.origin}: {self.name(index)}"):
            array = record_features.decode(example, self._features, self._form)
        return Example(array, 0 if self._classes is None else int(self._classes[0][index]))

    def name(self, index: int) -> str:
        """Returns the name of a record, which is counted from 0 in its file."""
        begins = self._scanned[0]
        number = min(bisect.bisect_right(begins, index), len(self._files)) - 1
        return f"record {index - begins[number]} of {self._files[number].path}"

    def resized(self, settings: DataSettings) -> RecordSource:
        """Returns the same pictures for another --image_size."""
        other = copy.copy(self)
        other._use_form(settings)
        return other


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
    if len(others) < len(found):
        listing.warn_of_skipped(origin, {"files without readable TFRecords are skipped": others})
    usable = [file for file in files if file is not None]
    return RecordSource(origin, usable, settings)


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
    return tf.io.gfile.glob(part)


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


def _scan(file: RecordFile, feature: str | None) -> tuple[int, list[Any], str | None]:
    """Returns the number of readable records, their labels, and the reason why there are no others.

    The label of an example without this feature is None; without a feature there are no labels.
    """
    labels: list[Any] = []
    count = 0
    try:
        for record in file.records():
            count += 1
            if feature is not None:
                example = _parse(record)
                found = example and record_features.label_of(example, feature)
                labels.append(_DAMAGED if example is None else found)
    except tf.errors.DataLossError as error:
        return count, labels, reason(error)
    return count, labels, None
