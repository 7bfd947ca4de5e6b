"""Examples in .npy files, which are read at their places: a file is never mapped into memory.

A process that reads a mapped file dies (SIGBUS) when another program cuts the file.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import os
import posixpath
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from ...errors import UserError, reason
from .listing import local_path

CHUNK_BYTES = 2**24  # of the examples that are read at a time
REMEDY = "give a .npy, .npz, .h5, .mat or .csv file, or a folder of arrays (docs/data.md)"
_PARALLEL_READS = 16  # of a bucket
_ALIGNMENT = 64  # bytes
_READ_HEADER: dict[tuple[int, int], Callable] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


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


class Header(NamedTuple):
    """The header of an array in the .npy format.

    Attributes:
      shape, dtype: Those of the array.
      is_fortran: Whether the first axis varies fastest.
      begin: The place of the first number.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    is_fortran: bool
    begin: int

    @property
    def bytes(self) -> int:
        """The size of the array, of any size that a header may declare."""
        return math.prod(self.shape) * self.dtype.itemsize


def chunks(rows: Rows) -> Iterator[tuple[int, np.ndarray]]:
    """Yields all examples in order, in chunks: the index of the first, and `[B, ...]`."""
    size = max(1, math.prod(rows.shape[1:])) * rows.dtype.itemsize
    step = max(1, CHUNK_BYTES // size)
    for first in range(0, rows.shape[0], step):
        yield first, np.asarray(rows[first : first + step])


def read_header(file: Any) -> Header:
    """Reads a header at the beginning of a file.

    Raises:
      ValueError: If it is none, or declares no array of numbers or texts. A damaged header raises
        other exceptions, too.
    """
    version = np.lib.format.read_magic(file)
    if version == (3, 0):
        raise ValueError("the names of its fields need Unicode; rename them")
    if version not in _READ_HEADER:
        raise ValueError(f"version {version} of the format is not supported")
    shape, is_fortran, dtype = _READ_HEADER[version](file)
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"its shape is {shape}")
    if dtype.hasobject:
        raise ValueError("it contains Python objects, which could run programs")
    return Header(shape, dtype, is_fortran, file.tell())


def open_npy(path: str, origin: str) -> Rows:
    """Returns the rows of a .npy file, which are not read yet.

    A file in Fortran order is read whole, because its examples are not ranges of the file.

    Raises:
      UserError: If it is not a complete .npy file, or has to be read whole and is larger than the
        memory of this machine.
    """
    local = local_path(path)
    if local is not None and not os.path.isfile(local):  # opening a pipe would wait
        raise UserError(f"{naming_file(path, origin)} is not a file", REMEDY)
    with reporting_damage(path, origin), tf.io.gfile.GFile(path, "rb") as file:
        header = read_header(file)
        length = file.size()
        if header.is_fortran and length >= header.begin + header.bytes:
            check_memory(header.bytes, naming_file(path, origin))
            return read_array(file, header)
    if not header.shape:
        raise UserError(f"{naming_file(path, origin)} contains a single number", REMEDY)
    if length < header.begin + header.bytes:
        raise UserError(
            f"{naming_file(path, origin)} is cut: it has {length} bytes in place of "
            f"{header.begin + header.bytes}",
            "write it again",
        )
    return NpyRows(path, header, origin)


class NpyRows:
    """The rows of a complete .npy file; see `Rows`.

    Each call opens the file, so that thousands of files need no descriptors, and checks that it is
    the same as at the beginning. Calls for many examples are therefore the fastest.

    Args:
      path: The file.
      header: Its header.
      origin: The flag and its value for messages.
    """

    def __init__(self, path: str, header: Header, origin: str):
        self.shape, self.dtype = header.shape, header.dtype
        self._path, self._header, self._origin = path, header, origin
        self._row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        with self._open() as file:
            self._stamp = _stamp(file)

    def __getitem__(self, indices: Any) -> np.ndarray:
        if not isinstance(indices, slice):
            rows = _empty((len(indices), *self.shape[1:]), self.dtype)
            self.read_into(rows, np.arange(len(indices)), np.asarray(indices))
            return rows
        first, last, _ = indices.indices(self.shape[0])
        rows = _empty((max(0, last - first), *self.shape[1:]), self.dtype)
        with self._unchanged() as file:
            self._fill(file, _bytes_of(rows), first * self._row_bytes)
        return rows

    def read_into(self, rows: np.ndarray, places: np.ndarray, indices: np.ndarray) -> None:
        """Reads the examples at indices into the rows `places` of an array.

        Indices in increasing order are read fastest.
        """
        size, target = self._row_bytes, _bytes_of(rows)
        begins, positions = (places * size).tolist(), (indices * size).tolist()

        def read_part(part: slice) -> None:
            with self._unchanged() as file:
                for begin, position in zip(begins[part], positions[part], strict=True):
                    self._fill(file, target[begin : begin + size], position)

        if local_path(self._path) is not None:
            read_part(slice(None))
            return
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            list(
                pool.map(
                    read_part, [slice(i, None, _PARALLEL_READS) for i in range(_PARALLEL_READS)]
                )
            )

    def _fill(self, file: Any, target: memoryview, position: int) -> None:
        """Reads the bytes from a position of the numbers on into a part of an array."""
        position += self._header.begin
        while target:
            if isinstance(file, tf.io.gfile.GFile):
                file.seek(position)
                content = file.read(len(target))
                count = len(content)
                target[:count] = content
            else:
                count = os.preadv(file.fileno(), [target], position)
            if not count:
                raise self._changed()
            target, position = target[count:], position + count

    def _open(self) -> Any:
        local = local_path(self._path)
        if local is None:
            return tf.io.gfile.GFile(self._path, "rb")
        return open(local, "rb", buffering=0)

    @contextlib.contextmanager
    def _unchanged(self) -> Iterator[Any]:
        """Opens the file.

        Raises:
          UserError: If it differs from the beginning, also after it was read, or is gone.
        """
        try:
            with self._open() as file:
                yield file
                if _stamp(file) != self._stamp:
                    raise self._changed()
        except (OSError, tf.errors.NotFoundError, tf.errors.OutOfRangeError) as error:
            raise self._changed() from error

    def _changed(self) -> UserError:
        return UserError(
            f"{naming_file(self._path, self._origin)} was changed, cut or deleted while "
            "it was in use",
            "start again; write new data to another path",
        )


class Shards:
    """The rows of several files, one after the other; see `Rows`.

    Args:
      shards: The rows of each file, of one shape and dtype.
    """

    def __init__(self, shards: Sequence[Rows]):
        self._shards = shards
        self._ends = np.cumsum([shard.shape[0] for shard in shards]).tolist()
        self._begins = [0, *self._ends]
        self.shape = (self._ends[-1], *shards[0].shape[1:])
        self.dtype = shards[0].dtype

    def __getitem__(self, indices: Any) -> np.ndarray:
        if isinstance(indices, slice):
            return self._slice(*indices.indices(self.shape[0])[:2])
        indices = np.asarray(indices)
        found = _empty((len(indices), *self.shape[1:]), self.dtype)
        order = np.argsort(indices)
        indices = indices[order]
        if len(indices) and not 0 <= indices[0] <= indices[-1] < self.shape[0]:
            raise IndexError(f"indices {indices[0]} to {indices[-1]} of {self.shape[0]} examples")
        bounds = np.searchsorted(indices, self._begins).tolist()
        for shard, first, begin, end in zip(
            self._shards, self._begins[:-1], bounds[:-1], bounds[1:], strict=True
        ):
            if begin == end:
                continue
            places, inside = order[begin:end], indices[begin:end] - first
            if isinstance(shard, NpyRows):
                shard.read_into(found, places, inside)
            else:
                found[places] = shard[inside]
        return found

    def _slice(self, first: int, last: int) -> np.ndarray:
        parts = [np.empty([0, *self.shape[1:]], self.dtype)]
        while first < last:
            owner = bisect.bisect_right(self._ends, first)
            begin, end = self._begins[owner], min(last, self._ends[owner])
            parts.append(np.asarray(self._shards[owner][first - begin : end - begin]))
            first = end
        return parts[1] if len(parts) == 2 else np.concatenate(parts)


def naming_file(path: str, origin: str) -> str:
    """Returns the origin of messages, with the name of the file unless it ends with it."""
    name = posixpath.basename(path)
    return origin if origin.endswith(name) else f"{origin}: {name}"


@contextlib.contextmanager
def reporting_damage(path: str, origin: str) -> Iterator[None]:
    """Turns the exceptions of libraries that read a damaged or hostile file into a UserError.

    Libraries raise almost any exception for such files. Errors of the file system pass, which
    `listing.reading` explains.
    """
    try:
        yield
    except (UserError, tf.errors.OpError):
        raise
    except Exception as error:
        raise unreadable(path, origin, error) from error


def unreadable(path: str, origin: str, error: Exception) -> UserError:
    """Returns the error for a file that is damaged or has another format."""
    return UserError(
        f"{naming_file(path, origin)} cannot be read ({reason(error) or type(error).__name__})",
        "write it again with the library that reads it: NumPy, h5py, SciPy or pandas",
    )


def read_array(file: Any, header: Header) -> np.ndarray:
    """Returns the array whose numbers follow in a file."""
    flat = np.frombuffer(file.read(header.bytes), header.dtype)
    return flat.reshape(header.shape[::-1]).T if header.is_fortran else flat.reshape(header.shape)


def _bytes_of(array: np.ndarray) -> memoryview:
    """Returns the memory of an array."""
    return array.reshape(-1).view(np.uint8).data


def _empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns an array for examples, which TensorFlow takes without a copy if it is aligned."""
    size = math.prod(shape) * dtype.itemsize
    content = np.empty([size + _ALIGNMENT], np.uint8)
    first = -content.ctypes.data % _ALIGNMENT
    return content[first : first + size].view(dtype).reshape(shape)


def _stamp(file: BinaryIO) -> tuple[int, ...] | None:
    """Returns the size and the time of an open local file; None for one in a bucket."""
    if isinstance(file, tf.io.gfile.GFile):
        return None
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def check_memory(size: int, origin: str) -> None:
    """Raises UserError if this machine has less memory than a size in bytes."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Windows
        memory = 2**36
    if size > memory:
        raise UserError(
            f"{origin} declares arrays of {size / 1e9:,.0f} GB, but this machine has "
            f"{memory / 1e9:,.0f} GB of memory",
            "save the examples as .npy files in C order in a folder, which are read as needed",
        )
