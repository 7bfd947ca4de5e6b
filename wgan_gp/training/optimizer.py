"""Adam that skips updates which would make a weight NaN or infinite."""

from __future__ import annotations

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
