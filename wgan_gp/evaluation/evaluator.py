"""Judges the samples of a run against its data."""

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

# Features `[N, D]`, and probabilities `[N, K]` where the extractor has any.
Found = tuple[np.ndarray, np.ndarray | None]


class Evaluator(Protocol):
    """What judges the samples of a generator, as it is at the time.

    Attributes:
      about: what evaluation.jsonl says beside the figures: "samples", how many are judged, and
        "extractor", the name of what they are seen by.
    """

    about: dict[str, Any]

    def evaluate(self) -> dict[str, float]:
        """The figures, by their tags in TensorBoard; on all processes together."""


def open_evaluator(
    config: Config, strategy: tf.distribute.Strategy, sampler: Sampler, kind: Kind
) -> Evaluator:
    """What judges a run. One process alone keeps what it found of real examples in its directory.

    Args, raises: see `make_evaluator`.
    """
    # Processes that compute together must not find different things on their disks.
    alone = len(workers.find(config).addresses) == 1
    folder = RunDirectory(config.run_directory).evaluations if alone else None
    return make_evaluator(config, strategy, sampler, kind, folder)


def make_evaluator(
    config: Config,
    strategy: tf.distribute.Strategy,
    sampler: Sampler,
    kind: Kind,
    folder: str | None,
) -> Evaluator:
    """What judges such a run; what it needs of the network is fetched now.

    Args:
      config: of the run.
      strategy: where the generator is.
      sampler: draws the samples.
      kind: of data.
      folder: where what was found of the real examples is kept; None: nowhere.

    Raises:
      UserError: the data or the extractor is not to be had.
    """
    if len(kind.example_shape) == 1:
        if config.feature_extractor is not None:
            raise UserError(
                f"--feature_extractor={config.feature_extractor} is for images, and "
                f"{config.dataset} holds points",
                "leave it out",
            )
        return PointEvaluator(config, strategy, sampler)
    examples, kept = Examples(config, strategy), Kept(folder)
    extractor = make_extractor(config, strategy, examples, kept, kind.example_shape)
    return ImageEvaluator(config, strategy, sampler, examples, kept, extractor)


class ImageEvaluator:
    """Compares samples with real examples by their features.

    Args:
      config: of the run.
      strategy: the replicas that features are computed on.
      sampler: draws the samples.
      examples: of the run's dataset.
      kept: where their features are kept.
      extractor: makes the features.

    Attributes:
      about: see `Evaluator`.
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
        self._batch_size = config.batch_size  # divides over the replicas
        self._sampler = sampler
        self._examples = examples
        self._kept = kept
        self._extractor = extractor
        self._on_replicas = spread(extractor, strategy, config.batch_size)
        self.about = {"samples": self._count, "extractor": extractor.name}

    def evaluate(self) -> dict[str, float]:
        """Returns FID, KID, precision and so on, against real features computed once.

        Raises:
          UserError: a sample or the features of an image are NaN or infinite.
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
        return {f"evaluation/{name}": value for name, value in values.items()}

    def _of_classes(self, probabilities: np.ndarray, accuracy: float) -> dict[str, float]:
        """What a classifier of the run's own classes, of this accuracy, makes of the samples."""
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
        """Returns features and probabilities of batches of images, each of `batch_size` at most.

        Args:
          batches: the images.
          kind: of images, for the error.

        Raises:
          UserError: the extractor gives NaN or infinity.
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
