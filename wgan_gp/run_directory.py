"""The paths of a run directory, and checks that it belongs to the run.

All access is through tf.io.gfile, so the directory may be local, gs:// or ram://.
"""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
import sys
from typing import Any

import tensorflow as tf

from .config import Config
from .config.resume import resume_remedy
from .data.fingerprint import describe_changes
from .errors import UserError
from .files import convert_file_errors, list_prefix
from .json_files import read_log, read_object, write_object
from .ownership import RunLock


@dataclasses.dataclass(frozen=True)
class DataRecord:
    """The content of data.json: the shape of the data and its identity.

    Attributes:
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      classes: The number of classes of a conditional run; 0 for an unconditional run.
      order: The version of the order in which the examples are read. None if the dataset
        generates its examples.
      fingerprint: The fingerprint of the data's files; see data/fingerprint.py. None if unknown.
    """

    example_shape: tuple[int, ...]
    classes: int
    order: int | None = None
    fingerprint: dict[str, Any] | None = None

    @classmethod
    def from_dict(cls, saved: dict[str, Any], path: str) -> DataRecord:
        """Returns the record for the JSON object `saved`, which was read from `path`.

        Raises:
          UserError: If `saved` is not a valid record.
        """
        shape, classes = saved.get("example_shape"), saved.get("classes")
        order, fingerprint = saved.get("order"), saved.get("fingerprint")
        if not (
            isinstance(shape, list)
            and len(shape) in (1, 3)
            and all(type(size) is int and 0 < size < 2**31 for size in shape)
            and isinstance(classes, int)
            and 0 <= classes < 2**31
            and isinstance(order, int | None)
            and isinstance(fingerprint, dict | None)
        ):
            raise UserError(
                f"{path} is missing or damaged",
                "start the run's training once more, which writes it",
            )
        return cls(tuple(shape), classes, order, fingerprint)


class RunDirectory:
    """The paths of one run, and the checks before a process writes to them.

    Attributes:
      path: The run directory.
      config: The file config.json, the resolved configuration.
      data: The file data.json, a `DataRecord`.
      metrics: The file metrics.jsonl, one object per summary.
      evaluation: The file evaluation.jsonl, one object per evaluation.
      evaluations: The folder of --mode=evaluate's event files and cached statistics of the data.
      checkpoints: The folder of ckpt-N.*, where N is the number of iterations done.
      events: The folder of TensorBoard's event files.
      samples: The folder of step_NNNNNNNN.png.
      compile: The folder of the reports of --mode=compile, <topology>.json.
      sampled: The folder of the output of --mode=sample.
      exported: The folder of the output of --mode=export.
      owner: The file owner.json, which names the process that writes to the directory. It is
        deleted when training ends.
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
        """Raises UserError if the directory holds a run that `config` cannot continue.

        This is the case if the run has an incompatible configuration, or if its configuration or
        its checkpoints are missing.
        """
        with self.convert_file_errors("read"):
            saved = self.saved_config()
            if saved is None and self._has_checkpoints():
                raise UserError(
                    f"{self.config} is missing beside checkpoints, so nobody knows whose they are",
                    "restore it or give another --model_dir",
                )
            if saved is None:
                return
            if differences := config.differences(saved):
                raise UserError(
                    f"--model_dir={self.path} holds a run of another configuration "
                    f"({'; '.join(differences)})",
                    f"{resume_remedy(config, saved)}, or give another --model_dir",
                )
            self._check_checkpoints(Config.from_dict(saved, origin=self.config))

    def _check_checkpoints(self, saved: Config) -> None:
        """Raises UserError if the checkpoints that a run must have saved are missing.

        Args:
          saved: The configuration with which the run was last started.
        """
        if not saved.checkpoint_interval or self._has_checkpoints():
            return
        steps = [step for step, _ in read_log(self.metrics).lines]
        # A run may begin at any iteration (--restore_from). From its first summary on, a checkpoint
        # is saved within an interval and a loop.
        longest = saved.checkpoint_interval + saved.steps_per_loop
        if steps and steps[-1] - steps[0] > longest:
            raise UserError(
                f"{self.checkpoints} holds no checkpoint, but {self.metrics} holds summaries of "
                f"the iterations {steps[0]} to {steps[-1]}",
                "restore the checkpoints; to start again, delete the run directory or give another "
                "--model_dir",
            )

    def check_data(self, config: Config, data: DataRecord) -> None:
        """Calls `check` and compares the data with the data that the run was trained on.

        Changes that do not prevent training are printed as warnings on stderr.

        Raises:
          UserError: If `check` raises it, or the shape or the number of classes of the data has
            changed.
        """
        self.check(config)
        with self.convert_file_errors("read"):
            if not self._has_checkpoints():
                self._warn_of_a_new_start()
                return
            saved = self.saved_data()
        if saved is None:
            return
        for name in ("example_shape", "classes"):
            before, now = getattr(saved, name), getattr(data, name)
            if before != now:
                raise UserError(
                    f"--model_dir={self.path} was trained on data with {name}={before}, and "
                    f"--dataset has {now}",
                    "give the data it was trained on, or another --model_dir",
                )
        if saved.order != data.order:
            _warn(
                f"--model_dir={self.path} was started by a version that read the examples in "
                "another order — it continues in the new order; a run started from scratch will "
                "give different results"
            )
        self._warn_of_changes(saved, data.fingerprint)

    def warn_of_other_data(self, fingerprint: dict[str, Any] | None) -> None:
        """Warns on stderr if the run was trained on data with another fingerprint."""
        if saved := self.saved_data():
            self._warn_of_changes(saved, fingerprint)

    def _warn_of_changes(self, saved: DataRecord, fingerprint: dict[str, Any] | None) -> None:
        if changes := describe_changes(saved.fingerprint, fingerprint):
            _warn(f"the data is not what --model_dir={self.path} was trained on: {changes}")

    def _warn_of_a_new_start(self) -> None:
        if last_step := read_log(self.metrics).last_step:
            _warn(
                f"--model_dir={self.path} holds summaries up to iteration {last_step} but no "
                "checkpoint of its own: training starts again and replaces the summaries"
            )

    def claim(self, config: Config, data: DataRecord) -> RunLock:
        """Creates and locks the directory, and writes config.json and data.json.

        Call `check_data` first, which changes nothing in the directory.

        Returns:
          The lock on the directory.

        Raises:
          UserError: If the directory cannot be written or another process is writing to it.
        """
        owner = RunLock(self.owner)
        with self.convert_file_errors("written"):
            for folder in (self.path, self.checkpoints, self.samples):
                tf.io.gfile.makedirs(folder)
            owner.acquire()
            write_object(self.config, config.to_dict())
            write_object(self.data, dataclasses.asdict(data))
        return owner

    def _has_checkpoints(self) -> bool:
        return bool(list_prefix(posixpath.join(self.checkpoints, "ckpt-")))

    def saved_config(self) -> dict[str, Any] | None:
        """Returns the content of config.json, or None if the file does not exist.

        Raises:
          UserError: If the file is not a valid configuration.
        """
        saved = read_object(self.config)
        if saved is not None:
            Config.from_dict(saved, origin=self.config)
        return saved

    def saved_data(self) -> DataRecord | None:
        """Returns the content of data.json, or None if it is missing or damaged.

        A damaged file causes a warning on stderr.
        """
        try:
            saved = read_object(self.data)
            return None if saved is None else DataRecord.from_dict(saved, self.data)
        except UserError as error:
            _warn(f"{error.what}; it is written anew")
            return None

    def find_run(self) -> tuple[dict[str, Any], DataRecord]:
        """Returns the content of config.json and data.json.

        Raises:
          UserError: If the directory does not hold a run, or one of the files is damaged.
        """
        with self.convert_file_errors("read"):
            saved = self.saved_config()
            if saved is None or "train_steps" not in saved:
                raise UserError(
                    f"--model_dir={self.path} holds no run (no config.json of one)",
                    "train one there, or give the directory of one",
                )
            return saved, DataRecord.from_dict(read_object(self.data) or {}, self.data)

    def convert_file_errors(self, done: str) -> contextlib.AbstractContextManager[None]:
        """Returns a context that turns file errors into a UserError that names the directory.

        Args:
          done: The operation in the error message, "read" or "written".
        """
        return convert_file_errors(
            f"--model_dir={self.path}",
            done,
            "make room there, or give a directory you may write to; then start again",
        )


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr)
