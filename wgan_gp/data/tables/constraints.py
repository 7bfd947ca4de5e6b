"""Constraints between the columns of a table, which all of its rows meet, and so do samples.

The networks see other columns in the place of those of a constraint, from which the columns of the
table follow: the difference of two numbers, and one category for a group of indicators.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...errors import UserError, shorten
from ...run_directory.schema import list_of
from ...run_directory.schema import text as is_text
from .find_types import find_types
from .types import UNITS, DateType, type_from_dict

if TYPE_CHECKING:
    import pandas as pd

_DECIMALS = 9  # of differences, whose last digits are rounding errors


@dataclasses.dataclass(frozen=True)
class Constraint(abc.ABC):
    """A constraint between columns.

    Attributes:
      columns: The names of the columns.
    """

    kind: ClassVar[str]

    columns: tuple[str, ...]

    def fitted(self, frame: pd.DataFrame, flag: str) -> Constraint:
        """Returns the constraint with what it has to know of the columns of a table."""
        return self

    @abc.abstractmethod
    def apply(self, frame: pd.DataFrame, flag: str) -> pd.DataFrame:
        """Returns rows with the columns that the networks see.

        Raises:
          UserError: If a row does not meet the constraint.
        """

    @abc.abstractmethod
    def invert(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Returns rows with the columns of the table, in any order."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON object that describes it; see `constraints_of`."""
        return {self.kind: list(self.columns)}

    def _check(self, meets: np.ndarray, flag: str) -> None:
        if not meets.all():
            names = ", ".join(shorten(name, 30) for name in self.columns)
            raise UserError(
                f"{flag}: {(~meets).sum()} of {len(meets)} rows, the first of them row "
                f"{int((~meets).argmax())}, do not meet the constraint {self.kind} of {names}",
                "correct the rows, or omit the constraint from --column_types",
            )


@dataclasses.dataclass(frozen=True)
class AtMost(Constraint):
    """The first number or date is at most the second one; neither is missing.

    Attributes:
      date: The type of both columns, if they contain dates.
    """

    kind = "at_most"

    date: DateType | None = None

    def fitted(self, frame: pd.DataFrame, flag: str) -> AtMost:
        types = find_types(frame[list(self.columns)], flag, {})
        dates = [kind for kind in types.values() if isinstance(kind, DateType)]
        if len(dates) < len(types):
            return self
        # The finer of the two units, so that both are whole numbers of it.
        return dataclasses.replace(self, date=min(dates, key=lambda kind: UNITS[kind.unit]))

    def apply(self, frame: pd.DataFrame, flag: str) -> pd.DataFrame:
        low, high = self.columns
        present = frame[[low, high]].notna().all(axis=1).to_numpy(bool)
        self._check(present, flag)
        try:
            first, second = self._numbers(frame[low]), self._numbers(frame[high])
            above = (second - first).round(_DECIMALS)
        except (TypeError, ValueError):
            raise UserError(
                f"{flag}: the columns {shorten(low)!r} and {shorten(high)!r} are no numbers, and "
                "no dates of one format",
                "convert them, or omit the constraint at_most from --column_types",
            ) from None
        self._check((above >= 0).to_numpy(bool), flag)
        return frame.assign(**{high: above})

    def invert(self, frame: pd.DataFrame) -> pd.DataFrame:
        low, high = self.columns
        second = (self._numbers(frame[low]) + frame[high]).round(_DECIMALS)
        if self.date is not None:
            second = self.date.to_series(second.to_numpy(np.int64), np.zeros([len(frame)], bool))
        return frame.assign(**{high: second})

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "date": None if self.date is None else self.date.to_dict()}

    def _numbers(self, series: pd.Series) -> pd.Series:
        import pandas as pd  # noqa: PLC0415

        if self.date is not None:
            return pd.Series(self.date.parse(series))
        return pd.to_numeric(series)


class OneOf(Constraint):
    """Exactly one of the columns, which are 0 or 1, or booleans, is 1."""

    kind = "one_of"

    @property
    def _name(self) -> str:
        return f"one of {', '.join(self.columns)}"

    def apply(self, frame: pd.DataFrame, flag: str) -> pd.DataFrame:
        values = frame[list(self.columns)]
        is_indicator = values.isin([0, 1]).all(axis=1) & (values.sum(axis=1) == 1)
        self._check(is_indicator.to_numpy(bool), flag)
        chosen = np.array(self.columns, object)[values.to_numpy(float).argmax(axis=1)]
        return frame.drop(columns=list(self.columns)).assign(**{self._name: chosen})

    def invert(self, frame: pd.DataFrame) -> pd.DataFrame:
        chosen = frame[self._name]
        found = {name: (chosen == name).to_numpy(np.int64) for name in self.columns}
        return frame.drop(columns=self._name).assign(**found)


_KINDS = (AtMost.kind, OneOf.kind)
_are_names = list_of(is_text, 2)


def constraints_of(given: Any) -> tuple[Constraint, ...]:
    """Returns the constraints that a list of JSON objects describes.

    Each object is {"at_most": [A, B]} or {"one_of": [A, B, ...]}; see `Constraint.to_dict`.

    Raises:
      ValueError: If it describes none. The message says which.
    """
    if not isinstance(given, list):
        raise ValueError("constraints are not a list")
    found: list[Constraint] = []
    for entry in given:
        kinds = [kind for kind in _KINDS if isinstance(entry, Mapping) and kind in entry]
        columns: Any = entry[kinds[0]] if kinds else None
        is_usable = _are_names(columns) and len(set(columns)) == len(columns)
        if not is_usable or (AtMost.kind in kinds and len(columns) != 2):
            raise ValueError(f"{shorten(repr(entry))} is no constraint")
        if kinds[0] == OneOf.kind:
            found.append(OneOf(tuple(columns)))
            continue
        date = entry.get("date")
        kind = None if date is None else type_from_dict(date)
        if not isinstance(kind, DateType | None):
            raise ValueError("a constraint of dates has no type of dates")
        found.append(AtMost(tuple(columns), kind))
    return tuple(found)


def check_columns(constraints: Sequence[Constraint], names: Sequence[str], flag: str) -> None:
    """Raises UserError if constraints name columns that a table lacks, or one twice."""
    used: set[str] = set()
    for name in (name for constraint in constraints for name in constraint.columns):
        if name not in names:
            raise UserError(
                f"--column_types has a constraint of the column {shorten(name)!r}, which {flag} "
                "lacks",
                f"give some of {shorten(', '.join(names), 300)}",
            )
        if name in used:
            raise UserError(
                f"--column_types has two constraints of the column {shorten(name)!r}", "omit one"
            )
        used.add(name)
