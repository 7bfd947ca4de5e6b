"""The examples of the built-in datasets.

The digits are scikit-learn's: 1,797 images of 8x8 pixels, the test set of the UCI "Optical
Recognition of Handwritten Digits" data (Alpaydin and Kaynak 1998).

The others are the three 2-D distributions of Gulrajani et al. 2017 (arXiv:1704.00028, figure 1a).
A new point is generated at every position, so there are no epochs. The distributions have the
shapes of the paper. The paper does not give coordinates; each function states the ones used here.
"""

import dataclasses
import math

import numpy as np
import sklearn.datasets
import tensorflow as tf

from ...config import DataSettings
from ...runtime.randomness import RngStream, normal, uniform
from ..source import Source
from .shapes import central_window

# The standard deviation around each mode, for the distributions that have modes.
DEVIATIONS = {"gaussians_25": 0.05, "gaussians_8": 0.02}


def gaussians_25(choice: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """Draws from a 5x5 grid of Gaussians, spacing 2, standard deviation 0.05, centered at 0.

    Args:
      choice: `[B, 1]`, uniform on [0, 1).
      noise: `[B, 2]`, standard normal.

    Returns:
      `[B, 2]` float32.
    """
    mode = tf.floor(25.0 * choice)
    row = tf.floor(mode / 5.0)
    center = 2.0 * tf.concat([mode - 5.0 * row, row], axis=1) - 4.0
    return center + DEVIATIONS["gaussians_25"] * noise


def gaussians_8(choice: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """Draws from eight Gaussians on a circle of radius 2, standard deviation 0.02.

    See `gaussians_25` for the arguments and the result.
    """
    angle = 2.0 * math.pi / 8.0 * tf.floor(8.0 * choice)
    return (
        2.0 * tf.concat([tf.cos(angle), tf.sin(angle)], axis=1) + DEVIATIONS["gaussians_8"] * noise
    )


def swiss_roll(choice: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """Draws from a spiral of one and a half turns, radius 0.63 to 1.88, standard deviation 0.033.

    This is scikit-learn's make_swiss_roll(noise=0.25) without its height, divided by 7.5.
    See `gaussians_25` for the arguments and the result.
    """
    angle = 1.5 * math.pi * (1.0 + 2.0 * choice)
    spiral = tf.concat([angle * tf.cos(angle), angle * tf.sin(angle)], axis=1)
    return (spiral + 0.25 * noise) / 7.5


# The function and the number of modes of each distribution. The modes are the classes.
_DRAW = {
    "gaussians_25": (gaussians_25, 25),
    "gaussians_8": (gaussians_8, 8),
    "swiss_roll": (swiss_roll, 1),
}


def mode_centers(dataset: str) -> np.ndarray:
    """Returns the modes of a distribution, `[M, 2]` float32.

    Args:
      dataset: A key of DEVIATIONS.
    """
    draw, modes = _DRAW[dataset]
    # The choice is in the middle of the interval of each mode.
    choice = (tf.range(modes, dtype=tf.float32)[:, None] + 0.5) / modes
    return draw(choice, tf.zeros([modes, 2])).numpy()


def open_points(settings: DataSettings, source: Source) -> Source:
    """Returns the source, whose point at position p is a function of (seed, p).

    Args:
      settings: The name of the distribution and the seed.
      source: The source without points.
    """
    function, modes = _DRAW[settings.dataset]

    def draw(first: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
        choice = uniform(settings.seed, RngStream.DATA, step=0, first=first, count=count, size=1)
        noise = normal(settings.seed, RngStream.DATA, step=1, first=first, count=count, size=2)
        return function(choice, noise), tf.cast(modes * choice[:, 0], tf.int32)

    return dataclasses.replace(source, draw=draw)


def open_digits(settings: DataSettings, source: Source) -> Source:
    """Returns the source with the images of the digits, cropped and resized to its shape."""
    digits, (tall, wide, channels) = sklearn.datasets.load_digits(), source.spec.example_shape
    images = tf.constant(digits.images[..., None] / 8.0 - 1.0, tf.float32)  # from [0, 16]
    side = images.shape[1]
    if (side, side) != (tall, wide):
        height, width = central_window((side, side), (tall, wide))
        top, left = (side - height) // 2, (side - width) // 2
        images = tf.image.crop_to_bounding_box(images, top, left, height, width)
        images = tf.image.resize(images, (tall, wide))  # bilinear: stays in [-1, 1]
    examples = tf.repeat(images, channels, axis=3).numpy()
    return dataclasses.replace(source, read=examples.__getitem__, labels=digits.target)
