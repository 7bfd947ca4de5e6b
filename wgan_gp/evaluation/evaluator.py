"""Evaluators that compare the samples of a run with its data."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from ..config import EvaluationSettings
from ..data.datasets import BUILT_IN, Dataset
from ..data.spec import KINDS
from ..errors import UserError
from ..inference.sampling import Sampler
from ..run_directory.directory import RunDirectory
from ..runtime.devices import Devices
from . import metrics
from .arrays import Restore, SignalEvaluator, TableEvaluator
from .examples import ArrayCache, Arrays, Examples, check_finite, check_samples, split_into_batches
from .extractors import Extractor, default_extractor, make_extractor, quantizers, run_on_replicas
from .points import PointEvaluator
from .reference import Reference
from .tables import TypedTableEvaluator

# Features `[N, D]`, and probabilities `[N, K]` or None if the extractor has none.
Outputs = tuple[np.ndarray, np.ndarray | None]


NO_EXTRACTOR = "none"  # the value of --feature_extractor for the metrics of arrays


class Evaluator(Protocol):
    """An evaluator of the samples of a generator with its current weights.

    Attributes:
      metadata: The entries of evaluation.jsonl in addition to the metrics: "samples", the number of
        samples, and "extractor", the name of the feature extractor. `evaluate` may change them.
    """

    metadata: dict[str, Any]

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics by tag; all processes of a run must call it at the same time."""


def open_evaluator(
    settings: EvaluationSettings,
    devices: Devices,
    sampler: Sampler,
    examples: Examples,
    directory: RunDirectory,
) -> Evaluator:
    """Returns the evaluator of a run; see `make_evaluator` for errors.

    A run with a single process caches the features of the real examples in the run directory.

    Args:
      settings: The number of samples and the feature extractor.
      devices: The devices of the generator.
      sampler: Draws the samples.
      examples: The examples of the run's dataset.
      directory: The run directory.
    """
    # Processes that compute together must not find different caches on their disks.
    folder = None if devices.cluster.has_peers else directory.evaluations
    return make_evaluator(settings, devices.strategy, sampler, examples, folder)


def make_evaluator(
    settings: EvaluationSettings,
    strategy: tf.distribute.Strategy,
    sampler: Sampler,
    examples: Examples,
    folder: str | None,
) -> Evaluator:
    """Returns an evaluator that fits the data, and downloads its feature extractor if needed.

    Args:
      settings: The number of samples and the feature extractor.
      strategy: The strategy of the generator.
      sampler: Draws the samples.
      examples: The examples of the run's dataset.
      folder: The folder of cached features of the real examples. None disables caching.

    Raises:
      UserError: If the data or the extractor is unavailable, or the extractor does not fit the
        data.
    """
    sampler = _with_all_conditions(sampler, examples.dataset)
    return _choose_evaluator(settings, strategy, sampler, examples, folder)


def _choose_evaluator(
    settings: EvaluationSettings,
    strategy: tf.distribute.Strategy,
    sampler: Sampler,
    examples: Examples,
    folder: str | None,
) -> Evaluator:
    name, count = settings.feature_extractor, settings.evaluate_samples
    spec, dataset = examples.dataset.spec, examples.dataset.settings.dataset
    rank = len(spec.example_shape)
    settings.check_feature_extractor(KINDS[rank], dataset)
    if rank == 1 and dataset in BUILT_IN:
        return PointEvaluator(count, sampler, examples)
    if spec.table is not None:
        return TypedTableEvaluator(count, sampler, examples, spec.table)
    if name == NO_EXTRACTOR or (name is None and not _are_pictures(examples.dataset)):
        evaluator = SignalEvaluator if rank == 2 else TableEvaluator
        names = None if spec.scaling is None else spec.scaling.names
        return evaluator(count, sampler, examples, restore=_restore(examples.dataset), names=names)
    cache = ArrayCache(folder)
    extractor = make_extractor(name, strategy, examples, cache)
    return ImageEvaluator(count, strategy, sampler, examples, cache, extractor)


def _with_all_conditions(sampler: Sampler, dataset: Dataset) -> Sampler:
    """Returns a sampler for the conditions of the data, of which a saved run knows only a few."""
    conditions = dataset.source.spec.conditions
    if conditions is None or sampler.conditions is None:
        return sampler
    return sampler.with_conditions(conditions)


def _are_pictures(dataset: Dataset) -> bool:
    """Returns whether a network that was trained on pictures should compute features by default.

    Such networks take gray or color images in [-1, 1]. Arrays are usually measurements, for which
    only a classifier of their own labels is suitable.
    """
    spec = dataset.spec
    if spec.example_shape[2:] not in ((1,), (3,)) or not getattr(spec, "bounded", True):
        return False
    return dataset.settings.dataset != "array" or default_extractor(dataset) == "classifier"


def _restore(dataset: Dataset) -> tuple[Restore, Restore] | None:
    """Returns the functions that give samples and real examples the units of the data."""
    spec, scaling = dataset.spec, dataset.spec.scaling
    if scaling is not None:
        return scaling.restore, scaling.restore
    # Volumes without levels are data of Python, which are real numbers.
    has_levels = spec.pixels is not None or len(spec.example_shape) == 3
    return quantizers(spec) if has_levels and spec.bounded else None


class ImageEvaluator:
    """An evaluator that compares samples with real examples by their features.

    Args:
      count: The number of samples to evaluate, and maximum number of real examples.
      strategy: The strategy on whose replicas the features are computed.
      sampler: Draws the samples.
      examples: The examples of the run's dataset.
      cache: Stores the features of the real examples.
      extractor: Computes the features.

    Attributes:
      metadata: See `Evaluator`.
    """

    def __init__(
        self,
        count: int,
        strategy: tf.distribute.Strategy,
        sampler: Sampler,
        examples: Examples,
        cache: ArrayCache,
        extractor: Extractor,
    ):
        self._count = count
        self._batch_size = examples.batch_size  # divisible by the number of replicas
        self._sampler = sampler
        self._examples = examples
        self._cache = cache
        self._extractor = extractor
        self._quantize, self._quantize_real = quantizers(examples.dataset.spec)
        self._compute = run_on_replicas(extractor, strategy, examples.batch_size)
        self.metadata = {"samples": self._count, "extractor": extractor.name}

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics by tag; the features of real examples are computed once.

        Raises:
          UserError: If a sample or the features of an image are NaN or infinite, or the data
            cannot be read or has only one image.
        """
        samples = self._sampler.sample(self._count)
        check_samples(samples)
        features, probabilities = self._extract(
            map(self._quantize, split_into_batches(samples, self._batch_size)), "samples"
        )
        values = self._reference.compare(features)
        if probabilities is not None:
            score, deviation = metrics.inception_score(probabilities)
            values |= {"inception_score": score, "inception_score_deviation": deviation}
        if probabilities is not None and self._extractor.accuracy is not None:
            values |= self._class_metrics(probabilities, self._extractor.accuracy)
        self._cache.write()
        return {f"evaluation/{name}": value for name, value in values.items()}

    def _class_metrics(self, probabilities: np.ndarray, accuracy: float) -> dict[str, float]:
        """Returns metrics from the probabilities of a classifier of the run's own classes."""
        count, classes = probabilities.shape
        predicted = probabilities.argmax(axis=1)
        shares = np.bincount(predicted, minlength=classes) / count
        values = {
            "confidence": float(probabilities.max(axis=1).mean()),
            "smallest_class": float(shares.min()),
            "largest_class": float(shares.max()),
            "classifier_accuracy": accuracy,
        }
        if self._sampler.classes:
            requested = np.arange(count) % self._sampler.classes  # see Sampler.sample
            values["class_accuracy"] = float((predicted == requested).mean())
        return values

    @functools.cached_property
    def _real(self) -> np.ndarray:
        """The features of the real examples, `[N, D]` float32."""
        fitted = self._extractor.fitted
        last = fitted + self._count

        def compute() -> Arrays:
            batches = (self._quantize_real(images) for images, _ in self._examples.batches(last))
            return {"features": self._extract(batches, "real images")[0][fitted:]}

        name = f"features-{self._examples.key(last, self._extractor.key)}"
        content_hash = functools.partial(self._examples.content_hash, last)
        features = self._cache.get_or_compute(name, compute, content_hash)["features"]
        if len(features) < 2:
            raise UserError(
                f"the evaluation needs at least {fitted + 2} real images, but there "
                + (f"are only {fitted + len(features)}" if fitted else "is only one"),
                "add images to the dataset",
            )
        return features

    @functools.cached_property
    def _reference(self) -> Reference:
        return Reference(self._real)

    def _extract(self, batches: Iterable[np.ndarray], kind: str) -> Outputs:
        """Returns the features and the probabilities of images.

        Args:
          batches: Batches of images, each with at most `batch_size` images.
          kind: The name of the images in the error message.

        Raises:
          UserError: If a feature or probability is NaN or infinite.
        """
        outputs = [self._compute(images) for images in batches]
        features, *probabilities = (np.concatenate(parts) for parts in zip(*outputs, strict=True))
        self._check_finite("features", features, kind)
        for values in probabilities:
            self._check_finite("probabilities", values, kind)
        return features, probabilities[0] if probabilities else None

    def _check_finite(self, name: str, values: np.ndarray, kind: str) -> None:
        cause = f"--feature_extractor={self._extractor.name} computes NaN or infinite {name} for"
        check_finite(values, cause, kind, "use another extractor")
