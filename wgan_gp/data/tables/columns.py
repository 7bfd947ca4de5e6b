"""The columns of a typed table: how values become features of an example, and back.

| column | features |
|---|---|
| category | one-hot: one for each value, and one for a missing value |
| number | a standard normal quantile; with missing values, also one-hot: present, missing |
| constant | none |

A number is mapped to its level in the distribution of the data, from 0 to 1, and then by the
quantile function of the standard normal distribution. Values that occur often have an interval of
levels, in which they get a random place (the randomized probability integral transform), so that
features are normally distributed whatever the distribution of the data is: with several modes, long
tails or many zeros.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.special

from ...run_directory.schema import boolean, integer, list_of, number, object_of, one_of, optional
from ...run_directory.schema import text as is_text

MOST_CATEGORIES = 500
_MOST_EXACT = 1000  # different values of a number that are kept one by one
_SEGMENTS = 500  # of a number with more values, at most
_FEWEST = 10  # values in a segment, on average
# The margins of a segment, which rounding to float32 must not leave: around a single value, and
# around others.
_MARGIN, _NARROW = 0.01, 1e-4
_TOLERANCE = 1e-5  # the largest relative error of real numbers
_LARGEST_LEVEL = 1 - 1e-7
_SMALLEST_INTEGER, _LARGEST_INTEGER = -(2**63), 2**64 - 1


@dataclasses.dataclass(frozen=True)
class Category:
    """A column of some values, one-hot.

    Attributes:
      values: The different values: all texts, all booleans, all integers or all other numbers.
      has_missing: Whether values may be missing.
      counts: The number of rows of each feature in the training data.
    """

    kind: ClassVar[str] = "category"
    values: tuple[Any, ...]
    has_missing: bool
    counts: tuple[int, ...]

    @classmethod
    def of(cls, values: np.ndarray, missing: np.ndarray, trained_on: np.ndarray) -> Category:
        """Returns the column for values `[N]`, of which some are missing, and some trained on."""
        different = tuple(sorted(set(values[~missing].tolist())))
        column = cls(different, bool(missing.any()), ())
        features = column.encode(values, missing, missing)
        counts = features[trained_on].sum(axis=0, dtype=np.int64)
        return dataclasses.replace(column, counts=tuple(counts.tolist()))

    @property
    def size(self) -> int:
        """The number of features."""
        return len(self.values) + self.has_missing

    @property
    def groups(self) -> list[tuple[int, int]]:
        """The one-hot features, as pairs of the first one and their number."""
        return [(0, self.size)]

    @property
    def masked(self) -> list[tuple[int, int]]:
        """Pairs of a feature that is 0 unless another one is 1, and that other one."""
        return []

    def encode(self, values: np.ndarray, missing: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Returns the features of values, `[N, size]` float32; those of unknown values are 0.

        Args:
          values: `[N]`, in which missing values may be anything.
          missing: `[N]` bool.
          places: `[N]`, uniform on [0, 1): the places of values in their intervals of levels.
        """
        features = np.zeros([len(values), self.size], np.float32)
        numbers = {value: number for number, value in enumerate(self.values)}
        found = np.array([numbers.get(value, -1) for value in values.tolist()], int)
        found[missing] = len(self.values) if self.has_missing else -1
        known = np.flatnonzero(found >= 0)
        features[known, found[known]] = 1
        return features

    def decode(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the values of features `[N, size]`, and which of them are missing."""
        found = features.argmax(axis=1)
        missing = found == len(self.values)
        values = np.array(self.values, object)
        return values[np.where(missing, 0, found)], missing


@dataclasses.dataclass(frozen=True)
class Number:
    """A column of numbers as standard normal quantiles.

    The levels from 0 to 1 are divided into segments. A segment of one value stands for this value;
    any other segment is a uniform distribution.

    Attributes:
      levels: The ends of the segments, increasing from 0 to 1.
      low, high: The smallest and the largest value of each segment, integers or floats.
      has_missing: Whether values may be missing.
    """

    kind: ClassVar[str] = "number"
    levels: tuple[float, ...]
    low: tuple[Any, ...]
    high: tuple[Any, ...]
    has_missing: bool

    @classmethod
    def of(cls, values: np.ndarray, has_missing: bool, *, exact: bool) -> Number:
        """Returns the column for given values.

        Args:
          values: `[N]` finite int64 or float64, at least two different ones.
          has_missing: Whether values may be missing.
          exact: Whether each of them has to be restored exactly, and not only to float32, also if
            that takes a segment for each.
        """
        unique, counts = np.unique(values, return_counts=True)
        segments = min(_SEGMENTS, max(1, len(values) // _FEWEST))
        is_repeated = exact or 2 * len(unique) <= len(values)
        alone = counts >= len(values) / segments
        if len(unique) <= _MOST_EXACT and is_repeated:
            alone[:] = True
        none_missing = np.zeros([len(unique)], bool)
        while True:
            column = cls._divided(unique, counts, alone, segments, has_missing)
            wrong = np.zeros([len(unique)], bool)
            for place in (0.0, 1.0):
                features = column.encode(unique, none_missing, np.full(len(unique), place))
                error = np.abs(_half(column.decode(features)[0]) - _half(unique))
                wrong |= error > (0 if exact else _TOLERANCE * np.abs(_half(unique)))
            # A segment may be too wide for float32.
            if not (wrong & ~alone).any():
                return column
            alone |= wrong

    @classmethod
    def _divided(
        cls,
        unique: np.ndarray,
        counts: np.ndarray,
        alone: np.ndarray,
        segments: int,
        has_missing: bool,
    ) -> Number:
        """Returns the column whose segments end at values that stand `alone`."""
        total = counts.sum()
        ends = counts.cumsum()
        part = (ends - counts) * segments // total  # of the levels, in which a value begins
        begins = np.ones([len(unique)], bool)
        begins[1:] = alone[1:] | alone[:-1] | (part[1:] != part[:-1])
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(unique)) - 1
        return cls(
            levels=(0.0, *(ends[last] / total).tolist()),
            low=tuple(unique[first].tolist()),
            high=tuple(unique[last].tolist()),
            has_missing=has_missing,
        )

    @property
    def size(self) -> int:
        """The number of features."""
        return 3 if self.has_missing else 1

    @property
    def groups(self) -> list[tuple[int, int]]:
        """The one-hot features, as pairs of the first one and their number."""
        return [(1, 2)] if self.has_missing else []

    @property
    def masked(self) -> list[tuple[int, int]]:
        """Pairs of a feature that is 0 unless another one is 1, and that other one."""
        return [(0, 1)] if self.has_missing else []

    def encode(self, values: np.ndarray, missing: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Returns the features of values, `[N, size]` float32; see `Category.encode`.

        Values outside the range of the data become its ends.
        """
        low, high = _array_of(self.low), _array_of(self.high)
        levels = np.array(self.levels)
        values = np.where(missing, low[0], values).astype(low.dtype)
        values = np.clip(values, low[0], high[-1])
        segment = np.searchsorted(low, values, side="right") - 1
        values = np.minimum(values, high[segment])  # those between two segments
        place = _MARGIN + (1 - 2 * _MARGIN) * places
        # Half of each, because the range of float64 does not contain its own width.
        width = _half(high[segment]) - _half(low[segment])
        offset = _half(values) - _half(low[segment])
        if low.dtype.kind == "i":
            place = (offset + place / 2) / (width + 0.5)
        else:
            inside = offset / np.where(width > 0, width, 1)
            place = np.where(width > 0, _NARROW + (1 - 2 * _NARROW) * inside, place)
        level = levels[segment] + place * (levels[segment + 1] - levels[segment])
        level = np.clip(level, 1 - _LARGEST_LEVEL, _LARGEST_LEVEL)
        features = np.zeros([len(values), self.size], np.float32)
        features[:, 0] = np.where(missing, 0.0, scipy.special.ndtri(level))
        if self.has_missing:
            features[:, 1], features[:, 2] = ~missing, missing
        return features

    def decode(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the values of features `[N, size]`, and which of them are missing."""
        low, high = _array_of(self.low), _array_of(self.high)
        levels = np.array(self.levels)
        level = scipy.special.ndtr(features[:, 0].astype(np.float64))
        segment = np.searchsorted(levels[1:-1], level, side="right")
        place = (level - levels[segment]) / (levels[segment + 1] - levels[segment])
        low, high = low[segment], high[segment]
        if low.dtype.kind == "i":
            width = high.astype(np.float64) - low.astype(np.float64)
            offset = np.clip(np.floor(place * (width + 1)), 0, width)
            values = low + offset.astype(np.int64)
        else:
            inside = np.clip((place - _NARROW) / (1 - 2 * _NARROW), 0, 1)
            values = np.clip((1 - inside) * low + inside * high, low, high)
        missing = np.zeros([len(features)], bool)
        if self.has_missing:
            missing = features[:, 2] > features[:, 1]
        return values, missing


@dataclasses.dataclass(frozen=True)
class Constant:
    """A column of one value, or of none, which the networks do not see.

    Attributes:
      value: The value; None if all are missing.
    """

    kind: ClassVar[str] = "constant"
    value: Any
    size: ClassVar[int] = 0
    groups: ClassVar[list[tuple[int, int]]] = []
    masked: ClassVar[list[tuple[int, int]]] = []

    def encode(self, values: np.ndarray, missing: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Returns no features, `[N, 0]` float32."""
        return np.zeros([len(values), 0], np.float32)

    def decode(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the value for each row, and whether it is missing."""
        is_missing = self.value is None
        values = np.full([len(features)], 0 if is_missing else self.value, object)
        return values, np.full([len(features)], is_missing)


Encoder = Category | Number | Constant


def to_dict(encoder: Encoder) -> dict[str, Any]:
    """Returns a JSON object; see `from_dict`."""
    return {"kind": encoder.kind, **dataclasses.asdict(encoder)}


def from_dict(saved: Any) -> Encoder:
    """Returns the column that `to_dict` described.

    Raises:
      ValueError: If the entry is damaged.
    """
    if _is_category(saved) and _is_one_type(saved["values"]):
        if len(set(saved["values"])) == len(saved["values"]) > 0:
            column = Category(tuple(saved["values"]), saved["has_missing"], tuple(saved["counts"]))
            if len(column.counts) == column.size and any(column.counts):
                return column
    elif _is_number(saved):
        levels, low, high = (tuple(saved[name]) for name in ("levels", "low", "high"))
        ends = np.array(levels, np.float64)
        if (
            len(levels) == len(low) + 1 == len(high) + 1 > 1
            and (ends[0], ends[-1]) == (0, 1)
            and (np.diff(ends) > 0).all()
            and _is_one_type([*low, *high])
            and (type(high[-1]) is float or high[-1] < 2**63)
            and all(first <= last for first, last in zip(low, high, strict=True))
            and all(last < first for last, first in zip(high, low[1:], strict=False))
        ):
            return Number(levels, low, high, saved["has_missing"])
    elif _is_constant(saved):
        return Constant(saved["value"])
    raise ValueError("a column has other entries")


def _is_value(value: Any) -> bool:
    is_integer = type(value) is int and _SMALLEST_INTEGER <= value <= _LARGEST_INTEGER
    is_real = type(value) is float and _is_finite(value)
    return is_integer or is_real or boolean(value) or is_text(value)


def _is_numeric(value: Any) -> bool:
    return type(value) in (int, float) and _is_value(value)


_is_finite = number()
_is_category = object_of(
    {
        "kind": one_of("category"),
        "values": list_of(_is_value, 1, MOST_CATEGORIES),
        "has_missing": boolean,
        "counts": list_of(integer(0, 2**62), 1),
    }
)
_is_number = object_of(
    {
        "kind": one_of("number"),
        "levels": list_of(number()),
        "low": list_of(_is_numeric),
        "high": list_of(_is_numeric),
        "has_missing": boolean,
    }
)
_is_constant = object_of({"kind": one_of("constant"), "value": optional(_is_value)})


def _is_one_type(values: Sequence[Any]) -> bool:
    return len(set(map(type, values))) == 1


def _array_of(values: Sequence[Any]) -> np.ndarray:
    """Returns numbers as int64 or float64."""
    return np.array(values, np.int64 if isinstance(values[0], int) else np.float64)


def _half(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64) / 2
