"""The settings of the schedule and the optimizers."""

from __future__ import annotations

import dataclasses
import functools

from ..errors import UserError
from .settings import PYTHON, Seeded, setting

LEARNING_RATE_SCHEDULES = {
    "constant": "the initial rates",
    "linear": "to 0 in --schedule_steps",
    "cosine": "to 0 in --schedule_steps, along half a cosine",
    "r3gan": "as in the code of R3GAN, along half a cosine: learning rates fall to a quarter, the "
    "penalty's weight to a tenth, and beta_2 rises to 0.99, in --schedule_steps",
}
OPTIMIZERS = ("adam", "adamw", "rmsprop", "lion", PYTHON)  # the last one is not for the flag

_setting = functools.partial(setting, kind="training")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizationSettings(Seeded):
    """The schedule of training and the optimizers, one for each network."""

    train_steps: int = _setting(
        7500,
        "Total number of iterations, each with n_critic critic steps and one generator step.",
        minimum=1,
        common=True,
    )
    stop_step: int | None = setting(
        None,
        "Iteration after which training stops as if it were interrupted, with a checkpoint and, "
        "with --evaluate_interval, an evaluation. Loops are not cut, so it stops after the loop "
        "that reaches it. The schedules still follow --train_steps, and a larger value continues "
        "the run. Default: --train_steps.",
        minimum=1,
        kind="output",
    )
    n_critic: int = _setting(
        5,
        "Critic steps per generator step.",
        minimum=1,
        maximum=10_000,
        compared=True,
        common=True,
    )
    batch_size: int = _setting(
        64,
        "Number of real images in a critic step, over all replicas.",
        minimum=1,
        maximum=2**20,
        compared=True,
        common=True,
    )
    generator_batch_size: int | None = _setting(
        None,
        "Number of samples in a generator step, over all replicas. Default: --batch_size.",
        minimum=1,
        maximum=2**20,
    )
    accumulate: int = _setting(
        1,
        "Number of micro-batches of an update, which are computed one after the other in less "
        "memory. The gradients are those of one batch, but batch normalization uses the moments of "
        "each micro-batch of a generator step.",
        minimum=1,
        maximum=2**20,
    )
    steps_per_loop: int = setting(
        50,
        "Iterations per call from Python. Summaries, samples and checkpoints are written between "
        "the calls.",
        minimum=1,
        kind="output",
    )
    optimizer: str = _setting(
        "adam",
        "Optimizer of both networks: adam, adamw (with --weight_decay), rmsprop (whose decay rate "
        "is --beta_2), or lion.",
        choices=OPTIMIZERS,
        compared=True,
    )
    weight_decay: float = _setting(
        0.0,
        "Decoupled weight decay of --optimizer=adamw or lion: the fraction of a weight, times the "
        "learning rate, that an update takes away.",
        minimum=0,
        requires={"optimizer": ("adamw", "lion")},
        compared=True,
    )
    gradient_clip_norm: float = _setting(
        0.0,
        "Largest norm of the gradient of all weights of a network, over all replicas; larger ones "
        "are scaled down to it. 0: no limit.",
        minimum=0,
        requires={"optimizer": OPTIMIZERS[:-1]},
    )
    critic_learning_rate: float = _setting(
        1e-3,
        "Learning rate of the critic.",
        above=0,
        compared=True,
        common=True,
    )
    generator_learning_rate: float = _setting(
        1e-3,
        "Learning rate of the generator.",
        above=0,
        compared=True,
        common=True,
    )
    beta_1: float = _setting(
        0.0,
        "Decay rate of the mean gradient, of adam, adamw and lion.",
        minimum=0,
        below=1,
        requires={"optimizer": ("adam", "adamw", "lion", PYTHON)},
        compared=True,
    )
    beta_2: float = _setting(
        0.9,
        "Decay rate of the mean squared gradient, of adam, adamw and rmsprop; lion's second rate.",
        minimum=0,
        below=1,
        compared=True,
    )
    learning_rate_schedule: str = _setting(
        "linear",
        "Schedule of the learning rates:",
        choices=LEARNING_RATE_SCHEDULES,
    )
    schedule_steps: int | None = _setting(
        None,
        "Iterations until the end of the schedules, whose last values then stay. Default: "
        "--train_steps.",
        minimum=1,
        applies={"learning_rate_schedule": ("linear", "cosine", "r3gan")},
    )
    generator_ema_decay: float = _setting(
        0.0,
        "Decay per generator step of an exponential moving average of the generator (0.999), from "
        "which samples are then drawn. 0: no average.",
        minimum=0,
        below=1,
        common=True,
    )

    def check_optimizer(self) -> None:
        """Raises UserError if an optimizer lacks a setting that it or the schedule needs."""
        flag = f"--optimizer={self.optimizer}"
        if self.optimizer == "adamw" and not self.weight_decay:
            raise UserError(f"{flag} without weight decay is adam", "add --weight_decay=0.01")
        if self.optimizer == "lion" and not self.beta_1:
            raise UserError(
                f"{flag} with --beta_1=0 forgets its momentum",
                "add --beta_1=0.9 --beta_2=0.99, as in its paper",
            )
        if self.learning_rate_schedule == "r3gan" and self.optimizer not in ("adam", "adamw"):
            raise UserError(
                f"--learning_rate_schedule=r3gan needs another optimizer than {flag}",
                "use --optimizer=adam or adamw, or --learning_rate_schedule=cosine",
            )

    @property
    def generator_batch(self) -> int:
        """The number of samples in a generator step, over all replicas."""
        return self.generator_batch_size or self.batch_size

    @property
    def schedule_length(self) -> int:
        """The number of iterations until the end of the schedules."""
        return self.schedule_steps or self.train_steps

    @property
    def last_step(self) -> int:
        """The iteration after which training stops, now or when it is complete."""
        return self.stop_step or self.train_steps
