"""From the bytes of a picture to grey levels, and from grey levels to what a critic sees."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..config import Config
from ..randomness import Stream, uniform

# A JPEG is decoded at this fraction of its size, where that leaves pixels enough.
_JPEG_RATIOS = (8, 4, 2, 1)


def decode(encoded: tf.Tensor, example_shape: tuple[int, ...]) -> tf.Tensor:
    """A JPEG, PNG, BMP or GIF (its first frame), cropped to its middle square and resized.

    Making it smaller averages over all pixels that a new one covers: without, a small copy
    of a photograph is noise that a critic learns.

    Args:
      encoded: scalar string, the file's content.
      example_shape: `(S, S, C)`, C 1 (grey) or 3.

    Returns:
      `[S, S, C]` uint8.

    Raises:
      tf.errors.InvalidArgumentError: it is none of these, or damaged.
    """
    side, _, channels = example_shape
    image = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: _decode_jpeg(encoded, side, channels),
        lambda: _decode_other(encoded, channels),
    )
    size = tf.shape(image)[:2]
    short = tf.reduce_min(size)
    top, left = (size[0] - short) // 2, (size[1] - short) // 2
    image = image[top : top + short, left : left + short]
    image.set_shape([None, None, channels])
    return tf.ensure_shape(
        tf.cond(tf.equal(short, side), lambda: image, lambda: resized(image, side)), example_shape
    )


def resized(image: tf.Tensor, side: int) -> tf.Tensor:
    """Square images, uint8, at another size."""
    # Made smaller, the mean over the area of each new pixel: faster than
    # antialias=True (benchmarks.input_rate: twice the images a second), and as free of noise.
    levels = tf.cond(
        tf.shape(image)[-2] > side,
        lambda: tf.image.resize(image, [side, side], method="area"),
        lambda: tf.image.resize(image, [side, side]),
    )
    return tf.cast(tf.clip_by_value(tf.round(levels), 0, 255), tf.uint8)


def _decode_jpeg(encoded: tf.Tensor, side: int, channels: int) -> tf.Tensor:
    """At the smallest of the sizes that a JPEG is quick to decode at, not below `side`."""
    short = tf.reduce_min(tf.image.extract_jpeg_shape(encoded)[:2])
    enough = [short >= side * ratio for ratio in _JPEG_RATIOS]
    return tf.switch_case(
        tf.argmax([*enough[:-1], True], output_type=tf.int32),
        [
            lambda ratio=ratio: tf.io.decode_jpeg(encoded, channels=channels, ratio=ratio)
            for ratio in _JPEG_RATIOS
        ],
    )


def _decode_other(encoded: tf.Tensor, channels: int) -> tf.Tensor:
    """Whatever channels the file has: one, with or without alpha, or three."""
    image = tf.io.decode_image(encoded, expand_animations=False)
    image.set_shape([None, None, None])
    colour = tf.shape(image)[2] >= 3
    if channels == 3:
        return tf.cond(
            colour, lambda: image[:, :, :3], lambda: tf.repeat(image[:, :, :1], 3, axis=2)
        )
    return tf.cond(
        colour, lambda: tf.image.rgb_to_grayscale(image[:, :, :3]), lambda: image[:, :, :1]
    )


def finish(config: Config, levels: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Grey levels as numbers in [-1, 1], mirrored by the toss of a coin where that is asked for.

    Grey levels x in 0 ... 255 become 2 (x / 256 - 1/2) + u with u uniform on [0, 1/128), drawn
    anew at every use: within [-1, 1), and no step is left for a critic to see. So does the code
    of Gulrajani et al. 2017 (arXiv:1704.00028). Without --dequantization: x / 127.5 - 1.

    Args:
      config: of the run.
      levels: `[B, H, W, C]` uint8.
      first: position of the first, scalar int64.

    Returns:
      `[B, H, W, C]` float32.
    """
    images = flipped(config, tf.cast(levels, tf.float32), first)
    if config.dequantization == "off":
        return images / 127.5 - 1
    count, *shape = levels.shape
    noise = uniform(
        config.seed,
        Stream.DEQUANTIZATION,
        step=0,
        first=first,
        count=count,
        size=int(np.prod(shape)),
    )
    return images / 128 - 1 + tf.reshape(noise, levels.shape) / 128


def flipped(config: Config, images: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Every image or its mirror image, as (seed, position) says; all as they are unless asked."""
    if config.random_flips == "off":
        return images
    coin = uniform(config.seed, Stream.FLIPS, step=0, first=first, count=images.shape[0], size=1)
    return tf.where(coin[:, :, None, None] < 0.5, images[:, :, ::-1], images)
