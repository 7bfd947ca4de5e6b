"""Penalties to be checked, and critics whose penalty is known in closed form."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from . import penalties
from .lazy_tensorflow import tf
from .scores import at_least_float32

# Maps (critic, real, fake) to the penalty: a scalar, the mean over the batch, or `[B]`.
PenaltyFunction = Callable[[Callable, "tf.Tensor", "tf.Tensor"], Any]

BATCH = 64
_SAME = 5e-3  # examples that differ less may have been rounded to bfloat16


class PenaltyError(Exception):
    """An error that the penalty to be checked raised, which is the `__cause__`."""


class FormulaCritic:
    """A critic defined by a formula, with the interface of a Keras model with a Dense(1) head."""

    def __init__(self, formula: Callable[[tf.Tensor], tf.Tensor], *variables: tf.Variable):
        self._formula = formula
        self.trainable_variables = self.trainable_weights = list(variables)

    def __call__(self, examples: tf.Tensor, *_: Any, **__: Any) -> tf.Tensor:
        return self._formula(examples)[:, tf.newaxis]


@dataclasses.dataclass(frozen=True)
class CheckedPenalty:
    """A penalty to be checked and its specification; see `check_penalty` for the attributes."""

    penalty: PenaltyFunction
    weight: float
    target: float
    one_sided: bool
    example_shape: tuple[int, ...]

    def expected(self, norm: float, *, one_sided: bool | None = None) -> float:
        """Returns the correct penalty for a gradient norm.

        Args:
          norm: The gradient norm.
          one_sided: Overrides the attribute.
        """
        return float(self.expected_at(tf.constant(norm, tf.float64), one_sided=one_sided))

    def expected_at(self, norms: tf.Tensor, *, one_sided: bool | None = None) -> tf.Tensor:
        """Returns the correct penalty for each of several norms; see `expected`."""
        if one_sided is None:
            one_sided = self.one_sided
        function = penalties.one_sided if one_sided else penalties.two_sided
        return self.weight * function(norms, self.target)

    def slope(self, norm: float) -> float:
        """Returns the derivative of `expected` by the norm, above the target."""
        return 2.0 * self.weight * (norm - self.target)

    def __call__(self, critic: Callable, real: tf.Tensor, fake: tf.Tensor) -> tf.Tensor:
        """Returns the penalty as a scalar, the mean over the batch.

        Raises:
          PenaltyError: If the penalty raises any error.
        """
        try:
            result = tf.convert_to_tensor(self.penalty(critic, real, fake))
        except Exception as error:
            raise PenaltyError from error
        return tf.reduce_mean(at_least_float32(result))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a batch."""
        return (BATCH, *self.example_shape)

    @property
    def elements(self) -> int:
        """The number of elements of an example."""
        return math.prod(self.example_shape)

    def examples(self) -> list[tf.Tensor]:
        """Returns real and fake examples."""
        seeds = ([0, 1], [0, 2])
        return [tf.random.stateless_uniform(self.shape, seed, -1.0, 1.0) for seed in seeds]

    def linear_critic(self, norm: float | tf.Variable) -> FormulaCritic:
        """Returns D(x) = w.x with |w| = norm; the elements of w differ only in sign."""
        signs = [1.0 if element % 3 else -1.0 for element in range(self.elements)]
        direction = tf.constant(signs) / self.elements**0.5

        def formula(examples: tf.Tensor) -> tf.Tensor:
            flat = tf.reshape(tf.cast(examples, tf.float32), [-1, self.elements])
            return norm * tf.linalg.matvec(flat, direction)

        return FormulaCritic(formula, *([norm] if isinstance(norm, tf.Variable) else []))

    def curved_critic(self, record: list | None = None) -> FormulaCritic:
        """Returns D(x) = c |x|^2 / 2, whose gradient at x is c x; appends each x to `record`."""

        def formula(examples: tf.Tensor) -> tf.Tensor:
            if record is not None:
                tf.py_function(lambda values: record.append(values.numpy()), [examples], [])
            flat = tf.reshape(examples, [-1, self.elements])
            return self.curvature * tf.reduce_sum(tf.square(flat), axis=1) / 2

        return FormulaCritic(formula)

    @property
    def curvature(self) -> float:
        """A value of c for which points between real and fake have norms around the target."""
        return max(1.0, 2.0 * self.target / math.hypot(*self.endpoints()[1]))

    def endpoints(self) -> tuple[list[float], list[float]]:
        """Returns the real example and the fake one of `record_points`, as flat lists.

        Neither is 0 or a multiple of the other, so that points which are not on the line between
        them, such as real + alpha * fake, can be told from interpolates.
        """
        real = [-0.1 - 0.2 * (0.618 * index % 1) for index in range(self.elements)]
        fake = [0.3 + 0.6 * (0.414 * index % 1) for index in range(self.elements)]
        return real, fake

    def equal_examples(self) -> list[tf.Tensor]:
        """Returns a batch of real examples, and one of fake examples, all of which are equal.

        A penalty may therefore pair real and fake examples in any order.
        """
        return [
            tf.broadcast_to(tf.reshape(tf.constant(each), self.example_shape), self.shape)
            for each in self.endpoints()
        ]

    def record_points(self, calls: int) -> list[tuple[float, tf.Tensor]]:
        """Returns the penalty of the curved critic on `equal_examples`, and the points, by call.

        The points are `[B, elements]`, float64. Calls of the penalty that evaluate the critic on
        real and fake examples only are omitted.
        """
        record: list = []
        critic = self.curved_critic(record)  # one for all calls, to trace a tf.function once
        examples, found = self.equal_examples(), []
        ends = tf.constant(self.endpoints(), tf.float64)[:, None].numpy()
        for _ in range(calls):
            record.clear()
            value = float(self(critic, *examples))
            for batch in reversed(record):
                # A larger batch has real and fake examples, too.
                count = BATCH if len(batch) % BATCH == 0 else len(batch)
                groups = batch.reshape(-1, count, self.elements).astype("float64")
                groups = [each for each in groups if (abs(each - ends).max((1, 2)) > _SAME).all()]
                if groups:
                    found.append((value, tf.constant(groups[-1])))
                    break
        return found
