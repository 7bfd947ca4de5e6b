"""The schedules of training: settings as functions of the iteration."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ..config import OptimizationSettings

# The ends of the schedule r3gan: those of the preset for CIFAR-10 in the code of R3GAN, the rates
# and the penalty's weight as fractions of the first values.
R3GAN_RATE_END, R3GAN_PENALTY_END, R3GAN_BETA_2_END = 0.25, 0.1, 0.99


def learning_rates(settings: OptimizationSettings, iteration: int) -> dict[str, float]:
    """Returns the learning rates of both networks in an iteration, counted from 0, by tag."""
    return {
        f"{network}/learning_rate": float(
            learning_rate(settings, getattr(settings, f"{network}_learning_rate"), iteration)
        )
        for network in ("critic", "generator")
    }


def learning_rate(
    settings: OptimizationSettings, initial: float, iteration: tf.Tensor | int
) -> tf.Tensor | float:
    """Returns the learning rate of an iteration, counted from 0.

    With the remaining part r = max(0, 1 - iteration / schedule_steps) of the schedule and
    c = (1 - cos(pi r)) / 2, the rate is `initial` times

        constant:  1
        linear:    r, as in the code of arXiv:1704.00028
        cosine:    c (Loshchilov and Hutter 2017, arXiv:1608.03983, equation 5, without restarts)
        r3gan:     0.25 + 0.75 c, as in the code of arXiv:2501.05441

    Args:
      settings: The settings of the schedule.
      initial: The initial learning rate of the network.
      iteration: The iteration, an integer or a scalar float32 tensor.
    """
    if settings.learning_rate_schedule == "constant":
        return initial
    remaining = _remaining(iteration, settings.schedule_length)
    if settings.learning_rate_schedule == "linear":
        return initial * remaining
    end = R3GAN_RATE_END if settings.learning_rate_schedule == "r3gan" else 0.0
    return initial * (end + (1.0 - end) * _half_cosine(remaining))


class IterationSchedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    """`learning_rate` as a Keras schedule, that is, as a function of an optimizer's updates.

    The critic makes n_critic updates per iteration, all at the same rate.
    """

    def __init__(
        self,
        settings: OptimizationSettings,
        initial: float,
        updates_per_iteration: int,
    ):
        self._settings = settings
        self._initial = initial
        self._updates_per_iteration = updates_per_iteration

    def __call__(self, update: tf.Tensor) -> tf.Tensor:
        iteration = _iteration(update, self._updates_per_iteration)
        rate = learning_rate(self._settings, self._initial, iteration)
        return tf.convert_to_tensor(rate, tf.float32)

    def get_config(self) -> dict:
        raise NotImplementedError("the schedule follows from config.json")


def beta_2(
    settings: OptimizationSettings, updates_per_iteration: int
) -> float | Callable[[tf.Tensor], tf.Tensor]:
    """Returns Adam's beta_2, or with the schedule r3gan a function of the updates done.

    It goes from its initial value to 0.99 as (1 - cos(pi p)) / 2 goes from 0 to 1, where
    p = min(1, iteration / schedule_steps), as in the code of R3GAN (arXiv:2501.05441).
    """
    initial, end = settings.beta_2, R3GAN_BETA_2_END
    if settings.learning_rate_schedule != "r3gan":
        return initial

    def value(update: tf.Tensor) -> tf.Tensor:
        done = _iteration(update, updates_per_iteration)
        remaining = _remaining(done, settings.schedule_length)
        return end + (initial - end) * _half_cosine(remaining)

    return value


def penalty_weight_end(settings: OptimizationSettings) -> float:
    """Returns the fraction of the penalty's weight that remains at the end of the schedule."""
    return R3GAN_PENALTY_END if settings.learning_rate_schedule == "r3gan" else 1.0


def ema_decay(settings: OptimizationSettings, update: tf.Tensor) -> tf.Tensor:
    """Returns the decay of the generator's moving average in an update, scalar float32.

    After t updates it is min(generator_ema_decay, (1 + t) / (10 + t)), which is smaller at first,
    so that the average forgets the initial weights.

    Args:
      settings: The settings of the average.
      update: The number of generator updates done, scalar integer.
    """
    done = tf.cast(update, tf.float32)
    return tf.minimum(settings.generator_ema_decay, (1.0 + done) / (10.0 + done))


def _iteration(update: tf.Tensor, updates_per_iteration: int) -> tf.Tensor:
    """Returns the iteration of an optimizer's update, both counted from 0, as scalar float32."""
    return tf.cast(tf.cast(update, tf.int64) // updates_per_iteration, tf.float32)


def _remaining(iteration: tf.Tensor | int, steps: int) -> tf.Tensor | float:
    """Returns the part of a schedule that remains, in [0, 1]."""
    return _library(iteration).maximum(1.0 - iteration / steps, 0.0)


def _half_cosine(part: tf.Tensor | float) -> tf.Tensor | float:
    """Returns a smooth transition from 0 to 1 for a part in [0, 1]."""
    return 0.5 * (1.0 - _library(part).cos(math.pi * part))


def _library(value: tf.Tensor | float) -> Any:
    """Returns the library that computes with a value: TensorFlow for a tensor, else NumPy."""
    return tf if tf.is_tensor(value) else np
