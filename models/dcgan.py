"""DCGAN for square images.

Radford et al. 2016 (arXiv:1511.06434), in the version of Gulrajani et al. 2017
(arXiv:1704.00028): convolutions with 5x5 kernels and stride 2 only, twice the channels at half
the size, batch normalization and ReLU in the generator, leaky ReLU in the critic. At 64 pixels,
with `width` 64 and layer normalization in the critic, it is the network of that paper; at 28
pixels, it is the paper's network for MNIST.
"""

import tensorflow as tf

from . import heads, normalization
from .activations import critic_activation, generator_activation
from .convolutions import Conv2D, Dense, without_removed_arguments
from .design import Design

LEAK = 0.2
KERNEL = 5


def generator(design: Design) -> tf.keras.Model:
    """Builds the generator, which maps latents and any labels to images `[B, H, W, C]` in [-1, 1].

    It has `generator_width` channels at half the image size, twice as many at a quarter of it,
    and so on. If `generator_channels` is "constant", the number is the same at all sizes.
    """
    sizes = halvings(design.example_shape[0])
    growth = 2 if design.generator_channels == "doubling" else 1
    filters = [design.generator_width * growth**index for index in range(len(sizes) - 1)]
    latents = tf.keras.Input([design.latent_size], name="latents")
    labels = heads.label_input(design)

    normalize = normalization.generator_normalizer(design, labels)
    # Batch normalization would subtract the bias of a convolution again.
    use_bias = design.generator_normalization == "none"

    def activated(x: tf.Tensor, number: int) -> tf.Tensor:
        x = normalize(x, f"normalization_{number}")
        return generator_activation(
            design.activation, name=f"activation_{number}", dtype=design.precision
        )(x)

    x = activated(_smallest_features(design, latents, sizes[-1], filters[-1]), 0)
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
    x = tf.keras.layers.Activation("tanh", dtype="float32", name="tanh")(x)
    return tf.keras.Model([latents, *labels] if labels else latents, x, name="generator")


def _smallest_features(design: Design, latents: tf.Tensor, size: int, filters: int) -> tf.Tensor:
    """Maps latents to feature maps `[B, size, size, filters]`."""
    x = Dense(size * size * filters, dtype=design.precision, name="dense")(latents)
    shape = [size, size, filters]
    return tf.keras.layers.Reshape(shape, dtype=design.precision, name="reshape")(x)


def critic(design: Design) -> tf.keras.Model:
    """Builds the critic, which maps images `[B, H, W, C]` to the outputs described in heads.

    It has `width` channels at half the image size, twice as many at a quarter of it, and so on.
    """
    images = tf.keras.Input(design.example_shape, name="images")
    x, normalize = images, normalization.critic_normalizer(design)
    for index in range(len(halvings(design.example_shape[0])) - 1):
        filters = design.width * 2**index
        x = Conv2D(
            filters,
            KERNEL,
            strides=2,
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
    return heads.critic(design, [images, *heads.critic_labels(design)], x)


def halvings(size: int) -> list[int]:
    """Returns the sizes of the feature maps: `size`, half of it, and so on down to 4 or less.

    There are at least two halvings, so that a critic of tiny images has hidden layers.
    """
    sizes = [size]
    while sizes[-1] > 4 or len(sizes) < 3:
        sizes.append(-(-sizes[-1] // 2))
    return sizes


@tf.keras.utils.register_keras_serializable("wgan_gp")
class _Upwards(tf.keras.layers.Conv2DTranspose):
    """A transposed convolution with stride 2.

    Args:
      filters: Number of output channels.
      size: Side of the output in pixels, twice that of the input or one pixel less.
      kwargs: Further arguments of Conv2DTranspose.
    """

    def __init__(self, filters: int, size: int, **kwargs):
        super().__init__(filters, KERNEL, strides=2, padding="same", **kwargs)
        self.size = size

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return super().call(inputs)[:, : self.size, : self.size]

    def get_config(self) -> dict:
        config = super().get_config()
        for fixed in ("kernel_size", "strides", "padding"):
            del config[fixed]
        return {**config, "size": self.size}

    @classmethod
    def from_config(cls, config: dict) -> "_Upwards":
        return cls(**without_removed_arguments(config))
