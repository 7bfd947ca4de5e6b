"""The labels of tables: integers, numbers that are conditions, or names of classes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ...errors import UserError, shorten

_INTEGER = re.compile(r"[+-]?\d+")


def read_labels(cells: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Returns the labels of a column of a table, and the names of the classes if they are texts.

    Args:
      cells: The texts of the column.

    Returns:
      Integers `[N]`, if the texts are integers from 0; float64 `[N]`, which are conditions, if
      they are numbers but not all integers; otherwise the places among the sorted names.
    """
    cells = [cell.strip() for cell in cells]
    if all(cell.isdecimal() for cell in cells):
        return np.array([int(cell) for cell in cells]), None
    if all(map(is_number, cells)) and not all(map(_INTEGER.fullmatch, cells)):
        return np.array([float(cell or "nan") for cell in cells]), None
    names, labels = np.unique(cells, return_inverse=True)
    return labels, tuple(names.tolist())


def is_number(cell: str) -> bool:
    """Returns True for a number, and for an empty cell, which is read as NaN."""
    try:
        float(cell or "nan")
    except ValueError:
        return not cell.strip()
    return True


def numbered_like(
    class_names: tuple[str, ...] | None,
    labels: np.ndarray,
    names: tuple[str, ...] | None,
    flag: str,
) -> np.ndarray:
    """Returns the labels of a table with the numbers that its classes have in the training data.

    Args:
      class_names: The names of the classes of the training data; None if they are numbers.
      labels: The labels of another table, integers `[N]`.
      names: The names of its classes, likewise.
      flag: The flag that names its file, with its value.

    Raises:
      UserError: If a class is not among them.
    """
    if class_names == names:
        return labels
    if class_names is None or names is None:
        kinds = ["numbers" if names is None else "names" for names in (names, class_names)]
        raise UserError(
            f"{flag} has {kinds[0]} as labels, but the training data has {kinds[1]}",
            "use the labels of the training data",
        )
    if unknown := sorted(set(names).difference(class_names)):
        raise UserError(
            f"{flag} contains the class {shorten(unknown[0])!r}, which the training data lacks",
            f"use only {shorten(', '.join(class_names))}",
        )
    return np.array([class_names.index(name) for name in names])[labels]
