"""The critic update and the generator update of one replica.

Implements algorithm 1 of Gulrajani et al. 2017 (arXiv:1704.00028): `critic_step` is lines 4 to
9, `generator_step` is lines 11 and 12.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..config import OptimizationSettings
from ..errors import UserError
from ..runtime.randomness import RngStream, normal, uniform
from .accumulation import sum_over_micro_batches
from .augmentation import DRAWS, Augmentation
from .networks import bind_labels, regularized_weights, update_ema
from .objective import Objective, Terms, generator_needs_real
from .optimizer import dense, nan_unless_finite
from .schedules import ema_decay
from .state import TrainState

# A replica's shares of the means of the terms, by name, and its gradient in each weight.
Gradients = tuple[Terms, list[tf.Tensor]]

REGULARIZATION = "regularization"  # the term of the regularizers of weights
_MAX_UPDATES = 2**40  # more than a run has, so that the noise of two rollbacks never overlaps


@dataclasses.dataclass(frozen=True)
class ReplicaStep:
    """The critic update and the generator update, to be run inside `strategy.run`.

    Gradients are summed over replicas, so each replica minimizes its share of the global
    mean: the sum over its examples divided by the global batch size. The returned scalars are
    such shares, too; their sum over replicas is the global mean.

    If a term of one replica is not finite, the replica sets its gradients to NaN: all gradients
    of the critic, and those gradients of the generator that depend on the loss. Their sum over
    replicas is then NaN on every replica, and every optimizer skips the update without further
    communication.

    The regularizers of a network's weights are added to its loss, once in each update, and are its
    term "regularization".

    Attributes:
      state: The networks and the optimizers.
      objective: The losses.
      global_mean: (per_example `[B]`, global batch size) -> this replica's share of the mean.
      regularization_share: (losses that do not depend on examples) -> this replica's share.
      optimization: The batch sizes over all replicas, the decay of the generator's moving average,
        and the seed of the noise.
      latent_size: The length of a latent vector.
      classes: The number of classes of a conditional run, whose generator takes labels; 0 for an
        unconditional run.
      critic_takes_labels: Whether the critic takes labels or conditions too.
      conditions: The standardized conditions of the data, `[M, K]` float32, from which the
        generator step draws, or the labels, `[M]` int32; None for labels of equal probability.
      augmentation: The transformations of what the critic sees; None without them.
    """

    state: TrainState
    objective: Objective
    global_mean: Callable[[tf.Tensor, int], tf.Tensor]
    regularization_share: Callable[[list[tf.Tensor]], tf.Tensor]
    optimization: OptimizationSettings
    latent_size: int
    classes: int = 0
    critic_takes_labels: bool = False
    conditions: np.ndarray | None = None
    augmentation: Augmentation | None = None

    def critic_step(
        self, real: tf.Tensor, labels: tf.Tensor, update: tf.Tensor, rollbacks: tf.Tensor | int = 0
    ) -> Terms:
        """Updates the critic on this replica's real examples and the same number of fakes.

        The fakes are generated for the labels of the real examples, so that both have the same
        distribution of classes.

        Args:
          real: `[batch_size / replicas, *example_shape]` float32.
          labels: `[batch_size / replicas]` int32, or conditions `[batch_size / replicas, K]`
            float32; ignored by unconditional networks.
          update: Scalar int64, the number of critic updates done so far.
          rollbacks: Scalar int64, the number of rollbacks so far; each changes the noise.

        Returns:
          This replica's share of the mean of each critic term, as scalars by name.
        """
        state, settings = self.state, self.optimization
        weights = state.critic.trainable_variables
        index = _draw_index(update, rollbacks)
        latents, noise = self.critic_noise(
            real,
            latents=(RngStream.CRITIC_LATENTS, index),
            alpha=(RngStream.INTERPOLATION, index),
            noise=(RngStream.PERTURBATION, index),
            draws=(RngStream.CRITIC_AUGMENTATION, index),
        )
        # Outside the tape: the generator's weights stay. Its batch-norm statistics, which
        # inference uses, advance with every batch it draws.
        fake = self.generator(labels, training=True)(latents)

        def differentiate(
            real: tf.Tensor,
            fake: tf.Tensor,
            labels: tf.Tensor,
            draws: tf.Tensor | None = None,
            **noise: tf.Tensor,
        ) -> Gradients:
            critic = self.critic(labels, training=True)
            with tf.GradientTape() as tape:
                if self.augmentation is not None:
                    real, fake = self.augmentation(draws, real, fake)
                # The penalty differentiates the critic with a tape of its own.
                terms = self.objective.critic_terms(
                    critic, real, fake, labels=labels, step=update, **noise
                )
                shares = self._shares(
                    terms, self.objective.critic_term_names, settings.batch_size, state.critic
                )
            return shares, dense(tape.gradient(shares["loss"], weights), weights)

        shares, gradients = sum_over_micro_batches(
            differentiate,
            {"real": real, "fake": fake, "labels": labels, **noise},
            settings.accumulate,
            like=(dict.fromkeys(self.critic_term_names, 0.0), list(weights)),
        )
        poison = nan_unless_finite(*shares.values(), gradients[0])
        shares["loss"] += poison
        gradients = [gradient + poison for gradient in gradients]
        state.critic_optimizer.apply_gradients(zip(gradients, weights, strict=True))
        self.objective.constrain(weights)
        return shares

    def generator_step(
        self,
        update: tf.Tensor,
        rollbacks: tf.Tensor | int = 0,
        batch: tuple[tf.Tensor, tf.Tensor] | None = None,
    ) -> Terms:
        """Updates the generator on this replica's part of a new batch of latents.

        Args:
          update: Scalar int64, the number of generator updates done so far.
          rollbacks: Scalar int64, the number of rollbacks so far; each changes the noise.
          batch: The real examples of the last critic step and their labels, for which samples are
            then generated; used if `generator_needs_real`.

        Returns:
          This replica's share of the mean of each generator term, as scalars by name.
        """
        state, settings = self.state, self.optimization
        weights = state.generator.trainable_variables
        batch_size = settings.generator_batch
        index = _draw_index(update, rollbacks)

        def draw(numbers: Callable, stream: RngStream, size: int) -> tf.Tensor:
            part = replica_part(batch_size)
            return numbers(settings.seed, stream, step=index, size=size, **part)

        inputs = {"latents": draw(normal, RngStream.GENERATOR_LATENTS, self.latent_size)}
        if self.generator_needs_real:
            if batch is None:
                raise ValueError("the objective compares samples with real examples: pass batch")
            inputs["real"], inputs["labels"] = batch
        else:
            positions = draw(uniform, RngStream.GENERATOR_LABELS, 1)[:, 0]
            inputs["labels"] = self._labels_at(positions)
        if self.augmentation is not None:
            inputs["draws"] = draw(uniform, RngStream.GENERATOR_AUGMENTATION, DRAWS)

        def differentiate(
            latents: tf.Tensor,
            labels: tf.Tensor,
            draws: tf.Tensor | None = None,
            **real: tf.Tensor,
        ) -> Gradients:
            critic = self.critic(labels, training=True)
            with tf.GradientTape() as tape:
                fake = self.generator(labels, training=True)(latents)
                if self.augmentation is not None:
                    fake, *transformed = self.augmentation(draws, fake, *real.values())
                    real = dict(zip(real, transformed, strict=True))
                terms = self.objective.generator_terms(critic, fake, labels=labels, **real)
                shares = self._shares(
                    terms, self.objective.generator_term_names, batch_size, state.generator
                )
            # On a TPU, scaling the loss costs less here than adding to each gradient.
            poison = nan_unless_finite(*shares.values())
            gradients = tape.gradient(shares["loss"], weights, output_gradients=1.0 + poison)
            return shares, dense(gradients, weights)

        shares, gradients = sum_over_micro_batches(
            differentiate,
            inputs,
            settings.accumulate,
            like=(dict.fromkeys(self.generator_term_names, 0.0), list(weights)),
        )
        shares["loss"] += nan_unless_finite(gradients[0])
        state.generator_optimizer.apply_gradients(zip(gradients, weights, strict=True))
        if state.generator_average is not None:
            update_ema(state.generator_average, state.generator, ema_decay(settings, update))
        return shares

    @property
    def critic_term_names(self) -> tuple[str, ...]:
        """The names of the result of `critic_step`."""
        return _with_regularization(self.objective.critic_term_names, self.state.critic)

    @property
    def generator_term_names(self) -> tuple[str, ...]:
        """The names of the result of `generator_step`."""
        return _with_regularization(self.objective.generator_term_names, self.state.generator)

    def _shares(
        self, terms: Terms, names: Sequence[str], batch_size: int, network: Any
    ) -> dict[str, tf.Tensor]:
        """Returns this replica's shares of the means of a network's terms and regularizers."""
        shares = {name: self.global_mean(terms[name], batch_size) for name in names}
        # Each micro-batch adds its part of the regularizers.
        parts = self.optimization.accumulate
        return add_regularization(
            shares, network, lambda losses: self.regularization_share(losses) / parts
        )

    @property
    def generator_needs_real(self) -> bool:
        """Is True if `generator_step` needs real examples."""
        return generator_needs_real(self.objective)

    def critic_noise(
        self, real: tf.Tensor, **draws: tuple[RngStream, tf.Tensor | int]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Draws the random inputs of a critic step on this replica.

        Args:
          real: The real examples of this replica.
          **draws: The stream and the index of the draw of "latents", "alpha", "noise" and "draws".

        Returns:
          Latents `[B, latent_size]`, and the random inputs of the critic's terms by name, see
          `Objective`, with the "draws" of the augmentation if there is one. A penalty uses at most
          one of alpha and noise; unused values are pruned from the graph.
        """
        settings = self.optimization

        def draw(numbers: Callable, name: str, size: int) -> tf.Tensor:
            stream, index = draws[name]
            step, part = tf.cast(index, tf.int64), replica_part(settings.batch_size)
            return numbers(settings.seed, stream, step=step, size=size, **part)

        latents = draw(normal, "latents", self.latent_size)
        noise = draw(normal, "noise", math.prod(real.shape[1:]))
        inputs = {
            "alpha": draw(uniform, "alpha", 1)[:, 0],
            "noise": tf.reshape(noise, real.shape),
        }
        if self.augmentation is not None:
            inputs["draws"] = draw(uniform, "draws", DRAWS)
        return latents, inputs

    def generator(self, labels: tf.Tensor, *, training: bool) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns the generator as a function of latents."""
        labels = labels if self.classes or self.conditions is not None else None
        return bind_labels(self.state.generator, labels, training=training)

    def critic(self, labels: tf.Tensor, *, training: bool) -> Callable[[tf.Tensor], Any]:
        """Returns the critic as a function of examples."""
        labels = labels if self.critic_takes_labels else None
        return bind_labels(self.state.critic, labels, training=training)

    def _labels_at(self, position: tf.Tensor) -> tf.Tensor:
        """Returns labels, or conditions of the data, for numbers `[B]` uniform on [0, 1)."""
        if self.conditions is None:
            return tf.cast(self.classes * position, tf.int32)
        row = tf.cast(len(self.conditions) * position, tf.int32)
        return tf.gather(tf.constant(self.conditions), row)


def add_regularization(shares: Terms, network: Any, share_of: Callable) -> Terms:
    """Returns the shares of a network's terms, with the regularizers of its weights.

    Args:
      shares: This replica's shares of the terms.
      network: The network.
      share_of: (losses that do not depend on examples) -> this replica's share of their sum.
    """
    if not (weights := regularized_weights(network)):
        return shares
    share = share_of([weight.regularizer(weight) for weight in weights])
    return {**shares, REGULARIZATION: share, "loss": shares["loss"] + share}


def _with_regularization(names: Sequence[str], network: Any) -> tuple[str, ...]:
    if not regularized_weights(network):
        return tuple(names)
    if REGULARIZATION in names:
        raise UserError(
            f'the objective has a term "{REGULARIZATION}", the name of the regularizers of weights',
            "give it another name",
        )
    return (*names, REGULARIZATION)


def replica_part(global_batch_size: int) -> dict[str, Any]:
    """Returns the arguments `first` and `count` of random numbers for this replica's examples."""
    context = tf.distribute.get_replica_context()
    count = global_batch_size // context.num_replicas_in_sync
    replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
    return {"first": replica * count, "count": count}


def _draw_index(update: tf.Tensor, rollbacks: tf.Tensor | int) -> tf.Tensor:
    """Returns the index of an update's draw, which differs between rollbacks."""
    return tf.cast(update, tf.int64) + _MAX_UPDATES * rollbacks
