"""The properties of the data on which the networks depend."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from typing import Any

from ..errors import shorten

if typing.TYPE_CHECKING:
    import numpy as np

    from .conditions import Conditions
    from .pixels import Pixels
    from .scaling import Scaling
    from .table import Table

# What an example is, by the number of its axes.
KINDS = {1: "points", 2: "signals", 3: "images", 4: "volumes"}
_LABELS = 2**14  # of a typed table, in the programs that draw from them
_SHOWN = 5  # names of features or classes in a line


def names_of_numbers(count: int) -> tuple[str, ...]:
    """Returns the names of `count` classes that have no other names: "0", "1", ..."""
    return tuple(map(str, range(count)))


@dataclasses.dataclass(frozen=True)
class DataSpec:
    """The properties of the data on which the networks depend.

    Attributes:
      example_shape: `(D, H, W, C)` for volumes, `(H, W, C)` for images, `(T, C)` for signals,
        `(D,)` for points.
      classes: The number of classes of a run with labels, else 0.
      bounded: Whether all training examples are in [-1, 1].
      conditions: The distribution of the conditions of a run with conditions, else None.
      class_names: The names of the classes of the data in the order of their numbers, also for an
        unconditional run; None without labels.
      scaling: The scaling of an array; None for other data.
      table: The columns of a typed table; None for other data.
      pixels: The levels of pictures that are stored as integers; None for other data.
      types: What columns of a table were that have another type in it; see `restore_types`.
    """

    example_shape: tuple[int, ...]
    classes: int
    bounded: bool = True
    conditions: Conditions | None = None
    class_names: tuple[str, ...] | None = None
    scaling: Scaling | None = None
    table: Table | None = None
    pixels: Pixels | None = None
    types: dict[str, str] = dataclasses.field(default_factory=dict)

    @staticmethod
    def annotated() -> dict[str, Any]:
        """Returns the classes that the annotations name; importing them imports TensorFlow."""
        from .conditions import Conditions  # noqa: PLC0415
        from .pixels import Pixels  # noqa: PLC0415
        from .scaling import Scaling  # noqa: PLC0415
        from .table import Table  # noqa: PLC0415

        return {each.__name__: each for each in (Conditions, Pixels, Scaling, Table)}

    @property
    def condition_size(self) -> int:
        """The length K of the conditions of a run with conditions, else 0."""
        return 0 if self.conditions is None else self.conditions.size

    @property
    def units(self) -> Scaling | Table | Pixels | None:
        """The object that restores samples in the units of the data; None if they have those."""
        return self.table or self.scaling or self.pixels

    def draw_labels(self, *, is_balanced: bool) -> np.ndarray | None:
        """Returns labels as a conditional run on a typed table draws them, `[M]` int32; else None.

        Args:
          is_balanced: See `Table.draw_labels`.
        """
        if self.table is None or not self.classes:
            return None
        return self.table.draw_labels(_LABELS, 0, is_balanced=is_balanced)

    def latent_size(self, size: int) -> int:
        """Returns the length of a latent vector: `size`, and the noise of a table's categories.

        Args:
          size: The value of --latent_size.
        """
        return size if self.table is None else size + self.table.noise_size

    def describe(self, size: int | None) -> str:
        """Returns what a user should see of the data, in one line.

        Args:
          size: The number of examples; None if they are endless.
        """
        examples = "examples" if size is None else count_of(size, "example")
        if self.table is not None:
            columns = count_of(len(self.table.names), "column")
            return f"{examples} of {columns}, {count_of(self.table.size, 'feature')} in all"
        *sides, last = self.example_shape
        names = None if self.scaling is None else self.scaling.names
        kinds = {
            0: count_of(last, "feature"),
            1: f"{count_of(sides[0] if sides else 0, 'step')} and {count_of(last, 'channel')}",
            2: f"{'x'.join(map(str, sides))} pixels and {count_of(last, 'channel')}",
            3: f"{'x'.join(map(str, sides))} voxels and {count_of(last, 'channel')}",
        }
        parts = [f"{examples} of {kinds[len(sides)]}"]
        if names is not None:
            parts[0] += f" ({_list(names)})"
        if self.class_names is not None:
            parts.append(f"{count_of(len(self.class_names), 'class')} ({_list(self.class_names)})")
        if self.conditions is not None:
            parts.append(f"conditions of {count_of(self.conditions.size, 'number')}")
        return ", ".join(parts)


def count_of(number: int, name: str) -> str:
    """Returns a number of things, such as "3 classes"."""
    return f"{number} {name}{'' if number == 1 else 'es' if name.endswith('s') else 's'}"


def _list(names: Sequence[str]) -> str:
    """Returns names separated by commas, of many only the first ones."""
    shown = [shorten(name, 30) for name in names[:_SHOWN]]
    return ", ".join(shown + ["..."] * (len(names) > _SHOWN))
