"""The run directory: where its files are, and that it belongs to this run.

Only tf.io.gfile touches it, so it may be local, gs:// or ram://.
"""

import contextlib
import json
import posixpath
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from .config import Config
from .errors import UserError, reason
from .files import replace_text
from .ownership import Ownership


class RunDirectory:
    """The paths of one run.

    Attributes:
      path: the directory.
      config: config.json, the resolved configuration.
      metrics: metrics.jsonl, one object per summary.
      checkpoints: the folder of ckpt-N.*, N iterations done.
      events: the folder of TensorBoard's event files.
      samples: the folder of step_NNNNNNNN.png.
      compile: the folder of what --mode=compile found, <topology>.json.
      owner: owner.json, which process writes here; none once it is done.
    """

    def __init__(self, path: str):
        self.path = path
        self.config = posixpath.join(path, "config.json")
        self.metrics = posixpath.join(path, "metrics.jsonl")
        self.checkpoints = posixpath.join(path, "checkpoints")
        self.events = posixpath.join(path, "train")
        self.samples = posixpath.join(path, "samples")
        self.compile = posixpath.join(path, "compile")
        self.owner = posixpath.join(path, "owner.json")

    def check(self, config: Config) -> None:
        """Raises UserError if the directory holds a run of another configuration."""
        with self.reporting("read"):
            saved = self.saved_config()
            if saved is None and tf.io.gfile.glob(posixpath.join(self.checkpoints, "ckpt-*")):
                raise UserError(
                    f"{self.config} is missing beside checkpoints, so nobody knows whose they are",
                    "restore it or give another --model_dir",
                )
            differences = config.differences(saved) if saved is not None else []
            if differences:
                raise UserError(
                    f"--model_dir={self.path} holds a run of another configuration "
                    f"({'; '.join(differences)})",
                    "give the saved values to go on with it, or another --model_dir",
                )

    def claim(self, config: Config) -> Ownership:
        """Makes the directory, this process's own, and writes config.json.

        Raises:
          UserError: see `check`; or it cannot be written; or another process is writing it.
        """
        self.check(config)
        owner = Ownership(self.owner)
        with self.reporting("written"):
            for folder in (self.path, self.checkpoints, self.samples):
                tf.io.gfile.makedirs(folder)
            owner.claim()
            replace_text(self.config, json.dumps(config.to_dict(), indent=2) + "\n")
        return owner

    def saved_config(self) -> dict[str, Any] | None:
        """What config.json holds, or None where there is none.

        Raises:
          UserError: it is there, but is no saved configuration.
        """
        if not tf.io.gfile.exists(self.config):
            return None
        try:
            with tf.io.gfile.GFile(self.config) as file:
                saved = json.loads(file.read())
        except ValueError:  # not JSON, or not text
            saved = None
        if not isinstance(saved, dict):
            raise UserError(
                f"{self.config} is not a saved configuration",
                "restore it or give another --model_dir",
            )
        return saved

    @contextlib.contextmanager
    def reporting(self, done: str) -> Iterator[None]:
        """Turns what fails inside into a UserError that names the directory.

        Args:
          done: what it cannot be: "read" or "written".
        """
        try:
            yield
        except (tf.errors.OpError, OSError) as error:
            raise UserError(
                f"--model_dir={self.path} cannot be {done} ({reason(error)})",
                "make room there, or give a directory you may write to; then start again",
            ) from error
