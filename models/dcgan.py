"""DCGAN for square images of 8, 16, 32, 64 or 128 pixels.

After Radford et al. 2016 (arXiv:1511.06434): strided convolutions only, batch-norm and
ReLU in the generator, leaky ReLU in the critic, twice the channels at half the size.
The critic has no batch-norm: the penalty is on each example's own gradient, which
batch-norm would mix with the others' (Gulrajani et al. 2017, arXiv:1704.00028, section 4).
"""

import math

import tensorflow as tf

from .layers import LeakyReLU

BASE_SIZE = 4  # pixels, the generator's first and the critic's last feature map
KERNEL_SIZE = 4  # a multiple of the stride 2, so that no pixel is drawn more often
LEAK = 0.2


def generator(example_shape: tuple[int, ...], latent_size: int, width: int) -> tf.keras.Model:
    """`[B, latent_size]` -> images `[B, H, W, C]` in [-1, 1]; `width` channels at full size."""
    size, _, channels = example_shape
    stages = int(math.log2(size // BASE_SIZE))
    filters = width * 2**stages
    layers = [
        tf.keras.Input([latent_size]),
        tf.keras.layers.Dense(BASE_SIZE * BASE_SIZE * filters, use_bias=False),
        tf.keras.layers.Reshape([BASE_SIZE, BASE_SIZE, filters]),
        *_normalised_relu(),
    ]
    for _ in range(stages):
        filters //= 2
        layers += [
            # No bias: the batch-norm behind it would cancel it.
            tf.keras.layers.Conv2DTranspose(
                filters, KERNEL_SIZE, strides=2, padding="same", use_bias=False
            ),
            *_normalised_relu(),
        ]
    layers.append(tf.keras.layers.Conv2D(channels, 3, padding="same", activation="tanh"))
    return tf.keras.Sequential(layers, name="generator")


def critic(example_shape: tuple[int, ...], width: int) -> tf.keras.Model:
    """Images `[B, H, W, C]` -> scores `[B, 1]`, unbounded; `width` channels at full size."""
    size = example_shape[0]
    layers = [
        tf.keras.Input(example_shape),
        tf.keras.layers.Conv2D(width, 3, padding="same"),
        LeakyReLU(LEAK),
    ]
    filters = width
    for _ in range(int(math.log2(size // BASE_SIZE))):
        filters *= 2
        layers += [
            tf.keras.layers.Conv2D(filters, KERNEL_SIZE, strides=2, padding="same"),
            LeakyReLU(LEAK),
        ]
    layers += [tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)]
    return tf.keras.Sequential(layers, name="critic")


def _normalised_relu() -> list[tf.keras.layers.Layer]:
    """Batch-norm over the global batch, then ReLU.

    Synchronized, so that the moments, and with them the run, do not depend on the number
    of replicas.
    """
    return [
        tf.keras.layers.BatchNormalization(synchronized=True),
        tf.keras.layers.ReLU(),
    ]
