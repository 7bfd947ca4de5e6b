"""The hooks and writers that --hooks and --writers name: of the user, and W&B and MLflow."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from ...config import Config
from ...errors import Reporting, UserError, explaining, shown
from . import loading

if typing.TYPE_CHECKING:
    from ...run_directory.directory import RunDirectory
    from ...training.hooks import Hook
    from ...writers.writer import Writer

_Extension = TypeVar("_Extension")

# The class of each tracker's writer, in the module of `wgan_gp.writers` with the tracker's name.
# The optional dependencies of the project have the same names.
TRACKERS = {"wandb": "WandbWriter", "mlflow": "MlflowWriter"}


def check(config: Config) -> None:
    """Raises UserError if --hooks or --writers names what cannot exist; nothing is imported."""
    for flag, known in (("hooks", ()), ("writers", tuple(TRACKERS))):
        value = getattr(config, flag)
        for name in _names(value):
            if name not in known and not loading.is_reference(name):
                raise UserError(
                    f"--{flag}={value}: {name or 'an empty name'} is unknown",
                    f"give {', '.join([*known, 'FILE.py:NAME or MODULE:NAME'])}, separated by "
                    "commas",
                )
            # W&B writes to a folder called wandb, which Python takes for a package without code.
            if name in known and getattr(importlib.util.find_spec(name), "origin", None) is None:
                raise UserError(
                    f"--{flag}={name} needs the package {name}, which is not installed",
                    f"pip install {name}",
                )


def load_hooks(config: Config) -> list[Hook]:
    """Imports and creates the hooks that --hooks names, each with the configuration.

    Raises:
      UserError: If a hook cannot be imported or created.
    """
    from ...training.hooks import Hook  # noqa: PLC0415

    return [
        _create(f"--hooks={name}", loading.load_code("hooks", name).get(), config, kind=Hook)
        for name in _names(config.hooks)
    ]


def load_writers(config: Config) -> list[Callable[[RunDirectory], Writer]]:
    """Imports the writers that --writers names.

    Returns:
      Functions that create them, for a run directory that this process has locked. They raise
      UserError if a writer cannot be created.

    Raises:
      UserError: If a writer cannot be imported.
    """
    return [
        functools.partial(_open, name, _import(name), config) for name in _names(config.writers)
    ]


def report_errors(value: _Extension, kind: str) -> _Extension:
    """Returns a hook or a writer of the user whose errors become a UserError with its class."""
    return typing.cast(_Extension, Reporting(value, f"the {kind} {type(value).__name__}"))


def _names(value: str | None) -> list[str]:
    return [] if value is None else [name.strip() for name in value.split(",")]


def _import(name: str) -> Any:
    if name not in TRACKERS:
        return loading.load_code("writers", name).get()
    with explaining(f"--writers={name}"):
        return getattr(importlib.import_module(f"...writers.{name}", __package__), TRACKERS[name])


def _open(name: str, make: Any, config: Config, directory: RunDirectory) -> Writer:
    from ...writers.writer import Writer  # noqa: PLC0415

    arguments: tuple[Any, ...] = (config,)
    if name in TRACKERS:
        arguments = (config.to_dict(), directory.path, getattr(directory, name))
    flag = f"--writers={name}"
    return typing.cast(Writer, Reporting(_create(flag, make, *arguments, kind=Writer), flag))


def _create(flag: str, make: Any, *arguments: Any, kind: type) -> Any:
    with explaining(flag):
        made = make(*arguments)
    if not isinstance(made, kind):
        raise UserError(
            f"{flag} returned {shown(made)}, which is not a {kind.__name__}",
            f"let it return an object of a subclass of wgan_gp.{kind.__name__}",
        )
    return made
