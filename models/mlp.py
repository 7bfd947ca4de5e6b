"""Fully connected networks for examples of any shape, such as points and small images.

With `model_width` 512 and the default `model_depth`, these are the networks for toy data in the
code of Gulrajani et al. 2017 (arXiv:1704.00028, figure 1a): three hidden ReLU layers without
normalization. With `model_depth` 4, the generator is that of its figure 2, third row.
"""

import math

import tensorflow as tf

from . import heads, normalization, one_hot
from .activations import critic_activation, generator_activation
from .convolutions import Dense
from .design import Design
from .minibatch import with_deviation


def generator(design: Design) -> tf.keras.Model:
    """Builds the generator, which maps latents and any labels to `[B, *example_shape]`.

    It has `model_depth` hidden layers of `generator_width` units, without normalization.
    """
    latents = tf.keras.Input([design.latent_size], name="latents")
    labels = heads.label_input(design)
    code, noise = one_hot.split_noise(design, latents) if design.one_hot else (latents, None)
    if design.classes:
        vectors = heads.label_vectors(design, labels)
        concatenate = tf.keras.layers.Concatenate(dtype="float32", name="latents_and_labels")
        x = concatenate([code, vectors])
    else:
        x = heads.with_conditions(design, code, labels)
    for index in range(1, design.model_depth + 1):
        x = _dense(design, design.generator_width, f"dense_{index}")(x)
        x = generator_activation(
            design.activation, name=f"activation_{index}", dtype=design.precision
        )(x)
    x = Dense(math.prod(design.example_shape), dtype="float32", name="example")(x)
    x = tf.keras.layers.Reshape(design.example_shape, dtype="float32", name="reshape")(x)
    if len(design.example_shape) > 1:  # a point may lie anywhere
        x = heads.bounded(design, x)
    if design.one_hot:
        groups = one_hot.OneHotGroups(
            design.one_hot,
            design.masked,
            design.label_features if design.classes else (),
            dtype="float32",
            name="one_hot_groups",
        )
        x = groups([x, noise, *labels])
    return tf.keras.Model([latents, *labels] if labels else latents, x, name="generator")


def critic(design: Design) -> tf.keras.Model:
    """Builds the critic, which maps `[B, *example_shape]` to the outputs described in heads.

    It has `model_depth` hidden layers of `model_width` units.
    """
    examples = tf.keras.Input(design.example_shape, name="examples")
    x = tf.keras.layers.Flatten(dtype=design.precision, name="flatten")(examples)
    labels = heads.critic_labels(design)
    x = heads.concatenated(design, x, labels)
    normalize = normalization.critic_normalizer(design)
    for index in range(1, design.model_depth + 1):
        if index == design.model_depth:
            x = with_deviation(design, x)
        spectral = design.critic_normalization == "spectral"
        x = _dense(design, design.model_width, f"dense_{index}", spectral=spectral)(x)
        x = normalize(x, f"normalization_{index}")
        x = critic_activation(
            design.activation, name=f"activation_{index}", dtype=design.precision
        )(x)
    return heads.critic(design, [examples, *labels], x)


def _dense(design: Design, units: int, name: str, **kwargs) -> Dense:
    return Dense(
        units, kernel_initializer="he_uniform", dtype=design.precision, name=name, **kwargs
    )
