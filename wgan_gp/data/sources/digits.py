"""scikit-learn's handwritten digits: 1,797 images of 8x8 pixels, bundled with scikit-learn.

They are the test set of the UCI "Optical Recognition of Handwritten Digits" data (Alpaydin and
Kaynak 1998).
"""

import functools

import sklearn.datasets
import tensorflow as tf

from ...config import DataSettings
from ..opened_data import ExampleFormat, StoredData
from ..scaling.pixels import flip
from .shapes import central_window

SIDE = 8
GRAY_LEVELS = 16.0  # pixels are in [0, 16]


def open_data(settings: DataSettings, example_shape: tuple[int, int, int]) -> StoredData:
    """Opens the dataset.

    Args:
      settings: The seed and --random_flips.
      example_shape: `(H, W, C)`, to which the images are cropped and resized.
    """
    digits = sklearn.datasets.load_digits()
    images = tf.constant(digits.images[..., None] / (GRAY_LEVELS / 2) - 1, tf.float32)
    if images.shape[1:3] != example_shape[:2]:
        height, width = central_window((SIDE, SIDE), example_shape[:2])
        top, left = (SIDE - height) // 2, (SIDE - width) // 2
        images = tf.image.crop_to_bounding_box(images, top, left, height, width)
        images = tf.image.resize(images, example_shape[:2])  # bilinear: stays in [-1, 1]
    images = tf.repeat(images, example_shape[2], axis=3)
    stored = ExampleFormat(example_shape, tf.float32, functools.partial(flip, settings))
    return StoredData(settings.seed, stored, images, digits.target)
