"""Adaptive augmentation (Karras et al. 2020, arXiv:2006.06676)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from ..errors import UserError
from .hooks import Hook, LoopResult, crossed
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

    For each multiple of `interval` iterations that a loop crosses, the probability changes by a
    constant, so that it can go from 0 to 1 in `range_images` images (section 3.1 of the paper). All
    processes compute the same diagnostics, and so the same probability.

    Args:
      probability: The variable of the state, on every replica.
      probe: Computes diagnostics of the critic, with held-out examples.
      images: The number of real images of an iteration.
      target: The share of the critic's estimated distance that may be missing on held-out examples.
      interval, range_images: See above.
    """

    def __init__(
        self,
        probability: tf.Variable,
        probe: CriticProbe,
        images: int,
        *,
        target: float = 0.25,
        interval: int = 100,
        range_images: int = 500_000,
    ):
        self._probability = probability
        self._probe = probe
        self._target = target
        self._interval = interval
        self._change = interval * images / range_images

    def reads_state(self, loop: LoopResult) -> bool:
        return crossed(self._interval, loop.before, loop.iteration)

    def after_loop(self, loop: LoopResult) -> None:
        if not self.reads_state(loop):
            return
        share = missing_share(self._probe().scalars())
        overfits = share is not None and share > self._target
        updates = loop.iteration // self._interval - loop.before // self._interval
        change = updates * self._change
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
