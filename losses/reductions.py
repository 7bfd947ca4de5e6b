"""From per-example values to the scalars that replicas sum.

`tf.distribute` sums gradients over replicas. So each replica must contribute its share
of the global mean, sum(its examples) / (examples of all replicas), never its own mean:
docs/numerics.md has the algebra.
"""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from .scores import at_least_float32, floating


def global_mean(per_example: tf.Tensor, global_batch_size: int | tf.Tensor) -> tf.Tensor:
    """This replica's share of the mean over the global batch.

    The shares of all replicas add up to the mean: sum gradients of it, and
    `reduce_over_replicas` it for the log. Times `num_replicas_in_sync` it is this
    replica's own mean.

    Args:
      per_example: `[B]`, floating point, this replica's examples.
      global_batch_size: examples on all replicas together, a scalar.

    Returns:
      A scalar, float32 at least: half precision cannot even hold a batch of 70,000.

    Raises:
      ValueError: `per_example` is not floating-point `[B]`, or `global_batch_size` is not
        positive; where that is known inside a tf.function only, tf.errors.InvalidArgumentError.
    """
    per_example = at_least_float32(floating(per_example, "per_example"))
    if per_example.shape.rank != 1:
        raise ValueError(
            f"per_example must have shape [B], got {per_example.shape}: {_to_one_each(per_example)}"
        )
    size = tf.cast(global_batch_size, per_example.dtype)
    _require(size > 0, "global_batch_size must be positive")
    return tf.reduce_sum(per_example) / size


def weighted_global_mean(per_example: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """sum(w * l) / sum(w), both sums over all replicas; exact for uneven replicas.

    For padding, masks, token counts or a last partial batch, where replicas hold different
    numbers of valid examples and a mean of means would weigh them wrongly.

    The *value* is the global one, the same on every replica: log any replica's, or
    `reduce_over_replicas(..., scaling="mean")`. The *gradient* is that of this replica's
    share, so that the usual sum over replicas gives the gradient of the value. Call it in
    a replica context, or outside any strategy.

    Args:
      per_example: of any shape, floating point: examples, tokens.
      weights: the shape of `per_example`, >= 0; 0 leaves an entry out, infinite or not. (An
        infinite one should not come from the weights to be trained, though: 0 times its
        gradient is NaN.)

    Returns:
      A scalar, float32 at least.

    Raises:
      ValueError: shapes differ, a weight is negative, all weights of all replicas are 0,
        or the call is made in a cross-replica context. Inside a tf.function the weights
        are known too late for that: there, tf.errors.InvalidArgumentError; and under XLA,
        on a TPU, which cannot raise, NaN.
    """
    per_example = at_least_float32(floating(per_example, "per_example"))
    weights = tf.cast(weights, per_example.dtype)
    if not per_example.shape.is_compatible_with(weights.shape):
        raise ValueError(
            f"weights {weights.shape} must have the shape of per_example {per_example.shape}"
        )
    context = _replica_context("weighted_global_mean")
    _require(tf.reduce_all(weights >= 0), "weights must not be negative")
    weights = tf.where(weights >= 0, weights, math.nan)  # where nothing can be raised
    counted = tf.where(weights == 0, tf.zeros_like(per_example), per_example)
    weighted = tf.reduce_sum(counted * weights)
    # The weights and the other replicas' losses are constants to this replica's gradient.
    totals = tf.stop_gradient(tf.stack([weighted, tf.reduce_sum(weights)]))
    global_weighted, global_weight = tf.unstack(
        context.all_reduce(tf.distribute.ReduceOp.SUM, totals)
    )
    _require(global_weight > 0, "weights must not all be 0, over all replicas")
    share = weighted / tf.stop_gradient(global_weight)
    return share + tf.stop_gradient(global_weighted / global_weight - share)


def regularization_share(regularization: tf.Tensor | Sequence[tf.Tensor]) -> tf.Tensor:
    """This replica's share of losses that do not depend on the examples: their sum / R.

    Every replica computes the same weight decay; without the division its gradient would
    be summed R times.

    Args:
      regularization: a scalar, or scalars such as a Keras model's `losses`; none give 0.

    Raises:
      ValueError: a loss that is no scalar, or a call in a cross-replica context.
    """
    context = _replica_context("regularization_share")
    values = [
        at_least_float32(tf.convert_to_tensor(value)) for value in tf.nest.flatten(regularization)
    ]
    for value in values:
        if value.shape.rank != 0:
            raise ValueError(f"regularization must be scalars, got one of shape {value.shape}")
    total = tf.add_n(values) if values else tf.constant(0.0)
    return total / tf.cast(context.num_replicas_in_sync, total.dtype)


def reduce_over_replicas(
    strategy: tf.distribute.Strategy, values: Any, *, scaling: str = "share"
) -> Any:
    """The global means that `strategy.run` returned in parts.

    sum over replicas of sum(l) / N  ==  mean over replicas of sum(l) / (N / R)

    Args:
      strategy: that ran the step.
      values: what it returned: a scalar for each replica, or a structure of such.
      scaling: what each replica's scalar is. "share": its part of the global mean, as from
        `global_mean`, to be summed. "mean": a mean of its own, over as many examples as the
        other replicas have, to be averaged: a share times `num_replicas_in_sync`.

    Returns:
      A structure like `values` of scalar tensors.

    Raises:
      ValueError: another scaling.
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


def _to_one_each(per_example: tf.Tensor) -> str:
    """Returns how to make `[B]` of a tensor of another shape."""
    rank = per_example.shape.rank
    if rank is None:
        return "set its shape"
    if rank == 0:
        return 'pass the loss of each example, as a Keras loss with reduction="none" returns it'
    axes = list(range(1, rank))
    return f"reduce it to one value per example first, as by tf.reduce_mean(per_example, {axes})"


def _replica_context(caller: str) -> tf.distribute.ReplicaContext:
    context = tf.distribute.get_replica_context()
    if context is None:
        raise ValueError(
            f"{caller} knows its replica only inside strategy.run: call it there, "
            "not in the strategy's scope"
        )
    return context


def _require(condition: tf.Tensor, message: str) -> None:
    """Raises a ValueError where the condition is known to fail; inside a graph, asserts it."""
    known = tf.get_static_value(condition)
    if known is None:
        tf.debugging.Assert(condition, [message])
    elif not known:
        raise ValueError(message)
