"""The residual networks of R3GAN (Huang et al. 2024, arXiv:2501.05441, section 3).

There are `model_width` channels at full size, twice as many at half the size, and so on up to eight
times, and `model_depth` residual blocks at each size. A block has no normalization. It consists of
a 1x1 convolution to twice the channels, a 3x3 convolution in groups of 16 channels and a 1x1
convolution, with leaky ReLU between them. Kernels have the variance of He initialization for their
fan-in. Those of the first two convolutions are scaled by L^(-1/4) for L blocks, and the last
convolution of each block is initially zero, as in Fixup (Zhang et al. 2019, arXiv:1901.09321). The
critic is therefore a linear function before the first update.

The generator starts from learned features of 4x4 pixels, whose channels are scaled by a linear
function of the latents. Mirrored to this, the critic ends in a learned weighted sum over the 4x4
pixels of each channel, and a linear layer.

The paper resamples bilinearly, followed or preceded by a 1x1 convolution. This module uses the
resampling of convolutions (nearest-neighbor, mean pooling), which can be differentiated twice, and
which is one operation in the fused form.

For a rectangle, the shorter side decides about the number of sizes. The other side is halved as
often.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import tensorflow as tf

from . import heads
from .activations import critic_activation
from .convolutions import Conv2D, ConvMeanPool, Dense, UpsampleConv
from .design import Design
from .grouped import GroupedConv2D
from .minibatch import with_deviation

LEAK = 0.2
EXPANSION = 2
GROUP_SIZE = 16


def generator(design: Design) -> tf.keras.Model:
    """Builds the generator, which maps latents and any labels to images `[B, H, W, C]`.

    The description above applies with `generator_width` in place of `model_width`. Labels are
    concatenated with the latents as one-hot vectors, conditions as they are.
    """
    channels = _channels(design, design.generator_width)[::-1]
    base = [side // 2 ** (len(channels) - 1) for side in design.example_shape[:2]]
    latents = tf.keras.Input([design.latent_size], name="latents")
    labels = heads.label_input(design)
    x = latents
    if labels:
        vectors = heads.label_vectors(design, labels)
        concatenate = tf.keras.layers.Concatenate(dtype="float32", name="latents_and_labels")
        x = concatenate([latents, vectors])
    stage = _Stage(design, blocks=design.model_depth * len(channels))
    x = Dense(
        channels[0],
        use_bias=False,
        kernel_initializer=_initializer(),
        dtype=design.precision,
        name="scales",
    )(x)
    x = GenerativeBasis(base, dtype=design.precision, name="basis")(x)
    for index, filters in enumerate(channels):
        if index:
            x = UpsampleConv(
                filters, 1, fused=design.fused_resampling, **stage.plain(f"up_{index}")
            )(x)
        x = stage(x, f"stage_{index}")
    x = Conv2D(design.example_shape[2], 1, **stage.plain("image"))(x)
    x = heads.bounded(design, x)
    return tf.keras.Model([latents, *labels] if labels else latents, x, name="generator")


def critic(design: Design) -> tf.keras.Model:
    """Builds the critic, which maps images `[B, H, W, C]` to the outputs described in heads."""
    channels = _channels(design, design.model_width)
    images = tf.keras.Input(design.example_shape, name="images")
    labels = heads.critic_labels(design)
    stage = _Stage(design, blocks=design.model_depth * len(channels))
    x = heads.concatenated(design, images, labels)
    x = Conv2D(channels[0], 1, **stage.plain("from_image"))(x)
    for index, filters in enumerate(channels):
        if index == len(channels) - 1:
            x = with_deviation(design, x)
        if index:
            x = ConvMeanPool(
                filters, 1, fused=design.fused_resampling, **stage.plain(f"down_{index}")
            )(x)
        x = stage(x, f"stage_{index}")
    x = DiscriminativeBasis(dtype="float32", name="basis")(x)
    return heads.critic(design, [images, *labels], x)


def _channels(design: Design, width: int) -> list[int]:
    """Returns the number of channels at full size, at half of it, and so on."""
    sizes = (min(design.example_shape[:2]) // 4).bit_length()
    return [width * min(8, 2**index) for index in range(sizes)]


def _initializer(gain: float = 1.0) -> tf.keras.initializers.Initializer:
    """Returns a normal initializer of standard deviation gain / sqrt(fan_in)."""
    return tf.keras.initializers.VarianceScaling(gain**2, "fan_in", "untruncated_normal")


@dataclasses.dataclass(frozen=True)
class _Stage:
    """A builder of the residual blocks at one size.

    Attributes:
      design: Specification of the networks.
      blocks: Number of blocks of the whole network, L in the description above.
    """

    design: Design
    blocks: int

    def __call__(self, x: tf.Tensor, name: str) -> tf.Tensor:
        """Applies new residual blocks, `[B, H, W, C]` -> `[B, H, W, C]`."""
        for index in range(self.design.model_depth):
            x = self._block(x, f"{name}_block_{index + 1}")
        return x

    def plain(self, name: str) -> dict[str, Any]:
        """Returns the arguments of a convolution that no activation follows."""
        return {
            "use_bias": False,
            "kernel_initializer": _initializer(),
            "dtype": self.design.precision,
            "name": name,
        }

    def _block(self, x: tf.Tensor, name: str) -> tf.Tensor:
        filters = x.shape[-1]
        expanded = EXPANSION * filters
        gain = math.sqrt(2 / (1 + LEAK**2)) * self.blocks ** (-1 / 4)
        options: dict[str, Any] = {"dtype": self.design.precision}
        h = Conv2D(
            expanded, 1, kernel_initializer=_initializer(gain), name=f"{name}_conv_1", **options
        )(x)
        h = self._activation(f"{name}_activation_1")(h)
        h = GroupedConv2D(
            expanded,
            3,
            group_size=math.gcd(expanded, GROUP_SIZE),
            kernel_initializer=_initializer(gain),
            name=f"{name}_conv_2",
            **options,
        )(h)
        h = self._activation(f"{name}_activation_2")(h)
        last = {**self.plain(f"{name}_conv_3"), "kernel_initializer": "zeros"}
        h = Conv2D(filters, 1, **last)(h)
        return tf.keras.layers.Add(name=f"{name}_add", **options)([x, h])

    def _activation(self, name: str) -> tf.keras.layers.Layer:
        return critic_activation(
            self.design.activation, LEAK, name=name, dtype=self.design.precision
        )


@tf.keras.utils.register_keras_serializable("wgan_gp")
class GenerativeBasis(tf.keras.layers.Layer):
    """Learned features, scaled for each channel and example, `[B, C]` -> `[B, H, W, C]`.

    Args:
      size: Height and width of the features.
      kwargs: Arguments of the layer, such as its name.
    """

    def __init__(self, size: list[int], **kwargs):
        super().__init__(**kwargs)
        self.size = list(size)

    def build(self, input_shape):
        self.basis = self.add_weight(
            name="basis",
            shape=[*self.size, input_shape[-1]],
            initializer=tf.keras.initializers.RandomNormal(stddev=1.0),
        )
        super().build(input_shape)

    def call(self, scales: tf.Tensor) -> tf.Tensor:
        basis = tf.cast(tf.convert_to_tensor(self.basis), scales.dtype)
        return scales[:, None, None, :] * basis

    def get_config(self) -> dict:
        return {**super().get_config(), "size": self.size}


@tf.keras.utils.register_keras_serializable("wgan_gp")
class DiscriminativeBasis(tf.keras.layers.Layer):
    """Learned weighted sum over all pixels of each channel, `[B, H, W, C]` -> `[B, C]` float32."""

    def __init__(self, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})

    def build(self, input_shape):
        size = list(input_shape[1:])
        spread = 1 / math.sqrt(size[0] * size[1])
        self.basis = self.add_weight(
            name="basis",
            shape=size,
            initializer=tf.keras.initializers.RandomNormal(stddev=spread),
        )
        super().build(input_shape)

    def call(self, features: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(features * tf.convert_to_tensor(self.basis), axis=[1, 2])
