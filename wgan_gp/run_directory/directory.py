"""The files of a run directory, and the checks before a run writes them.

All access is through tf.io.gfile, so the directory may be local, gs:// or ram://.
"""

from __future__ import annotations

import contextlib
import functools
import posixpath
from typing import Any

import tensorflow as tf
from absl import logging

from ..errors import UserError
from .files import convert_file_errors, list_prefix
from .json_files import read_log, write_object
from .lock import Lock

BEST = "best"  # the folder of the checkpoint of --keep_best, in that of the checkpoints


class RunDirectory:
    """The files of one run, and the checks before a process writes to them.

    A start of training calls `check_resume` of app/saved_run.py, `check_data` of
    data/data_record.py, and `claim`, in this order. The constructor neither reads nor writes files.

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
      checked: The configuration that `check_resume` has accepted; None before.
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
        self.checked: Any = None
        self._lock: Lock | None = None

    def check_checkpoints(self, longest: int) -> None:
        """Raises UserError if the checkpoints that a run must have saved are missing.

        Args:
          longest: The largest number of iterations from the first summary to the first checkpoint.
            A run may start at any iteration (--restore_from).
        """
        if self.has_checkpoints():
            return  # without reading the summaries
        steps = self._summary_steps
        if steps and steps[-1] - steps[0] > longest:
            raise UserError(
                f"{self.checkpoints} contains no checkpoint, but {self.metrics} contains summaries "
                f"of iterations {steps[0]} to {steps[-1]}",
                "restore the checkpoints; to start again, delete the run directory or give another "
                "--model_dir",
            )

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

    def claim(self, config: Any, data: Any) -> Lock:
        """Creates and locks the directory, and writes config.json and data.json.

        Args:
          config: The configuration of the run.
          data: The record of its data.

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
            write_object(self.config, config)
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
