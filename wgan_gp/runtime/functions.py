"""Functions that run the replicas of a strategy, for everything outside the training loop."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import tensorflow as tf


class CompilingStrategy(tf.distribute.OneDeviceStrategy, abc.ABC):
    """A strategy whose variables are on the host and whose functions run elsewhere."""

    @abc.abstractmethod
    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function of tensors, compiled for the device when it is first called."""


def function_on(
    strategy: tf.distribute.Strategy, function: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns a function of tensors that is traced once for each shape of its arguments.

    Args:
      strategy: The strategy that `function` runs.
      function: Takes tensors, or nested lists of them, and returns such. It changes no variable.
    """
    if isinstance(strategy, CompilingStrategy):
        return strategy.compile(function)
    return tf.function(function, autograph=False)
