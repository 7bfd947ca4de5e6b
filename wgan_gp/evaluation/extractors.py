"""What images are seen by: from pixels to features, and to probabilities of classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ..config import Config
from ..data import registry
from ..errors import UserError, reason
from . import classifier, pretrained
from .examples import Examples, Kept

LARGEST_FOR_CLASSIFIER = 32  # pixels: one hidden layer sees no more than such images


@dataclasses.dataclass(frozen=True)
class Extractor:
    """What makes features of images.

    Attributes:
      name: of which features FIDs are, for they compare within one extractor only.
      key: what the features depend on: a name may come to stand for others.
      extract: images `[B, H, W, C]` float32 in [-1, 1] -> features `[B, D]` float32, and
        probabilities `[B, K]` float32 or None. Runs inside `strategy.run`.
      accuracy: of a classifier fitted to the run's own images, on those it was not fitted to.
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
    example_shape: tuple[int, ...],
) -> Extractor:
    """The extractor that --feature_extractor asks for, or the default of such data.

    Args:
      config: of the run.
      strategy: where it is to run.
      examples: of the run's dataset, for a classifier to be fitted to.
      kept: where a classifier is kept.
      example_shape: `(H, W, C)` of the images.

    Raises:
      UserError: there is no such extractor, or it does not suit the data.
    """
    labels = registry.label_count(config)
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
    """Raises UserError unless it makes features of grey images."""
    count = 2 * strategy.num_replicas_in_sync
    try:
        features, *_ = spread(extractor, strategy, count)(np.zeros([count, *example_shape], "f"))
        if len(features) != count:
            raise ValueError(f"of {count} images it makes {len(features)} rows of features")
    # What somebody's network does with images that are not for it, nobody knows.
    except Exception as error:
        raise UserError(
            f"--feature_extractor={extractor.name} makes no features of images {example_shape} "
            f"({reason(error)})",
            pretrained.REMEDY,
        ) from error


def as_png(images: np.ndarray) -> np.ndarray:
    """Images in [-1, 1] rounded to 256 grey levels, as a PNG file would hold them.

    The real images come from such files. A network that sees what lies between two levels
    could tell all samples from them by it, and so would figures that no file of samples has.
    """
    levels = np.clip(np.rint((images + 1) * 127.5), 0, 255)
    return (levels / 127.5 - 1).astype(np.float32)


def spread(
    extractor: Extractor, strategy: tf.distribute.Strategy, batch_size: int
) -> Callable[[np.ndarray], list[np.ndarray]]:
    """The extractor on all replicas, each taking its share of a batch.

    Args:
      extractor: what each replica does.
      strategy: whose replicas.
      batch_size: images in a call; divides over the replicas.

    Returns:
      Images `[B, H, W, C]` float32, B up to `batch_size`, -> what the extractor finds of each.
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
        missing = batch_size - len(images)  # one shape, traced once
        padded = np.pad(images, [(0, missing), (0, 0), (0, 0), (0, 0)])
        return [part.numpy()[: len(images)] for part in on_all(tf.constant(padded))]

    return extract
