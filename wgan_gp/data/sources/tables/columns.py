"""The use of the columns of a table: features, labels and conditions, by names and flags."""

from __future__ import annotations

import csv
import dataclasses
import re
import shlex
from collections import Counter
from collections.abc import Sequence

from ....config import DataSettings
from ....errors import UserError, shorten
from ..labels import LABEL_NAMES

NO_COLUMN = "none"  # the value of --label_column for a table whose columns are all features
_NAMELESS = re.compile(r"(Unnamed: \d+)?")  # pandas writes this for a name that was empty


@dataclasses.dataclass(frozen=True)
class Columns:
    """The use of the columns of a table.

    Attributes:
      names: The names for messages and samples, all different.
      has_names: Whether they are those of the table; else "column 1", "column 2", ...
      nameless: The columns without a name in a table with names, which are left out if empty.
      features: The columns that are features.
      label: The column of the labels, or None.
      conditions: The columns that are conditions.
      notes: What was guessed, in a few words each.
    """

    names: tuple[str, ...]
    has_names: bool
    nameless: frozenset[int]
    features: tuple[int, ...]
    label: int | None
    conditions: tuple[int, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        given: Sequence[str] | None,
        width: int,
        flag: str,
        settings: DataSettings,
        required: bool,
        index: Sequence[str] = (),
    ) -> Columns:
        """Returns the use of columns by their names and the settings; see `open_table`.

        Args:
          given: The names, or None. Columns without names are called by their numbers from 1.
          width: The number of columns.
          flag: The flag and its value for messages.
          settings: The settings that name columns.
          required: Whether the table must have these columns.
          index: The names of the index of a DataFrame, whose levels are no columns.
        """
        plain = [str(i + 1) for i in range(width)] if given is None else [n.strip() for n in given]
        find = _Finder(plain, flag, required, index)
        dropped = find.all("drop_columns", settings.drop_columns)
        conditions = find.all("condition_columns", settings.condition_columns)
        label = find.label(settings.label_column, dropped + conditions)
        if label is not None and conditions:
            raise UserError(
                f"{flag} has labels in column {plain[label]}, but --condition_columns="
                f"{settings.condition_columns} asks for conditions",
                f"add {flag_of('drop_columns', plain[label])}, or omit --condition_columns: a run "
                "has classes or conditions",
            )
        nameless: set[int] = set()
        notes = [f"without the index {shorten(name)}" for name in index]
        if given is not None:
            nameless = {i for i, name in enumerate(plain) if _NAMELESS.fullmatch(name)}
        if 0 in nameless and width > 1 and 0 not in (*dropped, *conditions, label):
            dropped.append(0)
            notes.append("without the first column, an index without a name")
        names = plain if given is None else _filled(plain)
        used = set(dropped) | set(conditions) | {label}
        features = tuple(i for i in range(width) if i not in used)
        if not features:
            raise UserError(f"{flag} has no columns of features", "leave some columns")
        if len(set(names)) < len(names):
            repeated = next(name for name, count in Counter(names).items() if count > 1)
            notes.append(f"columns of the same name are numbered, such as {repeated}.1")
            names = _distinct(names)
        return cls(
            tuple(f"column {name}" for name in names) if given is None else tuple(names),
            given is not None,
            frozenset(nameless),
            features,
            label,
            tuple(conditions),
            tuple(notes),
        )

    def plain_name(self, column: int) -> str:
        """Returns the name of a column, or its number if the table has no names."""
        return self.names[column] if self.has_names else str(column + 1)

    def flag(self, name: str, *columns: int) -> str:
        """Returns a flag that names columns; see `flag_of`."""
        return flag_of(name, *map(self.plain_name, columns))


@dataclasses.dataclass(frozen=True)
class _Finder:
    """Finds columns that flags name.

    Args:
      names: The names of the columns.
      flag: The flag of the table, for messages.
      required: Whether a missing column is an error.
      index: The names of the index of a DataFrame.
    """

    names: list[str]
    flag: str
    required: bool
    index: Sequence[str]

    def all(self, setting: str, value: str | None) -> list[int]:
        """Returns the columns whose names, separated by commas, are the value of a setting."""
        cells = next(csv.reader([value or ""], skipinitialspace=True), [])
        return [place for cell in cells for place in self._find(setting, cell.strip(), value)]

    def label(self, value: str | None, others: Sequence[int]) -> int | None:
        """Returns the column of the labels, which has one of LABEL_NAMES if none is asked for."""
        if value is None:
            found = [
                place
                for place, name in enumerate(self.names)
                if name.lower() in LABEL_NAMES and place not in others
            ]
        elif value.lower() == NO_COLUMN and value not in self.names:
            return None
        else:
            found = self._find("label_column", value.strip(), value)
        if len(found) > 1:
            shown = ", ".join(self.names[place] for place in found)
            raise UserError(
                f"{self.flag} has several columns of labels: {shown}",
                "choose one with --label_column, and leave the others out with --drop_columns",
            )
        if found and found[0] in others:
            raise UserError(
                f"--label_column={value} names a column that another flag names, too",
                "name it once",
            )
        return found[0] if found else None

    def _find(self, setting: str, name: str, value: str | None) -> list[int]:
        for key in (str, str.lower):
            if found := [i for i, each in enumerate(self.names) if key(each) == key(name)]:
                return found
        if (match := re.fullmatch(r"column (\d+)", name)) and int(match[1]) <= len(self.names):
            return [int(match[1]) - 1]
        if not self.required:
            return []
        if name in self.index:
            raise UserError(
                f"--{setting}={value}: {shorten(name)!r} is the index of {self.flag}, not a column",
                "make it a column with reset_index() of pandas",
            )
        raise UserError(
            f"--{setting}={value}: {self.flag} has no column {shorten(name)!r}",
            f"give some of {shorten(', '.join(self.names), 300)}",
        )


def _quoted(name: str) -> str:
    """Returns the name of a column as flags of several names take it."""
    return f'"{name}"' if "," in name else name


def flag_of(flag: str, *names: str) -> str:
    """Returns a flag with the names of columns, as a shell takes it: in quotes, if necessary."""
    return shlex.quote(f"--{flag}={','.join(map(_quoted, names))}")


def distinct_names(given: Sequence[str]) -> list[str]:
    """Returns the names that columns with these names have in `Columns`."""
    return _distinct(_filled([name.strip() for name in given]))


def _filled(names: Sequence[str]) -> list[str]:
    """Returns names of which those that are empty are replaced by "column 1" and so on."""
    return [
        f"column {i + 1}" if _NAMELESS.fullmatch(name) else name for i, name in enumerate(names)
    ]


def _distinct(names: Sequence[str]) -> list[str]:
    """Returns names of which the second and later ones of the same name have numbers."""
    found: dict[str, None] = {}
    for name in names:
        number, distinct = 0, name
        while distinct in found:
            number += 1
            distinct = f"{name}.{number}"
        found[distinct] = None
    return list(found)
