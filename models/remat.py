"""Recomputation of features in the backward passes, which reduces the memory of a network.

Chen et al. 2016 (arXiv:1604.06174): a network is a chain of segments. Only the input of each
segment is kept, and the features inside are computed again when a gradient needs them. A gradient
penalty differentiates twice. The gradient of a segment is therefore again a function that keeps
only its inputs, and so on for every order. `tf.recompute_grad` cannot be differentiated twice.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from typing import Any

if typing.TYPE_CHECKING:
    import tensorflow as tf

    from .segments import Segment


def remat(
    network: tf.keras.Model, name: str | None = None, *, xla: bool = False
) -> Callable[..., Any]:
    """Returns the network as a function that recomputes features in its backward passes.

    The function takes the arguments of the network, `(inputs, training)`, and has its weights and
    outputs. The gradients of all orders are equal except for rounding.

    Args:
      network: A functional Keras model. Its first input is differentiated, the others are labels
        or conditions.
      name: The name of the network in messages and in the names of operations. Defaults to
        `network.name`.
      xla: Whether XLA compiles the function, as on a TPU.

    Raises:
      DesignError: If the network has no segments to recompute; see `segments.find_segments`.
    """
    from .segments import find_segments  # noqa: PLC0415

    segments = find_segments(network, name or network.name)

    def call(inputs: tf.Tensor | Sequence[tf.Tensor], *, training: bool = False) -> Any:
        x, *labels = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        for segment in segments:
            x = _run(segment, x, [labels[index] for index in segment.labels], training, xla)
        return x

    return call


def _run(
    segment: Segment, x: tf.Tensor, labels: Sequence[tf.Tensor], training: bool, xla: bool
) -> Any:
    import tensorflow as tf  # noqa: PLC0415

    from .recomputation import recomputed  # noqa: PLC0415
    from .replay import with_replay  # noqa: PLC0415

    def function(x: tf.Tensor) -> Any:
        return segment.model([x, *labels] if labels else x, training=training)

    if not segment.recomputed:
        return function(x)
    weights = segment.model.trainable_variables
    values = [tf.convert_to_tensor(weight) for weight in weights]
    listed = with_replay(lambda x: tf.nest.flatten(function(x)))
    outputs = recomputed(listed, weights, xla=xla)(*values, x)
    return outputs[0] if len(outputs) == 1 else list(outputs)
