"""The content of data.json: what the networks depend on, and the fingerprint of the data."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..errors import UserError

# The entries of a fingerprint that are compared, and the descriptions of their differences.
_DESCRIPTIONS = {
    "names": "the file names differ",
    "classes": "the classes differ",
    "sizes": "the file sizes differ",
    "content": "the examples differ",
}


@dataclasses.dataclass(frozen=True)
class DataRecord:
    """The content of data.json: the shape of the data and its identity.

    Attributes:
      example_shape: `(H, W, C)` for images, `(T, C)` for signals, `(D,)` for points.
      classes: The number of classes of a conditional run; 0 for an unconditional run.
      order: The version of the order in which the examples are read. None if the dataset
        generates its examples.
      fingerprint: The fingerprint of the data's files; see data/fingerprint.py. None if unknown.
      scaling: The scaling of an array; see data/scaling.py. None for other datasets.
      conditions: The conditions of a run that uses them; see data/conditions.py. None without.
      class_names: The names of the classes of a table whose labels are texts, else None.
    """

    example_shape: tuple[int, ...]
    classes: int
    order: int | None = None
    fingerprint: dict[str, Any] | None = None
    scaling: dict[str, Any] | None = None
    conditions: dict[str, Any] | None = None
    class_names: list[str] | None = None

    @property
    def condition_size(self) -> int:
        """The length K of the conditions of the run; 0 without conditions."""
        return 0 if self.conditions is None else len(self.conditions["mean"])

    @classmethod
    def from_dict(cls, saved: dict[str, Any], path: str) -> DataRecord:
        """Returns the record for the JSON object `saved`, which was read from `path`.

        Raises:
          UserError: If `saved` is not a valid record.
        """
        shape, classes = saved.get("example_shape"), saved.get("classes")
        order, fingerprint = saved.get("order"), saved.get("fingerprint")
        scaling = saved.get("scaling")
        conditions, names = saved.get("conditions"), saved.get("class_names")
        if not (
            isinstance(shape, list)
            and len(shape) in (1, 2, 3)
            and all(type(size) is int and 0 < size < 2**31 for size in shape)
            and isinstance(classes, int)
            and 0 <= classes < 2**31
            and isinstance(order, int | None)
            and isinstance(fingerprint, dict | None)
            and isinstance(scaling, dict | None)
            and _are_conditions(conditions)
            and (names is None or _are_names(names))
        ):
            raise UserError(
                f"{path} is missing or damaged",
                "start the run's training again, which writes the file",
            )
        return cls(tuple(shape), classes, order, fingerprint, scaling, conditions, names)


def _are_names(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def _are_conditions(conditions: Any) -> bool:
    """Returns True for a valid entry "conditions" of data.json."""
    if conditions is None:
        return True
    if not isinstance(conditions, dict):
        return False
    examples = conditions.get("examples")
    rows = [conditions.get("mean"), conditions.get("deviation")]
    rows += examples if isinstance(examples, list) and examples else [None]
    return all(
        isinstance(row, list)
        and len(row) == len(rows[0] or ())
        and all(isinstance(x, int | float) for x in row)
        for row in rows
    )


def describe_changes(before: dict[str, Any] | None, now: dict[str, Any] | None) -> str:
    """Returns a description of the differences of two fingerprints, "" if none are known.

    Args:
      before: The recorded fingerprint, or None if none was recorded.
      now: The current fingerprint, or None for a dataset without files.
    """
    if before is None or now is None:
        return ""
    for unit in ("files", "examples"):
        if unit in now and before.get(unit) != now[unit]:
            return f"{before.get(unit)} {unit} became {now[unit]}"
    # Remote files have no sizes, and earlier versions may not have recorded all entries.
    known = [name for name in _DESCRIPTIONS if None not in (before.get(name), now.get(name))]
    return ", ".join(_DESCRIPTIONS[name] for name in known if before[name] != now[name])
