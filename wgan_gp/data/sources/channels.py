"""Converts images between numbers of channels and of bits, in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

_MAX_PICTURE_CHANNELS = 4  # color and alpha
_LUMA = (299, 587, 114)  # thousandths of red, green and blue in gray (ITU-R BT.601)


def convert(image: tf.Tensor, channels: int) -> tf.Tensor:
    """Returns an image with another number of channels.

    Args:
      image: `[H, W, K]` uint8 or uint16: gray, gray and alpha, RGB, or RGB and alpha for K up to 4;
        anything for a larger K.
      channels: 1 to 4, with the same meanings, or K. Alpha is dropped or added, opaque.

    Returns:
      `[H, W, channels]` of the same dtype.

    Raises:
      tf.errors.InvalidArgumentError: If K and `channels` differ and one of them is larger than 4.
    """
    count = tf.shape(image)[2]
    if channels > _MAX_PICTURE_CHANNELS:
        return tf.ensure_shape(image, [None, None, channels])
    check = tf.debugging.Assert(count <= _MAX_PICTURE_CHANNELS, ["the image has too many channels"])
    with tf.control_dependencies([check]):
        colors = tf.gather(image, tf.cast(count >= 3, tf.int32) * [0, 1, 2], axis=2)
    if channels <= 2:
        colors = tf.cond(count >= 3, lambda: _gray(colors), lambda: colors[..., :1])
    if channels % 2:
        converted = colors
    else:
        has_alpha = count % 2 == 0
        alpha = tf.where(has_alpha, image[..., -1:], image.dtype.max)
        converted = tf.concat([colors, alpha], axis=2)
    converted.set_shape([None, None, channels])
    return converted


def to_dtype(image: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns a uint8 image as uint8 or uint16, with the same black and white."""
    if dtype == tf.uint8:
        return image
    return tf.cast(image, dtype) * tf.constant(257, dtype)  # 255 becomes 65535


def _gray(colors: tf.Tensor) -> tf.Tensor:
    """Returns a color image in gray; equal red, green and blue remain exactly."""
    weighted = tf.reduce_sum(tf.cast(colors, tf.float32) * _LUMA, axis=2, keepdims=True)
    return tf.cast(weighted / 1000.0 + 0.5, colors.dtype)
