"""Fully connected networks for 2-D points and small images.

With `width` 512 and the default `depth`, these are the networks for toy data in the code of
Gulrajani et al. 2017 (arXiv:1704.00028, figure 1a): three hidden ReLU layers without
normalization. With `depth` 4, the generator is that of its figure 2, third row.
"""

import math

import tensorflow as tf

from . import heads, normalization
from .activations import critic_activation, generator_activation
from .convolutions import Dense
from .design import Design


def generator(design: Design) -> tf.keras.Model:
    """Builds the generator, which maps latents and any labels to `[B, *example_shape]`.

    It has `depth` hidden layers of `generator_width` units, without normalization. Images are in
    [-1, 1].
    """
    latents = tf.keras.Input([design.latent_size], name="latents")
    labels = heads.label_input(design)
    x = latents
    if labels:
        x = tf.keras.layers.Concatenate(name="latents_and_labels")([x, _vectors(design, labels[0])])
    for index in range(1, design.depth + 1):
        x = _dense(design, design.generator_width, f"dense_{index}")(x)
        x = generator_activation(
            design.activation, name=f"activation_{index}", dtype=design.precision
        )(x)
    x = Dense(math.prod(design.example_shape), dtype="float32", name="example")(x)
    x = tf.keras.layers.Reshape(design.example_shape, dtype="float32", name="reshape")(x)
    if len(design.example_shape) == 3:  # pixels are bounded; points may lie anywhere
        x = tf.keras.layers.Activation("tanh", dtype="float32", name="tanh")(x)
    return tf.keras.Model([latents, *labels] if labels else latents, x, name="generator")


def critic(design: Design) -> tf.keras.Model:
    """Builds the critic, which maps `[B, *example_shape]` to the outputs described in heads.

    It has `depth` hidden layers of `width` units.
    """
    examples = tf.keras.Input(design.example_shape, name="examples")
    x = tf.keras.layers.Flatten(dtype=design.precision, name="flatten")(examples)
    labels = heads.critic_labels(design)
    if design.conditioning == "concatenation":
        x = tf.keras.layers.Concatenate(dtype="float32", name="with_labels")(
            [x, _vectors(design, labels[0])]
        )
    normalize = normalization.critic_normalizer(design)
    for index in range(1, design.depth + 1):
        spectral = design.critic_normalization == "spectral"
        x = _dense(design, design.width, f"dense_{index}", spectral=spectral)(x)
        x = normalize(x, f"normalization_{index}")
        x = critic_activation(
            design.activation, name=f"activation_{index}", dtype=design.precision
        )(x)
    return heads.critic(design, [examples, *labels], x)


@tf.keras.utils.register_keras_serializable("wgan_gp")
class OneHot(tf.keras.layers.Layer):
    """One-hot encoding of labels, `[B]` -> `[B, classes]`."""

    def __init__(self, classes: int, **kwargs):
        super().__init__(**kwargs)
        self.classes = classes

    def call(self, labels: tf.Tensor) -> tf.Tensor:
        return tf.one_hot(labels, self.classes)

    def get_config(self) -> dict:
        return {**super().get_config(), "classes": self.classes}


def _vectors(design: Design, labels: tf.Tensor) -> tf.Tensor:
    """Returns the one-hot encoding of labels, or conditions as they are."""
    return OneHot(design.classes, name="one_hot")(labels) if design.classes else labels


def _dense(design: Design, units: int, name: str, **kwargs) -> Dense:
    return Dense(
        units, kernel_initializer="he_uniform", dtype=design.precision, name=name, **kwargs
    )
