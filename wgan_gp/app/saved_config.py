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

from ..config import CODE_SETTINGS, PYTHON, Config, settings_of_run
from ..data.datasets import DATASETS
from ..errors import UserError
from .library import Registry
from .user_code import loading

_FIELDS = {field.name: field for field in dataclasses.fields(Config)}
_OPTIONAL = "test_data_dir"  # an evaluation without it has fewer or other metrics
# The names of tensorflow-datasets, without a namespace, which may name a server.
_PREPARED_NAME = re.compile(r"[A-Za-z]\w*(/\w[\w.+-]*)?(:[\d.*]+)?", re.ASCII)


@dataclasses.dataclass(frozen=True)
class SavedConfig:
    """The configuration of a saved run and the command line that uses the run.

    Attributes:
      path: The run directory.
      content: The content of config.json, whose values are valid.
      origin: The path of config.json, for messages.
      given: The settings of the command line. They override those of the run.
      models: The package `models`.
    """

    path: str
    content: Mapping[str, Any]
    origin: str
    given: Mapping[str, Any]
    models: Registry

    def merge(self, mode: str) -> Config:
        """Returns the configuration with which a mode uses the run.

        Raises:
          UserError: If the mode needs code or a path that `given` does not name, or `given`
            contradicts the run.
        """
        self._require_named(needed_settings(mode))
        given = self.given
        if "model" in given and self.content.get("generator_model") == self.content.get("model"):
            given = {"generator_model": given["model"], **given}  # the file may have been moved
        # A name that is none of code has no hash. That of a file which is loaded is recorded later,
        # and a file that the mode does not need is taken for that of the run.
        hashes = {
            f"{name}_sha256": None
            for name in CODE_SETTINGS
            if name in given and not loading.is_reference(str(given[name]))
        }
        given = {**hashes, **given}
        return Config.from_dict(
            {**self._of_run, "model_dir": self.path, **given}, origin=self.origin
        )

    def check(self, config: Config) -> None:
        """Raises UserError if the command line contradicts the run, or a newer version wrote it.

        Args:
          config: The result of `merge`, with the hashes of the user's files.
        """
        names = {field.name for field in dataclasses.fields(config)}
        compared = {
            name: value
            for name, value in self.content.items()
            if name in self._of_run or name in self.given or name not in names
        }
        if differences := config.differences(compared):
            raise UserError(
                f"--model_dir={self.path} contains a run with a different configuration "
                f"({'; '.join(differences)})",
                "omit these flags",
            )

    @property
    def _of_run(self) -> dict[str, Any]:
        return settings_of_run(Config, dict(self.content))

    def _require_named(self, needed: tuple[str, ...]) -> None:
        """Raises UserError if needed settings name code or a path that are not given."""
        missing = {
            name: self.content[name]
            for name in needed
            if self.given.get(name) is None and self._must_be_named(name)
        }
        if path := missing.pop(_OPTIONAL, None):
            flag = shlex.quote(f"--{_OPTIONAL}={path}")
            logging.warning(
                f"--model_dir={self.path} was trained with {flag}, which is read only if the "
                "command line names it"
            )
        if not missing:
            return
        first, value = next(iter(missing.items()))
        if value == PYTHON and first in CODE_SETTINGS:
            raise UserError(
                f"--model_dir={self.path} uses an object that was passed to wgan_gp.train as "
                f"{first}",
                "call wgan_gp.train with it again, and use the result",
            )
        if first in CODE_SETTINGS and loading.is_user_code(first, value, self.models):
            digest = self.content.get(f"{first}_sha256")
            described = f" (sha256 {digest[:16]})" if isinstance(digest, str) else ""
            problem = f"uses code from --{first}={value}{described}, which is imported"
        else:
            problem = f"was trained with --{first}={value}, which is used"
        flags = [shlex.quote(f"--{name}={value}") for name, value in missing.items()]
        raise UserError(
            f"--model_dir={self.path} {problem} only if the command line names it",
            f"add {' '.join(flags)} if you trust {'it' if len(flags) == 1 else 'them'}",
        )

    def _must_be_named(self, name: str) -> bool:
        """Returns True if the value of a setting names code, a path or a server."""
        value = self.content.get(name)
        if value is None or (name == "generator_model" and value == self.content.get("model")):
            return False
        harmless = _FIELDS[name].metadata["of_run"]
        if isinstance(harmless, tuple):
            return value not in harmless
        if name not in CODE_SETTINGS:
            return True  # a path
        if loading.is_user_code(name, value, self.models):
            return True
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
