"""One replica's critic update and generator update: the algorithm of the paper.

Gulrajani et al. 2017 (arXiv:1704.00028), algorithm 1: lines 4 to 9 are `critic_step`,
lines 11 and 12 are `generator_step`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from .networks import conditioned, move_towards
from .randomness import Stream, normal, uniform
from .state import TrainState

Terms = dict[str, tf.Tensor]
ZERO = tf.UnconnectedGradients.ZERO
_STEPS_AT_MOST = 2**40  # a run has fewer, so that no rollback draws what another drew


class Objective(Protocol):
    """What to minimise, as named per-example terms `[B]`; "loss" is the one minimised.

    "loss" is the only term that both networks must have. All others are logged. Three terms of the
    critic are also shown and judged where the objective has them: "wasserstein" (the estimated
    distance), "penalty" (unweighted) and "gradient_norm".

    Attributes:
      critic_term_names, generator_term_names: the names of the terms, in any order. The
        device loop needs them before it runs.
    """

    @property
    def critic_term_names(self) -> tuple[str, ...]: ...

    @property
    def generator_term_names(self) -> tuple[str, ...]: ...

    def critic_terms(
        self,
        critic: Callable,
        real: tf.Tensor,
        fake: tf.Tensor,
        *,
        alpha: tf.Tensor,
        noise: tf.Tensor,
        step: tf.Tensor,
        labels: tf.Tensor,
    ) -> Terms:
        """Of a critic step; `alpha` is `[B]`, uniform, and `noise` like `real`, normal.

        `labels`, `[B]` int32, are those of the real examples and of the fake ones.
        """

    def generator_terms(self, critic: Callable, fake: tf.Tensor, *, labels: tf.Tensor) -> Terms:
        """Of a generator step; `labels` are those the samples were drawn for."""

    def constrain(self, weights: Sequence[tf.Variable]) -> None:
        """What the critic's weights must obey after each update."""


@dataclasses.dataclass(frozen=True)
class ReplicaStep:
    """The two updates, as one replica runs them inside `strategy.run`.

    Gradients are summed over replicas, so each replica minimises its share of the global
    mean: the sum over its examples divided by the global batch. The scalars it returns are
    such shares too; their sum over replicas is the global mean of what was minimised.

    Where the loss of one replica is not finite, its gradients are made NaN. So is then their sum,
    on every replica, and the optimizer passes over it: no word between them is needed. All of the
    critic's are; of the generator's those that the loss reaches.

    Attributes:
      state: networks and optimizers.
      objective: the losses.
      global_mean: (per_example `[B]`, global batch size) -> this replica's share.
      latent_size: length of a latent vector.
      batch_size, generator_batch_size: examples over all replicas, in a critic and in a
        generator step.
      seed: of the noise.
      classes: of a conditional run, whose generator takes labels; a generator step draws them. 0:
        an unconditional run.
      critic_takes_labels: whether the critic takes labels, too.
      generator_ema_decay: of the generator's moving average, if the state has one.
    """

    state: TrainState
    objective: Objective
    global_mean: Callable[[tf.Tensor, int], tf.Tensor]
    latent_size: int
    batch_size: int
    generator_batch_size: int
    seed: int
    classes: int = 0
    critic_takes_labels: bool = False
    generator_ema_decay: float = 0.0

    def critic_step(
        self, real: tf.Tensor, labels: tf.Tensor, step: tf.Tensor, rollbacks: tf.Tensor | int = 0
    ) -> Terms:
        """Updates the critic on this replica's real examples and as many fakes.

        The fakes are drawn for the labels of the real examples, so that the two differ by who
        made them alone.

        Args:
          real: `[batch_size / replicas, *example_shape]` float32.
          labels: `[batch_size / replicas]` int32; an unconditional network takes none.
          step: scalar int64, critic steps done so far.
          rollbacks: scalar int64; each brings other noise.

        Returns:
          This replica's share of the mean of each critic term, scalars.
        """
        state, seed = self.state, self.seed
        part = _replica_part(self.batch_size, step, rollbacks)
        latents = normal(seed, Stream.CRITIC_LATENTS, size=self.latent_size, **part)
        alpha = uniform(seed, Stream.INTERPOLATION, size=1, **part)[:, 0]
        # A penalty looks at alpha or at noise; what it leaves is pruned from the graph.
        noise = normal(seed, Stream.PERTURBATION, size=math.prod(real.shape[1:]), **part)
        # Outside the tape: the generator's weights stay. Its batch-norm statistics, which
        # inference uses, advance with every batch it draws.
        fake = self._generator(labels, training=True)(latents)
        with tf.GradientTape() as tape:
            # The penalty takes the gradient of the critic inside, with a tape of its own.
            terms = self.objective.critic_terms(
                self._critic(labels, training=True),
                real,
                fake,
                alpha=alpha,
                noise=tf.reshape(noise, real.shape),
                step=step,
                labels=labels,
            )
            shares = {name: self.global_mean(term, self.batch_size) for name, term in terms.items()}
        weights = state.critic.trainable_variables
        gradients = _dense(tape.gradient(shares["loss"], weights, unconnected_gradients=ZERO))
        poison = _nan_unless_finite(*shares.values(), gradients[0])
        shares["loss"] += poison
        gradients = [gradient + poison for gradient in gradients]
        state.critic_optimizer.apply_gradients(zip(gradients, weights, strict=True))
        self.objective.constrain(weights)
        return shares

    def look(self, real: tf.Tensor, labels: tf.Tensor) -> tuple[Terms, tf.Tensor]:
        """The critic's terms as they stand, by the networks as sampling calls them; trains nothing.

        Args:
          real, labels: as for `critic_step`.

        Returns:
          Each critic term, `[batch_size / replicas]`, and the samples they were found with. The
          noise is always the same.
        """
        part = _replica_part(self.batch_size, tf.constant(0), 0)
        shape = math.prod(real.shape[1:])
        latents, alpha, noise = (
            draw(self.seed, Stream.PROBE, size=size, **{**part, "step": number})
            for number, (draw, size) in enumerate(
                [(normal, self.latent_size), (uniform, 1), (normal, shape)]
            )
        )
        fake = self._generator(labels, training=False)(latents)
        terms = self.objective.critic_terms(
            self._critic(labels, training=False),
            real,
            fake,
            alpha=alpha[:, 0],
            noise=tf.reshape(noise, real.shape),
            step=tf.constant(0, tf.int64),  # one that is penalised
            labels=labels,
        )
        return terms, fake

    def generator_step(self, step: tf.Tensor, rollbacks: tf.Tensor | int = 0) -> Terms:
        """Updates the generator on this replica's part of a fresh batch of latents.

        Args:
          step: scalar int64, generator steps done so far.
          rollbacks: scalar int64; each brings other noise.

        Returns:
          This replica's share of the mean of each generator term, scalars.
        """
        state, seed = self.state, self.seed
        part = _replica_part(self.generator_batch_size, step, rollbacks)
        latents = normal(seed, Stream.GENERATOR_LATENTS, size=self.latent_size, **part)
        place = uniform(seed, Stream.GENERATOR_LABELS, size=1, **part)[:, 0]
        labels = tf.cast(self.classes * place, tf.int32)
        with tf.GradientTape() as tape:
            fake = self._generator(labels, training=True)(latents)
            terms = self.objective.generator_terms(
                self._critic(labels, training=True), fake, labels=labels
            )
            shares = {
                name: self.global_mean(term, self.generator_batch_size)
                for name, term in terms.items()
            }
        weights = state.generator.trainable_variables
        # On a TPU a factor of the loss costs less here than an addition to each gradient.
        poison = _nan_unless_finite(*shares.values())
        gradients = _dense(
            tape.gradient(
                shares["loss"],
                weights,
                output_gradients=1.0 + poison,
                unconnected_gradients=ZERO,
            )
        )
        shares["loss"] += _nan_unless_finite(gradients[0])
        state.generator_optimizer.apply_gradients(zip(gradients, weights, strict=True))
        if state.generator_average is not None:
            # Short at first: a long average would remember the initial weights for long.
            done = tf.cast(step, tf.float32)
            decay = tf.minimum(self.generator_ema_decay, (1.0 + done) / (10.0 + done))
            move_towards(state.generator_average, state.generator, decay)
        return shares

    def _generator(self, labels: tf.Tensor, *, training: bool) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns the generator as a function of latents."""
        labels = labels if self.classes else None
        return conditioned(self.state.generator, labels, training=training)

    def _critic(self, labels: tf.Tensor, *, training: bool) -> Callable[[tf.Tensor], Any]:
        """Returns the critic as a function of examples."""
        labels = labels if self.critic_takes_labels else None
        return conditioned(self.state.critic, labels, training=training)


def _replica_part(
    global_batch_size: int, step: tf.Tensor, rollbacks: tf.Tensor | int
) -> dict[str, Any]:
    """Which numbers of a stream are this replica's: the draw, the first example, how many."""
    context = tf.distribute.get_replica_context()
    count = global_batch_size // context.num_replicas_in_sync
    return {
        "step": tf.cast(step, tf.int64) + _STEPS_AT_MOST * rollbacks,
        "first": tf.cast(context.replica_id_in_sync_group, tf.int64) * count,
        "count": count,
    }


def _dense(gradients: Sequence[tf.Tensor | tf.IndexedSlices]) -> list[tf.Tensor]:
    """Returns the gradients with the repeated rows of sparse ones summed.

    The gradient of a gather is sparse, with one row per gathered index. Keras's Adam would square
    each row instead of the sum of the rows of an index.
    """
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


def _nan_unless_finite(*witnesses: tf.Tensor) -> tf.Tensor:
    """0, or NaN if one of the tensors is not finite.

    The gradient of a network's first layer is a good witness: a rectifier may hide NaN from the
    loss, but what it hides comes back to that layer, as 0 times NaN.
    """
    total = tf.add_n([tf.reduce_sum(witness) for witness in witnesses])
    return tf.where(tf.math.is_finite(total), 0.0, float("nan"))
