"""Crops the central window of an image and resizes it, in TensorFlow."""

from __future__ import annotations

import tensorflow as tf


def central_window(size: tf.Tensor, target: tuple[int, int]) -> tf.Tensor:
    """Returns top, left, height and width of the window of `shapes.central_window`.

    Args:
      size: Height and width of an image, `[2]` int32.
      target: Height and width of the result, whose aspect ratio the window has.

    Returns:
      `[4]` int32.
    """
    tall, wide = target
    if tall == wide:
        window = tf.minimum(size, size[::-1])
    else:
        height, width = (tf.cast(size[axis], tf.int64) for axis in (0, 1))  # for their products
        is_tall = height * wide >= width * tall
        kept = [
            tf.where(is_tall, tf.minimum(height, (2 * width * tall + wide) // (2 * wide)), height),
            tf.where(is_tall, width, tf.minimum(width, (2 * height * wide + tall) // (2 * tall))),
        ]
        window = tf.cast(tf.maximum(tf.stack(kept), 1), tf.int32)
    return tf.concat([(size - window) // 2, window], axis=0)


def crop(image: tf.Tensor, target: tuple[int, int]) -> tf.Tensor:
    """Returns the central window of an image `[H, W, C]`."""
    window = central_window(tf.shape(image)[:2], target)
    return tf.image.crop_to_bounding_box(image, *tf.unstack(window))


def count_larger(size: tf.Tensor, target: tuple[int, int], ratios: tuple[int, ...]) -> tf.Tensor:
    """Returns the number of ratios at which half of a window is still as large as the target.

    Args:
      size: Height and width of an image, `[2]` int32.
      target: Height and width of the result.
      ratios: Divisors of the size of the image.
    """
    window = central_window(size, target)[2:]
    enough = [tf.reduce_all(window >= [2 * side * ratio for side in target]) for ratio in ratios]
    return tf.reduce_sum(tf.cast(enough, tf.int32))


def reduce(image: tf.Tensor, target: tuple[int, int]) -> tf.Tensor:
    """Returns an image `[H, W, C]` resized to the target by averaging over areas."""
    return round_to(image.dtype, tf.image.resize(image, target, method="area"))


def reduce_if_large(image: tf.Tensor, target: tuple[int, int]) -> tf.Tensor:
    """Returns `reduce` of an image that has twice the sides of the target or more."""
    is_large = tf.reduce_all(tf.shape(image)[:2] >= [2 * side for side in target])
    return tf.cond(is_large, lambda: reduce(image, target), lambda: image)


def round_to(dtype: tf.DType, images: tf.Tensor) -> tf.Tensor:
    """Returns float32 levels, which are not negative, as the nearest integers."""
    return tf.cast(images + 0.5, dtype)
