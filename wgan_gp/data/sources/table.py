"""Tables as a source: rows of numbers, categories and dates, in files or DataFrames."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ...config import DataSettings
from ...errors import UserError, reason, shorten
from ..column_flags import find_use
from ..frames import Frame, read_frame
from ..scaling.conditions import Conditions
from ..source import Source, balanced_size, is_held_out
from ..spec import DataSpec
from ..tables.kinds import is_of_kind
from ..tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

_TEXTS = ("object", "str", "string")  # the types of columns of texts in pandas
AUTO = "auto"  # the value of --column_types without a file


def find_source(
    path: str, origin: str, settings: DataSettings, like: DataSpec | None = None
) -> Source:
    """Finds the table of a file, a folder or a pattern; see `source_of`."""
    read = functools.partial(read_frame, path, origin)
    texts = frozenset() if like is None or like.table is None else like.table.texts
    return source_of(read(texts), settings, origin, like, read)


def source_of(
    given: Frame,
    settings: DataSettings,
    origin: str,
    like: DataSpec | None = None,
    read: Callable[..., Frame] | None = None,
) -> Source:
    """Returns the source of a table.

    Args:
      given: The table.
      settings: The settings of the data.
      origin: The name of the data for messages.
      like: The training data, whose columns map rows to features; None for those of these rows.
      read: Reads the file again, with texts in the columns of these names; None without a file.

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
    kinds = read_column_types(settings.column_types)
    if like is None or like.table is None:
        own = {name: kind for name, kind in kinds.items() if name not in use.conditions}
        table = Table.of(rows, origin, own, target=use.label, trained_on=trained_on)
    else:
        table = like.table
        _check_kinds(table, kinds, settings, use.conditions)
        others = {name for name, dtype in rows.dtypes.items() if str(dtype) not in _TEXTS}
        if read is not None and table.texts & others:
            # Such as the grades 9 to 12, if "other" is only in the training data.
            return source_of(read(table.texts), settings, origin, like)
        # Held-out rows of the same table have much the same range.
        table.warn_of_range(rows[trained_on], origin)
    conditions = values = None
    if use.conditions:
        chosen = frame[list(use.conditions)]
        if like is None or like.conditions is None or like.conditions.columns is None:
            conditions, values = Conditions.of_columns(chosen, origin, kinds, trained_on)
        else:
            values = like.conditions.checked(chosen, origin)
            own_values = Conditions.of(values[trained_on], origin)
            conditions = own_values.scaled_like(like.conditions, origin)
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
        like=lambda spec: source_of(given, settings, origin, spec, read),
        balanced=functools.partial(_balanced, table) if class_names else None,
        columns=given.labels[[list(frame).index(name) for name in (*rows, *use.conditions)]],
    )
    return source


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


def _check_kinds(
    table: Table, kinds: Mapping[str, Any], settings: DataSettings, conditions: Sequence[str]
) -> None:
    """Raises UserError if --column_types gives other types than a table has."""
    columns = {column.name: column for column in table.columns}
    kinds = {name: kind for name, kind in kinds.items() if name not in conditions}
    other = [name for name, kind in kinds.items() if not is_of_kind(columns.get(name), kind)]
    if other:
        raise UserError(
            f"--column_types={settings.column_types} gives types to "
            f"{shorten(', '.join(map(repr, other)))} that the run did not have at its beginning",
            "give the file of its beginning, or use another --model_dir",
        )


def read_column_types(value: str | None) -> Mapping[str, Any]:
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
