"""The one reader of what a run keeps: frozen dataclasses from parsed JSON, by their type hints.

A file of a run directory may be damaged or come from another person, so every value is checked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..errors import UserError, shorten

_Loaded = TypeVar("_Loaded")
_LONGEST_TEXT = 2**26  # characters; the encoded matrix of a whitening has 11 million


def load_dataclass(cls: type[_Loaded], value: Any, origin: str, remedy: str) -> _Loaded:
    """Returns the frozen dataclass that `to_json` described.

    Args:
      cls: The class. Its fields are numbers, texts, booleans, arrays of float64, literals, tuples,
        dictionaries by names, other dataclasses, and unions of these. A union of dataclasses is
        told apart by a literal field such as `kind`. Ranges, and rules between fields, are checked
        by `__post_init__`, which raises ValueError or UserError.
      value: The content of a JSON file; fields that it lacks have their defaults.
      origin: The file, for messages.
      remedy: See `UserError`.

    Raises:
      UserError: If the value does not fit the class, has other entries, or breaks a rule.
    """
    try:
        return _load(cls, value, "")
    except (ValueError, UserError) as error:
        what = error.what if isinstance(error, UserError) else error
        raise UserError(f"{origin} is damaged: {what}", remedy) from None


def to_json(value: Any) -> Any:
    """Returns the JSON value that `load_dataclass` reads; fields with init=False are left out."""
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {field.name: to_json(getattr(value, field.name)) for field in fields if field.init}
    if isinstance(value, tuple | list):
        return [to_json(each) for each in value]
    if isinstance(value, dict):
        return {name: to_json(each) for name, each in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def is_text(value: Any) -> bool:
    """Returns True for text of a sensible length that can be encoded in UTF-8."""
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        return False
    with contextlib.suppress(UnicodeEncodeError):  # JSON can spell half of a surrogate pair
        return bool(value.encode()) or not value
    return False


def _load(hint: Any, value: Any, place: str) -> Any:
    """Returns a value of a type; `place` is its place in the file, such as "spec.classes"."""
    if dataclasses.is_dataclass(hint):
        return _load_fields(hint, value, place)
    return _LOADERS.get(typing.get_origin(hint) or hint, _load_scalar)(hint, value, place)


def _load_scalar(hint: Any, value: Any, place: str) -> Any:
    fits, name = _SCALARS[hint]
    if hint is float and type(value) is int and abs(value) < 2**64:
        return float(value)
    if type(value) is not hint or not fits(value):
        raise ValueError(f"{place} is not {name}")
    return value


def _load_literal(hint: Any, value: Any, place: str) -> Any:
    allowed = typing.get_args(hint)
    if not any(type(value) is type(each) and value == each for each in allowed):
        raise ValueError(f"{place} is not one of {', '.join(map(repr, allowed))}")
    return value


def _load_dict(hint: Any, value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(map(is_text, value)):
        raise ValueError(f"{place} is not an object")
    _, of_values = typing.get_args(hint)
    return {
        name: _load(of_values, each, f"{place}[{shorten(name)!r}]") for name, each in value.items()
    }


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    """Returns the types of the fields of a class, which may import some of them only now."""
    return typing.get_type_hints(cls, localns=getattr(cls, "annotated", dict)())


def _load_fields(cls: Any, value: Any, place: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{place or 'the content'} is not an object")
    inside = f"{place}." if place else ""
    fields = [field for field in dataclasses.fields(cls) if field.init]
    if unknown := value.keys() - {field.name for field in fields}:
        raise ValueError(f"{inside}{shorten(min(unknown))} is not known")
    loaded = {}
    for field in fields:
        if field.name in value:
            hint = _hints(cls)[field.name]
            loaded[field.name] = _load(hint, value[field.name], inside + field.name)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{inside}{field.name} is missing")
    try:
        return cls(**loaded)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{place}: {error}" if place else str(error)) from None


def _load_union(hint: Any, value: Any, place: str) -> Any:
    """Returns the first alternative that fits."""
    alternatives = [each for each in typing.get_args(hint) if each is not types.NoneType]
    if value is None and len(alternatives) < len(typing.get_args(hint)):
        return None
    if len(alternatives) == 1:
        return _load(alternatives[0], value, place)
    for alternative in alternatives:
        with contextlib.suppress(ValueError):
            return _load(alternative, value, place)
    raise ValueError(f"{place} has none of the types that it may have")


def _load_tuple(hint: Any, value: Any, place: str) -> tuple[Any, ...]:
    arguments = typing.get_args(hint)
    if not isinstance(value, list):
        raise ValueError(f"{place} is not a list")
    if arguments[-1] is Ellipsis:
        arguments = arguments[:1] * len(value)
    if len(value) != len(arguments):
        raise ValueError(f"{place} has {len(value)} entries in place of {len(arguments)}")
    pairs = enumerate(zip(arguments, value, strict=True))
    return tuple(_load(hint, each, f"{place}[{index}]") for index, (hint, each) in pairs)


def _load_array(hint: Any, value: Any, place: str) -> np.ndarray:
    """Returns nested lists of equal lengths as an array of float64."""
    try:
        array = np.array(value)
    except ValueError:
        array = np.array(None)
    if not isinstance(value, list) or array.dtype.kind not in "if" or not np.isfinite(array).all():
        raise ValueError(f"{place} is not an array of finite numbers")
    return array.astype(np.float64)


_SCALARS: dict[type, tuple[Callable[[Any], bool], str]] = {
    int: (lambda value: -(2**63) <= value < 2**64, "an integer of 64 bits"),
    float: (math.isfinite, "a finite number"),
    str: (is_text, "a text in UTF-8"),
    bool: (lambda value: True, "true or false"),
}
_LOADERS: dict[Any, Callable[[Any, Any, str], Any]] = {
    typing.Union: _load_union,
    types.UnionType: _load_union,
    typing.Literal: _load_literal,
    tuple: _load_tuple,
    dict: _load_dict,
    np.ndarray: _load_array,
}
