"""Evaluation metrics of the 2-D distributions."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import scipy.optimize
import scipy.spatial.distance

from ..data.sources import toys
from ..inference.sampling import Sampler
from .examples import Examples, check_samples

# The Wasserstein distance uses at most this number of samples: the time of the assignment grows
# with its cube.
MAX_ASSIGNED = 2000
MODE_RADIUS = 3  # standard deviations within which a sample belongs to a mode


class PointEvaluator:
    """An evaluator of samples of the 2-D distributions.

    Args:
      count: The number of samples to evaluate.
      sampler: Draws the samples.
      examples: The examples of the run's dataset.

    Attributes:
      metadata: See `evaluator.Evaluator`.
    """

    def __init__(self, count: int, sampler: Sampler, examples: Examples):
        self._count = count
        self._sampler = sampler
        self._examples = examples
        self._assigned = min(count, MAX_ASSIGNED)
        self.metadata = {"samples": count, "extractor": None}

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the generator with its current weights, by tag.

        For all distributions, the metrics are the 1-Wasserstein distance between equal numbers of
        samples and data points (at most 2,000) and, as its floor, the distance between two draws
        of the data. For mixtures of Gaussians, there are two more, from `mode_coverage`: the
        number of modes covered, and the share of samples near a mode.

        Raises:
          UserError: If a sample is NaN or infinite.
        """
        samples = self._sampler.sample(self._count).astype(np.float64)
        check_samples(samples)
        values: dict[str, float] = {}
        dataset = self._examples.dataset.settings.dataset
        if dataset in toys.DEVIATIONS:
            coverage = mode_coverage(samples, dataset)
            values["modes_covered"] = float(coverage.covered)
            values["high_quality_share"] = coverage.high_quality_share
        values["wasserstein"] = wasserstein(samples[: self._assigned], self._real[0])
        values["wasserstein_floor"] = self._floor
        return {f"evaluation/{name}": value for name, value in values.items()}

    @functools.cached_property
    def _real(self) -> tuple[np.ndarray, np.ndarray]:
        """Two draws of the data, each `[n, 2]`."""
        examples, _ = self._examples.read(2 * self._assigned)
        first, second = np.split(examples, 2)
        return first, second

    @functools.cached_property
    def _floor(self) -> float:
        return wasserstein(*self._real)


@dataclasses.dataclass(frozen=True)
class ModeCoverage:
    """The distribution of samples over the modes of a mixture of Gaussians.

    A sample belongs to the nearest mode if it is within three standard deviations of its center.

    Attributes:
      modes: The number of modes.
      covered: The number of modes with at least one sample.
      high_quality_share: The share of samples that belong to a mode, in [0, 1].
      smallest_mode_share: The share of samples that belong to the rarest mode, in [0, 1].
    """

    modes: int
    covered: int
    high_quality_share: float
    smallest_mode_share: float


def mode_coverage(points: np.ndarray, dataset: str) -> ModeCoverage:
    """Assigns points to the modes of a distribution and counts them.

    Args:
      points: `[N, 2]`.
      dataset: The name of the distribution, a key of `toys.DEVIATIONS`.
    """
    centers = toys.mode_centers(dataset)
    distances = scipy.spatial.distance.cdist(points, centers)
    near = distances.min(axis=1) <= MODE_RADIUS * toys.DEVIATIONS[dataset]
    counts = np.bincount(distances.argmin(axis=1)[near], minlength=len(centers))
    return ModeCoverage(
        modes=len(centers),
        covered=int((counts > 0).sum()),
        high_quality_share=float(near.mean()),
        smallest_mode_share=float(counts.min() / len(points)),
    )


def wasserstein(first: np.ndarray, second: np.ndarray) -> float:
    """Computes the exact 1-Wasserstein distance between two sets of points, each `[N, D]`.

    It is the mean Euclidean distance between the points of each pair in the optimal assignment.
    For two draws of the same distribution it is greater than 0, and decreases as N grows.
    """
    costs = scipy.spatial.distance.cdist(first, second)
    return float(costs[scipy.optimize.linear_sum_assignment(costs)].mean())
