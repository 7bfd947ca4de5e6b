"""The gradients of a step, and optimizers, which skip updates that would not be finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ..errors import UserError, explaining, shown


class GuardedUpdates(tf.keras.optimizers.Optimizer):
    """A mixin of Keras optimizers for training on several replicas, which skips bad updates.

    A weight whose new value would be NaN or infinite keeps its old value. If the optimizer has
    moments, which are then no longer finite, it also keeps this value in all later updates.

    Gradients are clipped after they have been summed over the replicas, where Keras would clip the
    part of each replica. Weight decay is a part of the update, and is skipped with it.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        # Keras assigns the tensor iterations + 1, which TPUStrategy broadcasts from the first
        # replica with an AllToAll in every update. A Python number needs no broadcast.
        self.iterations.assign_add = self.iterations.value.assign_add

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: tf.Tensor) -> None:
        before = tf.identity(variable)
        if self.weight_decay is not None and self._use_weight_decay(variable):
            decay = tf.cast(self.weight_decay, variable.dtype)
            variable.assign_sub(variable * decay * tf.cast(learning_rate, variable.dtype))
        super().update_step(gradient, variable, learning_rate)
        # XLA fuses this with the update, at no cost.
        variable.assign(tf.where(tf.math.is_finite(variable), variable, before))

    def _apply_weight_decay(self, variables: Sequence[Any]) -> None:
        """Does nothing, because `update_step` does it."""

    def _clip_gradients(self, grads: Sequence[Any]) -> Sequence[Any]:
        """Returns the gradients of this replica unchanged."""
        return grads

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        gradients, weights = zip(*super()._all_reduce_sum_gradients(grads_and_vars), strict=True)
        return list(zip(super()._clip_gradients(gradients), weights, strict=True))


class GuardedAdam(GuardedUpdates, tf.keras.optimizers.Adam):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) with `GuardedUpdates`.

    With `weight_decay`, it is AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101).

    `beta_2` may also be a function of the number of updates done, a scalar integer, that returns a
    scalar float32. Update t (from 1) then corrects the bias by 1 - beta_2(t - 1)**t, like Adam of
    PyTorch when `betas` change between updates, as in the code of R3GAN (Huang et al. 2024,
    arXiv:2501.05441). The optimizer therefore needs no further variable.
    """

    @property
    def beta_2(self) -> tf.Tensor | float:
        """The decay rate of the mean squared gradient in the next update."""
        return self._beta_2(self.iterations) if callable(self._beta_2) else self._beta_2

    @beta_2.setter
    def beta_2(self, value: Any) -> None:
        self._beta_2 = value


class GuardedRMSprop(GuardedUpdates, tf.keras.optimizers.RMSprop):
    """RMSProp (Tieleman and Hinton 2012) with `GuardedUpdates`."""


class GuardedLion(GuardedUpdates, tf.keras.optimizers.Lion):
    """Lion (Chen et al. 2023, arXiv:2302.06675) with `GuardedUpdates`."""


# Features of Keras optimizers that training has, too, for all optimizers.
_REFUSED = {
    "use_ema": "use --generator_ema_decay",
    "gradient_accumulation_steps": "use --accumulate",
    "loss_scale_factor": "use --precision=mixed_bfloat16, which needs no loss scale",
    "inner_optimizer": "pass the optimizer inside of it",  # of a LossScaleOptimizer
}


def guarded(optimizer: Any, name: str) -> Any:
    """Returns a new optimizer with the settings of a Keras optimizer and `GuardedUpdates`.

    Call it within the scope of the strategy.

    Args:
      optimizer: The Keras optimizer.
      name: Its name, for messages.

    Raises:
      UserError: If it is not a Keras optimizer, its settings cannot be read, or it has a feature
        that is a flag here.
    """
    if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
        raise UserError(f"{name} is {shown(optimizer)}", "pass a Keras optimizer")
    for attribute, remedy in _REFUSED.items():
        if getattr(optimizer, attribute, None):
            raise UserError(f"{name} has {attribute}", remedy)
    kind = type(optimizer)
    if getattr(optimizer, "_exclude_from_weight_decay", None):
        raise UserError(
            f"{name} excludes variables from weight decay that are not those of the networks",
            "exclude them by var_names in exclude_from_weight_decay",
        )
    with explaining(name):
        guarded_kind: Any = type(f"Guarded{kind.__name__}", (GuardedUpdates, kind), {})
        new = guarded_kind.from_config(optimizer.get_config())
    # The configuration of an optimizer of Keras lacks this.
    if excluded := getattr(optimizer, "_exclude_from_weight_decay_pattern", None):
        new.exclude_from_weight_decay(var_names=[excluded.pattern])
    return new


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
