"""Metrics of samples by classifiers and nearest neighbors, which need no pretrained network."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import sklearn.ensemble
import sklearn.neighbors
import sklearn.random_projection
import sklearn.utils.extmath
import threadpoolctl

from .distances import standard_deviations

MAX_CLASSIFIED = 2000  # examples of each set; the time of a classifier grows with their number
MAX_FEATURES = 64  # more features are reduced to this number of principal components
MAX_QUERIES = 2000  # examples whose nearest neighbors are searched
MAX_COMPARED = 1024  # values between which distances are computed; more are projected at random
FOLDS = 5
# One thread gives the same order of summation on every machine.
_reproducible = threadpoolctl.threadpool_limits.wrap(limits=1)


class Reducer:
    """Features of examples for classifiers: all values, or a hundred features of longer examples.

    Examples with more than MAX_FEATURES values are standardized, and described by their
    MAX_FEATURES first principal components, by the length of the remainder, which is large for
    examples outside the span of the components, and by the mean, the deviation and the mean step
    of each of up to eight channels.

    Components are fitted to the noise of the examples that determine them, so these look different
    from all others. A classifier must therefore be tested either on none of them, or on both sets
    that it tells apart.

    Args:
      examples: `[N, *shape]`, which determine scales and components.
    """

    @_reproducible
    def __init__(self, examples: np.ndarray):
        self._components: np.ndarray | None = None
        if examples[0].size > MAX_FEATURES:
            self._mean, self._scale = scales([examples])
            rows = self._rows(examples)
            self._center = rows.mean(axis=0)
            rows -= self._center
            count = min(MAX_FEATURES, len(rows))
            _, _, components = sklearn.utils.extmath.randomized_svd(rows, count, random_state=0)
            self._components = components.T

    @_reproducible
    def __call__(self, examples: np.ndarray) -> np.ndarray:
        """Returns the features of examples `[N, *shape]`, `[N, F]` float64."""
        if self._components is None:
            return examples.reshape(len(examples), -1).astype(np.float64)
        rows = self._rows(examples) - self._center
        components = rows @ self._components
        # The components are orthonormal, so the square of the remainder is a difference.
        remainder = np.maximum((rows**2).sum(axis=1) - (components**2).sum(axis=1), 0)
        lengths = np.column_stack([components, np.sqrt(remainder)])
        return np.concatenate([lengths, self._summary(examples)], axis=1)

    def _standardized(self, examples: np.ndarray) -> np.ndarray:
        return (examples.astype(np.float64) - self._mean) / self._scale

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


def scales(sets: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean and the standard deviation of each feature or channel, `[C]` float64.

    Each feature of a table has a scale of its own; the values of a channel of signals or images
    have one scale. Constants have the deviation 1.

    Args:
      sets: Sets of examples, each `[N, *shape]`; the first MAX_CLASSIFIED of each are used.
    """
    chosen = [each[:MAX_CLASSIFIED].reshape(-1, each.shape[-1]) for each in sets]
    values = np.concatenate(chosen).astype(np.float64)
    return values.mean(axis=0), standard_deviations(values)


@_reproducible
def two_sample_accuracy(
    first: np.ndarray,
    second: np.ndarray,
    without: Callable[[np.ndarray], np.ndarray] | None = None,
) -> float:
    """Computes the accuracy of a classifier that tells two sets apart; 0.5 is best.

    Lopez-Paz and Oquab 2017 (arXiv:1610.06545): gradient-boosted trees are trained on equal
    numbers of both sets, at most MAX_CLASSIFIED of each, and tested on the others, in five folds.
    It detects any difference that the trees can learn, also missing modes.

    The features are fitted to both sets together, which treats them alike. Examples at the same
    place of both sets, which have the same label in a conditional run, are in the same fold;
    otherwise a label that is rare in the training set of one kind would be frequent in its test
    set, and the accuracy would be below 0.5. So it would be if `first` had exactly the
    distribution of `second`, as a fold with more examples of a kind leaves fewer to the others.

    Args:
      first: Examples `[N, *shape]`, N >= 2.
      second: Examples `[M, *shape]`, M >= 2.
      without: Returns `first` as it is without those examples of `second` that are at given places
        and are tested on, if `first` depends on `second`.
    """
    count = min(len(first), len(second), MAX_CLASSIFIED)
    truth = np.repeat([0, 1], count)
    places = np.random.default_rng(0).permutation(count) % min(FOLDS, count)
    correct, features = np.empty(2 * count, bool), None
    for fold in np.unique(places):
        if features is None or without is not None:
            used = first if without is None else without(np.flatnonzero(places == fold))
            both = np.concatenate([used[:count], second[:count]])
            features = Reducer(both)(both)
        test = np.tile(places == fold, 2)
        correct[test] = _fit(features[~test], truth[~test]).predict(features[test]) == truth[test]
    return float(correct.mean())


@_reproducible
def transfer_accuracy(
    train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray
) -> float:
    """Computes the accuracy on one set of a classifier that was trained on another set.

    "Train on synthetic, test on real" of Esteban et al. 2017 (arXiv:1706.02633, section 4.2) if
    `train` are samples. For labels `[N, K]`, which are continuous conditions, it is the mean R^2 of
    regressions with at most eight of them. The features are fitted to `train` only.

    Args:
      train: Examples `[N, *shape]`; at most MAX_CLASSIFIED are used.
      train_labels: Integers `[N]`, or numbers `[N, K]`.
      test: Examples `[M, *shape]`.
      test_labels: `[M]` or `[M, K]`.
    """
    train, train_labels = train[:MAX_CLASSIFIED], train_labels[:MAX_CLASSIFIED]
    if train_labels.ndim == 1 and len(np.unique(train_labels)) < 2:
        # A classifier cannot be fitted to one class.
        return float((test_labels == train_labels[0]).mean())
    reduce = Reducer(train)
    train, test = reduce(train), reduce(test)
    if train_labels.ndim == 1:
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
    ratio of the medians is the usual metric of privacy of synthetic tables.

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
def comparable(sets: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns sets of examples as rows whose distances are comparable, each `[N, F]` float64.

    The values are divided by the scales of all sets together, which treats the sets alike. More
    than MAX_COMPARED values are projected at random, which changes squared distances by about 4 %.

    Args:
      sets: Sets of examples, each `[N, *shape]`.
    """
    _, scale = scales(sets)
    # Distances do not depend on the center; small numbers have small rounding errors.
    center = sets[0][0].astype(np.float64)
    project: Callable[[np.ndarray], np.ndarray] = lambda rows: rows  # noqa: E731
    size = sets[0][0].size
    if size > MAX_COMPARED:
        projection = sklearn.random_projection.SparseRandomProjection(MAX_COMPARED, random_state=0)
        project = projection.fit(np.zeros([1, size])).transform  # only the shape is used
    return [
        np.concatenate(
            [
                project(((part - center) / scale).reshape(len(part), -1))
                for part in np.array_split(each, -(-len(each) // 1000))  # takes less memory
            ]
        )
        for each in sets
    ]


@_reproducible
def nearest_distances(
    examples: np.ndarray, data: np.ndarray, *, without_itself: bool = False
) -> np.ndarray:
    """Returns the Euclidean distance to the closest example of the data, `[N]`, N <= MAX_QUERIES.

    Args:
      examples: Rows `[N, F]` of `comparable`; the first MAX_QUERIES are used.
      data: Rows `[M, F]`.
      without_itself: Whether `examples` are a part of `data`. Each example is then compared with
        all other examples, as if it were held out. M >= 2.
    """
    data, queries = data.astype(np.float64), examples[:MAX_QUERIES].astype(np.float64)
    search = sklearn.neighbors.NearestNeighbors(algorithm="brute").fit(data)
    places = search.kneighbors(queries, 1 + without_itself, return_distance=False)
    # The search expands squares, which gives copies a distance other than 0.
    return np.linalg.norm(queries - data[places[:, -1]], axis=1)


def _fit(
    features: np.ndarray, labels: np.ndarray
) -> sklearn.ensemble.HistGradientBoostingClassifier:
    model = sklearn.ensemble.HistGradientBoostingClassifier(random_state=0, early_stopping=False)
    return model.fit(features, labels)
