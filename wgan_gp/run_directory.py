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
from .errors import UserError


class RunDirectory:
    """The paths of one run.

    Attributes:
      path: the directory.
      config: config.json, the resolved configuration.
      metrics: metrics.jsonl, one object per summary.
      checkpoints: the folder of ckpt-N.*, N iterations done.
      events: the folder of TensorBoard's event files.
      samples: the folder of step_NNNNNNNN.png.
    """

    def __init__(self, path: str):
        self.path = path
        self.config = posixpath.join(path, "config.json")
        self.metrics = posixpath.join(path, "metrics.jsonl")
        self.checkpoints = posixpath.join(path, "checkpoints")
        self.events = posixpath.join(path, "train")
        self.samples = posixpath.join(path, "samples")

    def claim(self, config: Config) -> None:
        """Makes the directory and writes config.json, unless it holds this very run already.

        Raises:
          UserError: it holds a run of another configuration, or cannot be written.
        """
        with self._writing():
            saved = self.saved_config()
            differences = config.differences(saved) if saved is not None else []
            if differences:
                raise UserError(
                    f"--model_dir={self.path} holds a run of another configuration "
                    f"({'; '.join(differences)})",
                    "give the saved values to go on with it, or another --model_dir",
                )
            for folder in (self.path, self.checkpoints, self.samples):
                tf.io.gfile.makedirs(folder)
            with tf.io.gfile.GFile(self.config, "w") as file:
                file.write(json.dumps(config.to_dict(), indent=2) + "\n")

    def saved_config(self) -> dict[str, Any] | None:
        """What config.json holds, or None where there is none.

        Raises:
          UserError: it is there, but is no saved configuration.
        """
        if not tf.io.gfile.exists(self.config):
            return None
        with tf.io.gfile.GFile(self.config) as file:
            text = file.read()
        try:
            saved = json.loads(text)
        except json.JSONDecodeError:
            saved = None
        if not isinstance(saved, dict):
            raise UserError(
                f"{self.config} is not a saved configuration",
                "restore it or give another --model_dir",
            )
        return saved

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (tf.errors.OpError, OSError) as error:
            reason = getattr(error, "message", str(error))
            raise UserError(
                f"--model_dir={self.path} cannot be written ({reason})",
                "give a directory you may write to",
            ) from error
