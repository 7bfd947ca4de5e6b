"""The Wasserstein losses of the critic and of the generator, per example."""

from collections.abc import Callable

import tensorflow as tf

Critic = Callable[[tf.Tensor], tf.Tensor]


def critic_loss(real_scores: tf.Tensor, fake_scores: tf.Tensor) -> tf.Tensor:
    """D(fake) - D(real): its negated mean estimates the Wasserstein distance.

    Arjovsky et al. 2017 (arXiv:1701.07875), equation 2, turned into a loss.

    Args:
      real_scores: `[B]` or `[B, 1]`, floating point.
      fake_scores: the same shape and dtype as `real_scores`.

    Returns:
      `[B]`, in the scores' dtype.

    Raises:
      ValueError: scores of another shape, or batches of different sizes.
    """
    real_scores = per_example(real_scores, "real_scores")
    fake_scores = per_example(fake_scores, "fake_scores")
    if not real_scores.shape.is_compatible_with(fake_scores.shape):
        raise ValueError(
            f"real_scores {real_scores.shape} and fake_scores {fake_scores.shape} "
            "must have one value for each example of batches of the same size"
        )
    return fake_scores - real_scores


def generator_loss(fake_scores: tf.Tensor) -> tf.Tensor:
    """-D(fake), shape `[B]`: the generator wants its samples scored as high as real ones.

    Arjovsky et al. 2017 (arXiv:1701.07875), algorithm 1, line 10.

    Args:
      fake_scores: `[B]` or `[B, 1]`, floating point.

    Raises:
      ValueError: scores of another shape.
    """
    return -per_example(fake_scores, "fake_scores")


def score(critic: Critic, examples: tf.Tensor) -> tf.Tensor:
    """The critic's scores of `examples`, shape `[B]`, at least float32.

    Half-precision scores are widened here, so that every difference and mean of them
    is taken in float32 whatever the critic's precision policy.

    Raises:
      ValueError: the critic returns anything but `[B]` or `[B, 1]`.
    """
    scores = per_example(critic(examples), "the critic's scores")
    return at_least_float32(scores)


def per_example(scores: tf.Tensor, name: str) -> tf.Tensor:
    """`[B]` from `[B]` or `[B, 1]`; a ValueError that calls the tensor `name` otherwise."""
    scores = tf.convert_to_tensor(scores)
    if scores.shape.rank == 2 and scores.shape[1] == 1:
        scores = tf.squeeze(scores, axis=1)
    if scores.shape.rank != 1:
        raise ValueError(f"{name} must have shape [B] or [B, 1], got {scores.shape}")
    return scores


def at_least_float32(values: tf.Tensor) -> tf.Tensor:
    """float16 and bfloat16 become float32; float32 and float64 stay."""
    return tf.cast(values, tf.float32) if values.dtype.size < 4 else values
