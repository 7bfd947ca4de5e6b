"""Dequantization of integers, which get noise so that a critic cannot detect their levels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ...config import DataSettings
from ...runtime.randomness import RngStream, uncorrelated_bits

MOST_LEVELS = 2**16  # of integers that get noise: 8 of the 24 bits of float32 are left for it


def is_byte(dtype: np.dtype) -> bool:
    """Returns True for the dtypes that are stored as uint8 if they are dequantized."""
    return dtype in (np.uint8, np.bool_)


def to_levels(integers: np.ndarray, offset: Sequence[float]) -> np.ndarray:
    """Returns integers `[..., F]` of any dtype as they are stored: uint8 or float32.

    uint8 and bool become uint8. All others become their distance to the integer nearest to the
    offset, which float32 represents for integers of the training data.
    """
    if is_byte(integers.dtype):
        return integers.astype(np.uint8)
    return (integers.astype(np.float64) - np.round(offset)).astype(np.float32)


def normalize_levels(
    settings: DataSettings,
    levels: tf.Tensor,
    first: tf.Tensor,
    *,
    offset: np.ndarray,
    scale: np.ndarray,
    largest: np.ndarray,
) -> tf.Tensor:
    """Returns (x + u - offset) / scale for each integer x, with noise u from [0, 1), float32.

    For training data, floor(result * scale + offset) is x.

    Args:
      settings: The seed, and --dequantization; without it, u is 0.5.
      levels: `[B, ..., F]`, the integers as `to_levels` returns them.
      first: The position of the first example, scalar int64.
      offset, scale: `[F]`.
      largest: `[F]`, the largest |x + u - offset| of the training data, rounded up.
    """
    middle = np.round(offset)
    values = tf.cast(levels, tf.float32)
    if levels.dtype == tf.uint8:
        values -= np.float32(middle)
    noise: tf.Tensor | float = 0.5
    if settings.dequantization:
        # Three roundings by 2^-24 must not move a value to another level. None is rounded if the
        # sum has at most 24 bits and the scale is a power of two.
        is_exact = (largest <= 2**8) & (np.frexp(scale)[0] == 0.5)
        margin = np.where(is_exact, 0, largest * 2.0**-22).astype(np.float32)
        noise = tf.clip_by_value(_noise(settings, levels.shape, first), margin, 1 - margin)
    # The offset is subtracted before the noise is added, because the sum of a large integer and
    # the noise would be rounded.
    return (values + (noise + np.float32(middle - offset))) * np.float32(1 / scale)


def _noise(settings: DataSettings, shape: tf.TensorShape, first: tf.Tensor) -> tf.Tensor:
    """Returns multiples of 2^-16 in [0, 1), `shape` float32."""
    count, *rest = shape
    words = uncorrelated_bits(
        settings.seed, RngStream.DEQUANTIZATION, first=first, count=count, size=int(np.prod(rest))
    )
    high = tf.bitcast(tf.bitwise.right_shift(words, tf.constant(16, tf.uint32)), tf.int32)
    return tf.reshape(tf.cast(high, tf.float32), shape) * 2.0**-16
