"""Builds stores: in shards, resumed after a kill, and never visible before they are complete."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import posixpath
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import tensorflow as tf
from absl import logging

from ...errors import UserError, reason
from ...run_directory.buckets import explain_bucket_error
from ...run_directory.files import fsync, local_path, write_atomic
from ...run_directory.lock import Lock
from ..sources.encoded import Encoded
from .reading import Reading
from .store import (
    LABELS,
    SHARD_BYTES,
    Record,
    Store,
    check_no_link,
    delete_store,
    open_shards,
    open_store,
    read_labels,
    read_record,
    shard_path,
)

INCOMPLETE = ".incomplete"
_PART_BYTES = 2**24  # that are written at a time
_RESERVED = 2**26  # bytes of a disk that a store leaves free


class UnwritableError(UserError):
    """A store cannot be begun: its folder cannot be written."""


class NoSpaceError(UserError):
    """A disk has too little space for a store."""


def load(source: Encoded) -> Store:
    """Returns the examples of a source, decoded into memory.

    Raises:
      UserError: If no example can be read.
    """
    record = Record.of(source)
    examples = np.empty([source.size, *source.shape], source.dtype)
    labels = np.empty([source.size], np.int64)
    with Reading(source, record) as reading:
        count = len(reading.read_into(examples, labels))
    reading.warn()
    record = dataclasses.replace(_advanced(record, reading, count), complete=True)
    return Store(record, examples[:count], labels[:count])


def build(source: Encoded, path: str) -> Store:
    """Builds the store of a source in a folder, unless it is complete.

    On a local disk, the folder is named PATH.incomplete until it is complete; in a bucket,
    data.json says so. After a kill, the next call continues with the files that are complete.

    Args:
      source: The source.
      path: The folder, local or in a bucket.

    Raises:
      UnwritableError, NoSpaceError: If the store cannot be begun.
      UserError: If no example can be read, the disk becomes full, or the folder has other files.
    """
    what = f"decoding {source.origin}"
    with _folder_for(Record.of(source), path, what, source.size) as found:
        if found is not None:
            _write_examples(source, *found)
    return open_store(path)


def copy(store: Store, path: str) -> Store:
    """Copies a store, in one sequential read, unless the copy is complete; see `build`."""
    begin = dataclasses.replace(
        store.record, shards=(), read=0, unreadable=0, left_out=(), complete=False
    )
    with _folder_for(begin, path, f"copying {store.path}", len(store)) as found:
        if found is not None:
            _write_copy(store, *found)
    return open_store(path)


def is_built(path: str, key: str) -> bool:
    """Returns True if a folder is the complete store of a key; False if there is no such folder.

    Raises:
      UserError: If the folder is another store, is damaged or has other files.
      tf.errors.OpError, OSError: If it cannot be read.
    """
    if not tf.io.gfile.isdir(path) or not tf.io.gfile.listdir(path):
        return False
    record = read_record(path)
    if local_path(path) is None:
        if record is None or not record.complete:
            return False
    elif record is None:
        raise UserError(f"{path} contains other files", "give a new folder")
    found = open_store(path).record
    if found.key != key:
        raise UserError(f"{path} already has the examples of {found.origin}", "give a new folder")
    return True


def _announce(what: str, needed: int, path: str) -> None:
    """Announces the size of a store that is going to be written.

    Args:
      what: What is done.
      needed: The size in bytes.
      path: The folder of the store.

    Raises:
      NoSpaceError: If the disk has too little space.
    """
    local = local_path(path)
    if local is None:
        logging.info(f"{what}: {size_text(needed)} in {path}")
        return
    free = shutil.disk_usage(posixpath.dirname(local) or ".").free
    if needed > free - _RESERVED:
        raise NoSpaceError(
            f"{what} needs {size_text(needed)} in {path}, where {size_text(free)} are free",
            "free space, or give --data_cache a folder on another disk",
        )
    logging.info(f"{what}: {size_text(needed)} in {path}, {size_text(free)} free")


@contextlib.contextmanager
def _folder_for(
    record: Record, path: str, what: str, size: int
) -> Iterator[tuple[str, Record, Lock] | None]:
    """Yields the folder, the state to continue from and the lock; None if the store is complete.

    Args:
      record: The state at the beginning.
      path: The folder of the store, to which the written folder is moved at the end.
      what: What is done, for messages.
      size: The number of examples.
    """
    folder = path if local_path(path) is None else path + INCOMPLETE
    with contextlib.ExitStack() as stack:
        with _beginning(path):
            if is_built(path, record.key):
                yield None
                return
            check_no_link(path)
            if tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path):
                raise UserError(f"{path} is a file", "give a new folder")
            tf.io.gfile.makedirs(posixpath.dirname(path) or ".")
            # A prefix of a name in a bucket is like a folder, so the path does not begin the name.
            root, name = posixpath.split(path)
            lock = Lock(posixpath.join(root, f"lock-{name}"), "--data_cache")
            lock.wait(f"building {path}")
            stack.callback(lock.release)
            if is_built(path, record.key):  # meanwhile
                yield None
                return
            record = _continue(folder, record)
        _announce(what, (size - record.size) * record.example_bytes, path)
        with _beginning(path):
            tf.io.gfile.makedirs(folder)
        with _writing(path):
            yield folder, record, lock
            if folder != path:
                # Unlike TensorFlow, this replaces a folder if it is still empty.
                with _failing_as_write():
                    os.rename(local_path(folder) or folder, local_path(path) or path)
                    fsync(posixpath.dirname(path) or ".")


@contextlib.contextmanager
def _beginning(path: str) -> Iterator[None]:
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        explained = explain_bucket_error(error, path, "written")
        what, remedy = (
            (explained.what, explained.remedy)
            if explained
            else (f"{path} cannot be written ({reason(error)})", "give another --data_cache")
        )
        raise UnwritableError(what, remedy) from error


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except _WriteError as failed:
        error = failed.error
        if explained := explain_bucket_error(error, path, "written"):
            raise explained from error
        raise UserError(
            f"{path} cannot be written ({reason(error)})",
            "free space and start again, which continues with what is complete; or give another "
            "--data_cache",
        ) from error


class _WriteError(Exception):
    """An error of the file system in writing, which is not one in reading the source."""

    def __init__(self, error: Exception):
        super().__init__(str(error))
        self.error = error


def _continue(folder: str, record: Record) -> Record:
    """Returns the state of an unfinished folder; deletes one that cannot be continued."""
    check_no_link(folder)
    if not tf.io.gfile.isdir(folder):
        return record
    try:
        found = read_record(folder)
        if found is not None and found.key == record.key:
            open_shards(folder, found)
            read_labels(folder, found)
            logging.info(f"{folder}: continuing after {found.read:,} examples")
            return dataclasses.replace(found, complete=False)
    except UserError:
        pass  # damaged
    delete_store(folder)
    return record


def size_text(size: float) -> str:
    """Returns a size in bytes as people write it, such as "2.5 GB"."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def _advanced(record: Record, reading: Reading, *counts: int) -> Record:
    """Returns the record of what was read; `counts` are the numbers of examples in new files."""
    return dataclasses.replace(
        record,
        shards=(*record.shards, *counts),
        read=reading.read,
        unreadable=reading.unreadable,
        left_out=tuple(reading.left_out),
    )


def _write_examples(source: Encoded, folder: str, record: Record, lock: Lock) -> None:
    labels = read_labels(folder, record) if record.size else np.empty([0], np.int64)
    # A thread writes a shard while the next one is decoded.
    with Reading(source, record) as reading, ThreadPoolExecutor(1) as writer:
        written: Future | None = None
        for examples, added in _shards_of(reading, record, source.size):
            if written is not None:
                written.result()
            record = _advanced(record, reading, len(examples))
            labels = np.concatenate([labels, added])
            written = writer.submit(_write_shard, folder, record, lock, examples, labels)
        if written is not None:
            written.result()
    reading.warn()
    with _failing_as_write():
        dataclasses.replace(_advanced(record, reading), complete=True).write(folder)


def _shards_of(
    reading: Reading, record: Record, most: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the examples and the labels of each file."""
    size = min(most, max(1, SHARD_BYTES // record.example_bytes))
    while True:
        examples = np.empty([size, *record.shape], record.dtype)
        labels = np.empty([size], np.int64)
        count = len(reading.read_into(examples, labels))
        if not count:
            return
        yield examples[:count], labels[:count]


def _write_copy(store: Store, folder: str, record: Record, lock: Lock) -> None:
    first = record.size
    for count in store.record.shards[len(record.shards) :]:
        record = dataclasses.replace(record, shards=(*record.shards, count))
        examples = np.asarray(store.rows[first : first + count])
        first += count
        _write_shard(folder, record, lock, examples, store.labels)
    with _failing_as_write():
        store.record.write(folder)


def _write_shard(
    folder: str, record: Record, lock: Lock, examples: np.ndarray, labels: np.ndarray
) -> None:
    """Writes the last file of a record, and then the record."""
    with _failing_as_write():
        lock.keep()
        write_atomic(shard_path(folder, len(record.shards) - 1), _npy(examples))
        if record.class_names is not None:
            write_atomic(posixpath.join(folder, LABELS), _npy(labels))
        record.write(folder)


@contextlib.contextmanager
def _failing_as_write() -> Iterator[None]:
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        raise _WriteError(error) from error


def _npy(array: np.ndarray) -> Iterator[bytes]:
    """Yields the content of a .npy file in parts, which need less memory than a copy."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    yield header.getvalue()
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for begin in range(0, len(content), _PART_BYTES):
        yield content[begin : begin + _PART_BYTES].tobytes()
