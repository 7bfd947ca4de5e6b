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
from ...run_directory.schema import list_of, number
from ...run_directory.schema import text as is_text
from .find_types import find_types
from .types import UNITS, ColumnType, DateType, IntegerType, RealType, type_from_dict

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class Constraint(abc.ABC):
    """A constraint between columns.

    Attributes:
      columns: The names of the columns.
    """

    kind: ClassVar[str]

    columns: tuple[str, ...]

    def fitted(self, frame: pd.DataFrame, flag: str, trained_on: np.ndarray) -> Constraint:
        """Returns the constraint with what it has to know of the columns of a table.

        Args:
          frame: The rows, `[N, K]`.
          flag: The name of the data, for messages.
          trained_on: `[N]` bool, the rows whose numbers may be used.
        """
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

    @property
    def is_fitted(self) -> bool:
        """Is True if `apply` and `invert` can be called."""
        return True

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON object that describes it; see `constraints_of`."""
        return {self.kind: list(self.columns)}

    def _check(self, meets: np.ndarray, flag: str, what: str = "do not meet") -> None:
        if not meets.all():
            names = ", ".join(shorten(name, 30) for name in self.columns)
            raise UserError(
                f"{flag}: {(~meets).sum()} of {len(meets)} rows, the first of them row "
                f"{int((~meets).argmax())}, {what} the constraint {self.kind} of {names}",
                "correct the rows, or omit the constraint from --column_types",
            )


@dataclasses.dataclass(frozen=True)
class AtMost(Constraint):
    """The first number or date is at most the second one; neither is missing.

    Attributes:
      type: The finer type of both columns, in whose units they are compared.
      second: The type of the second column.
      smallest, largest: The range of the second column, which samples do not leave: integers unless
        `type` is one of real numbers without decimals.
    """

    kind = "at_most"

    type: ColumnType | None = None
    second: ColumnType | None = None
    smallest: float | None = None
    largest: float | None = None

    @property
    def is_fitted(self) -> bool:
        return self.type is not None

    def fitted(self, frame: pd.DataFrame, flag: str, trained_on: np.ndarray) -> AtMost:
        low, high = self.columns
        types = find_types(frame[[low, high]], flag, {}, are_numbers=True)
        if len({_form(kind) for kind in types.values()}) > 1 or None in map(_form, types.values()):
            raise UserError(
                f"{flag}: the columns {shorten(low)!r} and {shorten(high)!r} are not both numbers, "
                "or both dates of one format",
                "convert them, or omit the constraint at_most from --column_types",
            )
        # The finer of two types of dates or decimals, so that it holds the values of both.
        kind = max(types.values(), key=_fineness)
        fitted = dataclasses.replace(self, type=kind, second=types[high])
        self._check_present(frame, flag)
        values = fitted._values(frame[trained_on], high)
        return dataclasses.replace(
            fitted, smallest=values.min().item(), largest=values.max().item()
        )

    def apply(self, frame: pd.DataFrame, flag: str) -> pd.DataFrame:
        low, high = self.columns
        self._check_present(frame, flag)
        try:
            first, second = self._values(frame, low), self._values(frame, high)
        except (TypeError, ValueError, OverflowError):
            raise UserError(
                f"{flag}: the columns {shorten(low)!r} and {shorten(high)!r} have other types than "
                "in the training data",
                "correct them",
            ) from None
        self._check(first <= second, flag)
        above = second - first
        if (above < 0).any():  # beyond int64
            raise UserError(
                f"{flag}: the differences of {shorten(low)!r} and {shorten(high)!r} are too large",
                "omit the constraint at_most from --column_types",
            )
        return frame.assign(**{high: above})

    def invert(self, frame: pd.DataFrame) -> pd.DataFrame:
        low, high = self.columns
        first = self._values(frame, low)
        above = frame[high].to_numpy(first.dtype)
        assert self.type is not None, "the constraint is fitted"
        assert self.smallest is not None and self.largest is not None, "the constraint is fitted"
        # The comparison is exact, and has no overflow.
        second = np.where(above >= self.largest - first, self.largest, first + above)
        second = np.maximum(second.astype(first.dtype), self.smallest)
        second = np.minimum(self._on_grid(second, first), self.largest).astype(first.dtype)
        return frame.assign(**{high: self.type.to_series(second, np.zeros([len(frame)], bool))})

    def _on_grid(self, values: np.ndarray, least: np.ndarray) -> np.ndarray:
        """Returns values that the second column can have, which are not less than `least`."""
        fine, own = self.type, self.second
        if isinstance(fine, DateType) and isinstance(own, DateType):
            return values if fine.unit == own.unit else self._next_dates(values)
        places = _decimals(own)
        if places is None:
            return values
        if (finest := _decimals(fine)) is not None:
            step = 10 ** (finest - places)
            return -(-values // step) * step
        nearest = np.round(values, places)  # real numbers are not exact
        return np.where(nearest < least, np.round(nearest + 10.0**-places, places), nearest)

    def _next_dates(self, values: np.ndarray) -> np.ndarray:
        """Returns the first dates of the second column's unit that are not before `values`.

        The types convert, because days are those of a time zone, which are not 24 hours of UTC.
        """
        fine, own = self.type, self.second
        assert fine is not None and own is not None, "the constraint is fitted"
        none_missing = np.zeros([len(values)], bool)

        def dates(units: np.ndarray) -> np.ndarray:
            return fine.parse(own.to_series(units, none_missing))

        units = own.parse(fine.to_series(values, none_missing).astype(own.dtype))
        return np.where(dates(units) < values, dates(units + 1), values)

    def _check_present(self, frame: pd.DataFrame, flag: str) -> None:
        present = frame[list(self.columns)].notna().all(axis=1).to_numpy(bool)
        self._check(present, flag, "have missing values, against")

    def to_dict(self) -> dict[str, Any]:
        types = {
            name: None if kind is None else kind.to_dict()
            for name, kind in (("type", self.type), ("second", self.second))
        }
        limits = {"smallest": self.smallest, "largest": self.largest}
        return {**super().to_dict(), **types, **limits}

    def _values(self, frame: pd.DataFrame, name: str) -> np.ndarray:
        """Returns a column as numbers, int64 or float64."""
        assert self.type is not None, "the constraint is fitted"
        return self.type.parse(frame[name])


def _form(kind: ColumnType) -> tuple[Any, ...] | None:
    """Returns what two columns must have in common to be compared, or None for other types."""
    if isinstance(kind, DateType):
        return ("date", kind.date_format, ", " in kind.dtype)
    return ("number",) if isinstance(kind, IntegerType | RealType) else None


def _decimals(kind: ColumnType | None) -> int | None:
    """Returns the number of decimals of numbers, or None for more than can be kept."""
    return kind.decimals if isinstance(kind, RealType) else 0


def _fineness(kind: ColumnType) -> float:
    if isinstance(kind, DateType):
        return -UNITS[kind.unit]
    if isinstance(kind, RealType):
        return 1 + (float("inf") if kind.decimals is None else kind.decimals)
    return 0


class OneOf(Constraint):
    """Exactly one of the columns, which are 0 or 1, or booleans, is 1."""

    kind = "one_of"

    @property
    def name(self) -> str:
        """The name of the column of the category that stands for the others."""
        return f"one of {', '.join(self.columns)}"

    def apply(self, frame: pd.DataFrame, flag: str) -> pd.DataFrame:
        values = frame[list(self.columns)]
        is_indicator = values.isin([0, 1]).all(axis=1)
        self._check(is_indicator.to_numpy(bool), flag)
        self._check((values.astype(int).sum(axis=1) == 1).to_numpy(bool), flag)
        chosen = np.array(self.columns, object)[values.to_numpy(float).argmax(axis=1)]
        return frame.drop(columns=list(self.columns)).assign(**{self.name: chosen})

    def invert(self, frame: pd.DataFrame) -> pd.DataFrame:
        chosen = frame[self.name]
        found = {name: (chosen == name).to_numpy(np.int64) for name in self.columns}
        return frame.drop(columns=self.name).assign(**found)


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
        columns: Any = entry[kinds[0]] if len(kinds) == 1 else None
        is_usable = _are_names(columns) and len(set(columns)) == len(columns)
        if not is_usable or (AtMost.kind in kinds and len(columns) != 2):
            raise ValueError(f"{shorten(repr(entry))} is no constraint")
        is_one_of = kinds[0] == OneOf.kind
        found.append(OneOf(tuple(columns)) if is_one_of else _at_most(tuple(columns), entry))
    return tuple(found)


def _at_most(columns: tuple[str, ...], entry: Mapping[str, Any]) -> AtMost:
    given: list[Any] = [entry.get(name) for name in ("type", "second", "smallest", "largest")]
    if given == [None] * 4:
        return AtMost(columns)
    kind, second = map(type_from_dict, given[:2])
    smallest, largest = given[2:]
    forms = {_form(kind), _form(second)}
    if None in forms or len(forms) > 1 or not all(map(number(), (smallest, largest))):
        raise ValueError("a constraint has other types, or no range")
    if _fineness(second) > _fineness(kind) or smallest > largest:
        raise ValueError("the types or the range of a constraint do not fit")
    return AtMost(columns, kind, second, smallest, largest)


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
