"""The association of the columns of a table: numbers with numbers, categories, and both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_SMALLEST = 1e-6  # singular value of a feature, relative to the largest, that is not rounding


def associations(examples: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Returns the association of all pairs of columns, `[K, K]` from 0 to 1.

    With r_i, the canonical correlations of the features of two columns, it is
    sqrt(sum_i r_i^2 / m), where m is the smaller of their dimensions. For two numbers, this is the
    absolute value of their correlation (here of normal scores); for a number and a category, the
    correlation ratio; and for two categories, Cramer's V.

    Args:
      examples: `[N, D]`, the features of rows.
      sizes: The number of features of each of the K columns, sum D. A column without features, or
        with constant ones, has association 0 with all others.
    """
    parts = np.split(examples.astype(np.float64), np.cumsum(sizes)[:-1], axis=1)
    whitened = [_whitened(part) for part in parts]
    result = np.eye(len(sizes))
    for i, first in enumerate(whitened):
        for j, second in enumerate(whitened[:i]):
            smaller = min(first.shape[1], second.shape[1])
            if smaller:
                squares = ((first.T @ second) ** 2).sum() / smaller
                result[i, j] = result[j, i] = min(1.0, np.sqrt(squares))
    return result


def _whitened(features: np.ndarray) -> np.ndarray:
    """Returns orthonormal columns that span the centered features, `[N, rank]`."""
    centered = features - features.mean(axis=0)
    if not centered.size:
        return centered
    left, singular, _ = np.linalg.svd(centered, full_matrices=False)
    return left[:, singular > max(_SMALLEST * singular.max(), 1e-9)]
