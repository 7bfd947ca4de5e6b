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
from ..runtime.randomness import RngStream, normal, uniform
from .accumulation import replica_part, sum_over_micro_batches
from .augmentation import Augmentation
from .gradients import Gradients, dense, nan_unless_finite
from .interface import Objective, Terms, generator_needs_real
from .networks import bind_labels, update_ema
from .schedules import ema_decay
from .state import TrainState

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

    Attributes:
      state: The networks and the optimizers.
      objective: The losses.
      global_mean: (per_example `[B]`, global batch size) -> this replica's share of the mean.
      optimization: The batch sizes over all replicas, the decay of the generator's moving average,
        and the seed of the noise.
      latent_size: The length of a latent vector.
      classes: The number of classes of a conditional run, whose generator takes labels; 0 for an
        unconditional run.
      critic_takes_labels: Whether the critic takes labels or conditions too.
      conditions: `[M, K]` float32, standardized conditions of the data, from which the generator
        step draws; None without conditions.
      augmentation: Transforms the examples that the critic is trained on, and the samples that
        the generator is trained on; None for no transformation.
    """

    state: TrainState
    objective: Objective
    global_mean: Callable[[tf.Tensor, int], tf.Tensor]
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
        state, batch_size = self.state, self.optimization.batch_size
        index = _draw_index(update, rollbacks)
        latents, alpha, noise = self._critic_noise(
            real,
            (RngStream.CRITIC_LATENTS, index),
            (RngStream.INTERPOLATION, index),
            (RngStream.PERTURBATION, index),
        )
        # Outside the tape: the generator's weights stay. Its batch-norm statistics, which
        # inference uses, advance with every batch it draws.
        fake = self._generator(labels, training=True)(latents)
        weights, names = state.critic.trainable_variables, self.objective.critic_term_names

        def differentiate(
            real: tf.Tensor, fake: tf.Tensor, labels: tf.Tensor, alpha: tf.Tensor, noise: tf.Tensor
        ) -> Gradients:
            critic = self._critic(labels, training=True)
            if self.augmentation is not None:
                part, stream = replica_part(batch_size), RngStream.CRITIC_AUGMENTATION
                critic, real, fake = self.augmentation.of_critic_step(
                    critic, real, fake, stream=stream, step=index, part=part
                )
            with tf.GradientTape() as tape:
                # The penalty differentiates the critic with a tape of its own.
                terms = self.objective.critic_terms(
                    critic,
                    real,
                    fake,
                    alpha=alpha,
                    noise=noise,
                    step=update,
                    labels=labels,
                )
                shares = {name: self.global_mean(terms[name], batch_size) for name in names}
            return shares, dense(tape.gradient(shares["loss"], weights), weights)

        shares, gradients = self._accumulate(
            differentiate, (real, fake, labels, alpha, noise), names, weights
        )
        poison = nan_unless_finite(*shares.values(), gradients[0])
        shares["loss"] += poison
        gradients = [gradient + poison for gradient in gradients]
        state.critic_optimizer.apply_gradients(zip(gradients, weights, strict=True))
        self.objective.constrain(weights)
        return shares

    @property
    def generator_needs_real(self) -> bool:
        """Is True if `generator_step` needs real examples."""
        return generator_needs_real(self.objective)

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
        seed, batch_size = settings.seed, settings.generator_batch
        index = _draw_index(update, rollbacks)
        part = {**replica_part(batch_size), "step": index}
        latents = normal(seed, RngStream.GENERATOR_LATENTS, size=self.latent_size, **part)
        if self.generator_needs_real:
            if batch is None:
                raise ValueError("the objective compares samples with real examples: pass batch")
            *real, labels = batch
        else:
            position = uniform(seed, RngStream.GENERATOR_LABELS, size=1, **part)[:, 0]
            real, labels = [], self._labels_at(position)
        weights, names = state.generator.trainable_variables, self.objective.generator_term_names

        def differentiate(latents: tf.Tensor, labels: tf.Tensor, *real: tf.Tensor) -> Gradients:
            with tf.GradientTape() as tape:
                examples = [self._generator(labels, training=True)(latents), *real]
                if self.augmentation is not None:
                    stream, own = RngStream.GENERATOR_AUGMENTATION, replica_part(batch_size)
                    examples = self.augmentation(*examples, stream=stream, step=index, part=own)
                terms = self.objective.generator_terms(
                    self._critic(labels, training=True),
                    labels=labels,
                    **dict(zip(("fake", "real"), examples, strict=False)),
                )
                shares = {name: self.global_mean(terms[name], batch_size) for name in names}
            # On a TPU, scaling the loss costs less here than adding to each gradient.
            poison = nan_unless_finite(*shares.values())
            gradients = tape.gradient(shares["loss"], weights, output_gradients=1.0 + poison)
            return shares, dense(gradients, weights)

        shares, gradients = self._accumulate(
            differentiate, (latents, labels, *real), names, weights
        )
        shares["loss"] += nan_unless_finite(gradients[0])
        state.generator_optimizer.apply_gradients(zip(gradients, weights, strict=True))
        if state.generator_average is not None:
            decay = ema_decay(self.optimization, update)
            update_ema(state.generator_average, state.generator, decay)
        return shares

    def _accumulate(
        self,
        differentiate: Callable[..., Gradients],
        inputs: tuple[tf.Tensor, ...],
        names: Sequence[str],
        weights: Sequence[tf.Variable],
    ) -> Gradients:
        """Returns the shares and gradients of a batch, computed in micro-batches."""
        like = (dict.fromkeys(names, 0.0), list(weights))
        return sum_over_micro_batches(
            differentiate, inputs, self.optimization.accumulate, like=like
        )

    def diagnose_critic(self, real: tf.Tensor, labels: tf.Tensor) -> tuple[Terms, tf.Tensor]:
        """Computes the critic's terms without training, with the networks in inference mode.

        The noise is the same in every call, and no example is transformed.

        Args:
          real: Real examples, as in `critic_step`.
          labels: Their labels, as in `critic_step`.

        Returns:
          The critic terms, each `[batch_size / replicas]`, by name; and the samples for which
          they were computed.
        """
        latents, alpha, noise = self._critic_noise(
            real, (RngStream.PROBE, 0), (RngStream.PROBE, 1), (RngStream.PROBE, 2)
        )
        fake = self._generator(labels, training=False)(latents)
        terms = self.objective.critic_terms(
            self._critic(labels, training=False),
            real,
            fake,
            alpha=alpha,
            noise=noise,
            step=tf.constant(0, tf.int64),  # a step with a penalty, also under lazy penalties
            labels=labels,
        )
        return terms, fake

    def _critic_noise(
        self, real: tf.Tensor, *keys: tuple[RngStream, tf.Tensor | int]
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Draws the random inputs of a critic step on this replica.

        Args:
          real: The real examples of this replica.
          *keys: The stream and the index of the draw of the latents, alpha and the noise.

        Returns:
          Latents `[B, latent_size]`, alpha `[B]`, and noise of the shape of `real`. A penalty uses
          at most one of alpha and noise; unused values are pruned from the graph.
        """
        part, seed = replica_part(self.optimization.batch_size), self.optimization.seed
        sizes = (self.latent_size, 1, math.prod(real.shape[1:]))
        latents, alpha, noise = (
            draw(seed, stream, step=tf.cast(index, tf.int64), size=size, **part)
            for draw, size, (stream, index) in zip(
                (normal, uniform, normal), sizes, keys, strict=True
            )
        )
        return latents, alpha[:, 0], tf.reshape(noise, real.shape)

    def _labels_at(self, position: tf.Tensor) -> tf.Tensor:
        """Returns labels, or conditions of the data, for numbers `[B]` uniform on [0, 1)."""
        if self.conditions is None:
            return tf.cast(self.classes * position, tf.int32)
        # In float32, a position just below 1 times the size may round up to the size.
        last = len(self.conditions) - 1
        row = tf.minimum(tf.cast(len(self.conditions) * position, tf.int32), last)
        return tf.gather(tf.constant(self.conditions), row)

    def _generator(self, labels: tf.Tensor, *, training: bool) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns the generator as a function of latents."""
        labels = labels if self.classes or self.conditions is not None else None
        return bind_labels(self.state.generator, labels, training=training)

    def _critic(self, labels: tf.Tensor, *, training: bool) -> Callable[[tf.Tensor], Any]:
        """Returns the critic as a function of examples."""
        labels = labels if self.critic_takes_labels else None
        return bind_labels(self.state.critic, labels, training=training)


def _draw_index(update: tf.Tensor, rollbacks: tf.Tensor | int) -> tf.Tensor:
    """Returns the index of an update's draw, which differs between rollbacks."""
    return tf.cast(update, tf.int64) + _MAX_UPDATES * rollbacks
