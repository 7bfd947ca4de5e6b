"""scikit-learn's handwritten digits: 1,797 images of 8x8 pixels, bundled with scikit-learn.

They are the test set of the UCI "Optical Recognition of Handwritten Digits" data (Alpaydin and
Kaynak 1998).
"""

import sklearn.datasets
import tensorflow as tf

from ..config import DataSettings
from .pixels import flip
from .shuffling import shuffled
from .source import InMemoryData

GRAY_LEVELS = 16.0  # pixels are in [0, 16]


class Digits(InMemoryData):
    """The digits; each epoch contains every image once, in an order set by (seed, epoch).

    Args:
      settings: The seed and --random_flips.
      example_shape: `(S, S, C)`, to which the images are resized.
    """

    def __init__(self, settings: DataSettings, example_shape: tuple[int, ...]):
        digits = sklearn.datasets.load_digits()
        images = tf.constant(digits.images[..., None] / (GRAY_LEVELS / 2) - 1, tf.float32)
        if images.shape[1:3] != example_shape[:2]:
            images = tf.image.resize(images, example_shape[:2])  # bilinear: stays in [-1, 1]
        self._images = tf.repeat(images, example_shape[2], axis=3)
        self._labels = tf.constant(digits.target, tf.int32)
        self._settings = settings
        self.example_shape = example_shape
        self.size: int = images.shape[0]

    def read(self, first: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
        positions = first + tf.range(count, dtype=tf.int64)
        indices = shuffled(self._settings.seed, positions, self.size)
        images = flip(self._settings, tf.gather(self._images, indices), first)
        return images, tf.gather(self._labels, indices)


def open_data(settings: DataSettings, example_shape: tuple[int, ...]) -> Digits:
    """Opens the dataset."""
    return Digits(settings, example_shape)
