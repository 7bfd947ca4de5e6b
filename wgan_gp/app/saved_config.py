"""The configuration of a saved run: config.json describes the run, the command line decides.

A run directory may come from another person. Its config.json therefore decides neither which files
and code are read nor where a mode writes; see `of_run` in `config.settings.setting`.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping
from typing import Any

from absl import logging

from ..config import EXTRACTORS, Config, settings_of_run
from ..config.code import CODE_SETTINGS, PYTHON
from ..data.datasets import BUILT_IN, FILE_DATASETS
from ..errors import UserError
from .library import Registry
from .user_code import loading

_OPTIONAL = "test_data_dir"  # an evaluation without it has fewer or other figures
# The names of tensorflow-datasets, without a namespace, which may name a server.
_PREPARED_NAME = re.compile(r"[A-Za-z]\w*(/\w[\w.+-]*)?(:[\d.*]+)?", re.ASCII)


def merge(
    path: str,
    saved: Mapping[str, Any],
    given: Mapping[str, Any],
    needed: tuple[str, ...],
    models: Registry,
    origin: str,
) -> Config:
    """Returns the configuration with which a mode uses a saved run.

    Args:
      path: The run directory.
      saved: The content of config.json, whose values are valid.
      given: The settings of the command line. They override those of the run.
      needed: The settings that must be named on the command line if they name code or a path.
      models: The networks of the project.
      origin: The path of config.json, for messages.

    Raises:
      UserError: If `given` lacks such a setting or contradicts the run.
    """
    _require_named(path, saved, given, needed, models)
    if "model" in given and saved.get("generator_model") == saved.get("model"):
        saved_elsewhere = {"generator_model": given["model"]}  # the file may have been moved
        given = {**saved_elsewhere, **given}
    of_run = settings_of_run(Config, dict(saved))
    return Config.from_dict({**of_run, "model_dir": path, **given}, origin=origin)


def check(path: str, config: Config, saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises UserError if the command line contradicts a run, or the run is of a newer version.

    Args:
      path: The run directory.
      config: The result of `merge`, with the hashes of the user's files.
      saved: The content of config.json.
      given: The settings of the command line.
    """
    names = {field.name for field in dataclasses.fields(config)}
    of_run = settings_of_run(Config, dict(saved))
    compared = {
        name: value
        for name, value in saved.items()
        if name in of_run or name in given or name not in names
    }
    if differences := config.differences(compared):
        raise UserError(
            f"--model_dir={path} contains a run with a different configuration "
            f"({'; '.join(differences)})",
            "omit these flags",
        )


def _require_named(
    path: str,
    saved: Mapping[str, Any],
    given: Mapping[str, Any],
    needed: tuple[str, ...],
    models: Registry,
) -> None:
    """Raises UserError if a needed setting names code or a path, and the command line does not."""
    missing = [
        setting
        for setting in needed
        if given.get(setting) is None and _must_be_named(setting, saved, models)
    ]
    if _OPTIONAL in missing:
        missing.remove(_OPTIONAL)
        flag = shlex.quote(f"--{_OPTIONAL}={saved[_OPTIONAL]}")
        logging.warning(
            f"--model_dir={path} was trained with {flag}, which is read only if the command line "
            "names it"
        )
    if not missing:
        return
    first, value = missing[0], saved[missing[0]]
    if value == PYTHON and first in CODE_SETTINGS:
        raise UserError(
            f"--model_dir={path} uses an object that was passed to wgan_gp.train as {first}",
            "call wgan_gp.train with it again, and use the result",
        )
    if first in CODE_SETTINGS and loading.is_user_code(first, value, models):
        digest = saved.get(f"{first}_sha256")
        described = f" (sha256 {digest[:16]})" if isinstance(digest, str) else ""
        problem = f"uses code from --{first}={value}{described}, which is imported"
    else:
        problem = f"was trained with --{first}={value}, which is used"
    flags = [shlex.quote(f"--{setting}={saved[setting]}") for setting in missing]
    raise UserError(
        f"--model_dir={path} {problem} only if the command line names it",
        f"add {' '.join(flags)} if you trust {'it' if len(flags) == 1 else 'them'}",
    )


def _must_be_named(setting: str, saved: Mapping[str, Any], models: Registry) -> bool:
    """Returns True if the value of a setting names code, a path or a server."""
    value = saved.get(setting)
    if value is None or (setting == "generator_model" and value == saved.get("model")):
        return False
    if setting == "feature_extractor":
        return value not in EXTRACTORS
    if setting not in CODE_SETTINGS:
        return True  # a path
    if loading.is_user_code(setting, value, models):
        return True
    is_name = value in (*BUILT_IN, *FILE_DATASETS) or _PREPARED_NAME.fullmatch(value)
    return setting == "dataset" and not is_name
