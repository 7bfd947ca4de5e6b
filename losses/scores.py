"""Checks and conversions of a critic's inputs and output: one score per example, at least float32.

Examples are one tensor `[B, ...]`, or a nested structure of tensors for a critic of several inputs,
such as an image and its condition. Lists of plain numbers are one tensor.

The scores of patches, such as `[B, H, W, 1]` or `[B, T]`, are averaged over each example, as in a
PatchGAN (Isola et al. 2017, arXiv:1611.07004, section 3.2.2).
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import Any

from .lazy_tensorflow import tf

Examples = Any  # a tensor `[B, ...]`, or a nested structure of them
Critic = Callable[[Examples], "tf.Tensor"]


def is_structure(values: Any) -> bool:
    """Returns True for nested lists, tuples and dictionaries, unless they contain plain numbers."""
    leaves = tf.nest.flatten(values)
    is_array = bool(leaves) and all(isinstance(each, numbers.Number) for each in leaves)
    return tf.nest.is_nested(values) and not is_array


def as_examples(values: Examples, name: str) -> Examples:
    """Converts examples to floating-point tensors of one batch.

    Raises:
      ValueError: If a tensor is not floating-point, has no axis of examples or an unknown rank, or
        the tensors differ in the number of examples; the message contains `name`.
    """
    if not is_structure(values):
        return _with_axes(floating(values, name), name)
    values = tf.nest.map_structure(lambda each: _with_axes(floating(each, name), name), values)
    tensors = tf.nest.flatten(values)
    if not tensors:
        raise ValueError(f"{name} must contain a tensor, got {values}")
    for each in tensors:
        if not each.shape[:1].is_compatible_with(tensors[0].shape[:1]):
            raise ValueError(
                f"the tensors of {name} must have the same number of examples, got "
                f"{tensors[0].shape} and {each.shape}"
            )
    return values


def _with_axes(values: tf.Tensor, name: str) -> tf.Tensor:
    if values.shape.rank is None:
        raise ValueError(f"{name} has a shape of unknown rank: set it with tf.ensure_shape")
    if not values.shape.rank:
        raise ValueError(f"{name} must be a tensor [B, ...] with an axis of examples, got a scalar")
    return values


def matching_examples(
    first: Examples, first_name: str, second: Examples, second_name: str
) -> tuple[Examples, Examples]:
    """Converts both to examples, which must have equal structures, shapes and dtypes.

    A list matches a tuple, because Keras returns lists where tf.data has tuples.

    Returns:
      Both, in the structure of the first.

    Raises:
      ValueError: If they are not examples or do not match; the message contains the names.
    """
    first, second = as_examples(first, first_name), as_examples(second, second_name)
    if _outline(first) != _outline(second):
        raise ValueError(
            f"{first_name} and {second_name} must have the same structure, got {_outline(first)} "
            f"and {_outline(second)}"
        )
    pairs = [
        as_matching(one, first_name, other, second_name)
        for one, other in zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True)
    ]
    firsts, seconds = zip(*pairs, strict=True)
    return tf.nest.pack_sequence_as(first, firsts), tf.nest.pack_sequence_as(first, seconds)


def _outline(values: Examples) -> Any:
    """Returns the structure as lists and dictionaries, with `...` in place of each tensor."""
    if isinstance(values, Mapping):
        return {key: _outline(values[key]) for key in sorted(values)}
    return [*map(_outline, values)] if isinstance(values, (list, tuple)) else ...


def as_matching(
    first: tf.Tensor, first_name: str, second: tf.Tensor, second_name: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Converts both to tensors, which must be floating-point and equal in shape and dtype.

    Raises:
      ValueError: If they are not; the message contains the names.
    """
    first, second = floating(first, first_name), floating(second, second_name)
    if first.dtype != second.dtype:
        raise ValueError(
            f"{first_name} ({first.dtype.name}) and {second_name} ({second.dtype.name}) "
            "must have the same dtype: cast one of them"
        )
    if not first.shape.is_compatible_with(second.shape):
        raise ValueError(
            f"{first_name} {first.shape} and {second_name} {second.shape} must have the same shape"
        )
    return of_one_shape(first, second, f"{first_name} and {second_name}")


def of_one_shape(first: tf.Tensor, second: tf.Tensor, names: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns two tensors, which are compared when they are computed if a size is unknown.

    XLA, which knows all sizes, ignores the comparison.
    """
    shape = first.shape.merge_with(second.shape)
    first = _of_shape(first, shape, tf.shape(second), f"{names} must have the same shape")
    return first, tf.ensure_shape(second, shape)


def of_batch(values: tf.Tensor, examples: tf.Tensor, name: str) -> tf.Tensor:
    """Returns values `[B]`, one for each example; see `of_one_shape`."""
    shape = values.shape.merge_with(examples.shape[:1])
    message = f"{name} must have shape [B], one for each example"
    return _of_shape(values, shape, tf.shape(examples)[:1], message)


def _of_shape(
    values: tf.Tensor, shape: tf.TensorShape, expected: tf.Tensor, message: str
) -> tf.Tensor:
    if not shape.is_fully_defined():
        equal = tf.debugging.assert_equal(tf.shape(values), expected, message)
        # What uses the values waits, because it would fail with another message.
        with tf.control_dependencies([equal] if equal is not None else []):
            values = tf.identity(values)
    return tf.ensure_shape(values, shape)


def score(critic: Critic, examples: Examples) -> tf.Tensor:
    """Computes the critic's scores of `examples`, at least in float32.

    float16 and bfloat16 scores are cast to float32, so that their differences and means are
    computed in float32 under any precision policy.

    Args:
      critic: Maps `[B, ...]` to floating-point scores `[B]`, `[B, 1]` or, of patches, `[B, ...]`.
      examples: `[B, ...]`, or a nested structure of such tensors.

    Returns:
      `[B]`, float32 (float64 for float64 scores).

    Raises:
      ValueError: If the scores have another shape or are not floating-point.
    """
    return scores_of(critic(examples), examples)


def scores_of(output: tf.Tensor, examples: Examples) -> tf.Tensor:
    """Converts the output of a critic for `examples` to scores, see `score`."""
    scores = per_example(output, "the critic's scores")
    examples = tf.nest.flatten(examples)[0]
    if not scores.shape.is_compatible_with(examples.shape[:1]):
        raise ValueError(
            f"the critic must return one score per example, {examples.shape[:1]}, "
            f"got {scores.shape}"
        )
    return of_batch(scores, examples, "scores")


def per_example(values: tf.Tensor, name: str) -> tf.Tensor:
    """Converts scores to one per example, at least float32.

    Args:
      values: `[B]`, `[B, 1]`, or scores of patches, `[B, T]`, `[B, H, W]` or `[B, H, W, 1]`, which
        are averaged over all axes but the first; alone, or alone in a list or dictionary.
      name: The name of the values in error messages.

    Returns:
      `[B]`, float32 (float64 for float64 values).

    Raises:
      ValueError: If `values` are not a floating-point tensor, or have no axis of examples.
    """
    if is_structure(values) and len(tf.nest.flatten(values)) == 1:
        (values,) = tf.nest.flatten(values)
    if is_structure(values):
        raise ValueError(
            f"{name} must be one tensor, got {_outline(values)}: pass one score per example, such "
            "as the sum of several"
        )
    values = at_least_float32(floating(values, name))
    if values.shape.rank is None:
        raise ValueError(f"{name} have a shape of unknown rank: set it with tf.ensure_shape")
    is_feature_map = values.shape.rank > 3 and values.shape[-1] != 1
    if not values.shape.rank or 0 in values.shape[1:] or is_feature_map:
        raise ValueError(
            f"{name} must have shape [B], [B, 1] or, for patches, [B, T] or [B, H, W, 1], got "
            f"{values.shape}: return one score per example or per patch"
        )
    if values.shape[1:].as_list() == [1]:
        return tf.squeeze(values, axis=1)
    axes = list(range(1, values.shape.rank))
    return tf.reduce_mean(values, axes) if axes else values


def floating(values: tf.Tensor, name: str) -> tf.Tensor:
    """Converts `values` to a tensor.

    Raises:
      ValueError: If they cannot be converted, or the tensor is not floating-point; the message
        contains `name`.
    """
    try:
        values = tf.convert_to_tensor(values)
    except (TypeError, ValueError) as error:  # ragged and sparse tensors, None, other objects
        raise ValueError(
            f"{name} must be a tensor, got {type(values).__name__}: convert it to a dense tensor"
        ) from error
    if not values.dtype.is_floating:
        raise ValueError(
            f"{name} must have a floating-point dtype, got {values.dtype.name}: cast it first"
        )
    return values


def at_least_float32(values: tf.Tensor) -> tf.Tensor:
    """Casts float16 and bfloat16 to float32; leaves float32 and float64 unchanged."""
    return tf.cast(values, tf.float32) if values.dtype.size < 4 else values
