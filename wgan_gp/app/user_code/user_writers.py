"""The writers that --writers names: Weights & Biases, MLflow and classes of the user."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import typing
from collections.abc import Callable
from typing import Any

from ...config import Config
from ...errors import UserError, explaining, shown
from . import loading

if typing.TYPE_CHECKING:
    from ...run_directory.directory import RunDirectory
    from ...writers.writer import Writer

# The class of each tracker's writer, in the module of `wgan_gp.writers` with the tracker's name.
# The optional dependencies of the project have the same names.
TRACKERS = {"wandb": "WandbWriter", "mlflow": "MlflowWriter"}


@dataclasses.dataclass(frozen=True)
class UserWriter:
    """A writer that --writers names, which has been imported and can be opened.

    Attributes:
      name: The entry of --writers.
      make: (configuration, run directory) -> the writer.
    """

    name: str
    make: Callable[[Config, RunDirectory], Any]

    def open(self, config: Config, directory: RunDirectory) -> Writer:
        """Returns the writer, whose errors become a UserError that names it.

        Args:
          config: The resolved configuration.
          directory: The run directory, which this process has locked.

        Raises:
          UserError: If the writer cannot be created.
        """
        from ...writers.writer import Writer  # noqa: PLC0415

        with explaining(f"--writers={self.name}"):
            writer = self.make(config, directory)
        if not isinstance(writer, Writer):
            raise UserError(
                f"--writers={self.name} returned {shown(writer)}, which is not a Writer",
                "let it return an object of a subclass of wgan_gp.Writer",
            )
        return report_errors(writer, f"--writers={self.name}")


def report_errors(writer: Writer, name: str | None = None) -> Writer:
    """Returns a writer that forwards all calls and turns errors into a UserError.

    Args:
      writer: The writer of the user.
      name: The writer in the message. Defaults to its class.
    """
    from ...writers.writer import Writers  # noqa: PLC0415

    name = name or f"the writer {type(writer).__name__}"
    return Writers(writer, reporting=functools.partial(explaining, name))


def check(value: str | None) -> None:
    """Raises UserError if --writers names a writer that cannot exist or is not installed.

    Nothing is imported.

    Args:
      value: The value of --writers.
    """
    names = loading.split_names(value)
    for index, name in enumerate(names):
        if name in names[:index]:
            raise UserError(f"--writers={value} names {name} twice", "name each writer once")
        if name in TRACKERS:
            spec = importlib.util.find_spec(name)
            # W&B writes to a folder called wandb, which Python takes for a package without code.
            if spec is None or spec.origin is None:
                raise UserError(
                    f"--writers={name} needs the package {name}, which is not installed",
                    f"pip install {name}",
                )
        elif not loading.is_reference(name):
            raise UserError(
                f"--writers={value}: {name or 'an empty name'} is not a writer",
                f"give {', '.join(TRACKERS)}, FILE.py:NAME or MODULE:NAME, separated by commas",
            )


def load(value: str | None) -> list[UserWriter]:
    """Imports the writers that --writers names.

    Raises:
      UserError: If `check` raises it, or if a writer cannot be imported.
    """
    check(value)
    return [_load(name) for name in loading.split_names(value)]


def _load(name: str) -> UserWriter:
    if name in TRACKERS:
        with explaining(f"--writers={name}"):
            module = importlib.import_module(f"...writers.{name}", __package__)
        tracker = getattr(module, TRACKERS[name])

        def make_tracker(config: Config, directory: RunDirectory) -> Writer:
            return tracker(config.to_dict(), directory.path, getattr(directory, name))

        return UserWriter(name, make_tracker)
    make = loading.load_code("writers", name).get()
    return UserWriter(name, lambda config, directory: make(config))
