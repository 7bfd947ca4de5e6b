"""Feature extractors, which map images to features and to class probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ..config import Config
from ..data.registry import Dataset
from ..errors import UserError, reason
from . import classifier, pretrained
from .examples import Examples, Kept

LARGEST_FOR_CLASSIFIER = 32  # pixels; one hidden layer does not suit larger images


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
    """

    name: str
    key: str
    extract: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor | None]]
    accuracy: float | None = None


def make_extractor(
    config: Config,
    strategy: tf.distribute.Strategy,
    examples: Examples,
    kept: Kept,
    dataset: Dataset,
) -> Extractor:
    """Returns the extractor set by --feature_extractor, or the default for the data.

    Args:
      config: The configuration of the run.
      strategy: The strategy on whose replicas the extractor runs.
      examples: The examples of the run's dataset, to which a classifier is fitted.
      kept: Caches the classifier.
      dataset: The dataset of the run, which contains images.

    Raises:
      UserError: If the extractor does not exist or does not fit the data.
    """
    labels, example_shape = dataset.label_count, dataset.spec.example_shape
    name = config.feature_extractor
    if name is None:
        small = max(example_shape[:2]) <= LARGEST_FOR_CLASSIFIER
        name = "classifier" if small and labels > 1 else "inception"
    if name == "classifier":
        if labels < 2:
            raise UserError(
                f"--feature_extractor=classifier needs labels of at least two classes, which "
                f"{config.dataset} has not",
                "give inception, or the path of a Keras file or SavedModel",
            )
        fitted = classifier.fitted(examples, kept, labels)
        return Extractor(name, fitted.key, fitted, fitted.accuracy)
    load = pretrained.load_inception if name == "inception" else pretrained.load_model
    with strategy.scope():
        key, network = load(name)
    extractor = Extractor(name, key, network)
    _try(extractor, strategy, example_shape)
    return extractor


def _try(
    extractor: Extractor, strategy: tf.distribute.Strategy, example_shape: tuple[int, ...]
) -> None:
    """Raises UserError unless the extractor computes features of blank images."""
    count = 2 * strategy.num_replicas_in_sync
    try:
        features, *_ = spread(extractor, strategy, count)(np.zeros([count, *example_shape], "f"))
        if len(features) != count:
            raise ValueError(f"of {count} images it makes {len(features)} rows of features")
    # A network of the user may raise any exception for images that do not fit it.
    except Exception as error:
        raise UserError(
            f"--feature_extractor={extractor.name} makes no features of images {example_shape} "
            f"({reason(error)})",
            pretrained.REMEDY,
        ) from error


def as_png(images: np.ndarray) -> np.ndarray:
    """Rounds images in [-1, 1] to 256 levels, as a PNG file stores them.

    The real images have 256 levels. Values between two levels would distinguish samples from
    real images, and the metrics would differ from those of samples saved as files.
    """
    levels = np.clip(np.rint((images + 1) * 127.5), 0, 255)
    return (levels / 127.5 - 1).astype(np.float32)


def spread(
    extractor: Extractor, strategy: tf.distribute.Strategy, batch_size: int
) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Returns a function that runs the extractor on all replicas, each with a part of a batch.

    Args:
      extractor: The extractor.
      strategy: The strategy on whose replicas it runs.
      batch_size: The number of images per call; must be divisible by the number of replicas.

    Returns:
      A function of images `[B, H, W, C]` float32, B <= batch_size, that returns a list of the
      features and, if the extractor has any, the probabilities.
    """
    share = batch_size // strategy.num_replicas_in_sync

    def on_replica(images: tf.Tensor) -> list[tf.Tensor]:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        begin = tf.stack([replica * share, 0, 0, 0])
        own = tf.slice(images, begin, [share, *images.shape[1:]])
        return [part for part in extractor.extract(own) if part is not None]

    @tf.function(autograph=False)
    def on_all(images: tf.Tensor) -> list[tf.Tensor]:
        found = strategy.run(on_replica, args=(images,))
        return [strategy.gather(part, axis=0) for part in found]

    def extract(images: np.ndarray) -> list[np.ndarray]:
        missing = batch_size - len(images)  # one shape is traced once
        padded = np.pad(images, [(0, missing), (0, 0), (0, 0), (0, 0)])
        return [part.numpy()[: len(images)] for part in on_all(tf.constant(padded))]

    return extract
