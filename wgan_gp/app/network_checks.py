"""Checks of the user's own networks, on a copy that is not trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from absl import logging

from ..config import Config
from ..errors import UserError, explaining, shorten
from ..training.adapted import AdaptedNetwork
from .custom_networks import CustomNetworks

_TOLERANCE = 1e-4  # relative; well below the influence of one example among many
# Operations that draw numbers from a generator with a state, which no checkpoint contains.
_STATEFUL_RANDOM = ("RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt")


def check_custom_network(
    network: AdaptedNetwork, flag: str, example_shape: tuple[int, ...], replicas: int
) -> None:
    """Checks a network of the user, and warns of layers that break what a run promises.

    Args:
      network: The generator or the critic, created outside the scope of a strategy.
      flag: The flag that names the network, for messages.
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      replicas: The number of replicas of the run.

    Raises:
      UserError: If the network cannot be trained. The message names the layer.
    """
    name = f"{flag}: {network.name}"
    _check_dtypes(network, name)
    before = {id(variable) for variable in network.weights}
    graph, output = _trace(network, name)
    _check_late_weights(network, before, name)
    if network.name == "generator":
        _check_samples(network, output, example_shape, name)
        if replicas > 1 and _depends_on_batch(network):
            _warn_of_batch_statistics(network, name, replicas)
    for layer in _random_layers(network, graph):
        logging.warning(
            f"{name}: {layer} draws random numbers of its own, so a resumed run differs from an "
            "uninterrupted one, and several replicas from one"
        )


def batch_norm_layers(network: Any) -> list[str]:
    """Returns the names of Keras's batch normalizations that are not synchronized."""
    return [
        layer.name
        for layer in flatten(network)
        if isinstance(layer, tf.keras.layers.BatchNormalization)
        and not getattr(layer, "synchronized", False)
    ]


def flatten(network: Any) -> Iterator[tf.keras.layers.Layer]:
    """Yields all Keras layers of a network, including those inside other layers."""
    seen = set()
    for outer in getattr(network, "layers", ()):
        for layer in outer._flatten_layers():
            if id(layer) not in seen:
                seen.add(id(layer))
                yield layer


def _check_dtypes(network: AdaptedNetwork, name: str) -> None:
    for variable in network.trainable_variables:
        dtype = tf.as_dtype(variable.dtype)
        if dtype != tf.float32:
            raise UserError(
                f"{name}: the weight {_path(variable)} is {dtype.name}",
                "create it as float32; --precision=mixed_bfloat16 and Keras's mixed_bfloat16 "
                "compute faster with float32 weights",
            )


def _trace(network: AdaptedNetwork, name: str) -> tuple[tf.Graph, Any]:
    """Returns the graph of a training step's call, and the specification of its output."""
    traced = tf.function(lambda values: network(values, training=True), autograph=False)
    try:
        concrete = traced.get_concrete_function(network.inputs)
    except ValueError as error:
        if "variable" not in str(error).lower():
            with explaining(name):
                raise
        raise UserError(
            f"{name} creates weights in a call ({shorten(' '.join(str(error).split()))})",
            "create all weights in the constructor, in build or in the first call",
        ) from None
    except Exception:
        with explaining(name):
            raise
    return concrete.graph, concrete.structured_outputs


def _check_late_weights(network: AdaptedNetwork, before: set[int], name: str) -> None:
    late = [each for each in network.weights if id(each) not in before]
    if late:
        raise UserError(
            f"{name} creates the weight {_path(late[0])} only in training",
            "create all weights in the constructor, in build or in the first call",
        )


def _check_samples(
    network: AdaptedNetwork, output: Any, example_shape: tuple[int, ...], name: str
) -> None:
    batch = tf.nest.flatten(network.inputs)[0].shape[0]
    expected = [batch, *example_shape]
    shape = getattr(output, "shape", None)
    if shape is None or shape.rank is None or not shape.is_compatible_with(expected):
        raise UserError(
            f"{name} returns {shorten(str(shape if shape is not None else output))} for {batch} "
            f"latents, but the examples have shape {example_shape}",
            f"return [B, {', '.join(map(str, example_shape))}]",
        )
    if not shape.is_fully_defined():
        dynamic = _layer_of_dynamic_shape(network)
        raise UserError(
            f"{name}: {dynamic} has an output of dynamic shape {shape}, which a TPU does not "
            "support",
            "use static shapes, such as those of Reshape layers, or call tf.ensure_shape",
        )
    if output.dtype != tf.float32:
        raise UserError(
            f"{name} returns {output.dtype.name}",
            'return float32: cast the result, or give the last layer dtype="float32"',
        )


def _layer_of_dynamic_shape(network: AdaptedNetwork) -> str:
    for layer in network.layers:
        shape = getattr(getattr(layer, "output", None), "shape", None)
        if shape is not None and None in tuple(shape)[1:]:
            return f"the layer {layer.name}"
    return "it"


def _depends_on_batch(network: AdaptedNetwork) -> bool:
    """Returns True if a sample of a training step depends on the other latents of the batch."""
    specs = tf.nest.flatten(network.inputs)
    latents = tf.random.stateless_normal(specs[0].shape, [0, 0])
    # A different sign and a different size, so that both odd and even statistics change.
    changed = tf.concat([latents[:2], -2.0 * latents[2:]], axis=0)
    labels = [tf.zeros(spec.shape, spec.dtype) for spec in specs[1:]]
    before, after = (
        network([values, *labels] if labels else values, training=True)[:2]
        for values in (latents, changed)
    )
    difference = tf.reduce_max(tf.abs(after - before))
    return bool(difference > _TOLERANCE * tf.reduce_max(tf.abs(before)))


def _warn_of_batch_statistics(network: AdaptedNetwork, name: str, replicas: int) -> None:
    layers = batch_norm_layers(network)
    if not layers and any(_is_synchronized(layer) for layer in flatten(network)):
        return
    where = ", ".join(layers) if layers else "it"
    logging.warning(
        f"{name}: {where} normalizes over the batch of each replica, so training on {replicas} "
        "replicas differs from training on one — "
        + (
            "create it with synchronized=True"
            if layers
            else "use tf.keras.layers.BatchNormalization(synchronized=True)"
        )
    )


def _is_synchronized(layer: Any) -> bool:
    """Returns True for layers that normalize over all replicas, also those of `models`."""
    return bool(getattr(layer, "synchronized", type(layer).__name__ == "BatchNormalization"))


def _random_layers(network: AdaptedNetwork, graph: tf.Graph) -> list[str]:
    """Returns descriptions of the layers, or else the operations, that draw random numbers."""
    layers = [
        f"the layer {layer.name}"
        for layer in flatten(network)
        if hasattr(layer, "seed_generator") or hasattr(layer, "_random_generator")
        if getattr(layer, "rate", None) != 0
    ]
    operations = [
        f"the operation {operation.name}"
        for operation in graph.get_operations()
        if operation.type in _STATEFUL_RANDOM
    ]
    return layers or operations[:1]


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", variable.name))


def custom_networks(config: Config, models: Any) -> dict[str, CustomNetworks]:
    """Returns the user's networks in a configuration, by role."""
    names = {"critic": config.model, "generator": config.generator_model or config.model}
    modules = {role: models.MODELS[name].module for role, name in names.items() if name is not None}
    return {role: each for role, each in modules.items() if isinstance(each, CustomNetworks)}
