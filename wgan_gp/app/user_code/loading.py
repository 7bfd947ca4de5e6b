"""Loads the code of the user (networks, dataset, objective, writers) that the flags name.

It comes from files or modules, or as objects of Python.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import os
import pathlib
import sys
import traceback
import types
import typing
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from absl import logging

from ...config import CODE_SETTINGS, PYTHON, Config
from ...data.datasets import DATASETS
from ...errors import UserError, explaining, shorten, shown, text_of
from ..library import Library, Registry

if typing.TYPE_CHECKING:
    from .user_networks import UserNetworks

_NETWORKS = ("model", "generator_model")
# Frames of the import itself, which say nothing about the code of the user.
_OWN = (__file__, importlib.__file__)


@dataclasses.dataclass(frozen=True)
class UserCode:
    """The networks, the dataset and the objective of the user in a run.

    Attributes:
      networks: The networks by the value of --model and --generator_model.
      dataset: A function of a split that returns the data; see `data.user_data`.
      objective, optimizers: See `Library`.
      sha256: The hashes of the files, by setting; None for code without a file.
    """

    networks: Mapping[str, UserNetworks] = dataclasses.field(default_factory=dict)
    dataset: Callable[..., Any] | None = None
    objective: Any = None
    optimizers: tuple[Any, Any] | None = None
    sha256: Mapping[str, str | None] = dataclasses.field(default_factory=dict)

    def record(self, config: Config) -> Config:
        """Returns the configuration with the hashes of the files."""
        hashes: dict[str, Any] = {f"{name}_sha256": value for name, value in self.sha256.items()}
        if config.generator_model in (None, config.model):  # the file has both networks
            hashes["generator_model_sha256"] = self.sha256.get("model")
        return dataclasses.replace(config, **hashes)

    def add_to(self, library: Library) -> Library:
        """Returns the networks and losses of the project with those of the user."""
        models = library.models.with_networks(self.networks)
        return Library(models, self.objective, self.optimizers)


@dataclasses.dataclass(frozen=True)
class LoadedCode:
    """A loaded module of the user.

    Attributes:
      flag: The flag with its value, such as "--objective=losses.py:MyObjective".
      module: The module.
      name: The name after the colon; None without one.
      sha256: The hash of the file, in hexadecimal; None if the module has no file.
    """

    flag: str
    module: Any
    name: str | None
    sha256: str | None

    def get(self, default: str | None = None) -> Any:
        """Returns the object that the flag names.

        Args:
          default: The name of the object if the flag has no name after a colon.

        Raises:
          UserError: If there is no name, or the module does not define it.
        """
        if (name := self.name or default) is None:
            raise UserError(f"{self.flag} does not name an object", f"give {self.flag}:NAME")
        with explaining(self.flag):  # a module may define __getattr__
            found = getattr(self.module, name, None)
        if found is None:
            raise UserError(
                f"{self.flag} does not define {shorten(name)}",
                "define it there, or correct the name",
            )
        return found


def load(config: Config, models: Registry, settings: tuple[str, ...] = CODE_SETTINGS) -> UserCode:
    """Loads the code that a configuration names; imports nothing if it names none.

    Args:
      config: The configuration.
      models: The networks of the project.
      settings: The settings to be considered.

    Raises:
      UserError: If the code cannot be imported or lacks what its flag requires.
    """
    if config.generator_model == config.model:
        settings = tuple(setting for setting in settings if setting != "generator_model")
    codes = {}
    for setting in settings:
        value = getattr(config, setting)
        if value == PYTHON:
            raise UserError(
                f"--{setting}={PYTHON} stands for an object that is passed to wgan_gp.train",
                "call wgan_gp.train with it, or give a file",
            )
        if is_user_code(setting, value, models):
            codes[setting] = load_code(setting, value)
    dataset = codes["dataset"].get("dataset") if "dataset" in codes else None
    if dataset is not None and not callable(dataset):
        raise UserError(
            f"{codes['dataset'].flag} is {shown(dataset)}", "name a function that returns the data"
        )
    return UserCode(
        {
            getattr(config, setting): _networks(code.flag, code.module)
            for setting, code in codes.items()
            if setting in _NETWORKS
        },
        dataset,
        codes["objective"].get() if "objective" in codes else None,
        sha256={setting: code.sha256 for setting, code in codes.items()},
    )


def from_objects(
    config: Config,
    models: Registry,
    *,
    generator: Any = None,
    critic: Any = None,
    data: Any = None,
    objective: Any = None,
    optimizers: tuple[Any, Any] = (None, None),
) -> tuple[Config, UserCode]:
    """Returns the user code for objects of Python, and the configuration that names it.

    Args:
      config: The configuration. Files that its other settings name are loaded.
      models: The networks of the project.
      generator, critic, data, objective: See `wgan_gp.train`.
      optimizers: The optimizers of the generator and the critic, or None and None.

    Raises:
      UserError: If one optimizer is given for both networks or for one of them.
    """
    given = {"model": critic, "generator_model": generator, "dataset": data, "objective": objective}
    settings: dict[str, Any] = {name: PYTHON for name, value in given.items() if value is not None}
    of_files = tuple(set(CODE_SETTINGS) - set(settings))
    if critic is not None and generator is None:
        settings["generator_model"] = config.generator_model or config.model
    if optimizers != (None, None):
        if None in optimizers or optimizers[0] is optimizers[1]:
            raise UserError(
                "generator_optimizer= and critic_optimizer= are not two optimizers",
                "pass one for each network",
            )
        settings["optimizer"] = PYTHON
    config = dataclasses.replace(config, **settings)
    loaded = load(config, models, of_files)
    networks = dict(loaded.networks)
    if generator is not None or critic is not None:
        module = types.SimpleNamespace(generator=generator, critic=critic)
        networks[PYTHON] = _networks("wgan_gp.train", module)
    return config, dataclasses.replace(
        loaded,
        networks=networks,
        dataset=loaded.dataset if data is None else _as_dataset_function(data, config.split),
        objective=loaded.objective if objective is None else objective,
        optimizers=None if None in optimizers else optimizers,
    )


def _networks(flag: str, module: Any) -> UserNetworks:
    from .user_networks import UserNetworks  # noqa: PLC0415  (imports TensorFlow)

    return UserNetworks(flag, module)


def _as_dataset_function(data: Any, training_split: str) -> Callable[..., Any]:
    """Returns the function of a split for data that `wgan_gp.train` was given."""
    if callable(data) and not hasattr(data, "__array__"):
        return data
    return lambda split: data if split == training_split else None


def is_user_code(setting: str, value: str | None, models: Registry) -> bool:
    """Returns True if the value of a setting names code that is not a part of this project.

    Args:
      setting: A member of CODE_SETTINGS.
      value: The value of the setting.
      models: The networks of the project.
    """
    if value is None:
        return False
    if setting == "objective" or value == PYTHON:
        return True
    if setting == "dataset":
        return is_user_dataset(value)
    return value not in models and is_reference(value)


def is_user_dataset(value: str) -> bool:
    """Returns True if a value of --dataset names code that is not a part of this project."""
    return value not in DATASETS and is_reference(value)


def warn_of_changes(saved: Config, config: Config) -> None:
    """Warns on stderr about code that has changed since a run was started.

    Args:
      saved: The configuration of the run.
      config: The configuration with the current hashes.
    """
    for setting in CODE_SETTINGS:
        before, now = (getattr(each, f"{setting}_sha256") for each in (saved, config))
        if before and now and before != now:
            logging.warning(
                f"--{setting}={getattr(config, setting)} has changed since the run was started "
                f"(sha256 {before[:16]}, now {now[:16]})"
            )


def is_reference(value: str) -> bool:
    """Returns True if a value refers to user code, and is not the name of something built in.

    References are paths of this machine that end in .py, module names that contain a dot, and
    either of them followed by a colon and a name.
    """
    if "://" in value:
        return False
    path = value.partition(":")[0]
    is_module_name = "." in path and all(part.isidentifier() for part in path.split("."))
    return path.endswith(".py") or is_module_name


def load_code(setting: str, reference: str) -> LoadedCode:
    """Imports the code that a flag names.

    Args:
      setting: The name of the flag, without dashes.
      reference: The path of a Python file or the name of a module, optionally followed by a colon
        and the name of an object in it.

    Raises:
      UserError: If it cannot be imported, or networks are given with the name of an object. The
        traceback is logged at the level of --verbosity=1.
    """
    flag = f"--{setting}={reference}"
    origin, _, name = reference.partition(":")
    if name and setting in _NETWORKS:
        raise UserError(
            f"{flag} names an object, but networks are the functions generator and critic",
            "omit the colon and the name",
        )
    try:
        module = _import_file(origin) if origin.endswith(".py") else _import_module(origin)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        logging.debug("".join(traceback.format_exception(error)))
        parts = [type(error).__name__, shorten(text_of(error).partition("\n")[0])]
        raise UserError(
            f"{flag} cannot be imported ({': '.join(filter(None, parts))}{_place(error)})",
            "correct it; --verbosity=1 shows the traceback",
        ) from None
    return LoadedCode(flag, module, name or None, _hash(module))


def _place(error: BaseException) -> str:
    """Returns the innermost line of the user's code in a traceback, "" if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if not frame.filename.startswith(("<frozen", *_OWN))]
    return f", {os.path.basename(inside[-1].filename)}, line {inside[-1].lineno}" if inside else ""


def _import_file(origin: str) -> ModuleType:
    path = pathlib.Path(os.path.expanduser(origin)).absolute()
    # The file may import modules next to it, as a program can.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    # The name differs from those of other modules, such as a package called "models". Classes of
    # the module can be found under it, which dataclasses and Keras need.
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _import_module(origin: str) -> ModuleType:
    if os.getcwd() not in sys.path:  # an installed program does not have it there
        sys.path.append(os.getcwd())
    return importlib.import_module(origin)


def _hash(module: ModuleType) -> str | None:
    path = getattr(module, "__file__", None)
    if path is None or not os.path.isfile(path):
        return None
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
