"""The run directory: where its files are, and that it belongs to this run.

Only tf.io.gfile touches it, so it may be local, gs:// or ram://.
"""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
import sys
from typing import Any

import tensorflow as tf

from .config import Config
from .data.fingerprint import describe_changes
from .errors import UserError
from .files import paths_starting_with, reporting
from .json_files import read_log, read_object, write_object
from .ownership import Ownership


@dataclasses.dataclass(frozen=True)
class DataRecord:
    """What data.json holds: what the networks know of the data, and which data it was.

    Attributes:
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      classes: of a conditional run; 0 of any other.
      order: the version of the order in which the examples are read; None: they have none.
      fingerprint: see data/fingerprint.py; None: nothing is known of the files.
    """

    example_shape: tuple[int, ...]
    classes: int
    order: int | None = None
    fingerprint: dict[str, Any] | None = None

    @classmethod
    def from_dict(cls, saved: dict[str, Any], path: str) -> DataRecord:
        """Raises UserError unless `saved`, of the file `path`, is such a record."""
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
                f"{path} is not there, or damaged",
                "start the run's training once more, which writes it",
            )
        return cls(tuple(shape), classes, order, fingerprint)


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
        """Raises UserError if the directory holds a run that `config` does not continue.

        Either the run has another configuration, or its checkpoints are gone.
        """
        with self.reporting("read"):
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
                    f"{config.way_to_continue(saved)}, or give another --model_dir",
                )
            self._check_checkpoints(saved.get("checkpoint_interval", config.checkpoint_interval))

    def _check_checkpoints(self, interval: int) -> None:
        """Raises UserError if a run that saved checkpoints has none left.

        Args:
          interval: of the checkpoints when the run was last started; 0: only at the end.
        """
        trained_to = read_log(self.metrics).last_step
        # Of one iteration, the summary is written before the checkpoint.
        if 0 < interval < trained_to and not self._has_checkpoints():
            raise UserError(
                f"{self.checkpoints} holds no checkpoint, but {self.metrics} says that the run was "
                f"trained for {trained_to} iterations",
                "restore the checkpoints; to start again, delete the run directory or give another "
                "--model_dir",
            )

    def check_data(self, config: Config, data: DataRecord) -> None:
        """As `check`, once the data is known; what has changed is a warning on stderr.

        Raises:
          UserError: see `check`; or the networks do not suit the data any more.
        """
        self.check(config)
        with self.reporting("read"):
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
        """Says on stderr if the run was trained on other data than that of this fingerprint."""
        if saved := self.saved_data():
            self._warn_of_changes(saved, fingerprint)

    def _warn_of_changes(self, saved: DataRecord, fingerprint: dict[str, Any] | None) -> None:
        if changes := describe_changes(saved.fingerprint, fingerprint):
            _warn(f"the data is not what --model_dir={self.path} was trained on: {changes}")

    def _warn_of_a_new_start(self) -> None:
        if trained_to := read_log(self.metrics).last_step:
            _warn(
                f"--model_dir={self.path} was trained for {trained_to} iterations and holds no "
                "checkpoint: training starts again, and replaces its curves"
            )

    def claim(self, config: Config, data: DataRecord) -> Ownership:
        """Makes the directory, this process's own, and writes config.json and data.json.

        Nothing in the directory is changed before; see `check_data`, which comes first.

        Raises:
          UserError: it cannot be written; or another process is writing it.
        """
        owner = Ownership(self.owner)
        with self.reporting("written"):
            for folder in (self.path, self.checkpoints, self.samples):
                tf.io.gfile.makedirs(folder)
            owner.claim()
            write_object(self.config, config.to_dict())
            write_object(self.data, dataclasses.asdict(data))
        return owner

    def _has_checkpoints(self) -> bool:
        return bool(paths_starting_with(posixpath.join(self.checkpoints, "ckpt-")))

    def saved_config(self) -> dict[str, Any] | None:
        """What config.json holds, or None where there is none.

        Raises:
          UserError: it is there, but is no saved configuration.
        """
        saved = read_object(self.config)
        if saved is not None:
            Config.from_dict(saved, origin=self.config)
        return saved

    def saved_data(self) -> DataRecord | None:
        """What data.json holds; None where there is none, or a damaged one, which a line says."""
        try:
            saved = read_object(self.data)
            return None if saved is None else DataRecord.from_dict(saved, self.data)
        except UserError as error:
            _warn(f"{error.what}; it is written anew")
            return None

    def find_run(self) -> tuple[dict[str, Any], DataRecord]:
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
            return saved, DataRecord.from_dict(read_object(self.data) or {}, self.data)

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


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr)
