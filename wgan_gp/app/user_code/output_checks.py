"""Checks of what the user's own networks return."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from absl import logging

from ...config import Config
from ...data.spec import DataSpec
from ...errors import UserError, shorten

# Operations that only change the form of their input.
_FORM = ("Identity", "Reshape", "Squeeze", "ExpandDims", "EnsureShape", "Cast", "Transpose")
# The values that a network can return if its last operation is one of these.
_RANGES = {
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
    "Relu": (0.0, float("inf")),
    "Relu6": (0.0, 6.0),
    "Softplus": (0.0, float("inf")),
}
_TOLERANCE = 0.01


def check_scores(output: Any, config: Config, spec: DataSpec, name: str) -> None:
    """Checks the structure of a critic's output. `losses.check_critic` checks its scores.

    Args:
      output: The output, in a graph.
      config: The configuration of the run.
      spec: The data.
      name: The critic in messages.

    Raises:
      UserError: If it is neither a tensor nor, where the objective may use more, a tuple of
        tensors.
    """
    is_tuple = isinstance(output, (tuple, list))
    parts = list(output) if is_tuple else [output]
    if not parts or not all(isinstance(part, tf.Tensor) for part in parts):
        raise UserError(
            f"{name} returns {_described(output)}", "return a tensor of one score per example"
        )
    if config.objective is not None:
        return
    if config.conditioning == "acgan":
        is_pair = is_tuple and len(parts) == 2
        if not is_pair or parts[1].shape[1:].as_list() != [spec.classes]:
            raise UserError(
                f"{name} returns {_described(output)}, but --conditioning=acgan requires scores "
                "and class logits",
                f"return the tuple (scores, logits), with logits [B, {spec.classes}]",
            )
    elif is_tuple and len(parts) != 2:
        raise UserError(
            f"{name} returns {_described(output)}", "return a tensor of one score per example"
        )


def warn_of_range(
    role: str, output: Any, config: Config, examples: tf.Tensor | None, name: str
) -> None:
    """Warns if the last operation of a network limits its output in a way that harms training.

    The samples of such a generator cannot be like the examples. The losses of this project are
    for scores without limits; an objective of the user may be for others.

    Args:
      role: "generator" or "critic".
      output: The output of the network, in a graph.
      config: The configuration of the run.
      examples: `[N, *example_shape]`, some examples; None if they are not known.
      name: The network in messages.
    """
    last = _last_operation(output[0] if isinstance(output, (tuple, list)) else output)
    if last not in _RANGES:
        return
    low, high = _RANGES[last]
    values = f"ends in {last.lower()}, so its values are in [{low:g}, {high:g}]"
    if role == "critic":
        if config.objective is None:
            logging.warning(
                f"{name} {values} — end it in a linear layer, because the losses are for scores "
                "without limits"
            )
    elif examples is not None:
        least, most = float(tf.reduce_min(examples)), float(tf.reduce_max(examples))
        if least < low - _TOLERANCE or most > high + _TOLERANCE:
            normalized = least >= -1 - _TOLERANCE and most <= 1 + _TOLERANCE
            logging.warning(
                f"{name} {values}, but the networks get examples from {least:.3g} to {most:.3g} — "
                f"end it in {'tanh' if normalized else 'a linear layer'}"
            )


def _last_operation(output: tf.Tensor) -> str:
    """Returns the type of the last operation that changes values."""
    operation = output.op
    while operation.type in _FORM:
        operation = operation.inputs[0].op
    return operation.type


def _described(output: Any) -> str:
    if isinstance(output, dict):
        return f"a dictionary of {shorten(', '.join(map(str, output)))}"
    if isinstance(output, (tuple, list)):
        return f"{len(output)} values in a {type(output).__name__}"
    if isinstance(output, tf.Tensor):
        return f"a tensor of shape {output.shape}"
    return "None" if output is None else f"an object of type {type(output).__name__}"
