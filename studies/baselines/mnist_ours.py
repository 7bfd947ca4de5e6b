"""Trains this project on MNIST in turns."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

import numpy as np
from absl import flags as absl_flags

import flags
from wgan_gp.app.library import Library
from wgan_gp.app.resolve import resolve
from wgan_gp.app.run import Run, open_run
from wgan_gp.app.training import make_trainer
from wgan_gp.inference.images import to_pixels
from wgan_gp.training.hooks import Hook, LoopResult

from .turns import Turns


class TurnHook(Hook):
    """Waits for the next turn between loops; ends training when there is none."""

    def __init__(self, turns: Turns, run: Run):
        self._turns = turns
        self._run = run

    def begin(self, iteration: int) -> None:
        self._wait(iteration)

    def after_loop(self, loop: LoopResult) -> None:
        self._wait(loop.iteration)

    def save(self) -> None:
        self._run.checkpoints.save()

    def sample(self, count: int) -> np.ndarray:
        return to_pixels(self._run.sampler.sample(count), self._run.dataset.spec.pixels)

    def _wait(self, iteration: int) -> None:
        if not self._turns.wait(self, iteration):
            signal.raise_signal(signal.SIGTERM)  # `nohup ... &` ignores SIGINT


def train(turns: Turns, folder: str, data_dir: str, given: Sequence[str]) -> None:
    """Trains with the given flags until there are no more turns.

    Args:
      turns: The turns.
      folder: The run directory.
      data_dir: The folder of tensorflow-datasets.
      given: The flags of the run, such as --flagfile=configs/mnist.flags.
    """
    values = absl_flags.FlagValues()
    flags.define(values)
    own = [
        f"--data_dir={data_dir}",
        f"--model_dir={folder}",
        "--steps_per_loop=10",
        "--sample_interval=0",
        "--checkpoint_interval=0",
        "--summary_interval=1000",
    ]
    config = flags.parse(["train.py", *given, *own], values)
    library = Library()
    run = open_run(*resolve(config, library.models), library)
    hook = TurnHook(turns, run)
    make_trainer(run, hooks=[hook]).run()
    while turns.wait(hook, config.train_steps):  # after the last iteration
        time.sleep(0.1)
