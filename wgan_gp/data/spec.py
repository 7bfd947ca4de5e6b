"""The properties of the data on which the networks depend."""

from __future__ import annotations

import dataclasses

from .conditions import Conditions


@dataclasses.dataclass(frozen=True)
class DataSpec:
    """The properties of the data on which the networks depend.

    Attributes:
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      classes: The number of classes of a run with labels, else 0.
      condition_size: The length K of the conditions of a run with conditions, else 0.
      conditions: The distribution of these conditions, else None.
    """

    example_shape: tuple[int, ...]
    classes: int
    condition_size: int = 0
    conditions: Conditions | None = None
