"""The comparison of a configuration with that of a saved run."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, Any

from ..errors import shorten
from .settings import Section, as_text, settings_with

if TYPE_CHECKING:
    from .config import Config


def differences(config: Config, saved: dict[str, Any]) -> list[str]:
    """Returns the differences from a saved configuration that prevent a resume.

    Settings declared with `resume` may differ. train_steps and schedule_steps may differ if
    the schedules are constant or have the same length.

    Args:
      config: The configuration to resume with.
      saved: The content of a config.json, whose values are valid; see `Config.from_dict`.

    Returns:
      Texts such as `--flag: old -> new`; empty if the run can be resumed.
    """
    return [
        f"{shorten(name)}: unknown, from a newer version or damaged"
        for name in _unknown(config, saved)
    ] + [
        f"--{name}: {shorten(as_text(old))} -> {shorten(as_text(getattr(config, name)))}"
        for name, old in _fixed_differences(config, saved).items()
    ]


def resume_remedy(config: Config, saved: dict[str, Any]) -> str:
    """Returns how to continue a saved run of another configuration, for an error's remedy."""
    if _unknown(config, saved):
        return "continue it with the version that wrote it"
    settings = _fixed_differences(config, saved)
    given = [f"--{name}={as_text(old)}" for name, old in settings.items() if old is not None]
    omitted = [f"--{name}" for name, old in settings.items() if old is None]
    parts = (("give", shlex.join(given)), ("omit", " ".join(omitted)))
    return " and ".join(f"{verb} {what}" for verb, what in parts if what) + " to continue it"


def settings_of_run(kind: type[Section], saved: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings of a config.json that describe its run; see `settings.setting`.

    Args:
      kind: The class of the configuration.
      saved: The content of a config.json, whose values are valid; see `Config.from_dict`.
    """
    permitted = settings_with("of_run", kind)
    return {
        name: value
        for name, value in saved.items()
        if (values := permitted.get(name, ())) is True or value in values
    }


def _unknown(config: Config, saved: dict[str, Any]) -> list[str]:
    """Returns the keys of a saved configuration that this version does not have."""
    return sorted(saved.keys() - {field.name for field in dataclasses.fields(config)})


def _fixed_differences(config: Config, saved: dict[str, Any]) -> dict[str, Any]:
    """Returns the saved values that differ and that a resumed run may not change."""
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    old_schedule = _schedule_length(defaults | saved)
    same_schedule = old_schedule == _schedule_length(dataclasses.asdict(config))
    found = {}
    for field in dataclasses.fields(config):
        old = saved.get(field.name, field.default)
        changeable = field.metadata["resume"] or (
            field.name in ("train_steps", "schedule_steps") and same_schedule
        )
        if _is_same_code(config, saved, field.name):
            continue
        if old != getattr(config, field.name) and not changeable:
            found[field.name] = old
    return found


def _schedule_length(settings: dict[str, Any]) -> int | None:
    """Returns the number of iterations that the schedules depend on; None if they are constant."""
    constant = (
        settings["learning_rate_schedule"] == "constant"
        and settings["beta_2_end"] is None
        and settings["penalty_weight_end"] == 1.0
    )
    if constant:
        return None
    return settings["schedule_steps"] or settings["train_steps"]


def _is_same_code(config: Config, saved: dict[str, Any], name: str) -> bool:
    """Returns True if a setting names the same object of the same file as before, at any path."""
    before = saved.get(f"{name}_sha256")
    if before is None or before != getattr(config, f"{name}_sha256", None):
        return False
    old, new = (str(each).partition(":")[2] for each in (saved.get(name), getattr(config, name)))
    return old == new
