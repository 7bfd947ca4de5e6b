"""scikit-learn's handwritten digits: 1,797 images of 8x8 pixels, bundled with scikit-learn.

They are the test set of the UCI "Optical Recognition of Handwritten Digits" data (Alpaydin and
Kaynak 1998).
"""

import sklearn.datasets
import tensorflow as tf

from ..config import Config
from ..shuffling import shuffled
from .pixels import flipped
from .source import Source

GREY_LEVELS = 16.0  # pixels run from 0 to 16


def source(config: Config, example_shape: tuple[int, ...]) -> Source:
    """Opens the dataset; each epoch has every image once, in an order set by (seed, epoch)."""
    digits = sklearn.datasets.load_digits()
    images = tf.constant(digits.images[..., None] / (GREY_LEVELS / 2) - 1, tf.float32)
    labels = tf.constant(digits.target, tf.int32)
    if images.shape[1:3] != example_shape[:2]:
        images = tf.image.resize(images, example_shape[:2])  # bilinear: stays in [-1, 1]
    images = tf.repeat(images, example_shape[2], axis=3)
    size = images.shape[0]

    def read(first: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
        chosen = shuffled(config.seed, first + tf.range(count, dtype=tf.int64), size)
        return flipped(config, tf.gather(images, chosen), first), tf.gather(labels, chosen)

    return Source(example_shape, read, size)
