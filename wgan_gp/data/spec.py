"""The properties of the data on which the networks depend."""

from __future__ import annotations

import dataclasses
import typing

if typing.TYPE_CHECKING:
    from .scaling.conditions import Conditions
    from .scaling.scaling import Scaling


def is_normalized(example_shape: tuple[int, ...]) -> bool:
    """Returns True for data without a scaling that is in [-1, 1]: images, but not points."""
    return len(example_shape) == 3


@dataclasses.dataclass(frozen=True)
class DataSpec:
    """The properties of the data on which the networks depend.

    Attributes:
      example_shape: `(H, W, C)` for images, `(T, C)` for signals, `(D,)` for points.
      classes: The number of classes of a run with labels, else 0.
      bounded: Whether all training examples are in [-1, 1].
      conditions: The distribution of the conditions of a run with conditions, else None.
      class_names: The names of the classes of a table whose labels are texts, else None.
      scaling: The scaling of an array; None for other data.
    """

    example_shape: tuple[int, ...]
    classes: int
    bounded: bool = True
    conditions: Conditions | None = None
    class_names: tuple[str, ...] | None = None
    scaling: Scaling | None = None

    @property
    def condition_size(self) -> int:
        """The length K of the conditions of a run with conditions, else 0."""
        return 0 if self.conditions is None else self.conditions.size
