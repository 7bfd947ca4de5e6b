"""A distribution strategy that traces one replica of a slice that is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Not public, but what every strategy of TensorFlow is made of.
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.distribute import distribute_lib, one_device_strategy


class SliceStrategy(tf.distribute.Strategy):
    """N replicas of which one is traced, with real all-reduces over all of them.

    Inside `run`, the replica context says N replicas, this one's number is the device's own
    (so that each draws the noise of its slice), and `all_reduce` becomes XLA's. So Keras's
    optimizers and its synchronized batch-norm emit what they emit on a TPU slice. The traced
    program is to be compiled, not run here.
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

    def _use_merge_call(self) -> bool:
        return False  # as on a TPU: replicas are one program, not threads that meet

    def _call_for_each_replica(self, fn: Callable, args: Any, kwargs: Any) -> Any:
        with distribute_lib.ReplicaContext(self._container_strategy(), xla.replica_id()):
            return fn(*args, **kwargs)

    def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        del options  # of communication libraries that are not used
        if self._replicas == 1:
            return value

        def reduce(tensor: tf.Tensor) -> tf.Tensor:
            self._reductions += 1
            total = tf.raw_ops.CollectiveReduceV2(
                input=tensor,
                group_size=self._replicas,
                group_key=1,
                instance_key=self._reductions,
                ordering_token=[],
                merge_op="Add",
                final_op="Id",
            )
            mean = reduce_op == tf.distribute.ReduceOp.MEAN
            return total / self._replicas if mean else total

        return tf.nest.map_structure(reduce, value)
