"""Hooks that follow a metric of the evaluations: keep the best checkpoint, stop early.

What they remember is saved with each checkpoint, so a resumed run decides as an uninterrupted one.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping

from ..config.ranking import is_maximized
from ..errors import UserError
from .checkpoint_files import delete, list_checkpoints
from .checkpointing import Checkpoints
from .hooks import Hook, LoopResult


class ImprovementHook(Hook):
    """Compares a metric of each evaluation with its best value so far.

    A value that is NaN or infinite is no improvement.

    Args:
      flag: The name of the flag, under which the state is remembered.
      metric: The metric, a member of `config.ranking.RANKING`.
      checkpoints: The checkpoints of the run.
    """

    def __init__(self, flag: str, metric: str, checkpoints: Checkpoints):
        self._flag = flag
        self._metric = metric
        self._checkpoints = checkpoints

    def after_evaluation(self, iteration: int, metrics: Mapping[str, float]) -> None:
        value = metrics.get(f"evaluation/{self._metric}")
        if value is None:
            found = [tag.partition("/")[2] for tag in metrics]
            raise UserError(
                f"--{self._flag}: the evaluations of this run have no {self._metric}",
                f"use another metric, of {', '.join(found)}",
            )
        if self._is_better(float(value)):
            self._remember("value", float(value))
            self._remember("iteration", iteration)
            self.after_improvement(iteration)
        else:
            self.after_failure()

    def after_improvement(self, iteration: int) -> None:
        """Acts after an evaluation with the best value so far."""

    def after_failure(self) -> None:
        """Acts after any other evaluation."""

    def reads_state(self, loop: LoopResult) -> bool:
        return False  # only in `after_evaluation`, for which the state has been read

    def _is_better(self, value: float) -> bool:
        best = self._recall("value")
        if not math.isfinite(value) or best is None:
            return math.isfinite(value)
        return value > best if is_maximized(self._metric) else value < best

    def _recall(self, name: str) -> float | None:
        return self._checkpoints.memory.get(f"{self._flag}/{self._metric}/{name}")

    def _remember(self, name: str, value: float) -> None:
        self._checkpoints.memory[f"{self._flag}/{self._metric}/{name}"] = value


class KeepBestHook(ImprovementHook):
    """Keeps the checkpoint with the best value of a metric in a folder of its own.

    Args:
      metric: See `ImprovementHook`.
      checkpoints: See `ImprovementHook`.
      best: The checkpoints of the same state in that folder.
      writes: Whether this process writes checkpoints.
    """

    def __init__(self, metric: str, checkpoints: Checkpoints, best: Checkpoints, *, writes: bool):
        super().__init__("keep_best", metric, checkpoints)
        self._best = best
        self._writes = writes

    def after_improvement(self, iteration: int) -> None:
        self._best.memory = dict(self._checkpoints.memory)
        self._best.save()
        if self._writes:  # the older one, and a newer one of before a resume from an older state
            for number in set(list_checkpoints(self._best.directory)) - {iteration}:
                delete(posixpath.join(self._best.directory, f"ckpt-{number}"))


class EarlyStopHook(ImprovementHook):
    """Ends training after a number of evaluations without improvement.

    Args:
      metric: See `ImprovementHook`.
      patience: The number of evaluations.
      checkpoints: See `ImprovementHook`.
    """

    def __init__(self, metric: str, patience: int, checkpoints: Checkpoints):
        super().__init__("stop_early", metric, checkpoints)
        self._patience = patience

    def after_improvement(self, iteration: int) -> None:
        self._remember("failures", 0)

    def after_failure(self) -> None:
        self._remember("failures", self._failures + 1)

    def reason_to_stop(self) -> str | None:
        if self._failures < self._patience:
            return None
        best, iteration = self._recall("value"), self._recall("iteration")
        known = "" if best is None else f" (best: {best:.4g} after {int(iteration or 0)})"
        return (
            f"{self._metric} has not improved in {self._failures} evaluations{known}; a larger "
            "number in --stop_early continues"
        )

    @property
    def _failures(self) -> int:
        return int(self._recall("failures") or 0)
