"""The run directory: where its files are, and that it belongs to this run.

Only tf.io.gfile touches it, so it may be local, gs:// or ram://.
"""

import contextlib
import json
import posixpath
import sys
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from .config import Config
from .errors import UserError
from .files import paths_starting_with, replace_text, reporting
from .ownership import Ownership


class RunDirectory:
    """The paths of one run.

    Attributes:
      path: the directory.
      config: config.json, the resolved configuration.
      data: data.json, what the networks know of the data.
      metrics: metrics.jsonl, one object per summary.
      evaluation: evaluation.jsonl, one object per evaluation.
      evaluations: the folder of --mode=evaluate's event files, and of what is known of the data.
      checkpoints: the folder of ckpt-N.*, N iterations done.
      events: the folder of TensorBoard's event files.
      samples: the folder of step_NNNNNNNN.png.
      compile: the folder of what --mode=compile found, <topology>.json.
      sampled: the folder of what --mode=sample drew.
      exported: the folder of what --mode=export wrote.
      owner: owner.json, which process writes here; none once it is done.
    """

    def __init__(self, path: str):
        self.path = path
        self.config = posixpath.join(path, "config.json")
        self.data = posixpath.join(path, "data.json")
        self.metrics = posixpath.join(path, "metrics.jsonl")
        self.evaluation = posixpath.join(path, "evaluation.jsonl")
        self.evaluations = posixpath.join(path, "evaluation")
        self.checkpoints = posixpath.join(path, "checkpoints")
        self.events = posixpath.join(path, "train")
        self.samples = posixpath.join(path, "samples")
        self.compile = posixpath.join(path, "compile")
        self.sampled = posixpath.join(path, "sampled")
        self.exported = posixpath.join(path, "exported")
        self.owner = posixpath.join(path, "owner.json")

    def check(self, config: Config) -> None:
        """Raises UserError if the directory holds a run of another configuration."""
        with self.reporting("read"):
            saved = self.saved_config()
            if saved is None and self._has_checkpoints():
                raise UserError(
                    f"{self.config} is missing beside checkpoints, so nobody knows whose they are",
                    "restore it or give another --model_dir",
                )
            if saved is not None and (differences := config.differences(saved)):
                raise UserError(
                    f"--model_dir={self.path} holds a run of another configuration "
                    f"({'; '.join(differences)})",
                    f"{config.way_to_continue(saved)}, or give another --model_dir",
                )

    def claim(self, config: Config, data: Mapping[str, Any]) -> Ownership:
        """Makes the directory, this process's own, and writes config.json and data.json.

        Args:
          config: of the run.
          data: what the networks know of the data, and the version of its "order".

        Raises:
          UserError: see `check`; or it cannot be written; or another process is writing it.
        """
        self.check(config)
        owner = Ownership(self.owner)
        with self.reporting("written"):
            for folder in (self.path, self.checkpoints, self.samples):
                tf.io.gfile.makedirs(folder)
            owner.claim()
            self._warn_of_another_order(data.get("order"))
            replace_text(self.config, json.dumps(config.to_dict(), indent=2) + "\n")
            replace_text(self.data, json.dumps(data, indent=2) + "\n")
        return owner

    def _has_checkpoints(self) -> bool:
        return bool(paths_starting_with(posixpath.join(self.checkpoints, "ckpt-")))

    def _warn_of_another_order(self, order: int | None) -> None:
        """Warns on stderr if a version that read the examples in another order began the run."""
        if not self._has_checkpoints():
            return
        saved: dict[str, Any] | None = None
        with contextlib.suppress(UserError):  # a damaged data.json tells nothing
            saved = _read_object(self.data)
        if saved is not None and "example_shape" in saved and saved.get("order") != order:
            print(
                f"warning: --model_dir={self.path} was started by a version that read the examples "
                "in another order — it continues in the new order; a run started from scratch will "
                "give different results",
                file=sys.stderr,
            )

    def saved_config(self) -> dict[str, Any] | None:
        """What config.json holds, or None where there is none.

        Raises:
          UserError: it is there, but is no saved configuration.
        """
        return _read_object(self.config)

    def find_run(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What config.json and data.json of a run hold.

        Raises:
          UserError: there is no run.
        """
        with self.reporting("read"):
            saved = self.saved_config()
            if saved is None or "train_steps" not in saved:
                raise UserError(
                    f"--model_dir={self.path} holds no run (no config.json of one)",
                    "train one there, or give the directory of one",
                )
            data = _read_object(self.data)
            if data is None or not data.keys() >= {"example_shape", "classes"}:
                raise UserError(
                    f"{self.data} is not there, or not whole",
                    "start the run's training once more, which writes it",
                )
        return saved, data

    def reporting(self, done: str) -> contextlib.AbstractContextManager[None]:
        """Turns what fails inside into a UserError that names the directory.

        Args:
          done: what it cannot be: "read" or "written".
        """
        return reporting(
            f"--model_dir={self.path}",
            done,
            "make room there, or give a directory you may write to; then start again",
        )


def _read_object(path: str) -> dict[str, Any] | None:
    """A JSON object, or None where there is no such file.

    Raises:
      UserError: it is there, but is no such object.
    """
    if not tf.io.gfile.exists(path):
        return None
    try:
        with tf.io.gfile.GFile(path) as file:
            saved = json.loads(file.read())
    except ValueError:  # not JSON, or not text
        saved = None
    if not isinstance(saved, dict):
        raise UserError(
            f"{path} is not a saved configuration",
            "restore it or give another --model_dir",
        )
    return saved
