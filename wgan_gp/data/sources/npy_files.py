"""Opens .npy files and folders of them, without reading their examples."""

from __future__ import annotations

import bisect
import io
import os
import posixpath
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol

import numpy as np
import tensorflow as tf

from ...errors import UserError, reason
from .listing import local_path

CHUNK_BYTES = 2**24  # of the examples that are read at a time
REMEDY = "give a .npy, .npz or .csv file, or a folder of .npy files (docs/data.md)"
_PARALLEL_READS = 16


class Rows(Protocol):
    """Examples in a file or in memory, which are read by their indices.

    Attributes:
      shape: `[N, ...]`.
      dtype: The dtype of the examples.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def __getitem__(self, indices: Any) -> np.ndarray:
        """Returns the examples of a slice, or at an array of indices."""


def chunks(rows: Rows) -> Iterator[tuple[int, np.ndarray]]:
    """Yields all examples in order, in chunks: the index of the first, and `[B, ...]`."""
    size = max(1, int(np.prod(rows.shape[1:]))) * rows.dtype.itemsize
    step = max(1, CHUNK_BYTES // size)
    for first in range(0, rows.shape[0], step):
        yield first, np.asarray(rows[first : first + step])


def open_folder(path: str, flag: str) -> Rows:
    """Returns the rows of all .npy files of a folder, in the order of their names.

    Raises:
      UserError: If there are none, or they differ in shape or dtype.
    """
    names = sorted(name for name in tf.io.gfile.listdir(path) if name.endswith(".npy"))
    if not names:
        raise UserError(f"{flag} contains no .npy files", REMEDY)
    shards = [open_npy(posixpath.join(path, name), flag) for name in names]
    for name, shard in zip(names, shards, strict=True):
        if (shard.shape[1:], shard.dtype) != (shards[0].shape[1:], shards[0].dtype):
            raise UserError(
                f"{flag}: {name} has examples of shape {list(shard.shape[1:])} and dtype "
                f"{shard.dtype}, but {names[0]} of {list(shards[0].shape[1:])} and "
                f"{shards[0].dtype}",
                "give shards of one shape and dtype",
            )
    return _Shards(shards)


def open_npy(path: str, flag: str) -> Rows:
    """Returns the rows of a .npy file, which are not read yet.

    A remote file in Fortran order is read whole, because its examples are not ranges of the file.

    Raises:
      UserError: If it is not a complete .npy file of numbers.
    """
    local = local_path(path)
    if local is not None and not os.path.isfile(local):  # opening a pipe would wait
        raise UserError(f"{flag}: {posixpath.basename(path)} is not a file", REMEDY)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            head = io.BytesIO(file.read(2**16))
            length = file.size()
        version = np.lib.format.read_magic(head)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, is_fortran, dtype = read_header(head)
    except (ValueError, KeyError, EOFError) as error:
        raise unreadable(path, flag, error) from error
    if dtype.hasobject or not shape:
        raise UserError(
            f"{flag}: {posixpath.basename(path)} contains objects or a single number",
            "save an array of numbers with np.save(path, examples)",
        )
    begin = head.tell()
    if length < begin + int(np.prod(shape)) * dtype.itemsize:
        raise UserError(
            f"{flag}: {posixpath.basename(path)} is cut: {length} bytes", "write it again"
        )
    if 0 in shape:
        return np.empty(shape, dtype)
    order: Literal["C", "F"] = "F" if is_fortran else "C"
    if local is not None:
        return np.memmap(local, dtype, mode="r", offset=begin, shape=shape, order=order)
    if is_fortran:
        with tf.io.gfile.GFile(path, "rb") as file:
            return np.load(io.BytesIO(file.read()), allow_pickle=False)
    return _RemoteRows(path, begin, shape, dtype)


class _RemoteRows:
    """Rows of a .npy file in a storage that cannot be mapped; see `Rows`."""

    def __init__(self, path: str, begin: int, shape: tuple[int, ...], dtype: np.dtype):
        self.shape = shape
        self.dtype = dtype
        self._path = path
        self._begin = begin
        self._row_bytes = int(np.prod(shape[1:])) * dtype.itemsize

    def __getitem__(self, indices: Any) -> np.ndarray:
        if isinstance(indices, slice):
            first, last, _ = indices.indices(self.shape[0])
            return self._read(first, max(0, last - first))
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            parts = list(pool.map(lambda index: self._read(int(index), 1), indices))
        return np.concatenate(parts) if parts else np.empty([0, *self.shape[1:]], self.dtype)

    def _read(self, first: int, count: int) -> np.ndarray:
        with tf.io.gfile.GFile(self._path, "rb") as file:
            file.seek(self._begin + first * self._row_bytes)
            content = file.read(count * self._row_bytes)
        return np.frombuffer(content, self.dtype).reshape(count, *self.shape[1:])


class _Shards:
    """The rows of several files, one after the other; see `Rows`."""

    def __init__(self, shards: Sequence[Rows]):
        self._shards = shards
        self._ends = list(np.cumsum([shard.shape[0] for shard in shards]))
        self.shape = (int(self._ends[-1]), *shards[0].shape[1:])
        self.dtype = shards[0].dtype

    def __getitem__(self, indices: Any) -> np.ndarray:
        if isinstance(indices, slice):
            indices = np.arange(*indices.indices(self.shape[0]))
        indices = np.asarray(indices)
        found = np.empty([len(indices), *self.shape[1:]], self.dtype)
        owners = np.array([bisect.bisect_right(self._ends, index) for index in indices], int)
        for owner in np.unique(owners):
            begin = self._ends[owner - 1] if owner else 0
            places = owners == owner
            found[places] = self._shards[owner][indices[places] - begin]
        return found


def unreadable(path: str, flag: str, error: Exception) -> UserError:
    """Returns the error for a file that is damaged or has another format."""
    return UserError(
        f"{flag}: {posixpath.basename(path)} cannot be read ({reason(error)})",
        "write it with np.save, np.savez or as a table of numbers",
    )
