"""Samples from the generator, and pictures of them."""

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from .data import source as sources
from .networks import conditioned
from .randomness import Stream, normal

GRID_SIDE = 8  # images; a conditional grid has a column for each class, up to twice as many
PLOT_POINTS = 2500
TILE_PIXELS = 32  # a sample smaller than this is enlarged in a grid
GAP_PIXELS = 2  # right of and below each sample
GAP_GREY = 96
PLOT_PIXELS = 512  # side of a picture of points


class Sampler:
    """Draws samples on all replicas; sample i is a function of (weights, seed, i).

    The generator does not train. With the batch-norm statistics it accumulated, no sample
    depends on those beside it. With those of the batch (--sampling_statistics=batch), samples
    are drawn in batches of `batch_size` over all replicas.

    Args:
      generator: `[B, latent_size]` -> `[B, *example_shape]`; a conditional one takes labels too.
      strategy: the strategy in whose scope the generator was made.
      latent_size: length of a latent vector.
      seed: of the latents.
      classes: of a conditional generator; 0 of any other.
      batch_size: samples per call, over all replicas; raised to a multiple of their number.
    """

    def __init__(
        self,
        generator: tf.keras.Model,
        strategy: tf.distribute.Strategy,
        *,
        latent_size: int,
        seed: int,
        classes: int = 0,
        batch_size: int = 128,
    ):
        share = -(-batch_size // strategy.num_replicas_in_sync)
        self._per_call = share * strategy.num_replicas_in_sync
        self.classes = classes

        def on_replica(first: tf.Tensor) -> tf.Tensor:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            first += tf.cast(replica, tf.int64) * share
            latents = normal(
                seed, Stream.SAMPLES, step=0, first=first, count=share, size=latent_size
            )
            labels = (first + tf.range(share, dtype=tf.int64)) % max(1, classes)
            return conditioned(generator, tf.cast(labels, tf.int32), training=False)(latents)

        @tf.function(autograph=False)
        def draw(first: tf.Tensor) -> tf.Tensor:
            return strategy.gather(strategy.run(on_replica, args=(first,)), axis=0)

        self._draw = draw

    def sample(self, count: int, label: int | None = None) -> np.ndarray:
        """The first `count` samples of the seed, `[count, *example_shape]` float32.

        Sample i is of class i modulo classes.

        Args:
          count: how many.
          label: the first `count` of this class, in [0, classes). All classes are drawn, and
            those of the others left: with statistics of the batch, a batch of one class would
            have others than the generator has ever seen.
        """
        if label is not None:
            return self.sample(count * self.classes)[label :: self.classes]
        calls = range(0, count, self._per_call)
        batches = [self._draw(tf.constant(first, tf.int64)).numpy() for first in calls]
        return np.concatenate(batches)[:count]


def make_draw(
    sampler: Sampler, source: sources.Source | sources.Stream
) -> Callable[[], np.ndarray]:
    """A function that draws the same noise's samples anew: () -> uint8 `[H, W, C]`."""
    if len(source.example_shape) == 3:
        # A class a column, where there are columns for all.
        columns = sampler.classes if 1 < sampler.classes <= 2 * GRID_SIDE else GRID_SIDE
        return lambda: image_grid(sampler.sample(GRID_SIDE * columns), columns)
    assert isinstance(source, sources.Source)  # only pictures are streamed
    real = source.read(tf.constant(0, tf.int64), PLOT_POINTS)[0].numpy()
    return lambda: point_plot(sampler.sample(PLOT_POINTS), real)


def image_grid(images: np.ndarray, columns: int) -> np.ndarray:
    """Images side by side, row by row.

    Args:
      images: `[N, H, W, C]` in [-1, 1].
      columns: images in a row.

    Returns:
      uint8 `[H', W', C]`; small images are enlarged by a whole factor.
    """
    count, height, width, channels = images.shape
    rows = math.ceil(count / columns)
    factor = max(1, TILE_PIXELS // max(height, width))
    tall, wide = height * factor + GAP_PIXELS, width * factor + GAP_PIXELS
    tiles = np.full((rows * columns, tall, wide, channels), GAP_GREY, np.uint8)
    pixels = np.clip(np.rint((images + 1) * 127.5), 0, 255).astype(np.uint8)
    tiles[:count, :-GAP_PIXELS, :-GAP_PIXELS] = pixels.repeat(factor, 1).repeat(factor, 2)
    grid = tiles.reshape(rows, columns, tall, wide, channels).swapaxes(1, 2)
    return grid.reshape(rows * tall, columns * wide, channels)


def point_plot(points: np.ndarray, real: np.ndarray) -> np.ndarray:
    """2-D samples in blue over real points in grey, on white.

    Args:
      points: `[N, 2]`, the samples; those far outside are not drawn.
      real: `[M, 2]`, points of the dataset, which set the scale.

    Returns:
      uint8 `[PLOT_PIXELS, PLOT_PIXELS, 3]`, y upwards.
    """
    plot = np.full((PLOT_PIXELS, PLOT_PIXELS, 3), 255, np.uint8)
    reach = 1.2 * np.abs(real).max()
    for cloud, colour in ((real, (190, 190, 190)), (points, (31, 90, 200))):
        pixels = np.rint((cloud / reach + 1) / 2 * (PLOT_PIXELS - 1))
        inside = ((pixels > 0) & (pixels < PLOT_PIXELS)).all(axis=1)  # NaN is not
        pixels = pixels[inside].astype(int)
        for right, down in ((0, 0), (0, 1), (1, 0), (1, 1)):  # dots of 2x2 pixels
            plot[PLOT_PIXELS - 1 - pixels[:, 1] + down, pixels[:, 0] - 1 + right] = colour
    return plot
