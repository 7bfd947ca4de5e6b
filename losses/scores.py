"""What a critic returns, made uniform: one value an example, in float32 at least."""

from collections.abc import Callable

import tensorflow as tf

Critic = Callable[[tf.Tensor], tf.Tensor]


def like_each_other(
    first: tf.Tensor, first_name: str, second: tf.Tensor, second_name: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Both as tensors; a ValueError unless they are floating-point, of one shape and dtype."""
    first, second = floating(first, first_name), floating(second, second_name)
    if first.dtype != second.dtype:
        raise ValueError(
            f"{first_name} ({first.dtype.name}) and {second_name} ({second.dtype.name}) "
            "must be of one dtype"
        )
    if not first.shape.is_compatible_with(second.shape):
        raise ValueError(
            f"{first_name} {first.shape} and {second_name} {second.shape} must have one shape"
        )
    return first, second


def score(critic: Critic, examples: tf.Tensor) -> tf.Tensor:
    """The critic's scores of `examples`, shape `[B]`, at least float32.

    Half-precision scores are widened here, so that every difference and mean of them
    is taken in float32 whatever the critic's precision policy.

    Raises:
      ValueError: the critic returns anything but floating-point `[B]` or `[B, 1]`.
    """
    return scores_of(critic(examples), examples)


def scores_of(output: tf.Tensor, examples: tf.Tensor) -> tf.Tensor:
    """A critic's output for `examples` as scores; see `score`."""
    scores = at_least_float32(per_example(output, "the critic's scores"))
    if not scores.shape.is_compatible_with(examples.shape[:1]):
        raise ValueError(
            f"the critic's scores must be one an example, {examples.shape[:1]}, got {scores.shape}"
        )
    return scores


def per_example(values: tf.Tensor, name: str) -> tf.Tensor:
    """`[B]` from `[B]` or `[B, 1]`; a ValueError that calls the tensor `name` otherwise."""
    values = floating(values, name)
    if values.shape.rank == 2 and values.shape[1] == 1:
        values = tf.squeeze(values, axis=1)
    if values.shape.rank != 1:
        raise ValueError(f"{name} must have shape [B] or [B, 1], got {values.shape}")
    return values


def floating(values: tf.Tensor, name: str) -> tf.Tensor:
    """`values` as a tensor; a ValueError that calls it `name` unless it is floating-point."""
    values = tf.convert_to_tensor(values)
    if not values.dtype.is_floating:
        raise ValueError(
            f"{name} must be of a floating-point dtype, got {values.dtype.name}: cast first"
        )
    return values


def at_least_float32(values: tf.Tensor) -> tf.Tensor:
    """float16 and bfloat16 widened to float32; float32 and float64 as they are."""
    return tf.cast(values, tf.float32) if values.dtype.size < 4 else values
