"""Whitening of features and signals, which gives all directions the same variance."""

from __future__ import annotations

import base64
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

MAX_VALUES = 1024  # of an example; data.json has a matrix with the square of this number
# Directions of less variance, as a share of the largest one, are not enlarged to variance 1: there
# the data are constant up to rounding, and samples would have to be so, too.
_SMALLEST_VARIANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class Whitening:
    """Maps the values x of an example to root^-1 (x - mean), where root^2 is their covariance.

    The symmetric root keeps each value as close as possible to the original one, so neighbors of a
    signal stay neighbors (ZCA, Bell and Sejnowski 1997, doi:10.1016/S0042-6989(97)00121-1).

    Attributes:
      mean: `[D]` float64, encoded by `_encode`.
      root: `[D, D]` float64, likewise.
    """

    mean: str
    root: str

    @classmethod
    def of(cls, mean: np.ndarray, covariance: np.ndarray) -> Whitening:
        """Returns the whitening of examples with this mean `[D]` and covariance `[D, D]`."""
        variances, directions = np.linalg.eigh(covariance)
        roots = np.sqrt(np.maximum(variances, _SMALLEST_VARIANCE * variances[-1]))
        return cls(_encode(mean), _encode((directions * roots) @ directions.T))

    def __post_init__(self) -> None:
        try:
            is_usable = all(np.isfinite(each).all() for each in self._arrays)
        except (np.linalg.LinAlgError, ValueError):
            is_usable = False
        if not is_usable:
            raise ValueError("it is not a mean and a finite matrix that has an inverse")

    @property
    def size(self) -> int:
        """The number D of values of an example."""
        return len(self._arrays[0])

    def apply(self, examples: Any) -> Any:
        """Returns whitened examples; an array or a tensor `[N, *shape]` of float64, D values."""
        mean, _, inverse = self._arrays
        return _on_rows(lambda rows: (rows - mean) @ inverse, examples, len(mean))

    def invert(self, examples: Any) -> Any:
        """Returns the examples that `apply` maps to the given ones."""
        mean, root, _ = self._arrays
        return _on_rows(lambda rows: rows @ root + mean, examples, len(mean))

    @functools.cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The mean, the root, and its inverse."""
        mean = _decode(self.mean)
        root = _decode(self.root).reshape(len(mean), len(mean))
        return mean, root, np.linalg.inv(root)


class Covariance:
    """The mean and the covariance of all values of an example, gathered in one pass.

    Args:
      shape: The shape of an example.
    """

    def __init__(self, shape: Sequence[int]):
        self._shape = tuple(shape)
        size = math.prod(shape)
        self._count = 0
        self._mean = np.zeros(size)
        self._products = np.zeros([size, size])

    def add(self, examples: np.ndarray) -> None:
        """Adds finite examples `[N, *shape]`; merged as in `scaling.Statistics`."""
        if not len(examples):
            return
        rows = examples.reshape(len(examples), -1).astype(np.float64)
        mean, total = rows.mean(axis=0), self._count + len(rows)
        difference = mean - self._mean
        self._products += (rows - mean).T @ (rows - mean)
        self._products += np.outer(difference, difference) * (self._count * len(rows) / total)
        self._mean += difference * (len(rows) / total)
        self._count = total

    def whitening(
        self, offset: Sequence[float], scale: Sequence[float], used: Sequence[int]
    ) -> Whitening:
        """Returns the whitening of standardized examples (x - offset) / scale.

        Args:
          offset: `[F]`, of the features or channels that are used.
          scale: `[F]`, likewise.
          used: `[F]`, their indices.
        """
        places = np.arange(math.prod(self._shape)).reshape(self._shape)[..., used]
        wide = np.broadcast_to(scale, places.shape).reshape(-1)
        mean = (self._mean[places] - offset).reshape(-1) / wide
        places = places.reshape(-1)
        covariance = self._products[np.ix_(places, places)] / self._count
        return Whitening.of(mean, covariance / np.outer(wide, wide))


def _on_rows(function: Any, examples: Any, size: int) -> Any:
    library: Any = tf if tf.is_tensor(examples) else np
    rows = function(library.reshape(examples, [-1, size]))
    return library.reshape(rows, [-1, *examples.shape[1:]])


def _encode(values: np.ndarray) -> str:
    return base64.b64encode(values.astype("<f8").tobytes()).decode("ascii")


def _decode(encoded: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(encoded, validate=True), "<f8")
