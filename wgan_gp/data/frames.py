"""Reads tables as DataFrames of pandas: text, Parquet, Feather and Excel files, in parts or whole.

A text file is UTF-8, UTF-16 with a byte order mark, or Windows-1252, and its columns are separated
by commas, semicolons or tabs. Other files are refused: pandas reads them in Python.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import datetime
import decimal
import functools
import gzip
import io
import itertools
import math
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from ..errors import UserError, reason, shorten
from .sources.labels import LABEL_NAMES
from .sources.listing import reading

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_TEXT = (".csv", ".tsv", ".txt", ".dat", ".data")
_PARQUET, _FEATHER, _EXCEL = (".parquet", ".pq"), (".feather", ".arrow"), (".xlsx", ".xlsm")
SUFFIXES = (*_TEXT, *(f"{suffix}.gz" for suffix in _TEXT), *_PARQUET, *_FEATHER, *_EXCEL)
# A packed file that unpacks to more than both of these is refused, because it may fill the memory.
UNPACKED_BYTES = 2**30
UNPACKED_RATIO = 200
# The cells that are missing in a column of texts, and those that are missing among numbers.
_MISSING = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "-nan", "NULL", "null")
_NO_NUMBER = frozenset([*map(str.lower, _MISSING), "none", "?"])
CODE = re.compile(r"[+-]?0\d")  # digits with a leading zero, which are no number
_WHOLE = re.compile(r"[+-]?\d{1,4000}")  # Python refuses longer ones
_REAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_MAYBE_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16"}
_MARKS[codecs.BOM_UTF16_BE] = "utf-16"
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "|", " ": "blanks"}
_HEAD_LINES, _BLOCK_ROWS = 100, 100_000
_NAMELESS = re.compile(r"(Unnamed: \d+)?")  # pandas writes this for a name that was empty
_WITH_PANDAS = "or read it with pandas and give the DataFrame to wgan_gp.train"


class Frame(NamedTuple):
    """A table.

    Attributes:
      frame: Its rows. The names of its columns are different texts.
      notes: What was guessed or left out, in a few words each.
      labels: The names that these columns have in a DataFrame of Python.
      types: What columns were whose types `plain_frame` changed, for `restore_types`.
    """

    frame: pd.DataFrame
    notes: tuple[str, ...]
    labels: pd.Index
    types: dict[str, str]


class _Part(NamedTuple):
    """A file of a table.

    Attributes:
      frame: Its rows. Those of a text file are texts.
      notes: What was guessed.
      separator: The character between the columns of a text file.
    """

    frame: pd.DataFrame
    notes: tuple[str, ...] = ()
    separator: str | None = None


def is_table(path: str) -> bool:
    """Returns True for the name of a file, a folder or a pattern that `read_frame` reads."""
    if _reader_of(path) is not None:
        return True
    names = _parts_in(path) if tf.io.gfile.isdir(path) else []
    return bool(names) and all(_reader_of(name) is not None for name in names)


def read_frame(source: str | bytes, flag: str, texts: Collection[str] = ()) -> Frame:
    """Reads a table.

    Args:
      source: A file whose name ends in one of SUFFIXES; a folder of parts of one table, such as
        Spark writes, or a pattern of their names, such as 'DIR/*.csv'; or the bytes of a text file.
      flag: The flag and its value, for messages.
      texts: Columns of a text file whose cells are texts, even if all are numbers.

    Raises:
      UserError: If it cannot be read, or contains no rows.
    """
    import pandas as pd  # noqa: PLC0415, which takes half a second

    parts = [_read_text(source, flag)] if isinstance(source, bytes) else _read_parts(source, flag)
    if not sum(len(part.frame) for part in parts):
        raise UserError(f"{flag} contains no examples", "give a row for each example")
    frame = parts[0].frame
    if len(parts) > 1:
        frame = pd.concat([part.frame for part in parts], ignore_index=True)
    notes = tuple(dict.fromkeys(itertools.chain(*(part.notes for part in parts))))
    notes = notes if len(parts) == 1 else (f"from {len(parts)} files", *notes)
    separator = parts[0].separator
    if separator is None:
        found = plain_frame(frame, notes)
        return found._replace(labels=found.frame.columns)
    frame, notes, _ = _with_names(frame, notes)
    commas = _columns_with_decimal_commas(frame.drop(columns=[*texts], errors="ignore"), separator)
    cells = {
        name: column if name in texts else _typed(column, name in commas)
        for name, column in frame.items()
    }
    notes = (*notes, "decimal commas") if commas else notes
    return Frame(pd.DataFrame(cells), notes, frame.columns, {})


def plain_frame(frame: pd.DataFrame, notes: Sequence[str] = ()) -> Frame:
    """Returns a DataFrame with the names and types that a table has in a text file.

    Days of `datetime.date` are dates, Decimals are real numbers, and the types of pyarrow are those
    of pandas. Other types stay, such as integers of which some are missing.
    """
    import pandas as pd  # noqa: PLC0415

    frame, notes, labels = _with_names(frame, notes)
    found, types = {}, {}
    for name, column in frame.items():
        found[name], was = _plain(column)
        if was is not None:
            types[name] = was
    return Frame(pd.DataFrame(found, frame.index), tuple(notes), labels, types)


def restore_types(frame: pd.DataFrame, types: dict[str, str]) -> pd.DataFrame:
    """Returns rows with the types that their columns had before `plain_frame`."""
    import pandas as pd  # noqa: PLC0415

    found = {}
    for name in types.keys() & {*frame}:
        column, was = frame[name], types[name]
        if was == "date":
            found[name] = column.dt.date.astype("object").where(column.notna(), None)
        elif was == "decimal":
            numbers = [None if math.isnan(each) else decimal.Decimal(str(each)) for each in column]
            found[name] = pd.Series(numbers, column.index, "object")
        else:
            found[name] = column.astype(was)
    return frame.assign(**found)


def require_package(package: str, flag: str) -> None:
    """Raises UserError if an optional package is not installed."""
    import importlib.util  # noqa: PLC0415

    if importlib.util.find_spec(package) is None:
        raise UserError(
            f"{flag} needs {package}, which is not installed",
            f"run pip install {package}, or write the table as .csv",
        )


# Names and types of columns.


def _with_names(
    frame: pd.DataFrame, notes: Sequence[str]
) -> tuple[pd.DataFrame, tuple[str, ...], pd.Index]:
    """Returns a table with different names, without columns that have none and no use."""
    notes = list(notes)
    names = [
        " ".join(map(str, each)).strip() if isinstance(each, tuple) else str(each).strip()
        for each in frame
    ]
    nameless = [place for place, name in enumerate(names) if _NAMELESS.fullmatch(name)]
    dropped = [place for place in nameless if frame.iloc[:, place].isna().all()]
    if len(dropped) == len(names):
        dropped = []
    notes += [f"without the empty column {place + 1}" for place in dropped]
    if 0 in nameless and 0 not in dropped and len(names) - len(dropped) > 1:
        dropped.append(0)
        notes.append("without the first column, an index without a name")
    found: dict[str, int] = {}
    for place in range(len(names)):
        if place in dropped:
            continue
        name = distinct = f"column {place + 1}" if place in nameless else names[place]
        number = 0
        while distinct in found:
            number += 1
            distinct = f"{name}.{number}"
        if number == 1:
            notes.append(f"columns of the same name are numbered, such as {shorten(distinct)}")
        found[distinct] = place
    frame = frame.iloc[:, list(found.values())]
    return frame.set_axis(list(found), axis=1), tuple(notes), frame.columns


def _plain(column: pd.Series) -> tuple[pd.Series, str | None]:
    """Returns a column in a type of pandas, and what it was if it had another one."""
    import pandas as pd  # noqa: PLC0415

    if isinstance(column.dtype, pd.ArrowDtype):
        import pyarrow as pa  # noqa: PLC0415

        frame = _of_arrow(pa.table({"": column.array.__arrow_array__()}))
        found, was = _plain(frame[""].set_axis(column.index))
        with contextlib.suppress(TypeError, NotImplementedError):  # some have no name
            was = str(pd.api.types.pandas_dtype(str(column.dtype)))
        return found, was
    kinds = set(map(type, column.dropna())) if column.dtype == object else set()
    if kinds == {datetime.date}:
        return column.astype("datetime64[s]"), "date"
    if kinds == {decimal.Decimal}:
        return column.astype("float64"), "decimal"
    return column, None


def _of_arrow(table: pa.Table) -> pd.DataFrame:
    """Returns a table of pyarrow, of which integers and booleans with missing values stay exact."""
    import pandas as pd  # noqa: PLC0415

    names = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    nullable: dict[str, Any] = {
        name: pd.api.types.pandas_dtype(name.replace("i", "I").replace("u", "U")) for name in names
    }
    nullable["bool"] = pd.BooleanDtype()
    frame = table.to_pandas(types_mapper=lambda kind: nullable.get(str(kind)))
    found = {
        place: column.astype(column.dtype.numpy_dtype)
        if column.dtype in nullable.values() and column.notna().all()
        else column
        for place, column in enumerate(frame.iloc[:, place] for place in range(frame.shape[1]))
    }
    return pd.DataFrame(found, frame.index).set_axis(frame.columns, axis=1)


def _typed(cells: pd.Series, has_decimal_commas: bool) -> pd.Series:
    """Returns a column of texts as integers, real numbers or booleans if all of them are."""
    import pandas as pd  # noqa: PLC0415

    present = cells.notna()
    if present.any() and cells[present].isin(["True", "False"]).all():
        values = cells.map({"True": True, "False": False})
        return values.astype("bool" if present.all() else "boolean")
    known = present & ~cells.str.lower().isin(_NO_NUMBER)
    texts = cells[known].tolist()
    if has_decimal_commas:
        texts = [text.replace(",", ".") for text in texts]
    if not texts or not all(map(_REAL.fullmatch, texts)) or any(map(CODE.match, texts)):
        return cells
    if not all(map(_WHOLE.fullmatch, texts)):
        numbers = pd.Series(float("nan"), cells.index)
        numbers[known] = list(map(float, texts))
        return numbers
    whole = list(map(int, texts))
    for dtype, low, high in (("Int64", -(2**63), 2**63), ("UInt64", 0, 2**64)):
        if low <= min(whole) and max(whole) < high:
            values = pd.Series(pd.NA, cells.index, dtype)
            values[known] = pd.array(whole, dtype)
            return values.astype(dtype.lower()) if known.all() else values
    return cells


def _columns_with_decimal_commas(frame: pd.DataFrame, separator: str) -> set[str]:
    """Returns the columns of numbers whose commas are decimal marks.

    Numbers such as 1,234 may have separators of thousands, and stay texts, unless other columns
    have decimal commas, or semicolons and three decimals everywhere say that they have them. Where
    numbers have decimal points, neither counts.
    """
    if separator == ",":
        return set()
    certain, likely, doubtful, has_points = set(), set(), set(), False
    for name, cells in frame.items():
        texts = [text for text in cells.dropna().unique() if text.lower() not in _NO_NUMBER]
        if not all(_REAL.fullmatch(text.replace(",", ".", 1)) for text in texts):
            continue
        commas = [text for text in texts if "," in text]
        if any("." in text for text in texts):
            has_points = True
        elif not commas:
            continue
        elif not all(map(_MAYBE_THOUSANDS.fullmatch, commas)):
            certain.add(name)
        elif separator == ";" and len(commas) == len(texts):
            likely.add(name)
        else:
            doubtful.add(name)
    if has_points:
        return certain
    return certain | likely | (doubtful if certain else set())


# Files.


def _parts_in(folder: str) -> list[str]:
    """Returns the names in a folder, without hidden ones and those of Spark, such as _SUCCESS."""
    return sorted(name for name in tf.io.gfile.listdir(folder) if not name.startswith((".", "_")))


def _read_parts(path: str, flag: str) -> list[_Part]:
    """Reads the files of a table, without those that have no rows.

    Raises:
      UserError: If there are none, or they have different columns.
    """
    paths = [path]
    with reading(flag):
        if tf.io.gfile.isdir(path):
            paths = [posixpath.join(path, name) for name in _parts_in(path)]
        elif not tf.io.gfile.exists(path):
            paths = sorted(tf.io.gfile.glob(path)) if re.search(r"[*?[]", path) else []
    if not paths:
        raise UserError(f"{flag} does not exist, or is empty", "check the path")
    readers = {_reader_of(each) for each in paths}
    reader = readers.pop()
    if reader is None or readers:
        raise UserError(
            f"{flag} is no table, or contains several kinds of files",
            f"give files of one kind that end in one of {', '.join(SUFFIXES)}",
        )
    parts: list[_Part] = []
    for each in paths:
        where = flag if each == path else f"{flag}: {posixpath.basename(each)}"
        with reading(where), tf.io.gfile.GFile(each, "rb") as file:
            content = file.read()
        part = reader(content, where)
        columns = list(part.frame), part.separator
        if parts and len(part.frame) and columns != (list(parts[0].frame), parts[0].separator):
            raise UserError(
                f"{where} has other columns than the files before it",
                "give files with the same names of columns in the same order",
            )
        parts += [part] if len(part.frame) else []
    return parts


def _read_arrow(content: bytes, flag: str, *, is_parquet: bool) -> _Part:
    """Reads a Parquet or Feather file."""
    require_package("pyarrow", flag)
    from pyarrow import feather, parquet  # noqa: PLC0415

    with _explaining(flag):
        if not is_parquet:
            return _Part(_of_arrow(feather.read_table(io.BytesIO(content))))
        file = parquet.ParquetFile(io.BytesIO(content))
        _check_size(flag, 8 * file.metadata.num_rows * file.metadata.num_columns, content)
        return _Part(_of_arrow(file.read()))


def _read_excel(content: bytes, flag: str) -> _Part:
    """Reads the first sheet of an Excel file."""
    import pandas as pd  # noqa: PLC0415

    require_package("openpyxl", flag)

    def read(data_only: bool) -> tuple[pd.DataFrame, list[str]]:
        options = {"engine": "openpyxl", "engine_kwargs": {"data_only": data_only}}
        with pd.ExcelFile(io.BytesIO(content), **options) as file:
            sheet = file.parse(0, header=None, keep_default_na=False, na_values=[""])
            return sheet, list(map(str, file.sheet_names))

    with _explaining(flag):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check_size(flag, sum(each.file_size for each in archive.infolist()), content)
            pages = [archive.read(name) for name in archive.namelist() if "worksheets/" in name]
        frame, sheets = read(data_only=True)
        if any(re.search(rb"<(\w+:)?f[ >/]", page) for page in pages):
            frame = _with_formulas(frame, read(data_only=False)[0])
    frame = frame[frame.notna().any(axis=1)]
    head = frame.head(_HEAD_LINES).to_numpy(object)
    rows = [["" if pd.isna(cell) else str(cell) for cell in row] for row in head]
    names, has_header, notes = _find_names(rows)
    if len(sheets) > 1:
        notes.append(f"from the first of {len(sheets)} sheets, {sheets[0]}")
    frame = frame.iloc[int(has_header) :].reset_index(drop=True).infer_objects()
    return _Part(frame.set_axis(names, axis=1), tuple(notes))


def _with_formulas(values: pd.DataFrame, formulas: pd.DataFrame) -> pd.DataFrame:
    """Returns a sheet in which formulas are texts in columns where none of them was computed.

    Args:
      values: The cells of a sheet. The value of a formula is missing if it is an empty text, too.
      formulas: The same cells with formulas in place of their values, and maybe more rows.
    """
    found = values.reindex_like(formulas)
    are_formulas = formulas.notna() & (formulas.astype(str) != found.astype(str))
    never = are_formulas.any() & ~(are_formulas & found.notna()).any()
    return found.mask(are_formulas & never, formulas) if never.any() else values


@contextlib.contextmanager
def _explaining(flag: str) -> Iterator[None]:
    """Turns the errors of libraries that read a damaged file into a UserError."""
    try:
        yield
    except UserError:
        raise
    except (Exception, MemoryError) as error:
        raise UserError(
            f"{flag} cannot be read ({shorten(reason(error) or type(error).__name__)})",
            "write it again, without a password, or as .csv",
        ) from error


def _check_size(flag: str, size: int, content: bytes) -> None:
    """Raises UserError if a packed file may fill the memory."""
    if size > max(UNPACKED_BYTES, UNPACKED_RATIO * len(content)):
        raise UserError(
            f"{flag} unpacks to more than {UNPACKED_RATIO} times its size",
            "unpack it first, and give the unpacked file",
        )


# Text files.


def _read_text(content: bytes, flag: str) -> _Part:
    """Reads a text file, whose cells stay texts."""
    import pandas as pd  # noqa: PLC0415

    content = _unpacked(content, flag)
    encoding, notes = find_encoding(content, flag)

    def lines(first: int, last: int | None = None) -> Iterator[str]:
        text = io.TextIOWrapper(io.BytesIO(content), encoding, newline="")
        return itertools.islice(text, first, last)

    given = re.fullmatch(r'"?sep=([,;\t])"?\s*', next(lines(0, 1), ""))  # for Excel
    start = 1 if given else 0
    separator = given[1] if given else _find_separator(list(lines(0, _HEAD_LINES)), flag)
    rows = _rows(lines(start), separator, flag, start + 1)
    head = list(itertools.islice(rows, _HEAD_LINES))
    if head and head[0][0].startswith("#") and head[0][0].strip() != "#":
        raise UserError(
            f"{flag} begins with #, as a comment does",
            f"delete the line, or the # before the names of the columns, {_WITH_PANDAS}",
        )
    names, has_header, of_names = _find_names(head)
    rows = itertools.chain(head[has_header:], rows)
    blocks = [pd.DataFrame(columns=range(len(names)), dtype="str")]
    while block := list(itertools.islice(rows, _BLOCK_ROWS)):
        blocks.append(pd.DataFrame(block, dtype="str"))
    frame = pd.concat(blocks, ignore_index=True).apply(lambda cells: cells.str.strip())
    frame = frame.mask(frame.isin(_MISSING)).set_axis(names, axis=1)
    notes += of_names
    if separator != ",":
        notes.append(f"columns separated by {_SEPARATORS[separator]}")
    return _Part(frame, tuple(notes), separator)


def _rows(lines: Iterator[str], separator: str, flag: str, line: int) -> Iterator[list[str]]:
    """Yields the cells of all lines that are not blank.

    Args:
      lines: The lines of a file.
      separator: The character between cells.
      flag: The flag and its value, for messages.
      line: The number of the first line.

    Raises:
      UserError: If a line has another number of cells than the first one, or an open quote.
    """
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    first, width = line, 0
    try:
        for cells in reader:
            # A cell in quotes is a row, also if it is empty.
            if cells and (cells != [""] or width == 1):
                width = width or len(cells)
                if len(cells) != width:
                    columns = f"{len(cells)} column{'s' if len(cells) > 1 else ''}"
                    raise UserError(
                        f"{flag}: line {line} has {columns} in place of {width}",
                        f"correct it, {_WITH_PANDAS}",
                    )
                yield cells
            line = first + reader.line_num
    except csv.Error as error:
        raise UserError(
            f"{flag}: line {line} has a quote that is not closed, or cannot be read ({error})",
            f"correct it, {_WITH_PANDAS}",
        ) from None


def _unpacked(content: bytes, flag: str) -> bytes:
    """Returns the content of a file that may be packed by gzip."""
    if content[:2] != b"\x1f\x8b":
        return content
    limit = max(UNPACKED_BYTES, UNPACKED_RATIO * len(content))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{flag} cannot be unpacked ({error})", "pack it again with gzip") from None
    _check_size(flag, len(unpacked), content)
    return unpacked


def find_encoding(content: bytes, flag: str) -> tuple[str, list[str]]:
    """Returns the encoding of a text, and what was guessed.

    Raises:
      UserError: If it is no text.
    """
    marked = [name for mark, name in _MARKS.items() if content.startswith(mark)]
    for encoding in marked or ["utf-8", "cp1252"]:
        with contextlib.suppress(UnicodeDecodeError):
            if "\0" in content.decode(encoding):
                break
            if encoding != "cp1252":
                return encoding, []
            _check_not_mixed(content, flag)
            return encoding, ["read as Windows-1252, because it is not UTF-8"]
    raise UserError(
        f"{flag} is not a text file", "give a table of text in UTF-8, or its true file ending"
    )


def _check_not_mixed(content: bytes, flag: str) -> None:
    """Raises UserError if some lines of a text are UTF-8 and others are not."""
    bad, has_utf8 = 0, False
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            has_utf8 |= not line.isascii() and bool(line.decode())
        except UnicodeDecodeError:
            bad = bad or number
    if has_utf8:
        raise UserError(
            f"{flag}: line {bad} is not in UTF-8, but other lines are",
            "correct it, or save the whole file in UTF-8",
        )


def _find_separator(lines: Sequence[str], flag: str) -> str:
    """Returns the character with which most lines have as many cells as the first one.

    Of several such characters, it is the one with which most cells are numbers.

    Raises:
      UserError: If the columns are separated by other characters.
    """

    def quality(separator: str) -> tuple[float, float]:
        parsed = [re.sub(" +", " ", line.strip()) for line in lines] if separator == " " else lines
        try:
            rows = list(csv.reader(parsed, delimiter=separator, skipinitialspace=True))
        except csv.Error:
            return 0, 0
        rows = [row for row in rows if row and row != [""]]
        if not rows or len(rows[0]) < 2:
            return 0, 0
        cells = [cell for row in rows for cell in row]
        alike = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
        return alike, sum(map(_is_value, cells)) / len(cells)

    best = max(_SEPARATORS, key=quality)
    if best in "| ":
        raise UserError(
            f"{flag} seems to have columns separated by {_SEPARATORS[best]}",
            f"separate them by commas, semicolons or tabs, {_WITH_PANDAS}",
        )
    return best


def _find_names(rows: Sequence[Sequence[str]]) -> tuple[list[str], bool, list[str]]:
    """Returns the names of columns, whether the first row contains them, and what was guessed.

    It does if it contains the name of a label or a text above numbers, or no number above numbers.
    """
    if not rows:
        return [], False, []
    first = [cell.strip() for cell in rows[0]]
    below = [[cell.strip() for cell in column] for column in zip(*rows[1:], strict=True)]
    are_numbers = [all(map(_is_value, column)) for column in below]
    above = [cell for cell, are in zip(first, are_numbers, strict=False) if are]
    if all(map(_is_value, first)):
        is_header = _are_written_by_pandas(first, below)
        is_sure = not is_header and all(are_numbers)
    else:
        is_sure = any(cell.lower() in LABEL_NAMES for cell in first)
        is_sure |= not below or not all(map(_is_value, above))
        is_header = is_sure or not any(above)
    taken = "names, not an example" if is_header else "an example, not names"
    names = first if is_header else [f"column {place + 1}" for place in range(len(first))]
    return names, is_header, [] if is_sure else [f"the first line is taken for {taken}"]


def _are_written_by_pandas(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Returns whether numbers are the names 0, 1, 2, ... of an array, or names next to an index."""
    if first[0] == "" and len(first) > 1 and below:
        index = below[0]
        return any(map(_is_counted, (first[1:], index))) or not all(map(_is_value, index))
    has_reals = any("." in cell and _is_value(cell) for column in below for cell in column)
    return _is_counted(first) and (has_reals or len(first) > 2)


def _is_counted(cells: Sequence[str]) -> bool:
    return list(cells) == [str(place) for place in range(len(cells))]


def _is_value(cell: str) -> bool:
    """Returns True for the text of a number, a boolean or a missing value."""
    cell = cell.strip().lower()
    is_number = _REAL.fullmatch(cell.replace(",", ".", 1))
    return bool(is_number) or cell in _NO_NUMBER or cell in ("true", "false")


_READERS: dict[tuple[str, ...], Callable[[bytes, str], _Part]] = {
    _PARQUET: functools.partial(_read_arrow, is_parquet=True),
    _FEATHER: functools.partial(_read_arrow, is_parquet=False),
    _EXCEL: _read_excel,
    _TEXT: _read_text,
    tuple(f"{suffix}.gz" for suffix in _TEXT): _read_text,
}


def _reader_of(path: str) -> Callable[[bytes, str], _Part] | None:
    """Returns the function that reads files whose names end like this one, or None."""
    return next((read for ends, read in _READERS.items() if path.lower().endswith(ends)), None)
