"""The residual networks of Gulrajani et al. 2017 (arXiv:1704.00028).

For 32 pixels, it is the network of the paper's CIFAR-10 experiments: the number of channels is
constant, and the critic ends in the mean over all pixels, or in their sum if `critic_pooling` is
"sum", as in SNGAN (Miyato et al. 2018, arXiv:1802.05957).

For 48, 64 and 128 pixels, it is the paper's network for larger images: `model_width` channels at
full size, twice as many at half the size, and so on up to eight times; the critic ends in a linear
layer. The paper uses 64 and 128 pixels, `model_width` 64 and layer normalization in the critic.

Residual blocks are pre-activation blocks (He et al. 2016, arXiv:1603.05027): normalization,
activation, convolution, normalization, activation, convolution. The shortcut starts from the
input of the block. The 3x3 kernels of the residual path are initialized uniformly with variance
4 / (fan_in + fan_out), all other kernels with half this variance.

At the size `attention`, self-attention follows the block of the generator, and the block of the
critic, whose output first has this size (Zhang et al. 2018, SAGAN, arXiv:1805.08318).

For a rectangle, the shorter side decides about all of this. The other side is halved as often.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import tensorflow as tf

from . import heads, normalization
from .activations import critic_activation, generator_activation
from .attention import with_attention
from .convolutions import Conv2D, ConvMeanPool, Dense, Linear, UpsampleConv, he_uniform
from .design import Design
from .minibatch import with_deviation


def generator(design: Design) -> tf.keras.Model:
    """Builds the generator, which maps latents and any labels to images `[B, H, W, C]`.

    The description above applies with `generator_width` in place of `model_width`.
    """
    shorter = min(design.example_shape[:2])
    channels = _channels(shorter, design.generator_width)[::-1]
    base = [side // 2 ** (len(channels) - 1) for side in design.example_shape[:2]]
    latents = tf.keras.Input([design.latent_size], name="latents")
    labels = heads.label_input(design)
    block = _Block(design, normalization.generator_normalizer(design, labels), in_generator=True)
    shape = [*base, channels[0]]
    x = heads.with_conditions(design, latents, labels)
    x = Dense(math.prod(shape), dtype=design.precision, name="linear")(x)
    x = tf.keras.layers.Reshape(shape, dtype=design.precision, name="reshape")(x)
    for index, filters in enumerate(channels[1:], start=1):
        x = block.attend(block(x, filters, f"up_{index}", resample="up"))
    x = normalization.generator_normalizer(design)(x, "normalization")
    x = generator_activation(design.activation, name="activation", dtype=design.precision)(x)
    x = Conv2D(design.example_shape[2], 3, dtype=design.precision, name="image")(x)
    x = heads.bounded(design, x)
    return tf.keras.Model([latents, *labels] if labels else latents, x, name="generator")


def critic(design: Design) -> tf.keras.Model:
    """Builds the critic, which maps images `[B, H, W, C]` to the outputs described in heads."""
    shorter = min(design.example_shape[:2])
    channels = _channels(shorter, design.model_width)
    images = tf.keras.Input(design.example_shape, name="images")
    labels = heads.critic_labels(design)
    x = heads.concatenated(design, images, labels)
    block = _Block(design, normalization.critic_normalizer(design))
    if shorter == SMALL:
        x = block.attend(block.first(x, channels[1], "down_1"))
        x = block.attend(block(x, channels[2], "down_2", resample="down"))
        x = block(x, channels[2], "block_3")
        x = block(with_deviation(design, x), channels[2], "block_4")
        x = critic_activation(design.activation, name="activation", dtype=design.precision)(x)
        pixels = math.prod(x.shape[1:3])
        x = tf.keras.layers.GlobalAveragePooling2D(dtype="float32", name="mean")(x)
        if design.critic_pooling == "sum":
            x = tf.keras.layers.Rescaling(float(pixels), dtype="float32", name="sum")(x)
    else:
        x = Conv2D(channels[0], 3, spectral=block.spectral, dtype=design.precision, name="conv")(x)
        for index, filters in enumerate(channels[1:], start=1):
            if index == len(channels) - 1:
                x = with_deviation(design, x)
            x = block.attend(block(x, filters, f"down_{index}", resample="down"))
        x = tf.keras.layers.Flatten(dtype=design.precision, name="flatten")(x)
    return heads.critic(design, [images, *labels], x)


SMALL = 32  # shorter side in pixels of the images of the CIFAR-10 network


def _channels(size: int, width: int) -> list[int]:
    """Returns the number of channels at full size, at half of it, and so on.

    The shorter side of the smallest feature map has 4 pixels; for images of 48 pixels, it has 6.

    Args:
      size: The shorter side of the images, in pixels.
      width: The number of channels at full size.
    """
    if size == SMALL:
        return [width] * 4
    return [width * min(8, 2**index) for index in range((size // 4).bit_length())]


@dataclasses.dataclass(frozen=True)
class _Block:
    """A builder of residual blocks.

    Attributes:
      design: Specification of the networks.
      normalize: Maps (features, name) to normalized features.
      in_generator: Whether the blocks belong to a generator. There, batch normalization precedes
        every activation and follows the last block, so that it cancels the biases of all blocks:
        they reach it along the shortcuts as constants. Attention depends on such constants, but its
        scale is zero at first, when the gradient of these biases would be a rounding error.
    """

    design: Design
    normalize: normalization.Normalize
    in_generator: bool = False

    def __call__(
        self, x: tf.Tensor, filters: int, name: str, *, resample: str | None = None
    ) -> tf.Tensor:
        """Applies a new residual block.

        Args:
          x: Features, `[B, H, W, C]`.
          filters: Number of output channels.
          name: Prefix of the names of the layers.
          resample: "up" to upsample before the first convolution and in the shortcut, "down" to
            mean-pool after the second convolution and in the shortcut, or None.

        Returns:
          Features with `filters` channels, of twice, half or the same height and width. The first
          convolution changes the number of channels if `resample` is "up", else the second.
        """
        before = filters if resample == "up" else x.shape[-1]
        h = self._activated(x, name, 1)
        h = self._conv(
            before, 3, "up" if resample == "up" else None, f"{name}_conv_1", he_uniform()
        )(h)
        h = self._activated(h, name, 2)
        h = self._conv(
            filters, 3, "down" if resample == "down" else None, f"{name}_conv_2", he_uniform()
        )(h)
        if resample or x.shape[-1] != filters:
            x = self._conv(filters, 1, resample, f"{name}_shortcut")(x)
        return self._add(h, x, name)

    def first(self, images: tf.Tensor, filters: int, name: str) -> tf.Tensor:
        """Applies the first block of a critic, which starts with a convolution of the images."""
        h = self._conv(filters, 3, None, f"{name}_conv_1", he_uniform())(images)
        h = critic_activation(
            self.design.activation,
            after_few_channels=True,
            name=f"{name}_activation",
            dtype=self.design.precision,
        )(h)
        h = self._conv(filters, 3, "down", f"{name}_conv_2", he_uniform())(h)
        shortcut = self._conv(filters, 1, "down", f"{name}_shortcut")(images)
        return self._add(h, shortcut, name)

    def attend(self, x: tf.Tensor) -> tf.Tensor:
        """Applies self-attention to the output of a block of the size Design.attention."""
        return with_attention(self.design, x, spectral=self.spectral)

    @property
    def spectral(self) -> bool:
        return not self.in_generator and self.design.critic_normalization == "spectral"

    def _activated(self, x: tf.Tensor, name: str, number: int) -> tf.Tensor:
        x = self.normalize(x, f"{name}_norm_{number}")
        activate = generator_activation if self.in_generator else critic_activation
        return activate(
            self.design.activation, name=f"{name}_activation_{number}", dtype=self.design.precision
        )(x)

    def _add(self, h: tf.Tensor, x: tf.Tensor, name: str) -> tf.Tensor:
        return tf.keras.layers.Add(dtype=self.design.precision, name=f"{name}_add")([h, x])

    def _conv(
        self,
        filters: int,
        size: int,
        resample: str | None,
        name: str,
        initializer: str | tf.keras.initializers.Initializer = "glorot_uniform",
    ) -> Linear:
        options: dict[str, Any] = {
            "kernel_initializer": initializer,
            "bias_canceled": self.in_generator and self.design.generator_normalization == "batch",
            "spectral": self.spectral,
            "dtype": self.design.precision,
            "name": name,
        }
        if resample is None:
            return Conv2D(filters, size, **options)
        layer = UpsampleConv if resample == "up" else ConvMeanPool
        return layer(filters, size, fused=self.design.fused_resampling, **options)
