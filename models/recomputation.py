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
            again = [*_after(upstream, inputs, xla=xla), *upstream]
            if record.could_possibly_record():
                # A tape will differentiate the gradient. A penalty needs only that with respect to
                # the examples; a single function would pass zeros on for those of the weights.
                parts = (
                    _gradient(function, len(inputs), weights, of_inputs=False),
                    _gradient(function, len(inputs), (), of_inputs=True),
                )
                slopes: Sequence[tf.Tensor] = [
                    slope
                    for part in parts
                    for slope in recomputed(part, weights, xla=xla)(*values, *again)
                ]
            else:
                slopes = _gradient(function, len(inputs), weights, of_inputs=True)(*again)
                # A compiler may otherwise keep the features for the gradients of the weights, which
                # are needed at the end.
                of_weights, of_inputs = slopes[:count], slopes[count:]
                slopes = [*of_weights, *_after(of_weights, of_inputs, xla=xla)]
            return slopes, [None] * len(variables)

        return function(*inputs), backward

    return call


def _gradient(
    function: Function, arity: int, weights: Sequence[tf.Variable], *, of_inputs: bool
) -> Function:
    """Returns the gradient of a function as a function, which can be recomputed in turn.

    Args:
      function: Maps tensors to tensors, and reads the weights.
      arity: The number of its arguments.
      weights: The variables to differentiate with respect to.
      of_inputs: Whether to differentiate with respect to the arguments, too, which come last.

    Returns:
      A function of `arity` arguments, followed by a gradient for each output.
    """

    def gradient(*arguments: tf.Tensor) -> list[tf.Tensor]:
        inputs, upstream = arguments[:arity], arguments[arity:]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = function(*inputs)
        sources = [*weights, *(inputs if of_inputs else ())]
        slopes = tape.gradient(outputs, sources, output_gradients=list(upstream))
        return [
            tf.zeros_like(source) if slope is None else tf.convert_to_tensor(slope)
            for slope, source in zip(slopes, sources, strict=True)
        ]

    return gradient


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
