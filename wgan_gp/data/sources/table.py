"""Tables as a source: rows of numbers, categories and dates, in files or DataFrames."""

from __future__ import annotations

import csv
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...config import COLUMN_SETTINGS, DataSettings
from ...errors import UserError, reason, shorten
from ..column_kinds import flag_of
from ..conditions import Conditions
from ..frames import Frame, read_frame
from ..source import Source, balanced_size, is_held_out
from ..spec import DataSpec
from ..table import Table
from .labels import LABEL_NAMES

if TYPE_CHECKING:
    import pandas as pd

_TEXTS = ("object", "str", "string")  # the types of columns of texts in pandas
NO_COLUMN = "none"  # the value of --label_column for a table whose columns are all features
AUTO = "auto"  # the value of --column_types without a file


def find_source(
    path: str, origin: str, settings: DataSettings, like: DataSpec | None = None
) -> Source:
    """Finds the table of a file, a folder or a pattern; see `source_of`."""
    texts = frozenset() if like is None or like.table is None else like.table.texts
    given = read_frame(path, origin, texts)

    def alike(spec: DataSpec) -> Source:
        types = given.frame.dtypes.items()
        others = {name for name, dtype in types if str(dtype) not in _TEXTS}
        if spec.table is not None and spec.table.texts & others:
            # Such as the grades 9 to 12, if "other" is only in the training data.
            return find_source(path, origin, settings, spec)
        return source_of(given, settings, origin, spec)

    return dataclasses.replace(source_of(given, settings, origin, like), like=alike)


def source_of(
    given: Frame,
    settings: DataSettings,
    origin: str,
    like: DataSpec | None = None,
) -> Source:
    """Returns the source of a table.

    Args:
      given: The table.
      settings: The settings of the data.
      origin: The name of the data for messages.
      like: The training data, whose columns map rows to features; None for those of these rows.

    Raises:
      UserError: If the table cannot be trained on, or is not like the training data.
    """
    use = find_use(given.frame, origin, settings)
    frame = given.frame.reset_index(drop=True)
    kept = {*use.features, use.label}
    rows = frame[[name for name in frame if name in kept]]
    if not len(rows):
        raise UserError(f"{origin} contains no examples", "give a row for each example")
    trained_on = ~is_held_out(len(rows), settings.holdout)
    kinds = _read_column_types(settings.column_types)
    own = {name: kind for name, kind in kinds.items() if name not in use.conditions}
    if like is None or like.table is None:
        table = Table.of(rows, origin, own, target=use.label, trained_on=trained_on)
    else:
        table = like.table
        _check_kinds(table, own, settings)
        # Held-out rows of the same table have much the same range.
        table.warn_of_range(rows[trained_on], origin)
    conditions = values = None
    if use.conditions:
        known = None if like is None else like.conditions
        conditions, values = _conditions_of(
            frame[list(use.conditions)], origin, kinds, trained_on, known
        )
    class_names = None if use.conditions else table.label_names or None

    def decode(_: Any) -> Source:
        examples = table.encode(rows, origin, settings.seed)
        labels = None if values is None or conditions is None else conditions.standardize(values)
        if class_names:
            labels = table.labels_of(examples)
        return dataclasses.replace(source, read=examples.__getitem__, labels=labels)

    source = Source(
        origin,
        DataSpec(
            (table.size,),
            len(class_names or ()),
            False,
            conditions,
            class_names,
            table=table,
            types=given.types if like is None else like.types,
        ),
        np.float32,
        len(rows),
        decode=decode,
        count=lambda _: len(rows),
        identity=functools.partial(_identity, frame),
        notes=(*given.notes, *use.notes),
        like=functools.partial(source_of, given, settings, origin),
        balanced=functools.partial(_balanced, table) if class_names else None,
        columns=given.labels[[list(frame).index(name) for name in (*rows, *use.conditions)]],
    )
    return source


def _conditions_of(
    frame: pd.DataFrame,
    origin: str,
    kinds: Mapping[str, Any],
    trained_on: np.ndarray,
    like: Conditions | None,
) -> tuple[Conditions, np.ndarray]:
    """Returns the distribution of columns that are conditions, and their features."""
    if like is None or like.columns is None:
        return Conditions.of_columns(frame, origin, kinds, trained_on)
    values = like.checked(frame, origin)
    return Conditions.of(values[trained_on], origin).scaled_like(like, origin), values


def _balanced(table: Table, examples: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows on which a conditional run trains, with their labels.

    Rare categories are frequent among them: labels are drawn by `Table.draw_labels`, and a row for
    each (training by sampling, arXiv:1907.00503, section 4.3).
    """
    labels = table.draw_labels(balanced_size(len(examples)), seed, is_balanced=True)
    return table.draw_rows(examples, labels, seed), labels


def _identity(frame: pd.DataFrame) -> dict[str, Any]:
    content = hashlib.sha256(frame.to_csv(index=False).encode())
    return {"examples": len(frame), "content": content.hexdigest()}


def _check_kinds(table: Table, kinds: Mapping[str, Any], settings: DataSettings) -> None:
    """Raises UserError if --column_types gives other types than a table has."""
    columns = {column.name: column for column in table.columns}
    other = [name for name in kinds if name not in columns or not columns[name].is_of(kinds[name])]
    if other:
        raise UserError(
            f"--column_types={settings.column_types} gives types to "
            f"{shorten(', '.join(map(repr, other)))} that the run did not have at its beginning",
            "give the file of its beginning, or use another --model_dir",
        )


def _read_column_types(value: str | None) -> Mapping[str, Any]:
    """Returns the kinds of columns, by name, in the file of --column_types.

    Raises:
      UserError: If it cannot be read.
    """
    if value in (None, AUTO):
        return {}
    flag = f"--column_types={shorten(str(value))}"
    try:
        with tf.io.gfile.GFile(str(value), "r") as file:
            content = json.loads(file.read())
    except (tf.errors.OpError, OSError) as error:
        raise UserError(f"{flag} cannot be read ({reason(error)})", "check the path") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{flag} is no JSON file ({reason(error)})", "correct it") from None
    columns = content.get("columns", {}) if isinstance(content, dict) else None
    if not isinstance(columns, dict) or not set(content) <= {"columns"}:
        raise UserError(
            f"{flag} does not contain columns alone", 'write {"columns": {"COLUMN": "TYPE"}}'
        )
    return columns


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


def find_use(frame: pd.DataFrame, flag: str, settings: DataSettings) -> ColumnUse:
    """Returns the use of the columns of a table of `frames.read_frame` or `frames.plain_frame`.

    Flags name columns in any case, and those of a table without names by their numbers from 1. The
    labels are in a column with one of LABEL_NAMES if no flag says otherwise.

    Args:
      frame: The table. Its index is no column.
      flag: The flag of the table and its value, for messages.
      settings: The settings that name columns.

    Raises:
      UserError: If it lacks one of them, or no features are left.
    """
    index = [str(name) for name in frame.index.names if name is not None]
    find = functools.partial(_find, frame, flag, index)

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
    for name in COLUMN_SETTINGS:
        if (value := getattr(settings, name)) != getattr(DataSettings, name):
            raise UserError(f"--{name}={value}, but {flag} is not a table", "omit it")


def _find(
    frame: pd.DataFrame,
    flag: str,
    index: Sequence[str],
    setting: str,
    value: str | None,
    name: str,
) -> list[str]:
    """Returns the columns of a name in the value of a setting.

    Args:
      frame, flag: See `find_use`.
      index: The names of the index.
      setting, value: The flag that names the column, and its value.
      name: The name.
    """
    if name in frame:
        return [name]
    found = [each for each in frame if each.lower() in (name.lower(), f"column {name}")]
    if found:
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
