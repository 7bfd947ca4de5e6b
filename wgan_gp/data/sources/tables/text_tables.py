"""Tables in text files: encoding, separator, decimal mark, header, and the lines of errors."""

from __future__ import annotations

import codecs
import contextlib
import csv
import dataclasses
import gzip
import io
import itertools
import re
import statistics
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ....errors import UserError
from ..labels import LABEL_NAMES

if TYPE_CHECKING:
    import pandas as pd

MISSING = frozenset(["", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none", "?"])
BOOLEANS = {"true": 1.0, "false": 0.0}
# Those of MISSING that may not be the name of a class, as programs write them.
_MISSING_CELLS = ["", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "-nan", "NULL", "null"]
_GUESSED_ENCODING = "read as Windows-1252, because it is not UTF-8"
_SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "|", ",": "commas", " ": "blanks"}
_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # begins like that of UTF-16
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Texts of digits with leading zeros, which are codes and no numbers.
CODE = re.compile(r"[+-]?0\d")
_NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_MAYBE_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # and maybe a decimal comma
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_HEAD_LINES = 100
_HEAD_CHARACTERS = 2**22
_LONGEST_LINE = 2**26
_CHUNK_CELLS, _MOST_CHUNK_CELLS = 2**22, 2**25
# A packed file that unpacks to more than both of these is refused, because it may fill the memory.
UNPACKED_BYTES = 2**30
UNPACKED_RATIO = 200


@dataclasses.dataclass(frozen=True)
class TextTable:
    """A table in a text file, whose form was found from its first lines.

    Attributes:
      path: The file.
      origin: The flag and its value for messages.
      encoding: Its encoding.
      separator: The character between columns; " " means one or more blanks.
      decimal: The decimal mark, "." or ",".
      doubtful: The columns of numbers such as 1,234, whose commas may also separate thousands.
      width: The number of columns.
      names: The names of the columns, "" for a column without one; None without a header.
      skipped: The number of lines before the header, or before the first example.
      has_header: Whether the line of names is still to be skipped.
      notes: What was guessed, in a few words each.
    """

    path: str
    origin: str
    encoding: str
    separator: str
    decimal: str
    doubtful: frozenset[int]
    width: int
    names: tuple[str, ...] | None
    skipped: int
    has_header: bool
    notes: tuple[str, ...]

    def frames(self, texts: Sequence[int]) -> Iterator[pd.DataFrame]:
        """Yields the rows in order, as tables whose columns are numbered.

        Args:
          texts: The columns that are read as texts.

        Raises:
          UserError: If a line has another number of columns, or a quote is not closed.
        """
        import pandas as pd  # noqa: PLC0415, which takes half a second

        # pandas 3 reads exactly, and no longer knows this option.
        exact: Any = (
            {} if int(pd.__version__.split(".")[0]) > 2 else {"float_precision": "round_trip"}
        )
        is_checked = False
        try:
            with self._open() as text:
                for _ in self._rows(text, only_header=True):
                    pass
                for frame in pd.read_csv(
                    text,
                    sep=r"\s+" if self.separator == " " else self.separator,
                    decimal=self.decimal,
                    header=None,
                    dtype=dict.fromkeys(texts, str),
                    keep_default_na=False,
                    na_values=_MISSING_CELLS,
                    skipinitialspace=True,
                    low_memory=False,  # a column has one type in a chunk
                    chunksize=_rows_of_chunk(self.width),
                    **exact,
                ):
                    is_short = frame.shape[1] != self.width or frame.iloc[:, -1].isna().any()
                    if is_short and not is_checked:
                        self._check_widths()  # pandas fills short lines with missing values
                        is_checked = True
                    yield frame
        except pd.errors.EmptyDataError:
            raise no_examples(self.origin) from None
        except pd.errors.ParserError as error:
            last = self._check_widths()
            if "EOF inside string" in str(error):
                raise self._unclosed(last) from None
            raise UserError(f"{self.origin} cannot be read ({error})", "correct it") from None

    def in_windows_1252(self) -> TextTable:
        """Returns the same table for bytes after its first lines that are not UTF-8.

        Raises:
          UserError: If other lines are UTF-8.
        """
        if self.encoding != "utf-8":  # its byte order mark says another encoding
            raise not_text(self.origin)
        _check_not_mixed(self.path, self.origin)
        return dataclasses.replace(self, encoding="cp1252", notes=(*self.notes, _GUESSED_ENCODING))

    def line(self, index: int) -> str:
        """Returns the line of an example in words, such as "line 3"."""
        for place, (number, _) in enumerate(self.rows()):
            if place == index:
                return f"line {number}"
        raise IndexError(index)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yields the first line of each example, from 1, and its cells."""
        with self._open() as text:
            yield from self._rows(text)

    def _rows(self, text: Any, only_header: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Yields the rows of `text`, from which it reads no more lines than necessary."""
        for _ in range(self.skipped):
            text.readline()
        reader = _parse(iter(text.readline, ""), self.separator)
        is_header = self.has_header
        first = self.skipped + 1
        while is_header or not only_header:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error:
                raise self._unclosed(first) from None
            if not _is_blank(cells) and not is_header:
                yield first, cells
            is_header = is_header and _is_blank(cells)
            first = self.skipped + reader.line_num + 1

    def _check_widths(self) -> int:
        """Checks the number of columns of all lines, and returns the first line of the last row."""
        number = 0
        for number, cells in self.rows():
            if len(cells) != self.width:
                if any("\n" in cell for cell in cells):
                    raise self._unclosed(number)
                raise UserError(
                    f"{self.origin}: line {number} has {len(cells)} column"
                    f"{'s' if len(cells) > 1 else ''} in place of {self.width}",
                    "correct it",
                )
        return number

    def _unclosed(self, number: int) -> UserError:
        return unclosed(self.origin, f"line {number}")

    def _open(self) -> io.TextIOWrapper:
        return _open(self.path, self.origin, self.encoding)


def find_table(path: str, origin: str) -> TextTable:
    """Finds the form of a table from its first lines.

    - The encoding is that of the byte order mark, else UTF-8, else Windows-1252.
    - The separator is the one with which all lines have the same number of columns, and most of
      their cells are numbers.
    - Numbers have decimal commas if the first lines contain some, and no decimal points.
    - The first line is a header if it has a text in a column of numbers, the name of a label, or
      the names 0, 1, 2, ... that pandas gives to the columns of an array.

    Args:
      path: The file, which may be packed by gzip.
      origin: The flag and its value for messages.

    Raises:
      UserError: If it is not a table in a text file.
    """
    encoding, lines, is_whole = _read_head(path, origin)
    given, comments, skipped = _leading_lines(lines)
    separator = given or _find_separator(lines[skipped:] or comments, is_whole)
    try:
        rows = _head_rows(lines[skipped:], separator, is_whole)
        others = rows or _head_rows(comments, separator, is_whole)
        # Lines above a line of names, which is above numbers, are comments.
        ends_here = any(_value_columns(rows[1:])) and find_header(rows) is not None
        while comments and not ends_here and _is_example(comments[-1], others, separator):
            comments.pop()
            skipped -= 1
            rows = _head_rows(lines[skipped:], separator, is_whole)
    except csv.Error:
        raise UserError(
            f"{origin} has a cell of more than {csv.field_size_limit()} characters",
            'look for a " that is not closed',
        ) from None
    header, has_header = _find_names(comments, rows, separator) if rows else (None, False)
    rows = rows[1:] if has_header else rows
    if not rows:
        raise no_examples(origin)
    names = None if header is None else _completed(header, rows)
    decimal, doubtful = _find_decimal(rows, separator)
    notes = [_GUESSED_ENCODING] if encoding == "cp1252" else []
    if header is None and not all(map(is_value, rows[0])):
        notes.append("the first line is taken for an example, not names")
    if header is not None and not has_header:
        notes.append("the names of columns are those of the comment above the first line")
    if separator != ",":
        notes.append(f"columns separated by {_SEPARATORS.get(separator, separator)}")
    if decimal == ",":
        notes.append("decimal commas")
    if header is not None and _is_counted(header):
        notes.append("the first line is taken for names, not an example")
    width = len(names or rows[0])
    return TextTable(
        path,
        origin,
        encoding,
        separator,
        decimal,
        doubtful,
        width,
        names,
        skipped,
        has_header,
        tuple(notes),
    )


def decode_text(content: bytes) -> str:
    """Returns the text of a file, whose encoding is found as in `find_table`.

    Raises:
      ValueError: If it is not a text.
    """
    for encoding in _encodings_of(content[:4]):
        with contextlib.suppress(UnicodeDecodeError):
            text = content.decode(encoding)
            if "\0" in text:
                break
            if encoding == "cp1252" and (line := _mixed_line(content.splitlines())):
                raise ValueError(f"line {line} is not in UTF-8, but other lines are")
            return text
    raise ValueError("it is not a text")


def find_header(rows: Sequence[Sequence[str]]) -> tuple[str, ...] | None:
    """Returns the cells of the first row if it is a header, else None; see `find_table`."""
    first, others = [cell.strip() for cell in rows[0]], rows[1:]
    is_header = False
    if all(map(is_value, first)):
        # A single 0 is a name only before numbers that are not integers.
        is_real = any(_DECIMAL_POINT.fullmatch(cell) for row in others for cell in row)
        is_header = _is_counted(first) and (len(first) > 1 or is_real)
    elif not others or any(cell.lower() in LABEL_NAMES for cell in first):
        is_header = True
    else:
        columns = list(zip(*(row for row in others if len(row) == len(first)), strict=True))
        columns = columns or list(zip(*(row[-len(first) :] for row in others), strict=False))
        are_values = [all(map(is_value, column)) for column in columns]
        pairs = list(zip(first, are_values, strict=False))
        is_header = (
            any(are and not is_value(cell) for cell, are in pairs)
            or not any(are and cell and is_value(cell) for cell, are in pairs)
            or all(cell == str(i) for i, (cell, are) in enumerate(pairs) if are)
        )
    return tuple(first) if is_header else None


def is_value(cell: str) -> bool:
    """Returns True for the text of a number, a boolean or a missing value."""
    cell = cell.strip()
    return bool(_NUMBER.fullmatch(cell)) or cell.lower() in MISSING or cell.lower() in BOOLEANS


def is_decimal_comma(cell: str) -> bool:
    """Returns True for the text of a number with a decimal comma, such as 0,5."""
    return bool(_DECIMAL_COMMA.fullmatch(cell.strip()))


def has_decimal_point(cell: str) -> bool:
    """Returns True for the text of a number with a decimal point, such as 0.5."""
    return bool(_DECIMAL_POINT.fullmatch(cell.strip()))


def unclosed(origin: str, place: str) -> UserError:
    """Returns the error of a quote that swallows the lines after it."""
    return UserError(
        f"{origin}: a quote in {place} is not closed, so that it contains the following lines",
        'add the second ", or delete the first one',
    )


def not_text(origin: str) -> UserError:
    """Returns the error of a file that contains no text."""
    return UserError(
        f"{origin} is not a text file", "give a table of text in UTF-8, or its true file ending"
    )


def no_examples(origin: str) -> UserError:
    """Returns the error of a table without rows."""
    return UserError(f"{origin} contains no examples", "give a line of numbers for each example")


def _is_counted(cells: Sequence[str]) -> bool:
    """Returns True for the names 0, 1, 2, ..., possibly after that of an index."""
    cells = cells[1:] if cells[0] == "" and len(cells) > 1 else cells
    return all(cell == str(i) for i, cell in enumerate(cells))


def _completed(header: tuple[str, ...], rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Returns a header with an empty name for a column that it lacks."""
    if len(rows[0]) == len(header) + 1:
        firsts = [row[0].strip() for row in rows]
        are_names = not any(map(is_value, firsts))
        if are_names or counts_rows(firsts):  # as R's write.table writes
            return ("", *header)
        if not any(row[-1].strip() for row in rows):  # a separator at the end of each line
            return (*header, "")
    return header


def counts_rows(cells: Sequence[str]) -> bool:
    """Returns True if cells are 0, 1, 2, ... or 1, 2, 3, ..."""
    return len(cells) > 1 and any(
        all(cell == str(i) for i, cell in enumerate(cells, first)) for first in (0, 1)
    )


def _find_separator(lines: Sequence[str], is_whole: bool) -> str:
    best = (",", (0, 0.0))
    for separator in _SEPARATORS:
        try:
            rows = _head_rows(lines, separator, is_whole)
        except csv.Error:
            continue
        widths = [len(row) for row in rows]
        if not rows or statistics.mode(widths[1:] or widths) < 2:
            continue
        cells = [cell for row in rows for cell in row]
        share = sum(map(is_value, cells)) / len(cells)
        quality = (2 if len(set(widths)) == 1 else widths[0] == widths[-1] - 1, share)
        if quality > best[1]:
            best = (separator, quality)
    return best[0]


def comma_columns(
    columns: Mapping[int, Iterable[str]], separator: str
) -> tuple[frozenset[int], frozenset[int]]:
    """Returns the columns that have commas in numbers, and those whose commas are doubtful.

    Commas are doubtful if all numbers with commas may have separators of thousands, such as 1,234.
    Semicolons between columns say that commas are decimal marks, if all numbers of a column have
    three decimals.

    Args:
      columns: The cells of each column, by its place.
      separator: The character between columns.
    """
    found, doubtful, are_decimal = set(), set(), False
    for place, cells in columns.items():
        texts = [cell.strip() for cell in cells]
        with_commas = [text for text in texts if _DECIMAL_COMMA.fullmatch(text)]
        if not with_commas:
            continue
        found.add(place)
        has_integers = any(_NUMBER.fullmatch(text) and "," not in text for text in texts)
        if not all(map(_MAYBE_THOUSANDS.fullmatch, with_commas)):
            are_decimal = True
        elif separator != ";" or has_integers:
            doubtful.add(place)
    return frozenset(found), frozenset() if are_decimal else frozenset(doubtful)


def may_have_thousands(cell: str) -> bool:
    """Returns True for a text such as 1,234, whose comma may separate thousands."""
    return bool(_MAYBE_THOUSANDS.fullmatch(cell.strip()))


def _find_decimal(rows: Sequence[Sequence[str]], separator: str) -> tuple[str, frozenset[int]]:
    """Returns the decimal mark, and the columns whose commas may separate thousands."""
    cells = (cell.strip() for row in rows for cell in row)
    if separator == "," or any(map(_DECIMAL_POINT.fullmatch, cells)):
        return ".", frozenset()
    columns = dict(enumerate(itertools.zip_longest(*rows, fillvalue="")))
    with_commas, doubtful = comma_columns(columns, separator)
    return "," if with_commas - doubtful else ".", doubtful


def _read_head(path: str, origin: str) -> tuple[str, list[str], bool]:
    """Returns the encoding, the first lines, and whether they are all."""
    for encoding in _find_encodings(path, origin):
        with contextlib.suppress(UnicodeDecodeError):
            lines, is_whole = _head(path, origin, encoding)
            if not any("\0" in line for line in lines):
                if encoding == "cp1252":
                    _check_not_mixed(path, origin)
                return encoding, lines, is_whole
    raise not_text(origin)


def _check_not_mixed(path: str, origin: str) -> None:
    """Raises UserError if some lines of a file are UTF-8 and others are not."""
    with _open_bytes(path, origin) as file:
        line = _mixed_line(iter(lambda: file.readline(_LONGEST_LINE), b""))
    if line is not None:
        raise UserError(
            f"{origin}: line {line} is not in UTF-8, but other lines are",
            "correct it, or save the whole file in UTF-8",
        )


def _mixed_line(lines: Iterable[bytes]) -> int | None:
    """Returns the first line, from 1, that is not UTF-8, if others are that are not ASCII."""
    bad, has_utf8 = None, False
    for number, line in enumerate(lines, 1):
        try:
            line.decode("utf-8")
            has_utf8 |= not line.isascii()
        except UnicodeDecodeError:
            bad = bad or number
        if bad and has_utf8:
            return bad
    return None


def _rows_of_chunk(width: int) -> int:
    """Returns the number of rows that are read at a time; pandas is slow for a few wide rows."""
    return max(1, _CHUNK_CELLS // width, min(1000, _MOST_CHUNK_CELLS // width))


def _leading_lines(lines: Sequence[str]) -> tuple[str | None, list[str], int]:
    """Returns the separator that the first line gives, comments, and the number of these lines."""
    separator, count = None, 0
    if lines and (match := re.fullmatch(r'"?sep=(.)"?\s*', lines[0])):  # for Excel
        separator, count = match[1], 1
    comments = list(itertools.takewhile(lambda line: line.startswith("#"), lines[count:]))
    return separator, comments, count + len(comments)


def _find_names(
    comments: Sequence[str], rows: Sequence[Sequence[str]], separator: str
) -> tuple[tuple[str, ...] | None, bool]:
    """Returns the names of columns or None, and whether the first row contains them."""
    in_comment = _names_in(comments[-1], rows, separator) if comments else None
    # Rows of texts say nothing about their first line, so that "#a,b" above them counts.
    are_texts = not any(_value_columns(rows[1:]))
    are_names = not any(is_value(cell) and cell.lower() not in MISSING for cell in in_comment or ())
    if in_comment and are_names and are_texts and comments[-1][1:2].strip():
        return in_comment, False
    header = find_header(rows)
    return (in_comment, False) if header is None else (header, True)


def _names_in(
    comment: str, rows: Sequence[Sequence[str]], separator: str
) -> tuple[str, ...] | None:
    """Returns the names of columns in a comment, where numpy.savetxt and others write them."""
    cells = _head_rows([comment.lstrip("# ")], separator, True)
    return tuple(cells[0]) if cells and len(cells[0]) == len(rows[0]) else None


def _is_example(line: str, others: Sequence[Sequence[str]], separator: str) -> bool:
    """Returns True for a line such as "#ff0000,3", which begins as a comment does.

    Args:
      line: The line.
      others: Other rows, of which the first one may contain names.
      separator: The character between columns.
    """
    if line.startswith(("# ", "##")):
        return False
    (cells,) = _head_rows([line], separator, True) or ([],)
    are_values = _value_columns(others[1:] or others)
    pairs = zip(cells, are_values, strict=False)
    return (
        any(are_values)
        and len(cells) == len(are_values)
        and all(is_value(cell) for cell, are in pairs if are)
    )


def _value_columns(rows: Sequence[Sequence[str]]) -> list[bool]:
    """Returns for each column of the first row whether it contains only numbers or the like.

    An empty column does not.
    """
    columns = zip(*(row for row in rows if len(row) == len(rows[0])), strict=True)
    return [all(map(is_value, column)) and any(map(str.strip, column)) for column in columns]


def _head(path: str, origin: str, encoding: str) -> tuple[list[str], bool]:
    """Returns the first lines, and whether they are all."""
    lines: list[str] = []
    size = 0
    with _open(path, origin, encoding) as text:
        while len(lines) < _HEAD_LINES and (size < _HEAD_CHARACTERS or len(lines) < 3):
            line = text.readline(_LONGEST_LINE)
            if not line:
                return lines, True
            if len(line) == _LONGEST_LINE:
                raise not_text(origin)
            lines.append(line)
            size += len(line)
        return lines, not text.read(1)


def _head_rows(lines: Sequence[str], separator: str, is_whole: bool) -> list[list[str]]:
    """Returns the complete rows in the first lines, without blank ones."""
    rows = list(_parse(lines, separator))
    if not is_whole and len(rows) > 1:
        rows.pop()  # a quote may continue it
    return [cells for cells in rows if not _is_blank(cells)]


def _parse(lines: Iterable[str], separator: str) -> Any:
    if separator == " ":
        lines = (line.strip().replace("\t", " ") + "\n" for line in lines)
    return csv.reader(lines, delimiter=separator, skipinitialspace=True)


def _is_blank(cells: Sequence[str]) -> bool:
    return len(cells) < 2 and not "".join(cells).strip()


def _find_encodings(path: str, origin: str) -> tuple[str, ...]:
    with _open_bytes(path, origin) as file:
        return _encodings_of(file.read(4))


def _encodings_of(head: bytes) -> tuple[str, ...]:
    """Returns the encodings that a text may have, from its first 4 bytes, the likeliest first."""
    for mark, name in _BOMS.items():
        if head.startswith(mark):
            return (name,)
    if head[1:2] == b"\0":
        return ("utf-16-le",)
    return ("utf-16-be",) if head[:1] == b"\0" else ("utf-8", "cp1252")


def _open(path: str, origin: str, encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(_open_bytes(path, origin), encoding, newline="")


def _open_bytes(path: str, origin: str) -> Any:
    file = tf.io.gfile.GFile(path, "rb")
    stream = io.BufferedReader(_Stream(file, 2**63, origin), 2**20)
    if stream.peek(2)[:2] != b"\x1f\x8b":
        return stream
    limit = max(UNPACKED_BYTES, UNPACKED_RATIO * file.size())
    return io.BufferedReader(_Stream(gzip.GzipFile(fileobj=stream), limit, origin), 2**20)


class _Stream(io.RawIOBase):
    """The bytes of a file of `tf.io.gfile` or gzip, up to a limit."""

    def __init__(self, file: Any, limit: int, origin: str):
        self._file = file
        self._left = limit
        self._origin = origin

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._file.read(len(buffer))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UserError(
                f"{self._origin} cannot be unpacked ({error})", "pack it again with gzip"
            ) from None
        self._left -= len(content)
        if self._left < 0:
            raise unpacks_to_too_much(self._origin)
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._file.close()
        super().close()


def unpacks_to_too_much(origin: str) -> UserError:
    """Returns the error of a packed file that may fill the memory."""
    return UserError(
        f"{origin} unpacks to more than {UNPACKED_RATIO} times its size",
        "unpack it first, and give the unpacked file",
    )
