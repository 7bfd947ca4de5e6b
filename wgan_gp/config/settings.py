"""The declaration of settings, the checks of their values, and the base class of the sections.

The same checks apply to a flag, to config.json and to a Config made in Python.
"""

from __future__ import annotations

import dataclasses
import math
import os
import struct
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ..errors import UserError, printable, shorten

PYTHON = "python"  # the value of a setting for an object that was passed to wgan_gp.train
SAVED_RUN_MODES = ("evaluate", "sample", "export")
LARGEST = 2**31 - 1  # of a whole number that has no tighter bound
TYPES: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
}
_FLOAT32_MAX = 3.4028234e38
_FLOAT32_TINY = 1.1754944e-38  # most devices flush smaller numbers to 0
# Annotations are strings in modules that import annotations from __future__.
_BY_NAME = {kind.__name__: kind for kind in TYPES}


@dataclasses.dataclass(frozen=True)
class Kind:
    """The treatment of the settings of a kind.

    Attributes:
      resume: Whether a resumed run may have another value.
      of_run: Whether a saved run decides the value in the modes that use it; a tuple permits only
        these values. All others are taken from the command line alone, because config.json may
        come from another person: it must not decide which files or code are read, where a mode
        writes, or what it connects to.
      per_process: Whether processes that train together may have different values. All others
        determine what is computed, and when the processes wait for each other.
      needed_by: The modes that use a saved run and need a setting that names code or a path. They
        use its value in config.json only if the command line names it, too.
    """

    resume: bool
    of_run: bool | tuple[str, ...]
    per_process: bool
    needed_by: tuple[str, ...] = ()


KINDS = {
    # The examples, with which samples are compared.
    "data": Kind(resume=False, of_run=True, per_process=False, needed_by=("evaluate",)),
    # The functions that the networks compute.
    "networks": Kind(resume=False, of_run=True, per_process=False, needed_by=SAVED_RUN_MODES),
    # Anything else that the trained weights depend on.
    "training": Kind(resume=False, of_run=True, per_process=False),
    # Where something is computed, read or shown.
    "place": Kind(resume=True, of_run=False, per_process=True),
    # When or what a run or a mode writes.
    "output": Kind(resume=True, of_run=False, per_process=False),
}


def setting(
    default: Any,
    help: str,
    *,
    kind: str,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Collection[Any] = (),
    parse: Callable[[str, Any], Any] | None = None,
    applies: Mapping[str, Any] | None = None,
    requires: Mapping[str, Any] | None = None,
    path: bool = False,
    user_code: bool = False,
    compared: bool = False,
    common: bool = False,
    **exceptions: Any,
) -> Any:
    """Declares a setting as a field of a dataclass.

    Args:
      default: The default value. None also declares that the setting may be None.
      help: The text that --help prints.
      kind: A key of KINDS, which decides how the setting is treated.
      minimum, maximum: The inclusive limits of the value. The maximum of an integer defaults to
        LARGEST. It is lower where larger values would only overflow or fill the memory.
      above, below: The exclusive limits of the value.
      choices: The permitted values, or their descriptions by value. Empty permits all values.
      parse: Takes the name of the setting and a value, checks the value and returns it in the form
        that a configuration has. It replaces the other checks of the value.
      applies: The values of other settings with which this one has an effect; see `unmet`. A run
        warns of other values than the default, because one flagfile may serve several runs.
      requires: Likewise, but other values than the default are an error.
      path: Whether the value is a path, in which a leading ~ means the home directory. The content
        of a path decides, so its value is treated as a "place", whatever it is needed for.
      user_code: Whether the value may name code of the user. config.json then has the hash of its
        file as the setting NAME_sha256.
      compared: Whether TensorBoard's HParams compares runs in the setting.
      common: Whether --help shows the setting.
      exceptions: Attributes of `Kind` in which the setting differs from its kind.
    """
    treatment = KINDS[kind]
    if path:
        treatment = dataclasses.replace(KINDS["place"], needed_by=treatment.needed_by)
    treatment = dataclasses.replace(treatment, **exceptions)
    metadata = {
        "help": help,
        "kind": kind,
        "minimum": minimum,
        "maximum": maximum,
        "above": above,
        "below": below,
        "choices": choices,
        "parse": parse,
        "applies": applies or {},
        "requires": requires or {},
        "path": path,
        "user_code": user_code,
        "compared": compared,
        "common": common,
    }
    return dataclasses.field(default=default, metadata=metadata | dataclasses.asdict(treatment))


def recorded() -> Any:
    """Declares a value that config.json records but that is not a flag: an optional text."""
    return setting(None, "", kind="output", of_run=True)


def unmet(
    declared: str, settings: Section, also: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, Any, str, Any, Any]]:
    """Yields the settings without an effect: those that another setting switches off.

    A condition is the values that the other setting may have, of which a text with commas may
    contain one; or True for any value but None, False and 0; or False for none but these.

    Args:
      declared: "applies" or "requires"; see `setting`.
      settings: A configuration.
      also: Values of other names that conditions may contain, and replacements of settings.

    Yields:
      The name and the value of the setting, the name and the value of the other one, and the
      condition.
    """
    values = {**vars(settings), **(also or {})}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if not value or value == field.default:
            continue
        for other, condition in field.metadata[declared].items():
            if other not in values:
                continue
            found = values[other]
            if isinstance(condition, bool):
                is_met = bool(found) == condition
            else:
                parts = found.split(",") if isinstance(found, str) else [found]
                is_met = not set(parts).isdisjoint(condition)
            if not is_met:
                yield field.name, value, other, found, condition


def check_requirements(settings: Section, also: Mapping[str, Any] | None = None) -> None:
    """Raises UserError if a setting requires other values of other settings; see `unmet`."""
    for name, value, other, found, condition in unmet("requires", settings, also):
        flag = f"--{name}={printable(shorten(as_text(value)))}"
        if condition is True:
            raise UserError(f"{flag} needs --{other}", f"add --{other}, or omit it")
        if condition is False:
            raise UserError(f"{flag} and --{other}={found} exclude each other", "omit one of them")
        if not hasattr(settings, other):  # a property of the data
            raise UserError(f"{flag} does not apply to {found}", "omit it")
        usable = " or ".join(each for each in condition if each != PYTHON)
        raise UserError(
            f"{flag} does not apply to --{other}={found}", f"use --{other}={usable}, or omit it"
        )


def has_flag(field: dataclasses.Field) -> bool:
    """Returns True if a field is a setting of the command line, and not only recorded."""
    return bool(field.metadata["help"])


def settings_with(declared: str, kind: type[Section] | Section) -> dict[str, Any]:
    """Returns the settings of a section for which an argument of `setting` is true.

    Args:
      declared: The name of the argument.
      kind: The section, or its class.

    Returns:
      The value of the argument by the name of the setting.
    """
    return {
        field.name: field.metadata[declared]
        for field in dataclasses.fields(kind)
        if field.metadata[declared]
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """The base class of all sections; checks each value against its declaration.

    Raises:
      UserError: If a value has the wrong type or is out of range.
    """

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = check(field, getattr(self, field.name))
            object.__setattr__(self, field.name, value)  # the dataclass is frozen


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seeded(Section):
    """The seed, which several sections share."""

    seed: int = setting(
        0,
        "Seed of the initial weights, the noise and the order of the data. A seed gives the same "
        "run on any number of replicas.",
        kind="training",
        minimum=0,
        compared=True,
        common=True,
    )


def check(field: dataclasses.Field, value: Any) -> Any:
    """Returns a value in the form that a configuration has.

    Raises:
      UserError: If the value is invalid for the setting.
    """
    optional = field.default is None
    if value is None and optional:
        return value
    parse = field.metadata["parse"]
    if parse is not None:
        return parse(field.name, value)
    check_value(field.name, value, value_type(field), field.metadata)
    return value


def value_type(field: dataclasses.Field) -> type:
    """Returns bool, int, float or str: the type of a setting, whether or not it may be None.

    It is str for a setting that may also be text.
    """
    return _BY_NAME[str(field.type).removesuffix(" | None").rpartition(" | ")[2]]


def as_text(value: Any) -> str:
    """Returns the value of a setting as messages and the command line spell it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def check_value(name: str, value: Any, kind: type, limits: Mapping[str, Any]) -> None:
    """Raises UserError unless a value is valid for a setting.

    Args:
      name: The name of the setting.
      value: The value.
      kind: bool, int, float or str.
      limits: `choices`, `minimum`, `maximum`, `above` and `below`, as declared by `setting`.
    """
    if not _is_a(kind, value):
        raise UserError(
            f"--{name}={shorten(repr(value))} is not {TYPES[kind]}", f"give {TYPES[kind]}"
        )
    flag = f"--{name}={printable(shorten(str(value)))}"
    if limits["choices"] and value not in limits["choices"]:
        raise UserError(f"{flag} is unknown", f"use one of {', '.join(words(limits))}")
    if kind is str:
        _check_text(flag, value)
    elif kind is int:
        _check_range(flag, value, {**limits, "maximum": largest(limits)})
    elif kind is float:
        _check_range(flag, _as_float32(flag, value, limits), limits)


def words(limits: Mapping[str, Any]) -> list[str]:
    """Returns the choices of a setting that can be written on the command line."""
    return [str(choice) for choice in limits["choices"] if choice != PYTHON]


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
