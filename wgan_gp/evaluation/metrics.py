"""Distances between two sets of features, and scores of class probabilities; NumPy, in float64.

A set is `[N, D]`, one row an image; `real` and `fake` need not have as many rows. Whatever
looks at all pairs does so a block of rows at a time, so that memory grows with N, not N^2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import scipy.linalg
import scipy.special
import sklearn.neighbors

SPLITS = 10  # of the samples, for the inception score
KERNEL_SUBSETS = 100  # for the deviation of KID
KERNEL_SUBSET_SIZE = 1000
MANIFOLD_NEIGHBOURS = 3  # for precision and recall
COVERAGE_NEIGHBOURS = 5  # for density and coverage
_BLOCK_ELEMENTS = 2**23  # of one block of pairs: 64 MiB


@dataclasses.dataclass(frozen=True)
class Moments:
    """Of a set of features.

    Attributes:
      mean: `[D]` float64.
      covariance: `[D, D]` float64; of a sample, so divided by N - 1.
    """

    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray) -> Moments:
        """Those of `[N, D]`, N at least 2."""
        features = np.asarray(features, np.float64)
        return cls(features.mean(axis=0), np.atleast_2d(np.cov(features, rowvar=False)))


def frechet_distance(first: Moments, second: Moments) -> float:
    """FID: |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)), Heusel et al. 2017 (arXiv:1706.08500).

    The squared Wasserstein-2 distance of two Gaussians. With Ci = Ai Ai^T, the trace of the root
    is the sum of the singular values of A1^T A2. So there is no root of a matrix that is not
    symmetric, hence nothing complex, and covariances may be singular.

    Returns:
      At least 0; 0 for equal moments.
    """
    shift = first.mean - second.mean
    root = scipy.linalg.svdvals(_factor(first.covariance).T @ _factor(second.covariance)).sum()
    traces = np.trace(first.covariance) + np.trace(second.covariance)
    return max(0.0, float(shift @ shift + traces - 2 * root))  # rounding may fall below


def _factor(covariance: np.ndarray) -> np.ndarray:
    """A with A A^T = covariance, `[D, D]`."""
    values, vectors = scipy.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0))  # by rounding, those of 0 may be below


def kernel_distance(real: np.ndarray, fake: np.ndarray) -> float:
    """KID: the unbiased MMD^2 with the kernel (x.y / D + 1)^3, Binkowski et al. 2018.

    arXiv:1801.01401. Over all pairs rather than over random subsets, so it is exact and
    repeatable.

    Args:
      real, fake: `[N, D]` and `[M, D]`, at least two rows each.

    Returns:
      0 on average where both have one distribution, so also a little below.
    """
    real, fake = np.asarray(real, np.float64), np.asarray(fake, np.float64)
    across = _kernel_sum(real, fake) / (len(real) * len(fake))
    return _within(real) + _within(fake) - 2 * across


def kernel_distance_deviation(real: np.ndarray, fake: np.ndarray) -> float:
    """Returns the standard deviation of KID over 100 random subsets of 1,000 rows of each set.

    Each subset is drawn without replacement, always by the same seed. Where half of the smaller
    set is less than 1,000 rows, subsets have that many: subsets that hold nearly all rows would
    hardly differ.

    Args:
      real, fake: `[N, D]` and `[M, D]`, at least two rows each.
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
    """The mean kernel of two different rows."""
    count, size = features.shape
    same = float(_kernel(np.square(features).sum(axis=1), size).sum())
    return (_kernel_sum(features, features) - same) / (count * (count - 1))


def inception_score(probabilities: np.ndarray, splits: int = SPLITS) -> tuple[float, float]:
    """exp E KL(p(y|x) || p(y)), Salimans et al. 2016 (arXiv:1606.03498).

    Of each of the `splits` parts, in order, as published; fewer where there are fewer samples.

    Args:
      probabilities: `[N, K]`, rows that sum to 1.
      splits: how many parts.

    Returns:
      Mean and standard deviation over the parts; each part's score is in [1, K].
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
class Neighbourhoods:
    """How two sets of features lie among each other.

    A ball about each point reaches to its k-th nearest neighbour in its own set.

    Attributes:
      precision: share of the fake in a ball of the real, k = 3. In [0, 1].
      recall: share of the real in a ball of the fake, k = 3. In [0, 1].
      density: balls of the real that a fake one lies in, k = 5, divided by k. From 0 to
        beyond 1, which is its mean where both have one distribution.
      coverage: share of the balls of the real, k = 5, that hold a fake one. In [0, 1].
    """

    precision: float
    recall: float
    density: float
    coverage: float


def neighbourhoods(
    real: np.ndarray, fake: np.ndarray, real_radii: np.ndarray | None = None
) -> Neighbourhoods:
    """Kynkäänniemi et al. 2019 (arXiv:1904.06991) and Naeem et al. 2020 (arXiv:2002.09797).

    Args:
      real, fake: `[N, D]` and `[M, D]`, at least two rows each. A set of so few rows that it
        has no k-th neighbour takes the farthest one.
      real_radii: of `real`, where they are known; see `radii`.
    """
    real, fake = np.asarray(real, np.float64), np.asarray(fake, np.float64)
    for_manifold, for_coverage = _with_edge(radii(real) if real_radii is None else real_radii)
    fake_radii = _with_edge(radii(fake)[0])
    neighbours = min(COVERAGE_NEIGHBOURS, len(real) - 1)
    precise, inside = 0, 0
    recalled, covered = np.zeros(len(real), bool), np.zeros(len(real), bool)
    for rows in _blocks(len(fake), len(real)):
        distances = _squared_distances(fake[rows], real)
        precise += int((distances <= for_manifold).any(axis=1).sum())
        recalled |= (distances <= fake_radii[rows, None]).any(axis=0)
        near = distances <= for_coverage
        inside += int(near.sum())
        covered |= near.any(axis=0)
    return Neighbourhoods(
        precision=precise / len(fake),
        recall=float(recalled.mean()),
        density=inside / (neighbours * len(fake)),
        coverage=float(covered.mean()),
    )


def _with_edge(squared_radii: np.ndarray) -> np.ndarray:
    """Returns the radii, larger by what rounding may add to the distance of a point on the edge."""
    return squared_radii * (1 + 1e-9) + 1e-12 * squared_radii.mean()


def radii(features: np.ndarray) -> np.ndarray:
    """Returns squared distances to the third and the fifth nearest other row: `[2, N]` float64.

    Args:
      features: `[N, D]`, at least two rows.
    """
    features = np.asarray(features, np.float64)
    places = [min(k, len(features) - 1) for k in (MANIFOLD_NEIGHBOURS, COVERAGE_NEIGHBOURS)]
    search = sklearn.neighbors.NearestNeighbors(
        n_neighbors=max(places), algorithm="brute", metric="sqeuclidean"
    )
    # Centered, as in _squared_distances. No row is its own neighbor.
    distances, _ = search.fit(features - features.mean(axis=0)).kneighbors()
    return distances[:, [place - 1 for place in places]].T


def _squared_distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """`[N, M]`; by a product of matrices, many times as fast as by differences."""
    centre = second.mean(axis=0)  # small numbers: little is lost where large ones cancel
    first, second = first - centre, second - centre
    squares = np.square(first).sum(axis=1)[:, None] + np.square(second).sum(axis=1)
    return np.maximum(squares - 2 * (first @ second.T), 0)


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of `rows` such that one of them with all columns is a block."""
    size = max(1, _BLOCK_ELEMENTS // columns)
    return (slice(begin, begin + size) for begin in range(0, rows, size))
