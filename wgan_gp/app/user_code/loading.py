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
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from absl import logging

from ...config import CODE_SETTINGS, PYTHON, Config
from ...data.datasets import DATASETS
from ...errors import UserError, explaining, shorten, text_of
from ..library import Library, Registry


@dataclasses.dataclass(frozen=True)
class UserCode:
    """The networks, the dataset and the objective of the user in a run.

    Attributes:
      networks: By the value of --model and --generator_model: modules or objects with `generator`
        and `critic`, which are networks or functions that return one.
      dataset: A function of a split that returns the data; see `data.user_data`.
      objective, optimizers: See `Library`.
      sha256: The hashes of the files, by setting; None for code without a file.
      flags: The setting that names each of the networks, by its value.
    """

    networks: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dataset: Callable[..., Any] | None = None
    objective: Any = None
    optimizers: tuple[Any, Any] | None = None
    sha256: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    flags: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def record(self, config: Config) -> Config:
        """Returns the configuration with the hashes of the files."""
        hashes: dict[str, Any] = {f"{name}_sha256": value for name, value in self.sha256.items()}
        if config.generator_model in (None, config.model):  # the file has both networks
            hashes["generator_model_sha256"] = self.sha256.get("model")
        return dataclasses.replace(config, **hashes)

    def add_to(self, library: Library) -> Library:
        """Returns the networks and losses of the project with those of the user."""
        library = dataclasses.replace(library, objective=self.objective, optimizers=self.optimizers)
        if not self.networks:
            return library
        from .user_networks import UserNetworks  # noqa: PLC0415

        networks = {
            name: UserNetworks(
                "wgan_gp.train" if name == PYTHON else f"--{self.flags[name]}={name}",
                generator=getattr(module, "generator", None),
                critic=getattr(module, "critic", None),
            )
            for name, module in self.networks.items()
        }
        return dataclasses.replace(library, models=library.models.with_networks(networks))


@dataclasses.dataclass(frozen=True)
class LoadedCode:
    """A loaded module of the user.

    Attributes:
      flag: The name of the flag that names the code, without dashes.
      reference: The value of the flag, such as "networks.py" or "losses.py:MyObjective".
      module: The module.
      name: The name after the colon; None without one.
      sha256: The hash of the file, in hexadecimal; None if the module has no file.
    """

    flag: str
    reference: str
    module: Any
    name: str | None
    sha256: str | None

    def get(self, name: str | None = None) -> Any:
        """Returns an object of the module.

        Args:
          name: The name of the object. Defaults to the name after the colon.

        Raises:
          UserError: If the module does not define it.
        """
        name = name or self.name
        if name is None:
            raise UserError(
                f"--{self.flag}={self.reference} does not name an object",
                f"give --{self.flag}={self.reference}:NAME",
            )
        with explaining(f"--{self.flag}={self.reference}"):  # a module may define __getattr__
            found = getattr(self.module, name, None)
            is_none = " except as None" if found is None and hasattr(self.module, name) else ""
        if found is None:
            raise UserError(
                f"--{self.flag}={self.reference} does not define {shorten(name)}{is_none}",
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
    codes = {
        setting: code
        for setting in settings
        if (code := _load(setting, getattr(config, setting), models)) is not None
    }
    networks, flags = {}, {}
    for setting in ("model", "generator_model"):
        if setting in codes:
            needed = ("generator", "critic") if setting == "model" else ("generator",)
            if setting == "model" and config.generator_model not in (None, config.model):
                needed = ("critic",)
            _check_networks(codes[setting], needed)
            networks[codes[setting].reference] = codes[setting].module
            flags[codes[setting].reference] = setting
    return UserCode(
        networks,
        _dataset_function(codes["dataset"]) if "dataset" in codes else None,
        codes["objective"].get() if "objective" in codes else None,
        sha256={setting: code.sha256 for setting, code in codes.items()},
        flags=flags,
    )


def _check_networks(code: LoadedCode, needed: tuple[str, ...]) -> None:
    """Raises UserError if networks lack a function, or are given with the name of an object."""
    if code.name is not None:
        raise UserError(
            f"--{code.flag}={code.reference} names an object, but the functions "
            f"{' and '.join(needed)} of a file are used",
            "omit the colon and the name",
        )
    for name in needed:
        code.get(name)


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
      UserError: If a critic is given and the configuration names no generator, or if one optimizer
        is given for both networks or for one of them.
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
    if optimizers != (None, None):
        if None in optimizers or optimizers[0] is optimizers[1]:
            raise UserError(
                "generator_optimizer= and critic_optimizer= are not two optimizers",
                "pass one for each network",
            )
        settings["optimizer"] = PYTHON
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
        optimizers=None if None in optimizers else optimizers,
    )


def _as_dataset_function(data: Any, training_split: str) -> Callable[..., Any]:
    """Returns the function of a split for data that `wgan_gp.train` was given."""
    if callable(data) and not hasattr(data, "__array__"):
        return data

    def dataset(split: str) -> Any:
        return data if split == training_split else None

    return dataset


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


def _load(setting: str, value: str | None, models: Registry) -> LoadedCode | None:
    if value is None or not is_user_code(setting, value, models):
        return None
    if value == PYTHON:
        raise UserError(
            f"--{setting}={PYTHON} stands for an object that is passed to wgan_gp.train",
            "call wgan_gp.train with it, or give a file",
        )
    return load_code(setting, value)


def _dataset_function(code: LoadedCode) -> Callable[..., Any]:
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


def split_names(value: str | None) -> list[str]:
    """Returns the names in the value of a flag, which are separated by commas."""
    return [] if value is None else [name.strip() for name in value.split(",")]


def is_reference(value: str) -> bool:
    """Returns True if a value refers to user code, and is not the name of something built in.

    References are paths of this machine that end in .py, module names that contain a dot, and
    either of them followed by a colon and a name.
    """
    if "://" in value:
        return False
    path = value.partition(":")[0]
    return path.endswith(".py") or ("." in path and _is_module_name(path))


def load_code(flag: str, reference: str) -> LoadedCode:
    """Imports the code that a flag names.

    Args:
      flag: The name of the flag, without dashes.
      reference: The path of a Python file or the name of a module, optionally followed by a colon
        and the name of an object in it.

    Raises:
      UserError: If the file does not exist or cannot be imported. The traceback is logged at the
        level of --verbosity=1.
    """
    origin, _, name = reference.partition(":")
    try:
        module = _import_file(origin) if origin.endswith(".py") else _import_module(origin)
    except UserError as error:
        raise UserError(f"--{flag}={reference}: {error.what}", error.remedy) from None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _import_error(flag, reference, error) from None
    return LoadedCode(flag, reference, module, name or None, _hash(module))


def load_network(reference: str) -> LoadedCode:
    """Imports the generator that a value of --model names: a file or a module.

    Raises:
      UserError: See `load_code` and `LoadedCode.get`.
    """
    code = load_code("model", reference)
    _check_networks(code, ("generator",))
    return code


def _import_file(origin: str) -> ModuleType:
    path = pathlib.Path(os.path.expanduser(origin)).absolute()
    if not path.is_file():
        raise UserError("there is no such file", "give the path of a Python file")
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
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_module(origin: str) -> ModuleType:
    if not _is_module_name(origin):
        raise UserError(
            "this is neither a Python file nor the name of a module", "give FILE.py or PACKAGE.NAME"
        )
    if os.getcwd() not in sys.path:  # an installed program does not have it there
        sys.path.append(os.getcwd())
    return importlib.import_module(origin)


def _is_module_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _import_error(flag: str, reference: str, error: BaseException) -> UserError:
    """Returns the error for code that cannot be imported, and logs the traceback."""
    logging.debug("".join(traceback.format_exception(error)))
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if not frame.filename.startswith("<frozen")]
    place = f", {os.path.basename(inside[-1].filename)}, line {inside[-1].lineno}" if inside else ""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        place = f", {os.path.basename(error.filename or '')}, line {error.lineno}"
    text = shorten(text_of(error).partition("\n")[0])
    described = ": ".join(filter(None, (type(error).__name__, text)))
    return UserError(
        f"--{flag}={reference} cannot be imported ({described}{place})",
        "correct it; --verbosity=1 shows the traceback",
    )


def _hash(module: ModuleType) -> str | None:
    path = getattr(module, "__file__", None)
    if path is None or not os.path.isfile(path):
        return None
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
