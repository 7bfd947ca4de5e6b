"""Checks the value of one setting: its type, its range and its characters.

The same checks apply to a flag, to config.json and to a Config made in Python.
"""

from __future__ import annotations

import math
import os
import struct
import unicodedata
from collections.abc import Mapping
from typing import Any

from ..errors import UserError, printable, shorten

LARGEST = 2**31 - 1  # of a whole number that has no tighter bound
KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
}
_FLOAT32_MAX = 3.4028234e38
_FLOAT32_TINY = 1.1754944e-38  # most devices flush smaller numbers to 0


def check(
    name: str, value: Any, kind: type, limits: Mapping[str, Any], *, optional: bool = False
) -> None:
    """Raises UserError unless a value is valid for a setting.

    Args:
      name: of the setting.
      value: to be checked.
      kind: bool, int, float or str.
      limits: `choices`, `minimum`, `maximum`, `above` and `below`, each of them or none.
      optional: whether None is a value.
    """
    if value is None and optional:
        return
    if not _is_a(kind, value):
        raise UserError(
            f"--{name}={shorten(repr(value))} is not {KINDS[kind]}", f"give {KINDS[kind]}"
        )
    flag = f"--{name}={printable(shorten(str(value)))}"
    if limits["choices"] and value not in limits["choices"]:
        raise UserError(
            f"{flag} is unknown", f"use one of {', '.join(map(str, limits['choices']))}"
        )
    if kind is str:
        _check_text(flag, value)
    elif kind is int:
        _check_range(flag, value, {**limits, "maximum": largest(limits)})
    elif kind is float:
        _check_range(flag, _as_float32(flag, value, limits), limits)


def largest(limits: Mapping[str, Any]) -> int:
    """Returns the maximum of an integer setting."""
    return LARGEST if limits["maximum"] is None else limits["maximum"]


def expand_home(name: str, path: str) -> str:
    """Returns a path with a leading ~ or ~user replaced by the home directory.

    Shells expand `--flag ~/x`, but not `--flag=~/x`.

    Raises:
      UserError: If there is no such home directory.
    """
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise UserError(
            f"--{name}={shorten(path)} begins with ~, but there is no such home directory",
            "write the path in full, or ./~... for a name that begins with ~",
        )
    return expanded


def _is_a(kind: type, value: Any) -> bool:
    if isinstance(value, bool):  # an int to Python
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _check_text(flag: str, text: str) -> None:
    if not text.strip():
        raise UserError(f"{flag} is empty", "give a value, or omit the flag")
    categories = {unicodedata.category(character) for character in text}
    if "Cs" in categories:  # Python decodes invalid UTF-8 on the command line as surrogates
        raise UserError(f"{flag} is not valid UTF-8", "give text in UTF-8")
    if "Cc" in categories:
        raise UserError(
            f"{flag} contains a control character",
            "remove line breaks, tabs and other control characters",
        )


def _as_float32(flag: str, value: float, limits: Mapping[str, Any]) -> float:
    """Returns a value in float32, in which devices compute.

    Raises:
      UserError: If it is infinite, NaN or too small in float32.
    """
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", float(value)))
    except OverflowError:
        remedy = f"give at most {_FLOAT32_MAX}"
        raise UserError(f"{flag} is too large for float32", remedy) from None
    if not math.isfinite(single):
        raise UserError(f"{flag} is not a finite number", "give a finite one")
    if value and abs(single) < _FLOAT32_TINY:
        or_zero = "0, or " if limits["above"] is None else ""
        raise UserError(
            f"{flag} is too small for float32", f"give {or_zero}{_FLOAT32_TINY} or more"
        )
    return single


def _check_range(flag: str, value: float, limits: Mapping[str, Any]) -> None:
    if limits["minimum"] is not None and value < limits["minimum"]:
        raise UserError(f"{flag} is too small", f"give at least {limits['minimum']}")
    if limits["above"] is not None and value <= limits["above"]:
        raise UserError(f"{flag} is too small", f"give more than {limits['above']}")
    if limits["maximum"] is not None and value > limits["maximum"]:
        raise UserError(f"{flag} is too large", f"give at most {limits['maximum']}")
    if limits["below"] is not None and value >= limits["below"]:
        raise UserError(f"{flag} is too large", f"give less than {limits['below']}")
