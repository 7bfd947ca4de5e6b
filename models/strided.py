"""DCGANs along any number of axes: the structure of dcgan, conv1d and conv3d.

The convolutions of the critic reduce the features to a few positions, and those of the generator
are their transposes, with twice the channels at each further reduction. Normalization precedes each
activation, except after the first convolution of the critic, as in the code of Gulrajani et al.
2017 (arXiv:1704.00028).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from . import heads, normalization
from .activations import critic_activation, generator_activation
from .convolutions import Dense
from .design import Design
from .minibatch import with_deviation

LEAK = 0.2

Shape = tuple[int, ...]
# Maps the shape of features to the arguments "kernel_size" and "strides" of the layer between them
# and the next smaller features.
Window = Callable[[Shape], dict[str, Any]]
Layer = Callable[..., tf.keras.layers.Layer]  # a class of layers


def generator(
    design: Design, shapes: Sequence[Shape], window: Window, layer: Layer, name: str
) -> tf.keras.Model:
    """Builds a generator, which maps latents and any labels to examples `[B, *sides, C]`.

    It has `generator_width` channels at the first reduction of the sides, twice as many at the
    second, and so on. If `generator_channels` is "constant", the number is the same everywhere.

    Args:
      design: Specification of the networks.
      shapes: The shapes of the features without channels, from that of an example to the smallest.
      window: See `Window`.
      layer: A transposed convolution, which also takes the shape of its output as `sides`.
      name: The name of the last layer.
    """
    growth = 2 if design.generator_channels == "doubling" else 1
    filters = [design.generator_width * growth**index for index in range(len(shapes) - 1)]
    latents = tf.keras.Input([design.latent_size], name="latents")
    labels = heads.label_input(design)
    normalize = normalization.generator_normalizer(design, labels)

    def activated(x: tf.Tensor, number: int) -> tf.Tensor:
        x = normalize(x, f"normalization_{number}")
        return generator_activation(
            design.activation, name=f"activation_{number}", dtype=design.precision
        )(x)

    smallest = [*shapes[-1], filters[-1]]
    x = heads.with_conditions(design, latents, labels)
    x = Dense(math.prod(smallest), dtype=design.precision, name="dense")(x)
    x = tf.keras.layers.Reshape(smallest, dtype=design.precision, name="reshape")(x)
    x = activated(x, 0)
    for number, sides in enumerate(shapes[-2:0:-1], start=1):
        convolution = layer(
            filters[-1 - number],
            **window(sides),
            sides=sides,
            # Batch normalization would subtract the bias of a convolution again.
            use_bias=design.generator_normalization != "batch",
            dtype=design.precision,
            name=f"conv_{number}",
        )
        x = activated(convolution(x), number)
    x = layer(
        design.example_shape[-1],
        **window(shapes[0]),
        sides=shapes[0],
        dtype=design.precision,
        name=name,
    )(x)
    x = heads.bounded(design, x)
    return tf.keras.Model([latents, *labels] if labels else latents, x, name="generator")


def critic(
    design: Design, shapes: Sequence[Shape], window: Window, layer: Layer, name: str
) -> tf.keras.Model:
    """Builds a critic, which maps examples `[B, *sides, C]` to the outputs described in heads.

    It has `model_width` channels at the first reduction of the sides, twice as many at the second,
    and so on.

    Args:
      design: Specification of the networks.
      shapes: The shapes of the features without channels, from that of an example to the smallest.
      window: See `Window`.
      layer: A convolution.
      name: The name of the input.
    """
    examples = tf.keras.Input(design.example_shape, name=name)
    labels = heads.critic_labels(design)
    x = heads.concatenated(design, examples, labels)
    normalize = normalization.critic_normalizer(design)
    for index, sides in enumerate(shapes[:-1]):
        if index == len(shapes) - 2:
            x = with_deviation(design, x)
        x = layer(
            design.model_width * 2**index,
            **window(sides),
            bias_canceled=index > 0 and design.critic_normalization == "instance",
            spectral=design.critic_normalization == "spectral",
            dtype=design.precision,
            name=f"conv_{index + 1}",
        )(x)
        if index:  # not after the first convolution, as in the paper's code
            x = normalize(x, f"normalization_{index + 1}")
        x = critic_activation(
            design.activation, LEAK, name=f"activation_{index + 1}", dtype=design.precision
        )(x)
    x = tf.keras.layers.Flatten(dtype=design.precision, name="flatten")(x)
    return heads.critic(design, [examples, *labels], x)
