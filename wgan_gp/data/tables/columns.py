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
_SEGMENTS = 500  # between the knots of a number with more values, apart from its tails
_FEWEST = 10  # rows in such a segment, on average
_DENSE, _RAMP = 10, 0.4  # see `Number._through`
_MARGIN = 0.01  # of an interval of levels, which rounding to float32 must not leave
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

    The quantile function of the data, which maps levels from 0 to 1 to values, is linear between
    its knots. Two knots of one value are the interval of levels of a value that occurs often. Two
    knots of one level are a gap, in which there are no values.

    Attributes:
      levels: The levels of the knots, which do not decrease, from 0 to 1.
      values: The values of the knots, which do not decrease, all integers or all floats.
      has_missing: Whether values may be missing.
    """

    levels: tuple[float, ...]
    values: tuple[int | float, ...]
    has_missing: bool
    kind: Literal["number"] = "number"

    def __post_init__(self) -> None:
        if len(self.levels) != len(self.values) or not _is_one_type(self.values):
            raise ValueError("levels and values do not belong together")
        levels, values = self._knots
        if len(levels) < 2 or (levels[0], levels[-1]) != (0, 1) or levels[-2] == 1:
            raise ValueError("levels are not from 0 to 1")
        if (levels[1:] < levels[:-1]).any() or (values[1:] < values[:-1]).any():
            raise ValueError("levels or values decrease")

    @classmethod
    def of(cls, values: np.ndarray, has_missing: bool, *, exact: bool) -> Number:
        """Returns the column for given values.

        Args:
          values: `[N]` finite int64 or float64, at least two different ones.
          has_missing: Whether values may be missing.
          exact: Whether each of them has to be restored exactly, and not only to float32, also if
            that takes knots for each.
        """
        unique, counts = np.unique(values, return_counts=True)
        width = len(values) / min(_SEGMENTS, max(1, len(values) // _FEWEST))
        is_repeated = exact or 2 * len(unique) <= len(values)
        alone = counts >= width
        if len(unique) <= _MOST_EXACT and is_repeated:
            alone[:] = True
        none_missing = np.zeros([len(unique)], bool)
        while True:
            column = cls._through(unique, counts, alone, width, has_missing)
            wrong = np.zeros([len(unique)], bool)
            for place in (0.0, 1.0):
                features = column.encode(unique, none_missing, np.full(len(unique), place))
                found, _ = column.decode(features)
                error = np.abs(found / 2 - unique / 2)
                wrong |= found != unique if exact else error > _TOLERANCE * np.abs(unique / 2)
            # An interval may be too narrow for float32.
            if not (wrong & ~alone).any():
                return column
            alone |= wrong

    @classmethod
    def _through(
        cls,
        unique: np.ndarray,
        counts: np.ndarray,
        alone: np.ndarray,
        width: float,
        has_missing: bool,
    ) -> Number:
        """Returns the column whose values are intervals of levels if they stand `alone`.

        Between them are runs of other values. The _DENSE rows at each end of a run have knots of
        their own, and those further inside at distances that grow up to `width` rows, so that a
        long tail is not stretched. An outer row keeps its interval of levels but for the share
        _RAMP on its inner side, which leads to the next one: with less, the extremes would be
        rare, and the mean of a long tail too small.
        """
        ends = counts.cumsum()
        begins, places = ends - counts, np.arange(len(unique))
        middles = (begins + ends) / 2
        first = np.append(True, alone[1:] | alone[:-1])
        last = np.append(first[1:], True)
        start = np.maximum.accumulate(np.where(first, places, 0))  # of the run of a value
        stop = np.minimum.accumulate(np.where(last, places, len(unique))[::-1])[::-1]
        from_start, to_stop = middles - middles[start], middles[stop] - middles
        rank = np.minimum(from_start, to_stop)
        # The integral of 1 over the distance of knots at a rank: 1, rank / _DENSE, then the width.
        part = np.minimum(rank, _DENSE) + _DENSE * np.log(np.clip(rank / _DENSE, 1, width))
        part = (part + np.maximum(0, rank / width - _DENSE)).astype(int)
        kept = first | last | np.append(True, part[1:] != part[:-1])
        ramp, is_dense = np.where(stop > start, _RAMP, 0), rank < _DENSE
        low = np.where(is_dense, begins + ramp * (from_start > to_stop), middles)
        high = np.where(is_dense, ends - ramp * (from_start <= to_stop), middles)
        chosen = np.stack([kept, kept & is_dense], axis=1)
        levels = np.stack([low, high], axis=1)[chosen] / ends[-1]
        knots = np.repeat(unique, chosen.sum(axis=1))
        return cls(tuple(levels.tolist()), tuple(knots.tolist()), has_missing)

    @property
    def _knots(self) -> tuple[np.ndarray, np.ndarray]:
        kind = np.int64 if isinstance(self.values[0], int) else np.float64
        return np.array(self.levels), np.array(self.values, kind)

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
        levels, knots = self._knots
        values = np.where(missing, knots[0], values).astype(knots.dtype)
        values = np.clip(values, knots[0], knots[-1])
        half = 0.5 if knots.dtype.kind == "i" else 0.0  # an integer stands for its rounded numbers
        bounds = []
        for side, shift in (("left", -half), ("right", half)):
            after = np.searchsorted(knots, values, side=side)
            before, after = np.maximum(after - 1, 0), np.minimum(after, len(knots) - 1)
            width = _difference(knots[after], knots[before])
            offset = _difference(values, knots[before]) + shift
            inside = np.where(width > 0, offset / np.where(width > 0, width, 1), 0)
            bounds.append(levels[before] + inside * (levels[after] - levels[before]))
        place = _MARGIN + (1 - 2 * _MARGIN) * places
        level = bounds[0] + place * (bounds[1] - bounds[0])
        level = np.clip(level, 1 - _LARGEST_LEVEL, _LARGEST_LEVEL)
        features = np.zeros([len(values), self.size], np.float32)
        features[:, 0] = np.where(missing, 0.0, scipy.special.ndtri(level))
        if self.has_missing:
            features[:, 1], features[:, 2] = ~missing, missing
        return features

    def decode(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the values of features `[N, size]`, and which of them are missing."""
        levels, knots = self._knots
        level = scipy.special.ndtr(features[:, 0].astype(np.float64))
        before = np.searchsorted(levels[:-1], level, side="right") - 1
        low, high = knots[before], knots[before + 1]
        inside = (level - levels[before]) / (levels[before + 1] - levels[before])
        if knots.dtype.kind == "i":
            width = _difference(high, low)
            offset = np.rint(inside * width)
            added = np.where(offset < width, offset, 0).astype(np.uint64)
            inner = (low.view(np.uint64) + added).view(np.int64)
            values = np.where(offset < width, inner, high)
        else:
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


def _difference(larger: np.ndarray, smaller: np.ndarray) -> np.ndarray:
    """Returns differences as float64: those of integers, or half of those of floats.

    The range of neither type contains its own width.
    """
    if larger.dtype.kind == "i":
        return (larger.view(np.uint64) - smaller.view(np.uint64)).astype(np.float64)
    return larger / 2 - smaller / 2
