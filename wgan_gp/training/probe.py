"""Diagnostics of the critic, computed between loops on the same examples every time."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ..runtime.functions import function_on
from ..runtime.randomness import RngStream
from .objective import Terms
from .step import ReplicaStep

EXAMPLES = 256  # rounded down to whole batches, but at least one batch
_DRAWS = 4  # of a batch; one is not used


@dataclasses.dataclass(frozen=True)
class CriticDiagnostics:
    """Diagnostics of the critic at one iteration.

    Attributes:
      terms: The critic's terms on examples of the training set, each `[N]`, by name.
      real: These examples, flattened, `[N, D]`.
      real_diversity: Their `diversity`.
      fake: The samples for which `terms` was computed, flattened, `[N, D]`.
      held_out: The critic's terms on held-out examples, or None without held-out data.
    """

    terms: dict[str, np.ndarray]
    real: np.ndarray
    real_diversity: float
    fake: np.ndarray
    held_out: dict[str, np.ndarray] | None = None

    def scalars(self) -> dict[str, float]:
        """Returns the diagnostics by tag; docs/monitoring.md explains them.

        Diagnostics that need a term which the objective does not have are omitted, and so is the
        diversity if all real examples are equal.
        """
        values = {}
        if self.gradient_norms is not None:
            mean, deviation = self.gradient_norms.mean(), self.gradient_norms.std()
            values["probe/gradient_norm"] = mean
            values["probe/gradient_norm_lower"] = mean - deviation
            values["probe/gradient_norm_upper"] = mean + deviation
        values |= _distance_and_loss("probe", self.terms)
        values["probe/distance_of_means"] = distance_of_means(self.real, self.fake)
        if self.real_diversity > 0:
            values["probe/diversity"] = diversity(self.fake) / self.real_diversity
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


class CriticProbe:
    """A probe that evaluates the critic of a run without training it.

    The examples and the noise are the same in every call and the networks are in inference mode,
    so differences between two calls come from the networks' weights alone.

    Args:
      step: The replica step, with the networks and the objective.
      strategy: The strategy of the run.
      batches: () -> distributed iterator over the training data from its beginning.
      held_out: () -> distributed iterator over the held-out data from its beginning. None if
        there is no held-out data.

    Attributes:
      has_held_out: True if there is held-out data.
    """

    def __init__(
        self,
        step: ReplicaStep,
        strategy: tf.distribute.Strategy,
        *,
        batches: Callable[[], Iterator],
        held_out: Callable[[], Iterator] | None = None,
    ):
        self._count = max(1, EXAMPLES // step.optimization.batch_size)
        self._open_training = batches
        self._open_held_out = held_out
        self.has_held_out = held_out is not None
        names = step.objective.critic_term_names
        # Traced once for all batches.
        program = tf.function(functools.partial(diagnose_critic, step), autograph=False)

        def diagnose_the_critic(batches: list[Any]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
            results = [
                strategy.run(program, args=(*batch, tf.constant(number, tf.int64)))
                for number, batch in enumerate(batches)
            ]
            terms = {name: gather([terms[name] for terms, _ in results]) for name in names}
            return terms, _flat(gather([fake for _, fake in results]))

        def gather(parts: list[Any]) -> tf.Tensor:
            return tf.concat([strategy.gather(part, axis=0) for part in parts], axis=0)

        self._diagnose = function_on(strategy, diagnose_the_critic)
        self._gather = tf.function(lambda parts: _flat(gather(parts)), autograph=False)

    def __call__(self) -> CriticDiagnostics:
        """Computes the diagnostics; all processes of a run must call it at the same iteration."""
        terms, fake = tf.nest.map_structure(np.asarray, self._diagnose(self._training))
        real, real_diversity = self._real
        held_out = None
        if self._held_out:
            held_out, _ = tf.nest.map_structure(np.asarray, self._diagnose(self._held_out))
        return CriticDiagnostics(terms, real, real_diversity, fake, held_out)

    @functools.cached_property  # read once, and only if the probe is used
    def _training(self) -> list[Any]:
        return list(itertools.islice(self._open_training(), self._count))

    @functools.cached_property
    def _held_out(self) -> list[Any]:
        if self._open_held_out is None:
            return []
        return list(itertools.islice(self._open_held_out(), self._count))

    @functools.cached_property
    def _real(self) -> tuple[np.ndarray, float]:
        """The examples of the training set, `[N, D]`, and their diversity."""
        real = self._gather([real for real, _ in self._training]).numpy()
        return real, diversity(real)


def diagnose_critic(
    step: ReplicaStep, real: tf.Tensor, labels: tf.Tensor, number: tf.Tensor | int = 0
) -> tuple[Terms, tf.Tensor]:
    """Computes the critic's terms on one replica without training, in inference mode.

    The noise is the same in every call for a batch, and no example is transformed.

    Args:
      step: The updates of the replica.
      real: Real examples, as in `ReplicaStep.critic_step`.
      labels: Their labels, as in `ReplicaStep.critic_step`.
      number: The number of the batch. Different batches have different noise.

    Returns:
      The critic terms, each `[batch_size / replicas]`, by name; and the samples for which they
      were computed.
    """
    step = dataclasses.replace(step, augmentation=None)
    keys = {
        name: (RngStream.PROBE, _DRAWS * number + index)
        for index, name in enumerate(("latents", "alpha", "noise"))
    }
    latents, noise = step.critic_noise(real, **keys)
    fake = step.generator(labels, training=False)(latents)
    terms = step.objective.critic_terms(
        step.critic(labels, training=False),
        real,
        fake,
        labels=labels,
        step=tf.constant(0, tf.int64),  # a step with a penalty, also under lazy penalties
        **noise,
    )
    return terms, fake


def _flat(examples: tf.Tensor) -> tf.Tensor:
    return tf.reshape(examples, [tf.shape(examples)[0], -1])


def distance_of_means(real: np.ndarray, fake: np.ndarray) -> float:
    """Estimates the distance between the means of two distributions, in the data's units.

    The distance between the means is a lower bound of the Wasserstein-1 distance: a linear critic
    of slope 1 finds it. The estimate subtracts the expected contribution of sampling noise to the
    squared distance; it is 0 if the noise explains the whole distance.

    Args:
      real: `[N, D]`, N >= 2.
      fake: `[N, D]`, N >= 2.
    """
    noise = sum(each.var(axis=0, ddof=1).sum() / len(each) for each in (real, fake))
    square = np.sum((real.mean(axis=0) - fake.mean(axis=0)) ** 2)
    return float(np.sqrt(max(0.0, square - noise)))


def diversity(examples: np.ndarray) -> float:
    """Returns the mean distance between two examples of `[N, D]`, N >= 2, in the data's units.

    It is that of the first EXAMPLES, because the distances of all pairs are computed.
    """
    # Centered and in float64, because the differences of large numbers below lose precision. The
    # center is an example, so that the result for equal examples is exactly 0.
    examples = examples[:EXAMPLES].astype(np.float64)
    centered = examples - examples[0]
    products = centered @ centered.T
    squares = np.diag(products)
    distances = np.sqrt(np.maximum(0.0, squares[:, None] + squares[None] - 2 * products))
    count = len(examples)
    return float(distances.sum() / (count * (count - 1)))
