"""The files of a run directory, and the checks before a run uses or writes them.

All access is through tf.io.gfile, so the directory may be local, gs:// or ram://.
"""

from __future__ import annotations

import contextlib
import functools
import posixpath
from typing import Any

import tensorflow as tf
from absl import logging

from ..config import Config
from ..config.resume import resume_remedy
from ..errors import UserError
from .files import convert_file_errors, list_prefix
from .json_files import read_log, read_object, write_object
from .lock import Lock

BEST = "best"  # the folder of the checkpoint of --keep_best, in that of the checkpoints


class RunDirectory:
    """The files of one run, and the checks before a process writes to them.

    A start of training creates one object and calls `check`, `check_data` of data/data_record.py,
    and `claim`, in this order. The constructor neither reads nor writes files.

    Args:
      path: The run directory; also an attribute.

    Attributes:
      config: The path of config.json, the resolved configuration.
      data: The path of data.json, what the run knows of its data.
      metrics: The path of metrics.jsonl, one object per summary.
      evaluation: The path of evaluation.jsonl, one object per evaluation.
      evaluations: The folder of --mode=evaluate's event files and cached statistics of the data.
      checkpoints: The folder of ckpt-N.*, where N is the number of iterations done.
      best: The folder of the checkpoint of --keep_best.
      events: The folder of TensorBoard's event files.
      samples: The folder of step_NNNNNNNN.png.
      compile: The folder of the reports of --mode=compile, <topology>.json.
      sampled: The folder of the output of --mode=sample.
      exported: The folder of the output of --mode=export.
      wandb, mlflow: The paths of wandb.json and mlflow.json, which name the tracked run.
      owner: The path of owner.json, the lock file; see `Lock`.
    """

    def __init__(self, path: str):
        self.path = path
        self.config = posixpath.join(path, "config.json")
        self.data = posixpath.join(path, "data.json")
        self.metrics = posixpath.join(path, "metrics.jsonl")
        self.evaluation = posixpath.join(path, "evaluation.jsonl")
        self.evaluations = posixpath.join(path, "evaluation")
        self.checkpoints = posixpath.join(path, "checkpoints")
        self.best = posixpath.join(self.checkpoints, BEST)
        self.events = posixpath.join(path, "train")
        self.samples = posixpath.join(path, "samples")
        self.compile = posixpath.join(path, "compile")
        self.sampled = posixpath.join(path, "sampled")
        self.exported = posixpath.join(path, "exported")
        self.wandb = posixpath.join(path, "wandb.json")
        self.mlflow = posixpath.join(path, "mlflow.json")
        self.owner = posixpath.join(path, "owner.json")
        self._checked: Config | None = None  # the configuration that `check` accepted
        self._lock: Lock | None = None

    def check(self, config: Config) -> None:
        """Raises UserError if the directory contains a run that `config` cannot continue.

        This is the case if the run has an incompatible configuration, or if its configuration or
        its checkpoints are missing.
        """
        with self.convert_file_errors("read"):
            saved = self._read_config()
            if saved is None and self.has_checkpoints():
                raise UserError(
                    f"{self.config} is missing, but {self.checkpoints} contains checkpoints",
                    "restore the file, or give another --model_dir",
                )
            if saved is not None:
                content, saved_config = saved
                if differences := config.differences(content):
                    raise UserError(
                        f"--model_dir={self.path} contains a run with a different configuration "
                        f"({'; '.join(differences)})",
                        f"{resume_remedy(config, content)}, or give another --model_dir",
                    )
                self._check_checkpoints(saved_config)
        self._checked = config

    def _check_checkpoints(self, saved: Config) -> None:
        """Raises UserError if the checkpoints that a run must have saved are missing.

        Args:
          saved: The configuration with which the run was last started.
        """
        if not saved.checkpoint_interval or self.has_checkpoints():
            return
        steps = self._summary_steps
        # A run may start at any iteration (--restore_from). After its first summary, a checkpoint
        # is saved within one interval and one loop.
        longest = saved.checkpoint_interval + saved.steps_per_loop
        if steps and steps[-1] - steps[0] > longest:
            raise UserError(
                f"{self.checkpoints} contains no checkpoint, but {self.metrics} contains summaries "
                f"of iterations {steps[0]} to {steps[-1]}",
                "restore the checkpoints; to start again, delete the run directory or give another "
                "--model_dir",
            )

    def check_once(self, config: Config) -> None:
        """Calls `check` unless it was the last to be called with this configuration."""
        if self._checked != config:
            self.check(config)

    def warn_of_new_start(self) -> None:
        """Warns that training starts again although there are summaries of the run."""
        if last_step := max(self._summary_steps, default=0):
            logging.warning(
                f"--model_dir={self.path} contains summaries up to iteration {last_step} but no "
                "checkpoint — training starts again and replaces the summaries"
            )

    @functools.cached_property
    def _summary_steps(self) -> list[int]:
        """The iterations of the summaries in metrics.jsonl, read at most once."""
        return [step for step, _ in read_log(self.metrics).lines]

    def claim(self, config: Config, data: Any) -> Lock:
        """Creates and locks the directory, and writes config.json and data.json.

        Args:
          config: The configuration of the run.
          data: The content of data.json; see data/data_record.py.

        Returns:
          The lock on the directory.

        Raises:
          UserError: If the directory cannot be written or another process is writing to it.
        """
        lock = Lock(self.owner)
        with self.convert_file_errors("written"):
            for folder in (self.path, self.checkpoints, self.samples):
                tf.io.gfile.makedirs(folder)
            lock.acquire()
            write_object(self.config, config.to_dict())
            write_object(self.data, data)
        self._lock = lock
        return lock

    def check_lock(self) -> None:
        """Raises UserError if `claim` was called and this process no longer holds the lock."""
        if self._lock is not None:
            with self.convert_file_errors("read"):
                self._lock.check()

    def release_lock(self) -> None:
        """Releases the lock if this process holds it."""
        if self._lock is not None:
            self._lock.release()

    def has_checkpoints(self) -> bool:
        """Returns True if there is a checkpoint, complete or not."""
        return bool(list_prefix(posixpath.join(self.checkpoints, "ckpt-")))

    def saved_config(self) -> dict[str, Any] | None:
        """Returns the content of config.json, or None if the file does not exist.

        Raises:
          UserError: If the file is not a valid configuration.
        """
        saved = self._read_config()
        return None if saved is None else saved[0]

    def _read_config(self) -> tuple[dict[str, Any], Config] | None:
        """Returns the content of config.json and its configuration; see `saved_config`."""
        content = read_object(self.config)
        return None if content is None else (content, Config.from_dict(content, origin=self.config))

    def find_run(self) -> dict[str, Any]:
        """Returns the content of config.json of a run.

        Raises:
          UserError: If the directory does not contain a run, or the file is damaged.
        """
        with self.convert_file_errors("read"):
            saved = self.saved_config()
            if saved is None or "train_steps" not in saved:
                raise UserError(
                    f"--model_dir={self.path} contains no run (config.json is missing or is not "
                    "the configuration of a run)",
                    "train a run there, or give the directory of a run",
                )
            return saved

    def convert_file_errors(self, done: str) -> contextlib.AbstractContextManager[None]:
        """Returns a context that converts file errors to a UserError that names the directory.

        Args:
          done: The operation in the error message, "read" or "written".
        """
        return convert_file_errors(
            f"--model_dir={self.path}",
            done,
            "free disk space or check the permissions, or give another directory; then start again",
        )
