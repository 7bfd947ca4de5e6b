"""The networks of a `WGANGP` as the engine calls them, and their checks."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import tensorflow as tf

from ...config import Config
from ...data.spec import DataSpec
from ...errors import UserError
from ...training.networks import UserNetwork
from ..user_code.network_checks import critic_findings
from ..user_code.user_networks import critic_inputs, generator_inputs


def first_inputs(config: Config, spec: DataSpec) -> Any:
    """Returns inputs with which a `WGANGP` draws a few samples: latents, and labels if any."""
    count = _count(config)
    latents = tf.zeros([count, config.latent_size])
    if spec.conditions is not None:
        return [latents, tf.constant(spec.conditions.examples[[0] * count])]
    return [latents, tf.zeros([count], tf.int32)] if spec.classes else latents


def adapt(generator: Any, critic: Any, config: Config, spec: DataSpec) -> dict[str, UserNetwork]:
    """Returns both networks, with their variables, by name.

    Raises:
      UserError: If a network has no weights to train.
    """
    design = types.SimpleNamespace(
        latent_size=config.latent_size,
        conditioning=config.conditioning,
        example_shape=spec.example_shape,
        classes=spec.classes,
        condition_size=spec.condition_size,
    )
    networks = {
        "generator": UserNetwork(generator, "generator", generator_inputs(design)),
        "critic": UserNetwork(critic, "critic", critic_inputs(design, _count(config))),
    }
    for name, network in networks.items():
        inputs = tf.nest.map_structure(
            lambda each: tf.zeros(each.shape, each.dtype), network.inputs
        )
        network(inputs)
        if not network.trainable_variables:
            raise UserError(
                f"the {name} has no weights to train", f"set {name}.trainable = True before fit"
            )
    return networks


def check_fit_critic(critic: UserNetwork, config: Config, spec: DataSpec, losses: Any) -> None:
    """Checks the critic on random examples, and prints what does not prevent training.

    Raises:
      UserError: If the critic violates an assumption of the penalty.
    """
    specs = tf.nest.flatten(critic.inputs)
    examples = tf.random.stateless_normal(specs[0].shape, [0, 0])
    labels = [tf.zeros(each.shape, each.dtype) for each in specs[1:]]
    if labels and spec.conditions is not None:
        rows = np.zeros(len(examples), int)
        labels = [tf.constant(spec.conditions.table[rows])]

    def scores(examples: tf.Tensor) -> tf.Tensor:
        output = critic([examples, *labels] if labels else examples, training=True)
        return output[0] if isinstance(output, (tuple, list)) else output

    for finding, is_fatal in critic_findings(scores, examples, config, losses):
        if is_fatal:
            raise UserError(
                f"the critic cannot be trained with penalty={config.penalty}: {finding}",
                "correct the network",
            )
        tf.get_logger().warning("the critic: %s", finding)


def _count(config: Config) -> int:
    """Returns the number of examples for which the critic is checked, a multiple of its groups."""
    return 2 * max(2, config.group_size)
