"""A typed table: a DataFrame of numbers, categories and dates as examples `[N, D]`, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UserError, shorten
from ...run_directory.schema import list_of, object_of, optional
from ...run_directory.schema import text as is_text
from . import columns
from .association import associations
from .columns import MOST_CATEGORIES, Category, Constant, Encoder, Number
from .find_types import find_types
from .types import ColumnType, type_from_dict

if TYPE_CHECKING:
    import pandas as pd

_MOST_COLUMNS = 2**12


@dataclasses.dataclass(frozen=True)
class Table:
    """Maps the rows of a table to examples `[N, D]`, and samples to rows of the same types.

    Attributes:
      names: The names of the columns, all different.
      types: The types of the columns.
      encoders: The columns as features.
      target: The column that others are used to predict, for judging; None if none is named.
    """

    names: tuple[str, ...]
    types: tuple[ColumnType, ...]
    encoders: tuple[Encoder, ...]
    target: str | None = None

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        flag: str,
        given: Mapping[str, Any] | None = None,
        target: str | None = None,
        trained_on: np.ndarray | None = None,
    ) -> Table:
        """Returns the table for the columns of a DataFrame.

        Args:
          frame: The rows, whose columns have different names.
          flag: The name of the data, for messages.
          given: The types that the user gives, by column; see `find_types`.
          target: See `Table`.
          trained_on: `[N]` bool, the rows whose numbers determine levels; None for all. Categories
            and the types are those of all rows.

        Raises:
          UserError: If a column has no usable type.
        """
        types = find_types(frame, flag, given or {})
        encoders = []
        for name, kind in types.items():
            values, missing = kind.to_values(frame[name], name, flag)
            used = ~missing if trained_on is None else ~missing & trained_on
            encoders.append(_encoder(kind, values[~missing], values[used], bool(missing.any())))
        table = cls(tuple(types), tuple(types.values()), tuple(encoders), target)
        if not table.size:
            raise UserError(f"{flag} is constant in all columns", "give data that vary")
        return table

    @property
    def size(self) -> int:
        """The number of features D of an example."""
        return sum(encoder.size for encoder in self.encoders)

    @property
    def one_hot(self) -> tuple[tuple[int, int], ...]:
        """The one-hot features, as pairs of the first one and their number."""
        return tuple(
            (begin + first, count)
            for begin, encoder in self._parts()
            for first, count in encoder.groups
        )

    @property
    def masked(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a feature that is 0 unless another one is 1, and that other one."""
        return tuple(
            (begin + feature, begin + present)
            for begin, encoder in self._parts()
            for feature, present in encoder.masked
        )

    @property
    def noise_size(self) -> int:
        """The number of random numbers that the generator needs for one-hot features."""
        return sum(count for _, count in self.one_hot)

    def _parts(self) -> list[tuple[int, Encoder]]:
        """Returns the columns, each with its first feature."""
        sizes = [encoder.size for encoder in self.encoders]
        begins = np.cumsum([0, *sizes[:-1]]).tolist()
        return list(zip(begins, self.encoders, strict=True))

    def encode(self, frame: pd.DataFrame, flag: str = "the table", seed: int = 0) -> np.ndarray:
        """Returns rows as examples, `[N, D]` float32.

        Args:
          frame: The rows, with the columns of this table in any order.
          flag: The name of the data, for messages.
          seed: Selects the places of values in their intervals of levels.

        Raises:
          UserError: If a column is missing, or has values of another type, or other categories.
        """
        if lacking := [name for name in self.names if name not in frame]:
            raise UserError(
                f"{flag} lacks the column {shorten(lacking[0])!r}",
                f"give the columns {shorten(', '.join(self.names), 300)}",
            )
        places = np.random.default_rng(seed).random([len(self.names), len(frame)])
        parts = [np.zeros([len(frame), 0], np.float32)]
        columns_of = zip(self.names, self.types, self.encoders, places, strict=True)
        for name, kind, encoder, place in columns_of:
            values, missing = kind.to_values(frame[name], name, flag)
            features = encoder.encode(values, missing, place)
            if isinstance(encoder, Category) and (unknown := features.sum(axis=1) == 0).any():
                index = int(unknown.argmax())
                what = "a missing value" if missing[index] else repr(values[index])
                raise UserError(
                    f"{flag} has {shorten(what)} in {shorten(name)!r}, which the training data "
                    f"lacks, in {unknown.sum()} of {len(frame)} rows",
                    "leave these rows out, or train on data that contain it",
                )
            if isinstance(encoder, Number) and missing.any() and not encoder.has_missing:
                raise UserError(
                    f"{flag} has missing values in {shorten(name)!r}, where the training data has "
                    "none",
                    "leave these rows out",
                )
            parts.append(features)
        return np.concatenate(parts, axis=1)

    def restore(self, examples: np.ndarray) -> pd.DataFrame:
        """Returns rows with the names, types and values of the data.

        Args:
          examples: `[N, D]`, outputs of the generator.
        """
        import pandas as pd  # noqa: PLC0415

        found = {}
        parts = zip(self.names, self.types, self._parts(), strict=True)
        for name, kind, (begin, encoder) in parts:
            values, missing = encoder.decode(examples[:, begin : begin + encoder.size])
            found[name] = kind.to_series(values, missing)
        return pd.DataFrame(found)

    def numbers(self, examples: np.ndarray) -> np.ndarray:
        """Returns rows as numbers for plots, `[N, K]` float64, with NaN for missing values.

        A category is its place among the values of its column, and a date the number of its units.

        Args:
          examples: `[N, D]`, as for `restore`.
        """
        found = []
        for begin, encoder in self._parts():
            features = examples[:, begin : begin + encoder.size]
            if isinstance(encoder, Category):
                values, missing = features.argmax(axis=1), encoder.decode(features)[1]
            elif isinstance(encoder, Constant):
                values, missing = np.zeros([len(examples)]), np.zeros([len(examples)], bool)
            else:
                values, missing = encoder.decode(features)
            found.append(np.where(missing, np.nan, values.astype(np.float64)))
        return np.stack(found, axis=1)

    def associations(self, examples: np.ndarray) -> np.ndarray:
        """Returns the association of all pairs of columns, `[K, K]`; see `association`."""
        return associations(examples, [encoder.size for encoder in self.encoders])

    def describe(self) -> str:
        """Returns a line for each column: its name, its type, and what the networks see of it."""
        rows = [("column", "type", "values")]
        for name, kind, encoder in zip(self.names, self.types, self.encoders, strict=True):
            rows.append((shorten(name, 30), kind.describe(), _describe(encoder, kind)))
        widths = [max(len(row[place]) for row in rows) for place in (0, 1)]
        return "\n".join(f"{a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in rows)

    def to_dict(self) -> dict[str, Any]:
        """Returns a JSON object; see `from_dict`."""
        return {
            "names": list(self.names),
            "types": [kind.to_dict() for kind in self.types],
            "columns": [columns.to_dict(encoder) for encoder in self.encoders],
            "target": self.target,
        }

    @classmethod
    def from_dict(cls, saved: Any) -> Table:
        """Returns the table that `to_dict` described.

        Raises:
          ValueError: If the entry is damaged.
        """
        if not _is_entry(saved):
            raise ValueError("the table has other entries")
        names = tuple(saved["names"])
        table = cls(
            names,
            tuple(map(type_from_dict, saved["types"])),
            tuple(map(columns.from_dict, saved["columns"])),
            saved.get("target"),
        )
        if not len(names) == len(table.types) == len(table.encoders) == len(set(names)):
            raise ValueError("the columns do not fit each other")
        for kind, encoder in zip(table.types, table.encoders, strict=True):
            if not kind.fits(encoder):
                raise ValueError("the type of a column does not fit its values")
        if not table.size or table.target not in (None, *names):
            raise ValueError("the table has no features, or another target")
        return table


_is_entry = object_of(
    {
        "names": list_of(is_text, 1, _MOST_COLUMNS),
        "types": list_of(lambda value: isinstance(value, dict), 1, _MOST_COLUMNS),
        "columns": list_of(lambda value: isinstance(value, dict), 1, _MOST_COLUMNS),
        "target": optional(is_text),
    }
)


def _encoder(
    kind: ColumnType, values: np.ndarray, trained_on: np.ndarray, has_missing: bool
) -> Encoder:
    """Returns the encoder of a column for the values that are not missing, of all rows and some."""
    if kind.is_number and len(np.unique(trained_on)) > 1:
        return Number.of(trained_on, has_missing, exact=kind.is_exact)
    unique = sorted(set(values.tolist()))
    if not unique:
        return Constant(None)
    if len(unique) == 1 and not has_missing:
        return Constant(unique[0])
    return Category(tuple(unique[:MOST_CATEGORIES]), has_missing)


def _describe(encoder: Encoder, kind: ColumnType) -> str:
    """Returns the values of a column in words."""
    if isinstance(encoder, Constant):
        shown = "all missing" if encoder.value is None else f"always {_shown(encoder.value, kind)}"
        return f"{shown}; the networks do not see it"
    if isinstance(encoder, Number):
        text = f"{_shown(encoder.low[0], kind)} to {_shown(encoder.high[-1], kind)}"
    else:
        some = [_shown(value, kind) for value in encoder.values[:4]]
        more = ", ..." if len(encoder.values) > 4 else ""
        text = f"{len(encoder.values)}: {', '.join(some)}{more}"
    return text + ("; some are missing" if encoder.has_missing else "")


def _shown(value: Any, kind: ColumnType) -> str:
    """Returns a value as it is in the table."""
    values = np.array([value], object if isinstance(value, str) else None)
    return shorten(str(kind.to_series(values, np.array([False])).iloc[0]), 30)
