"""Builds stores: in shards, resumed after a kill, and never visible before they are complete."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import posixpath
import shutil
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from absl import logging

from ...errors import UserError, printable, reason, shorten
from ...run_directory.buckets import explain_bucket_error
from ...run_directory.files import fsync, local_path, write_atomic
from ...run_directory.lock import Lock
from ..sources.encoded import Encoded, decoded
from ..sources.listing import progress_bar, reading
from .store import (
    LABELS,
    MOST_NAMES,
    SHARD_BYTES,
    Record,
    Store,
    check_no_link,
    delete_store,
    key_of,
    open_shards,
    open_store,
    read_labels,
    read_record,
    shard_path,
    write_record,
)

INCOMPLETE = ".incomplete"
_RESERVED = 2**26  # bytes of a disk that a store leaves free
_MOST_NAMED = 20  # examples that are left out, in the warning


class UnwritableError(UserError):
    """A store cannot be begun: its folder cannot be written."""


def load(source: Encoded) -> Store:
    """Returns the examples of a source, decoded into memory.

    Raises:
      UserError: If no example can be read.
    """
    shards = list(_shards(source, Record.of(source), source.size))
    _, examples, labels = shards[0]
    return Store(shards[-1][0], examples, labels)


def build(source: Encoded, path: str) -> Store:
    """Returns the store of a source in a folder, which is built unless it is complete.

    On a local disk, the folder is named PATH.incomplete until it is complete; in a bucket,
    data.json says so. After a kill, the next call continues with the files that are complete.

    Args:
      source: The source.
      path: The folder, local or in a bucket.

    Raises:
      UnwritableError: If the store cannot be begun.
      UserError: If no example can be read, there is not enough space, or the folder has other
        files.
    """

    def write(folder: str, record: Record, lock: Lock) -> None:
        labels = read_labels(folder, record) if record.size else np.empty([0], np.int64)
        size = min(source.size, max(1, SHARD_BYTES // record.example_bytes))
        for advanced, examples, added in _shards(source, record, size, lock.keep):
            labels = np.concatenate([labels, added])
            _write_shard(folder, advanced, lock, examples, labels)

    # The classes and the size of records are found by reading all of them.
    def begin() -> tuple[Record, int]:
        return Record.of(source), source.size

    return _write_store(path, key_of(source), f"decoding {source.origin}", begin, write)


def copy(store: Store, path: str) -> Store:
    """Copies a store, in one sequential read, unless the copy is complete; see `build`."""
    whole = store.record
    empty = dataclasses.replace(whole, shards=(), read=0, unreadable=0, left_out=(), complete=False)

    def write(folder: str, record: Record, lock: Lock) -> None:
        for number in range(len(record.shards), len(whole.shards)):
            first, shards = record.size, whole.shards[: number + 1]
            is_last = len(shards) == len(whole.shards)
            record = whole if is_last else dataclasses.replace(record, shards=shards)
            with reading(f"--data_cache={store.path}", lambda text: store.path):
                examples = np.asarray(store.rows[first : record.size])
            _write_shard(folder, record, lock, examples, store.labels)

    what = f"copying {store.path}"
    return _write_store(path, whole.key, what, lambda: (empty, len(store)), write)


def _write_store(
    path: str,
    key: str,
    what: str,
    begin: Callable[[], tuple[Record, int]],
    write: Callable[[str, Record, Lock], None],
) -> Store:
    """Returns a store, which is written unless it is complete, while no other process does so.

    A damaged one is written again.

    Args:
      path: The folder of the store, to which the written folder is moved at the end.
      key: The key of the store.
      what: What is done, for messages.
      begin: Returns the state at the beginning, and the number of examples.
      write: Writes the files of a folder from a state on, under a lock.
    """
    folder = path if local_path(path) is None else path + INCOMPLETE
    root, name = posixpath.split(path)
    # A prefix of a name in a bucket is like a folder, so the path does not begin the name.
    lock = Lock(posixpath.join(root, f"lock-{name}"), "--data_cache")
    with contextlib.ExitStack() as stack:
        with _writing(UnwritableError, path, "give another --data_cache"):
            with contextlib.suppress(UserError):  # damaged
                if complete_record(path, key):
                    return open_store(path)
            check_no_link(path)
            tf.io.gfile.makedirs(root or ".")
            lock.wait(f"building {path}")
            stack.callback(lock.release)
            try:
                if complete_record(path, key):  # meanwhile
                    return open_store(path)
            except UserError as error:
                logging.warning(f"{error.what}: it is built again")
            if folder != path:
                delete_store(path)
            record, size = begin()
            record = _continue(folder, record)
            _announce(what, (size - record.size) * record.example_bytes, path)
            tf.io.gfile.makedirs(folder)
        remedy = (
            "free space and start again, which continues with what is complete; or give another "
            "--data_cache"
        )
        with _writing(UserError, path, remedy):
            write(folder, record, lock)
            if folder != path:
                # Unlike TensorFlow, this replaces a folder if it is still empty.
                os.rename(local_path(folder) or folder, local_path(path) or path)
                fsync(root or ".")
    return open_store(path)


def complete_record(path: str, key: str) -> Record | None:
    """Returns the record of a store, or None if it is not a complete one of this key."""
    record = read_record(path)
    return record if record is not None and record.complete and record.key == key else None


@contextlib.contextmanager
def _writing(kind: type[UserError], path: str, remedy: str) -> Iterator[None]:
    """Turns errors of the file system into one of this kind."""
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        if explained := explain_bucket_error(error, path, "written"):
            raise kind(explained.what, explained.remedy) from error
        raise kind(f"{path} cannot be written ({reason(error)})", remedy) from error


def _announce(what: str, needed: int, path: str) -> None:
    """Announces the size of a store, in bytes, that is going to be written.

    Raises:
      UserError: If the disk has too little space.
    """
    local, free = local_path(path), ""
    if local is not None:
        space = shutil.disk_usage(posixpath.dirname(local) or ".").free
        if needed > space - _RESERVED:
            raise UserError(
                f"{what} needs {size_text(needed)} in {path}, where {size_text(space)} are free",
                "free space, or give --data_cache a folder on another disk, or off for examples "
                "that fit in memory",
            )
        free = f", {size_text(space)} free"
    logging.info(f"{what}: {size_text(needed)} in {path}{free}")


def _continue(folder: str, record: Record) -> Record:
    """Returns the state of an unfinished folder; deletes one that cannot be continued."""
    check_no_link(folder)
    if not tf.io.gfile.isdir(folder):
        return record
    with contextlib.suppress(UserError):  # damaged
        found = read_record(folder)
        if found is not None and found.key == record.key:
            open_shards(folder, found)
            read_labels(folder, found)
            logging.info(f"{folder}: continuing after {found.read:,} examples")
            return dataclasses.replace(found, complete=False)
    delete_store(folder)
    return record


def size_text(size: float) -> str:
    """Returns a size in bytes as people write it, such as "2.5 GB"."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def _shards(
    source: Encoded, record: Record, size: int, keep: Callable[[], None] = lambda: None
) -> Iterator[tuple[Record, np.ndarray, np.ndarray]]:
    """Yields the examples and labels of each file, and the record with it.

    The last one may have no examples. The next one overwrites the examples.

    Args:
      source: The source.
      record: The state from which it is read.
      size: The number of examples in a file.
      keep: Called while examples are read, at least for each part.

    Raises:
      UserError: If no example can be read.
    """
    examples, labels = np.empty([size, *record.shape], record.dtype), np.empty([size], np.int64)
    shards, count, read, lost = record.shards, 0, record.read, record.unreadable
    left_out, reasons = list(record.left_out), dict[str, str]()  # of those since the last kill

    def finished(*, complete: bool) -> Record:
        return dataclasses.replace(
            record,
            shards=(*shards, count) if count else shards,
            read=read,
            unreadable=lost,
            left_out=tuple(left_out[:MOST_NAMES]),
            complete=complete,
        )

    bar = progress_bar(f"reading {source.origin}", "examples", source.size, initial=read)
    with bar, contextlib.closing(decoded(source, read)) as parts:
        while True:
            with reading(source.origin):  # errors of the file system are those of the source
                part = next(parts, None)
            if part is None:
                break
            keep()
            bar.update(len(part.labels))
            for place, name in enumerate(part.names):
                read += 1
                if place in part.unreadable:
                    lost += 1
                    left_out.append(name)
                    reasons[name] = f" ({shorten(part.unreadable[place])})"
                    continue
                examples[count], labels[count] = part.examples[place], part.labels[place]
                count += 1
                if count == size:
                    yield (advanced := finished(complete=False)), examples, labels
                    shards, count = advanced.shards, 0
    named = [f"{printable(name)}{reasons.get(name, '')}" for name in left_out[:_MOST_NAMED]]
    if read == lost:
        raise UserError(
            f"{source.origin} has no example that can be read: {', '.join(named) or 'it is empty'}",
            "give readable files",
        )
    if lost:
        others = f" and {lost - len(named)} more" if lost > len(named) else ""
        logging.warning(
            f"{source.origin}: {lost} of {read} examples cannot be read and "
            f"{'is' if lost == 1 else 'are'} left out: {', '.join(named)}{others}"
        )
    yield finished(complete=True), examples[:count], labels[:count]


def _write_shard(
    folder: str, record: Record, lock: Lock, examples: np.ndarray, labels: np.ndarray
) -> None:
    """Writes the last file of a record, if there are examples for it, and then the record."""
    lock.check()
    if len(examples):
        write_atomic(shard_path(folder, len(record.shards) - 1), _npy(examples))
        if record.class_names is not None:
            write_atomic(posixpath.join(folder, LABELS), _npy(labels))
    write_record(folder, record)


def _npy(array: np.ndarray) -> Iterator[bytes]:
    """Yields the content of a .npy file in two parts, which need less memory than a copy."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    yield header.getvalue()
    yield array.tobytes()
