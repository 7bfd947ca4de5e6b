"""Fully connected networks, for 2-D points and for tiny images.

The toy networks of Gulrajani et al. 2017 (arXiv:1704.00028, section 5.1 and figure 2):
three hidden ReLU layers in each network, no normalisation. The paper's are 512 wide.
"""

import math

import tensorflow as tf

from .layers import LeakyReLU, normalization_layers

HIDDEN_LAYERS = 3


def generator(example_shape: tuple[int, ...], latent_size: int, width: int) -> tf.keras.Model:
    """`[B, latent_size]` -> `[B, *example_shape]`; images in [-1, 1], points unbounded."""
    # Pixels are bounded, so tanh; points may lie anywhere.
    activation = "tanh" if len(example_shape) == 3 else None
    return tf.keras.Sequential(
        [
            tf.keras.Input([latent_size]),
            *_hidden_layers(width),
            tf.keras.layers.Dense(math.prod(example_shape), activation=activation),
            tf.keras.layers.Reshape(example_shape),
        ],
        name="generator",
    )


def critic(
    example_shape: tuple[int, ...], width: int, normalization: str = "none"
) -> tf.keras.Model:
    """`[B, *example_shape]` -> scores `[B, 1]`, unbounded."""
    return tf.keras.Sequential(
        [
            tf.keras.Input(example_shape),
            tf.keras.layers.Flatten(),
            *_hidden_layers(width, normalization),
            tf.keras.layers.Dense(1),
        ],
        name="critic",
    )


def _hidden_layers(width: int, kind: str = "none") -> list[tf.keras.layers.Layer]:
    layers = []
    for _ in range(HIDDEN_LAYERS):
        layers += [
            tf.keras.layers.Dense(width, kernel_initializer="he_uniform"),
            *normalization_layers(kind),
            LeakyReLU(0.0),  # plain ReLU, cheap to differentiate twice
        ]
    return layers
