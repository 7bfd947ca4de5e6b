"""The networks and the losses, which the engine is handed instead of importing them."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import pathlib
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Protocol


class Registry(Protocol):
    """Networks by name, and what the engine asks of them; `models.Registry` is one."""

    def __getitem__(self, name: str) -> Any: ...

    def __iter__(self) -> Iterator[str]: ...

    def __contains__(self, name: object) -> bool: ...

    def default(self, example_shape: tuple[int, ...]) -> str:
        """Returns the name of the networks to use by default for a shape of examples."""

    def check(self, *args: Any, **settings: Any) -> tuple[Any, Any]:
        """Returns the entries of the critic and the generator.

        Raises:
          ValueError: If they do not fit the settings; its arguments are what is wrong and a remedy.
        """

    def build(self, *args: Any, **settings: Any) -> tuple[Any, Any]:
        """Returns a new generator and a new critic."""

    def build_generator(self, *args: Any, **settings: Any) -> Any:
        """Returns a new generator."""

    def with_networks(self, modules: Mapping[str, Any]) -> Registry:
        """Returns a registry that also has networks of the user."""


@dataclasses.dataclass(frozen=True)
class Library:
    """The networks and the losses of a run.

    Attributes:
      models: The networks, including those of the user.
      losses: The package `losses`, or an object with the same functions.
      objective: The user objective, or a function that creates it; see `create_objective`. None
        for `losses.GanObjective`.
      optimizers: Keras optimizers of the generator and the critic; None for those of the settings.
    """

    models: Registry
    losses: ModuleType
    objective: Any = None
    optimizers: tuple[Any, Any] | None = None


def bundled_library() -> Library:
    """Returns the networks and losses of this project."""
    return Library(bundled("models").MODELS, bundled("losses"))


def bundled(name: str) -> ModuleType:
    """Returns one of the packages that the wheel contains and a checkout has next to wgan_gp.

    This function is the only place where the engine imports them.

    Args:
      name: "flags", "losses" or "models". Importing them does not import TensorFlow.
    """
    for place in (f"{__package__.partition('.')[0]}.{name}", name):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name != place:
                raise
    # An editable installation (pip install -e) finds packages, but not the module flags.
    path = pathlib.Path(__file__).resolve().parents[2] / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
