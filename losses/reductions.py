"""Reductions of per-example values to scalars, correct for any number of replicas.

`tf.distribute` sums gradients over replicas. Therefore each replica must contribute its share
of the global mean, sum(its examples) / (number of examples on all replicas), and never its own
mean. docs/numerics.md has the algebra.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .lazy_tensorflow import tf
from .scores import at_least_float32, floating, of_one_shape


def global_mean(per_example: tf.Tensor, global_batch_size: int | tf.Tensor) -> tf.Tensor:
    """Computes this replica's share of the mean over the global batch.

    The shares of all replicas add up to the global mean: let the optimizer sum the gradients of
    the shares, and pass the shares to `reduce_over_replicas` to log the mean. A share times
    `num_replicas_in_sync` is the replica's own mean.

    Args:
      per_example: `[B]`, floating point, values of this replica's examples.
      global_batch_size: Number of examples on all replicas, a scalar > 0.

    Returns:
      A scalar, float32 (float64 for float64 values): float16 cannot represent a batch size
      above 65,504. Under XLA, and so on a TPU, which cannot raise an error, it is NaN for a
      `global_batch_size` that is not positive and known only when the program runs.

    Raises:
      ValueError: If `per_example` is not floating-point `[B]`, or `global_batch_size` is not
        positive.
      tf.errors.InvalidArgumentError: If `global_batch_size` is not positive, but known only
        when a tf.function runs.
    """
    per_example = at_least_float32(floating(per_example, "per_example"))
    if per_example.shape.rank != 1:
        raise ValueError(
            f"per_example must have shape [B], got {per_example.shape}: {_advice(per_example)}"
        )
    size = tf.cast(global_batch_size, per_example.dtype)
    # A comparison would not be known inside a tf.function, but the number is.
    known = tf.get_static_value(tf.convert_to_tensor(global_batch_size))
    _require(size > 0 if known is None else known > 0, "global_batch_size must be positive")
    if known is None:
        size = tf.where(size > 0, size, math.nan)  # XLA cannot raise an error
    return tf.reduce_sum(per_example) / size


def weighted_global_mean(per_example: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Computes sum(weights * per_example) / sum(weights), with both sums over all replicas.

    Use it for padding, masks, token counts or a partial last batch: when replicas hold different
    numbers of valid examples, the mean of their means is not the global mean.

    The *value* is the global mean and equal on every replica: log that of any replica, or use
    `reduce_over_replicas(..., scaling="mean")`. The *gradient* is that of this replica's share,
    so that the usual sum over replicas is the gradient of the global mean for constant weights: no
    gradient reaches the weights. Call it in a replica context, or outside any strategy.

    Args:
      per_example: Values of examples or tokens, any shape, floating point.
      weights: The shape of `per_example`, >= 0. An entry of weight 0 is ignored even if it is
        infinite or NaN. Its derivative is multiplied by 0, however: if that is infinite or NaN,
        the gradient is NaN.

    Returns:
      A scalar, float32 (float64 for float64 values). Under XLA, and so on a TPU, which cannot
      raise an error, it is NaN where a weight is negative or all are 0.

    Raises:
      ValueError: If the shapes differ, a weight is negative, all weights on all replicas are 0,
        or the call is made in a cross-replica context.
      tf.errors.InvalidArgumentError: If the weights are invalid or have another shape, but known
        only when a tf.function runs.
    """
    per_example = at_least_float32(floating(per_example, "per_example"))
    weights = tf.stop_gradient(tf.cast(weights, per_example.dtype))
    if not per_example.shape.is_compatible_with(weights.shape):
        raise ValueError(
            f"weights {weights.shape} must have the same shape as per_example {per_example.shape}"
        )
    per_example, weights = of_one_shape(per_example, weights, "per_example and weights")
    context = _replica_context("weighted_global_mean")
    _require(tf.reduce_all(weights >= 0), "weights must not be negative")
    weights = tf.where(weights >= 0, weights, math.nan)  # XLA cannot raise an error
    counted = tf.where(weights == 0, tf.zeros_like(per_example), per_example)
    weighted = tf.reduce_sum(counted * weights)
    # This replica's gradient treats the losses of other replicas as constants.
    totals = tf.stop_gradient(tf.stack([weighted, tf.reduce_sum(weights)]))
    global_weighted, global_weight = tf.unstack(
        context.all_reduce(tf.distribute.ReduceOp.SUM, totals)
    )
    _require(global_weight > 0, "weights must have a positive sum over all replicas")
    share = weighted / global_weight
    return share + tf.stop_gradient(global_weighted / global_weight - share)


def regularization_share(regularization: tf.Tensor | Sequence[tf.Tensor]) -> tf.Tensor:
    """Computes this replica's share of losses that do not depend on the examples.

    Each of the R replicas computes the same weight decay. Its share is the sum of the losses
    divided by R; without the division, the gradient would be R times too large.

    Args:
      regularization: A scalar, or a list of scalars such as a Keras model's `losses`.

    Returns:
      A scalar, float32 (float64 for float64 losses); 0 for an empty list.

    Raises:
      ValueError: If a loss is not a scalar, or the call is made in a cross-replica context.
    """
    context = _replica_context("regularization_share")
    values = [
        at_least_float32(tf.convert_to_tensor(value)) for value in tf.nest.flatten(regularization)
    ]
    for value in values:
        if value.shape.rank != 0:
            raise ValueError(
                f"regularization losses must be scalars, got shape {value.shape}: sum each first"
            )
    total = tf.add_n(values) if values else tf.constant(0.0)
    return total / tf.cast(context.num_replicas_in_sync, total.dtype)


def reduce_over_replicas(
    strategy: tf.distribute.Strategy, values: Any, *, scaling: str = "share"
) -> Any:
    """Reduces the per-replica scalars that `strategy.run` returned to global means.

    For N examples on R replicas, the sum of the shares is the mean of the replicas' means:

        sum over replicas of sum(l) / N  ==  mean over replicas of sum(l) / (N / R)

    Args:
      strategy: The strategy that ran the step.
      values: The result of `strategy.run`, a scalar per replica or a structure of them.
      scaling: "share" if each scalar is the replica's share of the global mean, as `global_mean`
        returns it: they are summed. "mean" if each scalar is the replica's own mean, over the
        same number of examples on each replica: they are averaged.

    Returns:
      A structure like `values`, of scalar tensors.

    Raises:
      ValueError: If `scaling` has another value.
    """
    operations = {
        "share": tf.distribute.ReduceOp.SUM,
        "mean": tf.distribute.ReduceOp.MEAN,
    }
    if scaling not in operations:
        raise ValueError(f"scaling={scaling!r} is unknown: use one of {', '.join(operations)}")
    return tf.nest.map_structure(
        lambda value: strategy.reduce(operations[scaling], value, axis=None), values
    )


def _advice(per_example: tf.Tensor) -> str:
    """Returns advice on how to reduce a tensor of another shape to `[B]`."""
    rank = per_example.shape.rank
    if rank is None:
        return "set its static shape"
    if rank == 0:
        return 'pass the loss of each example, as a Keras loss with reduction="none" returns it'
    axes = list(range(1, rank))
    return f"first reduce it to one value per example, e.g. tf.reduce_mean(per_example, {axes})"


def _replica_context(caller: str) -> tf.distribute.ReplicaContext:
    context = tf.distribute.get_replica_context()
    if context is None:
        raise ValueError(
            f"{caller} was called in a cross-replica context: call it inside strategy.run, or "
            "outside the strategy's scope"
        )
    return context


def _require(condition: Any, message: str) -> None:
    """Raises a ValueError if the condition is known to be false; asserts it inside a graph."""
    known = tf.get_static_value(tf.convert_to_tensor(condition))
    if known is None:
        tf.debugging.Assert(condition, [message])
    elif not known:
        raise ValueError(message)
