"""Evaluation metrics of features and class probabilities, in NumPy with float64.

A set of features is `[N, D]` with one row per image; `real` and `fake` may have different numbers
of rows. Computations over all pairs process a block of rows at a time, so that memory grows with
N, not N^2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import scipy.linalg
import scipy.special
import sklearn.neighbors

SPLITS = 10  # of the samples, for the inception score
KERNEL_SUBSETS = 100  # subsets for the standard deviation of KID
KERNEL_SUBSET_SIZE = 1000
PRECISION_RECALL_K = 3  # the k of the k-th nearest neighbor
DENSITY_COVERAGE_K = 5
_BLOCK_ELEMENTS = 2**23  # pairs in a block, which take 64 MiB


@dataclasses.dataclass(frozen=True)
class Moments:
    """The mean and the covariance of a set of features.

    Attributes:
      mean: `[D]` float64.
      covariance: `[D, D]` float64, the unbiased estimate with the divisor N - 1.
    """

    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def from_features(cls, features: np.ndarray) -> Moments:
        """Returns the moments of features `[N, D]`, N >= 2."""
        features = np.asarray(features, np.float64)
        return cls(features.mean(axis=0), np.atleast_2d(np.cov(features, rowvar=False)))


def frechet_distance(first: Moments, second: Moments) -> float:
    """Computes FID: |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)).

    Heusel et al. 2017 (arXiv:1706.08500). FID is the squared Wasserstein-2 distance of two
    Gaussians. With Ci = Ai Ai^T, the trace of the square root is the sum of the singular values
    of A1^T A2. This avoids the square root of an asymmetric matrix, which may be complex, and
    allows singular covariances.

    Returns:
      The distance, >= 0; 0 for equal moments.
    """
    shift = first.mean - second.mean
    root = scipy.linalg.svdvals(_factor(first.covariance).T @ _factor(second.covariance)).sum()
    traces = np.trace(first.covariance) + np.trace(second.covariance)
    return max(
        0.0, float(shift @ shift + traces - 2 * root)
    )  # rounding errors can make it negative


def _factor(covariance: np.ndarray) -> np.ndarray:
    """Returns a matrix A with A A^T = covariance, `[D, D]`."""
    values, vectors = scipy.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0))  # rounding errors can make it negative


def kernel_distance(real: np.ndarray, fake: np.ndarray) -> float:
    """Computes KID: the unbiased estimate of MMD^2 with the kernel (x.y / D + 1)^3.

    Binkowski et al. 2018 (arXiv:1801.01401). All pairs are used instead of random subsets, so the
    result is deterministic.

    Args:
      real: `[N, D]`, N >= 2.
      fake: `[M, D]`, M >= 2.

    Returns:
      The estimate. Its expectation is 0 for equal distributions, so it may be negative.
    """
    real, fake = np.asarray(real, np.float64), np.asarray(fake, np.float64)
    across = _kernel_sum(real, fake) / (len(real) * len(fake))
    return _within(real) + _within(fake) - 2 * across


def kernel_distance_deviation(real: np.ndarray, fake: np.ndarray) -> float:
    """Returns the standard deviation of KID over 100 random subsets of 1,000 rows of each set.

    Subsets are drawn without replacement, with a fixed seed. A subset has at most half the rows
    of the smaller set, because subsets with nearly all rows would hardly differ.

    Args:
      real: `[N, D]`, N >= 2.
      fake: `[M, D]`, M >= 2.
    """
    size = max(2, min(KERNEL_SUBSET_SIZE, len(real) // 2, len(fake) // 2))
    random = np.random.default_rng(0)

    def subset(features: np.ndarray) -> np.ndarray:
        return features[random.choice(len(features), size, replace=False)]

    values = [kernel_distance(subset(real), subset(fake)) for _ in range(KERNEL_SUBSETS)]
    return float(np.std(values))


def _kernel(products: np.ndarray, size: int) -> np.ndarray:
    base = products / size + 1
    return base * base * base


def _kernel_sum(first: np.ndarray, second: np.ndarray) -> float:
    size = first.shape[1]
    blocks = _blocks(len(first), len(second))
    return sum(float(_kernel(first[rows] @ second.T, size).sum()) for rows in blocks)


def _within(features: np.ndarray) -> float:
    """Returns the mean kernel of two different rows."""
    count, size = features.shape
    same = float(_kernel(np.square(features).sum(axis=1), size).sum())
    return (_kernel_sum(features, features) - same) / (count * (count - 1))


def inception_score(probabilities: np.ndarray, splits: int = SPLITS) -> tuple[float, float]:
    """Computes the inception score: exp E KL(p(y|x) || p(y)).

    Salimans et al. 2016 (arXiv:1606.03498). As published, the score is computed for consecutive
    parts of the samples.

    Args:
      probabilities: `[N, K]`, rows that sum to 1.
      splits: The number of parts, reduced to N if N is smaller.

    Returns:
      The mean and the standard deviation over the parts; the score of each part is in [1, K].
    """
    probabilities = np.asarray(probabilities, np.float64)
    count = len(probabilities)
    splits = min(splits, count)
    scores = []
    for part in range(splits):
        chosen = probabilities[part * count // splits : (part + 1) * count // splits]
        divergence = scipy.special.rel_entr(chosen, chosen.mean(axis=0)).sum(axis=1)
        scores.append(np.exp(divergence.mean()))
    return float(np.mean(scores)), float(np.std(scores))


@dataclasses.dataclass(frozen=True)
class ManifoldMetrics:
    """Precision, recall, density and coverage of two sets of features.

    Each point is the center of a ball, whose radius is the distance to the k-th nearest neighbor
    in the same set.

    Attributes:
      precision: The share of fake points in a ball of a real point, k = 3, in [0, 1].
      recall: The share of real points in a ball of a fake point, k = 3, in [0, 1].
      density: The mean number of balls of real points that contain a fake point, k = 5, divided
        by k; >= 0, with the expectation 1 for equal distributions.
      coverage: The share of balls of real points that contain a fake point, k = 5, in [0, 1].
    """

    precision: float
    recall: float
    density: float
    coverage: float


def manifold_metrics(
    real: np.ndarray, fake: np.ndarray, real_radii: np.ndarray | None = None
) -> ManifoldMetrics:
    """Computes precision, recall, density and coverage.

    Kynkäänniemi et al. 2019 (arXiv:1904.06991) and Naeem et al. 2020 (arXiv:2002.09797). In a
    set with at most k rows, the radius is the distance to the farthest row.

    Args:
      real: `[N, D]`, N >= 2.
      fake: `[M, D]`, M >= 2.
      real_radii: The result of `squared_radii(real)`, if it is already known.
    """
    real, fake = np.asarray(real, np.float64), np.asarray(fake, np.float64)
    precision_radii, coverage_radii = _with_tolerance(
        squared_radii(real) if real_radii is None else real_radii
    )
    recall_radii = _with_tolerance(squared_radii(fake)[0])
    k = min(DENSITY_COVERAGE_K, len(real) - 1)
    precise_count, inside_count = 0, 0
    recalled, covered = np.zeros(len(real), bool), np.zeros(len(real), bool)
    for rows in _blocks(len(fake), len(real)):
        distances = _squared_distances(fake[rows], real)
        precise_count += int((distances <= precision_radii).any(axis=1).sum())
        recalled |= (distances <= recall_radii[rows, None]).any(axis=0)
        inside = distances <= coverage_radii
        inside_count += int(inside.sum())
        covered |= inside.any(axis=0)
    return ManifoldMetrics(
        precision=precise_count / len(fake),
        recall=float(recalled.mean()),
        density=inside_count / (k * len(fake)),
        coverage=float(covered.mean()),
    )


def _with_tolerance(values: np.ndarray) -> np.ndarray:
    """Returns squared radii, enlarged so that rounding does not exclude points on the edge."""
    return values * (1 + 1e-9) + 1e-12 * values.mean()


def squared_radii(features: np.ndarray) -> np.ndarray:
    """Returns the squared distances to the third and fifth nearest neighbor, `[2, N]` float64.

    Args:
      features: `[N, D]`, N >= 2.
    """
    features = np.asarray(features, np.float64)
    ranks = [min(k, len(features) - 1) for k in (PRECISION_RECALL_K, DENSITY_COVERAGE_K)]
    search = sklearn.neighbors.NearestNeighbors(
        n_neighbors=max(ranks), algorithm="brute", metric="sqeuclidean"
    )
    # Centered as in _squared_distances. A row is not its own neighbor.
    distances, _ = search.fit(features - features.mean(axis=0)).kneighbors()
    return distances[:, [rank - 1 for rank in ranks]].T


def _squared_distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns squared distances `[N, M]`; the matrix product is much faster than differences."""
    center = second.mean(axis=0)  # centering reduces cancellation of large numbers
    first, second = first - center, second - center
    squares = np.square(first).sum(axis=1)[:, None] + np.square(second).sum(axis=1)
    return np.maximum(squares - 2 * (first @ second.T), 0)


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yields slices of rows; each slice has at most _BLOCK_ELEMENTS elements in all columns."""
    size = max(1, _BLOCK_ELEMENTS // columns)
    return (slice(begin, begin + size) for begin in range(0, rows, size))
