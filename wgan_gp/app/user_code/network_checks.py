"""Checks of the user's networks and of what they return, on a copy that is not trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from absl import logging

from ...config import Config
from ...data.spec import DataSpec
from ...errors import UserError, shorten, text_of
from ...training.networks import UserNetwork, check_layer_losses
from ..library import Registry
from .user_networks import UserNetworks, weight_name

_TOLERANCE = 1e-4  # relative; well below the influence of one example among many


def critic_findings(
    critic: Callable[[tf.Tensor], Any],
    examples: tf.Tensor,
    config: Config,
    losses: Any,
    *,
    finite_differences: bool = True,
) -> list[tuple[Any, bool]]:
    """Returns what `losses.check_critic` finds, and whether it prevents training.

    Args:
      critic: Maps examples to scores.
      examples: `[N, ...]`, whole groups of examples that are scored together.
      config: The configuration.
      losses: The package `losses`.
      finite_differences: See `losses.check_critic`.
    """
    # Without a gradient penalty, nothing is differentiated twice.
    is_penalized = config.has_gradient_penalty
    findings = losses.check_critic(
        critic,
        examples,
        group_size=config.group_size,
        finite_differences=finite_differences and is_penalized,
    )
    return [
        (each, each.fatal and (is_penalized or each.name != "no_second_derivative"))
        for each in findings
    ]


def check_user_network(
    network: UserNetwork,
    flag: str,
    config: Config,
    spec: DataSpec,
    replicas: int,
) -> None:
    """Checks a network of the user, and warns of batch normalization that replicas do not share.

    Args:
      network: The generator or the critic, created outside the scope of a strategy.
      flag: The flag that names the network, for messages.
      config: The configuration of the run.
      spec: The data.
      replicas: The number of replicas of the run.

    Raises:
      UserError: If the network cannot be trained. The message names the layer.
    """
    name = f"{flag}: {network.name}"
    _check_weights(network, name)
    before = {id(variable) for variable in network.weights}
    # As in sampling, where the size of the batch may be another one.
    sampled = _trace(network, _twice(network.inputs), name, training=False)
    output = _trace(network, network.inputs, name, training=True)
    _check_late_weights(network, before, name)
    check_layer_losses(flatten(network), name)
    if network.name == "generator":
        batch = tf.nest.flatten(network.inputs)[0].shape[0]
        _check_samples(network, output, [batch, *spec.example_shape], name)
        _check_samples(network, sampled, [2 * batch, *spec.example_shape], name)
        if replicas > 1 and _depends_on_batch(network):
            _warn_of_batch_statistics(network, name, replicas)
    else:
        _check_scores(output, config, spec, name)


def batch_norm_layers(network: Any) -> list[str]:
    """Returns the names of Keras's batch normalizations that are not synchronized."""
    return [
        layer.name
        for layer in flatten(network)
        if isinstance(layer, tf.keras.layers.BatchNormalization)
        and not getattr(layer, "synchronized", False)
    ]


def flatten(network: Any) -> Iterator[tf.keras.layers.Layer]:
    """Yields all Keras layers of a network, itself and those inside other layers included."""
    seen = set()
    model = getattr(network, "keras_model", network)
    is_model = isinstance(model, tf.keras.Model)
    for outer in [model] if is_model else getattr(network, "layers", ()):
        for layer in outer._flatten_layers():
            if id(layer) not in seen:
                seen.add(id(layer))
                yield layer


def _check_weights(network: UserNetwork, name: str) -> None:
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


def _trace(network: UserNetwork, inputs: Any, name: str, *, training: bool) -> Any:
    """Returns the output of a call, in the graph of the call."""
    traced = tf.function(lambda values: network(values, training=training), autograph=False)
    try:
        concrete = traced.get_concrete_function(inputs)
    except (ValueError, TypeError, UserError) as error:
        cause = error.__cause__ if isinstance(error, UserError) else error
        if isinstance(cause, ValueError) and "variable" in text_of(cause).lower():
            raise UserError(
                f"{name} creates weights in a call ({shorten(' '.join(text_of(cause).split()))})",
                "create all weights in the constructor, in build or in the first call",
            ) from None
        if isinstance(error, UserError):
            raise
        # What it returns cannot be an output of a graph.
        raise UserError(
            f"{name} returns something else than tensors "
            f"({shorten(' '.join(text_of(error).split()))})",
            "return a tensor",
        ) from None
    return concrete.structured_outputs


def _check_late_weights(network: UserNetwork, before: set[int], name: str) -> None:
    late = [each for each in network.weights if id(each) not in before]
    if late:
        raise UserError(
            f"{name} creates the weight {weight_name(late[0])} only in training",
            "create all weights in the constructor, in build or in the first call",
        )


def _check_samples(network: UserNetwork, output: Any, expected: list[int], name: str) -> None:
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


def _layer_of_dynamic_shape(network: UserNetwork) -> str:
    for layer in network.layers:
        shape = getattr(getattr(layer, "output", None), "shape", None)
        if shape is not None and None in tuple(shape)[1:]:
            return f"the layer {layer.name}"
    return "it"


def _depends_on_batch(network: UserNetwork) -> bool:
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


def _warn_of_batch_statistics(network: UserNetwork, name: str, replicas: int) -> None:
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


def _check_scores(output: Any, config: Config, spec: DataSpec, name: str) -> None:
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


def _described(output: Any) -> str:
    if isinstance(output, dict):
        return f"a dictionary of {shorten(', '.join(map(str, output)))}"
    if isinstance(output, (tuple, list)):
        return f"{len(output)} values in a {type(output).__name__}"
    if isinstance(output, tf.Tensor):
        return f"a tensor of shape {output.shape}"
    return "None" if output is None else f"an object of type {type(output).__name__}"


def find_user_networks(config: Config, models: Registry) -> dict[str, UserNetworks]:
    """Returns the user's networks in a configuration, by role."""
    names = {"critic": config.model, "generator": config.generator_model or config.model}
    modules = {role: models[name].module for role, name in names.items() if name is not None}
    return {role: each for role, each in modules.items() if isinstance(each, UserNetworks)}
