"""Measures the overhead of the framework over the critic and generator updates alone.

  python -m benchmarks.loop_overhead

The run is that of train.py, with its input pipeline and its host loop; by default, a DCGAN on the
digits (8x8 pixels). The updates alone are a graph that repeats n_critic critic steps and a
generator step of one replica on one batch in memory, without a strategy, input pipeline or log.
Both take turns, and ratios are medians of the ratios within rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from wgan_gp.app.build import make_state, make_step
from wgan_gp.app.library import Library
from wgan_gp.app.resolve import resolve
from wgan_gp.app.run import Run, open_run
from wgan_gp.app.training import make_trainer
from wgan_gp.config import Config
from wgan_gp.training.loop import replica_programs
from wgan_gp.writers.writer import Writer

from . import outcome

ITERATIONS = 100  # per round


def make_updates(run: Run) -> Callable[[int], float]:
    """Returns a function that runs a number of iterations of updates and returns their time."""
    config = run.config
    spec = run.dataset.spec
    state = make_state(config, run.devices, spec, run.library.models)  # not the run's: it trains
    critic_step, generator_step = replica_programs(
        make_step(config, state, spec, run.library), jit_compile=False
    )
    real, labels = run.data.read(config.batch_size)
    zero = tf.constant(0, tf.int64)

    @tf.function
    def loop(iterations: tf.Tensor) -> None:
        for done in tf.range(iterations):
            for update in tf.range(tf.constant(config.n_critic, tf.int64)):
                critic_step(real, labels, done * config.n_critic + update, zero)
            generator_step(done, zero)

    def seconds(iterations: int) -> float:
        start = time.perf_counter()
        loop(tf.constant(iterations, tf.int64))
        return time.perf_counter() - start

    return seconds


class RoundTimer(Writer):
    """A writer that times each round of the run, and then the updates alone.

    Args:
      time_updates: iterations -> the time of this number of updates, in seconds.

    Attributes:
      run: The time of each round of the run, in seconds.
      updates: The time of the updates alone after each round, in seconds.
    """

    def __init__(self, time_updates: Callable[[int], float]):
        self._time_updates = time_updates
        self._since: float | None = None
        self.run: list[float] = []
        self.updates: list[float] = []

    def progress(self, step: int) -> None:
        if step % ITERATIONS:
            return
        if self._since is None:  # the first round includes tracing
            self._time_updates(ITERATIONS)
        else:
            self.run.append(time.perf_counter() - self._since)
            self.updates.append(self._time_updates(ITERATIONS))
        self._since = time.perf_counter()


def compare(config: Config) -> tuple[list[float], list[float]]:
    """Returns the times of the run and of the updates alone in each round, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        library = Library()
        config = dataclasses.replace(config, model_dir=f"{folder}/run")
        run = open_run(*resolve(config, library.models), library)
        timer = RoundTimer(make_updates(run))
        make_trainer(run, writers=[timer]).run()
    return timer.run, timer.updates


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=11, help="default: 11")
    parser.add_argument("--model", default="dcgan", help="the networks; default: dcgan")
    parser.add_argument("--width", type=int, help="their width; default: that of the model")
    arguments = parser.parse_args()
    rows = []
    for name, steps_per_loop, summary_interval in (
        ("--steps_per_loop=1", 1, 0),
        ("--steps_per_loop=10", 10, 0),
        ("--steps_per_loop=100", 100, 0),
        ("  and a summary every 100 iterations", 100, 100),
    ):
        config = Config(
            model=arguments.model,
            model_width=arguments.width,
            train_steps=(arguments.rounds + 1) * ITERATIONS,
            steps_per_loop=steps_per_loop,
            summary_interval=summary_interval,
            sample_interval=0,
            jit_compile="off",  # as for the updates alone
            checkpoint_interval=0,
        )
        ours, alone = compare(config)
        rows.append(
            {
                "": name,
                "ms per iteration": 1e3 * statistics.median(ours) / ITERATIONS,
                "updates alone": 1e3 * statistics.median(alone) / ITERATIONS,
                "ratio": outcome.ratio(ours, alone),
            }
        )
    print(outcome.table(rows))
    outcome.save("loop_overhead", rows)


if __name__ == "__main__":
    main()
