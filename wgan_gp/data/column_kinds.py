"""Finds the kinds of the columns of a table."""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UserError, shorten
from ..run_directory.typed_json import is_text
from .columns import (
    DTYPE,
    LARGEST_EXACT,
    MOST_CATEGORIES,
    MOST_DECIMALS,
    UNITS,
    Column,
    is_numeric,
    local,
    nanoseconds,
    native,
    parse_dates,
)

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("category", "ordered", "integer", "real", "date")
_FEW = 10  # integers of at most as many different values are categories
_MOSTLY = 0.9  # of the texts of a column of dates are dates, if some are wrong
_FEWEST_DAYS = 31  # that numbers such as 20240131 span, if they are dates
_NAMES = 50  # more different texts than this, and in most rows, are names
_REMEDY = "convert it, or leave it out with --drop_columns"
_AS_CATEGORY = "give the column the type category with --column_types"
_NUMBER = r"[+-]?(?:0|[1-9]\d*)(?:[.,]\d+)?(?:[eE][+-]?\d+)?"
_THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?"
# Numbers with separators of thousands, a currency or a unit, such as 1.234,50 EUR.
_GROUPED = r"[+-]?(?:\d{1,3}(?:[.,' ]\d{3})+|\d+)(?:[.,]\d+)?"
_DATE = r"(?:\d{4}[./-]\d\d?[./-]\d\d?|\d\d?[./-]\d\d?[./-](?:\d{4}|\d\d))(?:[T ].*)?"
_DAYS = "%Y%m%d"
_FORMULA = re.compile(r"=.*(\(|[A-Z]\d).*", re.DOTALL)
_WITH_UNIT = rf"^(?P<before>[$€£¥]?\s?){_GROUPED}(?P<after>\s?[^\W\d_]{{0,3}}[$€£¥%]?)$"


def find_kinds(frame: pd.DataFrame, flag: str, given: Mapping[str, Any]) -> dict[str, Column]:
    """Returns the columns of a table with their kinds, but not yet fitted to its rows.

    Args:
      frame: The table.
      flag: The name of the data, for messages.
      given: By column, its kind, one of KINDS, or the list of the values of an ordered one.

    Raises:
      UserError: If a column has no usable kind, or does not exist.
    """
    for name, kind in given.items():
        if name not in frame:
            close = difflib.get_close_matches(name, list(frame), n=1)
            raise UserError(
                f"--column_types names the column {shorten(name)!r}, which {flag} lacks",
                f"did you mean {close[0]!r}?" if close else "give the names of the table",
            )
        is_order = isinstance(kind, list) and all(map(_is_value, kind))
        if is_order:
            is_order = 0 < len(set(map(str, kind))) == len(set(kind)) == len(kind)
        if not (is_order and len(kind) <= MOST_CATEGORIES) and kind not in KINDS:
            raise UserError(
                f"--column_types gives the column {shorten(name)!r} the type {shorten(repr(kind))}",
                f"use {', '.join(KINDS)}, or a list of its values in their order",
            )
    found, useless = {}, {}
    for name in frame:
        try:
            found[name] = _Finder(frame[name], name, flag).find(given.get(name))
        except _UselessColumnError as error:
            useless[name] = error
    if len(useless) > 1:
        raise UserError(
            f"{flag}: the columns {shorten(', '.join(map(repr, useless)))} contain free text, "
            "names, or dates of several formats",
            f"leave them out with {flag_of('drop_columns', *useless)}",
        )
    for refusal in useless.values():
        raise refusal
    return found


def _is_value(value: Any) -> bool:
    """Returns whether data.json can hold a value of a category."""
    if isinstance(value, int):  # those of hundreds of digits have no float
        return -(2**63) <= value < 2**64
    return is_text(value) or (isinstance(value, float) and math.isfinite(value))


class _UselessColumnError(UserError):
    """A column has too many different values to be a category."""


class _Finder:
    """Finds the kind of a column.

    Args:
      series: The column.
      name, flag: The names of the column and of the data, for messages.
    """

    def __init__(self, series: pd.Series, name: str, flag: str):
        self._series, self._name, self._flag = series, name, flag
        self._present = series[series.notna()]
        self._dtype = str(series.dtype)

    def find(self, given: Any) -> Column:
        """Returns the column, of the kind or with the order that is given, if any."""
        import pandas as pd  # noqa: PLC0415

        if DTYPE.fullmatch(self._dtype) is None:
            raise self._error(f"has the type {shorten(self._dtype)}")
        if isinstance(given, list):
            return self._column("ordered", categories=tuple(given))
        if isinstance(self._series.dtype, pd.CategoricalDtype):
            return self._categorical(given)
        given = given or self._guess()
        if given in ("category", "ordered"):
            values = self._categories()
            return self._column(given, categories=values if given == "ordered" else None)
        return self._date() if given == "date" else self._number(given)

    def _column(self, kind: Any, **more: Any) -> Column:
        return Column(self._name, kind, **{"dtype": self._dtype, **more})

    def _guess(self) -> str:
        """Returns the kind of a column."""
        import pandas as pd  # noqa: PLC0415

        types, dtype = pd.api.types, self._series.dtype
        if types.is_bool_dtype(dtype):
            return "category"
        if types.is_datetime64_any_dtype(dtype) or self._date_format() is not None:
            return "date"
        if types.is_integer_dtype(dtype):
            return "category" if self._present.nunique() <= _FEW else "integer"
        if types.is_float_dtype(dtype):
            return "real"
        texts = self._present.astype(object)  # regular expressions of Python, not of Arrow
        if formulas := list(filter(_FORMULA.fullmatch, map(str, texts))):
            raise self._error(
                f"contains formulas that were never computed, such as {shorten(formulas[0])}",
                "open the file in Excel and save it, or write the values",
            )
        if texts.map(lambda value: isinstance(value, str)).all():
            self._check_texts(texts)
        return "category"

    def _check_texts(self, texts: pd.Series) -> None:
        """Raises UserError if (nearly) all texts are numbers or dates, but not of one form."""
        with_commas, are_numbers = (texts.str.fullmatch(each) for each in (_THOUSANDS, _NUMBER))
        if with_commas.any() and (with_commas | are_numbers).all():
            raise self._other_form(texts[with_commas].iloc[0])
        if texts.nunique() <= _FEW:  # may be classes, such as grades from 1 to 5+
            return
        if texts.str.fullmatch(_DATE).mean() > _MOSTLY:
            raise self._other_form(texts.iloc[0])
        if texts.str.fullmatch(r"[+-]?0\d+").any():  # codes
            return
        if _MOSTLY < are_numbers.mean() < 1:
            raise self._error(
                f"contains numbers, but {shorten(repr(texts[~are_numbers].iloc[0]))} is none",
                f"correct it, leave the cell empty if it is missing, or {_AS_CATEGORY}",
            )
        of_one_form = texts.str.extract(_WITH_UNIT).value_counts().max() / len(texts)
        if of_one_form > _MOSTLY and not (are_numbers & ~texts.str.contains(",")).all():
            raise self._other_form(texts.iloc[0])

    def _other_form(self, text: str) -> UserError:
        return self._error(
            f"contains numbers or dates in another form, such as {shorten(repr(text))}",
            f"write them like 1234.56 or 2024-01-31, or {_AS_CATEGORY}",
        )

    def _error(
        self, what: str, remedy: str = _REMEDY, kind: type[UserError] = UserError
    ) -> UserError:
        return kind(f"{self._flag}: the column {shorten(self._name)!r} {what}", remedy)

    def _categorical(self, given: str | None) -> Column:
        """Returns the column for a Categorical of pandas."""
        values = tuple(map(native, self._series.dtype.categories.tolist()))
        is_ordered = bool(self._series.dtype.ordered)
        if given not in (None, "category", "ordered"):
            plain = self._series.astype(self._series.dtype.categories.dtype)
            return _Finder(plain, self._name, self._flag).find(given)
        self._check_values(values)
        self._check_count(self._present.nunique())
        if len(values) > MOST_CATEGORIES:
            raise self._error(
                f"has {len(values)} categories, most of which do not occur",
                "call cat.remove_unused_categories()",
            )
        kind = given or ("ordered" if is_ordered and values else "category")
        return self._column(kind, categories=values or ("",), is_ordered=is_ordered)

    def _categories(self) -> tuple[Any, ...]:
        """Returns the different values of a column of categories, in their order."""
        values = [native(value) for value in self._present.tolist()]
        kinds = sorted({type(value).__name__ for value in values})
        if not set(kinds) <= {"str", "bool", "int", "float"} or len(kinds) > 1:
            raise self._error(f"contains {' and '.join(kinds)}")
        different = sorted(set(values))
        self._check_count(len(different))
        self._check_values(different)
        return tuple(different) or ("",)

    def _check_values(self, values: Iterable[Any]) -> None:
        """Raises UserError if a value cannot be a category."""
        for value in values:
            if not isinstance(value, str | int | float):
                raise self._error(f"has categories of the type {type(value).__name__}")
            if not _is_value(value):
                raise self._error(
                    "contains infinity, or integers of more than 64 bits, or text that is not UTF-8"
                )

    def _check_count(self, distinct: int) -> None:
        """Raises UserError if the column has too many different values to be a category."""
        count = len(self._series)
        if distinct > MOST_CATEGORIES or (distinct > _NAMES and distinct > count / 2):
            raise self._error(
                f"contains free text, names, or dates of several formats: {distinct} different "
                f"values in {count} rows",
                f"leave it out with {flag_of('drop_columns', self._name)}",
                _UselessColumnError,
            )

    def _number(self, kind: str) -> Column:
        import pandas as pd  # noqa: PLC0415

        if pd.api.types.is_datetime64_any_dtype(self._series.dtype):
            raise self._error("contains dates", "omit its type from --column_types")
        # Texts and booleans to which --column_types gives the kind of a number become numbers.
        default = "int64" if kind == "integer" else "float64"
        dtype = self._dtype if is_numeric(self._dtype) else default
        if kind == "integer":
            return self._column(kind, dtype=dtype)
        try:
            values = pd.to_numeric(self._present).to_numpy(np.float64)
        except (ValueError, TypeError):
            wrong = self._present[pd.to_numeric(self._present, errors="coerce").isna()].iloc[0]
            raise self._error(
                f"contains {shorten(repr(wrong))}, which is no number",
                "correct it, or leave the cell empty if it is missing",
            ) from None
        if not np.isfinite(values).all():
            raise self._error(f"contains infinity in {np.isinf(values).sum()} rows")
        return self._column(kind, dtype=dtype, decimals=_decimals(values, dtype))

    def _date(self) -> Column:
        import pandas as pd  # noqa: PLC0415

        dates, date_format = self._present, None
        if not pd.api.types.is_datetime64_any_dtype(dates.dtype):
            date_format = self._date_format()
            if date_format is None:
                raise self._error(
                    "does not contain dates of one format", "write them as 2024-01-31"
                )
            dates = parse_dates(dates, date_format)
        try:
            whole = nanoseconds(dates)
        except (ValueError, OverflowError):
            raise self._error(
                "has dates before 1678 or after 2261", "write them as missing, or as numbers"
            ) from None
        # Days are those of the time zone of the column.
        days = nanoseconds(local(dates))
        unit = next(
            unit
            for unit, size in UNITS.items()
            if ((days if unit == "D" else whole) % size == 0).all()
        )
        return self._column("date", unit=unit, date_format=date_format)

    def _date_format(self) -> str | None:
        """Returns the format of dates that are texts or numbers, or None if some are no dates."""
        from pandas.tseries.api import guess_datetime_format  # noqa: PLC0415

        texts = [] if is_numeric(self._dtype) else self._present.tolist()
        if not all(isinstance(text, str) for text in texts):
            return None
        if all(re.fullmatch(r"\d{8}", text) for text in texts):  # or there are no texts
            return _DAYS if _are_days(self._present.drop_duplicates()) else None
        if not re.search(r"\d\D+\d", texts[0]):  # a number or a word is no date
            return None
        day_first = any(re.match(r"(1[3-9]|2\d|3[01])[./-]", text) for text in texts)
        date_format = guess_datetime_format(texts[0], dayfirst=day_first)
        if date_format is not None and texts[0].endswith("Z"):  # for UTC
            date_format = date_format.replace("%z", "Z")
        if date_format is None:
            return None
        return self._checked_format(date_format)

    def _checked_format(self, date_format: str) -> str | None:
        """Returns a format with the leading zeros of texts, or None if it is not that of all."""
        import pandas as pd  # noqa: PLC0415

        dates = pd.to_datetime(self._present, format=date_format, errors="coerce")
        share = dates.notna().mean()
        if _MOSTLY < share < 1:
            wrong = self._present[dates.isna()].iloc[0]
            raise self._error(
                f"contains dates, but {shorten(repr(wrong))} is none",
                f"correct it, or {_AS_CATEGORY}",
            )
        if share < 1:
            return None
        if "%z" in date_format or "%f" in date_format:
            raise self._error(
                "contains times with an offset from UTC, or with parts of a second",
                "write them as 2024-01-31 10:00:00, or use a file with types, such as Parquet",
            )
        # Numbers may be written without a leading zero: all, those of the day, or the hour.
        for unpadded in ("", "mdHI", "md", "HI"):
            written = re.sub(f"%([{unpadded}])", r"%-\1", date_format) if unpadded else date_format
            if (dates.dt.strftime(written) == self._present).all():
                return written
        return None


def _are_days(values: pd.Series) -> bool:
    """Returns whether all values are days such as 20240131, which span more than a month."""
    days = values.astype("float64")
    if not days.between(1678_01_01, 2262_01_01).all():
        return False
    try:
        dates = parse_dates(days, _DAYS)
    except ValueError:
        return False
    return len(dates) > 0 and (dates.max() - dates.min()).days > _FEWEST_DAYS


def _decimals(values: np.ndarray, dtype: str) -> int | None:
    """Returns the number of decimals of real numbers, or None for more than MOST_DECIMALS."""
    unique = np.unique(values)
    largest = np.abs(unique).max(initial=0)
    # Numbers of 32 bits have the decimals with which they were written, and an error.
    kind = np.float32 if dtype.endswith("32") else np.float16 if dtype.endswith("16") else float
    for decimals in range(MOST_DECIMALS + 1):
        if largest * 10**decimals > LARGEST_EXACT:
            return None
        whole = np.round(unique * 10**decimals)
        if ((whole / 10**decimals).astype(kind) == unique.astype(kind)).all():
            return decimals
    return None


def flag_of(flag: str, *names: str) -> str:
    """Returns a flag with the names of columns, as a shell takes it: in quotes, if necessary."""
    quoted = (f'"{name}"' if "," in name else name for name in names)
    return shlex.quote(f"--{flag}={','.join(quoted)}")
