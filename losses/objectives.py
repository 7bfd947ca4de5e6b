"""Objectives of GAN training as named per-example terms, in the form a training loop needs."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
from collections.abc import Callable, Sequence

from .adversarial import ADVERSARIAL_LOSSES
from .auxiliary import classification_loss, clip_weights, drift, lazy_regularization
from .lazy_tensorflow import tf
from .penalties import WeightedPenalty, constant, gradient_norm, weighted_penalties
from .scores import Examples, matching_examples, scores_of

Terms = dict[str, "tf.Tensor"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GanObjective:
    """An adversarial loss, a penalty and optional further terms; WGAN-GP by default.

    The default is algorithm 1 of Gulrajani et al. 2017 (arXiv:1704.00028). The functions that
    the other values name cite their source.

    Attributes:
      adversarial_loss: A key of ADVERSARIAL_LOSSES.
      penalty: A key of PENALTIES, or several, such as ("r1", "r2") or "r1,r2", whose weighted sum
        is the penalty.
      penalty_weight: Weight lambda of the penalty in the critic's loss, >= 0; or one for each of
        several penalties.
      penalty_target: Gradient norm at which the penalty is 0, >= 0. Zero-centered penalties
        ignore it.
      penalty_interval: Number of critic steps k per computation of the penalty, >= 1. Its weight
        is then k * penalty_weight, see `lazy_regularization`.
      penalty_noise: Standard deviation of the noise of "dragan", >= 0, in units of the data.
      clip_value: Limit of "weight_clipping", > 0.
      penalty_weight_end: Fraction of the penalty's weights, >= 0, that remains after
        `penalty_decay_steps` critic steps. In between, the weights follow half a cosine.
      penalty_decay_steps: Number of critic steps of this decay, >= 1 if `penalty_weight_end` is
        not 1.
      drift_weight: Weight of `drift` in the critic's loss, >= 0.
      critic_class_weight, generator_class_weight: Weights of `classification_loss` in the losses
        of the two networks, >= 0. If one is not 0, the critic must return a pair: scores and
        class logits `[B, K]`.

    Raises:
      ValueError: If a name is unknown or a number is out of range.
    """

    adversarial_loss: str = "wasserstein"
    penalty: str | Sequence[str] = "two_sided"
    penalty_weight: float | Sequence[float] = 10.0
    penalty_target: float = 1.0
    penalty_interval: int = 1
    penalty_noise: float = 0.25
    clip_value: float = 0.01
    penalty_weight_end: float = 1.0
    penalty_decay_steps: int = 0
    drift_weight: float = 0.0
    critic_class_weight: float = 0.0
    generator_class_weight: float = 0.0

    def __post_init__(self):
        if self.adversarial_loss not in ADVERSARIAL_LOSSES:
            raise ValueError(
                f"adversarial_loss={self.adversarial_loss!r} is unknown: use one of "
                f"{', '.join(ADVERSARIAL_LOSSES)}"
            )
        weighted_penalties(self.penalty, self.penalty_weight)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type == "float" and not (
                isinstance(value, numbers.Real) and float(value) >= 0
            ):
                raise ValueError(f"{field.name} must be a number >= 0, got {value!r}")
        for name in ("penalty_interval", "penalty_decay_steps"):
            if not isinstance(getattr(self, name), numbers.Integral):
                raise ValueError(f"{name} must be an int, got {getattr(self, name)!r}")
        decays = ["penalty_decay_steps"] if self.penalty_weight_end != 1.0 else []
        for name in ["penalty_interval", "clip_value", *decays]:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")

    @property
    def penalties(self) -> tuple[WeightedPenalty, ...]:
        """The penalties and their weights; more than one for a sum."""
        return weighted_penalties(self.penalty, self.penalty_weight)

    @property
    def generator_needs_real(self) -> bool:
        """Is True if `generator_terms` requires real examples."""
        return ADVERSARIAL_LOSSES[self.adversarial_loss].relativistic

    @property
    def critic_term_names(self) -> tuple[str, ...]:
        """The keys of the result of `critic_terms`."""
        optional = {
            "adversarial": self.adversarial_loss != "wasserstein",
            "drift": self.drift_weight,
            "classification": self.critic_class_weight,
        }
        names = ["loss", "wasserstein", "penalty", "gradient_norm"]
        parts = self.penalties
        if len(parts) > 1:
            names += [f"penalty_{part.name}" for part in parts]
        return (*names, *(name for name, wanted in optional.items() if wanted))

    @property
    def critic_term_intervals(self) -> dict[str, int]:
        """The number of critic steps per computation of the terms of lazy penalties, by name."""
        parts = [f"penalty_{part.name}" for part in self.penalties]
        return dict.fromkeys(["penalty", "gradient_norm", *parts], self.penalty_interval)

    @property
    def generator_term_names(self) -> tuple[str, ...]:
        """The keys of the result of `generator_terms`."""
        return ("loss", "classification") if self.generator_class_weight else ("loss",)

    def critic_terms(
        self,
        critic: Callable,
        real: Examples,
        fake: Examples,
        *,
        alpha: tf.Tensor,
        noise: Examples,
        step: tf.Tensor,
        labels: tf.Tensor | None = None,
    ) -> Terms:
        """Computes the critic's loss and the terms it consists of, for each example.

            loss = adversarial + penalty_weight * penalty + drift_weight * drift
                   + critic_class_weight * classification

        Of several penalties, each has its weight and a term of its own, such as "penalty_r1".
        "penalty" is then the sum of these terms, and "gradient_norm" is the norm at the points of
        the first. "wasserstein" is D(real) - D(fake). There is no term "adversarial" if the
        adversarial loss is the Wasserstein loss, which is the negative of "wasserstein". No
        gradient reaches the generator, because `fake` is treated as a constant.

        Args:
          critic: Maps `[B, ...]` to scores, see `score`, or to a pair of scores and class logits.
          real: `[B, ...]`, floating point, or a nested structure of such tensors.
          fake: The structure, shapes and dtypes of `real`.
          alpha: `[B]`, in [0, 1), the position on each line between `real` and `fake`.
          noise: The structure, shapes and dtypes of `real`, standard normal; used by "dragan" only.
          step: Scalar integer, number of critic steps completed.
          labels: `[B]` integers, the classes of `real`; used by the classification term only.

        Returns:
          A dictionary from `critic_term_names` to `[B]`, at least float32. The critic minimizes
          the mean of "loss"; the other terms are unweighted.

        Raises:
          ValueError: If shapes or dtypes do not match, or the classification term lacks labels
            or class logits.
        """
        real, fake = matching_examples(real, "real", fake, "fake")
        fake = constant(fake)
        # One call for both halves: no example influences another one's score.
        scores, logits = self._outputs(critic, _both(real, fake))
        real_scores, fake_scores = tf.split(scores, 2)
        norm, *penalties = lazy_regularization(
            self.penalty_interval,
            step,
            functools.partial(
                self._norm_and_penalties, critic, real, fake, alpha, noise, after=scores
            ),
            like=[real_scores] * (1 + len(self.penalties)),
        )
        adversarial = ADVERSARIAL_LOSSES[self.adversarial_loss].critic(real_scores, fake_scores)
        terms = {
            "adversarial": adversarial,
            "wasserstein": real_scores - fake_scores,
            "penalty": tf.add_n(penalties),
            "gradient_norm": norm,
            "loss": adversarial,
        }
        for part, penalty in zip(self.penalties, penalties, strict=True):
            terms[f"penalty_{part.name}"] = penalty
            terms["loss"] += tf.cast(self._weight_at(step, part.weight), penalty.dtype) * penalty
        if self.drift_weight:
            terms["drift"] = drift(real_scores)
            terms["loss"] += self.drift_weight * terms["drift"]
        if self.critic_class_weight:
            real_logits = None if logits is None else tf.split(logits, 2)[0]
            terms["classification"] = _classification(real_logits, labels)
            terms["loss"] += self.critic_class_weight * terms["classification"]
        return {name: terms[name] for name in self.critic_term_names}

    def generator_terms(
        self,
        critic: Callable,
        fake: Examples,
        *,
        labels: tf.Tensor | None = None,
        real: Examples | None = None,
    ) -> Terms:
        """Computes the generator's loss and the terms it consists of, for each sample.

            loss = adversarial + generator_class_weight * classification

        Args:
          critic: See `critic_terms`.
          fake: Samples, `[B, ...]`, floating point, or a nested structure of such tensors.
          labels: `[B]` integers, the classes the samples were generated from; used by the
            classification term only.
          real: Real examples with the same labels, of the shapes and dtypes of `fake`; used if
            `generator_needs_real`.

        Returns:
          A dictionary from `generator_term_names` to `[B]`, at least float32. The generator
          minimizes the mean of "loss"; the other term is unweighted.

        Raises:
          ValueError: If shapes or dtypes do not match, the classification term lacks labels or
            class logits, or real examples are missing.
        """
        adversarial = ADVERSARIAL_LOSSES[self.adversarial_loss]
        if adversarial.relativistic:
            if real is None:
                raise ValueError(
                    f"adversarial_loss={self.adversarial_loss!r} compares samples with real "
                    "examples: pass real=..., as many as there are samples"
                )
            real, fake = matching_examples(real, "real", fake, "fake")
            scores, logits = self._outputs(critic, _both(real, fake))
            logits = None if logits is None else tf.split(logits, 2)[1]
            terms = {"loss": adversarial.generator(*tf.split(scores, 2))}
        else:
            scores, logits = self._outputs(critic, fake)
            terms = {"loss": adversarial.generator(scores)}
        if self.generator_class_weight:
            terms["classification"] = _classification(logits, labels)
            terms["loss"] += self.generator_class_weight * terms["classification"]
        return terms

    def constrain(self, weights: Sequence[tf.Variable]) -> None:
        """Applies the constraint on the critic's weights; call it after each critic update.

        It clips the weights, see `clip_weights`, if `penalty` is "weight_clipping".

        Args:
          weights: The critic's trainable variables.
        """
        if any(part.name == "weight_clipping" for part in self.penalties):
            clip_weights(weights, self.clip_value)

    def _weight_at(self, step: tf.Tensor, weight: float) -> tf.Tensor | float:
        """Returns the weight of a penalty after a number of critic steps."""
        if self.penalty_weight_end == 1.0:
            return weight
        part = tf.minimum(tf.cast(step, tf.float32) / self.penalty_decay_steps, 1.0)
        remaining = 0.5 * (1.0 + tf.cos(math.pi * part))
        return weight * (self.penalty_weight_end + (1.0 - self.penalty_weight_end) * remaining)

    def _norm_and_penalties(self, critic, real, fake, alpha, noise, *, after) -> list[tf.Tensor]:
        """Returns the gradient norm of the first penalty, and all unweighted penalties, `[B]`.

        They have the dtype of the scores, which Keras computes in float32 for float64 examples.
        """
        dtype, norms, values = after.dtype, [], []
        for _, penalty, _ in self.penalties:
            points = penalty.points(real, fake, alpha, noise, self.penalty_noise)
            points = _after(points, after)
            norm = gradient_norm(lambda examples: self._outputs(critic, examples)[0], points)
            norms.append(norm)
            if penalty.function is None:
                values.append(tf.zeros_like(norm))
            else:
                values.append(penalty.function(norm, self.penalty_target))
            after = values[-1]  # one penalty at a time, as in `_after`
        return [tf.cast(each, dtype) for each in (norms[0], *values)]

    def _outputs(self, critic: Callable, examples: Examples) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns the scores `[B]`, at least float32, and the class logits if the critic has them.

        Raises:
          ValueError: If the output is neither scores nor a pair of scores and class logits.
        """
        outputs = critic(examples)
        if not isinstance(outputs, (tuple, list)) or len(outputs) != 2:
            return scores_of(outputs, examples), None
        scores, logits = outputs
        if logits is not None and not (self.critic_class_weight or self.generator_class_weight):
            raise ValueError(
                "the critic returns two outputs, but class logits are used only with a class "
                "weight: return one score per example, such as the sum of several scores"
            )
        if logits is not None and tf.convert_to_tensor(logits).shape.rank not in (None, 2):
            raise ValueError(
                f"the critic's second output has shape {logits.shape}, but class logits have "
                "[B, K]: return one score per example, such as the sum of several scores"
            )
        return scores_of(scores, examples), logits


def _both(real: Examples, fake: Examples) -> Examples:
    return tf.nest.map_structure(lambda *each: tf.concat(each, axis=0), real, fake)


def _after(points: Examples, scores: tf.Tensor) -> Examples:
    """Returns `points`, made to depend on `scores` so that `scores` are computed first.

    Otherwise a compiler may interleave the penalty with the scores. A TPU core then keeps the
    activations of both for the backward pass, which exceeds its fast memory: in the critic step
    of the CIFAR-10 ResNet, this doubles the memory for temporaries.
    """
    zero = 0.0 * tf.stop_gradient(tf.reduce_sum(scores))
    return tf.nest.map_structure(lambda each: each + tf.cast(zero, each.dtype), points)


def _classification(logits: tf.Tensor | None, labels: tf.Tensor | None) -> tf.Tensor:
    if logits is None or labels is None:
        raise ValueError(
            "critic_class_weight and generator_class_weight require labels and a critic that "
            "returns (scores, class logits): provide both, or set the weights to 0"
        )
    return classification_loss(logits, labels)
