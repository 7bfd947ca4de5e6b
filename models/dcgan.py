"""DCGAN for images.

Radford et al. 2016 (arXiv:1511.06434), in the version of Gulrajani et al. 2017
(arXiv:1704.00028): convolutions with 5x5 kernels and stride 2 only, twice the channels at half
the size, batch normalization and ReLU in the generator, leaky ReLU in the critic. At 64 pixels,
with `model_width` 64 and layer normalization in the critic, it is the network of that paper; at 28
pixels, it is the paper's network for MNIST. The two sides of a rectangle are halved equally often.
"""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from . import heads, normalization
from .activations import critic_activation, generator_activation
from .convolutions import Conv2D, Dense
from .design import Design
from .minibatch import with_deviation

LEAK = 0.2
KERNEL = 5


def generator(design: Design) -> tf.keras.Model:
    """Builds the generator, which maps latents and any labels to images `[B, H, W, C]`.

    It has `generator_width` channels at half the image size, twice as many at a quarter of it,
    and so on. If `generator_channels` is "constant", the number is the same at all sizes.
    """
    sizes = halvings(*design.example_shape[:2])
    growth = 2 if design.generator_channels == "doubling" else 1
    filters = [design.generator_width * growth**index for index in range(len(sizes) - 1)]
    latents = tf.keras.Input([design.latent_size], name="latents")
    labels = heads.label_input(design)

    normalize = normalization.generator_normalizer(design, labels)
    # Batch normalization would subtract the bias of a convolution again.
    use_bias = design.generator_normalization != "batch"

    def activated(x: tf.Tensor, number: int) -> tf.Tensor:
        x = normalize(x, f"normalization_{number}")
        return generator_activation(
            design.activation, name=f"activation_{number}", dtype=design.precision
        )(x)

    x = heads.with_conditions(design, latents, labels)
    x = activated(_smallest_features(design, x, sizes[-1], filters[-1]), 0)
    for number, size in enumerate(sizes[-2:0:-1], start=1):
        conv = _Upwards(
            filters[-1 - number],
            size,
            use_bias=use_bias,
            dtype=design.precision,
            name=f"conv_{number}",
        )
        x = activated(conv(x), number)
    x = _Upwards(design.example_shape[2], sizes[0], dtype=design.precision, name="image")(x)
    x = heads.bounded(design, x)
    return tf.keras.Model([latents, *labels] if labels else latents, x, name="generator")


def _smallest_features(
    design: Design, latents: tf.Tensor, size: tuple[int, int], filters: int
) -> tf.Tensor:
    """Maps latents to feature maps `[B, *size, filters]`."""
    shape = [*size, filters]
    x = Dense(math.prod(shape), dtype=design.precision, name="dense")(latents)
    return tf.keras.layers.Reshape(shape, dtype=design.precision, name="reshape")(x)


def critic(design: Design) -> tf.keras.Model:
    """Builds the critic, which maps images `[B, H, W, C]` to the outputs described in heads.

    It has `model_width` channels at half the image size, twice as many at a quarter of it, and so
    on.
    """
    images = tf.keras.Input(design.example_shape, name="images")
    labels = heads.critic_labels(design)
    x = heads.concatenated(design, images, labels)
    normalize = normalization.critic_normalizer(design)
    count = len(halvings(*design.example_shape[:2])) - 1
    for index in range(count):
        if index == count - 1:
            x = with_deviation(design, x)
        filters = design.model_width * 2**index
        x = Conv2D(
            filters,
            KERNEL,
            strides=2,
            bias_cancelled=index > 0 and design.critic_normalization == "instance",
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
    return heads.critic(design, [images, *labels], x)


def halvings(height: int, width: int) -> list[tuple[int, int]]:
    """Returns the sizes of the feature maps: the full size, half of it, and so on.

    Each side is halved and rounded up, until the shorter one is 4 or less. There are at least two
    halvings, so that a critic of tiny images has hidden layers.
    """
    sizes = [(height, width)]
    while min(sizes[-1]) > 4 or len(sizes) < 3:
        height, width = sizes[-1]
        sizes.append((-(-height // 2), -(-width // 2)))
    return sizes


@tf.keras.utils.register_keras_serializable("wgan_gp")
class _Upwards(tf.keras.layers.Conv2DTranspose):
    """A transposed convolution with stride 2.

    Args:
      filters: Number of output channels.
      size: Height and width of the output in pixels, each twice that of the input or one pixel
        less.
      kwargs: Further arguments of Conv2DTranspose.
    """

    def __init__(self, filters: int, size: Sequence[int], **kwargs):
        super().__init__(filters, KERNEL, strides=2, padding="same", **kwargs)
        self.size = list(size)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        height, width = self.size
        return super().call(inputs)[:, :height, :width]

    def compute_output_spec(self, inputs: Any) -> Any:
        # Keras would take the shape from the base class, which does not crop.
        spec = super().compute_output_spec(inputs)
        return type(spec)((spec.shape[0], *self.size, spec.shape[-1]), spec.dtype)

    def get_config(self) -> dict:
        config = super().get_config()
        for fixed in ("kernel_size", "strides", "padding"):
            del config[fixed]
        return {**config, "size": self.size}
