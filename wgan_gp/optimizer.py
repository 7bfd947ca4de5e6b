"""Adam that a gradient which is not finite leaves as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def poisoned_unless_finite(
    loss: tf.Tensor, gradients: Sequence[tf.Tensor], weights: Sequence[Any]
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Makes all gradients of a replica NaN, if its loss, one of them or a weight is not finite.

    The squares of gradients must be finite too, which Adam holds. Weights are looked at because
    a rectifier may hide one that is NaN.

    Gradients are summed over replicas before the update. So NaN on one replica is NaN on all,
    in every weight, and all leave all weights as they are: no word between them is needed.

    Returns:
      The gradients; and 1.0 where this replica's were not finite, else 0.0.
    """
    total = tf.add_n(
        [
            loss,
            *(tf.reduce_sum(tf.square(gradient)) for gradient in gradients),
            *(tf.reduce_sum(tf.convert_to_tensor(weight)) for weight in weights),
        ]
    )
    finite = tf.math.is_finite(total)
    poison = tf.where(finite, 0.0, float("nan"))
    return [gradient + poison for gradient in gradients], tf.where(finite, 0.0, 1.0)


class GuardedAdam(tf.keras.optimizers.Adam):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980), but for weights whose gradient is not finite.

    These keep their value and their moments.
    """

    def update_step(
        self, gradient: tf.Tensor, variable: Any, learning_rate: tf.Tensor | None = None
    ) -> None:
        """As Keras calls it, for each weight; its version 2 does not hand the rate over."""
        rate = self.learning_rate if learning_rate is None else learning_rate
        mean, square = self._moments_of(variable)
        step = tf.cast(self.iterations + 1, variable.dtype)
        corrected_rate = (
            tf.cast(rate, variable.dtype)
            * tf.sqrt(1.0 - tf.pow(tf.cast(self.beta_2, variable.dtype), step))
            / (1.0 - tf.pow(tf.cast(self.beta_1, variable.dtype), step))
        )
        finite = tf.math.is_finite(tf.square(gradient))
        old_mean, old_square = tf.convert_to_tensor(mean), tf.convert_to_tensor(square)
        new_mean = old_mean + (gradient - old_mean) * (1.0 - self.beta_1)
        new_square = old_square + (tf.square(gradient) - old_square) * (1.0 - self.beta_2)
        change = new_mean * corrected_rate / (tf.sqrt(new_square) + self.epsilon)
        mean.assign(tf.where(finite, new_mean, old_mean))
        square.assign(tf.where(finite, new_square, old_square))
        variable.assign_sub(tf.where(finite, change, tf.zeros_like(change)))

    def _moments_of(self, variable: Any) -> tuple[Any, Any]:
        if hasattr(self, "_get_variable_index"):  # Keras 3, which wraps TensorFlow's variables
            index = self._get_variable_index(variable)
            return self._momentums[index].value, self._velocities[index].value
        index = self._index_dict[self._var_key(variable)]
        return self._momentums[index], self._velocities[index]
