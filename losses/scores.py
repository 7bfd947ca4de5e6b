"""What a critic returns, made uniform: one value an example, in float32 at least."""

from collections.abc import Callable

import tensorflow as tf

Critic = Callable[[tf.Tensor], tf.Tensor]


def score(critic: Critic, examples: tf.Tensor) -> tf.Tensor:
    """The critic's scores of `examples`, shape `[B]`, at least float32.

    Half-precision scores are widened here, so that every difference and mean of them
    is taken in float32 whatever the critic's precision policy.

    Raises:
      ValueError: the critic returns anything but floating-point `[B]` or `[B, 1]`.
    """
    return at_least_float32(per_example(critic(examples), "the critic's scores"))


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
