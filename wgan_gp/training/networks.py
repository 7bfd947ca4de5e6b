"""The networks that the engine is handed: calls with labels, averages, networks of the user."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from ..errors import UserError, explaining

_TABLE_COLUMNS = "112"  # the width of Keras's table of a network with several branches, and 4


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
        batches = length(inputs) // length(labels)
        return network(
            [inputs, tf.tile(labels, [batches, *[1] * (labels.shape.rank - 1)])], training=training
        )

    return call


def length(batch: tf.Tensor) -> Any:
    """Returns the number of examples of a batch: an integer, or a tensor if it is not static."""
    return tf.shape(batch)[0] if batch.shape[0] is None else batch.shape[0]


def update_ema(average: tf.keras.Model, network: tf.keras.Model, decay: tf.Tensor) -> None:
    """Updates an exponential moving average: average = decay * average + (1 - decay) * network.

    All weights are averaged, including batch-norm statistics, except for those that are not
    floating-point, such as counters, which are copied. Call it inside `strategy.run`: the
    network's weights are equal on all replicas, and each replica updates its own copy of the
    average.
    """
    for mean, value in zip(average.weights, network.weights, strict=True):
        new = tf.convert_to_tensor(value)
        if new.dtype.is_floating:
            new = mean + (1.0 - decay) * (new - mean)
        mean.assign(new)


def copy_weights(target: tf.keras.Model, network: tf.keras.Model) -> None:
    """Copies all weights and statistics to `target`. Call it outside `strategy.run`."""
    for mean, value in zip(target.weights, network.weights, strict=True):
        mean.assign(tf.convert_to_tensor(value))


def summary_text(network: tf.keras.Model) -> str:
    """Returns Keras's table of a network's layers, output shapes and parameter counts."""
    lines: list[str] = []
    # Keras makes the table as wide as the terminal, on which it is not shown, and fails on a
    # narrow one.
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = _TABLE_COLUMNS
    try:
        network.summary(print_fn=lambda line, **_: lines.append(line))
    finally:
        del os.environ["COLUMNS"]
        if columns is not None:
            os.environ["COLUMNS"] = columns
    return "\n".join(lines)


def regularized_weights(network: Any) -> list[Any]:
    """Returns the trainable weights of a network that have a regularizer."""
    weights = network.trainable_variables
    return [each for each in weights if getattr(each, "regularizer", None) is not None]


def check_layer_losses(layers: Iterable[tf.keras.layers.Layer], name: str) -> None:
    """Raises UserError if a layer has added a loss in its last call.

    Such a loss depends on the examples of a call, so that its share of several replicas and
    micro-batches is unknown.

    Args:
      layers: The layers of a network, which has been called as in training.
      name: The network in messages.
    """
    for layer in layers:
        if layer.activity_regularizer is not None or layer._get_own_losses():
            kind = "an activity_regularizer" if layer.activity_regularizer else "add_loss"
            raise UserError(
                f"{name}: training does not use the loss of the outputs of the layer {layer.name} "
                f"({kind})",
                "omit it, or add a term to an objective of your own",
            )


class UserNetwork(tf.Module):
    """A network of the user, with the part of the interface of a Keras model that the engine uses.

    It wraps a Keras model, a tf.Module or another callable with `trainable_variables`.

    Args:
      network: Maps a tensor, or a list of a tensor and labels, to a tensor or a tuple of tensors.
        It may have a `training` argument, which is then passed.
      name: The name of the network in messages and in the graph, "generator" or "critic".
      inputs: The specification of the inputs for a small batch.
      origin: The network in messages, with the flag that names it. Errors of the network become a
        UserError that begins with it.

    Attributes:
      network: The network itself.
    """

    def __init__(self, network: Any, name: str, inputs: Any, origin: str | None = None):
        super().__init__(name)
        self.network = network
        self._origin = origin or name
        self._inputs = lambda: inputs  # a list would become a part of checkpoints
        self._takes_training = takes_training(network)
        if not isinstance(network, tf.__internal__.tracking.Trackable):
            self._tracked = list(_variables_of(network))  # so that checkpoints contain them

    def __call__(self, inputs: Any, training: bool = False) -> Any:
        arguments = {"training": training} if self._takes_training else {}
        with tf.name_scope(self.name), explaining(self._origin):
            return self.network(inputs, **arguments)

    @property
    def inputs(self) -> Any:
        """The specification of the inputs for a small batch."""
        return self._inputs()

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """The variables that the optimizer updates."""
        with explaining(self._origin):
            return list(self.network.trainable_variables)

    @property
    def weights(self) -> list[tf.Variable]:
        """All variables of which the moving average has a copy, in a fixed order."""
        return self.variables

    @property
    def variables(self) -> list[tf.Variable]:
        """All variables."""
        with explaining(self._origin):
            return _variables_of(self.network)

    @property
    def layers(self) -> list[tf.keras.layers.Layer]:
        """The outermost Keras layers in the network."""
        return list(_outermost_layers(self.network))

    @property
    def keras_model(self) -> tf.keras.Model | None:
        """The network if it is a Keras model, else None."""
        return self.network if isinstance(self.network, tf.keras.Model) else None

    def summary(self, print_fn: Callable[[str], None] = print) -> None:
        """Prints Keras's table of layers, or the variables of another network."""
        if self.keras_model is not None:
            with explaining(self._origin):  # it may define `summary`
                self.keras_model.summary(print_fn=lambda line, **_: print_fn(line))
            return
        for variable in self.weights:
            print_fn(f"{variable.name}: {tuple(variable.shape)} {tf.as_dtype(variable.dtype).name}")


def takes_training(network: Any) -> bool:
    """Returns True if a network has a `training` argument."""
    function = network.call if isinstance(network, tf.keras.layers.Layer) else network
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(each.name == "training" or each.kind == each.VAR_KEYWORD for each in parameters)


def _variables_of(network: Any) -> list[tf.Variable]:
    # A Keras model's `variables` also contain the states of random generators.
    if isinstance(network, tf.keras.layers.Layer):
        return list(network.weights)
    return list(getattr(network, "variables", network.trainable_variables))


def _outermost_layers(network: Any) -> Iterator[tf.keras.layers.Layer]:
    if isinstance(network, tf.keras.Model):
        yield from network.layers
    elif isinstance(network, tf.keras.layers.Layer):
        yield network
    else:
        # Layers of Keras 3 are no modules, so a tf.Module does not list them.
        modules = [network, *getattr(network, "submodules", ())]
        parts = (part for each in modules for part in _parts(getattr(each, "__dict__", {})))
        layers = {id(part): part for part in parts if isinstance(part, tf.keras.layers.Layer)}
        for layer in list(layers.values()):
            for inner in layer._flatten_layers(include_self=False):
                layers.pop(id(inner), None)
        yield from layers.values()


def _parts(value: Any) -> Iterator[Any]:
    """Yields the elements of nested lists, tuples and dictionaries."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _parts(each)
    else:
        yield value
