"""Measures of samples by classifiers and nearest neighbors, which need no pretrained network."""

from __future__ import annotations

import dataclasses

import numpy as np
import sklearn.decomposition
import sklearn.ensemble
import sklearn.model_selection
import sklearn.neighbors
import threadpoolctl

from .distances import standard_deviations

MAX_CLASSIFIED = 2000  # examples of each set; the time of a classifier grows with their number
MAX_FEATURES = 64  # more features are reduced to this number of principal components
MAX_QUERIES = 2000  # examples whose nearest neighbors are searched
FOLDS = 5
# One thread gives the same order of summation on every machine.
_reproducible = threadpoolctl.threadpool_limits.wrap(limits=1)


class Reducer:
    """Features of examples for classifiers and distances: standardized values, at most a hundred.

    Examples with more than MAX_FEATURES values are described by their MAX_FEATURES first principal
    components, by the length of the remainder, which is large for samples outside the data, and by
    the mean, the deviation and the mean step of each of up to eight channels.

    Args:
      real: Examples of the data, `[N, *shape]`, which determine scales and components. Features of
        a table have a scale each; the values of a channel of signals or images have one scale.
    """

    @_reproducible
    def __init__(self, real: np.ndarray):
        real = real[:MAX_CLASSIFIED]
        by_channel = real.reshape(-1, real.shape[-1])
        self._mean = by_channel.mean(axis=0, dtype=np.float64)
        self._scale = standard_deviations(by_channel)
        self._components: np.ndarray | None = None
        rows = self._rows(real)
        if rows.shape[1] > MAX_FEATURES:
            count = min(MAX_FEATURES, len(rows))
            pca = sklearn.decomposition.PCA(count, svd_solver="randomized", random_state=0)
            with np.errstate(invalid="ignore"):  # if all examples are equal
                self._components = pca.fit(rows).components_.T
            self._center = pca.mean_

    @_reproducible
    def __call__(self, examples: np.ndarray) -> np.ndarray:
        """Returns the features of examples `[N, *shape]`, `[N, F]` float32."""
        rows = self._rows(examples)
        if self._components is None:
            return rows
        rows -= self._center
        size = rows.shape[1]
        components = rows @ self._components
        # The components are orthonormal, so the square of the remainder is a difference.
        remainder = np.maximum((rows**2).sum(axis=1) - (components**2).sum(axis=1), 0)
        lengths = np.column_stack([components, np.sqrt(remainder)]) / np.sqrt(size)
        return np.concatenate([lengths, self._summary(examples)], axis=1).astype(np.float32)

    def _standardized(self, examples: np.ndarray) -> np.ndarray:
        # In float64, because a mean may be large, such as that of a time in seconds since 1970.
        return ((examples.astype(np.float64) - self._mean) / self._scale).astype(np.float32)

    def _rows(self, examples: np.ndarray) -> np.ndarray:
        return self._standardized(examples).reshape(len(examples), -1)

    def _summary(self, examples: np.ndarray) -> np.ndarray:
        """Returns mean, deviation and mean absolute steps per channel, `[N, S]`."""
        examples = self._standardized(examples)
        examples = examples[..., None] if examples.ndim == 2 else examples[..., :8]
        space = tuple(range(1, examples.ndim - 1))
        steps = [
            np.abs(np.diff(examples, axis=axis)).mean(axis=space)
            for axis in space
            if examples.shape[axis] > 1
        ]
        return np.concatenate([examples.mean(axis=space), examples.std(axis=space), *steps], axis=1)


@_reproducible
def two_sample_accuracy(first: np.ndarray, second: np.ndarray) -> float:
    """Computes the accuracy of a classifier that tells two sets apart; 0.5 is best.

    Lopez-Paz and Oquab 2017 (arXiv:1610.06545): gradient-boosted trees are trained on equal
    numbers of both sets, at most MAX_CLASSIFIED of each, and tested on the others, in five folds.
    It detects any difference that the trees can learn, also missing modes.

    Args:
      first: Features `[N, F]`, N >= 2.
      second: Features `[M, F]`, M >= 2.
    """
    count = min(len(first), len(second), MAX_CLASSIFIED)
    features = np.concatenate([first[:count], second[:count]])
    truth = np.repeat([0, 1], count)
    folds = sklearn.model_selection.StratifiedKFold(min(FOLDS, count), shuffle=True, random_state=0)
    correct = np.empty(2 * count, bool)
    for train, test in folds.split(features, truth):
        correct[test] = _fit(features[train], truth[train]).predict(features[test]) == truth[test]
    return float(correct.mean())


@_reproducible
def transfer_accuracy(
    train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray
) -> float:
    """Computes the accuracy on one set of a classifier that was trained on another set.

    "Train on synthetic, test on real" of Esteban et al. 2017 (arXiv:1706.02633, section 4.2) if
    `train` are samples. For labels `[N, K]`, which are continuous conditions, it is the mean R^2 of
    regressions with at most eight of them.

    Args:
      train: Features `[N, F]`; at most MAX_CLASSIFIED are used.
      train_labels: Integers `[N]`, or numbers `[N, K]`.
      test: Features `[M, F]`.
      test_labels: `[M]` or `[M, K]`.
    """
    train, train_labels = train[:MAX_CLASSIFIED], train_labels[:MAX_CLASSIFIED]
    if train_labels.ndim == 1:
        if len(np.unique(train_labels)) < 2:  # a classifier cannot be fitted to one class
            return float((test_labels == train_labels[0]).mean())
        return float((_fit(train, train_labels).predict(test) == test_labels).mean())
    model = sklearn.ensemble.HistGradientBoostingRegressor(random_state=0, early_stopping=False)
    scores = [
        model.fit(train, column).score(test, truth)
        for column, truth in zip(train_labels.T[:8], test_labels.T[:8], strict=True)
    ]
    return float(np.mean(scores))


@dataclasses.dataclass(frozen=True)
class Closeness:
    """Distances of samples to the data, compared with those of real examples.

    Attributes:
      distance_ratio: The median distance of samples to the closest example of the data, divided by
        that of real examples. Below 1, samples are closer to the data than other real examples.
      closer_share: The probability that a sample is closer to the data than a real example. It is
        0.5 for samples of the same distribution, and 1 for copies.
    """

    distance_ratio: float
    closer_share: float


def closeness(distances: np.ndarray, real_distances: np.ndarray) -> Closeness:
    """Compares distances to the closest example of the data, to find copies of the data.

    Meehan et al. 2020 (arXiv:2004.05675) compare the distances by the same rank statistic. The
    ratio of the medians is the usual measure of privacy of synthetic tables.

    Args:
      distances: Distances of samples, `[N]`, from `nearest_distances`.
      real_distances: Distances of held-out examples or, without them, of examples of the data to
        the other examples of the data, `[M]`.
    """
    ordered = np.sort(real_distances)
    below = np.searchsorted(ordered, distances, side="left")
    equal = np.searchsorted(ordered, distances, side="right") - below
    tiny = 1e-9 + 1e-9 * ordered.max()
    return Closeness(
        float((np.median(distances) + tiny) / (np.median(ordered) + tiny)),
        float(1 - (below + equal / 2).mean() / len(ordered)),
    )


@_reproducible
def nearest_distances(
    examples: np.ndarray, data: np.ndarray, *, without_itself: bool = False
) -> np.ndarray:
    """Returns the Euclidean distance to the closest example of the data, `[N]`, N <= MAX_QUERIES.

    Args:
      examples: Features `[N, F]`; the first MAX_QUERIES are used.
      data: Features `[M, F]`.
      without_itself: Whether `examples` are a part of `data`. Each example is then compared with
        all other examples, as if it were held out. M >= 2.
    """
    # Differences of float64 are exact enough for copies.
    search = sklearn.neighbors.NearestNeighbors(algorithm="brute").fit(data.astype(np.float64))
    queries = examples[:MAX_QUERIES].astype(np.float64)
    distances, _ = search.kneighbors(queries, 1 + without_itself)
    return distances[:, -1]


def _fit(
    features: np.ndarray, labels: np.ndarray
) -> sklearn.ensemble.HistGradientBoostingClassifier:
    model = sklearn.ensemble.HistGradientBoostingClassifier(random_state=0, early_stopping=False)
    return model.fit(features, labels)
