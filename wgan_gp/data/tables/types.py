"""The types of the columns of a table: values of pandas as those of encoders, and back."""

from __future__ import annotations

import abc
import dataclasses
import re
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ...errors import UserError, shorten
from .columns import MOST_CATEGORIES, Constant, Encoder, Number, Value

if TYPE_CHECKING:
    import pandas as pd

MOST_DECIMALS = 6
# The units of dates, with their sizes in nanoseconds.
UNITS = {"D": 86_400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9}
UNITS |= {"ms": 10**6, "us": 10**3, "ns": 1}
LARGEST_EXACT = 2**53  # of the integers that float64 holds
# The types of pandas that a column of samples may have; a file cannot ask for others.
_DTYPE = re.compile(
    r"object|str|string|category|bool|boolean|u?int(8|16|32|64)|U?Int(8|16|32|64)"
    r"|float(16|32|64)|Float(32|64)|datetime64\[(s|ms|us|ns)(, [\w/+:-]{1,40})?\]"
)


@dataclasses.dataclass(frozen=True)
class _ColumnType(abc.ABC):
    """The type of a column.

    Attributes:
      dtype: The name of its type in pandas.
    """

    is_exact: ClassVar[bool] = True  # whether values are restored without rounding

    dtype: str
    kind: str = dataclasses.field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not is_dtype(self.dtype):
            raise ValueError("dtype is not a type of a column")

    @property
    def is_number(self) -> bool:
        """Is True if the values have an order."""
        return True

    def describe(self) -> str:
        """Returns the type in words."""
        return self.kind

    def to_values(self, series: pd.Series, name: str, flag: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the values of a column for its encoder, and which are missing, both `[N]`.

        Args:
          series: The column.
          name, flag: The names of the column and of the data, for messages.

        Raises:
          UserError: If a value has another type.
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
                f"{flag}: {shown} in the column {shorten(name)!r} is not of the type {self.kind} "
                "of the other values",
                "correct it, or give another type with --column_types",
            )
        values = np.zeros([len(series)], found.dtype)
        values[~missing] = found
        return values, missing

    def _try(self, present: pd.Series) -> np.ndarray | None:
        try:
            return self.parse(present)
        except (ValueError, TypeError, OverflowError):
            return None

    @abc.abstractmethod
    def parse(self, present: pd.Series) -> np.ndarray:
        """Returns values that are not missing for the encoder.

        Raises:
          ValueError, TypeError, OverflowError: If one is of another type.
        """

    def to_series(self, values: np.ndarray, missing: np.ndarray) -> pd.Series:
        """Returns values of the encoder as a column of pandas, in the type of the data."""
        return typed(values, missing, self.dtype)

    def fits(self, encoder: Encoder) -> bool:
        """Returns whether a column of this type may have an encoder."""
        if isinstance(encoder, Constant):
            return encoder.value is None or self._holds([encoder.value])
        if isinstance(encoder, Number):
            return self.is_number and self._holds([*encoder.values])
        return self._holds(list(encoder.values))

    def _holds(self, values: list[Any]) -> bool:
        """Returns whether an encoder may have some values, all of one type."""
        return isinstance(values[0], int) and not isinstance(values[0], bool)


@dataclasses.dataclass(frozen=True)
class CategoryType(_ColumnType):
    """Texts, booleans or a few numbers; those of the kind "ordered" are numbers to the networks.

    Attributes:
      values: The categories of a Categorical of pandas, whose values are their places.
      is_ordered: Whether the Categorical is ordered.
    """

    values: tuple[Value, ...] | None = None
    is_ordered: bool = False
    kind: Literal["category", "ordered"] = dataclasses.field(default="category", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values is None and self.kind == "ordered":
            raise ValueError("values are missing")
        values = ("",) if self.values is None else self.values
        if not 0 < len(set(values)) == len(values) <= MOST_CATEGORIES:
            raise ValueError("values are not different, or are too many")

    @property
    def is_number(self) -> bool:
        return self.kind == "ordered"

    def parse(self, present: pd.Series) -> np.ndarray:
        if self.values is None:
            return np.array([native(value) for value in present.tolist()], object)
        places = {value: place for place, value in enumerate(self.values)}
        try:
            return np.array([places[native(value)] for value in present.tolist()], np.int64)
        except KeyError:
            raise ValueError from None

    def to_series(self, values: np.ndarray, missing: np.ndarray) -> pd.Series:
        import pandas as pd  # noqa: PLC0415

        if self.values is None:
            return super().to_series(values, missing)
        codes = np.where(missing, -1, values).astype(int)
        if self.dtype == "category":
            kept = pd.CategoricalDtype(list(self.values), ordered=self.is_ordered)
            return pd.Series(pd.Categorical.from_codes(codes, dtype=kept))
        return typed(np.array([*self.values, None], object)[codes], missing, self.dtype)

    def _holds(self, values: list[Any]) -> bool:
        if self.values is None:
            return self.dtype != "category"
        return super()._holds(values) and 0 <= min(values) <= max(values) < len(self.values)


@dataclasses.dataclass(frozen=True)
class IntegerType(_ColumnType):
    """Whole numbers."""

    kind: Literal["integer"] = dataclasses.field(default="integer", kw_only=True)

    def parse(self, present: pd.Series) -> np.ndarray:
        import pandas as pd  # noqa: PLC0415

        if pd.api.types.is_datetime64_any_dtype(present.dtype):
            raise TypeError
        if self.dtype.lower() == "uint64":  # as int64 of the same order
            if (present < 0).any():
                raise OverflowError
            return (present.to_numpy(np.uint64) ^ np.uint64(2**63)).view(np.int64)
        if pd.api.types.is_unsigned_integer_dtype(present.dtype) and (present >= 2**63).any():
            raise OverflowError
        if pd.api.types.is_integer_dtype(present.dtype) or self.dtype == "bool":
            return present.to_numpy(np.int64)
        numbers = pd.to_numeric(present).to_numpy(np.float64)
        if (numbers != np.floor(numbers)).any() or np.abs(numbers).max(initial=0) > LARGEST_EXACT:
            raise ValueError
        return numbers.astype(np.int64)

    def to_series(self, values: np.ndarray, missing: np.ndarray) -> pd.Series:
        if self.dtype.lower() == "uint64":
            values = values.astype(np.int64).view(np.uint64) ^ np.uint64(2**63)
        return typed(values, missing, self.dtype)


@dataclasses.dataclass(frozen=True)
class RealType(_ColumnType):
    """Real numbers.

    Attributes:
      decimals: The number of their decimals, or None for more than MOST_DECIMALS. Numbers with
        decimals are integers to the encoder.
    """

    kind: Literal["real"] = dataclasses.field(default="real", kw_only=True)
    is_exact: ClassVar[bool] = False

    decimals: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decimals is not None and not 0 <= self.decimals <= MOST_DECIMALS:
            raise ValueError(f"decimals is not a number up to {MOST_DECIMALS}")

    def describe(self) -> str:
        if self.decimals is None:
            return self.kind
        return f"real, {self.decimals} decimal{'' if self.decimals == 1 else 's'}"

    def parse(self, present: pd.Series) -> np.ndarray:
        import pandas as pd  # noqa: PLC0415

        if pd.api.types.is_datetime64_any_dtype(present.dtype):
            raise TypeError
        numbers = pd.to_numeric(present).to_numpy(np.float64)
        if not np.isfinite(numbers).all():
            raise ValueError
        if self.decimals is None:
            return numbers
        whole = np.round(numbers * 10**self.decimals)
        if np.abs(whole).max(initial=0) > LARGEST_EXACT:
            raise OverflowError
        return whole.astype(np.int64)

    def to_series(self, values: np.ndarray, missing: np.ndarray) -> pd.Series:
        if self.decimals is not None:
            values = values.astype(np.float64) / 10**self.decimals
        return typed(values, missing, self.dtype)

    def _holds(self, values: list[Any]) -> bool:
        return isinstance(values[0], float) if self.decimals is None else super()._holds(values)


@dataclasses.dataclass(frozen=True)
class DateType(_ColumnType):
    """Dates and times, as whole numbers of a unit since 1970.

    Days are those of the time zone of the column, if it has one, and other units are in UTC.

    Attributes:
      unit: A key of UNITS.
      date_format: The format of dates that are texts, as in `strftime`, where `%-d` is a day
        without a leading zero; else None.
    """

    kind: Literal["date"] = dataclasses.field(default="date", kw_only=True)

    unit: str = "ns"
    date_format: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit not in UNITS:
            raise ValueError("unit is not a unit of dates")

    def parse(self, present: pd.Series) -> np.ndarray:
        import pandas as pd  # noqa: PLC0415

        if self.date_format is not None:
            present = parse_dates(present.astype(str), self.date_format)
        elif not pd.api.types.is_datetime64_any_dtype(present.dtype):
            raise TypeError
        elif (getattr(present.dtype, "tz", None) is None) == (", " in self.dtype):
            raise TypeError  # one has a time zone
        if self.unit == "D":
            present = local(present)
        return nanoseconds(present) // UNITS[self.unit]

    def to_series(self, values: np.ndarray, missing: np.ndarray) -> pd.Series:
        import pandas as pd  # noqa: PLC0415

        whole = np.where(missing, 0, values).astype(np.int64) * UNITS[self.unit]
        dates = pd.Series(whole.astype("datetime64[ns]"))
        if self.date_format is not None:
            return typed(dates.dt.strftime(self.date_format).to_numpy(), missing, self.dtype)
        dates[missing] = pd.NaT
        if ", " in self.dtype:
            zone = zone_of(self.dtype) if self.unit == "D" else "UTC"
            first = np.ones([len(dates)], bool)  # of two equal times when clocks are set back
            dates = dates.dt.tz_localize(zone, ambiguous=first, nonexistent="shift_forward")
        return dates.astype(self.dtype)


ColumnType = CategoryType | IntegerType | RealType | DateType
TYPES = ("category", "ordered", "integer", "real", "date")


def is_dtype(name: str) -> bool:
    """Returns whether a text names a type of pandas that a column may have."""
    return _DTYPE.fullmatch(name) is not None


def parse_dates(texts: pd.Series, date_format: str) -> pd.Series:
    """Returns the dates of texts in a format as in `strftime`.

    Raises:
      ValueError: If a text has another format.
    """
    import pandas as pd  # noqa: PLC0415

    # Parsers read numbers with and without a leading zero, and have no `%-d`.
    return pd.to_datetime(texts, format=date_format.replace("%-", "%"))


def zone_of(dtype: str) -> str:
    """Returns the time zone of a type of pandas, or an empty text."""
    return dtype.partition(", ")[2].rstrip("]")


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


def typed(values: np.ndarray, missing: np.ndarray, dtype: str) -> pd.Series:
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
