"""The declaration of settings, and the base class of the sections of a configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from . import validation

# Annotations are strings in modules that import annotations from __future__.
_TYPES = {kind.__name__: kind for kind in (bool, int, float, str)}


def setting(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[Any, ...] = (),
    changeable_on_resume: bool = False,
    path: bool = False,
    per_process: bool = False,
    stays_none: bool = False,
    of_run: bool | tuple[str, ...] = False,
    parse: Callable[[str, Any], Any] | None = None,
) -> Any:
    """Declares a setting as a field of a dataclass.

    Args:
      default: The default value. None also declares that the setting may be None.
      help: The text that --help prints.
      minimum, maximum: The inclusive limits of the value. The maximum of an integer defaults to
        validation.LARGEST. It is lower where larger values would only overflow or fill the memory.
      above, below: The exclusive limits of the value.
      choices: The permitted values. Empty permits all values.
      changeable_on_resume: Whether a resumed run may have another value, because the result of
        training does not depend on it.
      path: Whether the value is a path, in which a leading ~ means the home directory.
      per_process: Whether processes that train together may have different values. All other
        settings must be equal, because they determine what is computed and when the processes wait
        for each other.
      stays_none: Whether a default of None is a value of its own, which no other value replaces
        before config.json is written. A run from before the setting was added then had None.
      of_run: Whether the setting describes a saved run, so that the modes that use one take it from
        its config.json; a tuple permits only these values. All other settings are taken from the
        command line alone, because config.json may come from another person: it must not decide
        which files or code are read, where a mode writes, or what it connects to.
      parse: Takes the name of the setting and a value, checks the value and returns it in the form
        that a configuration has. It replaces the other checks of the value.
    """
    metadata = {
        "help": help,
        "minimum": minimum,
        "maximum": maximum,
        "above": above,
        "below": below,
        "choices": choices,
        "changeable_on_resume": changeable_on_resume,
        "path": path,
        "per_process": per_process,
        "stays_none": stays_none,
        "of_run": of_run,
        "parse": parse,
    }
    return dataclasses.field(default=default, metadata=metadata)


def recorded() -> Any:
    """Declares a value that config.json records but that is not a flag: an optional text."""
    return setting(None, "", changeable_on_resume=True, of_run=True)


def has_flag(field: dataclasses.Field) -> bool:
    """Returns True if a field is a setting of the command line, and not only recorded."""
    return bool(field.metadata["help"])


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
        minimum=0,
        of_run=True,
    )


def check(field: dataclasses.Field, value: Any) -> Any:
    """Returns a value in the form that a configuration has.

    Raises:
      UserError: If the value is invalid for the setting.
    """
    optional = field.default is None
    parse = field.metadata["parse"]
    if parse is not None and not (value is None and optional):
        return parse(field.name, value)
    validation.check(field.name, value, value_type(field), field.metadata, optional=optional)
    return value


def value_type(field: dataclasses.Field) -> type:
    """Returns bool, int, float or str: the type of a setting, whether or not it may be None.

    It is str for a setting that may also be text.
    """
    return _TYPES[str(field.type).removesuffix(" | None").rpartition(" | ")[2]]


def as_text(value: Any) -> str:
    """Returns the value of a setting as messages and the command line spell it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
