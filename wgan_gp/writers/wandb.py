"""The writer of runs of Weights & Biases (the extra `wandb`)."""

from __future__ import annotations

import os
import posixpath
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import wandb

from ..run_directory.json_files import read_dataclass, write_object
from .writer import TrackedRun, Writer

_STEP = "iteration"  # the horizontal axis of all charts


class WandbWriter(Writer):
    """A writer of a run of Weights & Biases, which a resumed run continues.

    The variables of W&B, such as WANDB_MODE=offline, WANDB_PROJECT and WANDB_DIR, apply. The
    default project is "wgan-gp".

    Args:
      settings: The settings of the run, by name.
      run_directory: The run directory. Its last part is the name of a new run.
      path: The path of the file that stores the ID of the run.
    """

    def __init__(self, settings: Mapping[str, Any], run_directory: str, path: str):
        self._settings = dict(settings)
        self._name = posixpath.basename(run_directory.rstrip("/"))
        self._path = path
        self._run: Any = None

    def begin(self, step: int) -> None:
        if self._run is not None:  # a rollback
            return
        saved = read_dataclass(TrackedRun, self._path)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "wgan-gp"),
            id=saved.run_id if saved else None,
            name=None if saved else os.environ.get("WANDB_NAME", self._name),
            resume="allow",
            config=self._settings,
            allow_val_change=True,
        )
        if saved is None:
            write_object(self._path, TrackedRun(self._run.id))
        # W&B's own steps only increase, but iterations are repeated after a rollback or a resume.
        self._run.define_metric(_STEP)
        self._run.define_metric("*", step_metric=_STEP)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._log(step, values)

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        self._log(step, {tag: wandb.Image(image)})

    def histogram(self, step: int, tag: str, values: np.ndarray) -> None:
        self._log(step, {tag: wandb.Histogram(values)})

    def text(self, step: int, tag: str, text: str) -> None:
        self._log(step, {tag: text})

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        self._log(step, values)

    def close(self) -> None:
        if self._run is not None:
            # W&B shows a run as failed if an error is propagating.
            self._run.finish(exit_code=int(sys.exc_info()[0] is not None))
            self._run = None

    def _log(self, step: int, values: Mapping[str, Any]) -> None:
        self._run.log({**values, _STEP: step})
