"""Files of arrays with names: .npz (NumPy), .h5 (h5py) and .mat (MATLAB, SciPy)."""

from __future__ import annotations

import contextlib
import io
import math
import os
import posixpath
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...errors import UserError, shorten
from .listing import local_path
from .npy import Rows, naming_file, read_header, reporting_damage

# Other names in use: of --mode=sample, of scikit-learn and MATLAB, and of Keras's files.
_EXAMPLES = ("examples", "samples", "data", "images", "x", "x_train", "train_images")
_LABELS = ("labels", "label", "y", "target", "y_train", "train_labels")
_CONDITIONS = ("conditions",)
_CLASS_NAMES = ("class_names",)
_ENCRYPTED = 1  # a flag of a member of a ZIP file
_MATLAB_7_3 = b"MATLAB 7.3 MAT-file"  # such a file is an HDF5 file


class NamedArrays(NamedTuple):
    """The arrays of a file, as they stand there.

    Attributes:
      examples: `[N, ...]`.
      labels: Labels of any kind, or None.
      conditions: Conditions, or None.
      class_names: The names of the classes if `labels` are their numbers, else None.
    """

    examples: Rows
    labels: np.ndarray | None = None
    conditions: np.ndarray | None = None
    class_names: Sequence[Any] | None = None


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


def read_named(path: str, origin: str) -> NamedArrays:
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
        _check_memory(sum(member.size for member in chosen.values()), origin)
        arrays: dict[str, Any] = {role: member.read() for role, member in chosen.items()}
        found = NamedArrays(**arrays)
    if path.lower().endswith(".mat"):
        found = _in_rows(found)
    return found


def _choose(members: dict[str, _Member], origin: str) -> dict[str, _Member]:
    """Returns the members that are used by the attributes of `NamedArrays`."""
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


def _check_memory(size: int, origin: str) -> None:
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Windows
        memory = 2**36
    if size > memory:
        raise UserError(
            f"{origin} declares arrays of {size / 1e9:,.0f} GB, but this machine has "
            f"{memory / 1e9:,.0f} GB of memory",
            "save the examples as .npy files in a folder, which are read as needed",
        )


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
                    flat = np.frombuffer(content.read(), header.dtype)
                if header.is_fortran:
                    return flat.reshape(header.shape[::-1]).T
                return flat.reshape(header.shape)

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


def _in_rows(found: Any) -> NamedArrays:
    """Returns variables of MATLAB with an example in each row.

    MATLAB has no vectors, so that labels may be a row, and its functions for images have examples
    `[H, W, C, N]`. The number of labels says which axis is that of the examples.
    """
    labels, conditions, class_names = (
        each.reshape(-1) if each is not None and each.ndim == 2 and each.shape[0] == 1 else each
        for each in (found.labels, found.conditions, found.class_names)
    )
    examples = np.asarray(found.examples)
    given = labels if labels is not None else conditions
    is_last = given is not None and examples.shape[-1] == len(given) != examples.shape[0]
    if is_last and examples.ndim > 2:
        examples = np.moveaxis(examples, -1, 0)
    return NamedArrays(examples, labels, conditions, class_names)
