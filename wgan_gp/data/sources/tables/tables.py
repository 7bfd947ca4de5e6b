"""Tables: text files, Parquet, Feather, Excel and DataFrames, as arrays of float64.

The readers are those of pandas, which is imported when a table is opened.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import io
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from absl import logging

from ....config import DataSettings
from ....errors import UserError, reason, shorten

ArrayData = Any
from ..labels import number_labels
from . import text_tables
from .columns import NO_COLUMN, Columns, distinct_names
from .text_tables import BOOLEANS, CODE, MISSING

if TYPE_CHECKING:
    import pandas as pd

TEXT = (".csv", ".tsv", ".txt", ".dat", ".data")
_PARQUET, _FEATHER, _EXCEL = (".parquet", ".pq"), (".feather", ".arrow"), (".xlsx", ".xlsm")
SUFFIXES = (*TEXT, *(f"{suffix}.gz" for suffix in TEXT), *_PARQUET, *_FEATHER, *_EXCEL)
_NO_NUMBER = "is not a number"
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?|\d{1,2}:\d{2}(:\d{2}.*)?")
_WHOLE = re.compile(r"-?\d{1,4000}")  # Python refuses longer ones
_THOUSANDS = re.compile(r"[+-]?\d{1,3}([.,'’ \xa0\u202f]\d{3})+([.,]\d*)?")


def is_table(path: str) -> bool:
    """Returns True for the name of a file that `open_table` reads."""
    return path.lower().endswith(SUFFIXES)


def refuse_columns(flag: str, settings: DataSettings) -> None:
    """Raises UserError if the settings name columns, but the data is not a table."""
    for name in ("label_column", "drop_columns", "condition_columns"):
        if (value := getattr(settings, name)) is not None:
            raise UserError(f"--{name}={value}, but {flag} is not a table", "omit it")


def open_table(path: str, flag: str, settings: DataSettings, *, required: bool = True) -> ArrayData:
    """Opens a table in a file.

    Args:
      path: A file whose name ends in one of `SUFFIXES`.
      flag: The flag and its value for messages.
      settings: --label_column, --drop_columns, --condition_columns and --invalid.
      required: Whether the table must have the columns that the settings name.

    Raises:
      UserError: If it cannot be read as numbers, or its labels as classes.
    """
    name = path.lower()
    if name.endswith(_EXCEL):
        return _open_excel(path, flag, settings, required)
    if name.endswith((*_PARQUET, *_FEATHER)):
        frame = _read_arrow(path, flag, is_parquet=name.endswith(_PARQUET))
        return from_frame(frame, flag, settings, required=required)
    table = text_tables.find_table(path, flag)
    while True:
        columns = Columns.of(table.names, table.width, flag, settings, required)
        _check_commas(table, columns)
        texts = [] if columns.label is None else [columns.label]
        decimal = None if table.separator == "," else table.decimal
        builder = _Builder(columns, flag, table.line, decimal)
        try:
            for frame in table.frames(texts):
                builder.add(frame)
            return builder.finish(settings, table.notes)
        except UnicodeDecodeError:
            table = table.in_windows_1252()
        except _DecimalCommaError:
            notes = (*table.notes, "decimal commas")
            table = dataclasses.replace(table, decimal=",", notes=notes)


def _check_commas(table: text_tables.TextTable, columns: Columns) -> None:
    """Raises UserError if a column that is used has numbers such as 1,234."""
    used = {*columns.features, *columns.conditions, columns.label}
    if bad := sorted(table.doubtful & used):
        raise UserError(
            f"{table.origin}: the commas of numbers in {columns.names[bad[0]]}, such as 1,234, may "
            "be decimal marks or separate thousands",
            "write numbers without separators of thousands and with decimal points, or leave it "
            f"out with {columns.flag('drop_columns', *bad)}",
        )


def column_names(frame: pd.DataFrame) -> list[str]:
    """Returns the names of the columns of a DataFrame as texts, also those of several levels."""
    return [" ".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in frame]


def from_frame(
    frame: pd.DataFrame, flag: str, settings: DataSettings, *, required: bool = True
) -> ArrayData:
    """Returns the examples of a DataFrame, whose index is not a feature; see `open_table`."""
    names = column_names(frame)
    columns = Columns.of(names, len(names), flag, settings, required, names_of_index(frame))
    builder = _Builder(columns, flag, lambda index: f"row {index}")
    builder.add(frame)
    return builder.finish(settings)


def names_of_index(frame: pd.DataFrame) -> list[str]:
    """Returns the names of the index of a DataFrame, such as `set_index` makes from columns."""
    return [str(name) for name in frame.index.names if name is not None]


def open_frame(
    path: str, flag: str, texts: Collection[str] = ()
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Opens a table in a file with all of its types: numbers, texts, dates and missing values.

    Args:
      path, flag: See `open_table`.
      texts: The names of columns of a text file whose cells are texts, even if all are numbers.

    Returns:
      The rows, with the names of the columns, and what was guessed, in a few words each.

    Raises:
      UserError: If it cannot be read.
    """
    name = path.lower()
    if name.endswith(_EXCEL):
        frame, header, notes = _read_excel(path, flag)
        return _named(frame.reset_index(drop=True).infer_objects(), header), notes
    if name.endswith((*_PARQUET, *_FEATHER)):
        return _plain(_read_arrow(path, flag, is_parquet=name.endswith(_PARQUET))), ()
    table = text_tables.find_table(path, flag)
    try:
        return _named(_typed_rows(table, texts), table.names), table.notes
    except UnicodeDecodeError:
        table = table.in_windows_1252()
        return _named(_typed_rows(table, texts), table.names), table.notes


def _named(frame: pd.DataFrame, names: Sequence[str] | None) -> pd.DataFrame:
    """Returns a table with names, or with "column 1", "column 2", ... if there are none."""
    return frame.set_axis(_names_of(names, frame.shape[1]), axis=1)


def _names_of(names: Sequence[str] | None, width: int) -> list[str]:
    if names is None:
        return [f"column {place + 1}" for place in range(width)]
    return [name.strip() for name in names]


def _typed_rows(table: text_tables.TextTable, texts: Collection[str]) -> pd.DataFrame:
    """Returns the rows of a text file; a column has the type of all of its cells together.

    Args:
      table: The file.
      texts: See `open_frame`.
    """
    import pandas as pd  # noqa: PLC0415

    parts = list(table.frames(range(table.width)))
    if not parts:
        raise text_tables.no_examples(table.origin)
    frame = pd.concat(parts, ignore_index=True)
    columns = {
        place: cells.astype("object").map(lambda cell: cell.strip(), na_action="ignore")
        for place, cells in frame.items()
    }
    names = distinct_names(_names_of(table.names, table.width))
    are_texts = {place: name in texts for place, name in zip(columns, names, strict=True)}
    numbers = {place: cells for place, cells in columns.items() if not are_texts[place]}
    with_commas = _columns_with_decimal_commas(numbers, table.separator)
    return pd.DataFrame(
        {
            place: cells if are_texts[place] else _typed_column(cells, place in with_commas)
            for place, cells in columns.items()
        }
    )


def _columns_with_decimal_commas(
    columns: Mapping[int, pd.Series], separator: str
) -> frozenset[int]:
    """Returns the columns of numbers whose commas are decimal marks.

    Numbers with decimal points leave it open whether the comma of 1,234 is one.

    Args:
      columns: The cells of the columns that may be numbers.
      separator: The character between columns.
    """
    if separator == ",":
        return frozenset()
    different = {place: list(cells.dropna().unique()) for place, cells in columns.items()}

    def find_numbers(is_of_form: Callable[[str], bool]) -> dict[int, list[str]]:
        """Returns the cells of columns of numbers, of which some have a form."""
        return {
            place: cells
            for place, cells in different.items()
            if any(map(is_of_form, cells)) and all(map(text_tables.is_value, cells))
        }

    cells = find_numbers(text_tables.is_decimal_comma)
    with_commas, doubtful = text_tables.comma_columns(cells, separator)
    found = with_commas - doubtful
    if not found or not find_numbers(text_tables.has_decimal_point):
        return found
    return frozenset(
        place
        for place in found
        if not all(text_tables.may_have_thousands(text) for text in cells[place] if "," in text)
    )


def _typed_column(cells: pd.Series, has_decimal_commas: bool) -> pd.Series:
    """Returns a column of texts as integers, real numbers or booleans if all of them are.

    Texts of digits with leading zeros are codes, which stay texts.
    """
    import pandas as pd  # noqa: PLC0415

    if cells.dropna().isin(["True", "False"]).all() and cells.notna().any():
        values = cells.map({"True": True, "False": False})
        return values.astype("bool" if cells.notna().all() else "boolean")
    known = cells.notna() & cells.map(lambda cell: str(cell).lower() not in MISSING)
    texts = cells[known]
    if not len(texts) or texts.map(lambda text: CODE.match(text) is not None).any():
        return cells
    if texts.map(lambda text: _WHOLE.fullmatch(text) is not None).all():
        whole = [int(text) for text in texts]
        for dtype, low, high in (("Int64", -(2**63), 2**63), ("UInt64", 0, 2**64)):
            if low <= min(whole) and max(whole) < high:
                values = pd.Series(pd.NA, cells.index, dtype)
                values[known] = pd.array(whole, dtype)
                return values.astype(dtype.lower()) if known.all() else values
        return cells
    numbers = pd.to_numeric(cells.where(known), errors="coerce")
    if has_decimal_commas and not texts.map(lambda text: "." in text).any():
        points = texts.map(lambda text: text.replace(",", "."))
        numbers = pd.to_numeric(points.reindex(cells.index), errors="coerce")
    return cells if numbers[known].isna().any() else numbers.astype(float)


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns a table of a file with dates and decimal numbers in the types of pandas."""
    import pandas as pd  # noqa: PLC0415

    types = {datetime.date: "datetime64[s]", decimal.Decimal: "float64"}
    found = {}
    for name, column in frame.items():
        kinds = set(map(type, column.dropna())) if column.dtype == object else set()
        kind = kinds.pop() if len(kinds) == 1 else None
        found[name] = column.astype(types[kind]) if kind in types else column
    return pd.DataFrame(found)


class _DecimalCommaError(Exception):
    """A decimal comma after lines that contain none."""


class _Builder:
    """Collects the rows of a table.

    Args:
      columns: The use of the columns.
      flag: The flag and its value for messages.
      locate: Returns the place of a row in words, such as "line 3".
      decimal: The decimal mark in a text file that may have either, else None.
    """

    def __init__(
        self, columns: Columns, flag: str, locate: Callable[[int], str], decimal: str | None = None
    ):
        self._columns = columns
        self._flag = flag
        self._locate = locate
        self._decimal = decimal
        self._count = 0
        self._examples: list[np.ndarray] = []
        self._conditions: list[np.ndarray] = []
        self._labels: list[pd.Series] = []

    def add(self, frame: pd.DataFrame) -> None:
        """Adds rows.

        Raises:
          UserError: If a feature or a condition is not a number.
        """
        columns = self._columns
        self._examples.append(self._numbers(frame, columns.features))
        self._conditions.append(self._numbers(frame, columns.conditions))
        if columns.label is not None:
            self._labels.append(frame.iloc[:, columns.label])
        self._count += len(frame)

    def finish(self, settings: DataSettings, notes: Sequence[str] = ()) -> ArrayData:
        """Returns all rows.

        Args:
          settings: --invalid says what is done about rows without a label.
          notes: What was guessed about the file.

        Raises:
          UserError: If there are none, or the labels are not classes.
        """
        columns = self._columns
        if not self._count:
            raise text_tables.no_examples(self._flag)
        examples, conditions = map(_joined, (self._examples, self._conditions))
        features, notes = columns.features, [*notes, *columns.notes]
        empty = [
            place
            for place, column in enumerate(features)
            if column in columns.nameless and np.isnan(examples[:, place]).all()
        ]
        if empty and len(empty) < len(features):
            notes += [f"without the empty {columns.names[features[place]]}" for place in empty]
            examples = np.delete(examples, empty, axis=1)
            features = tuple(np.delete(features, empty).tolist())
        labels, classes, lacking = None, None, ~np.isfinite(conditions).all(axis=1)
        label_of_class = None
        if columns.label is not None:
            labels, classes, lacking, label_of_class = self._classes()
        if lacking.any():
            index = int(lacking.argmax())
            what = f"{self._flag}: {self._locate(index)} has no {self._wanted(conditions, index)}"
            if settings.invalid == "refuse":
                raise UserError(what, "add it, or leave such examples out with --invalid=drop")
            if lacking.all():
                raise UserError(what, "give data with labels")
            examples, conditions = examples[~lacking], conditions[~lacking]
            labels = None if labels is None else labels[~lacking]
        names = tuple(columns.names[column] for column in features)
        self._warn_of_counters(examples, features)
        return ArrayData(
            examples,
            labels,
            class_names=classes,
            names=names if columns.has_names else None,
            conditions=conditions if columns.conditions else None,
            condition_names=tuple(columns.names[column] for column in columns.conditions),
            label_name=None if columns.label is None else columns.plain_name(columns.label),
            label_of_class=label_of_class,
            left_out=int(lacking.sum()),
            rows=np.flatnonzero(~lacking) if lacking.any() else None,
            notes=tuple(notes),
            is_table=True,
        )

    def _numbers(self, frame: pd.DataFrame, chosen: Sequence[int]) -> np.ndarray:
        """Returns columns as numbers, `[B, F]` float64."""
        part = frame.iloc[:, list(chosen)]
        if all(isinstance(each, np.dtype) and each.kind in "biuf" for each in part.dtypes):
            return part.to_numpy(np.float64)
        values = np.empty(part.shape)
        errors = {}
        for place, column in enumerate(chosen):
            values[:, place], bad = _to_numbers(part.iloc[:, place], self._decimal)
            if bad is not None:
                errors[column] = bad
        if errors:
            raise self._not_numbers(frame, errors)
        return values

    def _not_numbers(self, frame: pd.DataFrame, errors: dict[int, int]) -> Exception:
        """Returns the error of columns that have a cell which is not a number.

        Args:
          frame: The rows.
          errors: The place of the first such cell, by column.
        """
        columns = self._columns
        cells = {column: frame.iloc[row, column] for column, row in errors.items()}
        if self._decimal == "." and any(
            text_tables.is_decimal_comma(cell) and not text_tables.may_have_thousands(cell)
            for column in errors
            for cell in frame.iloc[:, column].dropna().map(str)
        ):
            return _DecimalCommaError()
        column, row = next(iter(errors.items()))
        cell, place = cells[column], self._locate(self._count + row)
        if "\n" in str(cell):
            return text_tables.unclosed(self._flag, place)
        remedy = f"correct it, or leave it out with {columns.flag('drop_columns', *errors)}"
        problem, better_remedy = _describe(cell, self._decimal)
        if columns.label is None and not columns.conditions and problem == _NO_NUMBER:
            of_all = "--label_column=NAME"
            label = columns.flag("label_column", column) if len(errors) == 1 else of_all
            remedy += f"; name the column of the classes with {label}"
            remedy += ", or read texts and dates, too, with --column_types=auto"
        return UserError(
            f"{self._flag}: {place}: {shorten(str(cell))!r} in {columns.names[column]} {problem}",
            better_remedy or remedy,
        )

    def _classes(self) -> tuple[np.ndarray, tuple[str, ...], np.ndarray, dict[str, Any]]:
        """Returns the classes of all rows, their names, which rows have none, and their labels."""
        import pandas as pd  # noqa: PLC0415

        column = self._columns.label
        assert column is not None
        series = pd.concat(self._labels, ignore_index=True)
        codes, found = pd.factorize(series.astype(object))
        cells = [cell.strip() if isinstance(cell, str) else cell for cell in found]
        missing = [i for i, cell in enumerate(cells) if _is_missing_label(cell)]
        lacking = np.isin(codes, [-1, *missing])
        kept = [i for i in range(len(cells)) if i not in set(missing)]
        if not kept:
            name = self._columns.names[column]
            raise UserError(f"{self._flag} has no labels in column {name}", "add them")
        for i in kept:
            if isinstance(cells[i], str) and "\n" in cells[i]:
                place = self._locate(int((codes == i).argmax()))
                raise text_tables.unclosed(self._flag, place)
        values = self._label_values([cells[i] for i in kept], codes, kept)
        numbers, names = number_labels(values, self._flag)
        label_of_class = {names[number]: found[i] for i, number in zip(kept, numbers, strict=True)}
        table = np.zeros([len(cells) + 1], np.int64)  # the last is that of missing labels
        table[kept] = numbers
        return table[codes], names, lacking, label_of_class

    def _label_values(
        self, cells: list[Any], codes: np.ndarray, places: Sequence[int]
    ) -> np.ndarray:
        """Returns different labels as numbers if all are numbers, else as they are."""
        column = self._columns.label
        assert column is not None
        try:
            texts = [str(cell) for cell in cells]
            if self._decimal == ",":
                texts = [text.replace(",", ".") for text in texts]
            if any(isinstance(cell, (bool, np.bool_)) for cell in cells):
                raise ValueError
            if any("_" in text or CODE.match(text) for text in texts):  # Python reads 1_1 as 11
                raise ValueError
            numbers = [float(text) for text in texts]
        except ValueError:
            return np.array(cells, object)
        for number, code in zip(numbers, places, strict=True):
            if not number.is_integer():
                name, flag = self._columns.names[column], self._columns.flag
                raise UserError(
                    f"{self._flag}: {self._locate(int((codes == code).argmax()))}: {number:g} in "
                    f"the column of labels, {name}, is not an integer",
                    f"give {flag('condition_columns', column)} for conditions, "
                    f"--label_column={NO_COLUMN} for a feature, or {flag('drop_columns', column)}",
                )
        is_exact = all(re.fullmatch(r"[+-]?\d+", text) for text in texts)
        return np.array([int(text) for text in texts] if is_exact else list(map(int, numbers)))

    def _wanted(self, conditions: np.ndarray, index: int) -> str:
        """Returns the name of what a row lacks."""
        columns = self._columns
        if columns.label is not None:
            return columns.names[columns.label]
        missing = int((~np.isfinite(conditions[index])).argmax())
        return columns.names[columns.conditions[missing]]

    def _warn_of_counters(self, examples: np.ndarray, features: Sequence[int]) -> None:
        """Warns of columns that count the rows, which say nothing about an example."""
        count = len(examples)
        if count < 10:
            return
        for place in np.flatnonzero(examples[-1] - examples[0] == count - 1):
            if (np.diff(examples[:, place]) == 1).all():
                name = self._columns.names[features[place]]
                drop = self._columns.flag("drop_columns", features[place])
                logging.warning(f"{self._flag}: {name} counts the rows; {drop} leaves it out")


def _to_numbers(series: pd.Series, decimal: str | None) -> tuple[np.ndarray, int | None]:
    """Returns the numbers of a column, and the place of the first cell that is none, or None."""
    import pandas as pd  # noqa: PLC0415

    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_complex_dtype(series):
        return series.to_numpy(np.float64, na_value=np.nan), None
    values = np.full([len(series)], np.nan)
    cells = series.to_numpy(object)
    for place in np.flatnonzero(series.notna()):
        value = _to_number(cells[place], decimal)
        if value is None:
            return values, int(place)
        values[place] = value
    return values, None


def _to_number(cell: Any, decimal: str | None) -> float | None:
    """Returns the number of a cell, NaN for a missing one, or None for anything else."""
    if isinstance(cell, (complex, np.complexfloating, datetime.date, datetime.timedelta)):
        return None
    if isinstance(cell, str):
        text = cell.strip().lower()
        if text in MISSING:
            return np.nan
        if text in BOOLEANS:
            return BOOLEANS[text]
        if decimal == "," and text_tables.is_decimal_comma(text):
            text = text.replace(",", ".")
        elif "_" in text or (decimal == "," and "." in text):
            return None
        cell = text
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def _describe(cell: Any, decimal: str | None) -> tuple[str, str | None]:
    """Returns what is wrong with a cell that is not a number, and what to do if that is known."""
    text = str(cell).strip()
    if _THOUSANDS.fullmatch(text):
        return "has separators of thousands", "write numbers without them, such as 1234.5"
    if text_tables.is_decimal_comma(text):
        remedy = "write a point, or separate columns by semicolons"
        return "has a decimal comma", remedy
    if decimal == "," and text_tables.is_value(text):
        return "has a decimal point, but other numbers have commas", "write all numbers alike"
    if isinstance(cell, (datetime.date, datetime.timedelta)) or _DATE.fullmatch(text):
        return "is a date, not a number", None
    return _NO_NUMBER, None


def _is_missing_label(cell: Any) -> bool:
    return isinstance(cell, str) and (cell == "" or cell.lower() in MISSING - {"none"})


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _read_arrow(path: str, flag: str, *, is_parquet: bool) -> pd.DataFrame:
    """Returns the content of a Parquet or Feather file."""
    import pandas as pd  # noqa: PLC0415

    require_package("pyarrow", flag)
    content = _content(path)
    with _explaining(flag):
        if is_parquet:
            from pyarrow import parquet  # noqa: PLC0415

            known = parquet.ParquetFile(content).metadata
            _check_size(flag, 8 * known.num_rows * known.num_columns, content)
            return pd.read_parquet(content, engine="pyarrow")
        return pd.read_feather(content)


def _open_excel(path: str, flag: str, settings: DataSettings, required: bool) -> ArrayData:
    """Returns the content of the first sheet of an Excel file."""
    frame, header, notes = _read_excel(path, flag)
    columns = Columns.of(header, frame.shape[1], flag, settings, required)
    lines = frame.index.to_numpy() + 1
    builder = _Builder(columns, flag, lambda index: f"row {lines[index]}")
    builder.add(frame.reset_index(drop=True).infer_objects())
    return builder.finish(settings, notes)


def _read_excel(
    path: str, flag: str
) -> tuple[pd.DataFrame, tuple[str, ...] | None, tuple[str, ...]]:
    """Returns the rows of the first sheet of an Excel file, the names of its columns, and notes."""
    import pandas as pd  # noqa: PLC0415

    require_package("openpyxl", flag)
    content = _content(path)
    with _explaining(flag):
        with zipfile.ZipFile(content) as archive:
            _check_size(flag, sum(each.file_size for each in archive.infolist()), content)
        with pd.ExcelFile(content, engine="openpyxl") as file:
            sheets = file.sheet_names
            frame = file.parse(sheets[0], header=None, keep_default_na=False, na_values=[""])
    frame = frame[frame.notna().any(axis=1)]
    head = frame.head(100).to_numpy(object)
    rows = [["" if pd.isna(cell) else str(cell) for cell in row] for row in head]
    header = text_tables.find_header(rows) if rows else None
    if header is not None:
        frame = frame.iloc[1:]
    notes = () if len(sheets) == 1 else (f"from the first of {len(sheets)} sheets, {sheets[0]}",)
    return frame, header, notes


@contextlib.contextmanager
def _explaining(flag: str) -> Iterator[None]:
    """Turns the errors of libraries that read a damaged file into a UserError."""
    try:
        yield
    except UserError:
        raise
    except (Exception, MemoryError) as error:
        raise UserError(
            f"{flag} cannot be read ({reason(error) or type(error).__name__})",
            "write it again, without a password, or as .csv",
        ) from error


def _content(path: str) -> io.BytesIO:
    with tf.io.gfile.GFile(path, "rb") as file:
        return io.BytesIO(file.read())


def require_package(package: str, flag: str) -> None:
    """Raises UserError if an optional package is not installed."""
    import importlib.util  # noqa: PLC0415

    if importlib.util.find_spec(package) is None:
        raise UserError(
            f"{flag} needs {package}, which is not installed",
            f"run pip install {package}, or write the table as .csv",
        )


def _check_size(flag: str, size: int, content: io.BytesIO) -> None:
    ratio = text_tables.UNPACKED_RATIO
    if size > max(text_tables.UNPACKED_BYTES, ratio * content.getbuffer().nbytes):
        raise text_tables.unpacks_to_too_much(flag)
