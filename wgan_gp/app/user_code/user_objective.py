"""Creates and checks the objective of the user."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from ...errors import UserError, explaining, shown
from ...training.objective import Objective, Terms, critic_term_intervals, generator_needs_real
from .user_networks import weight_name

_REQUIRED = ("critic_terms", "generator_terms", "critic_term_names", "generator_term_names")
_MISSING = object()  # stands for an attribute that the objective does not have
_SHOWN = 3  # weights in a message


def create_objective(
    factory: Any,
    flag: str,
    settings: Mapping[str, Any],
    *,
    given: Mapping[str, Any],
    defaults: Mapping[str, Sequence[Any]],
) -> UserObjective:
    """Returns an objective of the user; see `training.objective.Objective`.

    Args:
      factory: A class or a function that returns an objective, or an objective.
      flag: The flag that names it, for messages.
      settings: The settings of the losses. Those that are parameters of `factory` are passed,
        except where the parameter has a default of its own and the setting is not given.
      given: The settings that differ from their defaults, as the user wrote them.
      defaults: The known defaults of each parameter: that of `losses.GanObjective` and that of the
        flag. Another default of a parameter is the user's own.

    Raises:
      UserError: If it raises an error, its result lacks a part of the interface, or it ignores a
        setting that is given.
    """
    accepted: dict[str, Any] = {}
    with explaining(flag):
        is_objective = not inspect.isclass(factory) and all(
            hasattr(factory, name) for name in _REQUIRED
        )
        if not is_objective and not callable(factory):
            raise UserError(f"{flag} is neither a class nor a function", "give the name of a class")
        objective = factory
        if not is_objective:
            accepted = _accepted(factory, settings, given, defaults)
            objective = factory(**accepted)
        missing = [name for name in _REQUIRED if not hasattr(objective, name)]
    if missing:
        raise UserError(
            f"{flag} has no {' and no '.join(missing)}",
            "define it, or derive the class from wgan_gp.losses.GanObjective",
        )
    for name, value in given.items():
        # --penalty=none also tells the checks of the critic that nothing is differentiated twice.
        if name not in accepted and (name, value) != ("penalty", "none"):
            raise UserError(
                f"--{name}={value} has no effect: {flag} has no parameter {name}",
                "omit it, or add the parameter there",
            )
    return UserObjective(objective, flag)


def _accepted(
    factory: Callable[..., Any],
    settings: Mapping[str, Any],
    given: Mapping[str, Any],
    defaults: Mapping[str, Sequence[Any]],
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
        return isinstance(default, (int, float, str)) and default in defaults.get(name, ())

    return {name: value for name, value in settings.items() if is_passed(name)}


class UserObjective:
    """An objective of the user, whose errors become a UserError that names it.

    Args:
      objective: The objective. Without a method `constrain`, it leaves the critic's weights as the
        optimizer sets them.
      flag: The flag that names it.
    """

    def __init__(self, objective: Any, flag: str):
        self._objective = objective
        self.flag = flag

    def __getattr__(self, name: str) -> Any:
        if name == "_objective":  # a copy is being created
            raise AttributeError(name)
        with explaining(self.flag):  # of a property
            value = getattr(self._objective, name, _MISSING)
        if value is _MISSING:
            raise AttributeError(f"{self.flag} has no {name}")
        return value

    def critic_terms(self, *args: Any, **kwargs: Any) -> Terms:
        with explaining(f"{self.flag}: critic_terms"):
            return self._objective.critic_terms(*args, **kwargs)

    def generator_terms(self, *args: Any, **kwargs: Any) -> Terms:
        with explaining(f"{self.flag}: generator_terms"):
            return self._objective.generator_terms(*args, **kwargs)

    def without_lazy_penalty(self) -> UserObjective:
        """Returns the objective with its penalty in every critic step; see `GanObjective`."""
        if getattr(self, "penalty_interval", 1) == 1:
            return self
        with explaining(self.flag):
            own = copy.copy(self._objective)
            try:
                object.__setattr__(own, "penalty_interval", 1)  # also of a frozen dataclass
            except AttributeError:  # a property
                return self
        return UserObjective(own, self.flag)

    def constrain(self, weights: Sequence[tf.Variable]) -> None:
        with explaining(f"{self.flag}: constrain"):
            if constrain := getattr(self._objective, "constrain", None):
                constrain(weights)


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

    count = len(examples)
    _check_loss(objective, "critic", critic_terms, critic, count, user_networks)
    _check_intervals(objective, user_networks)
    objective.constrain(critic.trainable_variables)
    _check_loss(objective, "generator", generator_terms, generator, count, user_networks)


def _check_intervals(objective: Objective, user_networks: Mapping[str, str]) -> None:
    """Raises UserError if the intervals of the critic's terms are not positive integers."""
    origin = _origin(objective, "critic", user_networks)
    with explaining(origin):
        intervals = critic_term_intervals(objective)
        is_valid = isinstance(intervals, Mapping) and all(
            isinstance(each, int) and each >= 1 and (name != "loss" or each == 1)
            for name, each in intervals.items()
        )
        text = shown(intervals)
    if not is_valid:
        raise UserError(
            f"{origin}: critic_term_intervals is {text}",
            "let it map names of terms, except loss, to positive integers",
        )


def _origin(objective: Objective, role: str, user_networks: Mapping[str, str]) -> str:
    """Returns the flag of the objective, or else that of a network, for messages."""
    networks = user_networks.get(role, next(iter(user_networks.values()), ""))
    return getattr(objective, "flag", networks)


def _check_loss(
    objective: Objective,
    role: str,
    compute: Callable[[], Terms],
    network: Any,
    count: int,
    user_networks: Mapping[str, str],
) -> None:
    origin = _origin(objective, role, user_networks)
    names = _term_names(objective, f"{role}_term_names", origin)
    weights = network.trainable_variables
    with explaining(origin):
        with tf.GradientTape() as tape:
            terms = _checked(compute(), names, count, f"{origin}: {role}_terms")
            loss = tf.reduce_mean(terms["loss"])
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
        more = f" and {len(unused) - _SHOWN} more" if len(unused) > _SHOWN else ""
        logging.warning(
            f"{user_networks.get(role, f'{origin}: {role}')}: training does not change "
            f"{', '.join(unused[:_SHOWN])}{more}, because the loss does not depend on it"
        )


def _term_names(objective: Objective, attribute: str, origin: str) -> tuple[str, ...]:
    with explaining(origin):
        names = getattr(objective, attribute)
        is_list = isinstance(names, (tuple, list)) and all(isinstance(each, str) for each in names)
    if not is_list or "loss" not in names:
        raise UserError(
            f"{origin}: {attribute} is {shown(names)}",
            'let it be a tuple of names that contains "loss"',
        )
    return tuple(names)


def _checked(terms: Any, names: Sequence[str], count: int, origin: str) -> Terms:
    """Returns the terms as tensors `[count]` of floating-point numbers.

    Raises:
      UserError: If a term is missing or has another shape or dtype.
    """
    if not isinstance(terms, Mapping):
        raise UserError(f"{origin} returns {shown(terms)}", "return a dictionary of terms [B]")
    if missing := [name for name in names if name not in terms]:
        raise UserError(
            f"{origin} returns no term {' and no '.join(missing)}",
            f"return all of {', '.join(names)}",
        )
    tensors = {name: tf.convert_to_tensor(terms[name]) for name in names}
    for name, term in tensors.items():
        if term.shape != [count] or not term.dtype.is_floating:
            raise UserError(
                f"{origin} returns the term {name} of shape {term.shape} and dtype "
                f"{term.dtype.name} for {count} examples",
                f"return one floating-point number for each example, [{count}]",
            )
        if term.dtype == tf.float64:
            raise UserError(
                f"{origin} returns the term {name} in float64, but weights and other terms are "
                "float32",
                "cast it to tf.float32",
            )
    return tensors
