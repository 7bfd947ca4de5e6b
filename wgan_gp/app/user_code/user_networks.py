"""Creates the networks of the user, each time that the engine needs new ones."""

from __future__ import annotations

import inspect
import math
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from ...errors import UserError, explaining, shorten, shown, text_of
from ...training.networks import UserNetwork

# Called with a design, or without arguments.
NetworkFactory = Callable[..., Any]


class UserNetworks:
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
        self._created: dict[int, weakref.ref] = {}  # all trainable weights so far, by id

    def generator(self, design: Any) -> UserNetwork:
        """Returns the generator for a `models.Design`, with its variables."""
        return self._create("generator", design, generator_inputs(design))

    def critic(self, design: Any) -> UserNetwork:
        """Returns the critic for a `models.Design`, with its variables."""
        return self._create("critic", design, critic_inputs(design))

    def _create(self, role: str, design: Any, inputs: Any) -> UserNetwork:
        network, origin = self._networks[role], f"{self.flag}: {role}"
        if network is None:
            raise UserError(f"{self.flag} has no {role}", f"define the function {role}(design)")
        if not callable(network):
            raise UserError(
                f"{origin} is {shown(network)}",
                f"define {role} as a function of the design that returns a network",
            )
        with explaining(origin):
            if is_network(network):
                network = _copy(network, f"{self.flag}: the {role}")
            else:
                try:
                    network = _call(network, design)
                except ValueError as error:
                    # A DesignError of `models`, which has another name in an installed package.
                    if (remedy := getattr(error, "remedy", None)) is None:
                        raise
                    raise UserError(f"{self.flag}: {error.args[0]}", remedy) from None
            if not is_network(network):
                raise UserError(
                    f"{self.flag}: {role}(design) returns {shown(network)}",
                    "return a Keras model, a tf.Module or another callable with "
                    "trainable_variables",
                )
            user_network = UserNetwork(network, role, inputs, origin)
            # The first call creates the variables of networks that wait for the input's shape.
            user_network(
                tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), inputs)
            )
            self._check_weights(user_network.trainable_variables, role)
            return user_network

    def _check_weights(self, weights: Iterable[Any], role: str) -> None:
        """Raises UserError unless all weights are variables of a new network."""
        for weight in weights:
            if not hasattr(weight, "assign"):
                raise UserError(
                    f"{self.flag}: {role} has {shown(weight)} in trainable_variables",
                    "return tf.Variables there",
                )
            earlier = self._created.get(id(weight))
            if earlier is not None and earlier() is weight:
                raise UserError(
                    f"{self.flag}: {role} returns a network with the weight {weight_name(weight)} "
                    "of an earlier one",
                    f"create all networks and layers inside the function {role}, which is called "
                    "several times",
                )
        self._created |= {id(weight): weakref.ref(weight) for weight in weights}


def is_network(value: Any) -> bool:
    """Returns True for a network, and False for a function or class that creates one."""
    return callable(value) and not inspect.isclass(value) and hasattr(value, "trainable_variables")


def weight_name(weight: Any) -> str:
    """Returns the name of a variable in messages."""
    return str(getattr(weight, "path", weight.name))


def generator_inputs(design: Any, batch: int = 4) -> Any:
    """Returns the specification of the inputs of a generator, for a batch."""
    latents = tf.TensorSpec([batch, design.latent_size], tf.float32)
    is_conditional = design.classes or design.condition_size
    return [latents, _labels(design, batch)] if is_conditional else latents


def critic_inputs(design: Any) -> Any:
    """Returns the specification of the inputs of a critic, for whole groups of examples."""
    batch = math.lcm(4, max(1, design.minibatch_stddev))
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
            f"{what} cannot be copied ({type(error).__name__}: {shorten(text_of(error))})",
            remedy,
        ) from None
    return clone
