"""Batches for Keras's fit, ordered so that replicas read their slices of every critic batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import UserError
from ..scaling.conditions import Conditions
from ..spec import DataSpec
from .fit_data import as_array, as_dataset, check_examples, class_labels
from .pipeline_errors import checked_labels

_PREDICTED = 32  # examples in a batch of predict by default, as in Keras


def fit_batches(
    x: Any,
    y: Any,
    spec: DataSpec,
    batch_size: int,
    parts: int,
    replicas: int,
    *,
    order: int | None,
) -> tf.data.Dataset:
    """Returns batches of `parts` critic batches; see `examples_of` and `form_batches`.

    Args:
      x, y, order: See `examples_of`.
      spec: What the networks require of the data.
      batch_size, parts, replicas: See `form_batches`.

    Raises:
      UserError: If x or y cannot be used, or y is missing.
    """

    def check_labels(labels: np.ndarray) -> np.ndarray:
        if spec.conditions is not None:
            return spec.conditions.checked(labels, "y")
        return class_labels(labels, spec.classes)

    needed = f"classes={spec.classes} requires labels" if spec.classes else None
    if spec.conditions is not None:
        needed = "conditions=... requires conditions in fit, too"
    examples = examples_of(
        x,
        y,
        shape=spec.example_shape,
        order=order,
        check_labels=check_labels if needed else None,
    )
    if needed and not isinstance(examples.element_spec, tuple):
        raise UserError(needed, "pass them as y")
    batches = form_batches(examples, batch_size, parts=parts, replicas=replicas)
    if spec.classes and as_dataset(x) is not None:
        remedy = f"give an integer from 0 to {spec.classes - 1} for each example"

        def with_checked(examples: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return examples, checked_labels(labels, spec.classes, "x yields", remedy)

        batches = batches.map(with_checked)
    return batches


def examples_of(
    x: Any,
    y: Any,
    *,
    shape: tuple[int, ...],
    order: int | None,
    check_labels: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of single examples, or of pairs with a label or a condition.

    Args:
      x: An array `[N, ...]`, or what yields batches: a tf.data.Dataset, a PyDataset of Keras or an
        iterable.
      y: Labels `[N]` or conditions `[N, K]` for an array, or None.
      shape: The shape of an example.
      order: The seed with which an array is shuffled in each epoch; None leaves it as it is.
      check_labels: Returns the labels of an array in the form of the networks. None for networks
        without labels, for which labels are left out.

    Raises:
      UserError: If x or y cannot be used.
    """
    batches = as_dataset(x)
    if batches is not None:
        if y is not None:
            raise UserError(
                "y is given, but x yields batches", "yield pairs of examples and labels"
            )
        first, *labels = tf.nest.flatten(batches.element_spec)
        check_examples("x", first.dtype, first.shape[1:], shape, rank=first.shape.rank)
        has_labels = bool(labels) and check_labels is not None

        def of_known_shape(example: tf.Tensor, *labels: tf.Tensor) -> Any:
            example = tf.ensure_shape(example, shape)
            return (example, *labels) if has_labels else example

        return batches.unbatch().map(of_known_shape)
    x = as_array(x, "x")
    check_examples("x", tf.as_dtype(x.dtype), x.shape[1:], shape)
    if not np.isfinite(x).all():
        raise UserError("x contains NaN or infinity", "leave these examples out")
    if y is not None:
        y = as_array(y, "y")
        if len(y) != len(x):
            raise UserError(f"x has {len(x)} examples, but y has {len(y)}", "give one for each")
    parts = x if y is None or check_labels is None else (x, check_labels(y))
    dataset = tf.data.Dataset.from_tensor_slices(parts)
    return dataset if order is None or not len(x) else dataset.shuffle(len(x), seed=order)


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
      data: Examples, or a tuple of examples and labels or conditions, which may be None.
      count: The number of examples of the replica.
      conditions: The standardization of the conditions; None for labels.

    Returns:
      Examples `[count, ...]` float32, and labels `[count]` int32, which are 0 if there are none, or
      standardized conditions `[count, K]` float32.
    """
    examples, *labels = data if isinstance(data, tuple) else (data,)
    examples = tf.ensure_shape(tf.cast(examples, tf.float32), [count, *examples.shape[1:]])
    if not labels or labels[0] is None:
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
