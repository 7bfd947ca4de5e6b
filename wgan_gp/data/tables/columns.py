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
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.special

MOST_CATEGORIES = 500
_MOST_EXACT = 1000  # different values of a number that are kept one by one
_SEGMENTS = 500  # of a number with more values, at most
_FEWEST = 10  # values in a segment, on average
# The margins of a segment, which rounding to float32 must not leave: around a single value, and
# around others.
_MARGIN, _NARROW = 0.01, 1e-4
_TOLERANCE = 1e-5  # the largest relative error of real numbers
_LARGEST_LEVEL = 1 - 1e-7

Value = bool | int | float | str  # of a cell that is not missing


@dataclasses.dataclass(frozen=True)
class Category:
    """A column of some values, one-hot.

    Attributes:
      values: The different values: all texts, all booleans, all integers or all other numbers.
      has_missing: Whether values may be missing.
      counts: The number of rows of each feature in the training data.
    """

    values: tuple[Value, ...]
    has_missing: bool
    counts: tuple[int, ...]
    kind: Literal["category"] = "category"

    def __post_init__(self) -> None:
        if not 0 < len(set(self.values)) == len(self.values) <= MOST_CATEGORIES:
            raise ValueError("values are not different, or are too many")
        if not _is_one_type(self.values):
            raise ValueError("values have several types")
        if len(self.counts) != self.size or min(self.counts) < 0 or not any(self.counts):
            raise ValueError("counts are not the numbers of rows of the values")

    @classmethod
    def of(cls, values: np.ndarray, missing: np.ndarray, trained_on: np.ndarray) -> Category:
        """Returns the column for values `[N]`, of which some are missing, and some trained on."""
        different = tuple(sorted(set(values[~missing].tolist())))
        found = Counter(values[trained_on & ~missing].tolist())
        counts = [found[value] for value in different]
        if missing.any():
            counts.append(int((trained_on & missing).sum()))
        return cls(different, bool(missing.any()), tuple(counts))

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

    levels: tuple[float, ...]
    low: tuple[int | float, ...]
    high: tuple[int | float, ...]
    has_missing: bool
    kind: Literal["number"] = "number"

    def __post_init__(self) -> None:
        ends = np.array(self.levels, np.float64)
        if not len(ends) == len(self.low) + 1 == len(self.high) + 1 > 1:
            raise ValueError("levels, low and high differ in their lengths")
        if (ends[0], ends[-1]) != (0, 1) or not (np.diff(ends) > 0).all():
            raise ValueError("levels do not increase from 0 to 1")
        low, high = _array_of(self.low), _array_of(self.high)
        if not _is_one_type([*self.low, *self.high]):
            raise ValueError("low and high have several types")
        if (low > high).any() or (high[:-1] >= low[1:]).any():
            raise ValueError("low and high are not the ends of segments in their order")

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

    value: Value | None
    kind: Literal["constant"] = "constant"
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


def _is_one_type(values: Sequence[Any]) -> bool:
    return len(set(map(type, values))) == 1


def _array_of(values: Sequence[Any]) -> np.ndarray:
    """Returns numbers as int64 or float64."""
    return np.array(values, np.int64 if isinstance(values[0], int) else np.float64)


def _half(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64) / 2
