"""Gradients in micro-batches, which need the memory of a part of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

# The name of the loop over micro-batches in a program.
MICRO_BATCHES = "micro_batches"


def sum_over_micro_batches(
    function: Callable[..., Any], inputs: Mapping[str, tf.Tensor], count: int, *, like: Any
) -> Any:
    """Returns the sum of a function's results for equal parts of a batch, one after the other.

    Args:
      function: Maps a part of each input, `[B / count, ...]`, by name, to a structure of tensors
        whose shapes do not depend on the part, such as shares of a mean and gradients.
      inputs: Tensors `[B, ...]` with the same static B, a multiple of `count`.
      count: The number of parts. With 1, the function is called once, on the inputs themselves.
      like: Tensors or variables in the structure of the result, and with its shapes and dtypes.
    """
    if count == 1:
        return function(**inputs)

    def add_part(index: tf.Tensor | int, total: Any) -> Any:
        parts = {name: _part(each, index, count) for name, each in inputs.items()}
        return tf.nest.map_structure(tf.add, total, function(**parts))

    total = tf.nest.map_structure(tf.zeros_like, like)
    # MirroredStrategy permits no communication, as in batch normalization, inside a loop.
    mirrored = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
    if isinstance(tf.distribute.get_strategy(), mirrored):
        for index in range(count):
            # One after the other, so that their intermediate results are never in memory together.
            with tf.control_dependencies(tf.nest.flatten(total)):
                total = add_part(index, total)
        return total
    _, total = tf.while_loop(
        lambda index, _: index < count,
        lambda index, total: (index + 1, add_part(index, total)),
        (tf.constant(0), total),
        parallel_iterations=1,
        maximum_iterations=count,
        name=MICRO_BATCHES,
    )
    return total


def _part(batch: tf.Tensor, index: tf.Tensor | int, count: int) -> tf.Tensor:
    """Returns the part of a batch with an index, of `count` equal parts."""
    size = batch.shape[0] // count
    # XLA requires a static size, which tf.slice has.
    begin = [index * size, *[0] * (batch.shape.rank - 1)]
    return tf.slice(batch, begin, [size, *batch.shape[1:]])
