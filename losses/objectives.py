"""Objectives: what a training engine asks of a loss, as named per-example terms."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from .adversarial import ADVERSARIAL_LOSSES
from .auxiliary import classification_loss, clip_weights, drift
from .penalties import (
    gradient_norm,
    interpolate,
    lazily,
    one_sided,
    perturb,
    two_sided,
    zero_centred,
)
from .scores import like_each_other, scores_of

Terms = dict[str, tf.Tensor]


class Penalty(NamedTuple):
    """A gradient penalty: where the norm is measured, and what is asked of it.

    Attributes:
      where: (real, fake, alpha, noise, scale of the noise) -> points like `real`.
      what: (norm `[B]`, target) -> the unweighted penalty `[B]`; None: nothing is asked.
    """

    where: Callable[..., tf.Tensor]
    what: Callable[[tf.Tensor, float], tf.Tensor] | None


def _between(real, fake, alpha, noise, scale):
    return interpolate(real, fake, alpha)


def _around_real(real, fake, alpha, noise, scale):
    return perturb(real, noise, scale)


def _at_real(real, fake, alpha, noise, scale):
    return real


def _at_fake(real, fake, alpha, noise, scale):
    return fake


def _zero_centred(norm, target):
    return zero_centred(norm)


# What --penalty chooses from.
PENALTIES = {
    "two_sided": Penalty(_between, two_sided),
    "one_sided": Penalty(_between, one_sided),
    "zero_centred": Penalty(_between, _zero_centred),
    "r1": Penalty(_at_real, _zero_centred),
    "r2": Penalty(_at_fake, _zero_centred),
    "dragan": Penalty(_around_real, two_sided),
    "weight_clipping": Penalty(_between, None),
    "none": Penalty(_between, None),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GanObjective:
    """An adversarial loss, a penalty and what goes with them; by default WGAN-GP.

    Gulrajani et al. 2017 (arXiv:1704.00028), algorithm 1. Every other choice has its
    reference at its function.

    Attributes:
      adversarial_loss: a key of ADVERSARIAL_LOSSES.
      penalty: a key of PENALTIES.
      penalty_weight: lambda, the factor of the penalty in the critic's loss, >= 0.
      penalty_target: the gradient norm asked for, >= 0; zero-centred penalties have none.
      penalty_interval: penalise every k-th critic step only, k times as much, k >= 1.
      penalty_noise: standard deviation of dragan's noise, >= 0, in the data's units.
      clip_value: the limit of weight_clipping, > 0.
      drift_weight: factor of `drift` in the critic's loss, >= 0.
      critic_class_weight, generator_class_weight: factors of `classification_loss`, >= 0.
        Where one is not 0, the critic returns a pair, scores and class logits `[B, K]`.

    Raises:
      ValueError: an unknown name, or a number out of range.
    """

    adversarial_loss: str = "wasserstein"
    penalty: str = "two_sided"
    penalty_weight: float = 10.0
    penalty_target: float = 1.0
    penalty_interval: int = 1
    penalty_noise: float = 0.25
    clip_value: float = 0.01
    drift_weight: float = 0.0
    critic_class_weight: float = 0.0
    generator_class_weight: float = 0.0

    def __post_init__(self):
        for name, registry in (("adversarial_loss", ADVERSARIAL_LOSSES), ("penalty", PENALTIES)):
            if getattr(self, name) not in registry:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is unknown: use one of {', '.join(registry)}"
                )
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is float and not (isinstance(value, (int, float)) and value >= 0):
                raise ValueError(f"{field.name} must be a number, not negative; got {value!r}")
        if not isinstance(self.penalty_interval, int):
            raise ValueError(f"penalty_interval must be an int, got {self.penalty_interval!r}")
        for name in ("penalty_interval", "clip_value"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")

    @property
    def critic_term_names(self) -> tuple[str, ...]:
        """The names of what `critic_terms` returns."""
        optional = {
            "adversarial": self.adversarial_loss != "wasserstein",
            "drift": self.drift_weight,
            "classification": self.critic_class_weight,
        }
        names = ["loss", "wasserstein", "penalty", "gradient_norm"]
        return (*names, *(name for name, wanted in optional.items() if wanted))

    @property
    def generator_term_names(self) -> tuple[str, ...]:
        """The names of what `generator_terms` returns."""
        return ("loss", "classification") if self.generator_class_weight else ("loss",)

    def critic_terms(
        self,
        critic: Callable,
        real: tf.Tensor,
        fake: tf.Tensor,
        *,
        alpha: tf.Tensor,
        noise: tf.Tensor,
        step: tf.Tensor,
        labels: tf.Tensor | None = None,
    ) -> Terms:
        """The critic's terms, each `[B]`; "loss" is the one to minimise.

        loss = adversarial + penalty_weight * penalty + drift_weight * drift
               + critic_class_weight * classification

        "wasserstein" is D(real) - D(fake); where that is the adversarial loss, negated,
        there is no term of that name. `fake` is taken as a constant, so no gradient reaches
        the generator.

        Args:
          critic: maps `[B, ...]` to scores `[B]` or `[B, 1]`, or to scores and class logits.
          real: `[B, ...]`, floating point.
          fake: like `real`.
          alpha: `[B]` in [0, 1), the place on each line between real and fake.
          noise: like `real`, standard normal; dragan alone looks at it.
          step: scalar integer, critic steps done so far.
          labels: `[B]` integers, the classes of `real`, for the classifier.
        """
        real, fake = like_each_other(real, "real", tf.stop_gradient(fake), "fake")
        # One call for both halves: no example influences another one's score.
        scores, logits = _outputs(critic, tf.concat([real, fake], axis=0))
        real_scores, fake_scores = tf.split(scores, 2)
        norm, penalty = lazily(
            self.penalty_interval,
            step,
            lambda: self._norm_and_penalty(critic, real, fake, alpha, noise, after=scores),
            like=(real_scores, real_scores),
        )
        adversarial = ADVERSARIAL_LOSSES[self.adversarial_loss].critic(real_scores, fake_scores)
        terms = {
            "adversarial": adversarial,
            "wasserstein": real_scores - fake_scores,
            "penalty": penalty,
            "gradient_norm": norm,
            "loss": adversarial + self.penalty_weight * penalty,
        }
        if self.drift_weight:
            terms["drift"] = drift(real_scores)
            terms["loss"] += self.drift_weight * terms["drift"]
        if self.critic_class_weight:
            real_logits = None if logits is None else tf.split(logits, 2)[0]
            terms["classification"] = _classification(real_logits, labels)
            terms["loss"] += self.critic_class_weight * terms["classification"]
        return {name: terms[name] for name in self.critic_term_names}

    def generator_terms(
        self, critic: Callable, fake: tf.Tensor, *, labels: tf.Tensor | None = None
    ) -> Terms:
        """The generator's terms, each `[B]`; "loss" is the one to minimise.

        Args:
          critic: as for `critic_terms`.
          fake: `[B, ...]`, samples.
          labels: `[B]` integers, the classes the samples were drawn for.
        """
        scores, logits = _outputs(critic, fake)
        terms = {"loss": ADVERSARIAL_LOSSES[self.adversarial_loss].generator(scores)}
        if self.generator_class_weight:
            terms["classification"] = _classification(logits, labels)
            terms["loss"] += self.generator_class_weight * terms["classification"]
        return terms

    def constrain(self, weights: Sequence[tf.Variable]) -> None:
        """What the critic's weights must obey after each update: the clipping, if asked for."""
        if self.penalty == "weight_clipping":
            clip_weights(weights, self.clip_value)

    def _norm_and_penalty(
        self, critic, real, fake, alpha, noise, *, after
    ) -> tuple[tf.Tensor, tf.Tensor]:
        where, what = PENALTIES[self.penalty]
        points = _in_turn(where(real, fake, alpha, noise, self.penalty_noise), after)
        norm = gradient_norm(lambda examples: _outputs(critic, examples)[0], points)
        if what is None:  # of interest all the same
            return norm, tf.zeros_like(norm)
        return norm, what(norm, self.penalty_target)


def _in_turn(points: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """`points`, but not before there are `scores`.

    A compiler may run the penalty and the scores side by side; a TPU core then holds what both
    leave for their gradients, more than its fast memory has room for. In the critic step of the
    CIFAR-10 ResNet that costs twice the memory for temporaries.
    """
    return points + tf.cast(0.0 * tf.stop_gradient(tf.reduce_sum(scores)), points.dtype)


def _outputs(critic: Callable, examples: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Scores `[B]` in float32 at least, and the class logits of a critic that has them."""
    outputs = critic(examples)
    scores, logits = outputs if isinstance(outputs, (tuple, list)) else (outputs, None)
    return scores_of(scores, examples), logits


def _classification(logits: tf.Tensor | None, labels: tf.Tensor | None) -> tf.Tensor:
    if logits is None or labels is None:
        raise ValueError(
            "a class weight needs labels, and a critic that returns (scores, class logits)"
        )
    return classification_loss(logits, labels)
