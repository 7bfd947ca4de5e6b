"""Opens files of arrays: .npy, .npz, .csv, and folders of .npy files."""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...errors import UserError, shorten
from .class_names import is_number, read_labels
from .listing import check_path
from .npy_files import REMEDY, Rows, open_folder, open_npy, unreadable

_LABEL_COLUMNS = ("label", "labels", "class")
_MOST_CLASSES = 1_000_000


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
        data = ArrayData(open_folder(path, flag))
    elif not tf.io.gfile.exists(path):
        raise UserError(f"{flag} does not exist", REMEDY)
    elif path.endswith(".npy"):
        data = ArrayData(open_npy(path, flag))
    elif path.endswith(".npz"):
        data = _read_npz(path, flag)
    elif path.endswith(".csv"):
        data = _read_csv(path, flag)
    else:
        raise UserError(f"{flag} ends in neither .npy, .npz nor .csv", REMEDY)
    _check(data, flag)
    return data


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
    if not _is_usable(labels) or len(labels) != shape[0]:
        raise UserError(
            f"{flag} contains labels or conditions of shape {list(labels.shape)} and dtype "
            f"{labels.dtype} for {shape[0]} examples",
            "give one integer from 0 to each example, or one row of numbers as its condition",
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise UserError(f"{flag} contains NaN or infinity in the conditions", "leave them out")
    if labels.dtype.kind != "f" and labels.ndim == 1:
        for label in (labels.min(), labels.max()):
            if not 0 <= label < _MOST_CLASSES:
                raise UserError(f"{flag} contains the label {label}", "number the classes from 0")


def _read_npz(path: str, flag: str) -> ArrayData:
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            loaded = np.load(io.BytesIO(file.read()), allow_pickle=False)
        members = {name: loaded[name] for name in loaded.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise unreadable(path, flag, error) from error
    arrays = {name: each for name, each in members.items() if isinstance(each, np.ndarray)}
    # "samples" is the name in files of --mode=sample --sample_format=npz.
    name = "examples" if "examples" in arrays else "samples"
    if name not in arrays:
        raise UserError(
            f"{flag} contains the arrays {shorten(', '.join(arrays)) or 'none'}, but no examples",
            "write it with np.savez(path, examples=..., labels=...)",
        )
    if "conditions" in arrays and "labels" in arrays:
        raise UserError(f"{flag} contains labels and conditions", "give one of them")
    if "conditions" not in arrays:
        return ArrayData(arrays[name], arrays.get("labels"))
    conditions = arrays["conditions"]
    if _is_usable(conditions):
        conditions = conditions.reshape(len(conditions), -1)
    return ArrayData(arrays[name], conditions)


def _is_usable(labels: np.ndarray) -> bool:
    """Returns True if labels or conditions are numbers `[N]` or `[N, K]`."""
    return labels.ndim in (1, 2) and labels.dtype.kind in "fiub" and labels.size > 0


def _read_csv(path: str, flag: str) -> ArrayData:
    """Reads a table of numbers, with the names of the columns in the first line if it has text."""
    names, numbers, columns = _read_columns(path, flag)
    labels, classes = None, None
    label_column = next((i for i, name in enumerate(names or []) if name in _LABEL_COLUMNS), None)
    if names is not None and label_column is not None:
        name, cells = names.pop(label_column), columns.pop(label_column)
        for number, cell in zip(numbers, cells, strict=True):
            if not cell.strip():
                raise UserError(f"{flag}: line {number} has no {name}", "add it, or omit the line")
        labels, classes = read_labels(cells)
    for place, column in enumerate(columns):
        for number, cell in zip(numbers, column, strict=True):
            if not is_number(cell):
                name = names[place] if names else f"column {place + 1}"
                remedy = "encode text as numbers; only a column named label may contain text"
                raise UserError(
                    f"{flag}: line {number}: {shorten(cell)!r} in {name} is not a number",
                    "separate columns by commas" if ";" in cell or "\t" in cell else remedy,
                )
    examples = np.array(
        [[float(cell) if cell.strip() else np.nan for cell in column] for column in columns]
    ).T
    return ArrayData(examples, labels, None if names is None else tuple(names), classes)


def _read_columns(path: str, flag: str) -> tuple[list[str] | None, list[int], list[tuple]]:
    """Returns the names of the columns or None, the numbers of the lines, and the columns."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            text = file.read().decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text)))
    except (UnicodeDecodeError, csv.Error) as error:
        raise unreadable(path, flag, error) from error
    lines = [(number, line) for number, line in enumerate(rows, 1) if line]
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
    return names, [number for number, _ in lines], columns
