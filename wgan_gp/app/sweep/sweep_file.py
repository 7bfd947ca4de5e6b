"""The file of --sweep, read and checked before TensorFlow is imported."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...config import Config, as_text, has_flag
from ...config.settings import check, expand_home
from ...errors import UserError, naming, reason, shorten

# The figures of an evaluation whose best value is known; others need a "goal".
MINIMIZED = (
    "fid",
    "kid",
    "wasserstein",
    "feature_wasserstein",
    "feature_wasserstein_largest",
    "kolmogorov_smirnov",
    "kolmogorov_smirnov_largest",
    "correlation_error",
    "spectrum_error",
    "autocorrelation_error",
)
MAXIMIZED = (
    "precision",
    "recall",
    "coverage",
    "inception_score",
    "confidence",
    "class_accuracy",
    "smallest_class",
    "modes_covered",
    "high_quality_share",
    "synthetic_trained_accuracy",
    "synthetic_trained_r2",
)

KEYS = ("flags", "settings", "seeds", "rank_by", "goal", "rungs", "keep")
_OWN = ("mode", "model_dir", "stop_step", "sweep", "sweep_parallel")  # the sweep sets these
_OF_DATA = ("dataset", "split", "image_size", "image_channels", "num_classes", "scaling", "invalid")
# Training depends on these, although the run may be resumed with other values.
INITIAL_WEIGHTS = ("restore", "restore_from")
FIELDS = {field.name: field for field in dataclasses.fields(Config) if has_flag(field)}
_MAX_TRIALS = 1000


def load(path: str) -> dict[str, Any]:
    """Returns the content of the file.

    Raises:
      UserError: If it cannot be read or is not an object with the known keys.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"{shown(name)} appears twice", "give it once")
        return dict(pairs)

    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file, object_pairs_hook=unique)
    except OSError as error:
        raise UserError(f"it cannot be read ({error.strerror})", "give a JSON file") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"it is not JSON ({shorten(reason(error))})", "correct it") from None
    if not isinstance(content, dict):
        raise UserError("it is not a JSON object", f"give an object with {_list(KEYS)}")
    for name in content:
        if name not in KEYS:
            raise UserError(f"{shown(name)} is unknown", f"use {_list(KEYS)}")
    return content


def fixed_flags(content: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of all trials: "flags" of the file, and the command line before it."""
    flags = content.get("flags", {})
    if not isinstance(flags, dict):
        raise UserError('"flags" is not an object', 'give names and values, as {"batch_size": 32}')
    for name, value in flags.items():
        _check_name(name, "flags")
        if isinstance(value, list | dict):
            raise UserError(f'"flags" has several values of {name}', 'move them to "settings"')
        _checked(name, value, "flags")
    if "stop_step" in given:
        raise UserError(
            f"--stop_step={given['stop_step']} is set by the sweep itself",
            'omit it, or give --train_steps or "rungs"',
        )
    own = {name: value for name, value in given.items() if name not in _OWN}
    fixed = {name: _as_given(name, value) for name, value in flags.items()} | own
    if "seeds" in content and "seed" in fixed:
        raise UserError('--seed and "seeds" contradict each other', "omit one of them")
    return fixed


def _check_name(name: str, key: str) -> None:
    if name not in FIELDS:
        raise UserError(
            f'"{key}" contains {shown(name)}, which is not a flag', "train.py --help lists them"
        )
    if name in _OWN:
        raise UserError(f'"{key}" contains {name}, which the sweep itself sets', "omit it")
    if name == "seed":
        raise UserError(f'"{key}" contains seed', 'give "seeds": [0, 1]')


def settings(content: Mapping[str, Any], fixed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the settings that are compared, each with its values by name.

    Args:
      content: The content of the file.
      fixed: The settings of all trials; see `fixed_flags`.

    Raises:
      UserError: If a setting cannot be varied or appears twice, or there are too many.
    """
    found: Any = content.get("settings")
    if isinstance(found, dict):
        for name, values in found.items():
            if not isinstance(values, list) or not values:
                raise UserError(
                    f'"settings" has no list of values of {shorten(name)}',
                    'give a list, or move a single value to "flags"',
                )
        check_count(math.prod(len(values) for values in found.values()))
        grid = itertools.product(*found.values())
        found = [dict(zip(found, values, strict=True)) for values in grid]
    valid = isinstance(found, list) and all(isinstance(each, dict) for each in found)
    if not valid or not any(found):
        raise UserError(
            '"settings" is missing or is not a grid of values',
            'give {"penalty_weight": [1, 10]}, or a list such as [{"penalty_weight": 1}]',
        )
    for name in dict.fromkeys(itertools.chain(*found)):
        _check_varied(name, fixed)
    check_count(len(found))
    compared, checked = [], list[dict[str, Any]]()
    for each in found:
        values = {name: _as_given(name, value) for name, value in each.items()}
        now = {name: _checked(name, value, "settings") for name, value in values.items()}
        if now in checked:
            raise UserError(f'"settings" contains {name_of(values)} twice', "give it once")
        compared.append(values)
        checked.append(now)
    return compared


def check_count(trials: int) -> None:
    """Raises UserError if a sweep has too many trials."""
    if trials > _MAX_TRIALS:
        raise UserError(f"it has more than {_MAX_TRIALS} trials", "give fewer settings or seeds")


def _check_varied(name: str, fixed: Mapping[str, Any]) -> None:
    """Raises UserError unless a sweep can compare runs with different values of a setting."""
    _check_name(name, "settings")
    if name in _OF_DATA:
        raise UserError(
            f'"settings" contains {name}, which changes the data that samples are compared with',
            'move it to "flags"',
        )
    if FIELDS[name].metadata["changeable_on_resume"] and name not in INITIAL_WEIGHTS:
        raise UserError(
            f'"settings" contains {name}, on which the result of training does not depend',
            'move it to "flags"',
        )
    if name in fixed:
        raise UserError(
            f'--{name}={as_text(fixed[name])} is fixed, but "settings" varies it', "omit it"
        )


def _checked(name: str, value: Any, key: str) -> Any:
    """Returns a value as a configuration has it, such as 1.0 for "1"; `key` is for messages."""
    with naming(f'"{key}"'):
        return check(FIELDS[name], value)


def _as_given(name: str, value: Any) -> Any:
    is_path = FIELDS[name].metadata["path"] and isinstance(value, str)
    return expand_home(name, value) if is_path else value


def seeds(content: Mapping[str, Any], fixed: Mapping[str, Any]) -> list[int]:
    """Returns the seeds, by default that of the command line."""
    found = content.get("seeds", [fixed.get("seed", 0)])
    valid = isinstance(found, list) and all(type(each) is int for each in found)
    if not valid or not found or len(set(found)) < len(found):
        raise UserError(f'"seeds" is {shown(found)}', "give a list of different whole numbers")
    return found


def share_kept(content: Mapping[str, Any]) -> float:
    """Returns the share of the settings that goes on after a rung."""
    share = content.get("keep", 0.5)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise UserError(f'"keep" is {shown(share)}', "give a number above 0 and below 1")
    return share


def figure(content: Mapping[str, Any]) -> tuple[str, bool]:
    """Returns the figure that ranks the settings, and whether a larger one is better."""
    name, goal = content.get("rank_by"), content.get("goal")
    if not isinstance(name, str) or not re.fullmatch(r"\w+", name, re.ASCII):
        raise UserError(
            '"rank_by" is missing or is not the name of a figure',
            f"give a figure of --mode=evaluate: {_list(MINIMIZED + MAXIMIZED)}",
        )
    if goal not in (None, "minimize", "maximize"):
        raise UserError(f'"goal" is {shown(goal)}', "use minimize or maximize")
    if goal is None and name not in MINIMIZED + MAXIMIZED:
        raise UserError(
            f'the best value of "rank_by": {shown(name)} is not known',
            'add "goal": "minimize" or "maximize", or use another figure, such as fid',
        )
    return name, goal == "maximize" or (goal is None and name in MAXIMIZED)


def name_of(values: Mapping[str, Any]) -> str:
    """Returns the name of a setting, such as "penalty_weight=10,n_critic=5"."""
    texts = {name: "default" if each is None else as_text(each) for name, each in values.items()}
    return ",".join(f"{name}={text}" for name, text in texts.items()) or "defaults"


def shown(value: Any) -> str:
    """Returns a value as the file spells it, for messages."""
    return shorten(json.dumps(value))


def _list(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
