"""Evaluators of tables, signals and other arrays, which need no pretrained network."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import UserError
from ..inference.sampling import Sampler
from . import distances, learned
from .examples import Examples, check_samples

MAX_VALUES = 2**27  # numbers in all samples together; larger examples are evaluated in fewer
MIN_EXAMPLES = 4  # two halves of two
MAX_DEVIATIONS = 1000  # of the data, within which classifiers and distances see samples

Restore = Callable[[np.ndarray], np.ndarray]


class TableEvaluator:
    """An evaluator that compares samples with equal numbers of real examples, value by value.

    Each distance is computed between samples and each half of the data, and averaged. Its floor is
    the distance between the two halves: samples as good as the data do not reach less on average.

    Args:
      count: The maximum number of samples and of real examples.
      sampler: Draws the samples, for the labels of the data if the run is conditional.
      examples: The examples of the run's dataset.
      restore: Two functions, which convert samples and real examples, read without noise, to the
        units of the data. Both are normalized `[N, *shape]`.
      names: The names of the features of a table.

    Attributes:
      metadata: See `evaluator.Evaluator`. After an evaluation, it contains the number of samples
        that were compared, and "farthest_feature", the feature with the largest Wasserstein
        distance.
    """

    def __init__(
        self,
        count: int,
        sampler: Sampler,
        examples: Examples,
        *,
        restore: tuple[Restore, Restore] | None = None,
        names: Sequence[str] | None = None,
    ):
        size = int(np.prod(examples.dataset.spec.example_shape))
        self._count = min(count, max(learned.MAX_CLASSIFIED, MAX_VALUES // size))
        self._sampler = sampler
        self._examples = examples
        self._restore, self._restore_real = restore or (_unchanged, _unchanged)
        self._names = names
        self.metadata: dict[str, Any] = {"samples": self._count, "extractor": None}

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the generator with its current weights, by tag.

        Raises:
          UserError: If a sample is NaN or infinite, or the data has fewer than four examples.
        """
        real = self._real
        samples = self._draw(real)
        pairs = list(zip(np.split(samples, 2), np.split(real.examples, 2), strict=True))
        values: dict[str, float] = {}
        for name, mean in self._average([self.compare(*pair) for pair in pairs]).items():
            values |= {name: mean, f"{name}_floor": self._floors[name]}
        by_feature = np.sum([self._by_feature(*pair) for pair in pairs], axis=0)
        farthest = np.unravel_index(by_feature.argmax(), samples.shape[1:])
        self.metadata |= {"samples": len(samples), "farthest_feature": self._name(farthest)}
        self.metadata |= self._details(samples)
        samples = np.clip(samples, *self._bounds)
        values["two_sample_accuracy"] = self._two_sample_accuracy(samples)
        values["two_sample_floor"] = self._two_sample_floor
        values |= self._closeness(samples)
        values |= self._transfer(samples, real.labels)
        return {f"evaluation/{name}": float(value) for name, value in values.items()}

    def compare(self, samples: np.ndarray, real: np.ndarray) -> dict[str, float]:
        """Returns the distances between two sets of equal size, `[N, *shape]`."""
        flat, flat_real = (each.reshape(len(each), -1) for each in (samples, real))
        by_feature = self._by_feature(samples, real)
        statistics = distances.kolmogorov_smirnov(flat, flat_real)
        return {
            "feature_wasserstein": by_feature.mean(),
            "feature_wasserstein_largest": by_feature.max(),
            "kolmogorov_smirnov": statistics.mean(),
            "kolmogorov_smirnov_largest": statistics.max(),
            "correlation_error": distances.correlation_error(flat, flat_real),
        }

    def _details(self, samples: np.ndarray) -> dict[str, str]:
        """Returns more entries of `metadata` for an evaluation."""
        return {}

    def _two_sample_accuracy(self, samples: np.ndarray) -> float:
        return learned.two_sample_accuracy(
            self._classified(samples), self._classified(self._real.examples)
        )

    def _by_feature(self, samples: np.ndarray, real: np.ndarray) -> np.ndarray:
        return distances.feature_distances(
            samples.reshape(len(samples), -1), real.reshape(len(real), -1), self._scale
        )

    @functools.cached_property
    def _scale(self) -> np.ndarray:
        """The deviation of each value, of all data: a rare value may be constant in a half."""
        return distances.standard_deviations(self._real.examples.reshape(len(self._real), -1))

    @functools.cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The range of values that classifiers and distances see.

        A single sample far outside would set the scale of all, and hide every other difference.
        """
        mean, deviation = learned.scales([self._real.examples])
        return mean - MAX_DEVIATIONS * deviation, mean + MAX_DEVIATIONS * deviation

    @functools.cached_property
    def _floors(self) -> dict[str, float]:
        first, second = np.split(self._real.examples, 2)
        return self._average([self.compare(first, second), self.compare(second, first)])

    @staticmethod
    def _average(found: list[dict[str, float]]) -> dict[str, float]:
        return {name: float(np.mean([each[name] for each in found])) for name in found[0]}

    @functools.cached_property
    def _real(self) -> RealExamples:
        examples, labels = self._examples.read(self._count)
        count = len(examples) // 2 * 2
        if self._count < MIN_EXAMPLES:
            raise UserError(
                f"--evaluate_samples={self._count} is too small for two halves of the data",
                f"give at least {MIN_EXAMPLES}",
            )
        if count < MIN_EXAMPLES:
            raise UserError(
                f"the evaluation needs at least {MIN_EXAMPLES} real examples, but there are only "
                f"{len(examples)}",
                "add examples to the dataset",
            )
        used = self._usable_labels(labels)
        return RealExamples(
            self._restore_real(examples[:count]), None if used is None else used[:count]
        )

    def _usable_labels(self, labels: np.ndarray) -> np.ndarray | None:
        """Returns the labels for which a conditional run can draw samples, or None."""
        if labels.ndim == 2:
            conditions = self._sampler.conditions
            return None if conditions is None or conditions.size != labels.shape[1] else labels
        classes = self._sampler.classes
        return labels if classes and self._examples.dataset.label_count == classes else None

    def _draw(self, real: RealExamples) -> np.ndarray:
        """Draws as many samples as there are real examples, and for the same labels.

        Samples of all classes in turn would differ from data whose classes are not balanced.
        """
        count = len(real.examples)
        if real.labels is None:
            samples = self._sampler.sample(count)
        else:
            latents, _ = self._sampler.noise(count)
            samples = self._sampler.generate(latents, real.labels)
        check_samples(samples)
        return self._restore(samples)

    @functools.cached_property
    def _two_sample_floor(self) -> float:
        return learned.two_sample_accuracy(*np.split(self._classified(self._real.examples), 2))

    @functools.cached_property
    def _held_out(self) -> RealExamples | None:
        """Held-out data, or None if there is none."""
        found = self._examples.read_held_out(self._count)
        return None if found is None else RealExamples(self._restore_real(found[0]), found[1])

    def _classified(self, examples: np.ndarray) -> np.ndarray:
        """Returns examples as classifiers see them."""
        return examples

    def _closeness(self, samples: np.ndarray) -> dict[str, float]:
        """Compares the distances of samples to the data with those of other real examples."""
        return self._closeness_of_rows(samples, learned.comparable)

    def _closeness_of_rows(
        self, samples: np.ndarray, comparable: Callable[[list[np.ndarray]], list[np.ndarray]]
    ) -> dict[str, float]:
        """Returns `_closeness` by the distances of the rows that `comparable` makes of examples."""
        sets = [samples, self._real.examples]
        if self._held_out is not None:
            sets.append(self._held_out.examples)
        compared, data, *held_out = comparable(sets)
        # Each real example is held out from the others.
        inside = learned.nearest_distances(data, data, without_itself=True)
        if held_out:
            reference = learned.nearest_distances(held_out[0], data)
            floor = learned.closeness(inside, reference)
        else:
            reference = inside
            floor = learned.closeness(*np.array_split(inside, 2))
        found = learned.closeness(learned.nearest_distances(compared, data), reference)
        return {
            "closest_distance_ratio": found.distance_ratio,
            "closest_distance_ratio_floor": floor.distance_ratio,
            "closer_than_real": found.closer_share,
            "closer_than_real_floor": floor.closer_share,
        }

    def _transfer(self, samples: np.ndarray, labels: np.ndarray | None) -> dict[str, float]:
        """Trains on samples and on real examples, and tests on other real examples."""
        if labels is None:
            return {}
        name = "accuracy" if labels.ndim == 1 else "r2"
        held_out, real = self._held_out, self._real.examples
        # Held-out examples may lack labels, which are then all 0.
        if held_out and held_out.labels.shape[1:] == labels.shape[1:] and held_out.labels.any():
            used, test, truth = slice(None), held_out.examples, held_out.labels
        else:
            half = len(labels) // 2
            used, test, truth = slice(half), real[half:], labels[half:]
        return {
            f"{kind}_trained_{name}": learned.transfer_accuracy(
                source[used], labels[used], test, truth
            )
            for kind, source in (("synthetic", samples), ("real", real))
        }

    def _name(self, place: tuple[Any, ...]) -> str:
        """Returns the name of a value of an example."""
        if len(place) == 1:
            names, size = self._names or (), self._real.examples.shape[1]
            return str(names[place[0]]) if len(names) == size else f"feature {place[0]}"
        *space, channel = place
        axes = {1: ["time"], 2: ["row", "column"], 3: ["depth", "row", "column"]}[len(space)]
        where = ", ".join(f"{axis} {index}" for axis, index in zip(axes, space, strict=True))
        return f"channel {channel} at {where}"


def _unchanged(examples: np.ndarray) -> np.ndarray:
    return examples


class SignalEvaluator(TableEvaluator):
    """An evaluator of signals `[T, C]`, which also compares spectra and autocorrelations."""

    def compare(self, samples: np.ndarray, real: np.ndarray) -> dict[str, float]:
        values = super().compare(samples, real)
        if samples.shape[1] < 2:  # a signal of one value has no spectrum
            return values
        return {
            **values,
            "spectrum_error": distances.spectrum_error(samples, real),
            "autocorrelation_error": distances.autocorrelation_error(samples, real),
        }


@dataclasses.dataclass(frozen=True)
class RealExamples:
    """Real examples `[N, ...]` and their labels `[N]` or `[N, K]`, or None if they are not used."""

    examples: np.ndarray
    labels: Any

    def __len__(self) -> int:
        return len(self.examples)
