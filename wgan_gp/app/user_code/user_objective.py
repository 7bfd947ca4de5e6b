"""Creates and checks the objective of the user."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from ... import losses
from ...errors import Reporting, UserError, explaining, shorten, shown
from ...training.objective import Objective, Terms, critic_term_intervals, generator_needs_real
from .user_networks import weight_name

_REQUIRED = ("critic_terms", "generator_terms", "critic_term_names", "generator_term_names")


def create_objective(
    factory: Any,
    flag: str,
    settings: Mapping[str, Any],
    given: Mapping[str, str],
) -> UserObjective:
    """Returns an objective of the user; see `training.objective.Objective`.

    Args:
      factory: A class or a function that returns an objective, or an objective.
      flag: The flag that names it, for messages.
      settings: The settings of the losses. Those that are parameters of `factory` are passed,
        except where the parameter has another default than in `losses.GanObjective` and the
        setting is not given.
      given: The flags that differ from their defaults, as the user wrote them, by the name of the
        parameter.

    Raises:
      UserError: If it raises an error, its result lacks a part of the interface, or it ignores a
        setting that is given.
    """
    accepted: dict[str, Any] = {}
    objective = factory
    with explaining(flag):
        if inspect.isclass(factory) or not hasattr(factory, "critic_terms"):
            accepted = _accepted(factory, settings, given)
            objective = factory(**accepted)
        missing = [name for name in _REQUIRED if not hasattr(objective, name)]
    if missing:
        raise UserError(
            f"{flag} has no {' and no '.join(missing)}",
            "define it, or derive the class from wgan_gp.losses.GanObjective",
        )
    for name, text in given.items():
        # --penalty=none also tells the checks of the critic that nothing is differentiated twice.
        if name not in accepted and text != "--penalty=none":
            raise UserError(
                f"{text} has no effect: {flag} has no parameter {name}",
                "omit it, or add the parameter there",
            )
    return UserObjective(objective, flag)


def _accepted(
    factory: Callable[..., Any], settings: Mapping[str, Any], given: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the settings with which a factory is called; see `create_objective`."""
    parameters = inspect.signature(factory).parameters
    takes_all = any(each.kind == each.VAR_KEYWORD for each in parameters.values())

    def is_passed(name: str) -> bool:
        if name not in parameters:
            return takes_all
        default = parameters[name].default
        if name in given or default is inspect.Parameter.empty:
            return True
        return default == getattr(losses.GanObjective, name, None)

    return {name: value for name, value in settings.items() if is_passed(name)}


class UserObjective(Reporting):
    """An objective of the user, whose errors become a UserError that names it.

    Args:
      objective: The objective. Without a method `constrain`, it leaves the critic's weights as the
        optimizer sets them.
      flag: The flag that names it; also an attribute.
    """

    def __init__(self, objective: Any, flag: str):
        super().__init__(objective, flag)
        self.flag = flag
        if not hasattr(self, "constrain"):
            self.constrain = lambda weights: None

    def without_lazy_penalty(self) -> UserObjective:
        """Returns the objective with its penalty in every critic step; see `GanObjective`."""
        if getattr(self, "penalty_interval", 1) == 1:
            return self
        with explaining(self.flag):
            own = copy.copy(self._target)
            try:
                object.__setattr__(own, "penalty_interval", 1)  # also of a frozen dataclass
            except AttributeError:  # a property
                return self
        return UserObjective(own, self.flag)


def check_objective(
    objective: Objective,
    networks: Sequence[Any],
    generate: Callable[[], tf.Tensor],
    score: Callable[[tf.Tensor], Any],
    examples: tf.Tensor,
    labels: tf.Tensor,
    user_networks: Mapping[str, str],
) -> None:
    """Computes the terms of an objective once, eagerly, and checks them and their gradients.

    Args:
      objective: The objective.
      networks: A generator and a critic, which are not trained. Their statistics and the weights
        of the critic may change.
      generate: () -> samples of the shape of `examples`.
      score: The critic as a function of examples.
      examples: `[B, ...]`, some real examples.
      labels: Their labels or conditions.
      user_networks: The user's networks by role, in messages.

    Raises:
      UserError: If a term cannot be computed or has another shape than `[B]`, or if a loss does
        not depend on the weights of its network.
    """
    generator, critic = networks
    alpha = tf.linspace(0.0, 0.9, len(examples))
    noise = tf.random.stateless_normal(examples.shape, seed=[0, 1])

    def critic_terms() -> Terms:
        step = tf.constant(0, tf.int64)
        drawn = {"alpha": alpha, "noise": noise, "step": step, "labels": labels}
        return objective.critic_terms(score, examples, generate(), **drawn)

    def generator_terms() -> Terms:
        real = {"real": examples} if generator_needs_real(objective) else {}
        return objective.generator_terms(score, generate(), labels=labels, **real)

    _check_loss(objective, "critic", critic_terms, critic, len(examples), user_networks)
    objective.constrain(critic.trainable_variables)
    _check_loss(objective, "generator", generator_terms, generator, len(examples), user_networks)


def _check_loss(
    objective: Objective,
    role: str,
    compute: Callable[[], Terms],
    network: Any,
    count: int,
    user_networks: Mapping[str, str],
) -> None:
    of_network = user_networks.get(role, next(iter(user_networks.values()), ""))
    origin = getattr(objective, "flag", of_network)
    weights = network.trainable_variables
    with explaining(f"{origin}: the {role}'s terms"):
        if role == "critic":
            _check_intervals(critic_term_intervals(objective), origin)
        with tf.GradientTape() as tape:
            terms = compute()
            names = getattr(objective, f"{role}_term_names")
            tensors = {
                name: _checked(f"{origin}: the {role}'s term {name}", terms[name], count)
                for name in names
            }
            loss = tf.reduce_mean(tensors["loss"])
        gradients = tape.gradient(loss, weights)
    unused = [
        weight_name(weight)
        for weight, gradient in zip(weights, gradients, strict=True)
        if gradient is None
    ]
    if len(unused) == len(weights):
        raise UserError(
            f"{origin}: the {role}'s loss does not depend on the weights of the {role}",
            "compute it with TensorFlow from the output of the network, without stop_gradient",
        )
    if unused:
        logging.warning(
            f"{user_networks.get(role, f'{origin}: {role}')}: training does not change "
            f"{shorten(', '.join(unused))}, because the loss does not depend on it"
        )


def _check_intervals(intervals: Mapping[str, int], origin: str) -> None:
    for name, each in intervals.items():
        if not isinstance(each, int) or each < 1 or (name == "loss" and each != 1):
            raise UserError(
                f"{origin}: critic_term_intervals is {shown(intervals)}",
                "let it map names of terms, except loss, to positive integers",
            )


def _checked(term: str, value: Any, count: int) -> tf.Tensor:
    """Returns a term as a tensor `[count]` of floating-point numbers.

    Raises:
      UserError: If it has another shape or dtype.
    """
    tensor = tf.convert_to_tensor(value)
    if tensor.shape != [count] or not tensor.dtype.is_floating or tensor.dtype == tf.float64:
        raise UserError(
            f"{term} has the shape {tensor.shape} and the dtype {tensor.dtype.name} for {count} "
            "examples",
            f"return one float32 number for each example, [{count}]",
        )
    return tensor
