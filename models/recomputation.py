"""Functions that are computed again for their gradients of every order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

# Neither has a public name: the barrier of XLA, and whether any tape is recording.
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.eager import record

Function = Callable[..., Sequence[tf.Tensor]]


def recomputed(function: Function, weights: Sequence[tf.Variable], *, xla: bool) -> Function:
    """Returns a function that computes `function` again for its gradients of every order.

    Args:
      function: Maps tensors to tensors, and reads the weights.
      weights: The variables on which the function depends.
      xla: Whether XLA compiles the result, see `_after`.

    Returns:
      A function of the values of the weights and of the arguments of `function`. It reads the
      variables, not these values, but their gradients flow through the values.
    """
    count = len(weights)

    @tf.custom_gradient
    def call(*arguments: tf.Tensor):
        values, inputs = arguments[:count], arguments[count:]

        def backward(*upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()):
            def gradient(*, of_weights: bool, of_inputs: bool) -> Function:
                def compute(*arguments: tf.Tensor) -> list[tf.Tensor]:
                    points, slopes = arguments[: len(inputs)], arguments[len(inputs) :]
                    with tf.GradientTape() as tape:
                        tape.watch(points)
                        outputs = function(*points)
                    own = points if of_inputs else ()
                    sources = [*(weights if of_weights else ()), *own]
                    like = [*(values if of_weights else ()), *own]
                    found = tape.gradient(outputs, sources, output_gradients=list(slopes))
                    return [
                        tf.zeros_like(each) if slope is None else tf.convert_to_tensor(slope)
                        for slope, each in zip(found, like, strict=True)
                    ]

                return compute

            given = [*_after(upstream, inputs, xla=xla), *upstream]
            found: Sequence[tf.Tensor]
            if record.could_possibly_record():
                # A tape will differentiate the gradient. A penalty needs only that with respect to
                # the examples; a single function would pass zeros on for those of the weights.
                first, second = (
                    recomputed(gradient(**parts), weights, xla=xla)(*values, *given)
                    for parts in (
                        {"of_weights": True, "of_inputs": False},
                        {"of_weights": False, "of_inputs": True},
                    )
                )
                found = [*first, *second]
            else:
                found = gradient(of_weights=True, of_inputs=True)(*given)
                # A compiler may otherwise keep the features for the gradients of the weights, which
                # are needed at the end.
                found = [*found[:count], *_after(found[:count], found[count:], xla=xla)]
            return found, [None] * len(variables)

        return function(*inputs), backward

    return call


def _after(
    first: Sequence[tf.Tensor], then: Sequence[tf.Tensor], *, xla: bool
) -> Sequence[tf.Tensor]:
    """Returns the tensors `then`, which are available only after those of `first`.

    Without this, XLA would recognize what is computed again, and keep the first results.

    Args:
      first: Tensors.
      then: Tensors, whose gradients are those of the result.
      xla: Whether XLA compiles the result, which ignores control dependencies. No other device
        has a barrier.
    """

    @tf.custom_gradient
    def wait(*then: tf.Tensor):
        if xla:
            results = gen_xla_ops.xla_optimization_barrier([*first, *then])[len(first) :]
        else:
            with tf.control_dependencies(first):
                results = [tf.identity(each) for each in then]
        return results, lambda *upstream: upstream

    return wait(*then) if first else then
