"""The host loop: between calls of the device loop, it writes, draws and saves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from .checkpointing import Checkpoints
from .config import Config
from .loop import TrainLoop
from .monitoring import Writer
from .signals import StopRequest
from .state import learning_rate


class Trainer:
    """Trains to config.train_steps iterations, resuming where a checkpoint stands.

    Args:
      config: the schedule and the intervals.
      train_loop: (iterator, iterations) -> mean terms; the device loop.
      batches: critic step -> distributed iterator over real batches from that step on.
      checkpoints: of the state that the loop trains.
      writer: receives scalars and pictures.
      draw: () -> uint8 `[H, W, C]`, a picture of samples from fixed noise.
      clock: () -> seconds.
    """

    def __init__(
        self,
        config: Config,
        *,
        train_loop: TrainLoop,
        batches: Callable[[int], Iterator],
        checkpoints: Checkpoints,
        writer: Writer,
        draw: Callable[[], np.ndarray],
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._config = config
        self._train_loop = train_loop
        self._batches = batches
        self._checkpoints = checkpoints
        self._writer = writer
        self._draw = draw
        self._clock = clock

    def run(self) -> int | None:
        """Trains to the end, or until a signal asks to stop; either way the state is saved.

        Returns:
          The number of the signal that stopped it, or None.
        """
        with StopRequest() as stop:
            start = self._checkpoints.restore_latest()
            self._writer.begin(start)
            try:
                if start < self._config.train_steps:
                    self._train(start, stop)
            finally:
                self._writer.close()
        return stop.signal

    def _train(self, step: int, stop: StopRequest) -> None:
        config, last_saved = self._config, step
        batches = self._batches(step * config.n_critic)
        since, images = self._clock(), 0
        while step < config.train_steps and stop.signal is None:
            before = step
            iterations = min(config.steps_per_loop, config.train_steps - before)
            terms = self._train_loop(batches, tf.constant(iterations, tf.int64))
            # One host sync a loop: the device waits while Python acts.
            values = {tag: float(value) for tag, value in terms.items()}
            step += iterations
            images += iterations * config.n_critic * config.batch_size
            self._writer.progress(step)

            last = step == config.train_steps
            if last or crossed(config.summary_interval, before, step):
                now = self._clock()
                self._summarize(step, values, images / (now - since))
                since, images = now, 0
            if last or crossed(config.sample_interval, before, step):
                self._writer.image(step, "samples", self._draw())
            if last or crossed(config.checkpoint_interval, before, step):
                self._checkpoints.save()
                last_saved = step
        if last_saved < step:
            self._checkpoints.save()

    def _summarize(self, step: int, values: Mapping[str, float], rate: float) -> None:
        config = self._config
        rates = {
            f"{network}/learning_rate": learning_rate(config, initial, step - 1)
            for network, initial in (
                ("critic", config.critic_learning_rate),
                ("generator", config.generator_learning_rate),
            )
        }
        self._writer.scalars(step, {**values, **rates, "throughput/images_per_second": rate})


def crossed(interval: int, before: int, after: int) -> bool:
    """Whether a multiple of `interval` lies in (before, after]; never for interval 0.

    Not a test of the remainder: loops need not end on multiples.
    """
    return interval > 0 and after // interval > before // interval
