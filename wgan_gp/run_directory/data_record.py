"""The content of data.json: what the networks depend on, and the fingerprint of the data."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..errors import UserError
from . import schema
from .schema import boolean, integer, list_of, number, object_of, one_of, optional

# The entries of a fingerprint that are compared, and the descriptions of their differences.
_DESCRIPTIONS = {
    "names": "the file names differ",
    "classes": "the classes differ",
    "sizes": "the file sizes differ",
    "content": "the examples differ",
}


_size = integer(1)
_numbers = list_of(number())
_text = schema.text
_digest = optional(_text)
_FLOATS = ("float16", "float32", "float64", "longdouble", "float128", "bfloat16")
_INTEGERS = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
_ENTRIES = {
    "example_shape": list_of(_size, 1, 3),
    "classes": integer(),
    "fingerprint": optional(
        object_of(
            {
                "files": optional(integer(0, 2**62)),
                "examples": optional(integer(0, 2**62)),
                **dict.fromkeys(_DESCRIPTIONS, _digest),
            }
        )
    ),
    "scaling": optional(
        object_of(
            {
                "method": one_of("minmax", "standard", "whiten", "none"),
                "offset": _numbers,
                "scale": list_of(number(above=0)),
                "minimum": _numbers,
                "maximum": _numbers,
                "used": list_of(integer()),
                "constants": _numbers,
                "dequantized": boolean,
                "dtype": one_of(*_FLOATS, *_INTEGERS),
                "names": optional(list_of(_text)),
                "whitening": optional(object_of({"mean": _text, "root": _text})),
            }
        )
    ),
    "conditions": optional(
        object_of(
            {
                "mean": list_of(number(), 1),
                "deviation": list_of(number(above=0), 1),
                "examples": list_of(_numbers, 1),
            }
        )
    ),
    "class_names": optional(list_of(_text)),
}


@dataclasses.dataclass(frozen=True)
class DataRecord:
    """The content of data.json: the shape of the data and its identity.

    Attributes:
      example_shape: `(H, W, C)` for images, `(T, C)` for signals, `(D,)` for points.
      classes: The number of classes of a conditional run; 0 for an unconditional run.
      fingerprint: The fingerprint of the data's files; see data/fingerprint.py. None if unknown.
      scaling: The scaling of an array; see data/scaling.py. None for other datasets.
      conditions: The conditions of a run that uses them; see data/conditions.py. None without.
      class_names: The names of the classes of a table whose labels are texts, else None.
    """

    example_shape: tuple[int, ...]
    classes: int
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
        record: dict[str, Any] = {name: saved.get(name) for name in _ENTRIES}
        if not (object_of(_ENTRIES)(saved) and _fits(record)):
            raise UserError(
                f"{path} is missing or damaged",
                "start the run's training again, which writes the file",
            )
        return cls(**{**record, "example_shape": tuple(record["example_shape"])})


def _fits(record: dict[str, Any]) -> bool:
    """Returns True if the lists of a record with valid entries have lengths that fit each other."""
    scaling, conditions = record["scaling"], record["conditions"]
    if scaling is not None:
        used, count = scaling["used"], len(scaling["constants"])
        lengths = {len(scaling[name]) for name in ("offset", "scale", "minimum", "maximum", "used")}
        if (
            lengths != {record["example_shape"][-1]}
            or not all(index < count for index in used)
            or len(scaling["names"] or scaling["constants"]) != count
        ):
            return False
    if conditions is not None:
        size = len(conditions["mean"])
        return all(len(row) == size for row in (conditions["deviation"], *conditions["examples"]))
    return True


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
