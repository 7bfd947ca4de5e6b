"""Checks of the user's networks and of what they return, on a copy that is not trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from absl import logging

from ...config import Config
from ...data.spec import DataSpec
from ...errors import UserError, explaining, shown
from ...training.networks import UserNetwork, check_layer_losses
from ..library import Registry
from .user_networks import UserNetworks, weight_name


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
    twice = tf.nest.map_structure(
        lambda spec: tf.TensorSpec([2 * spec.shape[0], *spec.shape[1:]], spec.dtype), network.inputs
    )
    sampled = _trace(network, twice, name, training=False)
    output = _trace(network, network.inputs, name, training=True)
    for late in [each for each in network.weights if id(each) not in before]:
        raise UserError(
            f"{name} creates the weight {weight_name(late)} only in training",
            "create all weights in the constructor, in build or in the first call",
        )
    check_layer_losses(flatten(network), name)
    if network.name == "generator":
        batch = tf.nest.flatten(network.inputs)[0].shape[0]
        _check_samples(output, [batch, *spec.example_shape], name)
        _check_samples(sampled, [2 * batch, *spec.example_shape], name)
        if replicas > 1 and (layers := batch_norm_layers(network)):
            logging.warning(
                f"{name}: {', '.join(layers)} normalizes over the batch of each replica, so "
                f"training on {replicas} replicas differs from training on one — create it with "
                "synchronized=True"
            )
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


def _trace(network: UserNetwork, inputs: Any, name: str, *, training: bool) -> Any:
    """Returns the output of a call, in the graph of the call."""
    traced = tf.function(lambda values: network(values, training=training), autograph=False)
    with explaining(name):
        return traced.get_concrete_function(inputs).structured_outputs


def _check_samples(output: Any, expected: list[int], name: str) -> None:
    is_static = isinstance(output, tf.Tensor) and output.shape == expected
    if not is_static or output.dtype != tf.float32:
        batch, *shape = expected
        is_tensor = isinstance(output, tf.Tensor)
        found = f"{output.dtype.name} of shape {output.shape}" if is_tensor else shown(output)
        raise UserError(
            f"{name} returns {found} for {batch} latents, but the examples have shape "
            f"{tuple(shape)}",
            f"return a float32 tensor of the static shape [B, {', '.join(map(str, shape))}]",
        )


def _check_scores(output: Any, config: Config, spec: DataSpec, name: str) -> None:
    """Checks the structure of a critic's output. `losses.check_critic` checks its scores."""
    is_tuple = isinstance(output, (tuple, list))
    parts = output if is_tuple else [output]
    is_valid = bool(parts) and all(isinstance(part, tf.Tensor) for part in parts)
    needed = "a tensor of one score per example"
    if config.objective is None:
        if config.conditioning == "acgan":
            needed = f"a tuple of scores and class logits [B, {spec.classes}]"
            is_valid &= is_tuple and len(parts) == 2 and parts[1].shape[1:] == [spec.classes]
        else:
            is_valid &= not is_tuple or len(parts) == 2
    if not is_valid:
        raise UserError(f"{name} returns {shown(output)}", f"return {needed}")


def find_user_networks(config: Config, models: Registry) -> dict[str, UserNetworks]:
    """Returns the user's networks in a configuration, by role."""
    names = {"critic": config.model, "generator": config.generator_model or config.model}
    modules = {role: models[name].module for role, name in names.items() if name is not None}
    return {role: each for role, each in modules.items() if isinstance(each, UserNetworks)}
