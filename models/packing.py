"""Packs of examples that a critic scores together, as in PacGAN (arXiv:1712.04086).

A critic of single examples cannot see that all samples of a batch are alike. A critic of packs can.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .design import Design


def packed(design: Design, x: tf.Tensor) -> tf.Tensor:
    """Returns the features of examples `[B, F]` as those of packs, `[B / pack, pack * F]`."""
    return Pack(design.pack, dtype="float32", name="pack")(x) if design.pack > 1 else x


def unpacked(design: Design, x: tf.Tensor, examples: tf.Tensor) -> tf.Tensor:
    """Returns the features of packs for each of their examples, `[B / pack, F]` -> `[B, F]`.

    Args:
      design: Specification of the networks.
      x: The features of packs.
      examples: The examples, `[B, ...]`.
    """
    if design.pack == 1:
        return x
    return Unpack(design.pack, dtype="float32", name="unpack")([x, examples])


class _Packs(tf.keras.layers.Layer):
    """A layer for packs of consecutive examples, as replicas have them.

    Args:
      size: The number of examples in a pack.
      kwargs: Arguments of `Layer`.
    """

    def __init__(self, size: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.size = size

    def get_config(self) -> dict:
        return {**super().get_config(), "size": self.size}


@tf.keras.utils.register_keras_serializable("wgan_gp")
class Pack(_Packs):
    """Concatenates the features of the examples of each pack, `[B, F]` -> `[B / size, size * F]`.

    A last pack of fewer examples is completed with copies of the last one.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        count, features = inputs.shape
        if count is None or count % self.size:
            missing = -tf.shape(inputs)[0] % self.size
            inputs = tf.concat([inputs, tf.repeat(inputs[-1:], missing, axis=0)], axis=0)
        return tf.reshape(inputs, [-1, self.size * features])

    def compute_output_shape(self, input_shape):
        return (None, self.size * input_shape[-1])


@tf.keras.utils.register_keras_serializable("wgan_gp")
class Unpack(_Packs):
    """Repeats the features of packs for each of their examples, `[B / size, F]` -> `[B, F]`."""

    def call(self, inputs) -> tf.Tensor:
        packs, examples = inputs
        return tf.repeat(packs, self.size, axis=0)[: tf.shape(examples)[0]]

    def compute_output_shape(self, input_shape):
        packs, examples = input_shape
        return (examples[0], packs[-1])
