"""Gradients of a step: as dense tensors, and whether they are finite."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from .interface import Terms

# A replica's shares of the means of the terms, by name, and its gradient in each weight.
Gradients = tuple[Terms, list[tf.Tensor]]


def dense(
    gradients: Sequence[tf.Tensor | tf.IndexedSlices | None], weights: Sequence[tf.Variable]
) -> list[tf.Tensor]:
    """Returns the gradients as dense tensors, with repeated rows of sparse gradients summed.

    The gradient of a gather is sparse, with one row per gathered index. Keras's Adam would square
    each row instead of the sum of all rows with the same index.

    Args:
      gradients: The gradients, in the order of the weights. None, for a weight that the loss does
        not depend on, becomes zeros. TensorFlow's UnconnectedGradients.ZERO would fail on a weight
        of Keras 3, whose dtype is a string.
      weights: The weights.
    """
    return [
        tf.zeros(weight.shape, weight.dtype) if gradient is None else tf.convert_to_tensor(gradient)
        for gradient, weight in zip(gradients, weights, strict=True)
    ]


def nan_unless_finite(*witnesses: tf.Tensor) -> tf.Tensor:
    """Returns 0, or NaN if one of the tensors is not finite.

    The gradient of a network's first layer is a good witness: a ReLU may hide a NaN from the
    loss, but in the gradient of the first layer the NaN reappears, as 0 times NaN.
    """
    total = tf.add_n([tf.reduce_sum(witness) for witness in witnesses])
    return tf.where(tf.math.is_finite(total), 0.0, float("nan"))
