"""The hooks of a run: summaries, samples, evaluations, checkpoints, profiles."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from ..run_directory.lock import RunLock
from ..writers.writer import Writer
from .checkpoint_files import is_empty
from .checkpointing import Checkpoints
from .health import HealthMonitor
from .hooks import Hook, IntervalHook, LoopResult
from .probe import CriticDiagnostics

Images = Mapping[str, np.ndarray]  # uint8 [H, W, C], by tag


class BeginHook(Hook):
    """Calls a function with the iteration at the start and after each rollback.

    Args:
      function: Raises UserError to end the run.
    """

    def __init__(self, function: Callable[[int], None]):
        self._function = function

    def begin(self, iteration: int) -> None:
        self._function(iteration)


class LockHook(Hook):
    """Checks the lock on the run directory at the start and after a rollback, and releases it."""

    def __init__(self, lock: RunLock):
        self._lock = lock

    def begin(self, iteration: int) -> None:
        self._lock.check()

    def close(self) -> None:
        self._lock.release()


class ProgressHook(Hook):
    """Tells a writer about the start, the progress and the end of training."""

    def __init__(self, writer: Writer):
        self._writer = writer

    def begin(self, iteration: int) -> None:
        self._writer.begin(iteration)

    def after_loop(self, loop: LoopResult) -> None:
        self._writer.progress(loop.iteration)

    def close(self) -> None:
        self._writer.close()


class SummaryHook(IntervalHook):
    """Writes the scalars of training and the condition of the run.

    Args:
      interval: See `IntervalHook`.
      writer: Receives the scalars.
      learning_rates: (index of an iteration) -> the learning rates in it, by tag.
      diagnose: () -> diagnostics of the critic.
      monitor: Diagnoses the run from the summaries.
      check_lock: See `IntervalHook`.
    """

    def __init__(
        self,
        interval: int,
        writer: Writer,
        *,
        learning_rates: Callable[[int], Mapping[str, float]],
        diagnose: Callable[[], CriticDiagnostics],
        monitor: HealthMonitor,
        check_lock: Callable[[], None] | None = None,
    ):
        super().__init__(interval, check_lock=check_lock)
        self._writer = writer
        self._learning_rates = learning_rates
        self._diagnose = diagnose
        self._monitor = monitor
        self._condition: str | None = None
        self._timer = IntervalTimer(time.perf_counter())

    def begin(self, iteration: int) -> None:
        self._timer = IntervalTimer(time.perf_counter())
        self._monitor.reset()

    def after_loop(self, loop: LoopResult) -> None:
        self._timer.add(loop)
        super().after_loop(loop)

    def act(self, loop: LoopResult) -> None:
        now, step = time.perf_counter(), loop.iteration
        values = {**loop.terms, **self._timer.scalars(now), **self._learning_rates(step - 1)}
        self._timer = IntervalTimer(now)
        diagnostics = self._diagnose()
        values |= diagnostics.scalars()
        self._writer.scalars(step, values)
        if diagnostics.gradient_norms is not None:
            self._writer.histogram(step, "probe/gradient_norms", diagnostics.gradient_norms)
        self._write_condition(step, values)

    def _write_condition(self, step: int, values: Mapping[str, float]) -> None:
        """Writes the condition of the run if it differs from the previous one."""
        diagnosis = self._monitor.update(values)
        if diagnosis is not None and diagnosis.name != self._condition:
            self._condition = diagnosis.name
            self._writer.text(step, "verdict", str(diagnosis))


class SampleHook(IntervalHook):
    """Writes images of samples, and once, before the first iteration, images of real examples.

    Args:
      interval: See `IntervalHook`.
      writer: Receives the images.
      sample_images: () -> images of samples from fixed noise.
      real_images: () -> images of real examples.
      check_lock: See `IntervalHook`.
    """

    def __init__(
        self,
        interval: int,
        writer: Writer,
        *,
        sample_images: Callable[[], Images],
        real_images: Callable[[], Images] = dict,
        check_lock: Callable[[], None] | None = None,
    ):
        super().__init__(interval, check_lock=check_lock)
        self._writer = writer
        self._sample_images = sample_images
        self._real_images = real_images
        self._has_begun = False

    def begin(self, iteration: int) -> None:
        if iteration == 0 and not self._has_begun:
            self._write(0, self._real_images())
        self._has_begun = True

    def act(self, loop: LoopResult) -> None:
        self._write(loop.iteration, self._sample_images())

    def _write(self, step: int, images: Images) -> None:
        for tag, image in images.items():
            self._writer.image(step, tag, image)


class EvaluationHook(IntervalHook):
    """Writes evaluations of the samples, also when training stops at --stop_step.

    Args:
      interval: See `IntervalHook`.
      writer: Receives the evaluations.
      evaluate: () -> metrics of the samples, by tag.
      check_lock: See `IntervalHook`.
    """

    def __init__(
        self,
        interval: int,
        writer: Writer,
        evaluate: Callable[[], Mapping[str, float]],
        *,
        check_lock: Callable[[], None] | None = None,
    ):
        super().__init__(interval, check_lock=check_lock)
        self._writer = writer
        self._evaluate = evaluate

    def after_loop(self, loop: LoopResult) -> None:
        super().after_loop(dataclasses.replace(loop, is_last=loop.is_last or loop.stops))

    def act(self, loop: LoopResult) -> None:
        self._writer.evaluation(loop.iteration, self._evaluate())


class CheckpointHook(IntervalHook):
    """Saves checkpoints, also after the last iteration before a signal.

    Args:
      interval: See `IntervalHook`.
      checkpoints: Saves the state.
      save_at_start: Whether to save the initial state if there is no checkpoint, so that a
        rollback has one.
      check_lock: See `IntervalHook`.
    """

    def __init__(
        self,
        interval: int,
        checkpoints: Checkpoints,
        *,
        save_at_start: bool = False,
        check_lock: Callable[[], None] | None = None,
    ):
        super().__init__(interval, check_lock=check_lock)
        self._checkpoints = checkpoints
        self._save_at_start = save_at_start

    def begin(self, iteration: int) -> None:
        if self._save_at_start and is_empty(self._checkpoints.directory):
            self._save()

    def act(self, loop: LoopResult) -> None:
        self._checkpoints.save()

    def end(self, iteration: int) -> None:
        # A state of --restore_from that has enough iterations is saved without training.
        checkpoints = self._checkpoints
        if checkpoints.last_iteration < iteration or is_empty(checkpoints.directory):
            self._save()

    def _save(self) -> None:
        self._check_lock()
        self._checkpoints.save()


class ProfileHook(Hook):
    """Writes TensorBoard's profile of the loops that contain given iterations.

    Args:
      iterations: The first and the last iteration to profile, counted from 1.
      directory: The directory of TensorBoard's event files.
    """

    def __init__(self, iterations: tuple[int, int], directory: str):
        self._first, self._last = iterations
        self._directory = directory
        self._running = False

    def before_loop(self, iteration: int, count: int) -> None:
        if not self._running and iteration < self._last and self._first <= iteration + count:
            tf.profiler.experimental.start(self._directory)
            self._running = True

    def after_loop(self, loop: LoopResult) -> None:
        if loop.iteration >= self._last:
            self.close()

    def close(self) -> None:
        if self._running:
            self._running = False
            tf.profiler.experimental.stop()


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
