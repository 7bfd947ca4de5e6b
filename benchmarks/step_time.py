"""Times the networks' fast forms against the plain ones, on this machine, in one run.

  python -m benchmarks.step_time                dcgan and resnet at 32 pixels
  python -m benchmarks.step_time --width=128 --batch_size=16 --repeats=3

One iteration, five critic steps and a generator step, of programs that compute the same losses
from the same weights:

  ours      as `train.py` runs it here;
  unfused   the same with --fused_resampling=off;
  plain     as usually written, see plain.py.

The figures are medians of the iterations' times, taken in turn, and their ratio to ours.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

import train
from wgan_gp.config import Config
from wgan_gp.data import registry as datasets
from wgan_gp.loop import make_train_loop

from .plain import make_plain_step


def timed_iteration(config: Config, *, plain: bool) -> Callable[[], tuple[float, float]]:
    """A function that runs an iteration: () -> seconds, the critic's loss."""
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    step = (
        make_plain_step(config, strategy)
        if plain
        else train.make_step(config, train.make_state(config, strategy))
    )
    loop = make_train_loop(step, strategy, n_critic=config.n_critic, jit_compile=False)
    shape = [config.batch_size, *datasets.example_shape(config)]
    images = tf.random.stateless_uniform(shape, [0, 1], -1.0, 1.0)
    batches: Iterator = iter(
        strategy.experimental_distribute_dataset(
            tf.data.Dataset.from_tensors((images, tf.zeros([config.batch_size], tf.int32))).repeat()
        )
    )

    def run() -> tuple[float, float]:
        began = time.perf_counter()
        loss = float(loop(batches, tf.constant(1, tf.int64))[0]["critic/loss"])
        return time.perf_counter() - began, loss

    return run


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Times an iteration in its forms.")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch_size", type=int, default=32)
    options = parser.parse_args()
    print(f"{'':20}{'form':8}{'ms an iteration':>18}{'of ours':>10}{'first critic loss':>20}")
    for model in ("dcgan", "resnet"):
        config = Config(
            model=model,
            image_size=32,
            model_width=options.width,
            batch_size=options.batch_size,
        )
        unfused = dataclasses.replace(config, fused_resampling="off")
        runs = {
            "ours": timed_iteration(config, plain=False),
            "unfused": timed_iteration(unfused, plain=False),
            "plain": timed_iteration(unfused, plain=True),
        }
        if config.model != "resnet":
            del runs["unfused"]  # it resamples by strides alone
        first = {name: run()[1] for name, run in runs.items()}  # tracing
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(options.repeats):
            for name, run in runs.items():
                times[name].append(run()[0])
        medians = {name: statistics.median(values) for name, values in times.items()}
        for name, median in medians.items():
            print(
                f"{model:20}{name:8}{1e3 * median:18.1f}{median / medians['ours']:10.2f}"
                f"{first[name]:20.6f}"
            )


if __name__ == "__main__":
    main()
