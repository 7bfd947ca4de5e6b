"""The losses that Keras layers add in a call: activity regularizers and `add_loss`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from ..runtime.tensorflow_patches import redirected_losses


class LayerLosses:
    """The losses of the calls of a network, collected apart for each thread.

    MirroredStrategy calls the network of each replica in a thread of its own; see
    `redirected_losses`.

    Args:
      roots: Returns the layers of the network that no other layer calls.
    """

    def __init__(self, roots: Callable[[], Iterable[tf.keras.layers.Layer]]):
        self._roots = roots
        self._calls = 0  # the number of calls that have begun and have not ended
        self._redirected = contextlib.ExitStack()
        self._of_thread: dict[int, list[tf.Tensor]] = {}

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Collects the losses of a call of the network inside."""
        self._of_thread[threading.get_ident()] = []
        if not self._calls:
            layers = [layer for root in self._roots() for layer in root._flatten_layers()]
            self._redirected.enter_context(redirected_losses(layers, self._add))
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._redirected.close()

    def take(self) -> list[tf.Tensor]:
        """Returns the losses of the last call in this thread, and forgets them."""
        return self._of_thread.pop(threading.get_ident(), [])

    def _add(self, loss: Any) -> None:
        self._of_thread[threading.get_ident()] += tf.nest.flatten(loss)
