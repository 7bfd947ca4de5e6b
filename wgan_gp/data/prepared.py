"""Datasets of images that tensorflow-datasets has prepared on disk, held in memory."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..config import Config
from ..errors import UserError
from ..randomness import Stream, shuffled, uniform
from .source import Source


def source(config: Config, example_shape: tuple[int, ...]) -> Source:
    """The training split: every image once an epoch, in an order that follows from (seed, epoch).

    Grey levels x in 0 ... 255 become 2 (x / 256 - 1/2) + u with u uniform on [0, 1/128), drawn
    anew at every use: within [-1, 1), and no step is left for a critic to see. So does the code
    of Gulrajani et al. 2017 (arXiv:1704.00028).

    Raises:
      UserError: the dataset is not prepared.
    """
    images, labels = _load(config, example_shape)
    size = len(images)
    pixels = int(np.prod(example_shape))

    def read(first: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
        place = {"step": 0, "first": first, "count": count}
        chosen = shuffled(config.seed, first + tf.range(count, dtype=tf.int64), size)
        levels = tf.cast(tf.gather(images, chosen), tf.float32)
        if config.random_flips == "on":
            mirrored = uniform(config.seed, Stream.FLIPS, size=1, **place)[:, :, None, None] < 0.5
            levels = tf.where(mirrored, levels[:, :, ::-1], levels)
        noise = uniform(config.seed, Stream.DEQUANTIZATION, size=pixels, **place)
        examples = levels / 128 - 1 + tf.reshape(noise, [count, *example_shape]) / 128
        return examples, tf.gather(labels, chosen)

    return Source(example_shape, read)


def _load(config: Config, example_shape: tuple[int, ...]) -> tuple[tf.Tensor, tf.Tensor]:
    """All images, uint8, and all labels, int32."""
    # Seconds to import, and only these datasets need it.
    import tensorflow_datasets as tfds  # noqa: PLC0415

    builder = tfds.builder(config.dataset, data_dir=config.data_dir)
    if not tf.io.gfile.exists(str(builder.data_path)):
        raise UserError(
            f"--dataset={config.dataset} is not prepared: there is no {builder.data_path}",
            "where there is a network, let tensorflow_datasets.load("
            f'"{config.dataset}", data_dir=DIR) prepare it, and give --data_dir=DIR',
        )
    batches = list(tfds.as_numpy(builder.as_dataset(split="train", batch_size=1000)))
    images = np.concatenate([batch["image"] for batch in batches])
    labels = np.concatenate([batch["label"] for batch in batches])
    if images.shape[1:] != example_shape:
        images = np.concatenate([_resized(batch["image"], example_shape) for batch in batches])
    return tf.constant(images), tf.constant(labels, tf.int32)


def _resized(images: np.ndarray, example_shape: tuple[int, ...]) -> np.ndarray:
    return tf.cast(tf.round(tf.image.resize(images, example_shape[:2])), tf.uint8).numpy()
