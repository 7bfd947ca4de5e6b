"""Lazy regularization: a term that is computed only at some steps."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


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
