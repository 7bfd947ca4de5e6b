"""DCGAN for images.

Radford et al. 2016 (arXiv:1511.06434), in the version of Gulrajani et al. 2017
(arXiv:1704.00028): convolutions with 5x5 kernels and stride 2 only, twice the channels at half
the size, batch normalization and ReLU in the generator, leaky ReLU in the critic. At 64 pixels,
with `model_width` 64 and layer normalization in the critic, it is the network of that paper; at 28
pixels, it is the paper's network for MNIST. The two sides of a rectangle are halved equally often.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from . import strided
from .convolutions import Conv2D
from .design import Design

KERNEL = 5


def generator(design: Design) -> tf.keras.Model:
    """Builds the generator, which maps latents and any labels to images `[B, H, W, C]`."""
    shapes = halvings(*design.example_shape[:2])
    return strided.generator(design, shapes, _window, _Upwards, "image")


def critic(design: Design) -> tf.keras.Model:
    """Builds the critic, which maps images `[B, H, W, C]` to the outputs described in heads."""
    shapes = halvings(*design.example_shape[:2])
    return strided.critic(design, shapes, _window, Conv2D, "images")


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


def _window(_: Sequence[int]) -> dict[str, int]:
    """Returns the kernel size and the stride, which are the same at every size."""
    return {"kernel_size": KERNEL, "strides": 2}


@tf.keras.utils.register_keras_serializable("wgan_gp")
class _Upwards(tf.keras.layers.Conv2DTranspose):
    """A transposed convolution with SAME padding.

    Args:
      filters: Number of output channels.
      kernel_size: Height and width of the kernel.
      sides: Height and width of the output in pixels, each `strides` times that of the input or
        less.
      kwargs: Further arguments of Conv2DTranspose.
    """

    def __init__(self, filters: int, kernel_size: int, *, sides: Sequence[int], **kwargs: Any):
        super().__init__(filters, kernel_size, **{**kwargs, "padding": "same"})
        self.sides = list(sides)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        height, width = self.sides
        return super().call(inputs)[:, :height, :width]

    def compute_output_spec(self, inputs: Any) -> Any:
        # Keras would take the shape from the base class, which does not crop.
        spec = super().compute_output_spec(inputs)
        return type(spec)((spec.shape[0], *self.sides, spec.shape[-1]), spec.dtype)

    def get_config(self) -> dict:
        return {**super().get_config(), "sides": self.sides}
