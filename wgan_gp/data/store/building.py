"""Builds stores: in shards, resumed after a kill, and never visible before they are complete."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import posixpath
import shutil
import sys
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
import tqdm
from absl import logging

from ...errors import UserError, printable, reason, shorten
from ...run_directory.buckets import explain_bucket_error
from ...run_directory.files import fsync, local_path, write_atomic
from ...run_directory.lock import Lock
from ...runtime.streams import is_terminal
from ..sources.encoded import Encoded
from ..sources.listing import reading
from .decoding import Part, decoded
from .store import (
    LABELS,
    MOST_NAMES,
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
_RESERVED = 2**26  # bytes of a disk that a store leaves free
_MOST_NAMED = 20  # examples that are left out, in the warning


class UnwritableError(UserError):
    """A store cannot be begun: its folder cannot be written."""


class NoSpaceError(UserError):
    """A disk has too little space for a store."""


def load(source: Encoded) -> Store:
    """Returns the examples of a source, decoded into memory.

    Raises:
      UserError: If no example can be read.
    """
    shards = list(_shards(source, Record.of(source), source.size))
    _, examples, labels = shards[0]
    return Store(shards[-1][0], examples, labels)


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

    def write(folder: str, record: Record, lock: Lock) -> None:
        labels = read_labels(folder, record) if record.size else np.empty([0], np.int64)
        size = min(source.size, max(1, SHARD_BYTES // record.example_bytes))
        for advanced, examples, added in _shards(source, record, size, lock.keep):
            labels = np.concatenate([labels, added])
            _write_shard(folder, advanced, lock, examples, labels)

    _write_store(Record.of(source), path, f"decoding {source.origin}", source.size, write)
    return open_store(path)


def copy(store: Store, path: str) -> Store:
    """Copies a store, in one sequential read, unless the copy is complete; see `build`."""
    whole = store.record
    begin = dataclasses.replace(whole, shards=(), read=0, unreadable=0, left_out=(), complete=False)

    def write(folder: str, record: Record, lock: Lock) -> None:
        for number in range(len(record.shards), len(whole.shards)):
            first, shards = record.size, whole.shards[: number + 1]
            is_last = len(shards) == len(whole.shards)
            record = whole if is_last else dataclasses.replace(record, shards=shards)
            with reading(f"--data_cache={store.path}", lambda text: store.path):
                examples = np.asarray(store.rows[first : record.size])
            _write_shard(folder, record, lock, examples, store.labels)

    _write_store(begin, path, f"copying {store.path}", len(store), write)
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


def _write_store(
    record: Record,
    path: str,
    what: str,
    size: int,
    write: Callable[[str, Record, Lock], None],
) -> None:
    """Writes a store, unless it is complete, while no other process does so.

    Args:
      record: The state at the beginning.
      path: The folder of the store, to which the written folder is moved at the end.
      what: What is done, for messages.
      size: The number of examples.
      write: Writes the files of a folder from a state on, under a lock.
    """
    folder = path if local_path(path) is None else path + INCOMPLETE
    root, name = posixpath.split(path)
    # A prefix of a name in a bucket is like a folder, so the path does not begin the name.
    lock = Lock(posixpath.join(root, f"lock-{name}"), "--data_cache")
    with contextlib.ExitStack() as stack:
        with _writing(UnwritableError, path, "give another --data_cache"):
            if is_built(path, record.key):
                return
            check_no_link(path)
            if tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path):
                raise UserError(f"{path} is a file", "give a new folder")
            tf.io.gfile.makedirs(root or ".")
            lock.wait(f"building {path}")
            stack.callback(lock.release)
            if is_built(path, record.key):  # meanwhile
                return
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
      NoSpaceError: If the disk has too little space.
    """
    local, free = local_path(path), ""
    if local is not None:
        space = shutil.disk_usage(posixpath.dirname(local) or ".").free
        if needed > space - _RESERVED:
            raise NoSpaceError(
                f"{what} needs {size_text(needed)} in {path}, where {size_text(space)} are free",
                "free space, or give --data_cache a folder on another disk",
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
    count, read, unreadable, left_out = 0, record.read, record.unreadable, list(record.left_out)
    reasons: dict[str, str] = {}  # by the names of the first examples that are left out

    def finished(*, complete: bool) -> Record:
        return dataclasses.replace(
            record,
            shards=(*record.shards, count) if count else record.shards,
            read=read,
            unreadable=unreadable,
            left_out=tuple(left_out[:MOST_NAMES]),
            complete=complete,
        )

    bar = tqdm.tqdm(
        total=source.size,
        initial=read,
        desc=f"reading {source.origin}",
        unit=" examples",
        disable=not is_terminal(sys.stderr),
        leave=False,
    )
    with bar, contextlib.closing(decoded(source, read)) as parts:
        while (part := _next(parts, source.origin)) is not None:
            keep()
            bar.update(len(part.labels))
            places = np.setdiff1d(np.arange(len(part.labels)), list(part.unreadable))
            begin = 0
            while begin < len(part.labels):
                taken = places[places >= begin][: size - count]
                examples[count : count + len(taken)] = part.examples[taken]
                labels[count : count + len(taken)] = part.labels[taken]
                count += len(taken)
                end = int(taken[-1]) + 1 if count == size else len(part.labels)
                lost = [place for place in part.unreadable if begin <= place < end]
                reasons |= {part.names[place]: part.unreadable[place] for place in lost}
                left_out += [part.names[place] for place in lost]
                read, unreadable, begin = read + end - begin, unreadable + len(lost), end
                if count == size:
                    record = finished(complete=False)
                    yield record, examples, labels
                    count = 0
    if read == unreadable:
        why = next((f"{printable(name)}: {shorten(why)}" for name, why in reasons.items()), None)
        raise UserError(
            f"{source.origin} has no example that can be read ({why or 'there are none'})",
            "give readable files",
        )
    _warn_of(source.origin, finished(complete=True), reasons)
    yield finished(complete=True), examples[:count], labels[:count]


def _next(parts: Iterator[Part], origin: str) -> Part | None:
    """Returns the next examples; errors of the file system are those of the source."""
    with reading(origin):
        return next(parts, None)


def _warn_of(origin: str, record: Record, reasons: dict[str, str]) -> None:
    """Names the examples that are left out on stderr, with each reason once."""
    if not record.unreadable:
        return
    names, said = [], set()
    for name in record.left_out[:_MOST_NAMED]:
        why = reasons.get(name)
        is_new = why is not None and why not in said
        names.append(f"{printable(name)} ({shorten(why or '')})" if is_new else printable(name))
        said.add(why)
    others = record.unreadable - len(names)
    logging.warning(
        f"{origin}: {record.unreadable} of {record.read} examples cannot be read and "
        f"{'is' if record.unreadable == 1 else 'are'} left out: {', '.join(names)}"
        + (f" and {others} more" if others else "")
    )


def _write_shard(
    folder: str, record: Record, lock: Lock, examples: np.ndarray, labels: np.ndarray
) -> None:
    """Writes the last file of a record, if there are examples for it, and then the record."""
    lock.check()
    if len(examples):
        write_atomic(shard_path(folder, len(record.shards) - 1), _npy(examples))
        if record.class_names is not None:
            write_atomic(posixpath.join(folder, LABELS), _npy(labels))
    record.write(folder)


def _npy(array: np.ndarray) -> Iterator[bytes]:
    """Yields the content of a .npy file in two parts, which need less memory than a copy."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    yield header.getvalue()
    yield array.tobytes()
