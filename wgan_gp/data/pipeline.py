"""Feeds each replica its slice of every global batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from ..errors import UserError
from .source import Source, Stream

# What a TPU's infeed takes, of all of TensorFlow's.
_INFEED_DTYPES = (tf.float32, tf.int32, tf.bfloat16, tf.bool)


def distributed_batches(
    source: Source | Stream,
    strategy: tf.distribute.Strategy,
    first_step: int,
    *,
    batch_size: int,
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
    source: Source | Stream,
    context: tf.distribute.InputContext,
    *,
    batch_size: int,
    first_step: int,
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

    Raises:
      UserError: the batches are none that a TPU can be fed.
    """
    count = context.get_per_replica_batch_size(batch_size)
    if isinstance(source, Stream):
        batches = _decoded(source, context, count, first_step)
    else:
        batches = _read(source, context, count, first_step)
    check_elements(batches.element_spec)
    return untuned(batches.prefetch(tf.data.AUTOTUNE))


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The same without autotuning, which would make the end of an iterator wait.

    It waits for the tuner's next look, and the intervals between these double, up to a minute.
    What takes long here is parallel as it is.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def _read(
    source: Source, context: tf.distribute.InputContext, count: int, first_step: int
) -> tf.data.Dataset:
    """From memory, by position; `count` examples a replica."""

    @tf.autograph.experimental.do_not_convert  # there is no control flow, and it takes time
    def batch(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first = _slice_index(context, first_step, index) * count
        examples, labels = source.read(first, count)
        return (
            tf.ensure_shape(examples, [count, *source.example_shape]),
            tf.ensure_shape(labels, [count]),
        )

    return tf.data.Dataset.range(tf.int64.max).map(
        batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _decoded(
    source: Stream, context: tf.distribute.InputContext, count: int, first_step: int
) -> tf.data.Dataset:
    """From a stream of images still to be decoded, of which this host decodes its own."""
    replicas = context.num_replicas_in_sync
    local = replicas // context.num_input_pipelines
    first = first_step * replicas  # slices, before this stream

    def is_own(slice_index: tf.Tensor, _: Any) -> tf.Tensor:
        return slice_index % replicas // local == context.input_pipeline_id

    def batch(index: tf.Tensor, images: Any) -> tuple[tf.Tensor, tf.Tensor]:
        levels, labels = images
        return source.finish(levels, _slice_index(context, first_step, index) * count), labels

    slices = source.encoded(first * count, count)
    if context.num_input_pipelines > 1:
        slices = slices.enumerate(first).filter(is_own).map(lambda _, elements: elements)
    return (
        source.decode(slices)
        .rebatch(count, drop_remainder=True)
        .enumerate()
        .map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    )


def _slice_index(
    context: tf.distribute.InputContext, first_step: int, index: tf.Tensor
) -> tf.Tensor:
    """Of this host's `index`-th slice, its place among all slices of all steps."""
    replicas = context.num_replicas_in_sync
    local = replicas // context.num_input_pipelines
    step = first_step + index // local
    return step * replicas + context.input_pipeline_id * local + index % local


def first_examples(source: Source | Stream, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The first examples that training reads, and their labels."""
    batches = replica_batches(source, tf.distribute.InputContext(), batch_size=count, first_step=0)
    return next(iter(batches))


def check_elements(spec: Any) -> None:
    """Raises UserError unless a TPU can be fed elements of this kind, naming the first it cannot.

    TensorFlow says so minutes later, and of the compiled program.
    """
    for part in tf.nest.flatten(spec):
        if part.dtype not in _INFEED_DTYPES:
            raise UserError(
                f"the dataset yields {part.dtype.name}, which no TPU can be fed: {part}",
                "cast it to float32 or int32 in wgan_gp/data/",
            )
        if not part.shape.is_fully_defined():
            raise UserError(
                f"the dataset yields batches of no fixed shape: {part}",
                "resize its images, and leave no batch short, in wgan_gp/data/",
            )
