"""scikit-learn's handwritten digits: 1,797 images of 8x8 pixels, bundled with scikit-learn.

They are the test set of the UCI "Optical Recognition of Handwritten Digits" data (Alpaydin and
Kaynak 1998).
"""

import dataclasses

import sklearn.datasets
import tensorflow as tf

from ...config import DataSettings
from ..source import Source
from .shapes import central_window

SIDE = 8
GRAY_LEVELS = 16.0  # pixels are in [0, 16]


def open_source(settings: DataSettings, source: Source) -> Source:
    """Returns the source with its images, cropped and resized to its shape."""
    digits, shape = sklearn.datasets.load_digits(), source.spec.example_shape
    images = tf.constant(digits.images[..., None] / (GRAY_LEVELS / 2) - 1, tf.float32)
    if images.shape[1:3] != shape[:2]:
        height, width = central_window((SIDE, SIDE), (shape[0], shape[1]))
        top, left = (SIDE - height) // 2, (SIDE - width) // 2
        images = tf.image.crop_to_bounding_box(images, top, left, height, width)
        images = tf.image.resize(images, shape[:2])  # bilinear: stays in [-1, 1]
    examples = tf.repeat(images, shape[2], axis=3).numpy()
    return dataclasses.replace(source, read=examples.__getitem__, labels=digits.target)
