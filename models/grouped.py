"""Grouped convolutions that can be differentiated twice on every device.

Without oneDNN (TF_ENABLE_ONEDNN_OPTS=0), TensorFlow has no gradient of a grouped convolution on a
CPU.
"""

import math

import tensorflow as tf

from .convolutions import Conv2D

# A TPU multiplies matrices of 128 columns, so a smaller dense kernel would not take less time.
LANES = 128


@tf.keras.utils.register_keras_serializable("wgan_gp")
class GroupedConv2D(Conv2D):
    """A convolution within groups of channels, `[B, H, W, C]` -> `[B, H, W, C]`, SAME padding.

    Each output channel depends on the `group_size` input channels of its own group only. The kernel
    has shape `[k, k, group_size, C]`, as in tf.nn.conv2d. The layer packs neighboring groups into
    blocks of at most 128 channels, and computes one dense convolution for each block. Its kernel is
    zero between different groups.

    Args:
      filters: Number of channels of the input and of the output, a multiple of `group_size`.
      kernel_size: Height and width of the kernel.
      group_size: Number of channels of a group.
      kwargs: Further arguments of Conv2D. Strides are not supported.
    """

    def __init__(self, filters: int, kernel_size: int, *, group_size: int, **kwargs):
        super().__init__(filters, kernel_size, **kwargs)
        if filters % group_size:
            raise ValueError(f"group_size={group_size} must divide filters={filters}")
        self.group_size = group_size

    def build(self, input_shape):
        if input_shape[-1] != self.filters:
            raise ValueError(
                f"the input must have filters={self.filters} channels, got {input_shape[-1]}"
            )
        super().build([*input_shape[:-1], self.group_size])

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        groups = self.filters // self.group_size
        in_block = math.gcd(groups, max(1, LANES // self.group_size))
        blocks = groups // in_block
        same_group = tf.repeat(tf.eye(in_block, dtype=kernel.dtype), self.group_size, axis=0)
        same_group = tf.repeat(same_group, self.group_size, axis=1)
        outputs = [
            tf.nn.conv2d(features, tf.tile(part, [1, 1, in_block, 1]) * same_group, 1, "SAME")
            for features, part in zip(
                tf.split(inputs, blocks, axis=-1), tf.split(kernel, blocks, axis=-1), strict=True
            )
        ]
        return tf.concat(outputs, axis=-1)

    def get_config(self) -> dict:
        config = {**super().get_config(), "group_size": self.group_size}
        del config["strides"]
        return config
