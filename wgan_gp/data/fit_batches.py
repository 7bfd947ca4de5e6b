"""Batches for Keras's fit, ordered so that replicas read their slices of every critic batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import UserError
from .conditions import Conditions

_PREDICTED = 32  # examples in a batch of predict by default, as in Keras


def examples_of(
    x: Any, y: Any, *, seed: int, shuffle: bool, needed: str | None = None
) -> tf.data.Dataset:
    """Returns a dataset of single examples, or of pairs with a label or a condition.

    Args:
      x: An array `[N, ...]`, or a tf.data.Dataset of batches.
      y: Labels `[N]` or conditions `[N, K]` for an array, or None.
      seed: The seed of the order.
      shuffle: Whether to shuffle an array in each epoch.
      needed: The message if there are no labels; None if none are needed.

    Raises:
      UserError: If labels are needed, but missing.
    """
    is_dataset = isinstance(x, tf.data.Dataset)
    if isinstance(y, list | tuple):
        y = np.asarray(y)  # TensorFlow would round numbers of Python to float32
    dataset = (
        x.unbatch()
        if is_dataset
        else tf.data.Dataset.from_tensor_slices(x if y is None else (x, y))
    )
    if needed is not None and not isinstance(dataset.element_spec, tuple):
        raise UserError(needed, "pass them as y")
    if is_dataset:
        return dataset
    return dataset.shuffle(len(x), seed=seed) if shuffle else dataset


def form_batches(
    examples: tf.data.Dataset, batch_size: int, *, parts: int, replicas: int
) -> tf.data.Dataset:
    """Returns batches of `parts` critic batches, without an incomplete one.

    Keras gives each replica a contiguous part of a batch. A batch is therefore ordered by replica,
    then by critic batch, so that replica r gets the r-th slice of every critic batch.

    Args:
      examples: Single examples or pairs; see `examples_of`.
      batch_size: The number of examples of a critic batch, divisible by the number of replicas.
      parts: The number of critic batches in a batch.
      replicas: The number of replicas.

    Raises:
      UserError: If there are fewer examples than in a batch.
    """
    size, count = parts * batch_size, int(examples.cardinality())
    if 0 <= count < size:
        raise UserError(
            f"there are {count} examples, but one batch has {size}",
            "lower batch_size or n_critic in the Config of the model",
        )
    has_labels = isinstance(examples.element_spec, tuple)

    def by_replica(*batch: tf.Tensor) -> Any:
        ordered = tuple(_swap(each, parts, replicas) for each in batch)
        return ordered if has_labels else ordered[0]

    batches = examples.batch(size, drop_remainder=True).map(by_replica)
    return batches.prefetch(tf.data.AUTOTUNE)


def predicted_inputs(
    x: Any, batch_size: int | None, conditions: Conditions | None
) -> tuple[Any, int | None]:
    """Returns the arguments x and batch_size of Keras's predict.

    Arrays of latents and conditions become a dataset, because Keras rounds arrays to float32.

    Args:
      x, batch_size: The arguments of the caller.
      conditions: The standardization of the conditions; None for labels.
    """
    if conditions is None or not isinstance(x, list | tuple):
        return x, batch_size
    inputs = tuple(np.asarray(each) for each in x)
    return tf.data.Dataset.from_tensor_slices((inputs,)).batch(batch_size or _PREDICTED), None


def static_batch(
    data: Any, count: int, conditions: Conditions | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a replica's part of a batch as examples and labels of static shapes.

    Args:
      data: Examples, or a tuple of examples and labels or conditions.
      count: The number of examples of the replica.
      conditions: The standardization of the conditions; None for labels.

    Returns:
      Examples `[count, ...]` float32, and labels `[count]` int32, which are 0 if there are none, or
      standardized conditions `[count, K]` float32.
    """
    examples, *labels = data if isinstance(data, tuple) else (data,)
    examples = tf.ensure_shape(tf.cast(examples, tf.float32), [count, *examples.shape[1:]])
    if not labels:
        return examples, tf.zeros([count], tf.int32)
    if conditions is not None:
        values = tf.reshape(labels[0], [count, conditions.size])
        return examples, conditions.standardize_tensor(values)
    return examples, tf.ensure_shape(tf.cast(tf.reshape(labels[0], [-1]), tf.int32), [count])


def _swap(batch: tf.Tensor, parts: int, replicas: int) -> tf.Tensor:
    """Reorders [part, replica, example] to [replica, part, example]."""
    shape = batch.shape.as_list()
    grouped = tf.reshape(batch, [parts, replicas, shape[0] // (parts * replicas), *shape[1:]])
    order = [1, 0, *range(2, len(grouped.shape))]
    return tf.reshape(tf.transpose(grouped, order), shape)
