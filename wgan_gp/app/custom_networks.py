"""Creates the user's own networks, each time that the engine needs new ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..errors import UserError, explaining, shorten
from ..training.adapted import AdaptedNetwork

# Called with a design, or without arguments.
NetworkFactory = Callable[..., Any]


class CustomNetworks:
    """The functions `generator` and `critic` of the user, in the place of a module of `models`.

    Args:
      flag: The flag that names the networks, such as "--model=networks.py", for messages; also an
        attribute.
      generator, critic: The networks, or functions of a design that return new ones. A function
        without parameters is called without the design. None if there is no such network.
    """

    def __init__(self, flag: str, *, generator: Any = None, critic: Any = None):
        self.flag = flag
        self._networks = {"generator": generator, "critic": critic}

    def generator(self, design: Any) -> AdaptedNetwork:
        """Returns the generator for a `models.Design`, with its variables."""
        return self._create("generator", design, generator_inputs(design))

    def critic(self, design: Any) -> AdaptedNetwork:
        """Returns the critic for a `models.Design`, with its variables."""
        return self._create("critic", design, critic_inputs(design))

    def _create(self, role: str, design: Any, inputs: Any) -> AdaptedNetwork:
        network = self._networks[role]
        if network is None:
            raise UserError(f"{self.flag} has no {role}", f"define the function {role}(design)")
        with explaining(f"{self.flag}: {role}"):
            if is_network(network):
                network = _copy(network, f"{self.flag}: the {role}")
            else:
                network = _call(network, design)
            if not is_network(network):
                raise UserError(
                    f"{self.flag}: {role}(design) returns {shorten(repr(network))}",
                    "return a Keras model, a tf.Module or another callable with "
                    "trainable_variables",
                )
            adapted = AdaptedNetwork(network, role, inputs)
            # The first call creates the variables of networks that wait for the input's shape.
            adapted(tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), inputs))
            return adapted


def is_network(value: Any) -> bool:
    """Returns True for a network, and False for a function or class that creates one."""
    if isinstance(value, tf.keras.Model):
        return True  # in Keras 2, a model that has not been called has no list of variables yet
    return callable(value) and not inspect.isclass(value) and hasattr(value, "trainable_variables")


def generator_inputs(design: Any, batch: int = 4) -> Any:
    """Returns the specification of the inputs of a generator, for a batch."""
    latents = tf.TensorSpec([batch, design.latent_size], tf.float32)
    is_conditional = design.classes or design.condition_size
    return [latents, _labels(design, batch)] if is_conditional else latents


def critic_inputs(design: Any, batch: int = 4) -> Any:
    """Returns the specification of the inputs of a critic, for a batch."""
    examples = tf.TensorSpec([batch, *design.example_shape], tf.float32)
    takes_labels = design.conditioning in ("projection", "concatenation")
    return [examples, _labels(design, batch)] if takes_labels else examples


def _labels(design: Any, batch: int) -> tf.TensorSpec:
    if design.condition_size:
        return tf.TensorSpec([batch, design.condition_size], tf.float32)
    return tf.TensorSpec([batch], tf.int32)


def _call(factory: NetworkFactory, design: Any) -> Any:
    try:
        inspect.signature(factory).bind()
    except (TypeError, ValueError):
        return factory(design)
    return factory()


def _copy(network: Any, what: str) -> Any:
    """Returns a copy of a network that the user has created, with its weights.

    The strategy must create the variables, and the moving average needs a network of its own.
    """
    remedy = "pass its class, or a function that returns a new network"
    if not isinstance(network, tf.keras.Model):
        raise UserError(
            f"{what} is a {type(network).__name__}, but only Keras models can be copied to the "
            "devices of a run",
            remedy,
        )
    try:
        clone = network.__class__.from_config(network.get_config())
        if network.built:
            if not clone.built:
                clone.build(network.input_shape)
            clone.set_weights(network.get_weights())
    except Exception as error:
        raise UserError(
            f"{what} cannot be copied ({type(error).__name__}: {shorten(str(error))})",
            remedy,
        ) from None
    return clone
