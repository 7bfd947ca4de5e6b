"""A look at the critic between two loops: on the same examples every time, without training it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from .step import ReplicaStep

EXAMPLES = 256  # looked at, in whole batches


@dataclasses.dataclass(frozen=True)
class Look:
    """What a probe saw.

    Attributes:
      terms: the critic's terms on real examples of the training set, `[N]` each.
      real, fake: these examples and as many samples, `[N, D]`, flattened.
      held_out: the terms on examples that are not trained on, if there are any.
    """

    terms: dict[str, np.ndarray]
    real: np.ndarray
    fake: np.ndarray
    held_out: dict[str, np.ndarray] | None = None

    def scalars(self) -> dict[str, float]:
        """Returns the figures by tag; docs/monitoring.md says what each means.

        There are no figures of a term that the objective does not have.
        """
        values = {}
        if self.gradient_norms is not None:
            mean, deviation = self.gradient_norms.mean(), self.gradient_norms.std()
            values["probe/gradient_norm"] = mean
            values["probe/gradient_norm_lower"] = mean - deviation
            values["probe/gradient_norm_upper"] = mean + deviation
        values |= _distance_and_loss("probe", self.terms)
        values["probe/distance_of_means"] = distance_of_means(self.real, self.fake)
        values["probe/diversity"] = diversity(self.fake) / diversity(self.real)
        if self.held_out is not None:
            values |= _distance_and_loss("held_out", self.held_out)
        return {tag: float(value) for tag, value in values.items()}

    @property
    def gradient_norms(self) -> np.ndarray | None:
        """The norm of the critic's gradient for each example, `[N]`, if the objective has it."""
        return self.terms.get("gradient_norm")


def _distance_and_loss(group: str, terms: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Returns the means of the estimated distance, if there is one, and of the negative loss."""
    values = {}
    if "wasserstein" in terms:
        values[f"{group}/wasserstein"] = terms["wasserstein"].mean()
    return {**values, f"{group}/negative_critic_loss": -terms["loss"].mean()}


class Probe:
    """Looks at the critic of a run.

    The noise is the same every time, too, and the networks are called as in sampling: so what
    changes from one look to the next is them.

    Args:
      step: knows the networks and the objective.
      strategy: of the run.
      batches: () -> distributed iterator over the dataset from its beginning.
      held_out: the same of examples that are not trained on; None: there are none.

    Attributes:
      has_held_out: whether there are any.
    """

    def __init__(
        self,
        step: ReplicaStep,
        strategy: tf.distribute.Strategy,
        *,
        batches: Callable[[], Iterator],
        held_out: Callable[[], Iterator] | None = None,
    ):
        self._count = max(1, EXAMPLES // step.batch_size)
        self._batches = batches
        self._held_out = held_out
        self.has_held_out = held_out is not None
        names = step.objective.critic_term_names

        @tf.function(autograph=False)
        def look(
            real: tf.Tensor, labels: tf.Tensor
        ) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
            terms, fake = strategy.run(step.look, args=(real, labels))
            gathered = {name: strategy.gather(terms[name], axis=0) for name in names}
            return gathered, strategy.gather(real, axis=0), strategy.gather(fake, axis=0)

        self._look = look

    def __call__(self) -> Look:
        """Looks; every process of the run must."""
        terms, real, fake = self._look_at(self._examples)
        held_out = self._look_at(self._others)[0] if self._others else None
        return Look(terms, real, fake, held_out)

    @functools.cached_property  # read once, and only if anybody looks
    def _examples(self) -> list[Any]:
        return list(itertools.islice(self._batches(), self._count))

    @functools.cached_property
    def _others(self) -> list[Any]:
        return list(itertools.islice(self._held_out(), self._count)) if self._held_out else []

    def _look_at(self, batches: list[Any]) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        looks = [self._look(*batch) for batch in batches]
        terms, real, fake = tf.nest.map_structure(
            lambda *parts: np.concatenate([part.numpy() for part in parts]), *looks
        )
        return terms, real.reshape(len(real), -1), fake.reshape(len(fake), -1)


def distance_of_means(real: np.ndarray, fake: np.ndarray) -> float:
    """Between the expected examples, in the data's units; 0 where N examples cannot tell.

    The Wasserstein-1 distance is no less: a linear critic of slope 1 finds this much. What the
    scatter of N examples alone adds to the square is taken off.

    Args:
      real, fake: `[N, D]`, N >= 2.
    """
    chance = sum(each.var(axis=0, ddof=1).sum() / len(each) for each in (real, fake))
    square = np.sum((real.mean(axis=0) - fake.mean(axis=0)) ** 2)
    return float(np.sqrt(max(0.0, square - chance)))


def diversity(examples: np.ndarray) -> float:
    """Mean distance between two of them, in the data's units; `[N, D]`, N >= 2."""
    # In float64, and about their mean: the differences of large numbers below lose digits.
    centred = (examples - examples.mean(axis=0)).astype(np.float64)
    products = centred @ centred.T
    squares = np.diag(products)
    between = np.sqrt(np.maximum(0.0, squares[:, None] + squares[None] - 2 * products))
    count = len(examples)
    return float(between.sum() / (count * (count - 1)))
