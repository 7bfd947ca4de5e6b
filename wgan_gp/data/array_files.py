"""Opens files of arrays: .npy, .npz, .csv, and folders of .npy files."""

from __future__ import annotations

import bisect
import csv
import io
import os
import posixpath
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from ..errors import UserError, reason, shorten
from .class_names import is_number, read_labels
from .listing import check_path, local_path

CHUNK_BYTES = 2**24  # of the examples that are read at a time
_LABEL_COLUMNS = ("label", "labels", "class")
_PARALLEL_READS = 16
_REMEDY = "give a .npy, .npz or .csv file, or a folder of .npy files (docs/data.md)"


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


class ArrayData(NamedTuple):
    """The content of a file of arrays.

    Attributes:
      examples: `[N, ...]`.
      labels: `[N]` integers, `[N, K]` conditions, or None.
      names: The names of the features, or None.
      class_names: The names of the classes of a table whose labels are texts, else None.
    """

    examples: Rows
    labels: np.ndarray | None = None
    names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None


def open_arrays(path: str, flag: str) -> ArrayData:
    """Opens a file or a folder of arrays.

    Args:
      path: A .npy, .npz or .csv file, or a folder of .npy files. A local .npy file is mapped into
        memory; parts of a remote one are read as needed. The others are read whole.
      flag: The flag that names it, for messages.

    Raises:
      UserError: If it cannot be read as examples `[N, D]`, `[N, T, C]` or `[N, H, W, C]`.
    """
    check_path(flag, path)
    if tf.io.gfile.isdir(path):
        data = ArrayData(_open_folder(path, flag))
    elif not tf.io.gfile.exists(path):
        raise UserError(f"{flag} does not exist", _REMEDY)
    elif path.endswith(".npy"):
        data = ArrayData(_open_npy(path, flag))
    elif path.endswith(".npz"):
        data = _read_npz(path, flag)
    elif path.endswith(".csv"):
        data = _read_csv(path, flag)
    else:
        raise UserError(f"{flag} ends in neither .npy, .npz nor .csv", _REMEDY)
    _check(data, flag)
    return data


def chunks(rows: Rows) -> Iterator[tuple[int, np.ndarray]]:
    """Yields all examples in order, in chunks: the index of the first, and `[B, ...]`."""
    size = max(1, int(np.prod(rows.shape[1:]))) * rows.dtype.itemsize
    step = max(1, CHUNK_BYTES // size)
    for first in range(0, rows.shape[0], step):
        yield first, np.asarray(rows[first : first + step])


def _check(data: ArrayData, flag: str) -> None:
    shape, dtype = data.examples.shape, data.examples.dtype
    if dtype.kind not in "fiub" or len(shape) not in (2, 3, 4) or 0 in shape:
        raise UserError(
            f"{flag} contains examples of shape {list(shape)} and dtype {dtype}",
            "give numbers of shape [N, D], [N, T, C] or [N, H, W, C]",
        )
    labels = data.labels
    if labels is None:
        return
    if len(labels) != shape[0] or labels.ndim not in (1, 2) or labels.dtype.kind not in "fiub":
        raise UserError(
            f"{flag} contains labels of shape {list(labels.shape)} and dtype {labels.dtype} for "
            f"{shape[0]} examples",
            "give one integer from 0 to each example, or one row of numbers as its condition",
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise UserError(f"{flag} contains NaN or infinity in the conditions", "leave them out")
    if labels.dtype.kind != "f" and labels.ndim == 1 and not 0 <= labels.min() < 1_000_000:
        raise UserError(f"{flag} contains the label {labels.min()}", "number the classes from 0")


def _open_folder(path: str, flag: str) -> Rows:
    names = sorted(name for name in tf.io.gfile.listdir(path) if name.endswith(".npy"))
    if not names:
        raise UserError(f"{flag} contains no .npy files", _REMEDY)
    shards = [_open_npy(posixpath.join(path, name), flag) for name in names]
    for name, shard in zip(names, shards, strict=True):
        if (shard.shape[1:], shard.dtype) != (shards[0].shape[1:], shards[0].dtype):
            raise UserError(
                f"{flag}: {name} has examples of shape {list(shard.shape[1:])} and dtype "
                f"{shard.dtype}, but {names[0]} of {list(shards[0].shape[1:])} and "
                f"{shards[0].dtype}",
                "give shards of one shape and dtype",
            )
    return _Shards(shards)


def _open_npy(path: str, flag: str) -> Rows:
    """Returns the rows of a .npy file, which are not read yet."""
    local = local_path(path)
    if local is not None and not os.path.isfile(local):  # opening a pipe would wait
        raise UserError(f"{flag}: {posixpath.basename(path)} is not a file", _REMEDY)
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
        raise _unreadable(path, flag, error) from error
    if dtype.hasobject or is_fortran or not shape:
        raise UserError(
            f"{flag}: {posixpath.basename(path)} contains objects, a single number, or columns "
            "before rows",
            "save numbers with np.save(path, np.ascontiguousarray(examples))",
        )
    begin = head.tell()
    if length < begin + int(np.prod(shape)) * dtype.itemsize:
        raise UserError(
            f"{flag}: {posixpath.basename(path)} is cut: {length} bytes", "write it again"
        )
    if local is not None:
        return (
            np.memmap(local, dtype, mode="r", offset=begin, shape=shape)
            if shape[0]
            else (np.empty(shape, dtype))
        )
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


def _read_npz(path: str, flag: str) -> ArrayData:
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            loaded = np.load(io.BytesIO(file.read()), allow_pickle=False)
        arrays = {name: loaded[name] for name in loaded.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, flag, error) from error
    # "samples" is the name in files of --mode=sample --sample_format=npz.
    name = "examples" if "examples" in arrays else "samples"
    if name not in arrays:
        raise UserError(
            f"{flag} contains the arrays {shorten(', '.join(arrays))}, but no examples",
            "write it with np.savez(path, examples=..., labels=...)",
        )
    if "conditions" in arrays and "labels" in arrays:
        raise UserError(f"{flag} contains labels and conditions", "give one of them")
    labels = arrays.get("labels", arrays.get("conditions"))
    if labels is not None and "conditions" in arrays:
        labels = labels.reshape(len(labels), -1).astype(np.float32)
    return ArrayData(arrays[name], labels)


def _read_csv(path: str, flag: str) -> ArrayData:
    """Reads a table of numbers, with the names of the columns in the first line if it has text."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(path, flag, error) from error
    lines = [(number, line) for number, line in enumerate(csv.reader(io.StringIO(text)), 1) if line]
    names = None
    if lines and not all(is_number(cell) for cell in lines[0][1]):
        names = [cell.strip() for cell in lines.pop(0)[1]]
    if not lines:
        raise UserError(f"{flag} contains no examples", "give a line of numbers for each example")
    width = len(names or lines[0][1])
    for number, line in lines:
        if len(line) != width:
            raise UserError(
                f"{flag}: line {number} has {len(line)} columns in place of {width}", "correct it"
            )
    columns = list(zip(*(line for _, line in lines), strict=True))
    labels, classes = None, None
    label_column = next((i for i, name in enumerate(names or []) if name in _LABEL_COLUMNS), None)
    if names is not None and label_column is not None:
        names.pop(label_column)
        labels, classes = read_labels(columns.pop(label_column))
    for place, column in enumerate(columns):
        for (number, _), cell in zip(lines, column, strict=True):
            if not is_number(cell):
                name = names[place] if names else f"column {place + 1}"
                raise UserError(
                    f"{flag}: line {number}: {shorten(cell)!r} in {name} is not a number",
                    "encode text as numbers; only a column named label may contain text",
                )
    examples = np.array(
        [[float(cell) if cell.strip() else np.nan for cell in column] for column in columns]
    ).T
    return ArrayData(examples, labels, None if names is None else tuple(names), classes)


def _unreadable(path: str, flag: str, error: Exception) -> UserError:
    return UserError(
        f"{flag}: {posixpath.basename(path)} cannot be read ({reason(error)})",
        "write it with np.save, np.savez or as a table of numbers",
    )
