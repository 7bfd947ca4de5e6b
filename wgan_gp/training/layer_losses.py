"""The losses that Keras layers add in a call: activity regularizers and `add_loss`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf


class LayerLosses:
    """The losses of the calls of a network, collected apart for each thread.

    A layer of Keras 3 has one list of losses. MirroredStrategy calls the network of each replica in
    a thread of its own, and synchronized batch normalization interrupts these calls, so that the
    list would hold losses of several replicas.

    Args:
      roots: Returns the layers of the network that no other layer calls.
    """

    def __init__(self, roots: Callable[[], Iterable[tf.keras.layers.Layer]]):
        self._roots = roots
        self._calls = 0  # the number of calls that have begun and have not ended
        self._replaced: list[tuple[tf.keras.layers.Layer, Any]] = []
        self._of_thread: dict[int, list[tf.Tensor]] = {}

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Collects the losses of a call of the network inside."""
        self._of_thread[threading.get_ident()] = []
        if not self._calls:
            self._replace()
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._restore()

    def take(self) -> list[tf.Tensor]:
        """Returns the losses of the last call in this thread, and forgets them."""
        return self._of_thread.pop(threading.get_ident(), [])

    def _replace(self) -> None:
        for root in self._roots():
            for layer in root._flatten_layers():
                self._replaced.append((layer, layer.activity_regularizer))
                layer.add_loss = self._add
                if layer.activity_regularizer is not None:
                    layer.activity_regularizer = _mean_over_batch(layer.activity_regularizer)

    def _restore(self) -> None:
        while self._replaced:
            layer, regularizer = self._replaced.pop()
            del layer.add_loss
            layer.activity_regularizer = regularizer

    def _add(self, loss: Any) -> None:
        self._of_thread[threading.get_ident()] += tf.nest.flatten(loss)


def _mean_over_batch(regularizer: Callable) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns an activity regularizer divided by the batch size.

    Keras documents this division, but Keras 3 adds the sum over the batch, which depends on the
    number of replicas and of micro-batches.
    """

    def mean(output: tf.Tensor) -> tf.Tensor:
        total = regularizer(tf.cast(output, tf.float32))  # bfloat16 would round the sum
        return total / tf.cast(tf.shape(output)[0], total.dtype)

    return mean
