"""Evaluators, which compare the samples of a run with its data."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from .. import workers
from ..config import Config
from ..data.registry import Kind
from ..errors import UserError
from ..run_directory import RunDirectory
from ..sampling import Sampler
from . import metrics
from .examples import Arrays, Examples, Kept, check_finite, check_samples, slices
from .extractors import Extractor, as_png, make_extractor, spread
from .points import PointEvaluator

# Features `[N, D]`, and probabilities `[N, K]` or None if the extractor has none.
Found = tuple[np.ndarray, np.ndarray | None]


class Evaluator(Protocol):
    """Evaluates the samples of a generator with its current weights.

    Attributes:
      about: The entries of evaluation.jsonl in addition to the metrics: "samples", the number of
        samples, and "extractor", the name of the feature extractor.
    """

    about: dict[str, Any]

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics by tag; all processes of a run must call it at the same time."""


def open_evaluator(
    config: Config, strategy: tf.distribute.Strategy, sampler: Sampler, kind: Kind
) -> Evaluator:
    """Returns the evaluator of a run; see `make_evaluator` for arguments and errors.

    A run with a single process caches the features of the real examples in the run directory.
    """
    # Processes that compute together must not find different caches on their disks.
    alone = not workers.find_cluster(config).has_peers
    folder = RunDirectory(config.run_directory).evaluations if alone else None
    return make_evaluator(config, strategy, sampler, kind, folder)


def make_evaluator(
    config: Config,
    strategy: tf.distribute.Strategy,
    sampler: Sampler,
    kind: Kind,
    folder: str | None,
) -> Evaluator:
    """Returns an evaluator for points or images, and downloads its feature extractor if needed.

    Args:
      config: The configuration of the run.
      strategy: The strategy of the generator.
      sampler: Draws the samples.
      kind: The shape and the number of classes of the data.
      folder: The folder of cached features of the real examples. None disables caching.

    Raises:
      UserError: If the data or the extractor is unavailable, or the extractor does not fit the
        data.
    """
    if len(kind.example_shape) == 1:
        if config.feature_extractor is not None:
            raise UserError(
                f"--feature_extractor={config.feature_extractor} is for images, and "
                f"{config.dataset} holds points",
                "omit it",
            )
        return PointEvaluator(config, strategy, sampler)
    examples, kept = Examples(config, strategy), Kept(folder)
    extractor = make_extractor(config, strategy, examples, kept, kind.example_shape)
    return ImageEvaluator(config, strategy, sampler, examples, kept, extractor)


class ImageEvaluator:
    """Compares samples with real examples by their features.

    Args:
      config: The configuration of the run.
      strategy: The strategy on whose replicas the features are computed.
      sampler: Draws the samples.
      examples: The examples of the run's dataset.
      kept: Caches the features of the real examples.
      extractor: Computes the features.

    Attributes:
      about: See `Evaluator`.
    """

    def __init__(
        self,
        config: Config,
        strategy: tf.distribute.Strategy,
        sampler: Sampler,
        examples: Examples,
        kept: Kept,
        extractor: Extractor,
    ):
        self._count = config.evaluate_samples
        self._batch_size = config.batch_size  # divisible by the number of replicas
        self._sampler = sampler
        self._examples = examples
        self._kept = kept
        self._extractor = extractor
        self._on_replicas = spread(extractor, strategy, config.batch_size)
        self.about = {"samples": self._count, "extractor": extractor.name}

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics by tag; the features of real examples are computed once.

        Raises:
          UserError: If a sample or the features of an image are NaN or infinite, or the data
            cannot be read or has one image only.
        """
        samples = self._sampler.sample(self._count)
        check_samples(samples)
        features, probabilities = self._extract(slices(samples, self._batch_size), "samples")
        near = metrics.neighbourhoods(self._real, features, self._real_radii)
        values = {
            "fid": metrics.frechet_distance(self._real_moments, metrics.Moments.of(features)),
            "kid": metrics.kernel_distance(self._real, features),
            "kid_deviation": metrics.kernel_distance_deviation(self._real, features),
            "precision": near.precision,
            "recall": near.recall,
            "density": near.density,
            "coverage": near.coverage,
        }
        if probabilities is not None:
            score, deviation = metrics.inception_score(probabilities)
            values |= {"inception_score": score, "inception_score_deviation": deviation}
        if probabilities is not None and self._extractor.accuracy is not None:
            values |= self._of_classes(probabilities, self._extractor.accuracy)
        self._kept.write()
        return {f"evaluation/{name}": value for name, value in values.items()}

    def _of_classes(self, probabilities: np.ndarray, accuracy: float) -> dict[str, float]:
        """Returns metrics from the probabilities of a classifier of the run's own classes."""
        count, classes = probabilities.shape
        found = probabilities.argmax(axis=1)
        shares = np.bincount(found, minlength=classes) / count
        values = {
            "confidence": float(probabilities.max(axis=1).mean()),
            "smallest_class": float(shares.min()),
            "largest_class": float(shares.max()),
            "classifier_accuracy": accuracy,
        }
        if self._sampler.classes:
            wanted = np.arange(count) % self._sampler.classes  # see Sampler.sample
            values["class_accuracy"] = float((found == wanted).mean())
        return values

    @functools.cached_property
    def _real(self) -> np.ndarray:
        """The features of the real examples, `[N, D]` float32."""

        def compute() -> Arrays:
            batches = (images for images, _ in self._examples.batches(self._count))
            return {"features": self._extract(batches, "real images")[0]}

        name = f"features-{self._examples.key(self._count, self._extractor.key)}"
        content = functools.partial(self._examples.content, self._count)
        features = self._kept.get(name, compute, content)["features"]
        if len(features) < 2:
            raise UserError("one real image has no statistics to compare with", "give it company")
        return features

    @functools.cached_property
    def _real_moments(self) -> metrics.Moments:
        return metrics.Moments.of(self._real)

    @functools.cached_property
    def _real_radii(self) -> np.ndarray:
        return metrics.radii(self._real)

    def _extract(self, batches: Iterable[np.ndarray], kind: str) -> Found:
        """Returns the features and the probabilities of images.

        Args:
          batches: Batches of images, each with `batch_size` images at most.
          kind: The name of the images in the error message.

        Raises:
          UserError: If a feature or probability is NaN or infinite.
        """
        found = [self._on_replicas(as_png(images)) for images in batches]
        features, *probabilities = (np.concatenate(parts) for parts in zip(*found, strict=True))
        self._check("features", features, kind)
        for values in probabilities:
            self._check("probabilities", values, kind)
        return features, probabilities[0] if probabilities else None

    def _check(self, name: str, values: np.ndarray, kind: str) -> None:
        cause = f"--feature_extractor={self._extractor.name} gives NaN or infinite {name} for"
        check_finite(values, cause, kind, "use another extractor")
