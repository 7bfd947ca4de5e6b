"""Adam that no gradient can make a weight not finite."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class GuardedAdam(tf.keras.optimizers.Adam):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980), but for weights whose new value is not finite.

    These keep the old one, and keep it from then on: their moments are not finite any more.
    """

    def update_step(self, gradient: tf.Tensor, variable: Any, *learning_rate: tf.Tensor) -> None:
        """As Keras calls it, for each weight; its version 2 does not hand the rate over."""
        before = tf.identity(variable)
        super().update_step(gradient, variable, *learning_rate)
        # XLA makes one operation of this and the update, at no cost.
        variable.assign(tf.where(tf.math.is_finite(variable), variable, before))
