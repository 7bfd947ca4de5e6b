"""The standard deviation over a group of examples as a feature of a critic."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .design import Design

_EPSILON = 1e-8  # added to the variance, whose square root has no derivative at 0


def with_deviation(design: Design, x: tf.Tensor) -> tf.Tensor:
    """Returns features with the channel of `MinibatchStdDev`, or as they are by default.

    Args:
      design: Specification of the networks; Design.minibatch_stddev is the size of a group.
      x: Features of examples, `[B, ..., C]`.
    """
    if not design.minibatch_stddev:
        return x
    return MinibatchStdDev(design.minibatch_stddev, name="minibatch_stddev")(x)


@tf.keras.utils.register_keras_serializable("wgan_gp")
class MinibatchStdDev(tf.keras.layers.Layer):
    """Appends the standard deviation over a group of examples as a channel, in float32.

    Examples 0 ... G - 1 of the batch are a group, the next G are another, and so on. The standard
    deviation of each feature over its group is averaged over all features of an example, and is
    constant over its pixels, `[B, ..., C]` -> `[B, ..., C + 1]` (Karras et al. 2017,
    arXiv:1710.10196, section 3). A last group of fewer examples is completed with copies of the
    last one.

    Groups are consecutive, so that replicas, which have consecutive slices of a batch, compute what
    a single device computes if the size of a slice is a multiple of G.

    Args:
      group_size: Number of examples G in a group, at least 2.
      kwargs: Arguments of `Layer`.
    """

    def __init__(self, group_size: int, **kwargs: Any):
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.group_size = group_size

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        size = self.group_size
        x = tf.cast(inputs, tf.float32)
        count = x.shape[0]
        is_whole = count is not None and count % size == 0
        if not is_whole:
            missing = -tf.shape(x)[0] % size
            x = tf.concat([x, tf.repeat(x[-1:], missing, axis=0)], axis=0)
        groups = tf.reshape(x, [-1, size, *x.shape[1:]])
        variance = tf.math.reduce_variance(groups, axis=1)
        features = range(1, variance.shape.rank)
        deviation = tf.reduce_mean(tf.sqrt(variance + _EPSILON), axis=[*features])
        inner = [1] * (x.shape.rank - 1)
        deviations = tf.reshape(deviation, [-1, 1, *inner])
        channel = deviations + tf.zeros_like(groups[..., :1])
        channel = tf.reshape(channel, [-1, *x.shape[1:-1], 1])
        x = tf.concat([x, channel], axis=-1)
        return x if is_whole else x[: tf.shape(inputs)[0]]

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], input_shape[-1] + 1)

    def get_config(self) -> dict:
        return {**super().get_config(), "group_size": self.group_size}
