"""A column of a typed table: how its values become features of an example, and back.

| column | features |
|---|---|
| category | one-hot: one for each value, and one for a missing value |
| number | a standard normal quantile; with missing values, also one-hot: present, missing |
| one value, or none | none |

A number is mapped to its level in the distribution of the data, from 0 to 1, and then by the
quantile function of the standard normal distribution. Values that occur often have an interval of
levels, in which they get a random place (the randomized probability integral transform), so that
features are normally distributed whatever the distribution of the data is: with several modes, long
tails or many zeros.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.special

from ..errors import UserError, shorten

if TYPE_CHECKING:
    import pandas as pd

MOST_CATEGORIES = 500
MOST_DECIMALS = 6
LARGEST_EXACT = 2**53  # of the integers that float64 holds
# The units of dates, with their sizes in nanoseconds.
UNITS = {"D": 86_400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9}
UNITS |= {"ms": 10**6, "us": 10**3, "ns": 1}
_MOST_EXACT = 1000  # different values of a number that are kept one by one
_SEGMENTS = 500  # between the knots of a number with more values, apart from its tails
_FEWEST = 10  # rows in such a segment, on average
_DENSE, _RAMP = 10, 0.4  # see `_knots_through`
_MARGIN = 0.01  # of an interval of levels, which rounding to float32 must not leave
_TOLERANCE = 1e-5  # the largest relative error of real numbers
_LARGEST_LEVEL = 1 - 1e-7
# The types of pandas that a column of samples may have; a file cannot ask for others.
DTYPE = re.compile(
    r"object|str|string|category|bool|boolean|u?int(8|16|32|64)|U?Int(8|16|32|64)"
    r"|float(16|32|64)|Float(32|64)|datetime64\[(s|ms|us|ns)(, [\w/+:-]{1,40})?\]"
)

Value = bool | int | float | str  # of a cell that is not missing
Knots = tuple[np.ndarray, np.ndarray]  # levels [L] float64, and values [L] int64 or float64


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    The networks see keys: the values of a category, the places of an ordered value among
    `categories`, whole numbers of a unit since 1970 for dates, and other numbers. Numbers with
    decimals are whole numbers of the last one.

    Attributes:
      name: The name.
      kind: The kind; all but categories are numbers to the networks.
      dtype: The name of the type in pandas.
      categories: The values of an ordered column in their order, or those of a Categorical.
      is_ordered: Whether the Categorical is ordered.
      decimals: The number of decimals of real numbers, or None for more than MOST_DECIMALS.
      unit: The unit of dates, a key of UNITS. Days are those of the time zone of the column, if it
        has one, and other units are in UTC.
      date_format: The format of dates that are texts or numbers such as 20240131, as in `strftime`,
        where `%-d` is a day without a leading zero; else None.
      has_missing: Whether values may be missing.
      values: The different keys of a category. Those of a number are knots of the quantile
        function, which is linear between them. Two knots of one key are the interval of levels of
        a key that occurs often. Two knots of one level are a gap, in which there are no keys.
      levels: The levels of the knots, from 0 to 1; empty for a category.
      counts: The number of rows of each feature of a category in the training data.
    """

    name: str
    kind: Literal["category", "ordered", "integer", "real", "date"]
    dtype: str
    categories: tuple[Value, ...] | None = None
    is_ordered: bool = False
    decimals: int | None = None
    unit: str = "ns"
    date_format: str | None = None
    has_missing: bool = False
    values: tuple[Value, ...] = ()
    levels: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if DTYPE.fullmatch(self.dtype) is None or self.unit not in UNITS:
            raise ValueError("dtype or unit is not known")
        if self.decimals is not None and not 0 <= self.decimals <= MOST_DECIMALS:
            raise ValueError(f"decimals is not a number up to {MOST_DECIMALS}")
        known = ("",) if self.categories is None else self.categories
        if not 0 < len(set(known)) == len(known) <= MOST_CATEGORIES:
            raise ValueError("categories are not different, or are too many")
        if (self.kind == "ordered" or self.dtype == "category") and self.categories is None:
            raise ValueError("categories are missing")
        self._check_values()
        try:
            keys = np.array(self.values or (0,), object)
            self.to_series(keys, np.full([len(keys)], not self.values))
        except (KeyError, IndexError, ValueError, TypeError, OverflowError):
            raise ValueError("values are not those of the kind and the dtype") from None

    def _check_values(self) -> None:
        """Raises ValueError if the networks cannot see the values."""
        types: set[type] = {int}
        if self.kind == "category" and self.categories is None:
            types = {bool, int, float, str}
        elif self.kind == "real" and self.decimals is None:
            types = {float}
        found = set(map(type, self.values))
        if not found <= types or len(found) > 1:
            raise ValueError("values have other types, or several types")
        places = range(len(self.categories or ()))
        if self.categories is not None and not all(value in places for value in self.values):
            raise ValueError("values are no places of categories")
        (self._check_levels if self.levels else self._check_counts)()

    def _check_levels(self) -> None:
        if self.kind == "category" or self.counts or len(self.levels) != len(self.values):
            raise ValueError("levels are not those of the values, or there are counts")
        levels, values = self._knots
        if len(levels) < 2 or (levels[0], levels[-1]) != (0, 1) or levels[-2] == 1:
            raise ValueError("levels are not from 0 to 1")
        if (levels[1:] < levels[:-1]).any() or (values[1:] < values[:-1]).any():
            raise ValueError("levels or values decrease")

    def _check_counts(self) -> None:
        if not len(set(self.values)) == len(self.values) <= MOST_CATEGORIES:
            raise ValueError("values are not different, or are too many")
        if len(self.counts) != len(self.values) + self.has_missing:
            raise ValueError("counts are not those of the values")
        if min(self.counts, default=0) < 0 or (self.size and not any(self.counts)):
            raise ValueError("counts are not numbers of rows")

    def fit(self, series: pd.Series, flag: str, trained_on: np.ndarray) -> Column:
        """Returns this column for the values of a table.

        Args:
          series: The values, `[N]`.
          flag: The name of the table, for messages.
          trained_on: `[N]` bool, the rows whose numbers determine levels. Categories are those of
            all rows.

        Raises:
          UserError: If a value is of another kind.
        """
        keys, missing = self.keys(series, flag)
        used, has_missing = keys[trained_on & ~missing], bool(missing.any())
        if self.kind != "category":
            if len(np.unique(used)) < 2:
                used = keys[~missing]  # the training data is constant, but not all data
            if (found := self.with_levels_of(used)).levels:
                return dataclasses.replace(found, has_missing=has_missing)
        different = sorted(set(keys[~missing].tolist()))
        rows = Counter(keys[trained_on & ~missing].tolist())
        counts = [rows[value] for value in different]
        counts += [int((trained_on & missing).sum())] * has_missing
        return dataclasses.replace(
            self, has_missing=has_missing, values=tuple(different), counts=tuple(counts)
        )

    def with_levels_of(self, keys: np.ndarray) -> Column:
        """Returns this column with the distribution of other keys; itself if they are constant."""
        if len(np.unique(keys)) < 2:
            return self
        levels, values = _fit_knots(keys, exact=self.kind != "real")
        return dataclasses.replace(
            self, levels=tuple(levels.tolist()), values=tuple(values.tolist())
        )

    @property
    def is_number(self) -> bool:
        """Is True if the networks see a number, and no category or nothing."""
        return bool(self.levels)

    def is_of(self, kind: Any) -> bool:
        """Returns whether the column is of a kind, or has the values of a list in that order."""
        if isinstance(kind, list):
            return self.kind == "ordered" and list(self.categories or ()) == kind
        return bool(self.kind == kind)

    @property
    def size(self) -> int:
        """The number of features."""
        count = len(self.values) + self.has_missing
        return 1 + 2 * self.has_missing if self.levels else count if count > 1 else 0

    @property
    def one_hot(self) -> tuple[tuple[int, int], ...]:
        """The one-hot features, as pairs of the first one and their number."""
        if self.levels:
            return ((1, 2),) if self.has_missing else ()
        return ((0, self.size),) if self.size else ()

    @property
    def _knots(self) -> Knots:
        kind = np.int64 if isinstance(self.values[0], int) else np.float64
        return np.array(self.levels), np.array(self.values, kind)

    def has_key(self, key: int | float) -> bool:
        """Returns whether samples may have the key of a number, which is in no gap."""
        levels, values = self._knots
        after = int(np.searchsorted(values, key))
        if after == len(values) or values[after] == key:
            return after < len(values)
        return after > 0 and bool(levels[after - 1] < levels[after])

    # Features

    def encode(self, series: pd.Series, flag: str, places: np.ndarray) -> np.ndarray:
        """Returns the features of values, `[N, size]` float32.

        Numbers outside the range of the training data become its ends.

        Args:
          series: The values, `[N]`.
          flag: The name of their table, for messages.
          places: `[N]`, uniform on [0, 1): the places of values in their intervals of levels.

        Raises:
          UserError: If a value is of another kind, or the training data lacks it.
        """
        keys, missing = self.keys(series, flag)
        features = self.features(keys, missing, places)
        if self.levels:
            lacking = np.zeros_like(missing) if self.has_missing else missing
        elif self.size:
            lacking = np.asarray(features.sum(axis=1) == 0)
        else:
            constant = self.values[0] if self.values else None
            lacking = np.where(missing, bool(self.values), np.asarray(keys != constant))
        if not lacking.any():
            return features
        if not self.size:
            raise UserError(
                f"{flag} has other values in {shorten(self.name)!r}, which is constant in the "
                "training data",
                "leave these rows out, or train a new run on data that contain them",
            )
        first = int(lacking.argmax())
        what = "a missing value" if missing[first] else repr(native(series.iloc[first]))
        raise UserError(
            f"{flag} has {shorten(what)} in {shorten(self.name)!r}, which the training data "
            f"lacks, in {lacking.sum()} of {len(series)} rows",
            "leave these rows out, or train a new run on data that contain it",
        )

    def features(self, keys: np.ndarray, missing: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Returns the features of keys `[N]`, of which some are missing; those of others are 0."""
        features = np.zeros([len(keys), self.size], np.float32)
        if self.levels:
            known = ~missing
            scores = _scores(self._knots, keys[known], places[known])
            features[known, 0] = scores
            if self.has_missing:
                features[:, 1], features[:, 2] = known, missing
        elif self.size:
            numbers = {value: number for number, value in enumerate(self.values)}
            found = np.array([numbers.get(key, -1) for key in keys.tolist()], int)
            found[missing] = len(self.values) if self.has_missing else -1
            known = np.flatnonzero(found >= 0)
            features[known, found[known]] = 1
        return features

    def decode(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the keys of features `[N, size]`, and which of them are missing."""
        if self.levels:
            missing = np.zeros([len(features)], bool)
            if self.has_missing:
                missing = features[:, 2] > features[:, 1]
            return _of_scores(self._knots, features[:, 0]), missing
        found = features.argmax(axis=1) if self.size else np.zeros([len(features)], int)
        missing = found == len(self.values)
        return np.array(self.values or (0,), object)[np.where(missing, 0, found)], missing

    # Values of pandas

    def keys(self, series: pd.Series, flag: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the keys of values, in which missing ones are 0, and which are missing, `[N]`.

        Raises:
          UserError: If a value is of another kind.
        """
        missing = series.isna().to_numpy(bool)
        present = series[~missing]
        found = self._try(present)
        if found is None:
            wrong = next(
                present.iloc[place]
                for place in range(len(present))
                if self._try(present.iloc[place : place + 1]) is None
            )
            shown = shorten(repr(native(wrong)))
            raise UserError(
                f"{flag}: {shown} in the column {shorten(self.name)!r} is not of the type "
                f"{self.kind} of the other values",
                "correct it, or give another type with --column_types",
            )
        keys = np.zeros([len(series)], found.dtype)
        keys[~missing] = found
        return keys, missing

    def _try(self, present: pd.Series) -> np.ndarray | None:
        try:
            return self._parse(present)
        except (KeyError, ValueError, TypeError, OverflowError):
            return None

    def _parse(self, present: pd.Series) -> np.ndarray:
        """Returns the keys of values that are not missing, or raises if one is of another kind."""
        import pandas as pd  # noqa: PLC0415

        if self.categories is not None:
            places = {value: place for place, value in enumerate(self.categories)}
            return np.array([places[native(value)] for value in present.tolist()], np.int64)
        if self.kind == "category":
            return np.array([native(value) for value in present.tolist()], object)
        if self.kind == "date":
            dates = self.dates(present)
            return nanoseconds(local(dates) if self.unit == "D" else dates) // UNITS[self.unit]
        if pd.api.types.is_datetime64_any_dtype(present.dtype):
            raise TypeError
        return self._parse_numbers(present)

    def _parse_numbers(self, present: pd.Series) -> np.ndarray:
        import pandas as pd  # noqa: PLC0415

        is_unsigned = self.kind == "integer" and self.dtype.lower() == "uint64"
        if is_unsigned:  # as int64 of the same order
            if (present < 0).any():
                raise OverflowError
            return (present.to_numpy(np.uint64) ^ np.uint64(2**63)).view(np.int64)
        if self.kind == "integer" and pd.api.types.is_integer_dtype(present.dtype):
            if (present >= 2**63).any():
                raise OverflowError
            return present.to_numpy(np.int64)
        numbers = pd.to_numeric(present).to_numpy(np.float64)
        if not np.isfinite(numbers).all():
            raise ValueError
        if self.kind == "real" and self.decimals is None:
            return numbers
        whole = np.round(numbers * 10 ** (self.decimals or 0))
        if self.kind == "integer" and (whole != numbers).any():
            raise ValueError
        if np.abs(whole).max(initial=0) > LARGEST_EXACT:
            raise OverflowError
        return whole.astype(np.int64)

    def dates(self, present: pd.Series) -> pd.Series:
        """Returns dates as datetime64; raises ValueError or TypeError for values of other types."""
        import pandas as pd  # noqa: PLC0415

        if self.date_format is not None:
            return parse_dates(present, self.date_format)
        if not pd.api.types.is_datetime64_any_dtype(present.dtype):
            raise TypeError
        if (getattr(present.dtype, "tz", None) is None) == bool(self.zone):
            raise TypeError  # one has a time zone
        return present

    @property
    def zone(self) -> str:
        """The time zone of the type of dates, or an empty text."""
        return self.dtype.partition(", ")[2].rstrip("]")

    @property
    def has_texts(self) -> bool:
        """Is True if the values are texts."""
        if self.kind == "date":
            return self.date_format is not None and not is_numeric(self.dtype)
        values = self.values if self.categories is None else self.categories
        return bool(values) and all(isinstance(value, str) for value in values)

    def to_series(self, keys: np.ndarray, missing: np.ndarray) -> pd.Series:
        """Returns keys `[N]` as values of the type of the data."""
        import pandas as pd  # noqa: PLC0415

        if self.categories is not None:
            codes = np.where(missing, -1, keys).astype(int)
            if self.dtype == "category":
                kept = pd.CategoricalDtype(list(self.categories), ordered=self.is_ordered)
                return pd.Series(pd.Categorical.from_codes(codes, dtype=kept))
            keys = np.array([*self.categories, None], object)[codes]
        elif self.kind == "date":
            return self._to_dates(keys, missing)
        elif self.kind == "real":
            keys = np.where(missing, 0, keys).astype(np.float64) / 10 ** (self.decimals or 0)
        elif self.kind == "integer" and self.dtype.lower() == "uint64":
            keys = keys.astype(np.int64).view(np.uint64) ^ np.uint64(2**63)
        elif self.kind == "integer":
            keys = keys.astype(np.int64)
        return _typed(keys, missing, self.dtype)

    def _to_dates(self, keys: np.ndarray, missing: np.ndarray) -> pd.Series:
        import pandas as pd  # noqa: PLC0415

        whole = np.where(missing, 0, keys).astype(np.int64) * UNITS[self.unit]
        dates = pd.Series(whole.astype("datetime64[ns]"))
        if self.date_format is not None:
            written = dates.dt.strftime(self.date_format)
            written = written.astype("int64") if is_numeric(self.dtype) else written
            return _typed(written.to_numpy(), missing, self.dtype)
        dates[missing] = pd.NaT
        if self.zone:
            zone = self.zone if self.unit == "D" else "UTC"
            first = np.ones([len(dates)], bool)  # of two equal times when clocks are set back
            dates = dates.dt.tz_localize(zone, ambiguous=first, nonexistent="shift_forward")
        return dates.astype(self.dtype)

    # Descriptions

    def text(self, key: Any) -> str:
        """Returns the value of a key as it is in the table."""
        return str(self.to_series(np.array([key], object), np.array([False])).iloc[0])

    def shown(self, key: Any) -> str:
        """Returns the value of a key in at most 30 characters."""
        if self.kind == "real":
            return f"{float(self.text(key)):.7g}"
        return shorten(self.text(key).removesuffix(" 00:00:00"), 30)

    def shown_at(self, number: float) -> str:
        """Returns the value of a number that lies in the range of the column; see `shown`."""
        low, *_, high = self.values
        return self.shown(min(max(type(low)(number), low), high))

    def describe_kind(self) -> str:
        """Returns the kind in words."""
        if self.decimals is None:
            return self.kind
        return f"real, {self.decimals} decimal{'' if self.decimals == 1 else 's'}"

    def describe(self) -> str:
        """Returns the range or the categories in words."""
        if self.levels:
            text = f"{self.shown(self.values[0])} to {self.shown(self.values[-1])}"
        elif self.size:
            some = [self.shown(value) for value in self.values[:4]]
            text = f"{len(self.values)}: {', '.join(some)}{', ...' if len(self.values) > 4 else ''}"
        else:
            text = f"always {self.shown(self.values[0])}" if self.values else "all missing"
            return f"{text}; the networks do not see it"
        return text + ("; some are missing" if self.has_missing else "")


# Quantile functions


def _fit_knots(keys: np.ndarray, *, exact: bool) -> Knots:
    """Returns the knots of the quantile function of numbers, linear between them.

    Args:
      keys: `[N]` finite int64 or float64.
      exact: Whether each of them has to be restored exactly, and not only to float32, also if that
        takes knots for each.
    """
    unique, counts = np.unique(keys, return_counts=True)
    width = len(keys) / min(_SEGMENTS, max(1, len(keys) // _FEWEST))
    alone = counts >= width
    if len(unique) <= _MOST_EXACT and (exact or 2 * len(unique) <= len(keys)):
        alone[:] = True
    while True:
        knots = _knots_through(unique, counts, alone, width)
        wrong = np.zeros([len(unique)], bool)
        for place in (0.0, 1.0):
            found = _of_scores(knots, _scores(knots, unique, np.full(len(unique), place)))
            error = np.abs(found / 2 - unique / 2)
            wrong |= found != unique if exact else error > _TOLERANCE * np.abs(unique / 2)
        # An interval may be too narrow for float32.
        if not (wrong & ~alone).any():
            return knots
        alone |= wrong


def _knots_through(
    unique: np.ndarray, counts: np.ndarray, alone: np.ndarray, width: float
) -> Knots:
    """Returns the knots of values, which are intervals of levels if they stand `alone`.

    Between them are runs of other values. The _DENSE rows at each end of a run have knots of their
    own, and those further inside at distances that grow up to `width` rows, so that a long tail is
    not stretched. An outer row keeps its interval of levels but for the share _RAMP on its inner
    side, which leads to the next one: with less, the extremes would be rare, and the mean of a long
    tail too small.
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
    return levels, np.repeat(unique, chosen.sum(axis=1))


def _scores(knots: Knots, keys: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns the standard normal scores of keys, `[N]` float32; see `Column.encode`."""
    levels, values = knots
    keys = np.clip(keys.astype(values.dtype), values[0], values[-1])
    # An integer stands for what is rounded to it, and has the inner half of that.
    inner = 0.25 if values.dtype.kind == "i" else 0.0
    bounds = []
    sides: tuple[tuple[Literal["left", "right"], float], ...] = (("left", -inner), ("right", inner))
    for side, shift in sides:
        after = np.searchsorted(values, keys, side=side)
        before, after = np.maximum(after - 1, 0), np.minimum(after, len(values) - 1)
        width = _difference(values[after], values[before])
        offset = _difference(keys, values[before]) + shift
        inside = np.where(width > 0, offset / np.where(width > 0, width, 1), 0)
        bounds.append(levels[before] + inside * (levels[after] - levels[before]))
    place = _MARGIN + (1 - 2 * _MARGIN) * places
    level = bounds[0] + place * (bounds[1] - bounds[0])
    level = np.clip(level, 1 - _LARGEST_LEVEL, _LARGEST_LEVEL)
    return scipy.special.ndtri(level).astype(np.float32)


def _of_scores(knots: Knots, scores: np.ndarray) -> np.ndarray:
    """Returns the keys of standard normal scores, `[N]`."""
    levels, values = knots
    level = scipy.special.ndtr(scores.astype(np.float64))
    before = np.searchsorted(levels[:-1], level, side="right") - 1
    low, high = values[before], values[before + 1]
    inside = (level - levels[before]) / (levels[before + 1] - levels[before])
    if values.dtype.kind == "f":
        return np.clip((1 - inside) * low + inside * high, low, high)
    width = _difference(high, low)
    offset = np.rint(inside * width)
    added = np.where(offset < width, offset, 0).astype(np.uint64)
    return np.where(offset < width, (low.view(np.uint64) + added).view(np.int64), high)


def _difference(larger: np.ndarray, smaller: np.ndarray) -> np.ndarray:
    """Returns differences as float64: those of integers, or half of those of floats.

    The range of neither type contains its own width.
    """
    if larger.dtype.kind == "i":
        return (larger.view(np.uint64) - smaller.view(np.uint64)).astype(np.float64)
    return larger / 2 - smaller / 2


# Types of pandas


def is_numeric(dtype: str) -> bool:
    """Returns whether a type of pandas is one of numbers."""
    return dtype.lower().startswith(("int", "uint", "float"))


def parse_dates(dates: pd.Series, date_format: str) -> pd.Series:
    """Returns the dates of texts, or of numbers, in a format as in `strftime`.

    Raises:
      ValueError, TypeError: If one has another format.
    """
    import pandas as pd  # noqa: PLC0415

    if pd.api.types.is_numeric_dtype(dates.dtype):
        if (dates % 1 != 0).any():
            raise ValueError
        dates = dates.astype("int64")
    # Parsers read numbers with and without a leading zero, and have no `%-d`.
    return pd.to_datetime(dates.astype(str), format=date_format.replace("%-", "%"))


def local(dates: pd.Series) -> pd.Series:
    """Returns dates without their time zone, at the time that clocks show there."""
    return dates.dt.tz_localize(None)


def nanoseconds(dates: pd.Series) -> np.ndarray:
    """Returns dates as nanoseconds since 1970, in UTC if they have a time zone, int64."""
    if getattr(dates.dtype, "tz", None) is not None:
        dates = dates.dt.tz_convert("UTC").dt.tz_localize(None)
    return dates.astype("datetime64[ns]").to_numpy().astype(np.int64)


def native(value: Any) -> Any:
    """Returns a value of NumPy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _typed(values: np.ndarray, missing: np.ndarray, dtype: str) -> pd.Series:
    """Returns a column of a type of pandas, with missing values as that type has them."""
    import pandas as pd  # noqa: PLC0415

    series = pd.Series(values)
    if dtype == "str" and pd.Series(["a"]).dtype == "object":
        dtype = "object"  # this pandas is older than 3, and has no such type
    if not missing.any():
        return series.astype(dtype)
    if re.match("u?int|bool$", dtype):  # these types have no missing values
        return series.astype("object").mask(missing)
    if dtype.startswith("float"):
        return series.astype("float64").mask(missing).astype(dtype)
    empty = None if dtype == "object" else pd.NA
    return series.astype("object").where(~missing, empty).astype(dtype)
