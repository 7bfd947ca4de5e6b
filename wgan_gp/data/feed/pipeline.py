"""Feeds each replica its slice of every global batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ...errors import UserError
from ...runtime.tensorflow_patches import no_autotune_of_copies
from ..opened_data import InMemoryData, StoredData, StreamedData

# The dtypes that the infeed of a TPU supports.
_INFEED_DTYPES = (tf.float32, tf.int32, tf.bfloat16, tf.bool)


def distributed_batches(
    data: InMemoryData | StreamedData,
    strategy: tf.distribute.Strategy,
    first_step: int,
    *,
    batch_size: int,
) -> Iterator:
    """Returns an endless iterator over global batches and their labels, split over the replicas.

    It yields one batch for each critic step.

    Args:
      data: The opened dataset.
      strategy: The strategy whose replicas are fed.
      first_step: The critic step to start with.
      batch_size: The global batch size; must be divisible by the number of replicas.
    """
    return distribute(
        strategy,
        lambda context: replica_batches(
            data, context, batch_size=batch_size, first_step=first_step
        ),
    )


def distribute(
    strategy: tf.distribute.Strategy,
    make_dataset: Callable[[tf.distribute.InputContext], tf.data.Dataset],
) -> Iterator:
    """Returns an iterator over each host's dataset, with one element for each replica at a time."""
    with no_autotune_of_copies():
        return iter(strategy.distribute_datasets_from_function(make_dataset))


def replica_batches(
    data: InMemoryData | StreamedData,
    context: tf.distribute.InputContext,
    *,
    batch_size: int,
    first_step: int,
) -> tf.data.Dataset:
    """Returns one host's endless dataset of batches for its replicas.

    Critic step s reads the positions s * batch_size ... (s + 1) * batch_size - 1, and
    replica r reads the r-th slice of them, for any number of replicas and hosts.

    Args:
      data: The opened dataset.
      context: The index of this host and the number of hosts and replicas.
      batch_size: The global batch size; must be divisible by the number of replicas.
      first_step: The critic step to start with.

    Returns:
      A dataset of pairs of static shape, `[batch_size / replicas, *example_shape]` float32 and
      labels int32, or conditions `[batch_size / replicas, K]` float32. For each step in turn, it
      has one batch for each replica of this host.

    Raises:
      UserError: If the dtype or the shape of the batches is not supported by a TPU.
    """
    count = context.get_per_replica_batch_size(batch_size)
    batches = _batches(data, context, count, first_step, normalize=data.format.normalize)
    check_elements(batches.element_spec)
    return without_autotune(batches.prefetch(tf.data.AUTOTUNE))


def stored_batches(
    data: InMemoryData | StreamedData,
    context: tf.distribute.InputContext,
    count: int,
    first_step: int,
) -> tf.data.Dataset:
    """Returns one host's endless dataset of rows of examples, `[count, D]`, and labels int32.

    See `replica_batches` for the order and the arguments.
    """
    return _batches(
        data,
        context,
        count,
        first_step,
        normalize=lambda stored, _: data.format.to_rows(stored),
    )


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset without autotuning, which would delay the end of an iterator.

    An iterator ends only after the tuner's next iteration, and the intervals between these double
    up to a minute. The slow operations of this package are parallel without the tuner.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def _batches(
    data: InMemoryData | StreamedData,
    context: tf.distribute.InputContext,
    count: int,
    first_step: int,
    *,
    normalize: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
) -> tf.data.Dataset:
    """Returns batches of `count` examples for the replicas of this host."""

    labels_shape = data.format.label_spec(count).shape

    @tf.autograph.experimental.do_not_convert  # it has no control flow, and conversion is slow
    def batch(index: tf.Tensor, *content: Any) -> tuple[tf.Tensor, tf.Tensor]:
        first = slice_index(context, first_step, index) * count
        if isinstance(data, StoredData):
            examples, labels = data.gather(*content)
        elif isinstance(data, InMemoryData):  # generated at any position
            examples, labels = data.read_stored(first, count)
        else:
            ((examples, labels),) = content
        examples = tf.ensure_shape(examples, [count, *data.format.shape])
        return normalize(examples, first), tf.ensure_shape(labels, labels_shape)

    if isinstance(data, StoredData):
        slices = own_indices(data, context, count, first_step).unbatch().enumerate()
    elif isinstance(data, InMemoryData):
        slices = tf.data.Dataset.range(tf.int64.max)
    else:
        slices = _decoded_slices(data, context, count, first_step).enumerate()
    batches = slices.map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if context.num_input_pipelines == 1:
        return batches
    # TensorFlow cannot derive it. Several machines would otherwise agree before every batch whether
    # it is the last, smaller one, and batches would have no static shape.
    return batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))


def own_indices(
    data: StoredData, context: tf.distribute.InputContext, count: int, first_step: int
) -> tf.data.Dataset:
    """Returns the indices of each critic step for the replicas of this host.

    Returns:
      A dataset of `[replicas of this host, count]` int64, one element for each step.
    """
    replicas = context.num_replicas_in_sync
    local = replicas // context.num_input_pipelines
    begin = context.input_pipeline_id * local
    batch_size = replicas * count
    return data.indices(first_step * batch_size, batch_size).map(
        lambda indices: tf.reshape(indices, [replicas, count])[begin : begin + local]
    )


def _decoded_slices(
    data: StreamedData, context: tf.distribute.InputContext, count: int, first_step: int
) -> tf.data.Dataset:
    """Returns batches of `count` decoded images; each host decodes only its own images."""
    replicas = context.num_replicas_in_sync
    local = replicas // context.num_input_pipelines
    first = first_step * replicas  # the number of slices in earlier steps

    def is_own(index: tf.Tensor, _: Any) -> tf.Tensor:
        return index % replicas // local == context.input_pipeline_id

    slices = data.encoded(first * count, count)
    if context.num_input_pipelines > 1:
        slices = slices.enumerate(first).filter(is_own).map(lambda _, elements: elements)
    return data.decode(slices).rebatch(count, drop_remainder=True)


def slice_index(
    context: tf.distribute.InputContext, first_step: int | tf.Tensor, index: tf.Tensor
) -> tf.Tensor:
    """Returns the index of this host's `index`-th slice among all slices of all steps."""
    replicas = context.num_replicas_in_sync
    local = replicas // context.num_input_pipelines
    step = first_step + index // local
    return step * replicas + context.input_pipeline_id * local + index % local


def first_examples(data: InMemoryData | StreamedData, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first `count` examples of training and their labels."""
    batches = replica_batches(data, tf.distribute.InputContext(), batch_size=count, first_step=0)
    return next(iter(batches))


def check_elements(spec: Any) -> None:
    """Raises UserError unless a TPU supports the dtypes and shapes of the elements of a dataset.

    TensorFlow would raise an error about the compiled program, minutes later.
    """
    for part in tf.nest.flatten(spec):
        if part.dtype not in _INFEED_DTYPES:
            raise UserError(
                f"the dataset yields {part.dtype.name}, which a TPU does not support: {part}",
                "cast it to float32 or int32 in wgan_gp/data/",
            )
        if not part.shape.is_fully_defined():
            raise UserError(
                f"the dataset yields batches without a fixed shape: {part}",
                "resize its images and drop incomplete batches, in wgan_gp/data/",
            )
