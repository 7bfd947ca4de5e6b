"""Fully connected networks, for 2-D points and for small images.

The toy networks of Gulrajani et al. 2017 (arXiv:1704.00028, figure 1a, as in its code): three
hidden ReLU layers in each network, 512 wide, no normalisation. Four such layers are the
generator of its figure 2, third row.
"""

import math

import tensorflow as tf

from . import heads, normalization
from .activations import of_critic, of_generator
from .convolutions import Dense
from .design import Design


def generator(design: Design) -> tf.keras.Model:
    """Latents, and labels beside them -> `[B, *example_shape]`; images in [-1, 1].

    `generator_width` units in each of `depth` hidden layers. It has no normalisation.
    """
    latents = tf.keras.Input([design.latent_size], name="latents")
    labels = heads.label_input(design)
    x = latents
    if labels:
        one_hot = OneHot(design.classes, name="one_hot")
        x = tf.keras.layers.Concatenate(name="latents_and_labels")([x, one_hot(labels[0])])
    for index in range(1, design.depth + 1):
        x = _dense(design, design.generator_width, f"dense_{index}")(x)
        x = of_generator(design.activation, name=f"activation_{index}", dtype=design.precision)(x)
    x = Dense(math.prod(design.example_shape), dtype="float32", name="example")(x)
    x = tf.keras.layers.Reshape(design.example_shape, dtype="float32", name="reshape")(x)
    if len(design.example_shape) == 3:  # pixels are bounded; points may lie anywhere
        x = tf.keras.layers.Activation("tanh", dtype="float32", name="tanh")(x)
    return tf.keras.Model([latents, *labels] if labels else latents, x, name="generator")


def critic(design: Design) -> tf.keras.Model:
    """`[B, *example_shape]` -> scores, see heads; `width` units in `depth` hidden layers."""
    examples = tf.keras.Input(design.example_shape, name="examples")
    x = tf.keras.layers.Flatten(dtype=design.precision, name="flatten")(examples)
    normalize = normalization.of_critic(design)
    for index in range(1, design.depth + 1):
        spectral = design.critic_normalization == "spectral"
        x = _dense(design, design.width, f"dense_{index}", spectral=spectral)(x)
        x = normalize(x, f"normalization_{index}")
        x = of_critic(design.activation, name=f"activation_{index}", dtype=design.precision)(x)
    return heads.critic(design, examples, x)


@tf.keras.utils.register_keras_serializable("wgan_gp")
class OneHot(tf.keras.layers.Layer):
    """Labels `[B]` -> `[B, classes]`, 1 at the label and 0 elsewhere."""

    def __init__(self, classes: int, **kwargs):
        super().__init__(**kwargs)
        self.classes = classes

    def call(self, labels: tf.Tensor) -> tf.Tensor:
        return tf.one_hot(labels, self.classes)

    def get_config(self) -> dict:
        return {**super().get_config(), "classes": self.classes}


def _dense(design: Design, units: int, name: str, **kwargs) -> Dense:
    return Dense(
        units, kernel_initializer="he_uniform", dtype=design.precision, name=name, **kwargs
    )
