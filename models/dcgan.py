"""DCGAN for square images of 8, 16, 32, 64 or 128 pixels.

After Radford et al. 2016 (arXiv:1511.06434): strided convolutions only, batch-norm and
ReLU in the generator, leaky ReLU in the critic, twice the channels at half the size.
The critic has no batch-norm: the penalty is on each example's own gradient, which
batch-norm would mix with the others' (Gulrajani et al. 2017, arXiv:1704.00028, section 4).
"""

import math

import tensorflow as tf

from .layers import LeakyReLU, normalization_layers

LEAK = 0.2


def generator(example_shape: tuple[int, ...], latent_size: int, width: int) -> tf.keras.Model:
    """`[B, latent_size]` -> images `[B, H, W, C]` in [-1, 1]; `width` channels at full size."""
    size, _, channels = example_shape
    base, stages = _base_and_stages(size)
    filters = width * 2**stages
    layers = [
        tf.keras.Input([latent_size]),
        tf.keras.layers.Dense(base * base * filters, use_bias=False),
        tf.keras.layers.Reshape([base, base, filters]),
        *_normalised_relu(),
    ]
    for _ in range(stages):
        filters //= 2
        layers += [
            # The kernel is a multiple of the stride, so that no pixel is drawn more often than
            # its neighbours. No bias: the batch-norm behind it would cancel it.
            tf.keras.layers.Conv2DTranspose(filters, 4, strides=2, padding="same", use_bias=False),
            *_normalised_relu(),
        ]
    layers.append(tf.keras.layers.Conv2D(channels, 3, padding="same", activation="tanh"))
    return tf.keras.Sequential(layers, name="generator")


def critic(
    example_shape: tuple[int, ...], width: int, normalization: str = "none"
) -> tf.keras.Model:
    """Images `[B, H, W, C]` -> scores `[B, 1]`, unbounded; `width` channels at full size."""
    _, stages = _base_and_stages(example_shape[0])
    layers = [
        tf.keras.Input(example_shape),
        tf.keras.layers.Conv2D(width, 3, padding="same"),
        LeakyReLU(LEAK),
    ]
    filters = width
    for _ in range(stages):
        filters *= 2
        layers += [
            tf.keras.layers.Conv2D(filters, 3, strides=2, padding="same"),
            *normalization_layers(normalization),
            LeakyReLU(LEAK),
        ]
    layers += [tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)]
    return tf.keras.Sequential(layers, name="critic")


def _base_and_stages(size: int) -> tuple[int, int]:
    """Side of the smallest feature map, and the halvings between `size` and it.

    4 pixels, as in DCGAN; 2 for images of 8, whose critic would otherwise be too shallow.
    """
    base = min(4, size // 4)
    return base, int(math.log2(size // base))


def _normalised_relu() -> list[tf.keras.layers.Layer]:
    """Batch-norm over the global batch, then ReLU.

    Synchronized, so that the moments, and with them the run, do not depend on the number
    of replicas.
    """
    return [
        tf.keras.layers.BatchNormalization(synchronized=True),
        tf.keras.layers.ReLU(),
    ]
