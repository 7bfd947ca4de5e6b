"""The gradients of a step, and Adam, which skips updates that would make a weight not finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class GuardedAdam(tf.keras.optimizers.Adam):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) that never makes a weight NaN or infinite.

    A weight whose new value would be NaN or infinite keeps its old value. It also keeps this value
    in later updates, because its moments are no longer finite.

    `beta_2` may also be a function of the number of updates done, a scalar integer, that returns a
    scalar float32. Update t (from 1) then corrects the bias by 1 - beta_2(t - 1)**t, like Adam of
    PyTorch when `betas` change between updates, as in the code of R3GAN (Huang et al. 2024,
    arXiv:2501.05441). The optimizer therefore needs no further variable.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        # Keras assigns the tensor iterations + 1, which TPUStrategy broadcasts from the first
        # replica with an AllToAll in every update. A Python number needs no broadcast.
        self.iterations.assign_add = self.iterations.value.assign_add

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: tf.Tensor) -> None:
        before = tf.identity(variable)
        super().update_step(gradient, variable, learning_rate)
        # XLA fuses this with the update, at no cost.
        variable.assign(tf.where(tf.math.is_finite(variable), variable, before))

    @property
    def beta_2(self) -> tf.Tensor | float:
        """The decay rate of the mean squared gradient in the next update."""
        return self._beta_2(self.iterations) if callable(self._beta_2) else self._beta_2

    @beta_2.setter
    def beta_2(self, value: Any) -> None:
        self._beta_2 = value


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
