"""Creates the user's own training objective."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import UserError, explaining

_REQUIRED = ("critic_terms", "generator_terms", "critic_term_names", "generator_term_names")


def create_objective(factory: Any, flag: str, settings: Mapping[str, Any]) -> Any:
    """Returns an objective of the user; see `training.interface.Objective`.

    Args:
      factory: A class or a function that returns an objective, or an objective.
      flag: The flag that names it, for messages.
      settings: The settings of the losses. Those that are parameters of `factory` are passed.

    Raises:
      UserError: If it raises an error or its result lacks a part of the interface.
    """
    if all(hasattr(factory, name) for name in _REQUIRED) and not inspect.isclass(factory):
        return _with_constraint(factory)
    if not callable(factory):
        raise UserError(f"{flag} is neither a class nor a function", "give the name of a class")
    with explaining(flag):
        objective = factory(**_accepted(factory, settings))
    if missing := [name for name in _REQUIRED if not hasattr(objective, name)]:
        raise UserError(
            f"{flag} has no {' and no '.join(missing)}",
            "define it, or derive the class from wgan_gp.losses.GanObjective",
        )
    return _with_constraint(objective)


def _accepted(factory: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(factory).parameters
    if any(each.kind == each.VAR_KEYWORD for each in parameters.values()):
        return dict(settings)
    return {name: value for name, value in settings.items() if name in parameters}


class _Unconstrained:
    """An objective that leaves the critic's weights as the optimizer sets them."""

    def __init__(self, objective: Any):
        self._objective = objective

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objective, name)

    def constrain(self, weights: Any) -> None:
        """Does nothing."""


def _with_constraint(objective: Any) -> Any:
    return objective if hasattr(objective, "constrain") else _Unconstrained(objective)
