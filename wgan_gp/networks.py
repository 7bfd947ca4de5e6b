"""Calls to the networks that the engine is handed, with or without labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def conditioned(
    network: Callable, labels: tf.Tensor | None, *, training: bool
) -> Callable[[tf.Tensor], Any]:
    """Returns the network as a function of its first input alone.

    Args:
      network: a Keras model, or anything that is called like one. It takes one tensor, or the list
        of a tensor and labels.
      labels: `[B]` int32, for a network that takes labels; None for any other. The function takes
        `[B, ...]`, or a whole number of such batches one after the other, as real and fake examples
        of the same labels are.
      training: as Keras means it.
    """

    def call(inputs: tf.Tensor) -> Any:
        if labels is None:
            return network(inputs, training=training)
        batches = inputs.shape[0] // labels.shape[0]
        return network([inputs, tf.tile(labels, [batches])], training=training)

    return call


def move_towards(average: tf.keras.Model, network: tf.keras.Model, decay: tf.Tensor) -> None:
    """average <- decay * average + (1 - decay) * network, for every weight and statistic.

    Inside `strategy.run`: the network's are the same on every replica, so each writes its own
    copy of the average.
    """
    for mean, value in zip(average.weights, network.weights, strict=True):
        mean.assign(mean + (1.0 - decay) * (tf.convert_to_tensor(value) - mean))


def copy_weights(target: tf.keras.Model, network: tf.keras.Model) -> None:
    """Gives `target` the network's weights and statistics; outside `strategy.run`."""
    for mean, value in zip(target.weights, network.weights, strict=True):
        mean.assign(tf.convert_to_tensor(value))


def summary_of(network: tf.keras.Model) -> str:
    """Keras's table of a network's layers, shapes and parameters."""
    lines: list[str] = []
    network.summary(print_fn=lambda line, **_: lines.append(line))
    return "\n".join(lines)
