"""Continuous conditions of examples: their standardization, and values to draw from.

Networks get each condition with mean 0 and standard deviation 1 over the training data, so that its
unit does not matter. Users give and get conditions in the units of the data.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from absl import logging

from ..errors import UserError
from .scaling import in_words, needs_float64, warn_if_coarse
from .table import Table

# The generator step draws from these. They are a constant of the compiled program, of which a TPU
# pads each row to 512 bytes.
_MOST_EXAMPLES = 2**14
_MOST_RECORDED = 2**10
_MOST_RECORDED_NUMBERS = 2**13
# The squares of larger and smaller numbers are no normal numbers of float64.
_LARGEST, _SMALLEST = 1e150, 1e-150
# In standard deviations from the mean, where no distribution of fewer than 10^12 examples has any.
# Much larger numbers overflow in the networks.
_FARTHEST = 1e6
_FAR = 10
_SMALL_TYPES = ("float16", "float32")
if TYPE_CHECKING:
    import pandas as pd

_in_words = functools.partial(in_words, "condition")


@dataclasses.dataclass(frozen=True, eq=False)
class Conditions:
    """The distribution of the conditions of a dataset, in the units of the data.

    Attributes:
      mean, deviation: `[K]` float64, over all examples. A constant condition has deviation 1.
      examples: `[M, K]` float64, the conditions of M examples of the data, in a random order.
      dtype: The type in which the data has them: "float16", "float32", or "float64" for others.
      columns: The columns of a table whose features the conditions are; None for plain numbers.
    """

    mean: np.ndarray
    deviation: np.ndarray
    examples: np.ndarray
    dtype: str = "float64"
    columns: Table | None = None

    def __post_init__(self) -> None:
        if self.dtype not in (*_SMALL_TYPES, "float64"):
            raise ValueError("dtype is not a type of conditions")
        size = len(self.mean)
        shapes = (self.mean.shape, self.deviation.shape, self.examples.shape[1:])
        if not size or not len(self.examples) or set(shapes) != {(size,)}:
            raise ValueError("mean, deviation and examples differ in their lengths, or are empty")
        is_usable = (self.deviation > 0).all()
        if not is_usable or not (np.abs(self.standardize(self.examples)) < _FARTHEST).all():
            raise ValueError("mean and deviation are not those of the examples")

    @classmethod
    def of(cls, values: np.ndarray, origin: str = "the conditions") -> Conditions:
        """Returns the distribution of finite conditions `[N, K]` of any numeric dtype.

        Args:
          values: The conditions.
          origin: The name of the data in messages.

        Raises:
          UserError: If they cannot be standardized in float64.
        """
        dtype = values.dtype.name if values.dtype.name in _SMALL_TYPES else "float64"
        values = values.astype(np.float64)
        low, high = values.min(axis=0), values.max(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = values.mean(axis=0), values.std(axis=0)
        largest = np.maximum(np.abs(low), np.abs(high))
        is_bad = (largest > _LARGEST) | ((low < high) & ~(deviation >= _SMALLEST))
        if is_bad.any():
            raise UserError(
                f"{origin} has values in {_in_words(is_bad)} that are too large, or too close to "
                "each other, to be standardized in float64",
                "multiply them by a constant",
            )
        # The mean of equal numbers is rounded.
        mean, deviation = np.where(low < high, [mean, deviation], [low, np.ones_like(low)])
        rows = np.random.default_rng(0).permutation(len(values))[:_MOST_EXAMPLES]
        return cls(mean, deviation, values[rows], dtype)

    @classmethod
    def of_columns(
        cls, frame: pd.DataFrame, origin: str, kinds: Mapping[str, Any], trained_on: np.ndarray
    ) -> tuple[Conditions, np.ndarray]:
        """Returns the distribution of conditions in columns of a table, and their features.

        Args:
          frame: The columns, `[N, ...]`.
          origin: The name of the data in messages.
          kinds: The kinds of columns that the user gives; see `Table.of`.
          trained_on: `[N]` bool, the rows that determine the distribution.
        """
        kinds = {name: kind for name, kind in kinds.items() if name in frame}
        columns = Table.of(frame, origin, kinds, trained_on=trained_on)
        features = columns.canonical(columns.encode(frame, origin))
        conditions = cls.of(features[trained_on], origin)
        return dataclasses.replace(conditions, columns=columns), features

    def as_frame(self, values: np.ndarray) -> pd.DataFrame | None:
        """Returns conditions `[N, K]` as columns of a table; None if they are plain numbers."""
        return None if self.columns is None else self.columns.restore(values.astype(np.float32))

    def warn(self, origin: str) -> None:
        """Warns of conditions of the data `origin` that are constant or rounded."""
        low, high = self.examples.min(axis=0), self.examples.max(axis=0)
        is_constant = (low == high) & (self.deviation == 1)
        if is_constant.any():
            where = _in_words(is_constant)
            logging.warning(f"{origin} is constant in {where}, which has no effect")
        warn_if_coarse(origin, _in_words, low, high, self.dtype)

    @property
    def size(self) -> int:
        """The length K of a condition."""
        return len(self.mean)

    @property
    def signature_dtype(self) -> tf.DType:
        """The dtype of given conditions: float64 if float32 is too coarse for the data."""
        low, high = self.mean - 2 * self.deviation, self.mean + 2 * self.deviation
        return tf.float64 if needs_float64(low, high, self.dtype) else tf.float32

    @property
    def table(self) -> np.ndarray:
        """The standardized examples, `[M, K]` float32."""
        return self.standardize(self.examples)

    def standardize(self, values: np.ndarray) -> np.ndarray:
        """Returns conditions `[N, K]` of any numeric dtype as the networks get them, float32."""
        with np.errstate(over="ignore"):  # see `checked`
            return ((values.astype(np.float64) - self.mean) / self.deviation).astype(np.float32)

    def standardize_tensor(self, values: tf.Tensor) -> tf.Tensor:
        """Returns conditions `[N, K]` as the networks get them, float32, computed in float64."""
        return tf.cast((tf.cast(values, tf.float64) - self.mean) / self.deviation, tf.float32)

    def restore(self, standardized: np.ndarray) -> np.ndarray:
        """Returns standardized conditions `[N, K]` in the units of the data, float64."""
        return standardized * self.deviation + self.mean

    def spread(self, count: int) -> np.ndarray:
        """Returns `count` of the examples, evenly spaced in the order of the first number."""
        ordered = self.examples[np.argsort(self.examples[:, 0], kind="stable")]
        return ordered[np.linspace(0, len(ordered) - 1, count).round().astype(int)]

    def recorded(self) -> Conditions:
        """Returns the part of the distribution that data.json contains."""
        count = min(_MOST_RECORDED, max(1, _MOST_RECORDED_NUMBERS // self.size))
        return dataclasses.replace(self, examples=self.examples[:count])

    def scaled_like(self, other: Conditions, flag: str) -> Conditions:
        """Returns these examples with the mean and the deviation of another distribution.

        Raises:
          UserError: If the examples of the data `flag` are very far from it.
        """
        return dataclasses.replace(other, examples=other.checked(self.examples, flag))

    def checked(self, values: Any, flag: str) -> np.ndarray:
        """Returns given conditions, `[K]` or `[M, K]`, as `[M, K]` float64.

        For K = 1, they may also be `[M]`.

        Args:
          values: The conditions, in the units of the data. Those of columns of a table are a
            DataFrame, or a dictionary of values or lists by column.
          flag: Their name in messages.

        Raises:
          UserError: If they have another shape, are not finite, or are very far from the data.
        """
        if self.columns is not None and not isinstance(values, np.ndarray):
            import pandas as pd  # noqa: PLC0415, which takes half a second

            is_row = isinstance(values, Mapping) and not any(map(np.ndim, values.values()))
            try:
                frame = pd.DataFrame([values] if is_row else values)
            except ValueError as error:
                raise UserError(f"{flag}: {error}", "give values by column") from None
            self.columns.warn_of_range(frame, flag)
            values = self.columns.canonical(self.columns.encode(frame, flag))
        try:
            given = np.asarray(values)
            rows = given.astype(np.float64)
            rows = rows.reshape(-1, 1) if self.size == rows.ndim == 1 else np.atleast_2d(rows)
        except (ValueError, TypeError):
            raise UserError(
                f"{flag} does not give numbers", f"give {self.size} numbers each"
            ) from None
        if rows.ndim != 2 or rows.shape[1] != self.size or not len(rows):
            numbers = f"{self.size} number{'s' if self.size > 1 else ''}"
            raise UserError(
                f"{flag} gives conditions of shape {list(rows.shape)}, but a condition of this run "
                f"has {numbers}",
                f"give {numbers} for each condition",
            )
        if not np.isfinite(rows).all():
            raise UserError(f"{flag} contains NaN or infinity", "give finite numbers")
        largest = np.abs(rows).max(axis=0)
        distance = np.abs(self.standardize(rows))
        if not (distance < _FARTHEST).all():
            raise UserError(
                f"{flag} gives conditions of up to {largest.max():.3g} in size, which are too far "
                "from those of the data",
                "give conditions in the units of the data",
            )
        low, high = self.examples.min(axis=0), self.examples.max(axis=0)
        is_far = ((distance > _FAR) & ((rows < low) | (rows > high))).any(axis=0)
        if is_far.any():
            logging.warning(
                f"{flag}: more than {_FAR} standard deviations from the mean of the data in "
                f"{_in_words(is_far)} — are the conditions in the units of the data?"
            )
        warn_if_coarse(flag, _in_words, largest - 4 * self.deviation, largest, given.dtype)
        return rows
