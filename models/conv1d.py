"""Convolutional networks for signals `(T, C)`, such as time series, spectra and sound.

WaveGAN (Donahue et al. 2019, arXiv:1802.04208): a DCGAN of one-dimensional convolutions, whose
5x5 kernels with stride 2 become kernels of 25 steps with stride 4, with twice the channels at a
quarter of the length. For T = 16384, the feature maps have the paper's lengths and channels, from
`model_width` (64) at a quarter of the length to 16 times as many at 16 steps. Differences: the
batch normalization of the generator and the normalizations of the critic are those of dcgan, phase
shuffling is not implemented, and any length of at least 4 steps is supported.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from . import heads, normalization
from .activations import critic_activation, generator_activation
from .convolutions import Dense, Linear
from .design import Design
from .minibatch import with_deviation

LEAK = 0.2
KERNEL = 25
STRIDE = 4
SMALLEST = 16  # steps; longer feature maps are reduced further


def generator(design: Design) -> tf.keras.Model:
    """Builds the generator, which maps latents and any labels to signals `[B, T, C]`.

    It has `generator_width` channels at the first reduction of the length, twice as many at the
    second, and so on. If `generator_channels` is "constant", the number is the same at all lengths.
    """
    lengths = reductions(design.example_shape[0])
    growth = 2 if design.generator_channels == "doubling" else 1
    filters = [design.generator_width * growth**index for index in range(len(lengths) - 1)]
    latents = tf.keras.Input([design.latent_size], name="latents")
    labels = heads.label_input(design)
    normalize = normalization.generator_normalizer(design, labels)

    def activated(x: tf.Tensor, number: int) -> tf.Tensor:
        x = normalize(x, f"normalization_{number}")
        return generator_activation(
            design.activation, name=f"activation_{number}", dtype=design.precision
        )(x)

    shape = [lengths[-1], filters[-1]]
    x = heads.with_conditions(design, latents, labels)
    x = Dense(math.prod(shape), dtype=design.precision, name="dense")(x)
    x = tf.keras.layers.Reshape(shape, dtype=design.precision, name="reshape")(x)
    x = activated(x, 0)
    for number, length in enumerate(lengths[-2:0:-1], start=1):
        layer = TransposedConv1D(
            filters[-1 - number],
            **_window(length),
            length=length,
            # Batch normalization would subtract the bias of a convolution again.
            use_bias=design.generator_normalization != "batch",
            dtype=design.precision,
            name=f"conv_{number}",
        )
        x = activated(layer(x), number)
    x = TransposedConv1D(
        design.example_shape[1],
        **_window(lengths[0]),
        length=lengths[0],
        dtype=design.precision,
        name="signal",
    )(x)
    x = heads.bounded(design, x)
    return tf.keras.Model([latents, *labels] if labels else latents, x, name="generator")


def critic(design: Design) -> tf.keras.Model:
    """Builds the critic, which maps signals `[B, T, C]` to the outputs described in heads.

    It has `model_width` channels at the first reduction of the length, twice as many at the
    second, and so on.
    """
    signals = tf.keras.Input(design.example_shape, name="signals")
    labels = heads.critic_labels(design)
    x = heads.concatenated(design, signals, labels)
    normalize = normalization.critic_normalizer(design)
    lengths = reductions(design.example_shape[0])[:-1]
    for index, length in enumerate(lengths):
        if index == len(lengths) - 1:
            x = with_deviation(design, x)
        x = Conv1D(
            design.model_width * 2**index,
            **_window(length),
            bias_cancelled=index > 0 and design.critic_normalization == "instance",
            spectral=design.critic_normalization == "spectral",
            dtype=design.precision,
            name=f"conv_{index + 1}",
        )(x)
        if index:  # not after the first convolution, as in dcgan
            x = normalize(x, f"normalization_{index + 1}")
        x = critic_activation(
            design.activation, LEAK, name=f"activation_{index + 1}", dtype=design.precision
        )(x)
    x = tf.keras.layers.Flatten(dtype=design.precision, name="flatten")(x)
    return heads.critic(design, [signals, *labels], x)


def reductions(length: int) -> list[int]:
    """Returns the lengths of the feature maps, from `length` to SMALLEST or less.

    Each is that of the previous one, divided by its stride and rounded up. There are at least two
    reductions, so that a critic of short signals has hidden layers.
    """
    lengths = [length]
    while lengths[-1] > SMALLEST or len(lengths) < 3:
        lengths.append(-(-lengths[-1] // _window(lengths[-1])["strides"]))
    return lengths


def _window(length: int) -> dict[str, int]:
    """Returns the kernel size and the stride between features of `length` steps and shorter ones.

    Features of fewer than SMALLEST steps are halved, and fewer than four steps are kept, so that
    two reductions leave at least two steps: instance normalization of one step would be constant.
    A kernel of more than 2 `length` - 1 steps would have weights that multiply only padding.
    """
    strides = STRIDE if length >= SMALLEST else 2 if length >= 4 else 1
    return {"kernel_size": min(KERNEL, 2 * length - 1), "strides": strides}


@tf.keras.utils.register_keras_serializable("wgan_gp")
class Conv1D(Linear):
    """A convolution with SAME padding, `[B, T, I]` -> `[B, T/strides, filters]`."""

    def __init__(self, filters: int, kernel_size: int, *, strides: int = 1, **kwargs):
        super().__init__(filters, **kwargs)
        self.kernel_size = kernel_size
        self.strides = strides

    @property
    def window(self) -> list[int]:
        return [self.kernel_size]

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return tf.nn.conv1d(inputs, kernel, self.strides, "SAME")

    def get_config(self) -> dict:
        own = {"kernel_size": self.kernel_size, "strides": self.strides}
        return {**super().get_config(), **own}


@tf.keras.utils.register_keras_serializable("wgan_gp")
class TransposedConv1D(Conv1D):
    """The transpose of a `Conv1D` of `length` steps, `[B, T, I]` -> `[B, length, filters]`.

    Args:
      filters, kernel_size, strides: See `Conv1D`.
      length: Number of steps of the output, whose quotient by `strides`, rounded up, is T.
      kwargs: Further arguments of `Linear`.
    """

    def __init__(self, filters: int, kernel_size: int, *, length: int, **kwargs: Any):
        super().__init__(filters, kernel_size, **kwargs)
        self.length = length

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        # As an image of height 1: unlike tf.nn.conv1d_transpose, this keeps the static shape.
        outputs = tf.nn.conv2d_transpose(
            inputs[:, None],
            tf.transpose(kernel[None], [0, 1, 3, 2]),
            [tf.shape(inputs)[0], 1, self.length, self.filters],
            [1, self.strides],
            "SAME",
        )
        return outputs[:, 0]

    def get_config(self) -> dict:
        return {**super().get_config(), "length": self.length}
