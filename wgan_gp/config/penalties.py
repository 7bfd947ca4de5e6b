"""The penalties of the critic's gradient: one name and one weight, or several."""

from __future__ import annotations

from typing import Any

from ..errors import UserError, printable, shorten
from .settings import check_value

PENALTIES = (
    "two_sided",
    "one_sided",
    "zero_centred",
    "r1",
    "r2",
    "dragan",
    "weight_clipping",
    "none",
)
PENALTIES_WITH_TARGET = ("two_sided", "one_sided", "dragan")  # these use penalty_target
WITHOUT_GRADIENT = ("weight_clipping", "none")  # cannot be combined
_LIMITS = {"minimum": 0, "maximum": None, "above": None, "below": None, "choices": ()}


def parse_penalty(name: str, value: Any) -> str:
    """Returns the name of a penalty, or the names of several with commas between them.

    Args:
      name: The name of the setting, for messages.
      value: The text.

    Raises:
      UserError: If it is not text, a name is unknown, or the penalties cannot be combined.
    """
    check_value(name, value, str, {**_LIMITS, "minimum": None})
    names = [part.strip() for part in value.split(",")]
    flag = f"--{name}={printable(shorten(value))}"
    for each in names:
        if each not in PENALTIES:
            unknown = "is unknown"
            if len(names) > 1:
                unknown = f"contains {printable(shorten(repr(each)))}, which is unknown"
            raise UserError(f"{flag} {unknown}", f"use one of {', '.join(PENALTIES)}")
        if len(names) > 1 and each in WITHOUT_GRADIENT:
            raise UserError(f"{flag} cannot be combined", f"omit {each}")
        if names.count(each) > 1:
            raise UserError(f"{flag} contains {each} twice", "give each penalty once")
    return ",".join(names)


def parse_weight(name: str, value: Any) -> float | str:
    """Returns the weight of a penalty, or those of several as text such as "5.0,0.5".

    Args:
      name: The name of the setting, for messages.
      value: A number, or a text of numbers with commas between them.

    Raises:
      UserError: If a part is not a finite number >= 0.
    """
    parts = value.split(",") if isinstance(value, str) else [value]
    numbers = []
    for part in parts:
        number = part
        if isinstance(part, str):
            try:
                number = float(part)
            except ValueError:
                number = part  # which the check names
        check_value(name, number, float, _LIMITS)
        numbers.append(float(number))
    return numbers[0] if len(numbers) == 1 else ",".join(map(str, numbers))


def weights_of(weight: float | str) -> float | tuple[float, ...]:
    """Returns a valid weight as a number, or those of several penalties as numbers."""
    return weight if isinstance(weight, float) else tuple(map(float, weight.split(",")))


def check_count(penalty: str, weight: float | str) -> None:
    """Raises UserError if there are several weights, but not one for each penalty."""
    count, weights = penalty.count(",") + 1, str(weight).count(",") + 1
    if weights not in (1, count):
        raise UserError(
            f"--penalty_weight={weight} has {weights} numbers, but --penalty={penalty} has {count}",
            "give one number for each penalty, or one for all",
        )


def target_of(penalty: str, target: float) -> float:
    """Returns the gradient norm to which a penalty pulls the critic; 0 if it has none.

    Of several penalties, the first counts, because it determines the logged norm.
    """
    return target if penalty.split(",", maxsplit=1)[0] in PENALTIES_WITH_TARGET else 0.0
