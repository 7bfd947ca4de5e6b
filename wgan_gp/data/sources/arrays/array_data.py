"""The content of a file of arrays, or of a table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .npy_files import Rows


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
      label_of_class: A label in a table by the name of its class, or None.
      left_out: The number of rows of a table that were left out because they have no label.
      rows: `[N]`, the rows of the table that the examples are; None if none was left out.
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
    label_of_class: dict[str, Any] | None = None
    left_out: int = 0
    rows: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    is_table: bool = False
