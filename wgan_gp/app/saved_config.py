"""config.json of a run: how training continues the run, and how the other modes use it.

A run directory may come from another person. Its config.json therefore decides neither which files
and code are read nor where a mode writes; see `of_run` in `config.settings.Kind`.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping
from typing import Any

from absl import logging

from ..config import CODE_SETTINGS, PYTHON, Config, as_text
from ..data.datasets import DATASETS
from ..errors import UserError, naming, shorten
from ..run_directory.directory import RunDirectory
from ..run_directory.json_files import REMEDY, read_dataclass, read_object
from ..run_directory.typed_json import load_dataclass
from .library import Registry
from .user_code import loading

_FIELDS = {field.name: field for field in dataclasses.fields(Config)}
_OPTIONAL = "test_data_dir"  # an evaluation without it has fewer or other metrics
# The names of tensorflow-datasets, without a namespace, which may name a server.
_PREPARED_NAME = re.compile(r"[A-Za-z]\w*(/\w[\w.+-]*)?(:[\d.*]+)?", re.ASCII)


def read_config(directory: RunDirectory) -> Config | None:
    """Returns the configuration with which a run was last started; None without config.json.

    Raises:
      UserError: If the file is not a valid configuration.
    """
    return read_dataclass(Config, directory.config)


def find_config(directory: RunDirectory) -> Config:
    """Returns the configuration of a run.

    Raises:
      UserError: If the directory does not contain a run, or the file is damaged.
    """
    with directory.convert_file_errors("read"):
        content = read_object(directory.config)
    if content is None or "train_steps" not in content:  # an export has a config.json, too
        raise UserError(
            f"--model_dir={directory.path} contains no run (config.json is missing or is not the "
            "configuration of a run)",
            "train a run there, or give the directory of a run",
        )
    return load_dataclass(Config, content, directory.config, REMEDY)


def check_resume(directory: RunDirectory, config: Config) -> Config | None:
    """Checks that training can continue the run in a directory, if there is one.

    Returns:
      The configuration with which the run was last started; None without one.

    Raises:
      UserError: If the run has an incompatible configuration, or if its configuration or its
        checkpoints are missing.
    """
    with directory.convert_file_errors("read"):
        saved = read_config(directory)
        if saved is None and directory.has_checkpoints():
            raise UserError(
                f"{directory.config} is missing, but {directory.checkpoints} contains checkpoints",
                "restore the file, or give another --model_dir",
            )
        if saved is not None:
            if changes := config.differences(saved):
                given = [
                    f"--{name}={as_text(old)}" for name, old in changes.items() if old is not None
                ]
                omitted = [f"--{name}" for name, old in changes.items() if old is None]
                parts = (("give", shlex.join(given)), ("omit", " ".join(omitted)))
                way = " and ".join(f"{verb} {what}" for verb, what in parts if what)
                remedy = f"{way} to continue it, or give another --model_dir"
                raise _other_run(directory, config, changes, remedy)
            if saved.checkpoint_interval:
                directory.check_checkpoints(saved.checkpoint_interval + saved.steps_per_loop)
    directory.checked = config
    return saved


def _other_run(
    directory: RunDirectory, config: Config, changes: Mapping[str, Any], remedy: str
) -> UserError:
    """Returns the error of a configuration that differs from that of the run."""
    listed = "; ".join(
        f"--{name}: {shorten(as_text(old))} -> {shorten(as_text(getattr(config, name)))}"
        for name, old in changes.items()
    )
    return UserError(
        f"--model_dir={directory.path} contains a run with a different configuration ({listed})",
        remedy,
    )


def merge(
    directory: RunDirectory, saved: Config, given: Mapping[str, Any], mode: str, models: Registry
) -> Config:
    """Returns the configuration with which a mode uses a run.

    Args:
      directory: The run directory.
      saved: The configuration of the run.
      given: The settings of the command line. They override those of the run.
      mode: The mode.
      models: The networks.

    Raises:
      UserError: If the mode needs code or a path that `given` does not name, or two settings
        contradict each other.
    """
    _require_named(directory, saved, given, mode, models)
    if "model" in given and saved.generator_model == saved.model:
        given = {"generator_model": given["model"], **given}  # the file may have been moved
    # A name that is none of code has no hash. That of a file which is loaded is recorded later,
    # and a file that the mode does not need is taken for that of the run.
    hashes = {
        f"{name}_sha256": None
        for name in CODE_SETTINGS
        if name in given and not loading.is_reference(str(given[name]))
    }
    with naming(directory.config):
        return Config(**{**saved.of_run, "model_dir": directory.path, **hashes, **given})


def check_use(
    directory: RunDirectory, saved: Config, given: Mapping[str, Any], config: Config
) -> None:
    """Raises UserError if the command line contradicts a run.

    Args:
      directory: The run directory.
      saved: The configuration of the run.
      given: The settings of the command line.
      config: The result of `merge`, with the hashes of the user's files.
    """
    decided = {*saved.of_run, *given} - {"seed"}  # here, it is that of the samples
    changes = {n: old for n, old in config.differences(saved).items() if n in decided}
    if changes:
        raise _other_run(directory, config, changes, "omit these flags")


def _require_named(
    directory: RunDirectory, saved: Config, given: Mapping[str, Any], mode: str, models: Registry
) -> None:
    """Raises UserError if settings that a mode needs name code or a path that are not given."""
    missing = {
        name: getattr(saved, name)
        for name in needed_settings(mode)
        if given.get(name) is None and _must_be_named(saved, name, models)
    }
    if path := missing.pop(_OPTIONAL, None):
        flag = shlex.quote(f"--{_OPTIONAL}={path}")
        logging.warning(
            f"--model_dir={directory.path} was trained with {flag}, which is read only if the "
            "command line names it"
        )
    if not missing:
        return
    first, value = next(iter(missing.items()))
    if value == PYTHON and first in CODE_SETTINGS:
        raise UserError(
            f"--model_dir={directory.path} uses an object that was passed to wgan_gp.train as "
            f"{first}",
            "call wgan_gp.train with it again, and use the result",
        )
    if first in CODE_SETTINGS and loading.is_user_code(first, value, models):
        digest = getattr(saved, f"{first}_sha256")
        described = f" (sha256 {digest[:16]})" if digest else ""
        problem = f"uses code from --{first}={value}{described}, which is imported"
    else:
        problem = f"was trained with --{first}={value}, which is used"
    flags = [shlex.quote(f"--{name}={value}") for name, value in missing.items()]
    raise UserError(
        f"--model_dir={directory.path} {problem} only if the command line names it",
        f"add {' '.join(flags)} if you trust {'it' if len(flags) == 1 else 'them'}",
    )


def _must_be_named(saved: Config, name: str, models: Registry) -> bool:
    """Returns True if the value of a setting names code, a path or a server."""
    value = getattr(saved, name)
    if value is None or (name == "generator_model" and value == saved.model):
        return False
    harmless = _FIELDS[name].metadata["of_run"]
    if isinstance(harmless, tuple):
        return value not in harmless
    if name not in CODE_SETTINGS or loading.is_user_code(name, value, models):
        return True  # a path, or code
    return name == "dataset" and not is_dataset_name(value)


def is_dataset_name(value: str) -> bool:
    """Returns True for a value of --dataset that is neither code, a path nor a server."""
    return value in DATASETS or _PREPARED_NAME.fullmatch(value) is not None


def needed_settings(mode: str) -> tuple[str, ...]:
    """Returns the settings that a mode needs and that may name code or a path.

    Args:
      mode: A member of SAVED_RUN_MODES.
    """
    return tuple(
        name
        for name, field in _FIELDS.items()
        if (field.metadata["path"] or field.metadata["user_code"])
        and mode in field.metadata["needed_by"]
    )
