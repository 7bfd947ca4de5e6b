"""Convolutional networks for volumes `(D, H, W, C)`, such as scans and calorimeter showers.

3D-GAN (Wu et al. 2016, arXiv:1610.07584): a DCGAN of three-dimensional convolutions with kernels of
4x4x4 and stride 2, with `model_width` (64) channels at half the size and twice as many whenever the
size is halved. For 64x64x64 voxels, the features have the paper's sizes and channels from 32 to 4
voxels a side. Differences: the last layer of the critic is linear in features of 4 voxels a side,
the normalizations are those of dcgan, and sides may differ: each is halved on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from . import strided
from .convolutions import Linear
from .design import Design

KERNEL = 4
SMALLEST = 4  # voxels a side; features with a longer side are reduced further


def generator(design: Design) -> tf.keras.Model:
    """Builds the generator, which maps latents and any labels to volumes `[B, D, H, W, C]`."""
    shapes = reductions(design.example_shape[:3])
    return strided.generator(design, shapes, _window, TransposedConv3D, "volume")


def critic(design: Design) -> tf.keras.Model:
    """Builds the critic, which maps volumes `[B, D, H, W, C]` to the outputs described in heads."""
    shapes = reductions(design.example_shape[:3])
    return strided.critic(design, shapes, _window, Conv3D, "volumes")


def reductions(sides: Sequence[int]) -> list[tuple[int, ...]]:
    """Returns the sizes of features, from that of an example until no side exceeds SMALLEST.

    Each side is that of the previous features, divided by its stride and rounded up. There are at
    least two reductions, so that a critic of small volumes has hidden layers.
    """
    shapes = [tuple(sides)]
    while max(shapes[-1]) > SMALLEST or len(shapes) < 3:
        strides = _window(shapes[-1])["strides"]
        shapes.append(
            tuple(-(-side // stride) for side, stride in zip(shapes[-1], strides, strict=True))
        )
    return shapes


def _window(sides: Sequence[int]) -> dict[str, Any]:
    """Returns the kernel size and the stride along each side of the features of a layer.

    A side of fewer than four voxels is kept and all others are halved, so that two reductions leave
    at least two voxels: instance normalization of one voxel would be constant. A kernel of more
    than 2 n - 1 voxels for n voxels would have weights that multiply only padding.
    """
    return {
        "kernel_size": [min(KERNEL, 2 * side - 1) for side in sides],
        "strides": [2 if side >= 4 else 1 for side in sides],
    }


@tf.keras.utils.register_keras_serializable("wgan_gp")
class Conv3D(Linear):
    """A convolution with SAME padding, `[B, D, H, W, I]` -> `[B, D/s, H/s, W/s, filters]`.

    Args:
      filters: Number of output channels.
      kernel_size: The size of the kernel along each of the three axes.
      strides: The stride s along each of the three axes.
      kwargs: Further arguments of `Linear`.
    """

    def __init__(
        self, filters: int, kernel_size: Sequence[int], *, strides: Sequence[int], **kwargs: Any
    ):
        super().__init__(filters, **kwargs)
        self.kernel_size = list(kernel_size)
        self.strides = list(strides)

    @property
    def window(self) -> list[int]:
        return self.kernel_size

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        # In float32: TensorFlow's gradient for a kernel in bfloat16 is wrong on a CPU.
        x, kernel = tf.cast(inputs, tf.float32), tf.cast(kernel, tf.float32)
        return tf.cast(tf.nn.conv3d(x, kernel, [1, *self.strides, 1], "SAME"), inputs.dtype)

    def get_config(self) -> dict:
        own = {"kernel_size": self.kernel_size, "strides": self.strides}
        return {**super().get_config(), **own}


@tf.keras.utils.register_keras_serializable("wgan_gp")
class TransposedConv3D(Conv3D):
    """The transpose of a `Conv3D`, `[B, D/s, H/s, W/s, I]` -> `[B, D, H, W, filters]`.

    Args:
      filters, kernel_size, strides: See `Conv3D`.
      sides: `[D, H, W]`, whose quotients by the strides, rounded up, are the sides of the input.
      kwargs: Further arguments of `Linear`.
    """

    def __init__(
        self, filters: int, kernel_size: Sequence[int], *, sides: Sequence[int], **kwargs: Any
    ):
        super().__init__(filters, kernel_size, **kwargs)
        self.sides = list(sides)

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        # In float32, as in `Conv3D`.
        outputs = tf.nn.conv3d_transpose(
            tf.cast(inputs, tf.float32),
            tf.transpose(tf.cast(kernel, tf.float32), [0, 1, 2, 4, 3]),
            [tf.shape(inputs)[0], *self.sides, self.filters],
            self.strides,
            "SAME",
        )
        outputs = tf.cast(outputs, inputs.dtype)
        return tf.ensure_shape(outputs, [None, *self.sides, self.filters])

    def get_config(self) -> dict:
        return {**super().get_config(), "sides": self.sides}
