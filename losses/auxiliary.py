"""Additions to an objective: drift, an auxiliary classifier, weight clipping, lazy penalties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .lazy_tensorflow import tf
from .scores import at_least_float32, floating, per_example


def drift(real_scores: tf.Tensor) -> tf.Tensor:
    """Computes the drift penalty, D(real)^2.

    Adding a constant to every score does not change the Wasserstein loss. With a small weight
    (0.001), this penalty keeps the scores near zero. Karras et al. 2018 (arXiv:1710.10196),
    appendix A.1.

    Args:
      real_scores: `[B]`, `[B, 1]` or, of patches, `[B, ...]`, floating point.

    Returns:
      The penalty of each example, `[B]`, float32 (float64 for float64 scores).

    Raises:
      ValueError: If the scores have another shape or are not floating-point.
    """
    return tf.square(per_example(real_scores, "real_scores"))


def classification_loss(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Computes the cross-entropy of an auxiliary classifier (ACGAN).

    Odena et al. 2017 (arXiv:1610.09585), equation 3. In the code of Gulrajani et al. 2017
    (arXiv:1704.00028), the critic minimizes it on real examples with weight 1, and the generator
    minimizes it on samples, for the labels they were generated from, with weight 0.1.

    Args:
      logits: `[B, K]`, floating point.
      labels: `[B]`, integers in [0, K).

    Returns:
      The cross-entropy of each example, `[B]`, float32 (float64 for float64 logits).

    Raises:
      ValueError: If `logits` or `labels` have another shape or dtype.
    """
    logits, labels = floating(logits, "logits"), tf.convert_to_tensor(labels)
    if logits.shape.rank != 2:
        raise ValueError(f"logits must have shape [B, K], got {logits.shape}")
    if not labels.dtype.is_integer or not labels.shape.is_compatible_with(logits.shape[:1]):
        raise ValueError(
            f"labels must be integers of shape {logits.shape[:1]}, "
            f"got {labels.dtype.name} {labels.shape}"
        )
    labels = labels if labels.dtype == tf.int64 else tf.cast(labels, tf.int32)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, at_least_float32(logits))


def clip_weights(weights: Sequence[tf.Variable], limit: float) -> None:
    """Clips every weight to [-limit, limit] in place.

    Call it after each update of the critic. Like an optimizer's update, it works inside
    `strategy.run` and outside any strategy. Arjovsky et al. 2017 (arXiv:1701.07875), algorithm
    1, line 7, where the limit is 0.01.

    Args:
      weights: Variables of TensorFlow or of Keras.
      limit: Largest absolute value that a weight may have, > 0.

    Raises:
      ValueError: If `limit` is not positive.
    """
    if not limit > 0:
        raise ValueError(f"limit must be positive, got {limit}")
    variables = [_variable(weight) for weight in tf.nest.flatten(weights)]

    def clip_everywhere(strategy: tf.distribute.Strategy) -> None:
        for variable in variables:
            strategy.extended.update(
                variable, lambda copy: copy.assign(tf.clip_by_value(copy, -limit, limit))
            )

    # One replica cannot write to a mirrored variable on its own: all replicas synchronize here.
    context = tf.distribute.get_replica_context()
    if context is None:
        clip_everywhere(tf.distribute.get_strategy())
    else:
        context.merge_call(clip_everywhere)


def lazy_regularization(interval: int, step: tf.Tensor, compute: Callable, like: Any) -> Any:
    """Computes a regularization term at every `interval`-th step only, times `interval`.

    The other steps return zeros without computing the term. The means over steps of the values and
    of their gradients are the same as if every step computed the term. Karras et al. 2020
    (arXiv:1912.04958), section 3.1.

    Args:
      interval: K, >= 1; the term is computed at steps 0, k, 2k, ...
      step: Scalar integer, number of critic steps completed.
      compute: Function without arguments that returns a tensor, such as a penalty, or a
        structure of tensors.
      like: Tensors with the shapes and dtypes of the result of `compute`.

    Returns:
      Tensors in the structure, shapes and dtypes of the result of `compute`.

    Raises:
      ValueError: If `interval` is not positive.
    """
    if interval < 1:
        raise ValueError(f"interval must be positive, got {interval}")
    if interval == 1:
        return compute()

    def compute_scaled() -> Any:
        return tf.nest.map_structure(lambda value: value * float(interval), compute())

    def skip() -> Any:
        return tf.nest.map_structure(tf.zeros_like, like)

    step = tf.convert_to_tensor(step)
    due = tf.equal(tf.math.floormod(step, tf.cast(interval, step.dtype)), 0)
    return tf.cond(due, compute_scaled, skip)


def _variable(weight: tf.Variable) -> tf.Variable:
    """Returns the tf.Variable itself, which a variable of Keras 3 holds as `value`."""
    return weight if callable(weight.value) else weight.value
