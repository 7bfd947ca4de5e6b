"""Feeds each replica its slice of every global batch."""

from collections.abc import Iterator

import tensorflow as tf

from .source import Source


def distributed_batches(
    source: Source, strategy: tf.distribute.Strategy, first_step: int, *, batch_size: int
) -> Iterator:
    """An endless iterator over real batches and their labels, split over the replicas.

    One a critic step.

    Args:
      source: the dataset.
      strategy: whose replicas to feed.
      first_step: the critic step to begin with.
      batch_size: examples in a critic step over all replicas; divides over them.
    """
    return iter(
        strategy.distribute_datasets_from_function(
            lambda context: replica_batches(
                source, context, batch_size=batch_size, first_step=first_step
            )
        )
    )


def replica_batches(
    source: Source, context: tf.distribute.InputContext, *, batch_size: int, first_step: int
) -> tf.data.Dataset:
    """One host's endless dataset of its replicas' batches.

    Critic step s reads the positions s * batch_size ... (s + 1) * batch_size - 1, and
    replica r the r-th slice of them, however many replicas and hosts there are.

    Args:
      source: the dataset.
      context: which host this is, of how many.
      batch_size: examples in a critic step over all replicas; divides over them.
      first_step: the critic step to begin with.

    Returns:
      A dataset of pairs, `[batch_size / replicas, *example_shape]` float32 and labels int32, of
      static shape: this host's first replica's batch, its second's, ..., then those of the
      next step.
    """
    per_replica = context.get_per_replica_batch_size(batch_size)
    local_replicas = context.num_replicas_in_sync // context.num_input_pipelines

    def batch(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        step = first_step + index // local_replicas
        replica = context.input_pipeline_id * local_replicas + index % local_replicas
        examples, labels = source.read(step * batch_size + replica * per_replica, per_replica)
        return (
            tf.ensure_shape(examples, [per_replica, *source.example_shape]),
            tf.ensure_shape(labels, [per_replica]),
        )

    return (
        tf.data.Dataset.range(tf.int64.max)
        .map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(tf.data.AUTOTUNE)
    )
