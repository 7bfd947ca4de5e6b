"""Checks of the user's own networks, on a copy that is not trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from ...config import Config, NetworkSettings, settings_with
from ...data.spec import DataSpec
from ...errors import UserError, shorten
from ...training.adapted import AdaptedNetwork
from .output_checks import check_scores, warn_of_range
from .user_networks import CustomNetworks, weight_name

_TOLERANCE = 1e-4  # relative; well below the influence of one example among many
# Operations of a tf.random.Generator, whose state no checkpoint contains. Those of a global
# generator are recognized by their attribute "seed2".
_STATEFUL_RANDOM = ("Rng", "StatefulUniform", "StatefulStandardNormal", "StatefulTruncatedNormal")
_SEED_STATE = "seed_generator_state"  # the variable of a Keras SeedGenerator


def check_custom_network(
    network: AdaptedNetwork,
    flag: str,
    config: Config,
    spec: DataSpec,
    replicas: int,
    examples: tf.Tensor | None,
) -> None:
    """Checks a network of the user, and warns of layers that break what a run promises.

    Args:
      network: The generator or the critic, created outside the scope of a strategy.
      flag: The flag that names the network, for messages.
      config: The configuration of the run.
      spec: The data.
      replicas: The number of replicas of the run.
      examples: `[N, *example_shape]`, some examples; None if they are not known.

    Raises:
      UserError: If the network cannot be trained. The message names the layer.
    """
    name = f"{flag}: {network.name}"
    _check_weights(network, name)
    before = {id(variable) for variable in network.weights}
    # As in sampling, where the size of the batch may be another one.
    _, sampled = _trace(network, _twice(network.inputs), name, training=False)
    graph, output = _trace(network, network.inputs, name, training=True)
    _check_late_weights(network, before, name)
    if network.name == "generator":
        batch = tf.nest.flatten(network.inputs)[0].shape[0]
        _check_samples(network, output, [batch, *spec.example_shape], name)
        _check_samples(network, sampled, [2 * batch, *spec.example_shape], name)
        if replicas > 1 and _depends_on_batch(network):
            _warn_of_batch_statistics(network, name, replicas)
    else:
        check_scores(output, config, spec, name)
    warn_of_range(network.name, output, config, examples, name)
    for layer in _random_layers(network, graph):
        logging.warning(
            f"{name}: {layer} draws random numbers of its own, so a resumed run differs from an "
            "uninterrupted one, and several replicas from one"
        )


def check_settings(custom: Mapping[str, CustomNetworks], settings: NetworkSettings) -> None:
    """Raises UserError if the networks of the user ignore a setting that applies to them.

    Sizes, such as --model_width, may be ignored.

    Args:
      custom: The user's networks by role; see `custom_networks`. They have been created.
      settings: The settings of the networks.
    """
    defaults = NetworkSettings()
    for name, roles in settings_with("used_by", NetworkSettings).items():
        value = getattr(settings, name)
        if value == getattr(defaults, name) or not all(role in custom for role in roles):
            continue
        if not any(custom[role].has_read(role, name) for role in roles):
            raise UserError(
                f"--{name}={value} has no effect: the {' and '.join(roles)} of "
                f"{custom[roles[0]].flag} {'does' if len(roles) == 1 else 'do'} not read "
                f"design.{name}",
                "omit it, or use it there",
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


def _check_weights(network: AdaptedNetwork, name: str) -> None:
    if not network.trainable_variables:
        raise UserError(
            f"{name} has no trainable weights", "add some, or set trainable=True in its layers"
        )
    for variable in network.trainable_variables:
        dtype = tf.as_dtype(variable.dtype)
        if dtype != tf.float32:
            raise UserError(
                f"{name}: the weight {weight_name(variable)} is {dtype.name}",
                "create it as float32; --precision=mixed_bfloat16 and Keras's mixed_bfloat16 "
                "compute faster with float32 weights",
            )


def _twice(inputs: Any) -> Any:
    """Returns the specification of inputs for twice the batch."""
    return tf.nest.map_structure(
        lambda spec: tf.TensorSpec([2 * spec.shape[0], *spec.shape[1:]], spec.dtype), inputs
    )


def _trace(
    network: AdaptedNetwork, inputs: Any, name: str, *, training: bool
) -> tuple[tf.Graph, Any]:
    """Returns the graph of a call, and its output in this graph."""
    traced = tf.function(lambda values: network(values, training=training), autograph=False)
    try:
        concrete = traced.get_concrete_function(inputs)
    except (ValueError, TypeError, UserError) as error:
        cause = error.__cause__ if isinstance(error, UserError) else error
        if isinstance(cause, ValueError) and "variable" in str(cause).lower():
            raise UserError(
                f"{name} creates weights in a call ({shorten(' '.join(str(cause).split()))})",
                "create all weights in the constructor, in build or in the first call",
            ) from None
        if isinstance(error, UserError):
            raise
        # What it returns cannot be an output of a graph.
        raise UserError(
            f"{name} returns something else than tensors ({shorten(' '.join(str(error).split()))})",
            "return a tensor",
        ) from None
    return concrete.graph, concrete.structured_outputs


def _check_late_weights(network: AdaptedNetwork, before: set[int], name: str) -> None:
    late = [each for each in network.weights if id(each) not in before]
    if late:
        raise UserError(
            f"{name} creates the weight {weight_name(late[0])} only in training",
            "create all weights in the constructor, in build or in the first call",
        )


def _check_samples(network: AdaptedNetwork, output: Any, expected: list[int], name: str) -> None:
    batch, *example_shape = expected
    shape = output.shape if isinstance(output, tf.Tensor) else None
    if shape is None or shape.rank is None or not shape.is_compatible_with(expected):
        raise UserError(
            f"{name} returns {shorten(str(shape if shape is not None else output))} for {batch} "
            f"latents, but the examples have shape {tuple(example_shape)}",
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
    """Returns descriptions of the layers, or else the operations, that draw random numbers.

    The graph shows them: a layer with a rate of 0, or a GRU without dropout, has a generator and
    does not use it.
    """
    layers = list(flatten(network))
    owners = {
        id(generator.state.value): layer.name
        for layer in layers
        for generator in getattr(layer, "_seed_generators", ())
    }
    used = [variable for variable in graph.variables if _SEED_STATE in variable.name]
    names = [owners.get(id(variable)) for variable in used]
    operations = [node.name for node in _nodes(graph) if _is_stateful_random(node)]
    for operation in operations:  # its name contains that of its layer
        parts = operation.split("/")
        names.append(next((each.name for each in layers if each.name in parts), None))
    found = [f"the layer {name}" for name in dict.fromkeys(names) if name is not None]
    unnamed = [f"the operation {name}" for name in operations[:1]]
    unnamed += [f"the generator {variable.name.split('/')[-2]}" for variable in used[:1]]
    return found or unnamed[:1]


def _nodes(graph: tf.Graph) -> Iterator[Any]:
    """Yields the operations of a graph, and of the bodies of its loops and conditions."""
    definition = graph.as_graph_def()
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def _is_stateful_random(node: Any) -> bool:
    return "seed2" in node.attr or node.op.startswith(_STATEFUL_RANDOM)


def custom_networks(config: Config, models: Any) -> dict[str, CustomNetworks]:
    """Returns the user's networks in a configuration, by role."""
    names = {"critic": config.model, "generator": config.generator_model or config.model}
    modules = {role: models.MODELS[name].module for role, name in names.items() if name is not None}
    return {role: each for role, each in modules.items() if isinstance(each, CustomNetworks)}
