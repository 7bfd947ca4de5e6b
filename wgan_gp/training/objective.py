"""The interface of training objectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

Terms = dict[str, tf.Tensor]


class Objective(Protocol):
    """A training objective: named per-example terms `[B]`, of which "loss" is minimized.

    "loss" is the only term that both networks must have. All others are logged. Three terms of the
    critic are also shown and judged where the objective has them: "wasserstein" (the estimated
    distance), "penalty" (unweighted) and "gradient_norm".

    Attributes:
      critic_term_names, generator_term_names: The names of the terms, in any order. The
        loop needs them before it runs.

    If an objective has the attribute `critic_term_intervals`, it gives the interval k of critic
    terms by name. Such a term is k times its value at the steps 0, k, 2k, ... and 0 at all others,
    as `losses.lazy_regularization` returns it. The log has the mean of its values.

    If an objective has the attribute `generator_needs_real` and it is true, `generator_terms` also
    gets `real`, the real examples of the last critic step, and `fake` is generated for their
    labels.
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
        """Returns the terms of a critic step.

        Args:
          critic: Maps examples `[B, ...]` to scores.
          real: Real examples, `[B, ...]`.
          fake: Generated examples, same shape as `real`.
          alpha: `[B]`, uniform on [0, 1).
          noise: Standard normal, same shape as `real`.
          step: Scalar int64, the number of critic steps done so far.
          labels: `[B]` int32, the labels of both the real and the fake examples, or their
            conditions `[B, K]` float32.
        """

    def generator_terms(
        self, critic: Callable, fake: tf.Tensor, *, labels: tf.Tensor, **inputs: tf.Tensor
    ) -> Terms:
        """Returns the terms of a generator step; `fake` was generated for `labels`."""

    def constrain(self, weights: Sequence[tf.Variable]) -> None:
        """Enforces constraints on the critic's weights, in place, after each update."""


def generator_needs_real(objective: Objective) -> bool:
    """Returns whether the terms of a generator step depend on real examples."""
    return bool(getattr(objective, "generator_needs_real", False))


def critic_term_intervals(objective: Objective) -> Mapping[str, int]:
    """Returns the intervals of the critic terms that not every step computes; see `Objective`."""
    return getattr(objective, "critic_term_intervals", {})


def tags_of(terms: Any) -> list[str]:
    """Returns the tags of the terms of both networks, as "critic/<term>" and "generator/<term>".

    Args:
      terms: An objective or a step, with `critic_term_names` and `generator_term_names`.
    """
    critic = [f"critic/{name}" for name in terms.critic_term_names]
    return critic + [f"generator/{name}" for name in terms.generator_term_names]
