"""A stranger's penalty, and the critics whose penalty is known."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .penalties import one_sided as one_sided_of
from .penalties import two_sided as two_sided_of
from .scores import at_least_float32

# (critic, real, fake) -> the penalty: a scalar, the mean over the batch, or `[B]`
PenaltyFunction = Callable[[Callable, tf.Tensor, tf.Tensor], Any]

BATCH = 64


class RaisedError(Exception):
    """The penalty raised; its exception is the cause."""


class ProbeCritic:
    """A critic by its formula, in the outward form of a Keras model with a Dense(1) head."""

    def __init__(self, formula: Callable[[tf.Tensor], tf.Tensor], *variables: tf.Variable):
        self._formula = formula
        self.trainable_variables = self.trainable_weights = list(variables)

    def __call__(self, examples: tf.Tensor, *_: Any, **__: Any) -> tf.Tensor:
        return self._formula(examples)[:, tf.newaxis]


@dataclasses.dataclass(frozen=True)
class Probe:
    """The penalty in question, and what it should be."""

    penalty: PenaltyFunction
    weight: float
    target: float
    one_sided: bool
    example_shape: tuple[int, ...]

    def expected(self, norm: float, *, one_sided: bool | None = None) -> float:
        ask = one_sided_of if (self.one_sided if one_sided is None else one_sided) else two_sided_of
        return self.weight * float(ask(tf.constant(norm, tf.float64), self.target))

    def __call__(self, critic: Callable, real: tf.Tensor, fake: tf.Tensor) -> tf.Tensor:
        """The penalty as a scalar, the mean."""
        try:
            result = tf.convert_to_tensor(self.penalty(critic, real, fake))
        except Exception as error:
            raise RaisedError from error
        return tf.reduce_mean(at_least_float32(result))

    @property
    def shape(self) -> tuple[int, ...]:
        return (BATCH, *self.example_shape)

    @property
    def elements(self) -> int:
        return math.prod(self.example_shape)

    def images(self) -> list[tf.Tensor]:
        """Real and fake examples."""
        seeds = ([0, 1], [0, 2])
        return [tf.random.stateless_uniform(self.shape, seed, -1.0, 1.0) for seed in seeds]

    def linear_critic(self, norm: float | tf.Variable) -> ProbeCritic:
        """D(x) = w.x with |w| = norm and elements of one size, both signs among them."""
        signs = [1.0 if element % 3 else -1.0 for element in range(self.elements)]
        direction = tf.constant(signs) / self.elements**0.5

        def formula(examples: tf.Tensor) -> tf.Tensor:
            flat = tf.reshape(tf.cast(examples, tf.float32), [-1, self.elements])
            return norm * tf.linalg.matvec(flat, direction)

        return ProbeCritic(formula, *([norm] if isinstance(norm, tf.Variable) else []))

    def curved_critic(self, seen: list | None = None) -> ProbeCritic:
        """D(x) = c |x|^2 / 2, whose gradient at x is c x; notes in `seen` what it is shown."""

        def formula(examples: tf.Tensor) -> tf.Tensor:
            if seen is not None:
                tf.py_function(lambda values: seen.append(values.numpy()), [examples], [])
            flat = tf.reshape(examples, [-1, self.elements])
            return self.curvature * tf.reduce_sum(tf.square(flat), axis=1) / 2

        return ProbeCritic(formula)

    @property
    def curvature(self) -> float:
        """So large that between 0 and 1 there are norms on both sides of the target."""
        return max(1.0, 2.0 * self.target / self.elements**0.5)

    def draws_between(self, count: int) -> list[tuple[float, tf.Tensor]]:
        """Penalties of the curved critic between real = 0 and fake = 1, and where they looked.

        The points are `[B, elements]` float64; there, an example's elements are its alpha.
        A call that looked at no point between the two is left out.
        """
        seen: list = []
        critic = self.curved_critic(seen)  # one for all, lest a tf.function be traced anew
        found = []
        for _ in range(count):
            seen.clear()
            value = float(self(critic, tf.zeros(self.shape), tf.ones(self.shape)))
            for examples in reversed(seen):
                flat = examples.reshape(-1, self.elements).astype("float64")
                # The critic may have been shown real and fake examples too, even in one call.
                between = flat[(flat != 0).any(axis=1) & (flat != 1).any(axis=1)]
                if len(between):
                    found.append((value, tf.constant(between)))
                    break
        return found
