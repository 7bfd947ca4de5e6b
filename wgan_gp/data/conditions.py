"""Continuous conditions of examples: their standardization, and values to draw from.

Conditions enter networks with mean 0 and standard deviation 1 over the training data (Ding et al.
2021, arXiv:2011.07466, scale theirs likewise). Users give and get conditions in the data's units.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

# The largest table from which the generator step draws conditions, in bytes. It is a constant of
# the compiled program.
_MAX_TABLE_BYTES = 2**22
RECORDED = 64  # conditions in data.json, which samples of a run use in turn


@dataclasses.dataclass(frozen=True, eq=False)
class Conditions:
    """The distribution of the conditions of a dataset, in the data's own units.

    Attributes:
      mean, deviation: `[K]` float64, over all examples. A constant condition has deviation 1.
      examples: `[M, K]` float32, conditions of examples of the data.
    """

    mean: np.ndarray
    deviation: np.ndarray
    examples: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Conditions:
        """Returns the distribution of conditions `[N, K]` float32."""
        deviation = values.std(axis=0, dtype=np.float64)
        most = max(1, _MAX_TABLE_BYTES // values[:1].nbytes)
        rows = np.linspace(0, len(values) - 1, min(most, len(values))).round().astype(int)
        return cls(
            values.mean(axis=0, dtype=np.float64),
            np.where(deviation > 0, deviation, 1.0),
            values[rows],
        )

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

    def restore(self, standardized: np.ndarray) -> np.ndarray:
        """Returns standardized conditions `[N, K]` in the data's units, float32."""
        return (standardized * self.deviation + self.mean).astype(np.float32)

    def spread(self) -> Conditions:
        """Returns at most RECORDED examples, evenly spaced in the order of the first condition."""
        ordered = self.examples[np.argsort(self.examples[:, 0], kind="stable")]
        count = min(RECORDED, len(ordered))
        rows = np.linspace(0, len(ordered) - 1, count).round().astype(int)
        return dataclasses.replace(self, examples=ordered[rows])

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of data.json."""
        return {
            "mean": self.mean.tolist(),
            "deviation": self.deviation.tolist(),
            "examples": self.spread().examples.tolist(),
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Conditions:
        """Returns the distribution for the content of data.json."""
        return cls(
            np.array(saved["mean"], np.float64),
            np.array(saved["deviation"], np.float64),
            np.array(saved["examples"], np.float32),
        )
