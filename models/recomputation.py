"""Functions that are computed again for their gradients of every order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf


def recomputed(
    function: Callable[..., list[tf.Tensor]], weights: Sequence[tf.Variable]
) -> Callable[..., Sequence[tf.Tensor]]:
    """Returns a function that computes `function` again for its gradients of every order.

    Args:
      function: Maps tensors to tensors, and reads the weights.
      weights: The variables on which the function depends.

    Returns:
      A function of the values of the weights and of the arguments of `function`. It reads the
      variables, not these values, but their gradients flow through the values.
    """
    count = len(weights)

    @tf.custom_gradient
    def call(*arguments: tf.Tensor):
        values, inputs = arguments[:count], arguments[count:]

        def backward(*upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()):
            delayed = [_after(upstream[0], each) for each in inputs]

            def gradient(*, of_weights: bool) -> Sequence[tf.Tensor]:
                def function_and_gradient(*arguments: tf.Tensor) -> list[tf.Tensor]:
                    points, slopes = arguments[: len(inputs)], arguments[len(inputs) :]
                    with tf.GradientTape() as tape:
                        tape.watch(points)
                        outputs = function(*points)
                    sources, like = (weights, values) if of_weights else (points, points)
                    found = tape.gradient(outputs, list(sources), output_gradients=list(slopes))
                    return [
                        tf.zeros_like(each) if slope is None else tf.convert_to_tensor(slope)
                        for slope, each in zip(found, like, strict=True)
                    ]

                return recomputed(function_and_gradient, weights)(*values, *delayed, *upstream)

            # Two calls, because a penalty needs the gradient with respect to the examples alone.
            # The gradient of a single call would pass through zeros of all weights. Where both are
            # needed, compilers merge what the two have in common.
            of_weights = gradient(of_weights=True) if weights else []
            return [*of_weights, *gradient(of_weights=False)], [None] * len(variables)

        return function(*inputs), backward

    return call


def _after(upstream: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Returns `x`, which is NaN if the first value of `upstream` is NaN or infinite.

    A compiler cannot know that this value is finite. It therefore cannot merge what is computed
    from the result with what was computed from `x` itself, whose results it would have to keep.
    """
    rank = upstream.shape.rank
    first = tf.reshape(tf.slice(upstream, [0] * rank, [1] * rank), [])
    zero = tf.where(tf.math.is_finite(first), 0.0, float("nan"))
    return x + tf.stop_gradient(tf.cast(zero, x.dtype))
