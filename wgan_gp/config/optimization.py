"""The settings of the schedule and the optimizers."""

from __future__ import annotations

import dataclasses

from ..errors import UserError
from .settings import PYTHON, Seeded, setting

OPTIMIZERS = ("adam", "adamw", "rmsprop", "lion", PYTHON)  # the last one is not for the flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizationSettings(Seeded):
    """The schedule of training and the optimizers, one for each network."""

    train_steps: int = setting(
        7500,
        "Total number of iterations, each with n_critic critic steps and one generator step.",
        minimum=1,
        kind="training",
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
    n_critic: int = setting(
        5,
        "Critic steps per generator step.",
        minimum=1,
        maximum=10_000,
        kind="training",
        compared=True,
        common=True,
    )
    batch_size: int = setting(
        64,
        "Number of real images in a critic step, over all replicas.",
        minimum=1,
        maximum=2**20,
        kind="training",
        compared=True,
        common=True,
    )
    generator_batch_size: int | None = setting(
        None,
        "Number of samples in a generator step, over all replicas. Default: --batch_size.",
        minimum=1,
        maximum=2**20,
        kind="training",
    )
    accumulate: int = setting(
        1,
        "Number of micro-batches of an update, which are computed one after the other in less "
        "memory. The gradients are those of one batch, but batch normalization uses the moments of "
        "each micro-batch of a generator step.",
        minimum=1,
        maximum=2**20,
        kind="training",
    )
    steps_per_loop: int = setting(
        50,
        "Iterations per call from Python. Summaries, samples and checkpoints are written between "
        "the calls.",
        minimum=1,
        kind="output",
    )
    optimizer: str = setting(
        "adam",
        "Optimizer of both networks: adam, adamw (with --weight_decay), rmsprop (whose decay rate "
        "is --beta_2), or lion.",
        choices=OPTIMIZERS,
        kind="training",
        compared=True,
    )
    weight_decay: float = setting(
        0.0,
        "Decoupled weight decay of --optimizer=adamw or lion: the fraction of a weight, times the "
        "learning rate, that an update takes away.",
        minimum=0,
        kind="training",
        requires={"optimizer": ("adamw", "lion")},
        compared=True,
    )
    gradient_clip_norm: float = setting(
        0.0,
        "Largest norm of the gradient of all weights of a network, over all replicas; larger ones "
        "are scaled down to it. 0: no limit.",
        minimum=0,
        kind="training",
        requires={"optimizer": OPTIMIZERS[:-1]},
    )
    critic_learning_rate: float = setting(
        1e-3,
        "Learning rate of the critic.",
        above=0,
        kind="training",
        compared=True,
        common=True,
    )
    generator_learning_rate: float = setting(
        1e-3,
        "Learning rate of the generator.",
        above=0,
        kind="training",
        compared=True,
        common=True,
    )
    beta_1: float = setting(
        0.0,
        "Decay rate of the mean gradient, of adam, adamw and lion.",
        minimum=0,
        below=1,
        kind="training",
        requires={"optimizer": ("adam", "adamw", "lion", PYTHON)},
        compared=True,
    )
    beta_2: float = setting(
        0.9,
        "Decay rate of the mean squared gradient, of adam, adamw and rmsprop; lion's second rate.",
        minimum=0,
        below=1,
        kind="training",
        compared=True,
    )
    beta_2_end: float | None = setting(
        None,
        "Value that beta_2 of both networks reaches after --schedule_steps, along half a cosine. "
        "Default: it is constant.",
        minimum=0,
        below=1,
        kind="training",
        requires={"optimizer": ("adam", "adamw")},
    )
    learning_rate_schedule: str = setting(
        "linear",
        "Learning rates over time: constant, or linear or cosine decay to --learning_rate_end in "
        "--schedule_steps.",
        choices=("constant", "linear", "cosine"),
        kind="training",
    )
    learning_rate_end: float = setting(
        0.0,
        "Fraction of the initial learning rates at which linear and cosine decay end.",
        minimum=0,
        maximum=1,
        kind="training",
        applies={"learning_rate_schedule": ("linear", "cosine")},
    )
    schedule_steps: int | None = setting(
        None,
        "Iterations until the end of the schedules, whose last values then stay. Default: "
        "--train_steps.",
        minimum=1,
        kind="training",
        applies={"learning_rate_schedule": ("linear", "cosine")},
    )
    generator_ema_decay: float = setting(
        0.0,
        "Decay per generator step of an exponential moving average of the generator (0.999), from "
        "which samples are then drawn. 0: no average.",
        minimum=0,
        below=1,
        kind="training",
        common=True,
    )
    generator_ema_half_life: int | None = setting(
        None,
        "Half-life of the moving average of the generator, in images (500000), in place of "
        "--generator_ema_decay. Default: the decay applies.",
        minimum=1,
        kind="training",
    )
    generator_ema_ramp: float = setting(
        0.05,
        "Upper limit of the half-life as a fraction of the number of images so far, so that the "
        "initial weights are forgotten. 0: no limit.",
        minimum=0,
        kind="training",
        applies={"generator_ema_half_life": True},
    )

    def check_optimizer(self) -> None:
        """Raises UserError if an optimizer lacks a setting without which it is another one."""
        flag = f"--optimizer={self.optimizer}"
        if self.optimizer == "adamw" and not self.weight_decay:
            raise UserError(f"{flag} without weight decay is adam", "add --weight_decay=0.01")
        if self.optimizer == "lion" and not self.beta_1:
            raise UserError(
                f"{flag} with --beta_1=0 forgets its momentum",
                "add --beta_1=0.9 --beta_2=0.99, as in its paper",
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

    @property
    def averages_generator(self) -> bool:
        """True if a moving average of the generator is computed."""
        return bool(self.generator_ema_decay or self.generator_ema_half_life)
