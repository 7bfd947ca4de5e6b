"""The writer of runs of MLflow (the extra `mlflow`)."""

from __future__ import annotations

import os
import posixpath
import sys
import time
from collections.abc import Mapping
from typing import Any

import mlflow
import numpy as np
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from ..errors import UserError
from ..run_directory.json_files import read_dataclass, write_object
from .writer import TrackedRun, Writer


class MlflowWriter(Writer):
    """A writer of a run of MLflow, which a resumed run continues.

    The variables of MLflow, such as MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME, apply. The
    default experiment is "wgan-gp". MLflow has no histograms, so they are not written.

    Args:
      settings: The settings of the run, by name.
      run_directory: The run directory. Its last part is the name of a new run.
      path: The path of the file that stores the ID of the run.
    """

    def __init__(self, settings: Mapping[str, Any], run_directory: str, path: str):
        self._settings = {name: str(value) for name, value in settings.items()}
        self._name = posixpath.basename(run_directory.rstrip("/"))
        self._path = path
        self._client = mlflow.MlflowClient()
        self._run_id: str | None = None

    def begin(self, step: int) -> None:
        if self._run_id is not None:  # a rollback
            return
        saved = read_dataclass(TrackedRun, self._path)
        if saved is not None:
            self._resume(saved.run_id)
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "wgan-gp")
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        run = self._client.create_run(experiment, run_name=self._name)
        self._run_id = run.info.run_id
        write_object(self._path, TrackedRun(self._run_id))
        self._write_settings({})

    def _resume(self, run_id: str) -> None:
        try:
            run = self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            raise UserError(
                f"{self._path} names the run {run_id}, which is not in MLflow's store "
                f"{mlflow.get_tracking_uri()}",
                "set MLFLOW_TRACKING_URI as before, or delete the file to begin another run",
            ) from error
        self._run_id = run_id
        self._client.update_run(run_id, status="RUNNING")
        self._write_settings(run.data.params)

    def _write_settings(self, known: Mapping[str, str]) -> None:
        """Writes settings as parameters, or as tags if the run has other parameters already.

        MLflow does not allow another value of a parameter, but some settings may change on a
        resume.
        """
        new = {name: value for name, value in self._settings.items() if name not in known}
        changed = {
            name: value
            for name, value in self._settings.items()
            if name in known and value != known[name]
        }
        self._client.log_batch(
            self._run_id,
            params=[Param(name, value) for name, value in new.items()],
            tags=[RunTag(name, value) for name, value in changed.items()],
        )

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        now = time.time_ns() // 1_000_000
        metrics = [Metric(tag, float(value), now, step) for tag, value in values.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        # MLflow takes images of one channel without the axis of channels.
        pixels = image[..., 0] if image.shape[-1] == 1 else image
        self._client.log_image(self._run_id, pixels, key=tag, step=step)

    def text(self, step: int, tag: str, text: str) -> None:
        self._client.set_tag(self._run_id, tag, text)
        self._client.log_text(self._run_id, text, f"{tag}/step_{step:08d}.txt")

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        self.scalars(step, values)

    def close(self) -> None:
        if self._run_id is not None:
            # MLflow shows a run as failed if an error is propagating.
            status = "FINISHED" if sys.exc_info()[0] is None else "FAILED"
            self._client.set_terminated(self._run_id, status)
            self._run_id = None
