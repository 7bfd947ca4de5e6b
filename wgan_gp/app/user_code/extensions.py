"""The user's own networks, dataset and objective, from files, packages or Python objects."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from ...config import CODE_SETTINGS, GROUPS, PYTHON, Config, registered_names
from ...data.datasets import BUILT_IN, FILE_DATASETS
from ...errors import UserError
from . import loading
from .loading import UserCode


@dataclasses.dataclass(frozen=True)
class Extensions:
    """Replacements of the built-in networks, datasets and objectives in a run.

    Attributes:
      networks: By the value of --model and --generator_model: modules or objects with `generator`
        and `critic`, which are networks or functions that return one.
      dataset: A function of a split that returns the data; see `data.user_data`.
      objective: See `Library.objective`.
      sha256: The hashes of the files, by setting; None for code without a file.
    """

    networks: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dataset: Callable[..., Any] | None = None
    objective: Any = None
    sha256: Mapping[str, str | None] = dataclasses.field(default_factory=dict)

    def record(self, config: Config) -> Config:
        """Returns the configuration with the hashes of the files."""
        hashes: dict[str, Any] = {f"{name}_sha256": value for name, value in self.sha256.items()}
        if config.generator_model in (None, config.model):  # the file has both networks
            hashes["generator_model_sha256"] = self.sha256.get("model")
        return dataclasses.replace(config, **hashes)

    def add_to(self, models: Any) -> Any:
        """Returns the package of networks, or an object with the same functions and more networks.

        Args:
          models: The package `models`.
        """
        if not self.networks:
            return models
        from .user_networks import CustomNetworks  # noqa: PLC0415

        entries = {
            name: models.Model(
                CustomNetworks(
                    "wgan_gp.train" if name == PYTHON else f"--model={name}",
                    generator=getattr(module, "generator", None),
                    critic=getattr(module, "critic", None),
                ),
                points=True,
                depth=3,
                labels_in_normalization=False,
            )
            for name, module in self.networks.items()
        }
        return with_networks(models, entries)


def with_networks(models: Any, entries: Mapping[str, Any]) -> Any:
    """Returns an object with the functions of `models` that also knows other networks."""
    registry = {**models.MODELS, **entries}

    def check(*args: Any, **settings: Any) -> Any:
        return models.check(*args, registry=registry, **settings)

    def build(*args: Any, **settings: Any) -> Any:
        return models.build(*args, registry=registry, **settings)

    return types.SimpleNamespace(
        **{**vars(models), "MODELS": registry, "check": check, "build": build}
    )


def load(config: Config, models: Any, settings: tuple[str, ...] = CODE_SETTINGS) -> Extensions:
    """Loads the code that a configuration names; imports nothing if it names none.

    Args:
      config: The configuration.
      models: The package `models`.
      settings: The settings to be considered.

    Raises:
      UserError: If the code cannot be imported or lacks what its flag requires.
    """
    if config.generator_model == config.model:
        settings = tuple(setting for setting in settings if setting != "generator_model")
    codes = {
        setting: code
        for setting in settings
        if (code := _load(setting, getattr(config, setting), models)) is not None
    }
    networks = {}
    for setting in ("model", "generator_model"):
        if setting in codes:
            needed = ("generator", "critic") if setting == "model" else ("generator",)
            if setting == "model" and config.generator_model not in (None, config.model):
                needed = ("critic",)
            for name in needed:
                codes[setting].get(name)
            networks[codes[setting].reference] = codes[setting].module
    return Extensions(
        networks,
        _dataset_function(codes["dataset"]) if "dataset" in codes else None,
        codes["objective"].get() if "objective" in codes else None,
        {setting: code.sha256 for setting, code in codes.items()},
    )


def from_objects(
    config: Config,
    models: Any,
    *,
    generator: Any = None,
    critic: Any = None,
    data: Any = None,
    objective: Any = None,
) -> tuple[Config, Extensions]:
    """Returns the extensions for objects of Python, and the configuration that names them.

    Args:
      config: The configuration. Files that its other settings name are loaded.
      models: The package `models`.
      generator, critic, data, objective: See `wgan_gp.train`.

    Raises:
      UserError: If a critic is given and the configuration names no generator.
    """
    settings: dict[str, Any] = {}
    if critic is not None:
        settings["model"] = PYTHON
        settings["generator_model"] = config.generator_model or config.model
    if generator is not None:
        settings["generator_model"] = PYTHON
    if critic is not None and settings["generator_model"] is None:
        raise UserError("critic= is given without a generator", "pass generator=, or set model")
    if data is not None:
        settings["dataset"] = PYTHON
    if objective is not None:
        settings["objective"] = PYTHON
    config = dataclasses.replace(config, **settings)
    loaded = load(config, models, tuple(set(CODE_SETTINGS) - set(settings)))
    networks = dict(loaded.networks)
    if generator is not None or critic is not None:
        networks[PYTHON] = types.SimpleNamespace(generator=generator, critic=critic)
    return config, dataclasses.replace(
        loaded,
        networks=networks,
        dataset=loaded.dataset if data is None else _as_dataset_function(data, config.split),
        objective=loaded.objective if objective is None else objective,
    )


def _as_dataset_function(data: Any, training_split: str) -> Callable[..., Any]:
    """Returns the function of a split for data that `wgan_gp.train` was given."""
    if callable(data) and not hasattr(data, "__array__"):
        return data

    def dataset(split: str) -> Any:
        return data if split == training_split else None

    return dataset


def is_user_code(setting: str, value: str | None, models: Any) -> bool:
    """Returns True if the value of a setting names code that is not a part of this project.

    Args:
      setting: A member of CODE_SETTINGS.
      value: The value of the setting.
      models: The package `models`.
    """
    if value is None:
        return False
    if setting == "objective" or value == PYTHON:
        return True
    if setting == "dataset":
        if value in (*BUILT_IN, *FILE_DATASETS):
            return False
    elif value in models.MODELS:
        return False
    return loading.is_reference(value) or value in registered_names(setting)


def _load(setting: str, value: str | None, models: Any) -> UserCode | None:
    if value is None or not is_user_code(setting, value, models):
        return None
    if value == PYTHON:
        raise UserError(
            f"--{setting}={PYTHON} stands for an object that is passed to wgan_gp.train",
            "call wgan_gp.train with it, or give a file",
        )
    if setting != "objective" and not loading.is_reference(value):
        return loading.load_entry_point(setting, GROUPS[setting], value)
    return loading.load(setting, value)


def _dataset_function(code: UserCode) -> Callable[..., Any]:
    if code.name is None and callable(code.module):  # an entry point may name the function
        return code.module
    name = code.name or "dataset"
    function = code.get(name)
    if not callable(function):
        raise UserError(
            f"--dataset={code.reference}: {name} is not a function, but {type(function).__name__}",
            f"define the function {name}(split), which returns the data",
        )
    return function


def warn_of_changes(saved: Mapping[str, Any], config: Config) -> None:
    """Warns on stderr about code that has changed since a run was started.

    Args:
      saved: The content of config.json.
      config: The configuration with the current hashes.
    """
    for setting in CODE_SETTINGS:
        before, now = saved.get(f"{setting}_sha256"), getattr(config, f"{setting}_sha256")
        if before and now and before != now:
            logging.warning(
                f"--{setting}={getattr(config, setting)} has changed since the run was started "
                f"(sha256 {before[:16]}, now {now[:16]})"
            )
