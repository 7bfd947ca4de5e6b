"""Objectives: what a training engine asks of a loss, as named per-example terms."""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from .penalties import gradient_norm, interpolate, norm_penalty
from .wasserstein import Critic, critic_loss, generator_loss, score


@dataclasses.dataclass(frozen=True)
class WassersteinGradientPenalty:
    """WGAN-GP (arXiv:1704.00028, algorithm 1); one-sided: WGAN-LP (arXiv:1709.08894).

    Attributes:
      penalty_weight: lambda, the factor of the penalty in the critic's loss, >= 0.
      penalty_target: the gradient norm asked for, >= 0.
      one_sided: penalise only gradient norms above the target.
    """

    critic_term_names: ClassVar[tuple[str, ...]] = (
        "loss",
        "wasserstein",
        "penalty",
        "gradient_norm",
    )
    generator_term_names: ClassVar[tuple[str, ...]] = ("loss",)

    penalty_weight: float = 10.0
    penalty_target: float = 1.0
    one_sided: bool = False

    def critic_terms(
        self, critic: Critic, real: tf.Tensor, fake: tf.Tensor, alpha: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The critic's terms, each `[B]`; "loss" is the one to minimise.

        loss = -wasserstein + penalty_weight * penalty. `fake` is taken as a constant, so
        no gradient reaches the generator.

        Args:
          critic: maps `[B, ...]` to scores `[B]` or `[B, 1]`.
          real: `[B, ...]`, floating point.
          fake: like `real`.
          alpha: `[B]` in [0, 1), the place on each line between real and fake.
        """
        fake = tf.stop_gradient(fake)
        # One call for both halves: no example influences another one's score.
        scores = score(critic, tf.concat([real, fake], axis=0))
        wasserstein = -critic_loss(*tf.split(scores, 2))
        norm = gradient_norm(critic, interpolate(real, fake, alpha))
        penalty = norm_penalty(norm, target=self.penalty_target, one_sided=self.one_sided)
        return {
            "loss": self.penalty_weight * penalty - wasserstein,
            "wasserstein": wasserstein,
            "penalty": penalty,
            "gradient_norm": norm,
        }

    def generator_terms(self, critic: Critic, fake: tf.Tensor) -> dict[str, tf.Tensor]:
        """The generator's terms, each `[B]`; "loss" is the one to minimise."""
        return {"loss": generator_loss(score(critic, fake))}
