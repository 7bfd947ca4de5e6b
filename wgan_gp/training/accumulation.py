"""Updates in micro-batches, which need the memory of a part of a batch."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

# The name of the loop over micro-batches in a program.
MICRO_BATCHES = "micro_batches"

# The index of the micro-batch that is being computed, and their number.
_current: contextvars.ContextVar[tuple[tf.Tensor | int, int]] = contextvars.ContextVar(
    "micro_batch", default=(0, 1)
)


def replica_part(global_batch_size: int) -> dict[str, Any]:
    """Returns the arguments `first` and `count` of random numbers for this replica's examples.

    Inside the function of `sum_over_micro_batches`, they are those of the micro-batch.
    """
    context = tf.distribute.get_replica_context()
    index, parts = _current.get()
    count = global_batch_size // context.num_replicas_in_sync // parts
    replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
    return {"first": (replica * parts + tf.cast(index, tf.int64)) * count, "count": count}


def sum_over_micro_batches(
    function: Callable[..., Any], inputs: tuple[tf.Tensor, ...], count: int, *, like: Any
) -> Any:
    """Returns the sum of a function's results for equal parts of a batch, one after the other.

    Args:
      function: Maps a part of each input, `[B / count, ...]`, to a structure of tensors whose
        shapes do not depend on the part, such as shares of a mean and gradients.
      inputs: Tensors `[B, ...]` with the same static B, a multiple of `count`.
      count: The number of parts. With 1, the function is called once, on the inputs themselves.
      like: Tensors or variables in the structure of the result, and with its shapes and dtypes.
    """
    if count == 1:
        return function(*inputs)
    size = inputs[0].shape[0] // count

    def add_part(index: tf.Tensor | int, total: Any) -> Any:
        # XLA requires a static size, which tf.slice has.
        parts = [
            tf.slice(each, [index * size, *[0] * (each.shape.rank - 1)], [size, *each.shape[1:]])
            for each in inputs
        ]
        with _micro_batch(index, count):
            return tf.nest.map_structure(tf.add, total, function(*parts))

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


@contextlib.contextmanager
def _micro_batch(index: tf.Tensor | int, count: int) -> Iterator[None]:
    token = _current.set((index, count))
    try:
        yield
    finally:
        _current.reset(token)
