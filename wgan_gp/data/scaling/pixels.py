"""Normalizes images to the range of the critic."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ...config import DataSettings
from ...runtime.randomness import RngStream, uncorrelated_bits, uniform


def normalize(
    settings: DataSettings, levels: tf.Tensor, first: tf.Tensor, *, bits: int = 8
) -> tf.Tensor:
    """Normalizes images to [-1, 1], with dequantization and random flips if configured.

    Dequantization maps a level x in 0 ... 255 to 2 (x / 256 - 1/2) + u, with u drawn uniformly
    from [0, 1/128) at every use. The result is in [-1, 1) and has no discrete levels that the
    critic could detect, as in the code of Gulrajani et al. 2017 (arXiv:1704.00028). With
    --nodequantization, the result is x / 127.5 - 1. For 16 bits, 65536 replaces 256, 1/32768
    replaces 1/128, and 32767.5 replaces 127.5.

    Args:
      settings: The seed, --dequantization and --random_flips.
      levels: `[B, H, W, C]`, integers of any dtype in 0 ... 2^bits - 1.
      first: The position of the first image, scalar int64.
      bits: 8 or 16.

    Returns:
      `[B, H, W, C]` float32.
    """
    images = flip(settings, tf.cast(levels, tf.float32), first)
    if not settings.dequantization:
        # 1 / 127.5 is 2^-7 + 2^-15 + 2^-23 + 2^-31 and so on. These products are exact, so all
        # devices compute the same result. A division would be rounded differently under XLA.
        if bits > 8:  # 1 / 32767.5 is 2^-15 + 2^-31 and so on
            return (images * 2.0**-15 - 1) + images * 2.0**-31
        return (images * (2.0**-7 + 2.0**-15) - 1) + images * (2.0**-23 + 2.0**-31)
    count, *rest = levels.shape
    words = uncorrelated_bits(
        settings.seed, RngStream.DEQUANTIZATION, first=first, count=count, size=int(np.prod(rest))
    )
    # Steps of 2^-23 match the resolution of float32 near 1, so the sum is exact and stays below 1.
    # They leave 16 random bits below a level of 8 bits, and 8 below a level of 16 bits.
    high = tf.bitcast(tf.bitwise.right_shift(words, tf.constant(8 + bits, tf.uint32)), tf.int32)
    noise = tf.reshape(tf.cast(high, tf.float32), levels.shape)
    return images * 2.0 ** (1 - bits) + (noise * 2.0**-23 - 1)


def flip(settings: DataSettings, images: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Mirrors half of the images or volumes along their width, if --random_flips is set.

    The choice is a function of (seed, position).
    """
    if not settings.random_flips:
        return images
    coin = uniform(
        settings.seed, RngStream.FLIPS, step=0, first=first, count=images.shape[0], size=1
    )
    coin = tf.reshape(coin, [-1, *[1] * (images.shape.rank - 1)])
    return tf.where(coin < 0.5, images[..., ::-1, :], images)
