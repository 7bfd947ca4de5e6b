"""The networks of a run, and the parts of the user that take the place of those of the settings."""

from __future__ import annotations

import dataclasses
from typing import Any

from .. import models as networks

Registry = networks.Registry


@dataclasses.dataclass(frozen=True)
class Library:
    """The parts of a run that settings name.

    Attributes:
      models: The networks, including those of the user.
      objective: The user objective, or a function that creates it; see `create_objective`. None
        for `losses.GanObjective`.
      optimizers: Keras optimizers of the generator and the critic; None for those of the settings.
    """

    models: Registry = dataclasses.field(default_factory=lambda: networks.MODELS)
    objective: Any = None
    optimizers: tuple[Any, Any] | None = None
