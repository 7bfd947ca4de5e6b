"""A store: a folder of decoded examples, which are read by their indices.

    examples-00000.npy, ...   the examples, at most SHARD_BYTES in each file
    labels.npy                `[N]` int64, if there are classes
    data.json                 the record, with a checksum

`numpy.load` opens the arrays, and --dataset=array trains on the folder.
"""

from __future__ import annotations

import dataclasses
import math
import os
import posixpath
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import UserError
from ...run_directory.files import local_path
from ...run_directory.json_files import digest, read_dataclass, write_object
from ..source import NO_LABEL, Span
from ..sources.encoded import Encoded
from ..sources.npy import Rows, Shards, open_npy, read_header

SHARD_BYTES = 2**25  # two files are in memory at a time, with TensorFlow in less than 1 GB
LABELS = "labels.npy"
RECORD = "data.json"
MOST_NAMES = 1000  # of examples that are left out, in data.json
_PARALLEL = 16  # files that are opened at a time, which matters in a bucket
_OWN_FILE = re.compile(r"(examples-\d{5}\.npy|labels\.npy|data\.json)(\.new)?")


@dataclasses.dataclass(frozen=True)
class Record:
    """The content of data.json.

    Attributes:
      key: The digest of the source, the shape and the dtype.
      origin: The flag of the source and its value.
      shape, dtype: Those of an example.
      class_names: The names of the classes, or None.
      shards: The number of examples in each file.
      read: The number of examples of the source that were read.
      unreadable: The number of these that are left out.
      left_out: The names of the first MOST_NAMES of them.
      complete: Whether all examples of the source were read.
    """

    key: str
    origin: str
    shape: tuple[int, ...]
    dtype: str
    class_names: tuple[str, ...] | None
    shards: tuple[int, ...] = ()
    read: int = 0
    unreadable: int = 0
    left_out: tuple[str, ...] = ()
    complete: bool = False

    @classmethod
    def of(cls, source: Encoded) -> Record:
        """Returns the record of a source of which no example was read."""
        shape, dtype = tuple(source.shape), source.dtype.str
        return cls(key_of(source), source.origin, shape, dtype, source.class_names)

    @property
    def size(self) -> int:
        """The number of examples."""
        return sum(self.shards)

    @property
    def example_bytes(self) -> int:
        """The size of an example."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def key_of(source: Encoded) -> str:
    """Returns the key of a source, which needs neither its size nor its classes."""
    form = {"shape": list(source.shape), "dtype": source.dtype.str}
    return digest({"identity": source.identity(), **form})


@dataclasses.dataclass(frozen=True)
class Store:
    """Decoded examples and their labels, in memory or in the files of a folder.

    Attributes:
      record: The properties of the examples.
      rows: `[N, *shape]`.
      labels: `[N]` int64; NO_LABEL for examples of unknown class, 0 without classes.
      path: The folder; None for examples in memory.
      keep: An object that lives as long as the store, such as a temporary folder.
    """

    record: Record
    rows: Rows
    labels: np.ndarray
    path: str | None = None
    keep: Any = None

    def __len__(self) -> int:
        return self.record.size

    def __getitem__(self, indices: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns the examples and the labels of a slice, or at an array of indices."""
        return np.asarray(self.rows[indices]), self.labels[indices]

    def files(self) -> list[Span]:
        """Returns the files of the examples, with the place of the first one in each."""

        def find(number: int) -> Span:
            path = shard_path(self.path or "", number)
            with tf.io.gfile.GFile(path, "rb") as file:
                return Span(path, read_header(file).begin, self.record.shards[number])

        with ThreadPoolExecutor(_PARALLEL) as pool:
            return list(pool.map(find, range(len(self.record.shards))))


def shard_path(folder: str, number: int) -> str:
    """Returns the path of a file of examples."""
    return posixpath.join(folder, f"examples-{number:05}.npy")


def read_record(folder: str) -> Record | None:
    """Returns the record of a store, complete or not; None if there is none.

    Raises:
      UserError: If it is damaged.
      tf.errors.OpError, OSError: If it cannot be read.
    """
    return read_dataclass(Record, posixpath.join(folder, RECORD), _remedy(folder))


def write_record(folder: str, record: Record) -> None:
    """Writes data.json."""
    write_object(posixpath.join(folder, RECORD), record)


def open_store(path: str) -> Store:
    """Opens a complete store, without reading its examples.

    Raises:
      UserError: If it is incomplete or damaged, or a file is missing or has another size.
      tf.errors.OpError, OSError: If it cannot be read.
    """
    record = read_record(path)
    if record is None or not record.complete:
        raise UserError(f"{path} is not a complete store", "build it again")
    return Store(record, open_shards(path, record), read_labels(path, record), path)


def open_shards(folder: str, record: Record) -> Rows:
    """Opens the files of examples. See `open_store` for errors."""
    paths = [shard_path(folder, number) for number in range(len(record.shards))]
    with ThreadPoolExecutor(_PARALLEL) as pool:
        shards = list(pool.map(lambda path: open_npy(path, folder), paths))
    for shard, count in zip(shards, record.shards, strict=True):
        if shard.shape != (count, *record.shape) or shard.dtype.str != record.dtype:
            raise UserError(
                f"{folder}: a file of examples has other examples than {RECORD} says",
                _remedy(folder),
            )
    return Shards(shards)


def read_labels(folder: str, record: Record) -> np.ndarray:
    """Returns the labels of the examples; those of a store that is built may be more."""
    if record.class_names is None:
        return np.zeros([record.size], np.int64)
    labels = np.asarray(open_npy(posixpath.join(folder, LABELS), folder)[:])
    if (
        labels.ndim != 1
        or labels.dtype != np.int64
        or len(labels) < record.size
        or (len(labels) and not NO_LABEL <= labels.min() <= labels.max() < len(record.class_names))
    ):
        raise UserError(f"{folder}: {LABELS} has other labels than {RECORD} says", _remedy(folder))
    return labels[: record.size]


def _remedy(folder: str) -> str:
    return f"delete {folder}, which is built again"


def check_no_link(folder: str) -> None:
    """Raises UserError if a folder is a symbolic link, behind which nothing must be changed."""
    local = local_path(folder)
    if local is not None and os.path.islink(local):
        raise UserError(f"{folder} is a link to another folder", "delete the link")


def delete_store(folder: str) -> None:
    """Deletes the folder of a store, complete or not, if it exists.

    Raises:
      UserError: If it is a link, or no folder, or other files are in it. Nothing is deleted then.
      tf.errors.OpError, OSError: If it cannot be deleted.
    """
    check_no_link(folder)
    if not tf.io.gfile.exists(folder):
        return
    names = sorted(tf.io.gfile.listdir(folder))  # data.json first
    others = [name for name in names if not _OWN_FILE.fullmatch(name)]
    if others:
        raise UserError(
            f"{folder} also contains other files, such as {others[0]}", "move or delete them"
        )
    for name in names:
        tf.io.gfile.remove(posixpath.join(folder, name))
    if tf.io.gfile.isdir(folder):
        tf.io.gfile.rmtree(folder)
