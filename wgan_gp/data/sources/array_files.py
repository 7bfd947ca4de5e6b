"""Opens files of arrays: .npy, .npz (NumPy), .h5 (h5py), .mat (MATLAB, SciPy), and folders."""

from __future__ import annotations

import contextlib
import io
import json
import math
import posixpath
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from ...errors import UserError, shorten
from .labels import LABEL_NAMES, number_labels
from .listing import check_path, local_path
from .npy import (
    REMEDY,
    Rows,
    Shards,
    check_memory,
    naming_file,
    open_npy,
    read_array,
    read_header,
    reporting_damage,
)

_NAMED = (".npz", ".h5", ".hdf5", ".mat")
ARRAYS = (".npy", *_NAMED)
# The files of a folder that belong to all of its examples.
_COMMON = ("labels", "conditions", "class_names")
_PARALLEL = 16  # files of a folder, which may be in a bucket
# Other names in use: of --mode=sample, of scikit-learn and MATLAB, and of Keras's files.
_EXAMPLES = ("examples", "samples", "data", "images", "x", "x_train", "train_images")
_LABELS = ("labels", "label", "y", "target", "y_train", "train_labels")
_CONDITIONS = ("conditions",)
_CLASS_NAMES = ("class_names",)
_ENCRYPTED = 1  # a flag of a member of a ZIP file
_MATLAB_7_3 = b"MATLAB 7.3 MAT-file"  # such a file is an HDF5 file


class ArrayData(NamedTuple):
    """Arrays in memory or in files.

    Attributes:
      examples: `[N, ...]`.
      labels: `[N]`, the classes of the examples, or None. As they are given, they are of any kind;
        `checked` returns their numbers from 0.
      class_names: The names of the classes if `labels` are their numbers, else None.
      conditions: `[N, K]`, or None.
      names: The names of the features, or None.
    """

    examples: Rows
    labels: np.ndarray | None = None
    class_names: Sequence[Any] | None = None
    conditions: np.ndarray | None = None
    names: tuple[str, ...] | None = None

    def names_of(self, selected: np.ndarray) -> str:
        """Returns the names of the selected features `[F]` bool, in words."""
        kind = "feature" if len(self.examples.shape) == 2 else "channel"
        found = [self.names[i] if self.names else f"{kind} {i}" for i in np.flatnonzero(selected)]
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        return ", ".join(found[:5]) + more


def open_arrays(path: str, origin: str) -> ArrayData:
    """Opens a file or a folder of arrays.

    Args:
      path: A .npy, .npz, .h5, .hdf5 or .mat file, or a folder of them. Of .npy files, the examples
        are read as needed. The others are read whole.
      origin: The flag that names it, with its value, for messages.

    Raises:
      UserError: If it cannot be read as examples `[N, D]`, `[N, T, C]` or `[N, H, W, C]`.
    """
    check_path(origin, path)
    if tf.io.gfile.isdir(path):
        return checked(origin, _open_folder(path, origin))
    if not tf.io.gfile.exists(path):
        raise UserError(f"{origin} does not exist", REMEDY)
    if not path.lower().endswith(ARRAYS):
        raise UserError(f"{origin} ends in none of {', '.join((*ARRAYS, '.csv'))}", REMEDY)
    found = _open_file(path, origin)
    if found.examples.dtype.names is not None:
        found = _of_fields(found.examples[:], origin)
    return checked(origin, found)


def checked(origin: str, data: ArrayData) -> ArrayData:
    """Returns checked examples, with numbered labels or conditions `[N, K]`.

    Labels that cannot be classes are left out with a note, because only some runs need labels.

    Args:
      origin: The flag that names the file, with its value, for messages.
      data: The arrays as they are given.

    Raises:
      UserError: If they cannot be trained on.
    """
    shape, dtype = data.examples.shape, data.examples.dtype
    if dtype.kind not in "fiub" or len(shape) not in (2, 3, 4, 5) or 0 in shape:
        raise UserError(
            f"{origin} contains examples of shape {list(shape)} and dtype {dtype}",
            "give numbers of shape [N, D], [N, T, C], [N, H, W, C] or [N, D, H, W, C]",
        )
    for what, values in (("labels", data.labels), ("conditions", data.conditions)):
        if values is not None and (not values.ndim or len(values) != shape[0]):
            raise UserError(
                f"{origin} contains {what} of shape {list(values.shape)} for {shape[0]} examples",
                "give one to each example",
            )
    labels = class_names = conditions = None
    if data.labels is not None:
        try:
            labels, class_names = number_labels(_named(data, origin), origin)
        except UserError as error:
            logging.info(f"note: {error.what}: the labels are not used as classes")
    if data.conditions is not None:
        conditions = check_conditions(data.conditions, origin)
    return data._replace(labels=labels, class_names=class_names, conditions=conditions)


def check_conditions(conditions: np.ndarray, origin: str) -> np.ndarray:
    """Returns conditions `[N]` or `[N, K]` as `[N, K]` of the same dtype.

    Raises:
      UserError: If they have another shape or dtype, or contain NaN or infinity.
    """
    shape, dtype = conditions.shape, conditions.dtype
    if len(shape) not in (1, 2) or not conditions.size or dtype.kind not in "fiub":
        raise UserError(
            f"{origin} contains conditions of shape {list(shape)} and dtype {dtype}",
            "give one number, or K numbers, to each example: [N] or [N, K]",
        )
    conditions = conditions.reshape(len(conditions), -1)
    if bad := int((~np.isfinite(conditions)).any(axis=1).sum()):
        raise UserError(
            f"{origin} contains NaN or infinity in the conditions of {bad} of {len(conditions)} "
            "examples",
            "leave these examples out",
        )
    return conditions


def _named(data: ArrayData, origin: str) -> np.ndarray:
    """Returns the labels or, where these are numbers of named classes, their names."""
    if data.class_names is None:
        return np.asarray(data.labels)
    names, numbers = np.asarray(data.class_names), np.asarray(data.labels)
    if numbers.dtype.kind not in "iu" or not len(names):
        raise UserError(f"{origin} has names of classes, but no numbers of them", "omit the names")
    if numbers.min() < 0 or numbers.max() >= len(names):
        raise UserError(
            f"{origin} contains the labels {numbers.min()} to {numbers.max()}, but {len(names)} "
            "names of classes",
            "give a name to each class, numbered from 0",
        )
    return names[numbers]


def _open_file(path: str, origin: str) -> ArrayData:
    """Opens a file of arrays, whose contents are not checked yet."""
    if path.lower().endswith(".npy"):
        return ArrayData(open_npy(path, origin))
    return _read_named(path, origin)


def _open_folder(path: str, origin: str) -> ArrayData:
    """Opens the files of a folder in the order of their names, as one array.

    Labels, conditions and the names of classes may be in `labels.npy`, `conditions.npy` and
    `class_names.npy` or, as in a store, in data.json.

    Raises:
      UserError: If there are none, or they differ in shape or dtype.
    """
    listed = set(tf.io.gfile.listdir(path))
    common: dict[str, Any] = {
        role: open_npy(posixpath.join(path, f"{role}.npy"), origin)[:]
        for role in _COMMON
        if f"{role}.npy" in listed
    }
    record = _record_of_store(posixpath.join(path, "data.json")) if "data.json" in listed else {}
    class_names = record.get("class_names")
    if class_names and "labels" in common and common["labels"].dtype.kind in "iu":
        common["class_names"] = class_names
    names = sorted(
        name
        for name in listed.difference(f"{role}.npy" for role in _COMMON)
        if name.lower().endswith(ARRAYS) and not name.startswith(".")
    )
    if not names:
        raise UserError(f"{origin} contains none of {', '.join(ARRAYS)} files", REMEDY)
    with ThreadPoolExecutor(_PARALLEL) as pool:
        shards = list(pool.map(lambda name: _open_file(posixpath.join(path, name), origin), names))
    first = shards[0]
    for name, shard in zip(names, shards, strict=True):
        if _form(shard) != _form(first):
            raise UserError(
                f"{origin}: {name} has {_form(shard)}, but {names[0]} has {_form(first)}",
                "give shards of one shape and dtype",
            )
    found = {
        role: np.concatenate([getattr(shard, role) for shard in shards])
        for role in ("labels", "conditions")
        if getattr(first, role) is not None
    }
    if "class_names" not in common and first.class_names is not None:
        found["labels"] = np.concatenate([_named(shard, origin) for shard in shards])
    return ArrayData(Shards([shard.examples for shard in shards]), **(found | common))


def _form(shard: ArrayData) -> str:
    """Returns the properties in which the files of a folder agree, in words."""
    examples = shard.examples
    text = f"examples of shape {list(examples.shape[1:])} and dtype {examples.dtype}"
    extra = [role for role in _COMMON if getattr(shard, role) is not None]
    return " and ".join([text, *extra])


def _record_of_store(path: str) -> dict[str, Any]:
    """Returns the content of the data.json of a store; without names of classes if it is none."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            record = json.loads(file.read())
        names = record.get("class_names")
    except (ValueError, AttributeError):
        return {}
    is_valid = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return record if is_valid else {**record, "class_names": None}


def _of_fields(rows: np.ndarray, origin: str) -> ArrayData:
    """Returns a structured array `[N]`, whose fields are the columns of a table."""
    columns = {name: rows[name] for name in rows.dtype.names or ()}
    if any(column.ndim != 1 for column in columns.values()):
        raise UserError(f"{origin} contains fields of several numbers", "give fields of one number")
    label = next((name for name in columns if name.lower() in LABEL_NAMES), None)
    labels = None if label is None else columns.pop(label)
    for name, column in columns.items():
        if column.dtype.kind not in "fiub":
            raise UserError(f"{origin} contains {column.dtype} in {name}", "give numbers")
    examples = np.stack(list(columns.values()), axis=1) if columns else np.empty([len(rows), 0])
    return ArrayData(examples, labels, names=tuple(columns))


class _Member(NamedTuple):
    """An array in a file, which is not read yet.

    Attributes:
      size: The size in bytes that the file declares.
      read: Reads it.
      rank: The number of its axes; None if unknown.
    """

    size: int
    read: Callable[[], np.ndarray]
    rank: int | None = None


def _read_named(path: str, origin: str) -> ArrayData:
    """Reads the examples of a .npz, .h5, .hdf5 or .mat file, and their labels or conditions.

    Raises:
      UserError: If the file is damaged, encrypted or larger than the memory of this machine, or
        does not say which array contains the examples.
    """
    origin = naming_file(path, origin)
    kinds = {".npz": _open_npz, ".mat": _open_mat}
    open_members = kinds.get(posixpath.splitext(path)[1].lower(), _open_hdf5)
    with reporting_damage(path, origin), open_members(path) as members:
        chosen = _choose(members, origin)
        check_memory(sum(member.size for member in chosen.values()), origin)
        arrays: dict[str, Any] = {role: member.read() for role, member in chosen.items()}
        found = ArrayData(**arrays)
    if path.lower().endswith(".mat"):
        found = _in_rows(found)
    return found


def _choose(members: dict[str, _Member], origin: str) -> dict[str, _Member]:
    """Returns the members that are used by the attributes of `ArrayData`."""
    by_name = {name.lower(): name for name in reversed(members)}
    chosen = {}
    for role, names in (
        ("examples", _EXAMPLES),
        ("labels", _LABELS),
        ("conditions", _CONDITIONS),
        ("class_names", _CLASS_NAMES),
    ):
        if name := next((by_name[each] for each in names if each in by_name), None):
            chosen[role] = name
    if "examples" not in chosen:
        others = [name for name in members if name not in chosen.values()]
        if len(others) != 1:
            raise UserError(
                f"{origin} contains the arrays {shorten(', '.join(members)) or 'none'}, but none "
                "named examples",
                "name the examples `examples`, and their labels `labels`",
            )
        chosen["examples"] = others[0]
    if "labels" in chosen and "conditions" in chosen:
        raise UserError(f"{origin} contains labels and conditions", "give one of them")
    return {role: members[name] for role, name in chosen.items()}


@contextlib.contextmanager
def _open_npz(path: str) -> Iterator[dict[str, _Member]]:
    with tf.io.gfile.GFile(path, "rb") as file, zipfile.ZipFile(file) as archive:

        def member(info: zipfile.ZipInfo) -> _Member:
            def read() -> np.ndarray:
                if info.flag_bits & _ENCRYPTED:
                    raise ValueError(f"{info.filename} is encrypted")
                with archive.open(info) as content:
                    header = read_header(content)
                    if header.begin + header.bytes != info.file_size:
                        raise ValueError(
                            f"{info.filename} declares {header.bytes:,} bytes of numbers, but has "
                            f"{info.file_size - header.begin:,}"
                        )
                    return read_array(content, header)

            return _Member(info.file_size, read)

        yield {
            info.filename.removesuffix(".npy"): member(info)
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        }


@contextlib.contextmanager
def _open_hdf5(path: str, *, of_matlab: bool = False) -> Iterator[dict[str, _Member]]:
    """Opens the datasets of the root of an HDF5 file.

    Datasets whose numbers are in other files are left out: a file does not decide what is read.
    """
    import h5py  # noqa: PLC0415

    def member(dataset: Any) -> _Member:
        size = math.prod(dataset.shape or ()) * dataset.dtype.itemsize
        rank = len(dataset.shape or ())
        if of_matlab:
            return _Member(size, lambda: _of_matlab_7_3(file, dataset), rank)
        is_text = h5py.check_string_dtype(dataset.dtype) is not None
        return _Member(size, lambda: (dataset.asstr() if is_text else dataset)[()], rank)

    with contextlib.ExitStack() as stack:
        source: Any = local_path(path)
        if source is None:
            with tf.io.gfile.GFile(path, "rb") as remote:
                source = io.BytesIO(remote.read())
        file = stack.enter_context(h5py.File(source, "r"))
        links = {name: file.get(name, getlink=True) for name in file}
        datasets = {name: file[name] for name, link in links.items() if type(link) is h5py.HardLink}
        yield {
            name: member(dataset)
            for name, dataset in datasets.items()
            if isinstance(dataset, h5py.Dataset) and dataset.shape is not None and _is_here(dataset)
        }


def _is_here(dataset: Any) -> bool:
    """Returns False if the numbers of a dataset are in other files, which its file names."""
    return not (dataset.is_virtual or dataset.external)


def _of_matlab_7_3(file: Any, dataset: Any) -> np.ndarray:
    """Returns a variable of MATLAB, whose axes an HDF5 file has in the reverse order."""
    kind = dataset.attrs.get("MATLAB_class", b"")
    if not _is_here(dataset):
        raise ValueError(f"{dataset.name} is in another file")
    values = dataset[()].T
    if kind == b"cell":  # references to variables, such as texts
        cells = [_of_matlab_7_3(file, file[reference]) for reference in values.ravel()]
        return _of_cells(cells, values.shape)
    if kind == b"char":
        return _texts_of(values)
    if kind == b"logical":
        return values.astype(bool)
    return values


@contextlib.contextmanager
def _open_mat(path: str) -> Iterator[dict[str, _Member]]:
    """Opens the numeric and text variables of a file of MATLAB."""
    import scipy.io  # noqa: PLC0415

    with tf.io.gfile.GFile(path, "rb") as file:
        is_hdf5 = file.read(len(_MATLAB_7_3)) == _MATLAB_7_3
        file.seek(0)
        content = io.BytesIO() if is_hdf5 else io.BytesIO(file.read())
    if is_hdf5:
        with _open_hdf5(path, of_matlab=True) as members:
            yield members
        return

    def member(name: str, shape: tuple[int, ...], kind: str) -> _Member:
        def read() -> np.ndarray:
            content.seek(0)
            values = scipy.io.loadmat(content, variable_names=[name])[name]
            if hasattr(values, "toarray"):  # a sparse matrix
                values = values.toarray()
            if values.dtype.hasobject and values.dtype.names is None:
                return _of_cells(values.ravel().tolist(), values.shape)
            return values

        return _Member(math.prod(shape) * _ITEM_BYTES.get(kind, 8), read, len(shape))

    content.seek(0)
    listed = scipy.io.whosmat(content)
    yield {name: member(name, shape, kind) for name, shape, kind in listed}


_ITEM_BYTES = {"int8": 1, "uint8": 1, "logical": 1, "int16": 2, "uint16": 2, "char": 4}
_ITEM_BYTES |= {"int32": 4, "uint32": 4, "single": 4}


def _of_cells(cells: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Returns a cell array of MATLAB, whose cells contain one number or text each."""
    values = []
    for cell in cells:
        parts = np.asarray(cell).ravel()
        if parts.size > 1:
            raise ValueError(f"a cell contains {parts.size} values")
        values.append(parts.tolist()[0] if parts.size else "")
    return np.array(values).reshape(shape)


def _texts_of(codes: np.ndarray) -> np.ndarray:
    """Returns characters `[N, length]` of MATLAB as texts `[N]`."""
    return np.array(["".join(map(chr, row)) for row in np.atleast_2d(codes)])


def _as_vector(values: Any) -> Any:
    """Returns a matrix of one row as a vector, which MATLAB does not have."""
    return values[0] if values is not None and np.shape(values)[:-1] == (1,) else values


def _in_rows(found: ArrayData) -> ArrayData:
    """Returns variables of MATLAB with an example in each row.

    MATLAB's functions for images have examples `[H, W, C, N]`. The number of labels says which axis
    is that of the examples.
    """
    labels, conditions, class_names = map(
        _as_vector, (found.labels, found.conditions, found.class_names)
    )
    examples = np.asarray(found.examples)
    given = labels if labels is not None else conditions
    is_last = given is not None and examples.shape[-1] == len(given) != examples.shape[0]
    if is_last and examples.ndim > 2:
        examples = np.moveaxis(examples, -1, 0)
    return ArrayData(examples, labels, class_names, conditions)
