"""The host loop, which writes summaries, samples and checkpoints between device loops."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from .checkpointing import Checkpoints, is_empty
from .config import Config
from .errors import NotFiniteError, UserError
from .loop import TrainLoop
from .monitoring import Writer
from .ownership import RunLock
from .probe import Look
from .profiling import Profiler
from .signals import StopRequest
from .state import learning_rate
from .verdict import Judge, Verdict


class Trainer:
    """Trains until `config.train_steps` iterations are done.

    Args:
      config: The schedule and the intervals.
      start: The number of iterations done, from the state that `train_loop` updates.
      train_loop: The device loop; see `loop.make_train_loop`.
      batches: critic step -> distributed iterator over real batches, starting at that step.
      checkpoints: Saves and restores the state that `train_loop` updates.
      writer: Receives scalars and images.
      draw: () -> images of samples from fixed noise, uint8 `[H, W, C]`, by tag.
      draw_real: () -> images of real examples, by tag, written at iteration 0. None writes none.
      evaluate: () -> metrics of the samples, by tag. None disables evaluations.
      begin: Called with the iteration after each rollback; raises UserError to end the run.
      owner: The lock on the run directory, checked before anything is written. None: no lock.
      agree: (signal or None) -> the signal at which all processes stop, or None to continue.
        Defaults to this process's own signal.
      profiler: Called before and after each device loop. None disables profiling.
      probe: Evaluates the critic at each summary. None disables the probe and the judge.
      judge: Diagnoses the run from the summaries. None disables the diagnosis.
      clock: () -> seconds.
    """

    def __init__(
        self,
        config: Config,
        *,
        start: int,
        train_loop: TrainLoop,
        batches: Callable[[int], Iterator],
        checkpoints: Checkpoints,
        writer: Writer,
        draw: Callable[[], Mapping[str, np.ndarray]],
        draw_real: Callable[[], Mapping[str, np.ndarray]] | None = None,
        evaluate: Callable[[], Mapping[str, float]] | None = None,
        begin: Callable[[int], None] | None = None,
        owner: RunLock | None = None,
        agree: Callable[[int | None], int | None] | None = None,
        profiler: Profiler | None = None,
        probe: Callable[[], Look] | None = None,
        judge: Judge | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._config = config
        self._start = start
        self._train_loop = train_loop
        self._batches = batches
        self._checkpoints = checkpoints
        self._writer = writer
        self._draw = draw
        self._draw_real = draw_real or dict
        self._evaluate = evaluate
        self._begin = begin or (lambda iteration: None)
        self._owner = owner
        self._agree = agree or (lambda signal: signal)
        self._profiler = profiler or Profiler(None, "")
        self._probe = probe
        self._judge = judge
        self._verdict: str | None = None
        self._clock = clock

    def run(self) -> int | None:
        """Trains to the end or until a signal arrives, and saves the state in both cases.

        Returns:
          The number of the signal that stopped training, or None.

        Raises:
          NotFiniteError: If a loss or gradient is not finite and the configuration allows no
            further rollback.
          UserError: If the run directory cannot be written or another process has taken it over.
        """
        with StopRequest() as stop:
            try:
                return self._train_from(self._start, stop)
            finally:
                failing = sys.exc_info()[0] is not None
                for close in (self._profiler.stop, self._writer.close, self._release):
                    # While an error propagates, errors in closing must not replace it.
                    errors = (UserError, tf.errors.OpError, OSError) if failing else ()
                    with contextlib.suppress(*errors):
                        close()

    def _train_from(self, start: int, stop: StopRequest) -> int | None:
        """Trains to the end, and rolls back after values that are not finite if configured."""
        config = self._config
        self._writer.begin(start)
        if start == 0:
            self._show(start, self._draw_real())
        if config.on_nonfinite == "rollback" and is_empty(self._checkpoints.directory):
            self._save()  # a rollback needs a checkpoint
        while start < config.train_steps:
            try:
                return self._train(start, stop)
            except NotFiniteError as error:
                if config.on_nonfinite == "stop":
                    raise
                if self._checkpoints.rollbacks >= config.max_rollbacks:
                    raise NotFiniteError(
                        f"after {config.max_rollbacks} rollbacks again: {error.what}",
                        "lower the learning rates, with another --model_dir and --restore_from, or "
                        "give more --max_rollbacks",
                    ) from error
                self._check_owner()
                start = self._checkpoints.roll_back()
                self._begin(start)
                print(
                    f"warning: {error.what}; going back to iteration {start}, with other noise",
                    file=sys.stderr,
                )
                self._writer.begin(start)
        return stop.signal

    def _train(self, step: int, stop: StopRequest) -> int | None:
        config, last_saved = self._config, step
        if self._judge is not None:
            self._judge.forget()
        batches = self._batches(step * config.n_critic)
        period, stopped_by = Period(self._clock()), self._agree(stop.signal)
        while step < config.train_steps and stopped_by is None:
            before = step
            iterations = min(config.steps_per_loop, config.train_steps - before)
            self._profiler.before_loop(before, iterations)
            called = self._clock()
            terms, waited, bad = self._train_loop(batches, tf.constant(iterations, tf.int64))
            # This is the one host sync per loop; the device is idle until the next loop.
            values = {tag: float(value) for tag, value in terms.items()}
            self._check_finite(values, bad, last_saved)
            step += iterations
            period.images += iterations * config.n_critic * config.batch_size
            period.in_loop += self._clock() - called
            period.waiting += float(waited)
            self._profiler.after_loop(step)
            self._writer.progress(step)
            due = functools.partial(is_due, before, step, config.train_steps)
            if due(config.summary_interval):
                self._check_owner()
                now = self._clock()
                self._summarize(step, {**values, **period.shares(now)})
                period = Period(now)
            if due(config.sample_interval):
                self._check_owner()
                self._show(step, self._draw())
            if self._evaluate is not None and due(config.evaluate_interval):
                self._check_owner()
                self._writer.evaluation(step, self._evaluate())
            if due(config.checkpoint_interval):
                self._save()
                last_saved = step
            stopped_by = self._agree(stop.signal)
        if last_saved < step:
            self._save()
        return stopped_by

    def _show(self, step: int, pictures: Mapping[str, np.ndarray]) -> None:
        for tag, picture in pictures.items():
            self._writer.image(step, tag, picture)

    def _check_finite(
        self, values: Mapping[str, float], bad: Mapping[str, tf.Tensor], last_saved: int
    ) -> None:
        """Raises NotFiniteError if a term was not finite; the weights were not updated with it."""
        first = {network: int(step) for network, step in bad.items() if int(step) >= 0}
        if not first:
            return
        network = min(first, key=lambda each: (first[each], each))
        terms = [tag for tag, value in values.items() if not math.isfinite(value)]
        raise NotFiniteError(
            f"iteration {first[network] + 1}: the {network}'s loss or gradient is not finite "
            f"({', '.join(terms)})",
            f"no weight took it on, and the same command goes on after iteration {last_saved}: "
            f"look for such values in the data, or give --on_nonfinite=rollback, or lower "
            f"--{network}_learning_rate, with another --model_dir and --restore_from",
        )

    def _save(self) -> None:
        self._check_owner()
        self._checkpoints.save()

    def _release(self) -> None:
        if self._owner is not None:
            self._owner.release()

    def _check_owner(self) -> None:
        if self._owner is not None:
            self._owner.check()

    def _summarize(self, step: int, values: Mapping[str, float]) -> None:
        config = self._config
        rates = {
            f"{network}/learning_rate": learning_rate(config, initial, step - 1)
            for network, initial in (
                ("critic", config.critic_learning_rate),
                ("generator", config.generator_learning_rate),
            )
        }
        values = {**values, **rates}
        if self._probe is None:
            self._writer.scalars(step, values)
            return
        look = self._probe()
        values |= look.scalars()
        self._writer.scalars(step, values)
        if look.gradient_norms is not None:
            self._writer.histogram(step, "probe/gradient_norms", look.gradient_norms)
        if self._judge is not None:
            self._tell(step, self._judge.judge(values))

    def _tell(self, step: int, verdict: Verdict | None) -> None:
        """Writes a verdict if it differs from the previous one."""
        if verdict is not None and verdict.name != self._verdict:
            self._verdict = verdict.name
            self._writer.text(step, "verdict", str(verdict))


@dataclasses.dataclass
class Period:
    """The time since the last summary, and how it was spent.

    Attributes:
      since: The beginning of the interval, in seconds.
      images: The number of real images trained on.
      in_loop: Seconds in device loops, including compilation.
      waiting: Seconds in device loops in which the device waited for data.
    """

    since: float
    images: int = 0
    in_loop: float = 0.0
    waiting: float = 0.0

    def shares(self, now: float) -> dict[str, float]:
        """Returns images per second and the shares of time waiting and outside device loops."""
        elapsed = now - self.since
        return {
            "throughput/images_per_second": self.images / elapsed,
            "throughput/data_wait_share": self.waiting / elapsed,
            "throughput/host_share": max(0.0, 1 - self.in_loop / elapsed),
        }


def is_due(before: int, after: int, total: int, interval: int) -> bool:
    """Returns True if (before, after] contains a multiple of `interval` or ends at `total`."""
    return after == total or crossed(interval, before, after)


def crossed(interval: int, before: int, after: int) -> bool:
    """Returns True if (before, after] contains a multiple of `interval`; False for interval 0.

    The remainder of `after` would not do, because loops need not end on multiples.
    """
    return interval > 0 and after // interval > before // interval
