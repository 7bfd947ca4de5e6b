"""A typed table: a DataFrame of numbers, categories and dates as examples `[N, D]`, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from ...errors import UserError, shorten
from .association import associations
from .columns import Category, Constant, Encoder, Number
from .find_types import find_types
from .types import CategoryType, ColumnType, DateType, RealType

if TYPE_CHECKING:
    import pandas as pd

_MOST_COLUMNS = 2**12


@dataclasses.dataclass(frozen=True)
class Table:
    """Maps the rows of a table to examples `[N, D]`, and samples to rows of the same types.

    Attributes:
      names: The names of the columns, all different.
      types: The types of the columns.
      encoders: The columns as features.
      target: The column of the rows that others are used to predict, for judging; None if none is
        named.
    """

    names: tuple[str, ...]
    types: tuple[ColumnType, ...]
    encoders: tuple[Encoder, ...]
    target: str | None = None

    def __post_init__(self) -> None:
        if not len(set(self.names)) == len(self.names) == len(self.types) == len(self.encoders):
            raise ValueError("names, types and encoders differ in their lengths")
        if not self.size or len(self.names) > _MOST_COLUMNS:
            raise ValueError("the table has no features, or too many columns")
        if self.target not in (None, *self.names):
            raise ValueError("target is not a column")
        try:
            is_fitting = all(map(lambda kind, each: kind.fits(each), self.types, self.encoders))
            self.restore(np.zeros([1, self.size], np.float32))
        except (KeyError, ValueError, TypeError, OverflowError):
            is_fitting = False
        if not is_fitting:
            raise ValueError("the values of a column are not those of its type")

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
          kinds: The kinds of columns that the user gives; see `find_types`.
          target: See `Table`.
          trained_on: `[N]` bool, the rows whose numbers determine levels; None for all. Categories
            and the types are those of all rows.

        Raises:
          UserError: If a column has no usable type.
        """
        used = np.ones([len(frame)], bool) if trained_on is None else trained_on
        types = find_types(frame, flag, kinds or {})
        encoders = []
        for name, kind in types.items():
            values, missing = kind.to_values(frame[name], name, flag)
            encoders.append(_encoder(kind, values, missing, used))
        if not any(encoder.size for encoder in encoders):
            what = "is constant in all columns" if len(frame) > 1 else "contains a single row"
            raise UserError(f"{flag} {what}", "give data that vary")
        return cls(tuple(types), tuple(types.values()), tuple(encoders), target)

    @property
    def size(self) -> int:
        """The number of features D of an example."""
        return sum(encoder.size for encoder in self.encoders)

    @property
    def texts(self) -> frozenset[str]:
        """The names of the columns whose values are texts."""
        columns_of = zip(self.names, self.types, self.encoders, strict=True)
        return frozenset(name for name, kind, encoder in columns_of if _has_texts(kind, encoder))

    @property
    def one_hot(self) -> tuple[tuple[int, int], ...]:
        """The one-hot features, as pairs of the first one and their number."""
        return tuple(
            (begin + first, count)
            for begin, encoder in self.parts()
            for first, count in encoder.groups
        )

    @property
    def masked(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a feature that is 0 unless another one is 1, and that other one."""
        return tuple(
            (begin + feature, begin + present)
            for begin, encoder in self.parts()
            for feature, present in encoder.masked
        )

    @property
    def noise_size(self) -> int:
        """The number of random numbers that the generator needs for one-hot features."""
        return sum(count for _, count in self.one_hot)

    @property
    def _categories(self) -> list[tuple[int, Category, str, ColumnType]]:
        """The columns of categories: the first feature, the encoder, the name and the type."""
        columns = zip(self.parts(), self.names, self.types, strict=True)
        return [
            (begin, encoder, name, kind)
            for (begin, encoder), name, kind in columns
            if isinstance(encoder, Category)
        ]

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels of a conditional run: one for each category of each column.

        A label is the condition that its column has its category, as in the conditional vector of
        CTGAN (arXiv:1907.00503, section 4.3).
        """
        names = []
        for _, encoder, name, kind in self._categories:
            names += [f"{name}={_text(value, kind)}" for value in encoder.values]
            names += [f"{name} is missing"] * encoder.has_missing
        if len(set(names)) < len(names):  # such as a=b=c for the columns a and a=b
            names = [f"{name} ({number})" for number, name in enumerate(names)]
        return tuple(names)

    @property
    def label_features(self) -> tuple[int, ...]:
        """The feature that is 1 for each label."""
        return tuple(
            begin + place
            for begin, encoder, *_ in self._categories
            for place in range(encoder.size)
        )

    def label_of(self, name: str, value: Any) -> int | None:
        """Returns the label of a category, or None if the column is none of categories."""
        first = 0
        for _, encoder, column, _ in self._categories:
            if column == name and value in encoder.values:
                return first + encoder.values.index(value)
            first += encoder.size
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
        labels, first = np.zeros([count], np.int32), 0
        for index, (_, encoder, *_) in enumerate(categories):
            weights = np.array(encoder.counts, np.float64)
            weights = np.log1p(weights) if is_balanced else weights
            chosen = columns == index
            drawn = random.choice(encoder.size, chosen.sum(), p=weights / weights.sum())
            labels[chosen] = first + drawn
            first += encoder.size
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
        names = [name for _, _, name, _ in self._categories]
        chosen = names.index(self.target) if self.target in names else 0
        begin, encoder, *_ = self._categories[chosen]
        first = sum(encoder.size for _, encoder, *_ in self._categories[:chosen])
        return first + examples[:, begin : begin + encoder.size].argmax(axis=1).astype(np.int32)

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

    def parts(self) -> list[tuple[int, Encoder]]:
        """Returns the columns, each with its first feature."""
        sizes = [encoder.size for encoder in self.encoders]
        begins = np.cumsum([0, *sizes[:-1]]).tolist()
        return list(zip(begins, self.encoders, strict=True))

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
        places = np.random.default_rng(seed).random([len(self.names), len(frame)])
        parts = [np.zeros([len(frame), 0], np.float32)]
        columns_of = zip(self.names, self.types, self.encoders, places, strict=True)
        for name, kind, encoder, place in columns_of:
            values, missing = kind.to_values(frame[name], name, flag)
            features = encoder.encode(values, missing, place)
            if isinstance(encoder, Constant):
                expected = np.full([len(frame)], encoder.value, object)
                same = missing if encoder.value is None else ~missing & (values == expected)
                if not same.all():
                    raise UserError(
                        f"{flag} has other values in {shorten(name)!r}, which is constant in the "
                        "training data",
                        "leave these rows out, or train a new run on data that contain them",
                    )
            if isinstance(encoder, Category) and (unknown := features.sum(axis=1) == 0).any():
                index = int(unknown.argmax())
                what = "a missing value" if missing[index] else repr(values[index])
                raise UserError(
                    f"{flag} has {shorten(what)} in {shorten(name)!r}, which the training data "
                    f"lacks, in {unknown.sum()} of {len(frame)} rows",
                    "leave these rows out, or train a new run on data that contain it",
                )
            if isinstance(encoder, Number) and missing.any() and not encoder.has_missing:
                raise UserError(
                    f"{flag} has missing values in {shorten(name)!r}, where the training data has "
                    "none",
                    "leave these rows out",
                )
            parts.append(features)
        return np.concatenate(parts, axis=1)

    def warn_of_range(self, frame: pd.DataFrame, flag: str) -> None:
        """Warns of numbers outside the range of the training data, which become its ends.

        Args:
          frame, flag: See `encode`.

        Raises:
          UserError: If a column is missing, or has values of another type.
        """
        self._check_columns(frame, flag)
        for name, kind, encoder in zip(self.names, self.types, self.encoders, strict=True):
            if not isinstance(encoder, Number):
                continue
            values, missing = kind.to_values(frame[name], name, flag)
            outside = ~missing & ((values < encoder.values[0]) | (values > encoder.values[-1]))
            if outside.any():
                low, high = _shown(encoder.values[0], kind), _shown(encoder.values[-1], kind)
                logging.warning(
                    f"{flag}: {outside.sum()} of {len(frame)} values of {shorten(name)!r} are "
                    f"outside the range of the training data, {low} to {high}, and count as its "
                    "ends"
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

        found = {}
        parts = zip(self.names, self.types, self.parts(), strict=True)
        for name, kind, (begin, encoder) in parts:
            values, missing = encoder.decode(examples[:, begin : begin + encoder.size])
            found[name] = kind.to_series(values, missing)
        return pd.DataFrame(found)

    def numbers(self, examples: np.ndarray) -> np.ndarray:
        """Returns rows as numbers for plots, `[N, K]` float64, with NaN for missing values.

        A category is its place among the values of its column, and a date the number of its units.

        Args:
          examples: `[N, D]`, as for `restore`.
        """
        found = []
        for begin, encoder in self.parts():
            features = examples[:, begin : begin + encoder.size]
            if isinstance(encoder, Category):
                values, missing = features.argmax(axis=1), encoder.decode(features)[1]
            elif isinstance(encoder, Constant):
                values, missing = np.zeros([len(examples)]), np.zeros([len(examples)], bool)
            else:
                values, missing = encoder.decode(features)
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
        return self.numbers(examples)[:, place], place, isinstance(self.encoders[place], Number)

    def canonical(self, examples: np.ndarray) -> np.ndarray:
        """Returns examples in which equal values have equal features, `[N, D]` float32.

        A value that occurs often has a random place in an interval of levels; here, it is the
        middle.
        """
        found = [np.zeros([len(examples), 0], np.float32)]
        for begin, encoder in self.parts():
            values, missing = encoder.decode(examples[:, begin : begin + encoder.size])
            found.append(encoder.encode(values, missing, np.full([len(examples)], 0.5)))
        return np.concatenate(found, axis=1)

    def describe_ranges(self, numbers: np.ndarray) -> list[str]:
        """Returns the categories of each column, or the range of its numbers, as a text.

        Args:
          numbers: Rows as numbers, `[N, K]`; see `numbers`.
        """
        texts = self.describe_values()
        for place, (kind, encoder) in enumerate(zip(self.types, self.encoders, strict=True)):
            values = numbers[np.isfinite(numbers[:, place]), place]
            if isinstance(encoder, Number) and len(values):
                ends = [type(encoder.values[0])(end) for end in (values.min(), values.max())]
                texts[place] = " to ".join(_shown(end, kind) for end in ends)
        return texts

    def associations(self, examples: np.ndarray) -> np.ndarray:
        """Returns the association of all pairs of columns, `[K, K]`; see `association`."""
        return associations(examples, [encoder.size for encoder in self.encoders])

    def describe(self) -> str:
        """Returns a line for each column: its name, its type, and what the networks see of it."""
        rows = [("column", "type", "values")]
        for name, kind, values in zip(self.names, self.types, self.describe_values(), strict=True):
            rows.append((shorten(name, 30), kind.describe(), values))
        widths = [max(len(row[place]) for row in rows) for place in (0, 1)]
        return "\n".join(f"{a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in rows)

    def describe_values(self) -> list[str]:
        """Returns the range or the categories of each column, as a text."""
        return [
            _describe(encoder, kind)
            for kind, encoder in zip(self.types, self.encoders, strict=True)
        ]


def _has_texts(kind: ColumnType, encoder: Encoder) -> bool:
    if isinstance(kind, DateType):
        return kind.date_format is not None
    values: tuple[Any, ...]
    if isinstance(kind, CategoryType) and kind.values is not None:  # a Categorical
        values = kind.values
    elif isinstance(encoder, Category):
        values = encoder.values
    else:
        values = (encoder.value,) if isinstance(encoder, Constant) else ()
    return bool(values) and all(isinstance(value, str) for value in values)


def _encoder(
    kind: ColumnType, values: np.ndarray, missing: np.ndarray, trained_on: np.ndarray
) -> Encoder:
    """Returns the encoder of a column `[N]`, of which some values are missing.

    Args:
      kind: The type of the column.
      values: The values.
      missing: Which are missing, bool.
      trained_on: The rows that are trained on, bool.
    """
    if kind.is_number:
        used = values[trained_on & ~missing]
        if len(np.unique(used)) < 2:
            used = values[~missing]  # the training data is constant, but not all data
        if len(np.unique(used)) > 1:
            return Number.of(used, bool(missing.any()), exact=kind.is_exact)
    if missing.all():
        return Constant(None)
    unique = set(values[~missing].tolist())
    if len(unique) == 1 and not missing.any():
        return Constant(unique.pop())
    return Category.of(values, missing, trained_on)


def _describe(encoder: Encoder, kind: ColumnType) -> str:
    """Returns the values of a column in words."""
    if isinstance(encoder, Constant):
        shown = "all missing" if encoder.value is None else f"always {_shown(encoder.value, kind)}"
        return f"{shown}; the networks do not see it"
    if isinstance(encoder, Number):
        text = f"{_shown(encoder.values[0], kind)} to {_shown(encoder.values[-1], kind)}"
    else:
        some = [_shown(value, kind) for value in encoder.values[:4]]
        more = ", ..." if len(encoder.values) > 4 else ""
        text = f"{len(encoder.values)}: {', '.join(some)}{more}"
    return text + ("; some are missing" if encoder.has_missing else "")


def _shown(value: Any, kind: ColumnType) -> str:
    """Returns a value in at most 30 characters."""
    text = _text(value, kind)
    if isinstance(kind, RealType):
        return f"{float(text):.7g}"
    return shorten(text.removesuffix(" 00:00:00"), 30)


def _text(value: Any, kind: ColumnType) -> str:
    """Returns a value as it is in the table."""
    values = np.array([value], object if isinstance(value, str) else None)
    return str(kind.to_series(values, np.array([False])).iloc[0])
