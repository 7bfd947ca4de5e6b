"""Adaptive augmentation (Karras et al. 2020, arXiv:2006.06676)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import tensorflow as tf

from ..config import Config
from ..errors import UserError
from .hooks import Hook, LoopResult
from .probe import CriticProbe


def missing_share(terms: Mapping[str, float]) -> float | None:
    """Returns the overfitting r_v of the paper's equation 1, from the scalars of diagnostics.

    r_v = (E[D(train)] - E[D(held-out)]) / (E[D(train)] - E[D(generated)]) is the share of the
    critic's estimated distance that is missing on held-out examples: 0 without overfitting, 1 if
    the critic scores held-out examples like samples. None if the estimated distance is not
    positive, so that there is no such share.
    """
    training, held_out = terms["probe/wasserstein"], terms["held_out/wasserstein"]
    return (training - held_out) / training if training > 0 else None


class AdaHook(Hook):
    """Raises the probability of transformations while the critic overfits, and lowers it otherwise.

    At the multiples of `ada_interval` iterations, the probability changes by a constant, so that it
    can go from 0 to 1 in `ada_images` images (section 3.1 of the paper). All processes compute the
    same diagnostics, and so the same probability.

    Args:
      config: The settings of augmentation and of the schedule.
      probability: The variable of the state, on every replica.
      probe: Computes diagnostics of the critic, with held-out examples.
    """

    def __init__(self, config: Config, probability: tf.Variable, probe: CriticProbe):
        self._config = config
        self._probability = probability
        self._probe = probe

    def begin(self, iteration: int) -> None:
        """Raises UserError if no loop would end at a multiple of the interval.

        The updates of a resumed run would be at other iterations than those of an uninterrupted
        one.
        """
        config, steps = self._config, self._config.steps_per_loop
        if iteration % steps and iteration < config.train_steps:
            raise UserError(
                f"--augment=ada changes its probability at multiples of {config.ada_interval} "
                f"iterations, which loops of --steps_per_loop={steps} from iteration {iteration} "
                "do not meet",
                f"give --steps_per_loop={math.gcd(iteration, config.ada_interval)}",
            )

    def reads_state(self, loop: LoopResult) -> bool:
        return loop.iteration % self._config.ada_interval == 0

    def after_loop(self, loop: LoopResult) -> None:
        if not self.reads_state(loop):
            return
        config = self._config
        share = missing_share(self._probe().scalars())
        images = config.ada_interval * config.n_critic * config.batch_size
        change = images / config.ada_images
        overfits = share is not None and share > config.ada_target
        probability = float(self._probability.numpy()) + (change if overfits else -change)
        self._probability.assign(min(max(probability, 0.0), 1.0))


def check_measured(has_held_out: bool, critic_terms: Sequence[str]) -> None:
    """Raises UserError if a run cannot measure the overfitting of its critic."""
    if not has_held_out:
        raise UserError(
            "--augment=ada measures the overfitting on held-out examples, and there are none",
            "give --holdout=0.1 or --test_data_dir, or use --augment=diffaugment",
        )
    if "wasserstein" not in critic_terms:
        raise UserError(
            '--augment=ada needs the critic term "wasserstein", which the objective lacks',
            "add the term, or use --augment=diffaugment",
        )
