"""The hooks of a run: summaries, samples, evaluations, checkpoints, profiles."""

from __future__ import annotations

import dataclasses
import time
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ..config import AugmentationSettings, settings_with
from ..data.spec import KINDS
from ..inference.pictures import make_sample_images, real_images
from ..training.checkpoint_files import is_empty
from ..training.diagnosis import DiagnosisMonitor
from ..training.hooks import Hook, IntervalHook, LoopResult, crossed
from ..training.probe import CriticProbe
from ..training.schedules import learning_rates
from ..writers.writer import Writer
from .build import make_objective
from .run import Run

if typing.TYPE_CHECKING:
    from ..evaluation.evaluator import Evaluator


class WritingHook(IntervalHook):
    """The base class of hooks that write at an interval, if the run still has its lock."""

    def __init__(self, run: Run, interval: int):
        super().__init__(interval)
        self._run = run

    def after_loop(self, loop: LoopResult) -> None:
        if loop.is_due(self._interval):
            self._run.directory.check_lock()
            self.act(loop)


def can_augment(settings: AugmentationSettings, example_shape: Sequence[int]) -> bool:
    """Returns True if --augment would apply to a run, which has none."""
    kinds = settings_with("requires", settings)["augment"]["data"]
    return settings.augment == "none" and KINDS[len(example_shape)] in kinds


class SummaryHook(WritingHook):
    """Writes the scalars of training and the diagnosis of the run.

    Args:
      run: The run.
      writer: Receives the scalars.
      probe: Computes diagnostics of the critic.

    Attributes:
      last_diagnosis: The last diagnosis since the program started, also before a rollback.
    """

    last_diagnosis: str | None = None

    def __init__(self, run: Run, writer: Writer, probe: CriticProbe):
        super().__init__(run, run.config.summary_interval)
        self._writer = writer
        self._probe = probe
        self._monitor = DiagnosisMonitor.of_objective(
            make_objective(run.config, run.library),
            can_augment=can_augment(run.config, run.dataset.spec.example_shape),
        )
        self._diagnosis: str | None = None
        self._timer = IntervalTimer(time.perf_counter())

    def begin(self, iteration: int) -> None:
        self._timer = IntervalTimer(time.perf_counter())
        self._monitor.reset()
        self._diagnosis = None  # the writers may have deleted what was written after this iteration

    def after_loop(self, loop: LoopResult) -> None:
        self._timer.add(loop)
        super().after_loop(loop)

    def act(self, loop: LoopResult) -> None:
        now, step = time.perf_counter(), loop.iteration
        rates = self._learning_rates(step)
        values = {**loop.terms, **self._timer.scalars(now), **rates}
        self._timer = IntervalTimer(now)
        probability = self._run.state.augment_probability
        if probability is not None:
            values["augment/probability"] = float(probability.numpy())
        diagnostics = self._probe()
        values |= diagnostics.scalars()
        self._writer.scalars(step, values)
        if diagnostics.gradient_norms is not None:
            self._writer.histogram(step, "probe/gradient_norms", diagnostics.gradient_norms)
        self._write_diagnosis(step, values)

    def _learning_rates(self, step: int) -> dict[str, float]:
        """Returns the rates of the last iteration, or of the next one for optimizers of Python."""
        if self._run.library.optimizers is None:
            return learning_rates(self._run.config, step - 1)
        state = self._run.state
        named = {"critic": state.critic_optimizer, "generator": state.generator_optimizer}
        return {
            f"{name}/learning_rate": float(np.array(optimizer.learning_rate))
            for name, optimizer in named.items()
        }

    def _write_diagnosis(self, step: int, values: Mapping[str, float]) -> None:
        """Writes the diagnosis of the run if it differs from the previous one."""
        diagnosis = self._monitor.update(values)
        if diagnosis is None:
            return
        self.last_diagnosis = str(diagnosis)
        if diagnosis.name != self._diagnosis:
            self._diagnosis = diagnosis.name
            self._writer.text(step, "diagnosis", self.last_diagnosis)


class SampleHook(WritingHook):
    """Writes images of samples, and once, before the first iteration, images of real examples.

    Args:
      run: The run, whose samples have fixed noise.
      writer: Receives the images.
    """

    def __init__(self, run: Run, writer: Writer):
        super().__init__(run, run.config.sample_interval)
        self._writer = writer
        self._data = run.data
        if run.dataset.spec.table is not None and run.sampler.classes:
            # A conditional run is trained on rows with rare categories more often.
            self._data = run.dataset.open(batch_size=run.config.batch_size, plain=True)
        self._sample_images = make_sample_images(run.sampler, self._data, run.dataset.spec.units)
        self._has_begun = False

    def begin(self, iteration: int) -> None:
        if iteration == 0 and not self._has_begun:
            self._write(0, real_images(self._data, self._run.dataset.spec.units))
        self._has_begun = True

    def act(self, loop: LoopResult) -> None:
        self._write(loop.iteration, self._sample_images())

    def _write(self, step: int, images: Mapping[str, np.ndarray]) -> None:
        for tag, image in images.items():
            self._writer.image(step, tag, image)


class EvaluationHook(WritingHook):
    """Writes evaluations of the samples, also when training stops at --stop_step.

    Args:
      run: The run.
      writer: Receives the evaluations.
      evaluator: Evaluates the samples of the run.
      hooks: All hooks, which receive the metrics.
    """

    def __init__(self, run: Run, writer: Writer, evaluator: Evaluator, hooks: Sequence[Hook]):
        super().__init__(run, run.config.evaluate_interval)
        self._writer = writer
        self._evaluator = evaluator
        self._hooks = hooks

    def after_loop(self, loop: LoopResult) -> None:
        super().after_loop(self._with_stop(loop))

    def reads_state(self, loop: LoopResult) -> bool:
        return super().reads_state(self._with_stop(loop))

    def _with_stop(self, loop: LoopResult) -> LoopResult:
        return dataclasses.replace(loop, is_last=loop.is_last or loop.stops)

    def act(self, loop: LoopResult) -> None:
        metrics = self._evaluator.evaluate()
        self._writer.evaluation(loop.iteration, metrics)
        # An uninterrupted run has no evaluation at --stop_step, which must not decide anything.
        is_complete = loop.iteration >= self._run.config.train_steps
        if is_complete or crossed(self._interval, loop.before, loop.iteration):
            for hook in self._hooks:
                hook.after_evaluation(loop.iteration, metrics)


class CheckpointHook(WritingHook):
    """Saves checkpoints, also after the last iteration before a signal."""

    def __init__(self, run: Run):
        super().__init__(run, run.config.checkpoint_interval)
        self._checkpoints = run.checkpoints

    def act(self, loop: LoopResult) -> None:
        self._checkpoints.save()

    def end(self, iteration: int) -> None:
        # A state of --restore_from that has enough iterations is saved without training.
        checkpoints = self._checkpoints
        if checkpoints.last_iteration < iteration or is_empty(checkpoints.directory):
            self._run.directory.check_lock()
            checkpoints.save()


class ProfileHook(Hook):
    """Writes TensorBoard's profile of one loop after those that compile and warm up.

    Args:
      last: The last iteration, whose loop is profiled if there are no more loops.
      directory: The directory of TensorBoard's event files.
      profiler: Has `start(directory)` and `stop()`. None: the profiler of TensorFlow.
    """

    _LOOP = 3  # the loop that is profiled

    def __init__(self, last: int, directory: str, profiler: Any = None):
        self._last = last
        self._directory = directory
        self._profiler = profiler or tf.profiler.experimental
        self._loops = 0
        self._running = False

    def before_loop(self, iteration: int, count: int) -> None:
        self._loops += 1
        is_last = self._loops < self._LOOP and iteration + count >= self._last
        # After a rollback, the loop that was profiled has no end of its own.
        if not self._running and (self._loops == self._LOOP or is_last):
            self._profiler.start(self._directory)
            self._running = True

    def after_loop(self, loop: LoopResult) -> None:
        self.close()

    def close(self) -> None:
        if self._running:
            self._running = False
            self._profiler.stop()
            logging.info(
                f"wrote a profile to {self._directory}; after `pip install "
                "tensorboard-plugin-profile`, TensorBoard shows it in the tab Profile"
            )

    def reads_state(self, loop: LoopResult) -> bool:
        return False


@dataclasses.dataclass
class IntervalTimer:
    """Measures how the time since the last summary was spent.

    Attributes:
      since: The beginning of the interval, in seconds.
      images: The number of real images trained on.
      in_loop: Seconds in loops, including compilation.
      waiting: Seconds in loops in which the device waited for data.
    """

    since: float
    images: int = 0
    in_loop: float = 0.0
    waiting: float = 0.0

    def add(self, loop: LoopResult) -> None:
        """Adds a loop to the interval."""
        self.images += loop.images
        self.in_loop += loop.seconds
        self.waiting += loop.waited

    def scalars(self, now: float) -> dict[str, float]:
        """Returns images per second and the shares of time waiting and outside loops."""
        elapsed = now - self.since
        return {
            "throughput/images_per_second": self.images / elapsed,
            "throughput/data_wait_share": self.waiting / elapsed,
            "throughput/host_share": max(0.0, 1 - self.in_loop / elapsed),
        }
