"""The columns of a table that flags name: --drop_columns, --label_column, --condition_columns."""

from __future__ import annotations

import csv
import functools
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..config import DataSettings
from ..errors import UserError, shorten
from .sources.labels import LABEL_NAMES

if TYPE_CHECKING:
    import pandas as pd

NO_COLUMN = "none"  # the value of --label_column for a table whose columns are all features


class ColumnUse(NamedTuple):
    """The use of the columns of a table, by their names.

    Attributes:
      features: The columns that are features.
      label: The column of the labels, or None.
      conditions: The columns that are conditions.
      notes: What was left out, in a few words each.
    """

    features: tuple[str, ...]
    label: str | None
    conditions: tuple[str, ...]
    notes: tuple[str, ...]


def find_use(
    frame: pd.DataFrame, flag: str, settings: DataSettings, *, required: bool = True
) -> ColumnUse:
    """Returns the use of the columns of a table of `frames.read_frame` or `frames.plain_frame`.

    Flags name columns in any case, and those of a table without names by their numbers from 1. The
    labels are in a column with one of LABEL_NAMES if no flag says otherwise.

    Args:
      frame: The table. Its index is no column.
      flag: The flag of the table and its value, for messages.
      settings: The settings that name columns.
      required: Whether the table must have these columns.

    Raises:
      UserError: If it lacks one of them, or no features are left.
    """
    index = [str(name) for name in frame.index.names if name is not None]
    find = functools.partial(_find, frame, flag, index if required else None)

    def find_all(setting: str, value: str | None) -> list[str]:
        names = next(csv.reader([value or ""], skipinitialspace=True), [])
        return [each for name in names for each in find(setting, value, name.strip())]

    dropped = find_all("drop_columns", settings.drop_columns)
    conditions = find_all("condition_columns", settings.condition_columns)
    value, others = settings.label_column, {*dropped, *conditions}
    if value is None:
        labels = [each for each in frame if each.lower() in LABEL_NAMES and each not in others]
    else:
        is_none = value.lower() == NO_COLUMN and value not in frame
        labels = [] if is_none else find("label_column", value, value.strip())
    if len(labels) > 1:
        raise UserError(
            f"{flag} has several columns of labels: {shorten(', '.join(labels))}",
            "choose one with --label_column, and leave the others out with --drop_columns",
        )
    if others & {*labels}:
        raise UserError(
            f"--label_column={value} names a column that another flag names, too", "name it once"
        )
    if labels and conditions:
        raise UserError(
            f"{flag} has labels in column {labels[0]}, but --condition_columns="
            f"{settings.condition_columns} asks for conditions",
            f"add {flag_of('drop_columns', labels[0])}, or omit --condition_columns: a run has "
            "classes or conditions",
        )
    features = tuple(each for each in frame if each not in (*others, *labels))
    if not features:
        raise UserError(f"{flag} has no columns of features", "leave some columns")
    notes = tuple(f"without the index {shorten(name)}" for name in index)
    return ColumnUse(features, next(iter(labels), None), tuple(conditions), notes)


def refuse_columns(flag: str, settings: DataSettings) -> None:
    """Raises UserError if the settings name columns, but the data is not a table."""
    for name in ("label_column", "drop_columns", "condition_columns", "column_types"):
        if (value := getattr(settings, name)) not in (None, "auto"):
            raise UserError(f"--{name}={value}, but {flag} is not a table", "omit it")


def _find(
    frame: pd.DataFrame,
    flag: str,
    index: Sequence[str] | None,
    setting: str,
    value: str | None,
    name: str,
) -> list[str]:
    """Returns the columns of a name in the value of a setting.

    Args:
      frame, flag: See `find_use`.
      index: The names of the index; None if the column may be missing.
      setting, value: The flag that names the column, and its value.
      name: The name.
    """
    if name in frame:
        return [name]
    found = [each for each in frame if each.lower() in (name.lower(), f"column {name}")]
    if found or index is None:
        return found
    if name in index:
        raise UserError(
            f"--{setting}={value}: {shorten(name)!r} is the index of {flag}, not a column",
            "make it a column with reset_index() of pandas",
        )
    raise UserError(
        f"--{setting}={value}: {flag} has no column {shorten(name)!r}",
        f"give some of {shorten(', '.join(frame), 300)}",
    )


def flag_of(flag: str, *names: str) -> str:
    """Returns a flag with the names of columns, as a shell takes it: in quotes, if necessary."""
    quoted = (f'"{name}"' if "," in name else name for name in names)
    return shlex.quote(f"--{flag}={','.join(quoted)}")
