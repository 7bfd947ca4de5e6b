"""Reads typed tables: files and DataFrames with --column_types."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ...config import DataSettings, DeviceSettings
from ...errors import UserError, reason, shorten
from ..holdout import is_held_out
from ..opened_data import ExampleFormat, OpenedData, StoredData, UnreadData, check_sent
from ..sources.listing import check_path
from ..sources.tables.columns import Columns
from ..sources.tables.tables import (
    SUFFIXES,
    column_names,
    is_table,
    names_of_index,
    open_frame,
)
from ..spec import DataSpec
from .kinds import is_of_kind
from .table import Table

if TYPE_CHECKING:
    import pandas as pd

_TEXTS = ("object", "str", "string")  # the types of columns of texts in pandas
AUTO = "auto"  # the value of --column_types without a file
# The number of rows that are drawn for a conditional run.
_MOST_REPEATED, _FEWEST_DRAWN, _MOST_DRAWN = 4, 2**15, 2**20


class TableReader:
    """Reads a typed table; see `datasets.DatasetReader`.

    Args:
      settings: The settings of the data.
      flag: The name of the data for messages.
      frame: The rows.
      notes: What was guessed of a file, in a few words each.
      path: The file, if it is one.

    Raises:
      UserError: If the table cannot be read.
    """

    resizable = False  # see `Dataset.resizable`
    bounded = False

    def __init__(
        self,
        settings: DataSettings,
        flag: str,
        frame: pd.DataFrame,
        notes: tuple[str, ...] = (),
        path: str | None = None,
    ):
        if settings.condition_columns is not None:
            raise UserError(
                f"--condition_columns={settings.condition_columns} does not apply to a table with "
                "--column_types",
                "omit it",
            )
        self._settings, self._flag, self._path = settings, flag, path
        self._given_types = read_column_types(settings.column_types)
        self._table: Table | None = None
        self._use_rows(frame, notes)

    def _use_rows(self, frame: pd.DataFrame, notes: tuple[str, ...]) -> None:
        self._given, self._given_notes = frame, notes
        settings, flag, names = self._settings, self._flag, column_names(frame)
        index = names_of_index(frame)
        columns = Columns.of(names, len(names), flag, settings, required=True, index=index)
        kept = sorted({*columns.features, *([] if columns.label is None else [columns.label])})
        self._frame = frame.iloc[:, kept]
        self._labels_of_columns = self._frame.columns
        self._frame = self._frame.set_axis([columns.names[place] for place in kept], axis=1)
        self._frame = self._frame.reset_index(drop=True)
        if not len(self._frame):
            raise UserError(f"{flag} contains no examples", "give a row for each example")
        self.notes = [*notes, *columns.notes]
        self._target = None if columns.label is None else columns.names[columns.label]
        self._trained_on = ~is_held_out(len(self._frame), settings.holdout)

    @property
    def table(self) -> Table:
        """The columns: those that `use_spec` gives, else those of these rows.

        Raises:
          UserError: If the rows cannot be trained on.
        """
        if self._table is None:
            self._table = Table.of(
                self._frame,
                self._flag,
                self._given_types,
                target=self._target,
                trained_on=self._trained_on,
            )
        return self._table

    @property
    def rows(self) -> int:
        """The number of rows that are trained on, of which a conditional run draws many twice."""
        return int(self._trained_on.sum())

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the labels of a conditional run; None without columns of categories."""
        return self.table.label_names or None

    @property
    def example_shape(self) -> tuple[int, ...]:
        """The number of features, `(D,)`."""
        return (self.table.size,)

    def use_spec(self, spec: DataSpec) -> None:
        """Maps rows to features as in the training data, or as at the beginning of the run."""
        assert spec.table is not None, "the training data is a typed table"
        self._check_given_types(spec.table)
        others = {name for name, dtype in self._frame.dtypes.items() if str(dtype) not in _TEXTS}
        if self._path is not None and spec.table.texts & others:
            # Such as the grades 9 to 12, if "other" is only in the training data.
            self._use_rows(*open_frame(self._path, self._flag, spec.table.texts))
        self._table = spec.table
        # Held-out rows of the same table have much the same range.
        spec.table.warn_of_range(self._frame[self._trained_on], self._flag)

    def _check_given_types(self, table: Table) -> None:
        """Raises UserError if --column_types gives other types than a table has."""
        columns = {column.name: column for column in table.columns}
        other = [
            name
            for name, kind in self._given_types.items()
            if not is_of_kind(columns.get(name), kind)
        ]
        if other:
            raise UserError(
                f"--column_types={self._settings.column_types} gives types to "
                f"{shorten(', '.join(map(repr, other)))} that the run did not have at its "
                "beginning",
                "give the file of its beginning, or use another --model_dir",
            )

    def open(self, settings: DataSettings, *, classes: int, devices: DeviceSettings) -> StoredData:
        examples = self.table.encode(self._frame, self._flag, settings.seed)
        check_sent(self._flag, examples.nbytes, devices)
        return StoredData(settings.seed, self._format, examples, self.table.labels_of(examples))

    def balanced(self, data: StoredData) -> StoredData:
        """Returns the rows on which a conditional run trains, with their labels.

        Rare categories are frequent among them: labels are drawn by `Table.draw_labels`, and a row
        for each (training by sampling, arXiv:1907.00503, section 4.3).
        """
        seed, examples = self._settings.seed, data.examples.numpy()
        count = self.balanced_size(len(examples))
        labels = self.table.draw_labels(count, seed, is_balanced=True)
        rows = self.table.draw_rows(examples, labels, seed)
        return StoredData(seed, self._format, examples[rows], labels)

    @staticmethod
    def balanced_size(size: int) -> int:
        """Returns the number of rows that `balanced` draws from a number of rows."""
        return min(max(_MOST_REPEATED * size, _FEWEST_DRAWN), _MOST_DRAWN)

    def open_unread(self, settings: DataSettings, *, devices: DeviceSettings) -> OpenedData:
        return UnreadData(self._format, len(self._frame), True)

    def with_settings(self, settings: DataSettings) -> TableReader:
        return TableReader(settings, self._flag, self._given, self._given_notes, self._path)

    def fingerprint(self, settings: DataSettings) -> dict[str, Any]:
        content = hashlib.sha256(self._frame.to_csv(index=False).encode())
        return {"examples": len(self._frame), "content": content.hexdigest()}

    def with_given_columns(self, samples: pd.DataFrame) -> pd.DataFrame:
        """Returns samples with the labels that the columns of the data have in Python."""
        return samples.set_axis(self._labels_of_columns, axis=1)

    @property
    def _format(self) -> ExampleFormat:
        return ExampleFormat(self.example_shape, tf.float32, lambda examples, _: examples)


class TypedFrameReader(TableReader):
    """Reads DataFrames with --column_types; see `frames.FrameReader`.

    Args:
      settings: The settings of the data.
      function: Maps a split to a DataFrame or None.
      flag: The name of the data for messages.
    """

    def __init__(self, settings: DataSettings, function: Callable[[str], Any], flag: str):
        self._function = function
        super().__init__(settings, flag, _frame_of(function(settings.split), flag))

    def open(self, settings: DataSettings, *, classes: int, devices: DeviceSettings) -> StoredData:
        value = _frame_of(self._function(settings.split), self._flag)
        if value is self._given:
            return super().open(settings, classes=classes, devices=devices)
        flag = f"{self._flag} of the split {settings.split}"
        other = TableReader(settings, flag, value)
        other.use_spec(DataSpec(self.example_shape, 0, False, table=self.table))
        return other.open(settings, classes=classes, devices=devices)

    def with_settings(self, settings: DataSettings) -> TypedFrameReader:
        return TypedFrameReader(settings, self._function, self._flag)

    def held_out_split(self, settings: DataSettings) -> str | None:
        """Returns "test" or "validation" if the function returns other data for it, else None."""
        for split in ("test", "validation"):
            if split == settings.split:
                continue
            value = self._function(split)
            if value is not None and not _frame_of(value, self._flag).equals(self._given):
                return split
        return None


def read_table(settings: DataSettings, flag: str) -> TableReader:
    """Returns the reader of --data_dir, a table in a file.

    Raises:
      UserError: If it is no table, or cannot be trained on.
    """
    path = settings.data_dir
    if path is None:
        raise UserError("--dataset=array needs --data_dir", f"give a file, {', '.join(SUFFIXES)}")
    flag = f"{flag}={path}"
    check_path(flag, path)
    if tf.io.gfile.isdir(path) or not is_table(path):
        raise UserError(
            f"{flag} is no table, but --column_types={settings.column_types} is given",
            f"give a file that ends in one of {', '.join(SUFFIXES)}, or omit --column_types",
        )
    if not tf.io.gfile.exists(path):
        raise UserError(f"{flag} does not exist", "check the path")
    frame, notes = open_frame(path, flag)
    return TableReader(settings, flag, frame, notes, path)


def read_column_types(value: str | None) -> Mapping[str, Any]:
    """Returns the kinds of columns, by name, in the file of --column_types.

    Raises:
      UserError: If it cannot be read.
    """
    if value in (None, AUTO):
        return {}
    flag = f"--column_types={shorten(str(value))}"
    try:
        with tf.io.gfile.GFile(str(value), "r") as file:
            content = json.loads(file.read())
    except (tf.errors.OpError, OSError) as error:
        raise UserError(f"{flag} cannot be read ({reason(error)})", "check the path") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{flag} is no JSON file ({reason(error)})", "correct it") from None
    columns = content.get("columns", {}) if isinstance(content, dict) else None
    if not isinstance(columns, dict) or not set(content) <= {"columns"}:
        raise UserError(
            f"{flag} does not contain columns alone", 'write {"columns": {"COLUMN": "TYPE"}}'
        )
    return columns


def _frame_of(value: Any, flag: str) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415

    if not isinstance(value, pd.DataFrame):
        raise UserError(
            f"{flag} is no DataFrame, but --column_types is given", "give a DataFrame of pandas"
        )
    return value
