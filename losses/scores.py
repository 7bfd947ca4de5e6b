"""Checks and conversions of a critic's output: one score per example, at least float32.

The scores of patches, such as `[B, H, W, 1]` or `[B, T]`, are averaged over each example, as in a
PatchGAN (Isola et al. 2017, arXiv:1611.07004, section 3.2.2).
"""

from __future__ import annotations

from collections.abc import Callable

from .lazy_tensorflow import tf

Critic = Callable[["tf.Tensor"], "tf.Tensor"]


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


def score(critic: Critic, examples: tf.Tensor) -> tf.Tensor:
    """Computes the critic's scores of `examples`, at least in float32.

    float16 and bfloat16 scores are cast to float32, so that their differences and means are
    computed in float32 under any precision policy.

    Args:
      critic: Maps `[B, ...]` to floating-point scores `[B]`, `[B, 1]` or, of patches, `[B, ...]`.
      examples: `[B, ...]`.

    Returns:
      `[B]`, float32 (float64 for float64 scores).

    Raises:
      ValueError: If the scores have another shape or are not floating-point.
    """
    return scores_of(critic(examples), examples)


def scores_of(output: tf.Tensor, examples: tf.Tensor) -> tf.Tensor:
    """Converts the output of a critic for `examples` to scores, see `score`."""
    if isinstance(output, (list, tuple)):
        raise ValueError(
            f"the critic must return a tensor of scores, got a {type(output).__name__} of "
            f"{len(output)}: pass a function that returns the scores only"
        )
    scores = per_example(output, "the critic's scores")
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
        are averaged over all axes but the first.
      name: The name of the values in error messages.

    Returns:
      `[B]`, float32 (float64 for float64 values).

    Raises:
      ValueError: If `values` are not a floating-point tensor, or have no axis of examples.
    """
    if isinstance(values, dict):
        raise ValueError(
            f"{name} must be a tensor, got a dictionary with the keys {list(values)}: select one"
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
      ValueError: If the tensor is not floating-point; the message contains `name`.
    """
    values = tf.convert_to_tensor(values)
    if not values.dtype.is_floating:
        raise ValueError(
            f"{name} must have a floating-point dtype, got {values.dtype.name}: cast it first"
        )
    return values


def at_least_float32(values: tf.Tensor) -> tf.Tensor:
    """Casts float16 and bfloat16 to float32; leaves float32 and float64 unchanged."""
    return tf.cast(values, tf.float32) if values.dtype.size < 4 else values
