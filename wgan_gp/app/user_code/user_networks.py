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


class UserNetworks:
    """The functions `generator` and `critic` of the user, in the place of a module of `models`.

    Args:
      flag: The flag that names the networks, such as "--model=networks.py", for messages; also an
        attribute.
      module: An object with `generator` and `critic`: networks, or functions of a design that
        return new ones. A function without parameters is called without the design.
    """

    def __init__(self, flag: str, module: Any):
        self.flag = flag
        self._module = module
        self._created: dict[int, weakref.ref] = {}  # all trainable weights so far, by id

    def generator(self, design: Any) -> UserNetwork:
        """Returns the generator for a `models.Design`, with its variables."""
        return self._create("generator", design, generator_inputs(design))

    def critic(self, design: Any) -> UserNetwork:
        """Returns the critic for a `models.Design`, with its variables."""
        return self._create("critic", design, critic_inputs(design))

    def _create(self, role: str, design: Any, inputs: Any) -> UserNetwork:
        origin = f"{self.flag}: {role}"
        with explaining(origin):
            if (network := getattr(self._module, role, None)) is None:
                raise UserError(f"{self.flag} has no {role}", f"define the function {role}(design)")
            if is_network(network):
                new = _copy(network, origin)
            else:
                new = _call(network, design, self.flag)
            if not is_network(new):
                raise UserError(
                    f"{self.flag}: {role}(design) returns {shown(new)}",
                    "return a Keras model, a tf.Module or another callable with "
                    "trainable_variables",
                )
            user_network = UserNetwork(new, role, inputs, origin)
            # The first call creates the variables of networks that wait for the input's shape.
            user_network(
                tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), inputs)
            )
            self._check_weights(user_network.trainable_variables, origin)
            return user_network

    def _check_weights(self, weights: Iterable[Any], origin: str) -> None:
        """Raises UserError unless all weights are those of a new network."""
        for weight in weights:
            earlier = self._created.get(id(weight))
            if earlier is not None and earlier() is weight:
                raise UserError(
                    f"{origin} returns a network with the weight {weight_name(weight)} of an "
                    "earlier one",
                    "create all networks and layers inside the function, which is called several "
                    "times",
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


def _call(factory: Callable[..., Any], design: Any, flag: str) -> Any:
    try:
        inspect.signature(factory).bind()
        arguments = []
    except (TypeError, ValueError):
        arguments = [design]
    try:
        return factory(*arguments)
    except ValueError as error:
        # A DesignError of `models`, which has another name in an installed package.
        if (remedy := getattr(error, "remedy", None)) is None:
            raise
        raise UserError(f"{flag}: {error.args[0]}", remedy) from None


def _copy(network: Any, origin: str) -> Any:
    """Returns a copy of a network that the user has created, with its weights.

    The strategy must create the variables, and the moving average needs a network of its own.
    """
    try:
        clone = network.__class__.from_config(network.get_config())
        if network.built:
            if not clone.built:
                clone.build(network.input_shape)
            clone.set_weights(network.get_weights())
    except Exception as error:
        raise UserError(
            f"{origin} cannot be copied ({type(error).__name__}: {shorten(text_of(error))})",
            "pass its class, or a function that returns a new network",
        ) from None
    return clone
