"""Calls to the networks that the engine is handed, with or without labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def bind_labels(
    network: Callable, labels: tf.Tensor | None, *, training: bool
) -> Callable[[tf.Tensor], Any]:
    """Returns the network as a function of its first input alone.

    Args:
      network: A Keras model, or any callable with the same signature. It takes a tensor, or a list
        of a tensor and labels.
      labels: `[B]` int32, or conditions `[B, K]` float32; None for a network that takes neither.
        The function takes `[B, ...]`, or several batches with the same labels, concatenated, such
        as real and fake examples.
      training: The `training` argument of the network.
    """

    def call(inputs: tf.Tensor) -> Any:
        if labels is None:
            return network(inputs, training=training)
        batches = inputs.shape[0] // labels.shape[0]
        return network(
            [inputs, tf.tile(labels, [batches, *[1] * (labels.shape.rank - 1)])], training=training
        )

    return call


def update_ema(average: tf.keras.Model, network: tf.keras.Model, decay: tf.Tensor) -> None:
    """Updates an exponential moving average: average = decay * average + (1 - decay) * network.

    All weights are averaged, including batch-norm statistics. Call it inside `strategy.run`: the
    network's weights are equal on all replicas, and each replica updates its own copy of the
    average.
    """
    for mean, value in zip(average.weights, network.weights, strict=True):
        mean.assign(mean + (1.0 - decay) * (tf.convert_to_tensor(value) - mean))


def copy_weights(target: tf.keras.Model, network: tf.keras.Model) -> None:
    """Copies all weights and statistics to `target`. Call it outside `strategy.run`."""
    for mean, value in zip(target.weights, network.weights, strict=True):
        mean.assign(tf.convert_to_tensor(value))


def summary_text(network: tf.keras.Model) -> str:
    """Returns Keras's table of a network's layers, output shapes and parameter counts."""
    lines: list[str] = []
    network.summary(print_fn=lambda line, **_: lines.append(line))
    return "\n".join(lines)
