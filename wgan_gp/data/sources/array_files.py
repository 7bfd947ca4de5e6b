"""Opens files of arrays: .npy, .npz, .h5, .mat, and folders of them."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ...errors import UserError
from .labels import LABEL_NAMES, number_labels
from .listing import check_path
from .named_arrays import NamedArrays, read_named
from .npy import REMEDY, Rows, Shards, open_npy

_NAMED = (".npz", ".h5", ".hdf5", ".mat")
ARRAYS = (".npy", *_NAMED)
# The files of a folder that belong to all of its examples.
_COMMON = ("labels", "conditions", "class_names")
_PARALLEL = 16  # files of a folder, which may be in a bucket


def open_arrays(path: str, origin: str) -> dict[str, Any]:
    """Opens a file or a folder of arrays.

    Args:
      path: A .npy, .npz, .h5, .hdf5 or .mat file, or a folder of them. Of .npy files, the examples
        are read as needed. The others are read whole.
      origin: The flag that names it, with its value, for messages.

    Returns:
      The fields of `arrays.ArrayData`.

    Raises:
      UserError: If it cannot be read as examples `[N, D]`, `[N, T, C]` or `[N, H, W, C]`.
    """
    check_path(origin, path)
    if tf.io.gfile.isdir(path):
        return checked(origin, **_open_folder(path, origin)._asdict())
    if not tf.io.gfile.exists(path):
        raise UserError(f"{origin} does not exist", REMEDY)
    if not path.lower().endswith(ARRAYS):
        raise UserError(f"{origin} ends in none of {', '.join((*ARRAYS, '.csv'))}", REMEDY)
    found = open_file(path, origin)
    if found.examples.dtype.names is not None:
        return _of_fields(found.examples[:], origin)
    return checked(origin, **found._asdict())


def checked(
    origin: str,
    examples: Rows,
    labels: np.ndarray | None = None,
    conditions: np.ndarray | None = None,
    class_names: Sequence[Any] | None = None,
    *,
    names: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """Returns checked examples, with numbered labels or conditions; see `open_arrays`.

    Labels that cannot be classes are left out with a note, because only some runs need labels.

    Args:
      origin: The flag that names the file, with its value, for messages.
      examples: `[N, ...]`.
      labels: Labels of any kind, for `number_labels`.
      conditions: `[N]` or `[N, K]` numbers.
      class_names: The names of the classes if `labels` are their numbers from 0.
      names: The names of the features.

    Raises:
      UserError: If they cannot be trained on.
    """
    shape, dtype = examples.shape, examples.dtype
    if dtype.kind not in "fiub" or len(shape) not in (2, 3, 4, 5) or 0 in shape:
        raise UserError(
            f"{origin} contains examples of shape {list(shape)} and dtype {dtype}",
            "give numbers of shape [N, D], [N, T, C], [N, H, W, C] or [N, D, H, W, C]",
        )
    for what, values in (("labels", labels), ("conditions", conditions)):
        if values is not None and (not values.ndim or len(values) != shape[0]):
            raise UserError(
                f"{origin} contains {what} of shape {list(values.shape)} for {shape[0]} examples",
                "give one to each example",
            )
    found: dict[str, Any] = {"examples": examples, "names": names}
    if labels is not None:
        try:
            if class_names is not None:
                labels = _named(labels, class_names, origin)
            numbers, found_names = number_labels(labels, origin)
        except UserError as error:
            logging.info(f"note: {error.what}: the labels are not used as classes")
        else:
            found |= {"labels": numbers, "class_names": found_names}
    if conditions is not None:
        found["conditions"] = check_conditions(conditions, origin)
    return found


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


def _named(labels: Any, class_names: Any, origin: str) -> np.ndarray:
    """Returns the names of classes whose numbers from 0 are given."""
    names, numbers = np.asarray(class_names), np.asarray(labels)
    if numbers.dtype.kind not in "iu" or not len(names):
        raise UserError(f"{origin} has names of classes, but no numbers of them", "omit the names")
    if numbers.min() < 0 or numbers.max() >= len(names):
        raise UserError(
            f"{origin} contains the labels {numbers.min()} to {numbers.max()}, but {len(names)} "
            "names of classes",
            "give a name to each class, numbered from 0",
        )
    return names[numbers]


def open_file(path: str, origin: str) -> NamedArrays:
    """Opens a file of arrays, whose contents are not checked yet."""
    if path.lower().endswith(".npy"):
        return NamedArrays(open_npy(path, origin))
    return read_named(path, origin)


def _open_folder(path: str, origin: str) -> NamedArrays:
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
        shards = list(pool.map(lambda name: open_file(posixpath.join(path, name), origin), names))
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
        found["labels"] = np.concatenate(
            [_named(shard.labels, shard.class_names, origin) for shard in shards]
        )
    return NamedArrays(Shards([shard.examples for shard in shards]), **(found | common))


def _form(shard: NamedArrays) -> str:
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


def _of_fields(rows: np.ndarray, origin: str) -> dict[str, Any]:
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
    return checked(origin, examples, labels, names=tuple(columns))
