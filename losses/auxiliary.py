"""What is added to, or asked beside, an adversarial loss: drift, classes, clipped weights."""

from collections.abc import Sequence

import tensorflow as tf

from .scores import at_least_float32, floating, per_example


def drift(real_scores: tf.Tensor) -> tf.Tensor:
    """D(real)^2: with a small weight (0.001) it keeps the scores, free to shift, near zero.

    Karras et al. 2018 (arXiv:1710.10196), appendix A.1.

    Args:
      real_scores: `[B]` or `[B, 1]`, floating point.

    Returns:
      `[B]`.

    Raises:
      ValueError: scores of another shape or dtype.
    """
    return tf.square(per_example(real_scores, "real_scores"))


def classification_loss(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Cross-entropy of an auxiliary classifier, ACGAN.

    Odena et al. 2017 (arXiv:1610.09585), equation 3. In the code of Gulrajani et al. 2017
    (arXiv:1704.00028), the critic minimises it on real examples, weight 1, and the
    generator on samples with the labels they were drawn for, weight 0.1.

    Args:
      logits: `[B, K]`, floating point, one an example and class.
      labels: `[B]` integers in [0, K).

    Returns:
      `[B]`, at least float32.

    Raises:
      ValueError: shapes or dtypes other than these.
    """
    logits, labels = floating(logits, "logits"), tf.convert_to_tensor(labels)
    if logits.shape.rank != 2:
        raise ValueError(f"logits must have shape [B, K], got {logits.shape}")
    if not labels.dtype.is_integer or not labels.shape.is_compatible_with(logits.shape[:1]):
        raise ValueError(
            f"labels must be integers of shape {logits.shape[:1]}, "
            f"got {labels.dtype.name} {labels.shape}"
        )
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, at_least_float32(logits))


def clip_weights(weights: Sequence[tf.Variable], limit: float) -> None:
    """Clips every weight to [-limit, limit], in place; call it after each critic update.

    Arjovsky et al. 2017 (arXiv:1701.07875), algorithm 1, line 7, with a limit of 0.01.

    Works where an optimizer's update works: inside `strategy.run` and outside any strategy.

    Raises:
      ValueError: `limit` is not positive.
    """
    if not limit > 0:
        raise ValueError(f"limit must be positive, got {limit}")
    variables = [_variable(weight) for weight in tf.nest.flatten(weights)]

    def clip_everywhere(strategy: tf.distribute.Strategy) -> None:
        for variable in variables:
            strategy.extended.update(
                variable, lambda copy: copy.assign(tf.clip_by_value(copy, -limit, limit))
            )

    # A replica may not write to a mirrored variable alone: all of them meet here.
    context = tf.distribute.get_replica_context()
    if context is None:
        clip_everywhere(tf.distribute.get_strategy())
    else:
        context.merge_call(clip_everywhere)


def _variable(weight: tf.Variable) -> tf.Variable:
    """The variable that a strategy knows: Keras 3 wraps it, and has it as `value`."""
    return weight if callable(weight.value) else weight.value
