"""The mapping between the levels of images and the range of the critic, in both directions."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import tensorflow as tf

from ..config import DataSettings
from ..runtime.randomness import RngStream, uncorrelated_bits, uniform


@dataclasses.dataclass(frozen=True)
class Pixels:
    """The levels of pictures that are integers, and their inverse mapping; see `normalize`.

    Attributes:
      bits: 8 or 16.
      dequantized: Whether levels get noise.
    """

    bits: Literal[8, 16] = 8
    dequantized: bool = True

    @property
    def plain(self) -> Pixels:
        """The mapping without noise, with which metrics read real examples."""
        return dataclasses.replace(self, dequantized=False)

    @property
    def _largest(self) -> int:
        return 2**self.bits - 1

    def normalize(self, levels: tf.Tensor) -> tf.Tensor:
        """Returns levels of any dtype as the networks see them, with the mean of the noise."""
        values = tf.cast(levels, tf.float32)
        if self.dequantized:
            return (values + 0.5) * 2.0 ** (1 - self.bits) - 1
        return _without_noise(values, self.bits)

    def normalize_stored(
        self, settings: DataSettings, stored: tf.Tensor, first: tf.Tensor
    ) -> tf.Tensor:
        """Returns stored images as the networks see them; see the function `normalize`."""
        return normalize(settings, stored, first, bits=self.bits)

    def restore_tensor(self, samples: tf.Tensor) -> tf.Tensor:
        """Returns the levels of samples, integers of the same shape in float32."""
        if self.dequantized:
            levels = tf.floor((samples + 1) * 2.0 ** (self.bits - 1))
        else:
            levels = tf.round((samples + 1) * (self._largest / 2))
        return tf.clip_by_value(levels, 0.0, float(self._largest))

    def restore(self, samples: np.ndarray) -> np.ndarray:
        """Returns the levels of samples, uint8 or uint16 of the same shape.

        Values outside [-1, 1] become the nearest level, and NaN becomes 0. Levels are returned
        unchanged.
        """
        dtype = np.dtype(f"uint{self.bits}")
        if samples.dtype == dtype:
            return samples
        if self.dequantized:
            levels = np.floor((samples + 1) * 2.0 ** (self.bits - 1))
        else:
            levels = np.rint((samples + 1) * (self._largest / 2))
        return np.nan_to_num(np.clip(levels, 0, self._largest), copy=False).astype(dtype)

    def quantize(self, samples: np.ndarray) -> np.ndarray:
        """Returns the levels of samples, mapped to [-1, 1] without noise, float32."""
        return (self.restore(samples) / (self._largest / 2) - 1).astype(np.float32)


DEQUANTIZED = Pixels()
# Pictures of real numbers in [-1, 1] are rounded to the nearest of 256 levels, to store them in
# files and to compare them.
NEAREST = Pixels(dequantized=False)


def normalize(
    settings: DataSettings, levels: tf.Tensor, first: tf.Tensor, *, bits: int = 8
) -> tf.Tensor:
    """Normalizes images to [-1, 1], with dequantization and random flips if configured.

    Dequantization maps a level x in 0 ... 255 to 2 (x / 256 - 1/2) + u, with u drawn uniformly
    from [0, 1/128) at every use. The result is in [-1, 1) and has no discrete levels that the
    critic could detect, as in the code of Gulrajani et al. 2017 (arXiv:1704.00028). With
    --nodequantization, the result is x / 127.5 - 1. For 16 bits, 65536 replaces 256, 1/32768
    replaces 1/128, and 32767.5 replaces 127.5. `Pixels.restore` is the inverse of both.

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
        return _without_noise(images, bits)
    # Steps of 2^-23 match the resolution of float32 near 1, so the sum is exact and stays below 1.
    # They leave 16 random bits below a level of 8 bits, and 8 below a level of 16 bits.
    noise = random_integers(settings, levels.shape, first, 24 - bits)
    return images * 2.0 ** (1 - bits) + (noise * 2.0**-23 - 1)


def random_integers(
    settings: DataSettings, shape: tf.TensorShape, first: tf.Tensor, bits: int
) -> tf.Tensor:
    """Returns the random integers of dequantization from 0 to 2^bits - 1, `shape` float32."""
    count, *rest = shape
    words = uncorrelated_bits(
        settings.seed, RngStream.DEQUANTIZATION, first=first, count=count, size=int(np.prod(rest))
    )
    high = tf.bitcast(tf.bitwise.right_shift(words, tf.constant(32 - bits, tf.uint32)), tf.int32)
    return tf.reshape(tf.cast(high, tf.float32), shape)


def _without_noise(levels: tf.Tensor, bits: int) -> tf.Tensor:
    # 1 / 127.5 is 2^-7 + 2^-15 + 2^-23 + 2^-31 and so on. These products are exact, so all
    # devices compute the same result. A division would be rounded differently under XLA.
    if bits > 8:  # 1 / 32767.5 is 2^-15 + 2^-31 and so on
        return (levels * 2.0**-15 - 1) + levels * 2.0**-31
    return (levels * (2.0**-7 + 2.0**-15) - 1) + levels * (2.0**-23 + 2.0**-31)


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
