"""Measures the metrics of an evaluation whose result is known: new draws, and planted defects.

  python -m studies.calibration

A perfect generator draws from the distribution of the data. Each metric of its samples must differ
from its floor, or from its known expectation, only by its own sampling error. The table has the
difference in units of this error: without a bias, the mean over many rows is near 0 and the
deviation at most about 1. The other rows have the metrics of samples with a planted defect, which
must be many errors away.

The data has four modes and a correlation of 0.7 of neighboring values. The modes of pictures are
their classes. Their values are not correlated and their modes are close, so that the classifier
whose features are compared is fitted to much noise.

The sampling errors of N samples and N real examples:

- The accuracy of telling them apart is a mean of 2 N correct or wrong answers, each with variance
  1/4. Each label is used twice, for training and for testing, so that two neighbors of different
  folds are right or wrong together. At most, this doubles the variance: 1 / (4 N).
- `closer_than_real` is a statistic of ranks with the variance (1/N + 1/M) / 12. Two real examples
  that are the closest to each other have the same distance, so M is at least N / 2.
- A median of N distances has pi / 2 times the variance of their mean.
- An accuracy on M test examples has at most the variance 1 / (4 M).
- Other metrics have no such formula. They are compared with the values of pairs of new draws, and
  their error is the standard deviation over these pairs.
"""

from __future__ import annotations

import argparse
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.signal
import scipy.stats
import tensorflow as tf

import wgan_gp
from benchmarks import outcome
from wgan_gp.data.datasets import DataSpec
from wgan_gp.data.pixels import NEAREST
from wgan_gp.data.sources import toys
from wgan_gp.evaluation import evaluator, learned, metrics, points
from wgan_gp.evaluation.examples import ArrayCache
from wgan_gp.evaluation.extractors import Extractor, make_extractor, quantize

COUNTS = (200, 500, 2000)
SIZES = (8, 64, 256, 1024)
MODES = 4
CORRELATION, DISTANCE = 0.7, 1.5  # of neighboring values; of the mean of a mode from that of others
PAIRS = 20  # pairs of new draws, for the error of metrics without a formula
LIMIT = 4.0  # sampling errors; a difference is larger with a probability of 1 in 16,000
POINTS, PICTURES = "gaussians_8", "pictures"
SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "table": lambda size: (size,),
    "signals": lambda size: (size // 2, 2),
    "arrays": lambda size: (2 ** (size.bit_length() // 2 - 1), -1, 4),
    PICTURES: lambda size: (2 ** (size.bit_length() // 2), -1, 1),
    POINTS: lambda size: (2,),
}
DEFECTS = ("scale 1.1", "dropped mode", "copies", "shuffled")
Values = dict[str, float]


def draw(
    kind: str, size: int, count: int, random: np.random.Generator, modes: int = MODES
) -> tuple[np.ndarray, np.ndarray]:
    """Returns examples `[count, *shape]` float32 and their modes `[count]`."""
    if kind == POINTS:
        centers = toys.mode_centers(POINTS)
        mode = random.integers(0, modes * len(centers) // MODES, count)
        noise = toys.DEVIATIONS[POINTS] * random.normal(size=(count, 2))
        return (centers[mode] + noise).astype(np.float32), mode
    mode = random.integers(0, modes, count)
    is_picture = kind == PICTURES
    correlation, distance = (0, 0.4) if is_picture else (CORRELATION, DISTANCE)
    burn_in = 50
    noise = random.normal(scale=np.sqrt(1 - correlation**2), size=(count, size + burn_in))
    values = scipy.signal.lfilter([1], [1, -correlation], noise, axis=1)[:, burn_in:]
    values += distance * (np.arange(size) % MODES == mode[:, None])
    if is_picture:
        values = np.clip(values / 4, -1, 1)
    shape = np.reshape(np.empty(size), SHAPES[kind](size)).shape
    return values.reshape(count, *shape).astype(np.float32), mode.astype(np.int32)


def with_defect(
    defect: str | None,
    real: np.ndarray,
    draw_modes: Callable[[int], np.ndarray],
    random: np.random.Generator,
) -> np.ndarray:
    """Returns as many samples as there are real examples, with one of DEFECTS, or without.

    Args:
      defect: The name of the defect, or None.
      real: The examples of the data, `[N, *shape]`.
      draw_modes: (number of modes) -> new examples, `[N, *shape]`.
      random: The source of random numbers.
    """
    if defect == "copies":
        return random.permutation(real)
    samples = draw_modes(MODES - 1 if defect == "dropped mode" else MODES)
    if defect == "scale 1.1":
        center = samples.mean(axis=0)
        samples = center + np.float32(1.1) * (samples - center)
    if defect == "shuffled":
        samples = random.permuted(samples, axis=0)
    return samples


class Drawn:
    """Examples in memory and a sampler of given samples, in the place of those of a run.

    Args:
      kind: A key of SHAPES.
      real: The examples of the data, `[N, *shape]`.
      labels: `[N]`.
      held_out: Held-out examples and their labels, or None.
      samples: The samples, `[N, *shape]`.
    """

    batch_size = 100
    conditions = None

    def __init__(
        self,
        kind: str,
        real: np.ndarray,
        labels: np.ndarray,
        held_out: tuple[np.ndarray, np.ndarray] | None,
        samples: np.ndarray,
    ):
        self._real, self._labels, self._held_out = real, labels, held_out
        self._samples = samples
        self.classes = 0  # of the sampler
        spec = DataSpec(real.shape[1:], 0, bounded=kind == PICTURES)
        self.dataset = types.SimpleNamespace(
            spec=spec,
            source=types.SimpleNamespace(spec=spec),
            label_count=MODES if kind == PICTURES else 0,
            settings=types.SimpleNamespace(dataset=POINTS if kind == POINTS else "drawn"),
        )

    def key(self, *more: Any) -> str:
        return ""

    def content_hash(self, count: int) -> str:
        return ""

    def read(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        return self._real[:count], self._labels[:count]

    def batches(self, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        examples, labels = self.read(count)
        for first in range(0, len(examples), self.batch_size):
            part = slice(first, first + self.batch_size)
            yield examples[part], labels[part]

    def read_held_out(self, count: int) -> tuple[np.ndarray, np.ndarray] | None:
        return self._held_out

    def sample(self, count: int) -> np.ndarray:
        return self._samples[:count]


class Finding(NamedTuple):
    """A metric, its expectation for new draws, and the sampling error of the difference."""

    value: float
    expected: float
    error: float

    @property
    def errors(self) -> float:
        """The difference in sampling errors."""
        return (self.value - self.expected) / self.error


def judge(
    kind: str,
    size: int,
    count: int,
    *,
    defect: str | None = None,
    held_out: bool = False,
    seed: int = 0,
) -> dict[str, Finding]:
    """Evaluates samples with a defect or, by default, new draws of the distribution of the data.

    Args:
      kind: A key of SHAPES.
      size: The number of values of an example.
      count: The number of samples and of real examples.
      defect: One of DEFECTS, or None.
      held_out: Whether there is held-out data.
      seed: The seed of all draws.
    """
    random = np.random.default_rng([seed, size, count, held_out])

    def draw_new(number: int = count, modes: int = MODES) -> np.ndarray:
        return draw(kind, size, number, random, modes)[0]

    # The classifier of pictures takes half of them; points need two draws for the floor.
    total = 2 * count if kind in (PICTURES, POINTS) else count
    real, labels = draw(kind, size, total, random)
    compared = real[-count:] if kind == PICTURES else real[:count]
    samples = with_defect(defect, compared, lambda modes: draw_new(modes=modes), random)
    others = (draw_new(), np.zeros(count, np.int32)) if held_out else None
    drawn: Any = Drawn(kind, real, labels, others, samples)
    strategy = tf.distribute.get_strategy()
    if kind == PICTURES:
        cache = ArrayCache(None)
        extractor = make_extractor("classifier", strategy, drawn, cache)
        made: Any = evaluator.ImageEvaluator(count, strategy, drawn, drawn, cache, extractor)
        values = _evaluate(made)
        return _pictures(values, extractor, draw_new)
    made = evaluator.make_evaluator(
        wgan_gp.Config(evaluate_samples=count), strategy, drawn, drawn, None
    )
    values = _evaluate(made)
    if kind == POINTS:
        return _points(values, count, draw_new)
    half = count // 2
    pairs = [made.compare(draw_new(half), draw_new(half)) for _ in range(PAIRS)]
    found = _from_pairs(values, pairs, averaged=2)
    floors = _from_pairs({name: values[f"{name}_floor"] for name in pairs[0]}, pairs)
    found |= {f"{name}_floor": floor for name, floor in floors.items()}
    return found | _learned(values, count, compared, held_out)


def _evaluate(made: evaluator.Evaluator) -> Values:
    return {tag.partition("/")[2]: value for tag, value in made.evaluate().items()}


def _from_pairs(values: Values, pairs: list[Values], averaged: int = 1) -> dict[str, Finding]:
    """Returns the findings for metrics of pairs of new draws.

    Args:
      values: The metrics.
      pairs: The same metrics of pairs of new draws.
      averaged: The number of pairs of which a value is the mean.
    """
    # The deviation of few pairs is uncertain, which Student's distribution takes into account.
    tail = scipy.stats.norm.sf(LIMIT)
    factor = scipy.stats.t.isf(tail, len(pairs) - 1) / LIMIT
    factor *= np.sqrt(1 / averaged + 1 / len(pairs))
    found = {}
    for name in pairs[0]:
        drawn = [each[name] for each in pairs]
        error = float(factor * np.std(drawn, ddof=1))
        if name in ("autocorrelation_error", "wasserstein"):
            # These follow one number, the imbalance of the shares of the modes. The magnitude of a
            # normal number has the tail of this number, but a smaller deviation.
            error /= np.sqrt(1 - 2 / np.pi)
        found[name] = Finding(values[name], float(np.mean(drawn)), error)
    return found


def _learned(values: Values, count: int, real: np.ndarray, held_out: bool) -> dict[str, Finding]:
    """Returns the findings for the accuracy of a classifier and for nearest neighbors."""
    (rows,) = learned.comparable([real])
    found = learned.nearest_distances(rows, rows, without_itself=True)
    spread = found.std() / np.median(found)
    number = min(count, learned.MAX_CLASSIFIED)
    accuracy = np.sqrt(1 / (4 * number))
    # Ranks have the variance 1/12, and of two sets of distances, one may count half.
    ranks = np.sqrt((1 + 2) / number)
    halves = np.sqrt((2 + 2) / (number / 2))
    floor = ranks if held_out else halves
    median = np.sqrt(np.pi / 2) * spread
    return {
        "two_sample_accuracy": Finding(values["two_sample_accuracy"], 0.5, accuracy),
        "two_sample_floor": Finding(
            values["two_sample_floor"], 0.5, accuracy * np.sqrt(number / min(count // 2, number))
        ),
        "closer_than_real": Finding(values["closer_than_real"], 0.5, ranks / np.sqrt(12)),
        "closer_than_real_floor": Finding(
            values["closer_than_real_floor"], 0.5, floor / np.sqrt(12)
        ),
        "closest_distance_ratio": Finding(values["closest_distance_ratio"], 1, median * ranks),
        "closest_distance_ratio_floor": Finding(
            values["closest_distance_ratio_floor"], 1, median * floor
        ),
    }


def _pictures(
    values: Values, extractor: Extractor, draw_new: Callable[[], np.ndarray]
) -> dict[str, Finding]:
    """Returns the findings for pictures; the pairs of new draws have the same features."""

    def features() -> np.ndarray:
        return np.asarray(extractor.extract(tf.constant(quantize(draw_new(), NEAREST)))[0])

    pairs = []
    for _ in range(PAIRS):
        first, second = features(), features()
        manifold = metrics.manifold_metrics(first, second)
        moments = (metrics.Moments.from_features(each) for each in (first, second))
        pairs.append(
            {
                "fid": metrics.frechet_distance(*moments),
                "kid": metrics.kernel_distance(first, second),
                "precision": manifold.precision,
                "recall": manifold.recall,
                "density": manifold.density,
                "coverage": manifold.coverage,
            }
        )
    return _from_pairs(values, pairs)


def _points(
    values: Values, count: int, draw_new: Callable[[int], np.ndarray]
) -> dict[str, Finding]:
    """Returns the findings for points."""
    number = min(count, points.MAX_ASSIGNED)
    pairs = [
        {"wasserstein": points.wasserstein(draw_new(number), draw_new(number))}
        for _ in range(PAIRS)
    ]
    share = 1 - np.exp(-(points.MODE_RADIUS**2) / 2)
    floor = _from_pairs({"wasserstein": values["wasserstein_floor"]}, pairs)
    return {
        **_from_pairs(values, pairs),
        "wasserstein_floor": floor["wasserstein"],
        "high_quality_share": Finding(
            values["high_quality_share"], share, np.sqrt(share * (1 - share) / count)
        ),
    }


def cases(counts: Sequence[int], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Returns the arguments of `judge` for each kind of data, number of examples and size."""
    found: list[dict[str, Any]] = []
    for kind in SHAPES:
        for count, size in itertools.product(counts, sizes if kind != POINTS else [2]):
            for held_out in (False, True) if kind not in (PICTURES, POINTS) else (False,):
                found.append({"kind": kind, "size": size, "count": count, "held_out": held_out})
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="examples of a set")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="values of an example")
    parser.add_argument("--defect_count", type=int, default=500, help="examples with a defect")
    parser.add_argument("--defect_size", type=int, default=256, help="their number of values")
    arguments = parser.parse_args()
    errors: dict[str, list[float]] = {}
    for case in cases(arguments.counts, arguments.sizes):
        for name, finding in judge(**case).items():
            errors.setdefault(name, []).append(finding.errors)
    rows: list[dict[str, Any]] = [
        {
            "metric": name,
            "cases": len(found),
            "mean of errors": float(np.mean(found)),
            "deviation": float(np.std(found)),
            "largest": float(np.abs(found).max()),
        }
        for name, found in errors.items()
    ]
    print(outcome.table(rows))
    moved = []
    for kind in SHAPES:
        of_defect = {
            defect: judge(kind, arguments.defect_size, arguments.defect_count, defect=defect)
            for defect in DEFECTS
        }
        for name, new in judge(kind, arguments.defect_size, arguments.defect_count).items():
            if not name.endswith("_floor"):
                row = {
                    "data": kind,
                    "metric": name,
                    "expected": new.expected,
                    "new draws": new.value,
                }
                moved.append(row | {each: of_defect[each][name].value for each in DEFECTS})
    print(outcome.table(moved))
    outcome.save("calibration", rows, defects=moved)


if __name__ == "__main__":
    main()
