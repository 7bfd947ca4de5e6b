"""A typed table: a DataFrame of numbers, categories and dates as examples `[N, D]`, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from ..errors import UserError, shorten
from ..run_directory.typed_json import load_dataclass, to_json
from .column_kinds import find_kinds
from .columns import Column

if TYPE_CHECKING:
    import pandas as pd

_MOST_COLUMNS = 2**12
_SMALLEST = 1e-6  # singular value of a feature, relative to the largest, that is not rounding


@dataclasses.dataclass(frozen=True)
class Table:
    """Maps the rows of a table to examples `[N, D]`, and samples to rows of the same types.

    Attributes:
      columns: The columns, whose names are all different.
      target: The column of the rows that others are used to predict, for judging; None if none is
        named.
    """

    columns: tuple[Column, ...]
    target: str | None = None

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise ValueError("two columns have the same name")
        if not self.size or len(self.columns) > _MOST_COLUMNS:
            raise ValueError("the table has no features, or too many columns")
        if self.target not in (None, *self.names):
            raise ValueError("target is not a column")

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        flag: str,
        kinds: Mapping[str, Any] | None = None,
        *,
        target: str | None = None,
        trained_on: np.ndarray | None = None,
    ) -> Table:
        """Returns the table for the columns of a DataFrame.

        Args:
          frame: The rows, whose columns have different names.
          flag: The name of the data, for messages.
          kinds: The kinds of columns that the user gives; see `find_kinds`.
          target: See `Table`.
          trained_on: `[N]` bool, the rows whose numbers determine levels; None for all. Categories
            and the types are those of all rows.

        Raises:
          UserError: If a column has no usable type, or there are too many.
        """
        if len(frame.columns) > _MOST_COLUMNS:
            raise UserError(
                f"{flag} has {len(frame.columns)} columns, and a table at most {_MOST_COLUMNS}",
                "leave some out with --drop_columns",
            )
        used = np.ones([len(frame)], bool) if trained_on is None else trained_on
        found = find_kinds(frame, flag, kinds or {})
        columns = tuple(each.fit(frame[name], flag, used) for name, each in found.items())
        if not any(column.size for column in columns):
            what = "is constant in all columns" if len(frame) > 1 else "contains a single row"
            raise UserError(f"{flag} {what}", "give data that vary")
        # What the record of a run cannot hold, such as half of a surrogate pair, is found now.
        record = to_json(cls(columns, target))
        return load_dataclass(cls, record, f"the record of {flag}", "correct the data")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def size(self) -> int:
        """The number of features D of an example."""
        return sum(column.size for column in self.columns)

    @property
    def texts(self) -> frozenset[str]:
        """The names of the columns whose values are texts."""
        return frozenset(column.name for column in self.columns if column.has_texts)

    def parts(self) -> list[tuple[int, Column]]:
        """Returns the columns, each with its first feature."""
        begins = np.cumsum([0, *(column.size for column in self.columns)]).tolist()
        return list(zip(begins, self.columns, strict=False))

    @property
    def one_hot(self) -> tuple[tuple[int, int], ...]:
        """The one-hot features, as pairs of the first one and their number."""
        return tuple(
            (begin + first, count) for begin, each in self.parts() for first, count in each.one_hot
        )

    @property
    def masked(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a feature that is 0 unless another one is 1, and that other one."""
        return tuple(
            (begin, begin + 1)
            for begin, column in self.parts()
            if column.is_number and column.has_missing
        )

    @property
    def noise_size(self) -> int:
        """The number of random numbers that the generator needs for one-hot features."""
        return sum(count for _, count in self.one_hot)

    @property
    def _categories(self) -> list[tuple[int, int, Column]]:
        """The columns of categories, each with its first label and its first feature."""
        found = [(begin, each) for begin, each in self.parts() if each.size and not each.is_number]
        labels = np.cumsum([0, *(column.size for _, column in found)]).tolist()
        return [(label, *each) for label, each in zip(labels, found, strict=False)]

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels of a conditional run: one for each category of each column.

        A label is the condition that its column has its category, as in the conditional vector of
        CTGAN (arXiv:1907.00503, section 4.3).
        """
        names = []
        for _, _, column in self._categories:
            names += [f"{column.name}={column.text(value)}" for value in column.values]
            names += [f"{column.name} is missing"] * column.has_missing
        if len(set(names)) < len(names):  # such as a=b=c for the columns a and a=b
            names = [f"{name} ({number})" for number, name in enumerate(names)]
        return tuple(names)

    @property
    def label_features(self) -> tuple[int, ...]:
        """The feature that is 1 for each label."""
        return tuple(
            begin + place for _, begin, column in self._categories for place in range(column.size)
        )

    def label_of(self, name: str, value: Any) -> int | None:
        """Returns the label of a category, or None if the column is none of categories."""
        for first, _, column in self._categories:
            if column.name == name and value in column.values:
                return first + column.values.index(value)
        return None

    def draw_labels(self, count: int, seed: int, *, is_balanced: bool) -> np.ndarray:
        """Returns labels: of a random column, a random category, `[count]` int32.

        Args:
          count: The number of labels.
          seed: The seed.
          is_balanced: Whether the probability of a category is that of the logarithm of its
            number of rows, as in training, or that of the number itself.
        """
        random = np.random.default_rng(seed)
        categories = self._categories
        columns = random.integers(len(categories), size=count)
        labels = np.zeros([count], np.int32)
        for index, (first, _, column) in enumerate(categories):
            weights = np.array(column.counts, np.float64)
            weights = np.log1p(weights) if is_balanced else weights
            chosen = columns == index
            drawn = random.choice(column.size, chosen.sum(), p=weights / weights.sum())
            labels[chosen] = first + drawn
        return labels

    def labels_of(self, examples: np.ndarray) -> np.ndarray:
        """Returns a label of each row, the category of a random column, `[N]` int32.

        Args:
          examples: The rows, `[N, D]`.
        """
        features = list(self.label_features)
        if not features:
            return np.zeros([len(examples)], np.int32)
        # Each row has one label of each column of categories.
        labels = examples[:, features].nonzero()[1].reshape(len(examples), -1)
        chosen = np.random.default_rng(0).integers(labels.shape[1], size=len(examples))
        return labels[np.arange(len(examples)), chosen].astype(np.int32)

    def main_labels(self, examples: np.ndarray) -> np.ndarray:
        """Returns the label of each row in one column of categories, `[N]` int32.

        It is the column of the target, or else the first column of categories.

        Args:
          examples: The rows, `[N, D]`.
        """
        found = {column.name: (first, begin, column) for first, begin, column in self._categories}
        first, begin, column = found.get(str(self.target), self._categories[0])
        return first + examples[:, begin : begin + column.size].argmax(axis=1).astype(np.int32)

    def draw_rows(self, examples: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
        """Returns for each label the index of a random row that has its category.

        Args:
          examples: The rows, `[N, D]`.
          labels: `[M]`, of which each has a row.
          seed: The seed.
        """
        random = np.random.default_rng([seed, 1])
        rows = np.zeros([len(labels)], np.int64)
        for label, feature in enumerate(self.label_features):
            chosen, having = labels == label, np.flatnonzero(examples[:, feature] == 1)
            if len(having):
                rows[chosen] = random.choice(having, chosen.sum())
        return rows

    def encode(self, frame: pd.DataFrame, flag: str = "the table", seed: int = 0) -> np.ndarray:
        """Returns rows as examples, `[N, D]` float32.

        Args:
          frame: The rows, with the columns of this table in any order.
          flag: The name of the data, for messages.
          seed: Selects the places of values in their intervals of levels.

        Raises:
          UserError: If a column is missing, or has values of another type, or other categories.
        """
        self._check_columns(frame, flag)
        places = np.random.default_rng(seed).random([len(self.columns), len(frame)])
        pairs = zip(self.columns, places, strict=True)
        return np.concatenate([each.encode(frame[each.name], flag, at) for each, at in pairs], 1)

    def warn_of_range(self, frame: pd.DataFrame, flag: str) -> None:
        """Warns of numbers outside the range of the training data, which become its ends.

        Args:
          frame, flag: See `encode`.

        Raises:
          UserError: If a column is missing, or has values of another type.
        """
        self._check_columns(frame, flag)
        for column in self.columns:
            if not column.is_number:
                continue
            low, *_, high = column.values
            keys, missing = column.keys(frame[column.name], flag)
            outside = ~missing & ((keys < low) | (keys > high))
            if outside.any():
                logging.warning(
                    f"{flag}: {outside.sum()} of {len(frame)} values of {shorten(column.name)!r} "
                    f"are outside the range of the training data, {column.shown(low)} to "
                    f"{column.shown(high)}, and count as its ends"
                )

    def _check_columns(self, frame: pd.DataFrame, flag: str) -> None:
        """Raises UserError if a column is missing; see `encode`."""
        if lacking := [name for name in self.names if name not in frame]:
            raise UserError(
                f"{flag} lacks the column {shorten(lacking[0])!r}",
                f"give the columns {shorten(', '.join(self.names), 300)}",
            )

    def restore(self, examples: np.ndarray) -> pd.DataFrame:
        """Returns rows with the names, types and values of the data.

        Args:
          examples: `[N, D]`, outputs of the generator.
        """
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(
            {
                column.name: column.to_series(*column.decode(features))
                for column, features in self._split(examples)
            }
        )

    def fitted_to(self, examples: np.ndarray) -> Table:
        """Returns this table with the distributions of the numbers of other rows, `[N, D]`."""
        columns = []
        for column, features in self._split(examples):
            keys, missing = column.decode(features)
            fitted = column.with_levels_of(keys[~missing]) if column.is_number else column
            columns.append(fitted)
        return dataclasses.replace(self, columns=tuple(columns))

    def _split(self, examples: np.ndarray) -> list[tuple[Column, np.ndarray]]:
        """Returns the columns, each with its features of examples."""
        return [(each, examples[:, begin : begin + each.size]) for begin, each in self.parts()]

    def normalize_stored(self, settings: Any, stored: Any, first: Any) -> Any:
        """Returns stored examples, which are those that the networks see."""
        return stored

    def numbers(self, examples: np.ndarray) -> np.ndarray:
        """Returns rows as numbers for plots, `[N, K]` float64, with NaN for missing values.

        A category is its place among the values of its column, and a date the number of its units.

        Args:
          examples: `[N, D]`, as for `restore`.
        """
        found = []
        for column, features in self._split(examples):
            values, missing = column.decode(features)
            if not column.is_number:
                values = features.argmax(axis=1) if column.size else np.zeros([len(examples)])
            found.append(np.where(missing, np.nan, values.astype(np.float64)))
        return np.stack(found, axis=1)

    def target_of(self, examples: np.ndarray) -> tuple[np.ndarray, int, bool]:
        """Returns what is to be predicted of rows, and from what.

        Args:
          examples: `[N, D]`, as for `restore`. The table has a target.

        Returns:
          The values of the target as numbers, `[N]` float64 with NaN for missing ones; the column
          of `numbers` from which it must not be predicted; and whether it is a number and no
          category.
        """
        place = self.names.index(str(self.target))
        return self.numbers(examples)[:, place], place, self.columns[place].is_number

    def canonical(self, examples: np.ndarray) -> np.ndarray:
        """Returns examples in which equal values have equal features, `[N, D]` float32.

        A value that occurs often has a random place in an interval of levels; here, it is the
        middle.
        """
        middle = np.full([len(examples)], 0.5)
        parts = [
            column.features(*column.decode(features), middle)
            for column, features in self._split(examples)
        ]
        return np.concatenate(parts, axis=1)

    def describe_ranges(self, numbers: np.ndarray) -> list[str]:
        """Returns the categories of each column, or the range of its numbers, as a text.

        Args:
          numbers: Rows as numbers, `[N, K]`; see `numbers`.
        """
        texts = [column.describe() for column in self.columns]
        for place, column in enumerate(self.columns):
            values = numbers[np.isfinite(numbers[:, place]), place]
            if column.is_number and len(values):
                texts[place] = " to ".join(map(column.shown_at, (values.min(), values.max())))
        return texts

    def describe(self) -> str:
        """Returns a line for each column: its name, its type, and what the networks see of it."""
        rows = [("column", "type", "values")]
        for column in self.columns:
            rows.append((shorten(column.name, 30), column.describe_kind(), column.describe()))
        return aligned(rows)

    def associations(self, examples: np.ndarray) -> np.ndarray:
        """Returns the association of all pairs of columns, `[K, K]` from 0 to 1.

        With r_i, the canonical correlations of the features of two columns, it is
        sqrt(sum_i r_i^2 / m), where m is the smaller of their dimensions. For two numbers, this is
        the absolute value of their correlation (here of normal scores); for a number and a
        category, the correlation ratio; and for two categories, Cramer's V. A column without
        features, or with constant ones, has association 0 with all others.

        Args:
          examples: `[N, D]`, the features of rows.
        """
        parts = [_whitened(part.astype(np.float64)) for _, part in self._split(examples)]
        result = np.eye(len(parts))
        for i, first in enumerate(parts):
            for j, second in enumerate(parts[:i]):
                smaller = min(first.shape[1], second.shape[1])
                if smaller:
                    squares = ((first.T @ second) ** 2).sum() / smaller
                    result[i, j] = result[j, i] = min(1.0, np.sqrt(squares))
        return result


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows of texts as lines with columns."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


def _whitened(features: np.ndarray) -> np.ndarray:
    """Returns orthonormal columns that span the centered features, `[N, rank]`."""
    centered = features - features.mean(axis=0)
    if not centered.size:
        return centered
    left, singular, _ = np.linalg.svd(centered, full_matrices=False)
    return left[:, singular > max(_SMALLEST * singular.max(), 1e-9)]
