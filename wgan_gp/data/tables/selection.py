"""Conditions on the columns of a typed table, such as "job=nurse,age>40"."""

from __future__ import annotations

import csv
import dataclasses
import difflib
import math
import operator
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UserError, shorten
from .columns import Category
from .table import Table
from .types import (
    CategoryType,
    DateType,
    nanoseconds,
    native,
    parse_dates,
    zone_of,
)

if TYPE_CHECKING:
    import pandas as pd

_COMPARISONS = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION = re.compile(r"\s*(>=|<=|!=|=|>|<)\s*(.*)", re.DOTALL)
_REMEDY = 'give conditions such as "job=nurse,age>40"'


@dataclasses.dataclass(frozen=True)
class Condition:
    """A condition on a column.

    Attributes:
      column: The name of the column.
      comparison: A key of _COMPARISONS.
      value: The value, as in the table; None for a missing value.
    """

    column: str
    comparison: str
    value: Any


@dataclasses.dataclass(frozen=True)
class Selection:
    """Conditions that all hold for the rows that are selected.

    Attributes:
      table: The columns.
      conditions: The conditions.
    """

    table: Table
    conditions: tuple[Condition, ...]

    @classmethod
    def of(cls, given: str | Mapping[str, Any], table: Table, flag: str) -> Selection:
        """Returns the selection for a text, or for the values of some columns.

        Args:
          given: Conditions separated by commas, or values by column. A condition that contains a
            comma is in quotation marks, as in CSV files.
          table: The columns.
          flag: The name of the conditions for messages.

        Raises:
          UserError: If a condition cannot be read, or a column does not have such values.
        """
        if isinstance(given, Mapping):
            triples = [(str(name), "=", _text_of(value)) for name, value in given.items()]
        else:
            try:
                cells = next(csv.reader([given], skipinitialspace=True), [])
            except csv.Error:
                raise UserError(f"{flag} is no list of conditions", _REMEDY) from None
            triples = [_split(cell.strip(), table, flag) for cell in cells]
            if not triples:
                raise UserError(f"{flag} is no list of conditions", _REMEDY)
        return cls(table, tuple(_condition(table, flag, *triple) for triple in triples))

    @property
    def label(self) -> int | None:
        """The label of a conditional run that implies the first condition that has one, or None."""
        for condition in self.conditions:
            encoder, kind = _column(self.table, condition.column)
            value = condition.value
            is_given = condition.comparison == "=" and value is not None
            if is_given and isinstance(encoder, Category):
                if isinstance(kind, CategoryType) and kind.values is not None:
                    value = kind.values.index(value)
                return self.table.label_of(condition.column, value)
        return None

    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        """Returns whether the conditions hold for rows, `[N]` bool; not for missing values."""
        selected = np.ones([len(frame)], bool)
        for condition in self.conditions:
            series = frame[condition.column]
            present, value = series.notna().to_numpy(bool), condition.value
            if value is None:
                selected &= present if condition.comparison == "!=" else ~present
                continue
            values: Any = series[present]
            _, kind = _column(self.table, condition.column)
            if isinstance(kind, CategoryType) and kind.is_number:
                order = {each: place for place, each in enumerate(kind.values or ())}
                values, value = values.map(order).astype(int), order[value]
            elif isinstance(kind, CategoryType):
                values = values.astype(object)
            elif isinstance(kind, DateType):
                values, value = _dates(kind, values), _dates(kind, _series([value]))[0]
            found = np.zeros([len(frame)], bool)
            found[present] = _COMPARISONS[condition.comparison](np.asarray(values), value)
            selected &= found
        return selected


def _split(cell: str, table: Table, flag: str) -> tuple[str, str, str]:
    """Returns the column, the comparison and the value of a condition."""
    for name in sorted(table.names, key=len, reverse=True):  # a name may contain a comparison
        match = _CONDITION.fullmatch(cell[len(name) :]) if cell.startswith(name) else None
        if match:
            return name, match[1], match[2]
    found = re.fullmatch(r"(.+?)\s*(?:>=|<=|!=|=|>|<).*", cell, re.DOTALL)
    if found is None:
        raise UserError(f"{flag} is no list of conditions", _REMEDY)
    close = difflib.get_close_matches(found[1], table.names, n=1)
    raise UserError(
        f"{flag}: there is no column {shorten(found[1])!r}",
        f"did you mean {close[0]!r}?" if close else f"use {shorten(', '.join(table.names))}",
    )


def _condition(table: Table, flag: str, name: str, comparison: str, text: str) -> Condition:
    """Returns a condition whose value is one of its column."""
    text, is_equality = text.strip(), comparison in ("=", "!=")
    if name not in table.names:
        raise UserError(f"{flag}: there is no column {shorten(name)!r}", _REMEDY)
    if not text and is_equality:
        return Condition(name, comparison, None)
    encoder, kind = _column(table, name)
    if isinstance(kind, CategoryType):
        found = _category(flag, name, comparison, text, encoder, kind)
        if found is not None:
            return Condition(name, comparison, found)
    if isinstance(kind, DateType):
        try:
            _dates(kind, _series([text]))
        except (ValueError, TypeError, OverflowError):
            raise UserError(
                f"{flag}: {shorten(text)!r} is no date", "write it as in the data"
            ) from None
        return Condition(name, comparison, text)
    value = _number_of(text)
    if value is None:
        raise UserError(
            f"{flag}: {shorten(text)!r} is no number, which the column {shorten(name)!r} contains",
            _REMEDY,
        )
    return Condition(name, comparison, value)


def _category(
    flag: str, name: str, comparison: str, text: str, encoder: Any, kind: CategoryType
) -> Any:
    """Returns the value of a column of categories, or None for a number between them."""
    known = encoder.values if isinstance(encoder, Category) else [getattr(encoder, "value", 0)]
    known = known if kind.values is None else kind.values
    are_numbers = not any(isinstance(value, str | bool) for value in known)
    is_equality, is_ordered = comparison in ("=", "!="), kind.is_number
    if not (is_equality or are_numbers or is_ordered):
        raise UserError(
            f"{flag}: the values of the column {shorten(name)!r} have no order", "use = or !="
        )
    values = {str(value).strip(): value for value in known}
    if text in values:
        return values[text]
    number = _number_of(text) if are_numbers else None
    if number in known:
        return known[list(known).index(number)]
    if number is None or is_equality or is_ordered:
        raise UserError(
            f"{flag}: the column {shorten(name)!r} has no value {shorten(text)!r}",
            f"use one of {shorten(', '.join(values), 300)}",
        )
    return None


def _text_of(value: Any) -> str:
    """Returns a value as the text of a condition; that of a missing value is empty."""
    import pandas as pd  # noqa: PLC0415

    return "" if pd.api.types.is_scalar(value) and pd.isna(value) else str(native(value))


def _number_of(text: str) -> int | float | None:
    """Returns a finite number, exactly if it is an integer, or None."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _column(table: Table, name: str) -> tuple[Any, Any]:
    """Returns the encoder and the type of a column of the rows."""
    place = table.names.index(name)
    return table.encoders[place], table.types[place]


def _series(values: list[Any]) -> pd.Series:
    import pandas as pd  # noqa: PLC0415

    return pd.Series(values)


def _dates(kind: DateType, values: pd.Series) -> np.ndarray:
    """Returns dates, or texts of dates, as nanoseconds since 1970."""
    import pandas as pd  # noqa: PLC0415

    if kind.date_format is not None:
        values = parse_dates(values.astype(str), kind.date_format)
    elif not pd.api.types.is_datetime64_any_dtype(values.dtype):
        values = pd.Series(
            [_with_zone(pd.to_datetime(text, format="ISO8601"), kind) for text in values]
        )
    if values.isna().any():
        raise ValueError
    return nanoseconds(values)


def _with_zone(date: pd.Timestamp, kind: DateType) -> pd.Timestamp:
    """Returns a date in UTC, or without a zone, as the column has it."""
    zone = zone_of(kind.dtype)
    if not zone:
        return date
    return (date.tz_localize(zone) if date.tz is None else date).tz_convert("UTC")
