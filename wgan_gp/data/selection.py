"""Conditions on the columns of a typed table, such as "job=nurse,age>40"."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import difflib
import itertools
import math
import operator
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UserError, shorten
from .columns import UNITS, Column, nanoseconds, native, parse_dates
from .table import Table

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
      column: The column.
      comparison: A key of _COMPARISONS.
      value: The value, as in the table; None for a missing value.
    """

    column: Column
    comparison: str
    value: Any

    def holds(self, series: pd.Series) -> np.ndarray:
        """Returns whether the condition holds for values of its column, `[N]` bool."""
        present, column, value = series.notna().to_numpy(bool), self.column, self.value
        if value is None:
            return present if self.comparison == "!=" else ~present
        values: Any = series[present]
        if column.kind == "ordered":
            order = {each: place for place, each in enumerate(column.categories or ())}
            values, value = values.map(order).astype(int), order[value]
        elif column.kind == "category":
            values = values.astype(object)
        elif column.kind == "date":
            values, value = nanoseconds(column.dates(values)), _date(column, value)
        found = np.zeros([len(series)], bool)
        found[present] = _COMPARISONS[self.comparison](np.asarray(values), value)
        return found

    def keys_near(self) -> list[int | float]:
        """Returns the keys of a number that are next to the value, in the range of the column."""
        column, value = self.column, self.value
        low, *_, high = column.values
        if value is None:
            return []
        if column.kind == "date":
            value = _date(column, value) // UNITS[column.unit]
        elif column.categories is not None:
            value = column.categories.index(value)
        elif column.kind == "integer" and column.dtype.lower() == "uint64":
            value -= 2**63
        elif column.decimals:
            value *= 10**column.decimals
        value = min(max(value, low), high)
        if isinstance(low, float):
            return [value, min(math.nextafter(value, math.inf), high)]
        # The time zone of days, or rounding, may change the next one.
        return [min(max(math.floor(value) + step, low), high) for step in range(-2, 3)]


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
        found = cls(table, tuple(_condition(table, flag, *triple) for triple in triples))
        for column in table.columns:
            if not found._is_possible(column):
                raise UserError(
                    f"{flag}: no sample has a value of {shorten(column.name)!r} that meets the "
                    "conditions",
                    f"the column contains {column.describe()}",
                )
        return found

    def _is_possible(self, column: Column) -> bool:
        """Returns whether a value of a column meets all conditions on it.

        If a number does, then so does a knot, or a number that is next to the value of a condition.
        """
        given = [each for each in self.conditions if each.column.name == column.name]
        keys: list[Any] = list(column.values)
        if column.is_number:
            near = itertools.chain(*(each.keys_near() for each in given))
            keys += filter(column.has_key, near)
        missing = np.arange(len(keys) + 1) == len(keys)
        known = column.to_series(np.array([*keys, 0], object), missing)
        known = known[: len(keys) + column.has_missing]
        return bool(np.logical_and.reduce([each.holds(known) for each in given], axis=0).any())

    @property
    def label(self) -> int | None:
        """The label of a conditional run that implies the first condition that has one, or None."""
        for condition in self.conditions:
            column, value = condition.column, condition.value
            if condition.comparison == "=" and value is not None and not column.is_number:
                if column.categories is not None:
                    value = column.categories.index(value)
                return self.table.label_of(column.name, value)
        return None

    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        """Returns whether the conditions hold for rows, `[N]` bool; not for missing values."""
        found = [condition.holds(frame[condition.column.name]) for condition in self.conditions]
        return np.logical_and.reduce([np.ones([len(frame)], bool), *found])


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
    column = table.columns[table.names.index(name)]
    if not text and is_equality:
        return Condition(column, comparison, None)
    if column.kind in ("category", "ordered"):
        found = _category(flag, comparison, text, column)
        if found is not None:
            return Condition(column, comparison, found)
    if column.kind == "date":
        try:
            _date(column, text)
        except (ValueError, TypeError, OverflowError):
            raise UserError(
                f"{flag}: {shorten(text)!r} is no date", "write it as in the data"
            ) from None
        return Condition(column, comparison, text)
    value = _number_of(text)
    if value is None:
        raise UserError(
            f"{flag}: {shorten(text)!r} is no number, which the column {shorten(name)!r} contains",
            _REMEDY,
        )
    return Condition(column, comparison, value)


def _category(flag: str, comparison: str, text: str, column: Column) -> Any:
    """Returns the value of a column of categories, or None for a number between them."""
    name, known = column.name, column.categories or column.values
    are_numbers = not any(isinstance(value, str | bool) for value in known)
    is_equality, is_ordered = comparison in ("=", "!="), column.kind == "ordered"
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
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            value = kind(text)
            return value if isinstance(value, int) or math.isfinite(value) else None
    return None


def _date(column: Column, text: str) -> int:
    """Returns a date of a condition as nanoseconds since 1970."""
    import pandas as pd  # noqa: PLC0415

    if column.date_format is not None:
        date = parse_dates(pd.Series([text]), column.date_format)[0]
    else:
        date = pd.to_datetime(text, format="ISO8601")
        if column.zone:
            date = date.tz_localize(column.zone) if date.tz is None else date
            date = date.tz_convert("UTC")
    if pd.isna(date):
        raise ValueError
    return int(nanoseconds(pd.Series([date]))[0])
