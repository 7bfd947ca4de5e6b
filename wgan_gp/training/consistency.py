"""Balanced consistency regularization (Zhao et al. 2020, arXiv:2002.04724)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ..runtime.randomness import RngStream
from .accumulation import replica_part
from .augmentation import Augmentation
from .interface import Objective, Terms, generator_needs_real


@dataclasses.dataclass(frozen=True)
class ConsistentObjective:
    """An objective with a further term in the critic's loss, "consistency".

        consistency = |D(real) - D(T(real))|^2 + |D(fake) - D(T(fake))|^2

    T transforms the examples of a pair with the same random parameters (algorithm 1 of the paper).
    All other terms, the penalty and the generator's loss see examples that are not transformed.

    Attributes:
      objective: The objective without the term.
      augmentation: T.
      batch_size: The number of real examples of a critic step, over all replicas.
      weight: The weight of the term in the critic's loss; the paper's lambda of both summands.
    """

    objective: Objective
    augmentation: Augmentation
    batch_size: int
    weight: float

    @property
    def critic_term_names(self) -> tuple[str, ...]:
        return (*self.objective.critic_term_names, "consistency")

    @property
    def generator_term_names(self) -> tuple[str, ...]:
        return self.objective.generator_term_names

    @property
    def generator_needs_real(self) -> bool:
        return generator_needs_real(self.objective)

    def critic_terms(
        self,
        critic: Callable,
        real: tf.Tensor,
        fake: tf.Tensor,
        *,
        step: tf.Tensor,
        **inputs: Any,
    ) -> Terms:
        """Returns the terms of the objective, with "consistency" `[B]` and the total loss."""
        terms = self.objective.critic_terms(critic, real, fake, step=step, **inputs)
        fake = tf.stop_gradient(fake)
        stream, part = RngStream.CRITIC_AUGMENTATION, replica_part(self.batch_size)
        transformed = self.augmentation(real, fake, stream=stream, step=step, part=part)
        scores = _scores(critic, tf.concat([real, fake, *transformed], axis=0))
        before, after = tf.split(scores, 2)
        squares = tf.reduce_sum(tf.square(after - before), axis=1)
        consistency = tf.add_n(tf.split(squares, 2))
        loss = terms["loss"] + tf.cast(self.weight * consistency, terms["loss"].dtype)
        return {**terms, "consistency": consistency, "loss": loss}

    def generator_terms(self, *arguments: Any, **inputs: Any) -> Terms:
        return self.objective.generator_terms(*arguments, **inputs)

    def constrain(self, weights: Sequence[tf.Variable]) -> None:
        self.objective.constrain(weights)


def _scores(critic: Callable, examples: tf.Tensor) -> tf.Tensor:
    """Returns the critic's scores as `[B, N]` float32, without the class logits of a pair."""
    output = critic(examples)
    scores = output[0] if isinstance(output, (tuple, list)) else output
    return tf.cast(tf.reshape(scores, [examples.shape[0], -1]), tf.float32)
