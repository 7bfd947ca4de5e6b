"""The 101-layer residual networks of Gulrajani et al. 2017 (arXiv:1704.00028, figure 2).

They consist of bottleneck blocks of three convolutions: `model_depth` blocks at each size, one
fewer at full size, and one block at each change of size. At 64 pixels with `model_depth` 6, these
are 33 blocks, and with the first and the last layer 101 layers. There are `model_width` / 2
channels at full size, `model_width` at half of it, and so on. As in the paper's code, the residual
path of a block ends in normalization and is multiplied by 0.3, and the output of a network is
divided by 5. The shorter side of a rectangle decides about the number of halvings.
"""

from __future__ import annotations

import math

import tensorflow as tf

from models import heads, normalization
from models.activations import critic_activation, generator_activation
from models.convolutions import Conv2D, Dense, he_uniform
from models.design import Design
from models.minibatch import with_deviation

RESIDUAL_SCALE = 0.3
OUTPUT_SCALE = 0.2


def generator(design: Design) -> tf.keras.Model:
    """Builds the generator, which maps latents and any labels to images `[B, H, W, C]`.

    The description above applies with `generator_width` in place of `model_width`.
    """
    channels = _channels(design, design.generator_width)
    base = [side // 2 ** (len(channels) - 1) for side in design.example_shape[:2]]
    latents = tf.keras.Input([design.latent_size], name="latents")
    labels = heads.label_input(design)

    normalize = normalization.generator_normalizer(design, labels)
    shape = [*base, channels[-1]]
    x = heads.with_conditions(design, latents, labels)
    x = Dense(math.prod(shape), dtype=design.precision, name="linear")(x)
    x = tf.keras.layers.Reshape(shape, dtype=design.precision, name="reshape")(x)
    for stage in range(len(channels) - 1, 0, -1):
        x = _plain_blocks(design, x, normalize, design.model_depth, f"stage_{stage}")
        x = _block(design, x, channels[stage - 1], normalize, f"up_{stage}", "up")
    x = _plain_blocks(design, x, normalize, design.model_depth - 1, "stage_0")
    x = Conv2D(design.example_shape[2], 1, dtype=design.precision, name="image")(x)
    x = _scaled(x, OUTPUT_SCALE, "scale", "float32")
    x = heads.bounded(design, x)
    return tf.keras.Model([latents, *labels] if labels else latents, x, name="generator")


def critic(design: Design) -> tf.keras.Model:
    """Builds the critic, which maps images `[B, H, W, C]` to the outputs described in heads."""
    channels = _channels(design, design.model_width)

    normalize = normalization.critic_normalizer(design)
    images = tf.keras.Input(design.example_shape, name="images")
    labels = heads.critic_labels(design)
    x = heads.concatenated(design, images, labels)
    x = _conv(design, channels[0], 1, "conv", "glorot_uniform", critic=True)(x)
    x = _plain_blocks(design, x, normalize, design.model_depth - 1, "stage_0", critic=True)
    for stage, filters in enumerate(channels[1:], start=1):
        if stage == len(channels) - 1:
            x = with_deviation(design, x)
        x = _block(design, x, filters, normalize, f"down_{stage}", "down", critic=True)
        x = _plain_blocks(design, x, normalize, design.model_depth, f"stage_{stage}", critic=True)
    x = tf.keras.layers.Flatten(dtype=design.precision, name="flatten")(x)
    # Scaling the features has the effect of scaling the output of a linear head, for all heads.
    x = _scaled(x, OUTPUT_SCALE, "scale", "float32")
    return heads.critic(design, [images, *labels], x)


def _channels(design: Design, width: int) -> list[int]:
    """Returns the number of channels at full size, at half of it, and so on down to 4 pixels.

    Raises:
      ValueError: If the networks do not support the width or the size of the images.
    """
    if width < 4:
        raise ValueError(f"{width} channels are too few: give a width of at least 4")
    shape = design.example_shape
    shorter, longer = min(shape[:2]), max(shape[:2])
    halvings = (shorter // 4).bit_length() - 1
    if len(shape) != 3 or shorter not in (32, 64, 128) or longer % 2**halvings:
        raise ValueError(
            f"examples {shape} are not images whose shorter side is 32, 64 or 128 pixels and whose "
            f"longer side can be halved as often: give --image_size"
        )
    return [width * 2**index // 2 for index in range(halvings + 1)]


def _plain_blocks(
    design: Design,
    x: tf.Tensor,
    normalize: normalization.Normalize,
    count: int,
    name: str,
    *,
    critic: bool = False,
) -> tf.Tensor:
    for index in range(1, count + 1):
        x = _block(design, x, x.shape[-1], normalize, f"{name}_block_{index}", critic=critic)
    return x


def _block(
    design: Design,
    x: tf.Tensor,
    filters: int,
    normalize: normalization.Normalize,
    name: str,
    resample: str | None = None,
    *,
    critic: bool = False,
) -> tf.Tensor:
    """Applies a new bottleneck block.

    Its residual path is a 1x1 convolution to half the channels, a 3x3 convolution that changes
    the size, a 1x1 convolution to `filters` channels, and normalization.
    """
    half, new_half = x.shape[-1] // 2, filters // 2
    h = x
    for number, (channels, size) in enumerate(((half, 1), (new_half, 3), (filters, 1)), start=1):
        activate = critic_activation if critic else generator_activation
        h = activate(design.activation, name=f"{name}_activation_{number}", dtype=design.precision)(
            h
        )
        if number == 2 and resample == "up":
            h = _transposed_conv(design, channels, size, f"{name}_conv_2")(h)
        else:
            strides = 2 if number == 2 and resample == "down" else 1
            h = _conv(
                design,
                channels,
                size,
                f"{name}_conv_{number}",
                he_uniform(),
                strides,
                critic=critic,
                use_bias=number < 3,  # the normalization after the third usually has an offset
            )(h)
    h = normalize(h, f"{name}_norm")
    if resample == "up":
        x = _conv(design, 4 * filters, 1, f"{name}_shortcut", "glorot_uniform")(x)
        x = DepthToSpace(dtype=design.precision, name=f"{name}_spread")(x)
    elif resample == "down":
        x = _conv(design, filters, 1, f"{name}_shortcut", "glorot_uniform", 2, critic=critic)(x)
    h = _scaled(h, RESIDUAL_SCALE, f"{name}_scale", design.precision)
    return tf.keras.layers.Add(dtype=design.precision, name=f"{name}_add")([x, h])


def _transposed_conv(
    design: Design, filters: int, size: int, name: str
) -> tf.keras.layers.Conv2DTranspose:
    return tf.keras.layers.Conv2DTranspose(
        filters,
        size,
        strides=2,
        padding="same",
        kernel_initializer=he_uniform(),
        dtype=design.precision,
        name=name,
    )


def _conv(
    design: Design,
    filters: int,
    size: int,
    name: str,
    initializer: str | tf.keras.initializers.Initializer,
    strides: int = 1,
    *,
    critic: bool = False,
    use_bias: bool = True,
) -> Conv2D:
    return Conv2D(
        filters,
        size,
        strides=strides,
        kernel_initializer=initializer,
        use_bias=use_bias,
        spectral=critic and design.critic_normalization == "spectral",
        dtype=design.precision,
        name=name,
    )


def _scaled(x: tf.Tensor, scale: float, name: str, dtype: str) -> tf.Tensor:
    return tf.keras.layers.Rescaling(scale, dtype=dtype, name=name)(x)


@tf.keras.utils.register_keras_serializable("wgan_gp")
class DepthToSpace(tf.keras.layers.Layer):
    """Rearrangement of channels into blocks of 2x2 pixels, `[B, H, W, 4 C]` -> `[B, 2H, 2W, C]`."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.nn.depth_to_space(inputs, 2)
