"""Figures of samples in the plane: whether they lie where the data does."""

from __future__ import annotations

import functools

import numpy as np
import scipy.optimize
import scipy.spatial.distance
import tensorflow as tf

from ..config import Config
from ..data import toys
from ..sampling import Sampler
from .examples import Examples, check_samples

# Of samples and of data, for the distance: the assignment takes time as their cube.
MOST_ASSIGNED = 2000
_DEVIATIONS = 3  # from a mode, within which a sample is of it


class PointEvaluator:
    """Judges samples of the 2-D distributions.

    Args:
      config: of the run.
      strategy: whose replicas read the data.
      sampler: draws the samples.

    Attributes:
      about: what evaluation.jsonl says beside the figures.
    """

    def __init__(self, config: Config, strategy: tf.distribute.Strategy, sampler: Sampler):
        self._config = config
        self._strategy = strategy
        self._sampler = sampler
        self._assigned = min(config.evaluate_samples, MOST_ASSIGNED)
        self.about = {"samples": config.evaluate_samples, "extractor": None}

    def evaluate(self) -> dict[str, float]:
        """The figures of the generator as it is, by their tags.

        Of mixtures of Gaussians: modes with a sample near them, and the share of samples near
        a mode. Of all: the 1-Wasserstein distance between the first samples and as many points
        of the data (2,000 at most), and, as its floor, that between two draws of the data.

        Raises:
          UserError: a sample is NaN or infinite.
        """
        samples = self._sampler.sample(self._config.evaluate_samples).astype(np.float64)
        check_samples(samples)
        values: dict[str, float] = {}
        if self._config.dataset in toys.DEVIATIONS:
            centres = toys.centres(self._config.dataset)
            reach = _DEVIATIONS * toys.DEVIATIONS[self._config.dataset]
            covered, share = modes_covered(samples, centres, reach)
            values |= {"modes_covered": covered, "high_quality_share": share}
        values["wasserstein"] = wasserstein(samples[: self._assigned], self._real[0])
        values["wasserstein_floor"] = self._floor
        return {f"evaluation/{name}": value for name, value in values.items()}

    @functools.cached_property
    def _real(self) -> tuple[np.ndarray, np.ndarray]:
        """Two draws of the data, `[n, 2]` each."""
        examples, _ = Examples(self._config, self._strategy).read(2 * self._assigned)
        first, second = np.split(examples, 2)
        return first, second

    @functools.cached_property
    def _floor(self) -> float:
        return wasserstein(*self._real)


def modes_covered(points: np.ndarray, centres: np.ndarray, reach: float) -> tuple[float, float]:
    """How many modes have a point within `reach`, and the share of points that a mode has.

    Args:
      points: `[N, 2]`.
      centres: `[M, 2]`, of the modes.
      reach: from a centre.
    """
    distances = scipy.spatial.distance.cdist(points, centres)
    near = distances.min(axis=1) <= reach
    return float(len(np.unique(distances.argmin(axis=1)[near]))), float(near.mean())


def wasserstein(first: np.ndarray, second: np.ndarray) -> float:
    """The exact 1-Wasserstein distance between two sets of as many points, `[N, D]` each.

    The mean Euclidean distance of the pairs in the best assignment. Of two finite draws of one
    distribution it is not 0, but falls with their size.
    """
    costs = scipy.spatial.distance.cdist(first, second)
    return float(costs[scipy.optimize.linear_sum_assignment(costs)].mean())
