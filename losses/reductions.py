"""From per-example values to the scalars that replicas sum.

`tf.distribute` sums gradients over replicas. So each replica must contribute its share
of the global mean, sum(its examples) / (examples of all replicas), never its own mean:
docs/numerics.md has the algebra.
"""

import tensorflow as tf

from .wasserstein import at_least_float32


def global_mean(per_example: tf.Tensor, global_batch_size: int) -> tf.Tensor:
    """This replica's share of the mean over the global batch.

    The shares of all replicas add up to the mean: sum gradients of it, and
    `strategy.reduce(SUM, ...)` it for the log. Times `num_replicas_in_sync` it is this
    replica's own mean.

    Args:
      per_example: `[B]`, this replica's examples.
      global_batch_size: examples on all replicas together.

    Returns:
      A scalar, float32 at least: half precision cannot even hold a batch of 70,000.

    Raises:
      ValueError: `per_example` is not of shape `[B]`, or `global_batch_size` is not positive.
    """
    per_example = at_least_float32(tf.convert_to_tensor(per_example))
    if per_example.shape.rank != 1:
        raise ValueError(f"per_example must have shape [B], got {per_example.shape}")
    if global_batch_size <= 0:
        raise ValueError(f"global_batch_size must be positive, got {global_batch_size}")
    return tf.reduce_sum(per_example) / tf.cast(global_batch_size, per_example.dtype)


def weighted_global_mean(per_example: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """sum(w * l) / sum(w), both sums over all replicas; exact for uneven replicas.

    For padding, masks, token counts or a last partial batch, where replicas hold different
    numbers of valid examples and a mean of means would weigh them wrongly.

    The *value* is the global one, the same on every replica: log any replica's, or
    `strategy.reduce(MEAN, ...)`. The *gradient* is that of this replica's share, so that
    the usual sum over replicas gives the gradient of the value. Call it in a replica
    context, or outside any strategy.

    Args:
      per_example: any floating-point shape: examples, tokens.
      weights: the shape of `per_example`, >= 0; 0 leaves an entry out.

    Returns:
      A scalar, float32 at least; NaN where all weights of all replicas are zero.

    Raises:
      ValueError: shapes differ, or the call is made in a cross-replica context.
    """
    per_example = at_least_float32(tf.convert_to_tensor(per_example))
    weights = tf.cast(weights, per_example.dtype)
    if not per_example.shape.is_compatible_with(weights.shape):
        raise ValueError(
            f"weights {weights.shape} must have the shape of per_example {per_example.shape}"
        )
    context = tf.distribute.get_replica_context()
    if context is None:
        raise ValueError(
            "weighted_global_mean sums over replicas: call it inside strategy.run, "
            "not in the strategy's scope"
        )
    weighted = tf.reduce_sum(per_example * weights)
    # The weights and the other replicas' losses are constants to this replica's gradient.
    totals = tf.stop_gradient(tf.stack([weighted, tf.reduce_sum(weights)]))
    global_weighted, global_weight = tf.unstack(
        context.all_reduce(tf.distribute.ReduceOp.SUM, totals)
    )
    share = weighted / tf.stop_gradient(global_weight)
    return share + tf.stop_gradient(global_weighted / global_weight - share)
