"""Feature extractors, which map images to features and class probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ..data.datasets import Dataset
from ..data.pixels import DEQUANTIZED, NEAREST, Pixels
from ..data.spec import DataSpec
from ..errors import UserError, reason
from ..runtime.functions import function_on
from . import classifier, pretrained
from .examples import ArrayCache, Examples

Quantize = Callable[[np.ndarray], np.ndarray]

MAX_CLASSIFIER_IMAGE_SIZE = 32  # pixels; one hidden layer is too weak for larger images


@dataclasses.dataclass(frozen=True)
class Extractor:
    """A feature extractor for images.

    Attributes:
      name: The name in reports. FIDs are comparable only between runs with the same extractor.
      key: Identifies the extractor's weights in caches; the file behind a name may change.
      extract: images `[B, H, W, C]` float32 in [-1, 1] -> features `[B, D]` float32, and
        probabilities `[B, K]` float32 or None. Runs inside `strategy.run`.
      accuracy: The held-out accuracy of a classifier fitted to the run's own images. None for
        other extractors.
      fitted: The number of first examples of the dataset to which the features are fitted. Samples
        are compared with the others.
    """

    name: str
    key: str
    extract: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor | None]]
    accuracy: float | None = None
    fitted: int = 0


def default_extractor(dataset: Dataset) -> str:
    """Returns "classifier" for small labeled images, and "inception" for other images."""
    small = max(dataset.spec.example_shape[:2]) <= MAX_CLASSIFIER_IMAGE_SIZE
    return "classifier" if small and dataset.label_count > 1 else "inception"


def make_extractor(
    name: str | None,
    strategy: tf.distribute.Strategy,
    examples: Examples,
    cache: ArrayCache,
) -> Extractor:
    """Returns the extractor set by --feature_extractor, or the default for the data.

    Args:
      name: The value of --feature_extractor, or None for the default.
      strategy: The strategy on whose replicas the extractor runs.
      examples: The examples of the run's dataset, which are images. A classifier is fitted to some.
      cache: Stores the classifier.

    Raises:
      UserError: If the extractor does not exist or does not fit the data.
    """
    dataset = examples.dataset
    labels, example_shape = dataset.label_count, dataset.spec.example_shape
    name = name or default_extractor(dataset)
    if name == "classifier":
        if labels < 2:
            raise UserError(
                f"--feature_extractor=classifier needs labels of at least two classes, but "
                f"{dataset.settings.dataset} has fewer",
                "use inception, none, or the path of a Keras file or SavedModel",
            )
        model = classifier.fit_or_load(examples, cache, labels)
        return Extractor(name, model.key, model, model.accuracy, model.examples)
    return load_pretrained(name, strategy, example_shape)


def load_pretrained(
    name: str, strategy: tf.distribute.Strategy, example_shape: tuple[int, ...]
) -> Extractor:
    """Returns an extractor that is not fitted to data: inception, or a Keras file or SavedModel.

    Args:
      name: The value of --feature_extractor.
      strategy: The strategy on whose replicas the extractor runs.
      example_shape: The shape `(H, W, C)` of the images.

    Raises:
      UserError: If the extractor does not exist or does not fit the images.
    """
    load = pretrained.load_inception if name == "inception" else pretrained.load_model
    with strategy.scope():
        key, network = load(name)
    extractor = Extractor(name, key, network)
    _check(extractor, strategy, example_shape)
    return extractor


def _check(
    extractor: Extractor, strategy: tf.distribute.Strategy, example_shape: tuple[int, ...]
) -> None:
    """Raises UserError unless the extractor computes features of blank images."""
    count = 2 * strategy.num_replicas_in_sync
    try:
        compute = run_on_replicas(extractor, strategy, count)
        features, *_ = compute(np.zeros([count, *example_shape], np.float32))
        if len(features) != count:
            raise ValueError(f"it returns {len(features)} rows of features for {count} images")
    # A user's network may raise any exception for images of an unsuitable shape.
    except Exception as error:
        raise UserError(
            f"--feature_extractor={extractor.name} cannot compute features of images of shape "
            f"{example_shape} ({reason(error)})",
            pretrained.REMEDY,
        ) from error


def quantize(images: np.ndarray, pixels: Pixels = DEQUANTIZED) -> np.ndarray:
    """Gives samples the levels that files have, and maps these to [-1, 1] for an extractor."""
    return pixels.quantize(images)


def quantizers(spec: DataSpec) -> tuple[Quantize, Quantize]:
    """Returns the functions that give levels to samples, and to real images read without noise.

    Real images have levels. Values between two levels would distinguish samples from them, and the
    metrics would differ from those of samples saved as files. Both results are in [-1, 1].
    """
    if spec.scaling is not None and spec.scaling.dequantized:
        return spec.scaling.quantize, spec.scaling.quantize
    pixels = spec.pixels or NEAREST
    return pixels.quantize, pixels.plain.quantize


def run_on_replicas(
    extractor: Extractor, strategy: tf.distribute.Strategy, batch_size: int
) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Returns a function that runs the extractor on all replicas, each with a part of a batch.

    Args:
      extractor: The extractor.
      strategy: The strategy on whose replicas the extractor runs.
      batch_size: The number of images per call; must be divisible by the number of replicas.

    Returns:
      A function of images `[B, H, W, C]` float32, B <= batch_size, that returns a list of the
      features and, if the extractor has any, the probabilities.
    """
    per_replica = batch_size // strategy.num_replicas_in_sync

    def on_replica(images: tf.Tensor) -> list[tf.Tensor]:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        begin = tf.stack([replica * per_replica, 0, 0, 0])
        part = tf.slice(images, begin, [per_replica, *images.shape[1:]])
        return [output for output in extractor.extract(part) if output is not None]

    def extract_features(images: tf.Tensor) -> list[tf.Tensor]:
        outputs = strategy.run(on_replica, args=(images,))
        return [strategy.gather(output, axis=0) for output in outputs]

    on_all_replicas = function_on(strategy, extract_features)

    def extract(images: np.ndarray) -> list[np.ndarray]:
        missing = batch_size - len(images)  # padded, so that only one shape is traced
        padded = np.pad(images, [(0, missing), (0, 0), (0, 0), (0, 0)])
        return [output.numpy()[: len(images)] for output in on_all_replicas(tf.constant(padded))]

    return extract
