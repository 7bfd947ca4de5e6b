"""What the framework costs: an iteration of a training run beside the two updates alone.

  python -m benchmarks.loop_overhead

"Alone" is a graph that calls one replica's critic step n_critic times and its generator step once,
again and again, on a batch that lies there: no strategy, no data, no log. The run is train.py's
own, with its input pipeline and its host loop; by default that of a DCGAN on the digits, images of
8x8 pixels. The two take turns, and ratios are medians of the ratios of a round.
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

import train
from wgan_gp import monitoring
from wgan_gp.config import Config
from wgan_gp.data.pipeline import first_examples
from wgan_gp.loop import replica_programs

from . import outcome

ITERATIONS = 100  # of a round


def updates_alone(run: train.Run) -> Callable[[int], float]:
    """A function of a number of iterations that runs them: the seconds they take."""
    config = run.config
    state = train.make_state(config, run.strategy, run.dataset.spec)  # of its own: it trains
    critic_step, generator_step = replica_programs(
        train.make_step(config, state), jit_compile=False
    )
    real, labels = first_examples(run.source, config.batch_size)
    zero = tf.constant(0, tf.int64)

    @tf.function
    def loop(iterations: tf.Tensor) -> None:
        for done in tf.range(iterations):
            for update in tf.range(tf.constant(config.n_critic, tf.int64)):
                critic_step(real, labels, done * config.n_critic + update, zero)
            generator_step(done, zero)

    def seconds(iterations: int) -> float:
        began = time.perf_counter()
        loop(tf.constant(iterations, tf.int64))
        return time.perf_counter() - began

    return seconds


class TakingTurns(monitoring.Writer):
    """Times the run's rounds; after each it times the updates alone."""

    def __init__(self, alone: Callable[[int], float]):
        self._alone = alone
        self._since: float | None = None
        self.run: list[float] = []
        self.updates: list[float] = []

    def progress(self, step: int) -> None:
        if step % ITERATIONS:
            return
        if self._since is None:  # the first round traced the programs
            self._alone(ITERATIONS)
        else:
            self.run.append(time.perf_counter() - self._since)
            self.updates.append(self._alone(ITERATIONS))
        self._since = time.perf_counter()


def compare(config: Config) -> tuple[list[float], list[float]]:
    """Seconds of each round: of the run, and of the updates alone."""
    with tempfile.TemporaryDirectory() as folder:
        config = train.resolve(dataclasses.replace(config, model_dir=f"{folder}/run"))
        run = train.open_run(config)
        times = TakingTurns(updates_alone(run))
        train.make_trainer(run, times).run()
    return times.run, times.updates


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=11, help="default: 11")
    parser.add_argument("--model", default="dcgan", help="default: dcgan")
    parser.add_argument("--width", type=int, help="default: the model's own")
    given = parser.parse_args()
    rows = []
    for name, steps_per_loop, summary_interval in (
        ("--steps_per_loop=1", 1, 0),
        ("--steps_per_loop=10", 10, 0),
        ("--steps_per_loop=100", 100, 0),
        ("  and a summary every 100 iterations", 100, 100),
    ):
        config = Config(
            model=given.model,
            model_width=given.width,
            train_steps=(given.rounds + 1) * ITERATIONS,
            steps_per_loop=steps_per_loop,
            summary_interval=summary_interval,
            sample_interval=0,
            checkpoint_interval=0,
        )
        ours, alone = compare(config)
        rows.append(
            {
                "": name,
                "ms an iteration": 1e3 * statistics.median(ours) / ITERATIONS,
                "the updates alone": 1e3 * statistics.median(alone) / ITERATIONS,
                "ratio": outcome.ratio(ours, alone),
            }
        )
    print(outcome.table(rows))
    outcome.save("loop_overhead", rows)


if __name__ == "__main__":
    main()
