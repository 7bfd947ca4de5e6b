"""The host loop: between calls of the device loop, it writes, draws and saves."""

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
from .ownership import Ownership
from .probe import Look
from .profiling import Profiler
from .signals import StopRequest
from .state import learning_rate
from .verdict import Judge, Verdict


class Trainer:
    """Trains to config.train_steps iterations, resuming where a checkpoint stands.

    Args:
      config: the schedule and the intervals.
      start: iterations done, of the state that the loop trains.
      train_loop: the device loop; see loop.make_train_loop.
      batches: critic step -> distributed iterator over real batches from that step on.
      checkpoints: of the state that the loop trains.
      writer: receives scalars and pictures.
      draw: () -> pictures of samples from fixed noise, uint8 `[H, W, C]`, by their tags.
      draw_real: () -> pictures of real examples, which a run begins with.
      evaluate: () -> figures of the samples, by tag; None: there are no evaluations.
      begin: is told the iteration that the run is rolled back to; may refuse it.
      owner: of the run directory, if there is one; asked before anything is written.
      agree: (signal or None) -> the signal that all processes stop at; None: go on.
      profiler: is told of every loop.
      probe: looks at the critic at every summary.
      judge: says how the run is going, by what the probe saw.
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
        owner: Ownership | None = None,
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
        """Trains to the end, or until a signal asks to stop; either way the state is saved.

        Returns:
          The number of the signal that stopped it, or None.
        """
        with StopRequest() as stop:
            try:
                return self._train_from(self._start, stop)
            finally:
                failing = sys.exc_info()[0] is not None
                for close in (self._profiler.stop, self._writer.close, self._release):
                    # What went wrong first is what is told.
                    errors = (UserError, tf.errors.OpError, OSError) if failing else ()
                    with contextlib.suppress(*errors):
                        close()

    def _train_from(self, start: int, stop: StopRequest) -> int | None:
        """Trains to the end, beginning again wherever it is rolled back to."""
        config = self._config
        self._writer.begin(start)
        if start == 0:
            self._show(start, self._draw_real())
        if config.on_nonfinite == "rollback" and is_empty(self._checkpoints.directory):
            self._save()  # to have where to go back to
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
            # One host sync a loop: the device waits while Python acts.
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
        """Raises NotFiniteError if a step's terms were not finite; no weight took them on."""
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
        """Says a verdict where it is another than before."""
        if verdict is not None and verdict.name != self._verdict:
            self._verdict = verdict.name
            self._writer.text(step, "verdict", str(verdict))


@dataclasses.dataclass
class Period:
    """Where the time between two summaries went.

    Attributes:
      since: its beginning, seconds.
      images: real images trained on.
      in_loop: seconds in the device loop, the first one's compilation among them.
      waiting: seconds of these in which the device waited for data.
    """

    since: float
    images: int = 0
    in_loop: float = 0.0
    waiting: float = 0.0

    def shares(self, now: float) -> dict[str, float]:
        """Images a second; of the time, the share spent waiting, and between device loops."""
        elapsed = now - self.since
        return {
            "throughput/images_per_second": self.images / elapsed,
            "throughput/data_wait_share": self.waiting / elapsed,
            "throughput/host_share": max(0.0, 1 - self.in_loop / elapsed),
        }


def is_due(before: int, after: int, total: int, interval: int) -> bool:
    """Whether what is done every `interval` iterations is done now; all is, at the end."""
    return after == total or crossed(interval, before, after)


def crossed(interval: int, before: int, after: int) -> bool:
    """Whether a multiple of `interval` lies in (before, after]; never for interval 0.

    Not a test of the remainder: loops need not end on multiples.
    """
    return interval > 0 and after // interval > before // interval
