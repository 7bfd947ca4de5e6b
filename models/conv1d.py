"""Convolutional networks for signals `(T, C)`, such as time series, spectra and sound.

WaveGAN (Donahue et al. 2019, arXiv:1802.04208): a DCGAN of one-dimensional convolutions, whose
5x5 kernels with stride 2 become kernels of 25 steps with stride 4, with twice the channels at a
quarter of the length. For T = 16384, the feature maps have the paper's lengths and channels, from
`model_width` (64) at a quarter of the length to 16 times as many at 16 steps. Differences: the
batch normalization of the generator and the normalizations of the critic are those of dcgan, phase
shuffling is not implemented, and any length of at least 4 steps is supported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from . import strided
from .convolutions import Linear
from .design import Design

KERNEL = 25
STRIDE = 4
SMALLEST = 16  # steps; longer feature maps are reduced further


def generator(design: Design) -> tf.keras.Model:
    """Builds the generator, which maps latents and any labels to signals `[B, T, C]`."""
    shapes = [(length,) for length in reductions(design.example_shape[0])]
    return strided.generator(design, shapes, _window, TransposedConv1D, "signal")


def critic(design: Design) -> tf.keras.Model:
    """Builds the critic, which maps signals `[B, T, C]` to the outputs described in heads."""
    shapes = [(length,) for length in reductions(design.example_shape[0])]
    return strided.critic(design, shapes, _window, Conv1D, "signals")


def reductions(length: int) -> list[int]:
    """Returns the lengths of the feature maps, from `length` to SMALLEST or less.

    Each is that of the previous one, divided by its stride and rounded up. There are at least two
    reductions, so that a critic of short signals has hidden layers.
    """
    lengths = [length]
    while lengths[-1] > SMALLEST or len(lengths) < 3:
        lengths.append(-(-lengths[-1] // _window(lengths[-1:])["strides"]))
    return lengths


def _window(sides: Sequence[int]) -> dict[str, int]:
    """Returns the kernel size and the stride between features of `sides` steps and shorter ones.

    Features of fewer than SMALLEST steps are halved, and fewer than four steps are kept, so that
    two reductions leave at least two steps: instance normalization of one step would be constant.
    A kernel of more than 2 T - 1 steps for T steps would have weights that multiply only padding.
    """
    (length,) = sides
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
    """The transpose of a `Conv1D` of L steps, `[B, T, I]` -> `[B, L, filters]`.

    Args:
      filters, kernel_size, strides: See `Conv1D`.
      sides: `[L]`, the number of steps of the output, whose quotient by `strides`, rounded up, is
        T.
      kwargs: Further arguments of `Linear`.
    """

    def __init__(self, filters: int, kernel_size: int, *, sides: Sequence[int], **kwargs: Any):
        super().__init__(filters, kernel_size, **kwargs)
        self.sides = list(sides)

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        # As an image of height 1: unlike tf.nn.conv1d_transpose, this keeps the static shape.
        outputs = tf.nn.conv2d_transpose(
            inputs[:, None],
            tf.transpose(kernel[None], [0, 1, 3, 2]),
            [tf.shape(inputs)[0], 1, *self.sides, self.filters],
            [1, self.strides],
            "SAME",
        )
        return outputs[:, 0]

    def get_config(self) -> dict:
        return {**super().get_config(), "sides": self.sides}
