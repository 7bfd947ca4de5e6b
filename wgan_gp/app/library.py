"""The networks and the losses, which the engine is handed instead of importing them."""

from __future__ import annotations

import dataclasses
import importlib
from types import ModuleType
from typing import Any


@dataclasses.dataclass(frozen=True)
class Library:
    """The packages of networks and losses.

    Attributes:
      models: The package `models`, or an object with the same functions.
      losses: The package `losses`, or an object with the same functions.
      objective: The user's own training objective, or a function that creates it; see
        `create_objective`. None for `losses.GanObjective`.
    """

    models: Any
    losses: ModuleType
    objective: Any = None


def bundled_library() -> Library:
    """Returns the networks and losses of this project; imports TensorFlow."""
    return Library(bundled("models"), bundled("losses"))


def bundled(name: str) -> ModuleType:
    """Returns one of the packages that the wheel contains and a checkout has next to wgan_gp.

    This function is the only place where the engine imports them.

    Args:
      name: "flags", "losses" or "models". Importing losses imports TensorFlow.
    """
    installed = f"{__package__.partition('.')[0]}.{name}"
    try:
        return importlib.import_module(installed)
    except ModuleNotFoundError as error:
        if error.name != installed:
            raise
    return importlib.import_module(name)
