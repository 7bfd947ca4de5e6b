"""Checks of JSON content: the types, the ranges and the names that a file may contain.

A file of a run directory may be damaged or come from another person, so whatever is read from it is
described by these checks first. config.json is described by the declarations of the settings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]

_LARGEST_TEXT = 2**26  # characters; the encoded matrix of a whitening has 11 million


def integer(minimum: int = 0, maximum: int = 2**31 - 1) -> Check:
    """Returns a check for integers of a range, limits included."""
    return lambda value: type(value) is int and minimum <= value <= maximum


def number(*, above: float | None = None) -> Check:
    """Returns a check for finite numbers, above a limit if there is one."""

    def check(value: Any) -> bool:
        if type(value) not in (int, float):
            return False
        try:
            return math.isfinite(float(value)) and (above is None or value > above)
        except OverflowError:  # an integer of hundreds of digits
            return False

    return check


def boolean(value: Any) -> bool:
    """Returns True for true and false."""
    return isinstance(value, bool)


def text(value: Any) -> bool:
    """Returns True for text that can be encoded in UTF-8."""
    if not isinstance(value, str) or len(value) > _LARGEST_TEXT:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can spell half of a surrogate pair
        return False
    return True


def identifier(value: Any) -> bool:
    """Returns True for the identifier of a run at a tracker, which is no path and no address."""
    return isinstance(value, str) and re.fullmatch(r"[\w-]{1,128}", value, re.ASCII) is not None


def one_of(*values: str) -> Check:
    """Returns a check for some texts."""
    return lambda value: isinstance(value, str) and value in values


def optional(check: Check) -> Check:
    """Returns a check that also accepts null and a missing entry."""
    return lambda value: value is None or check(value)


def list_of(check: Check, shortest: int = 0, longest: int | None = None) -> Check:
    """Returns a check for lists of a length, all of whose entries pass a check."""

    def check_list(value: Any) -> bool:
        return (
            isinstance(value, list)
            and len(value) >= shortest
            and (longest is None or len(value) <= longest)
            and all(map(check, value))
        )

    return check_list


def mapping_of(check: Check) -> Check:
    """Returns a check for objects of any names, all of whose values pass a check."""
    return lambda value: (
        isinstance(value, dict) and all(map(text, value)) and all(map(check, value.values()))
    )


def object_of(entries: Mapping[str, Check]) -> Check:
    """Returns a check for objects by the names of their entries; other entries are not used."""
    return lambda value: (
        isinstance(value, dict) and all(check(value.get(name)) for name, check in entries.items())
    )
