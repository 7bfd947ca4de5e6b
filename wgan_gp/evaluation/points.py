"""Evaluation metrics of the 2-D distributions."""

from __future__ import annotations

import functools

import numpy as np
import scipy.optimize
import scipy.spatial.distance
import tensorflow as tf

from ..config import Config
from ..data import toys
from ..data.registry import Dataset
from ..sampling import Sampler
from .examples import Examples, check_samples

# The largest number of samples for the Wasserstein distance: the time of the assignment grows
# with its cube.
MOST_ASSIGNED = 2000
_DEVIATIONS = 3  # a mode covers samples within this number of standard deviations


class PointEvaluator:
    """Evaluates samples of the 2-D distributions.

    Args:
      config: The configuration of the run.
      strategy: The strategy whose replicas read the data.
      sampler: Draws the samples.
      dataset: The dataset of the run.

    Attributes:
      about: See `evaluator.Evaluator`.
    """

    def __init__(
        self,
        config: Config,
        strategy: tf.distribute.Strategy,
        sampler: Sampler,
        dataset: Dataset,
    ):
        self._config = config
        self._strategy = strategy
        self._sampler = sampler
        self._dataset = dataset
        self._assigned = min(config.evaluate_samples, MOST_ASSIGNED)
        self.about = {"samples": config.evaluate_samples, "extractor": None}

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the generator with its current weights, by tag.

        For mixtures of Gaussians, these include the number of modes with a sample near them and
        the share of samples near a mode. For all distributions, they are the 1-Wasserstein
        distance between equal numbers of samples and data points (2,000 at most) and, as its
        floor, the distance between two draws of the data.

        Raises:
          UserError: If a sample is NaN or infinite.
        """
        samples = self._sampler.sample(self._config.evaluate_samples).astype(np.float64)
        check_samples(samples)
        values: dict[str, float] = {}
        if self._config.dataset in toys.DEVIATIONS:
            centres = toys.mode_centers(self._config.dataset)
            reach = _DEVIATIONS * toys.DEVIATIONS[self._config.dataset]
            covered, share = modes_covered(samples, centres, reach)
            values |= {"modes_covered": covered, "high_quality_share": share}
        values["wasserstein"] = wasserstein(samples[: self._assigned], self._real[0])
        values["wasserstein_floor"] = self._floor
        return {f"evaluation/{name}": value for name, value in values.items()}

    @functools.cached_property
    def _real(self) -> tuple[np.ndarray, np.ndarray]:
        """Two draws of the data, each `[n, 2]`."""
        examples, _ = Examples(self._config, self._strategy, self._dataset).read(2 * self._assigned)
        first, second = np.split(examples, 2)
        return first, second

    @functools.cached_property
    def _floor(self) -> float:
        return wasserstein(*self._real)


def modes_covered(points: np.ndarray, centres: np.ndarray, reach: float) -> tuple[float, float]:
    """Returns the number of modes with a point near them, and the share of points near a mode.

    Args:
      points: `[N, 2]`.
      centres: `[M, 2]`, the centers of the modes.
      reach: The largest distance from a center at which a point is near the mode.
    """
    distances = scipy.spatial.distance.cdist(points, centres)
    near = distances.min(axis=1) <= reach
    return float(len(np.unique(distances.argmin(axis=1)[near]))), float(near.mean())


def wasserstein(first: np.ndarray, second: np.ndarray) -> float:
    """Computes the exact 1-Wasserstein distance between two sets of points, each `[N, D]`.

    This is the mean Euclidean distance of the pairs in the optimal assignment. For two draws of
    the same distribution it is not 0, but decreases with N.
    """
    costs = scipy.spatial.distance.cdist(first, second)
    return float(costs[scipy.optimize.linear_sum_assignment(costs)].mean())
