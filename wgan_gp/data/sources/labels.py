"""Labels of any kind as the numbers of classes, with the names of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import UserError, shorten

# The columns that contain labels if none is named, in any case.
LABEL_NAMES = ("label", "labels", "class", "target")
_REMEDY = (
    "give each example one class: an integer, a text, a boolean, or a row with a single 1; give "
    "other numbers as `conditions` (of a table: --condition_columns)"
)


def number_labels(values: np.ndarray, origin: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns labels as numbers from 0 to K - 1, and the names of the K classes.

    Only labels that occur are classes. They are ordered by their values: numbers by size, texts in
    alphabetical order.

    Args:
      values: `[N]` or `[N, 1]` integers, real numbers that are integers, texts, bytes or booleans,
        or `[N, K]` rows with a single 1 (one-hot), whose names are the places of the 1.
      origin: The flag and its value for messages, such as "--data_dir=FILE".

    Returns:
      `[N]` int64, and the names: the numbers or texts of the classes as text.

    Raises:
      UserError: If they are not labels.
    """
    is_masked = np.ma.getmaskarray(values) if np.ma.isMaskedArray(values) else None
    if is_masked is not None and is_masked.any():
        raise _missing(int(np.argwhere(is_masked)[0, 0]), origin)
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 2 and is_one_hot(values):
        values = values.argmax(axis=1)
    if values.ndim != 1:
        raise UserError(f"{origin} contains labels of shape {list(values.shape)}", _REMEDY)
    classes, labels = np.unique(_comparable(values, origin), return_inverse=True)
    return labels.reshape(-1), tuple(map(str, classes.tolist()))


def numbered_like(
    class_names: Sequence[str], labels: np.ndarray, names: Sequence[str], origin: str
) -> np.ndarray:
    """Returns labels with the numbers that their classes have in the training data.

    Args:
      class_names: The names of the classes of the training data.
      labels: `[N]` integers, the labels of other data; -1 for an unknown class remains -1.
      names: The names of the classes of the other data, some of `class_names`.
      origin: The flag and its value of the other data, for messages.

    Raises:
      UserError: If a class is not in the training data.
    """
    numbers = {name: number for number, name in enumerate(class_names)}
    if unknown := [name for name in names if name not in numbers]:
        raise UserError(
            f"{origin} contains the class {shorten(unknown[0])!r}, which the training data lacks",
            f"use only {shorten(', '.join(class_names))}",
        )
    return np.array([*(numbers[name] for name in names), -1], np.int64)[labels]


def is_one_hot(values: np.ndarray) -> bool:
    """Returns True for numbers `[N, K]`, K > 1, if each row has a single 1 and zeros otherwise."""
    if values.ndim != 2 or values.shape[1] < 2 or values.dtype.kind not in "biuf":
        return False
    return bool(((values == 1).sum(axis=1) == 1).all() and ((values == 0) | (values == 1)).all())


def _comparable(values: np.ndarray, origin: str) -> np.ndarray:
    """Returns labels `[N]` as booleans, integers or texts, whose order is that of the classes."""
    if values.dtype.kind in "OT":
        values = _of_one_kind(values, origin)
    kind = values.dtype.kind
    if kind in "biu":
        return values
    if kind == "f":
        return _integers(values, origin)
    if kind in "SU":
        return _texts(values, origin)
    raise UserError(f"{origin} contains labels of type {values.dtype}", _REMEDY)


def _of_one_kind(values: np.ndarray, origin: str) -> np.ndarray:
    """Returns Python objects as an array of numbers if all are numbers, else of texts."""
    import pandas as pd  # noqa: PLC0415, which takes half a second

    if (is_missing := pd.isna(values)).any():
        raise _missing(int(is_missing.argmax()), origin)
    if all(isinstance(value, (bool, np.bool_)) for value in values):
        return values.astype(bool)
    if all(isinstance(value, (int, float, np.integer, np.floating)) for value in values):
        return np.array(
            [value.item() if isinstance(value, np.generic) else value for value in values]
        )
    return np.array([_text(value) for value in values])


def _integers(values: np.ndarray, origin: str) -> np.ndarray:
    """Returns real numbers that are integers as integers."""
    if (missing := np.flatnonzero(np.isnan(values))).size:
        raise _missing(int(missing[0]), origin)
    if (bad := np.flatnonzero(~are_integers(values))).size:
        raise UserError(
            f"{origin} contains labels that are not integers, such as {float(values[bad[0]])} of "
            f"example {bad[0]}",
            _REMEDY,
        )
    return values.astype(np.int64)


def are_integers(values: np.ndarray) -> np.ndarray:
    """Returns which real numbers are integers that float64 distinguishes from their neighbors."""
    return (values == np.trunc(values)) & (np.abs(values) <= 2.0**53)


def _texts(values: np.ndarray, origin: str) -> np.ndarray:
    """Returns texts or bytes as texts without the spaces around them."""
    texts = np.array([_text(value) for value in values.tolist()])
    if (texts == "").any():
        raise _missing(int(np.flatnonzero(texts == "")[0]), origin)
    return texts


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    return str(value).strip()


def _missing(index: int, origin: str) -> UserError:
    return UserError(
        f"{origin} has no label for example {index}", "add it, or leave the example out"
    )
