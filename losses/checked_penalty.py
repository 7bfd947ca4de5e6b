"""Penalties to be checked, and critics whose penalty is known in closed form."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from . import penalties
from .lazy_tensorflow import tf
from .scores import at_least_float32

# Maps (critic, real, fake) to the penalty: a scalar, the mean over the batch, or `[B]`.
PenaltyFunction = Callable[[Callable, "tf.Tensor", "tf.Tensor"], Any]

BATCH = 64
# Where each penalty takes the gradient: on fake examples, between the two, or on real examples.
FAKE, BETWEEN, REAL = range(3)
PLACES = {"r1": REAL, "r2": FAKE, "two_sided": BETWEEN, "one_sided": BETWEEN}
PLACES["zero_centred"] = BETWEEN
_EDGE = 1 - 1e-5  # a random point between two examples is closer to one of them in 1 of 100,000


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
        if one_sided is None:
            one_sided = self.one_sided
        function = penalties.one_sided if one_sided else penalties.two_sided
        return self.weight * float(function(tf.constant(norm, tf.float64), self.target))

    def slope(self, norm: float) -> float:
        """Returns the derivative of `expected` by the norm, above the target."""
        return 2.0 * self.weight * (norm - self.target)

    @property
    def has_interpolates(self) -> bool:
        """Is True if the gradient is taken between real and fake examples."""
        return True

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
        """A value of c for which points between 0 and 1 have norms on both sides of the target."""
        return max(1.0, 2.0 * self.target / self.elements**0.5)

    def record_interpolates(self, calls: int) -> list[tuple[float, tf.Tensor]]:
        """Returns the penalty of the curved critic and the interpolates, for each call.

        Real examples are 0 and fake examples are 1, so that all elements of an interpolate are its
        alpha. The interpolates are `[B, elements]`, float64. Calls of the penalty that do not
        evaluate the critic between real and fake examples are omitted.
        """
        record: list = []
        critic = self.curved_critic(record)  # one for all calls, to trace a tf.function once
        found = []
        for _ in range(calls):
            record.clear()
            value = float(self(critic, tf.zeros(self.shape), tf.ones(self.shape)))
            for examples in reversed(record):
                flat = examples.reshape(-1, self.elements).astype("float64")
                between = flat[(flat != 0).any(axis=1) & (flat != 1).any(axis=1)]
                if len(between):
                    # A larger batch has real and fake examples, too. An alpha may also be 0 or 1.
                    points = flat if len(flat) == BATCH else between
                    found.append((value, tf.constant(points)))
                    break
        return found


@dataclasses.dataclass(frozen=True)
class CheckedSum(CheckedPenalty):
    """A weighted sum of penalties to be checked; `weight` is the largest of the weights.

    Attributes:
      weights: The weight of each penalty by name.
    """

    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if unknown := sorted(set(self.weights) - set(PLACES)):
            raise ValueError(
                f"parts has {', '.join(unknown)}, which cannot be checked: use {', '.join(PLACES)}"
            )
        if not all(weight > 0 for weight in self.weights.values()):
            raise ValueError(f"the weights of parts must be > 0, got {dict(self.weights)}")

    @property
    def has_interpolates(self) -> bool:
        """Is True if a penalty takes the gradient between real and fake examples."""
        return any(PLACES[name] == BETWEEN for name in self.weights)

    def expected(self, norm: float, *, one_sided: bool | None = None) -> float:
        """Returns the correct sum for a gradient norm that is the same everywhere."""
        del one_sided
        return self.expected_of([norm] * 3)

    def expected_of(self, norms: list[float]) -> float:
        """Returns the correct sum for gradient norms on fakes, between, and on real examples."""
        return sum(weight * self.part(name, norms) for name, weight in self.weights.items())

    def part(self, name: str, norms: list[float]) -> float:
        """Returns one of the penalties, without a weight, for gradient norms as above."""
        function = penalties.PENALTIES[name].function
        assert function is not None  # those of PLACES have one
        return float(function(tf.constant(norms[PLACES[name]], tf.float64), self.target))

    def slope(self, norm: float) -> float:
        """Returns the derivative of `expected` by the norm, above the target."""
        step = 1e-4  # the sum is quadratic, so the difference is exact
        return (self.expected(norm + step) - self.expected(norm - step)) / (2 * step)

    def critic(self, norms: list[float]) -> FormulaCritic:
        """Returns a critic with different gradient norms at -1, between, and at 1."""

        def formula(examples: tf.Tensor) -> tf.Tensor:
            flat = tf.reshape(tf.cast(examples, tf.float32), [-1, self.elements])
            edge, position = _EDGE * self.elements**0.5, tf.reduce_sum(flat, axis=1)
            position /= self.elements**0.5  # the gradient of the position has norm 1
            fake, between, real = norms
            return (
                fake * tf.minimum(position + edge, 0.0)
                + between * tf.clip_by_value(position, -edge, edge)
                + real * tf.maximum(position - edge, 0.0)
            )

        return FormulaCritic(formula)
