"""Continuous conditions of examples: their standardization, and values to draw from.

Networks get each condition with mean 0 and standard deviation 1 over the training data, so that its
unit does not matter. Users give and get conditions in the units of the data.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import UserError

# The generator step draws from these. They are a constant of the compiled program, of which a TPU
# pads each row to 512 bytes.
_MOST_EXAMPLES = 2**14
_MOST_RECORDED = 2**10
_MOST_RECORDED_NUMBERS = 2**13


@dataclasses.dataclass(frozen=True, eq=False)
class Conditions:
    """The distribution of the conditions of a dataset, in the units of the data.

    Attributes:
      mean, deviation: `[K]` float64, over all examples. A constant condition has deviation 1.
      examples: `[M, K]` float32, the conditions of M examples of the data, in a random order.
    """

    mean: np.ndarray
    deviation: np.ndarray
    examples: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Conditions:
        """Returns the distribution of conditions `[N, K]` float32."""
        mean, deviation = values.mean(axis=0, dtype=np.float64), values.std(0, dtype=np.float64)
        rows = np.random.default_rng(0).permutation(len(values))[:_MOST_EXAMPLES]
        return cls(mean, np.where(deviation > 0, deviation, 1.0), values[rows])

    @classmethod
    def given(cls, values: Any, classes: int) -> Conditions:
        """Returns the distribution of conditions `[M, K]` or `[M]` that a caller gave.

        Raises:
          UserError: If they are not finite numbers, or there are classes, too.
        """
        try:
            values = np.asarray(values, np.float32)
        except (ValueError, TypeError):
            values = np.empty([0])
        if classes or not values.size or values.ndim > 2 or not np.isfinite(values).all():
            raise UserError(
                "conditions=... needs finite numbers for each example, and no classes",
                "give an array [M, K], and omit classes",
            )
        return cls.of(values.reshape(len(values), -1))

    @property
    def size(self) -> int:
        """The length K of a condition."""
        return len(self.mean)

    @property
    def table(self) -> np.ndarray:
        """The standardized examples, `[M, K]` float32."""
        return self.standardize(self.examples)

    def standardize(self, values: np.ndarray) -> np.ndarray:
        """Returns conditions `[N, K]` as the networks get them, float32."""
        return ((values - self.mean) / self.deviation).astype(np.float32)

    def standardize_tensor(self, values: tf.Tensor) -> tf.Tensor:
        """Returns conditions `[N, K]` as the networks get them, float32."""
        return tf.cast((tf.cast(values, tf.float64) - self.mean) / self.deviation, tf.float32)

    def restore(self, standardized: np.ndarray) -> np.ndarray:
        """Returns standardized conditions `[N, K]` in the units of the data, float32."""
        return (standardized * self.deviation + self.mean).astype(np.float32)

    def spread(self, count: int) -> np.ndarray:
        """Returns `count` of the examples, evenly spaced in the order of the first number."""
        ordered = self.examples[np.argsort(self.examples[:, 0], kind="stable")]
        return ordered[np.linspace(0, len(ordered) - 1, count).round().astype(int)]

    def recorded(self) -> Conditions:
        """Returns the part of the distribution that data.json contains."""
        count = min(_MOST_RECORDED, max(1, _MOST_RECORDED_NUMBERS // self.size))
        return dataclasses.replace(self, examples=self.examples[:count])

    def scaled_like(self, other: Conditions) -> Conditions:
        """Returns these examples with the mean and the deviation of another distribution."""
        return dataclasses.replace(other, examples=self.examples)

    def checked(self, values: Any, flag: str) -> np.ndarray:
        """Returns given conditions, `[K]` or `[M, K]`, as `[M, K]` float32.

        For K = 1, they may also be `[M]`.

        Args:
          values: The conditions, in the units of the data.
          flag: Their name in messages.

        Raises:
          UserError: If they have another shape, or are not finite.
        """
        try:
            rows = np.asarray(values, np.float32)
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
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Returns a JSON object; see `from_dict`."""
        return {
            "mean": self.mean.tolist(),
            "deviation": self.deviation.tolist(),
            "examples": self.examples.tolist(),
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Conditions:
        """Returns the distribution that `to_dict` described."""
        return cls(
            np.array(saved["mean"], np.float64),
            np.array(saved["deviation"], np.float64),
            np.array(saved["examples"], np.float32),
        )
