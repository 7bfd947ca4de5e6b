"""The training state, all of which is saved in a checkpoint, and its creation."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..config import PYTHON, OptimizationSettings
from ..errors import UserError
from .networks import copy_weights
from .optimizer import GuardedAdam, GuardedLion, GuardedRMSprop, guarded
from .schedules import IterationSchedule, beta_2


@dataclasses.dataclass(frozen=True)
class TrainState:
    """The complete state of a run between two iterations.

    The noise and the position in the data are functions of `iteration` and `rollbacks`, so they
    have no state of their own.

    Attributes:
      generator: `[B, latent_size]` -> `[B, *example_shape]`; a conditional one takes a list
        of these and labels `[B]`.
      critic: `[B, *example_shape]` -> the input of the objective, usually scores `[B, 1]`. With
        ReplicaStep.critic_takes_labels it takes a list of examples and labels `[B]`.
      generator_optimizer, critic_optimizer: The optimizers, built for their network's variables.
        They are None in a saved run whose optimizers were objects of Python.
      iteration: Scalar int64 variable on the host, the number of iterations done.
      rollbacks: Scalar int64 variable on the host, the number of times that the run went back to a
        checkpoint and drew other noise.
      generator_average: The generator whose weights are a moving average, or None.
      augment_probability: Scalar float32 variable on every replica, the probability of each
        transformation under --augment=ada, or None.
    """

    generator: tf.keras.Model
    critic: tf.keras.Model
    generator_optimizer: tf.keras.optimizers.Optimizer
    critic_optimizer: tf.keras.optimizers.Optimizer
    iteration: tf.Variable
    rollbacks: tf.Variable
    generator_average: tf.keras.Model | None = None
    augment_probability: tf.Variable | None = None

    @property
    def sampling_generator(self) -> tf.keras.Model:
        """The generator from which samples are drawn: the moving average if there is one."""
        return self.generator_average or self.generator

    def not_finite(self) -> list[str]:
        """Returns the names of the variables that hold a value that is not finite."""
        names, find_finite = self._finite
        is_finite = find_finite().numpy()
        return [name for name, finite in zip(names, is_finite, strict=True) if not finite]

    @functools.cached_property
    def _finite(self) -> tuple[list[str], Callable[[], tf.Tensor]]:
        """The names of the floating-point variables, and a function that checks all of them.

        The function returns `[number of variables]` bool. On a TPU, reading each variable in a call
        of its own would be a transfer and a program for each.
        """
        named = [
            (f"{field.name}/{variable.name}", variable)
            for field in dataclasses.fields(self)
            for variable in getattr(getattr(self, field.name), "variables", ())
            if tf.as_dtype(variable.dtype).is_floating
        ]

        @tf.function(autograph=False)
        def find_finite() -> tf.Tensor:
            with tf.device("CPU:0"):
                return tf.stack(
                    [
                        tf.reduce_all(tf.math.is_finite(tf.convert_to_tensor(variable)))
                        for _, variable in named
                    ]
                )

        return [name for name, _ in named], find_finite

    def checkpoint(self) -> tf.train.Checkpoint:
        parts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return tf.train.Checkpoint(
            **{name: part for name, part in parts.items() if part is not None}
        )


def create_state(
    build_networks: Callable[[], tuple[tf.keras.Model, tf.keras.Model]],
    build_generator: Callable[[], tf.keras.Model],
    settings: OptimizationSettings,
    strategy: tf.distribute.Strategy,
    *,
    adaptive_augmentation: bool = False,
    optimizers: tuple[Any, Any] | None = None,
) -> TrainState:
    """Returns a newly initialized state, with its variables placed by the strategy.

    Args:
      build_networks: () -> (generator, critic), two new networks with their variables.
      build_generator: () -> another new generator, for a moving average.
      settings: The seed and the settings of the optimizers and the moving average.
      strategy: Places the variables of the networks and optimizers.
      adaptive_augmentation: Whether the state has a probability of transformations.
      optimizers: Keras optimizers of the generator and the critic, in place of the settings.
    """
    tf.keras.utils.set_random_seed(settings.seed)  # the initial weights
    with strategy.scope():
        generator, critic = build_networks()
        generator_optimizer: Any = None
        critic_optimizer: Any = None
        if optimizers is not None:
            generator_optimizer = guarded(optimizers[0], "generator_optimizer")
            critic_optimizer = guarded(optimizers[1], "critic_optimizer")
        elif settings.optimizer != PYTHON:
            generator_optimizer, critic_optimizer = make_optimizers(settings)
        # The optimizers' variables must exist before the first strategy.run, which cannot
        # create any.
        if critic_optimizer is not None:
            generator_optimizer.build(generator.trainable_variables)
            critic_optimizer.build(critic.trainable_variables)
        average = None
        if settings.generator_ema_decay:
            average = build_generator()
            copy_weights(average, generator)
        probability = None
        if adaptive_augmentation:
            probability = tf.Variable(0.0, trainable=False, name="augment_probability")
    # These are outside the scope: the host counts and passes the numbers to each replica.
    iteration, rollbacks = (
        tf.Variable(0, dtype=tf.int64, trainable=False, name=name)
        for name in ("iteration", "rollbacks")
    )
    return TrainState(
        generator,
        critic,
        generator_optimizer,
        critic_optimizer,
        iteration,
        rollbacks,
        average,
        probability,
    )


def missing_optimizers() -> UserError:
    """Returns the error for a run whose optimizers are objects of Python that are not given."""
    return UserError(
        f"--optimizer={PYTHON} stands for objects that are passed to wgan_gp.train",
        "pass generator_optimizer= and critic_optimizer= there",
    )


def make_optimizers(
    settings: OptimizationSettings,
) -> tuple[tf.keras.optimizers.Optimizer, tf.keras.optimizers.Optimizer]:
    """Returns new optimizers of the generator and the critic.

    Raises:
      UserError: If the settings name objects of Python.
    """
    if settings.optimizer == PYTHON:
        raise missing_optimizers()
    return (
        _optimizer(settings, settings.generator_learning_rate, 1),
        _optimizer(settings, settings.critic_learning_rate, settings.n_critic),
    )


def _optimizer(
    settings: OptimizationSettings,
    initial_rate: float,
    updates_per_iteration: int,
) -> tf.keras.optimizers.Optimizer:
    rate = IterationSchedule(settings, initial_rate, updates_per_iteration)
    common = {
        "weight_decay": settings.weight_decay or None,
        "global_clipnorm": settings.gradient_clip_norm or None,
        "name": settings.optimizer,
    }
    if settings.optimizer == "rmsprop":
        # Keras adds epsilon to the mean square; the code of WGAN (arXiv:1701.07875) adds 1e-8 to
        # its root, which matters for the small gradients of a clipped critic.
        return GuardedRMSprop(rate, rho=settings.beta_2, epsilon=1e-16, **common)
    if settings.optimizer == "lion":
        return GuardedLion(rate, beta_1=settings.beta_1, beta_2=settings.beta_2, **common)
    return GuardedAdam(
        rate,
        beta_1=settings.beta_1,
        beta_2=beta_2(settings, updates_per_iteration),
        epsilon=1e-8,  # as in the paper's code; Keras's default is 1e-7
        **common,
    )
