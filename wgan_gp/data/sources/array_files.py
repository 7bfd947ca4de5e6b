"""Opens files of arrays: .npy, .npz, tables, and folders of .npy files."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...config import DataSettings
from ...errors import UserError, shorten
from .listing import check_path
from .npy_files import REMEDY, Rows, open_folder, open_npy, unreadable

_MOST_CLASSES = 1_000_000


class ArrayData(NamedTuple):
    """The content of a file of arrays.

    Attributes:
      examples: `[N, ...]`.
      labels: `[N]` integers, the numbers of the classes of the examples, or None.
      class_names: The names of the classes; None without labels.
      conditions: `[N, K]`, or None.
      names: The names of the features, or None.
      label_name: The column of the labels of a table, or None.
      condition_names: The columns of the conditions of a table.
      left_out: The number of rows of a table that were left out because they have no label.
      notes: What was guessed about a table, in a few words each.
      is_table: Whether it is a table.
    """

    examples: Rows
    labels: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None
    conditions: np.ndarray | None = None
    names: tuple[str, ...] | None = None
    label_name: str | None = None
    condition_names: tuple[str, ...] = ()
    left_out: int = 0
    notes: tuple[str, ...] = ()
    is_table: bool = False


def open_arrays(
    path: str, flag: str, settings: DataSettings | None = None, *, required: bool = True
) -> ArrayData:
    """Opens a file or a folder of arrays.

    Args:
      path: A .npy or .npz file, a table, or a folder of .npy files. A local .npy file is mapped
        into memory; parts of a remote one are read as needed. The others are read whole.
      flag: The flag that names it, for messages.
      settings: The settings that name columns of tables; None for their defaults.
      required: Whether a table must have the columns that the settings name.

    Raises:
      UserError: If it cannot be read as examples `[N, D]`, `[N, T, C]` or `[N, H, W, C]`.
    """
    from . import tables  # noqa: PLC0415, which imports this module

    settings = settings or DataSettings()
    check_path(flag, path)
    if tf.io.gfile.exists(path) and tables.is_table(path) and not tf.io.gfile.isdir(path):
        return tables.open_table(path, flag, settings, required=required)
    tables.refuse_columns(flag, settings)
    if tf.io.gfile.isdir(path):
        data = ArrayData(open_folder(path, flag))
    elif not tf.io.gfile.exists(path):
        raise UserError(f"{flag} does not exist", REMEDY)
    elif path.endswith(".npy"):
        data = ArrayData(open_npy(path, flag))
    elif path.endswith(".npz"):
        data = _read_npz(path, flag)
    else:
        raise UserError(f"{flag} ends in none of .npy, .npz, {', '.join(tables.SUFFIXES)}", REMEDY)
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
