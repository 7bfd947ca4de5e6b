"""The files of a run directory, and the checks before a run uses or writes them.

All access is through tf.io.gfile, so the directory may be local, gs:// or ram://.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import posixpath
from typing import Any

import tensorflow as tf
from absl import logging

from ..config import Config
from ..config.resume import resume_remedy
from ..errors import UserError
from .data_record import DataRecord, describe_changes
from .files import convert_file_errors, list_prefix
from .json_files import read_log, read_object, write_object
from .lock import RunLock


class RunDirectory:
    """The files of one run, and the checks before a process writes to them.

    A start of training creates one object and calls `check`, `check_data` and `claim`, in this
    order. The constructor neither reads nor writes files.

    Args:
      path: The run directory; also an attribute.

    Attributes:
      config: The path of config.json, the resolved configuration.
      data: The path of data.json, a `DataRecord`.
      metrics: The path of metrics.jsonl, one object per summary.
      evaluation: The path of evaluation.jsonl, one object per evaluation.
      evaluations: The folder of --mode=evaluate's event files and cached statistics of the data.
      checkpoints: The folder of ckpt-N.*, where N is the number of iterations done.
      events: The folder of TensorBoard's event files.
      samples: The folder of step_NNNNNNNN.png.
      compile: The folder of the reports of --mode=compile, <topology>.json.
      sampled: The folder of the output of --mode=sample.
      scored: The folder of the output of --mode=score.
      exported: The folder of the output of --mode=export.
      wandb, mlflow: The paths of wandb.json and mlflow.json, which name the tracked run.
      owner: The path of owner.json, the lock file; see `RunLock`.
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
        self.scored = posixpath.join(path, "scored")
        self.exported = posixpath.join(path, "exported")
        self.wandb = posixpath.join(path, "wandb.json")
        self.mlflow = posixpath.join(path, "mlflow.json")
        self.owner = posixpath.join(path, "owner.json")
        self._checked: Config | None = None  # the configuration that `check` accepted

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

    def check_data(self, config: Config, data: DataRecord) -> None:
        """Compares the data with the data on which the run was trained.

        Changes that do not prevent training are printed as warnings on stderr. Calls `check` if
        it has not been called with this configuration.

        Raises:
          UserError: If the shape or the number of classes of the data has changed, or `check`
            raises the error.
        """
        if self._checked != config:
            self.check(config)
        with self.convert_file_errors("read"):
            if not self.has_checkpoints():
                self._warn_of_new_start()
                return
            saved = self.saved_data()
        if saved is None:
            return
        for name in ("example_shape", "classes", "condition_size"):
            before, now = getattr(saved, name), getattr(data, name)
            if before != now:
                raise UserError(
                    f"--model_dir={self.path} was trained on data with {name}={before}, but "
                    f"--dataset has {name}={now}",
                    "give the same data as before, or another --model_dir",
                )
        self._warn_of_changes(saved, data.fingerprint)

    def warn_of_other_data(self, fingerprint: dict[str, Any] | None) -> None:
        """Warns on stderr if the run was trained on data with another fingerprint."""
        if saved := self.saved_data():
            self._warn_of_changes(saved, fingerprint)

    def _warn_of_changes(self, saved: DataRecord, fingerprint: dict[str, Any] | None) -> None:
        if changes := describe_changes(saved.fingerprint, fingerprint):
            logging.warning(f"the data differs from the data of --model_dir={self.path}: {changes}")

    def _warn_of_new_start(self) -> None:
        if last_step := max(self._summary_steps, default=0):
            logging.warning(
                f"--model_dir={self.path} contains summaries up to iteration {last_step} but no "
                "checkpoint — training starts again and replaces the summaries"
            )

    @functools.cached_property
    def _summary_steps(self) -> list[int]:
        """The iterations of the summaries in metrics.jsonl, read at most once."""
        return [step for step, _ in read_log(self.metrics).lines]

    def claim(self, config: Config, data: DataRecord) -> RunLock:
        """Creates and locks the directory, and writes config.json and data.json.

        Call `check_data` first, which does not change the directory.

        Returns:
          The lock on the directory.

        Raises:
          UserError: If the directory cannot be written or another process is writing to it.
        """
        lock = RunLock(self.owner)
        with self.convert_file_errors("written"):
            for folder in (self.path, self.checkpoints, self.samples):
                tf.io.gfile.makedirs(folder)
            lock.acquire()
            write_object(self.config, config.to_dict())
            write_object(self.data, dataclasses.asdict(data))
        return lock

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

    def saved_data(self) -> DataRecord | None:
        """Returns the content of data.json, or None if it is missing or damaged.

        A damaged file causes a warning on stderr.
        """
        try:
            saved = read_object(self.data)
            return None if saved is None else DataRecord.from_dict(saved, self.data)
        except UserError as error:
            logging.warning(f"{error.what}; training writes the file again")
            return None

    def find_run(self) -> tuple[dict[str, Any], DataRecord]:
        """Returns the content of config.json and data.json.

        Raises:
          UserError: If the directory does not contain a run, or one of the files is damaged.
        """
        with self.convert_file_errors("read"):
            saved = self.saved_config()
            if saved is None or "train_steps" not in saved:
                raise UserError(
                    f"--model_dir={self.path} contains no run (config.json is missing or is not "
                    "the configuration of a run)",
                    "train a run there, or give the directory of a run",
                )
            return saved, DataRecord.from_dict(read_object(self.data) or {}, self.data)

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
