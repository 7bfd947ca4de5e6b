"""A distribution strategy that traces one replica of a TPU slice, without a TPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# These modules are not public, but all TensorFlow strategies are built on them.
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.distribute import distribute_lib, one_device_strategy


class SliceStrategy(tf.distribute.Strategy):
    """A strategy of N replicas that traces one of them, with XLA all-reduces over all replicas.

    Inside `run`, the replica context has N replicas, the replica ID is the device's ID (so that
    each replica draws different noise), and `all_reduce` is the XLA operation. Keras optimizers and
    synchronized batch normalization therefore emit the same operations as on a TPU slice. The
    traced program can be compiled but not run on this machine.

    Args:
      replicas: The number of replicas, N.
    """

    def __init__(self, replicas: int):
        super().__init__(_SliceExtended(self, replicas))


class _SliceExtended(one_device_strategy.OneDeviceExtended):
    def __init__(self, container: tf.distribute.Strategy, replicas: int):
        super().__init__(container, "CPU:0")
        self._replicas = replicas
        self._reductions = 0

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._replicas

    def _call_for_each_replica(self, fn: Callable, args: Any, kwargs: Any) -> Any:
        with distribute_lib.ReplicaContext(self._container_strategy(), xla.replica_id()):
            return fn(*args, **kwargs)

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        """Returns the sum or the mean of a tensor over all replicas, as TPUStrategy does."""
        del destinations, options  # all replicas need the result, and XLA chooses the algorithm
        if reduce_op == tf.distribute.ReduceOp.MEAN:
            value = tf.math.scalar_mul(1.0 / self._replicas, value)
        if self._replicas == 1:
            return value
        self._reductions += 1
        return tf.raw_ops.CollectiveReduceV2(
            input=value,
            group_size=self._replicas,
            group_key=1,
            instance_key=self._reductions,
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
        )
