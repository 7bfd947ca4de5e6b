"""Checks the values of a weighted sum of gradient penalties."""

import dataclasses
import math
import operator
from collections.abc import Iterator, Mapping

import tensorflow as tf

from .combined import PENALTIES
from .findings import Finding
from .probe import CheckedPenalty, FormulaCritic

# Where each penalty takes the gradient: on fake examples, between the two, or on real examples.
FAKE, BETWEEN, REAL = range(3)
_PLACES = {"r1": REAL, "r2": FAKE, "two_sided": BETWEEN, "one_sided": BETWEEN}
_PLACES["zero_centred"] = BETWEEN
_EDGE = 1 - 1e-5  # a random point between two examples is closer to one of them in 1 of 100,000


@dataclasses.dataclass(frozen=True)
class CheckedSum(CheckedPenalty):
    """A weighted sum of penalties to be checked; `weight` is the largest of the weights.

    Attributes:
      weights: The weight of each penalty by name.
    """

    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if unknown := sorted(set(self.weights) - set(_PLACES)):
            raise ValueError(
                f"parts has {', '.join(unknown)}, which cannot be checked: use {', '.join(_PLACES)}"
            )
        if not all(weight > 0 for weight in self.weights.values()):
            raise ValueError(f"the weights of parts must be > 0, got {dict(self.weights)}")

    @property
    def has_interpolates(self) -> bool:
        """Is True if a penalty takes the gradient between real and fake examples."""
        return any(_PLACES[name] == BETWEEN for name in self.weights)

    def expected(self, norm: float, *, one_sided: bool | None = None) -> float:
        """Returns the correct sum for a gradient norm that is the same everywhere."""
        del one_sided
        return self.expected_of([norm] * 3)

    def expected_of(self, norms: list[float]) -> float:
        """Returns the correct sum for gradient norms on fakes, between, and on real examples."""
        return sum(weight * self.part(name, norms) for name, weight in self.weights.items())

    def part(self, name: str, norms: list[float]) -> float:
        """Returns one of the penalties, without a weight, for gradient norms as above."""
        function = PENALTIES[name].function
        assert function is not None  # those of _PLACES have one
        return float(function(tf.constant(norms[_PLACES[name]], tf.float64), self.target))

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


def check_sum(checked: CheckedSum) -> list[Finding]:
    """Checks the values, and names the weights that the implementation uses if they are wrong."""
    real = tf.ones(checked.shape)
    norms = list(_norms())
    measured = [float(checked(checked.critic(each), real, -real)) for each in norms]
    expected = [checked.expected_of(each) for each in norms]
    largest = max(expected)
    if _all_close(measured, expected, relative=2e-3, absolute=1e-4 * largest):
        return []
    names = [*_PLACES]
    values = [[checked.part(name, each) for name in names] for each in norms]
    finite = all(map(math.isfinite, measured))
    found = _least_squares(values, measured) if finite else [math.nan] * len(names)
    explained = [sum(map(operator.mul, row, found)) for row in values]
    if _all_close(measured, explained, relative=5e-3, absolute=1e-3 * largest):
        weights = {
            name: weight
            for name, weight in zip(names, found, strict=True)
            if abs(weight) > 1e-3 * max(map(abs, found))
        }
        return [
            Finding(
                "wrong_weights",
                f"the values are those of {_formula(weights)} (correct: "
                f"{_formula(checked.weights)})",
            )
        ]
    worst = max(range(len(norms)), key=lambda each: abs(measured[each] - expected[each]))
    fake, between, real_norm = norms[worst]
    return [
        Finding(
            "wrong_value",
            f"the value is {measured[worst]:.4g} (correct: {expected[worst]:.4g}) where the "
            f"gradient norm is {real_norm:g} on real examples, {between:g} between real and fake, "
            f"and {fake:g} on fake examples: check each penalty alone",
        )
    ]


def _all_close(
    values: list[float], others: list[float], *, relative: float, absolute: float
) -> bool:
    return all(
        math.isclose(value, other, rel_tol=relative, abs_tol=absolute)
        for value, other in zip(values, others, strict=True)
    )


def _least_squares(rows: list[list[float]], values: list[float]) -> list[float]:
    """Returns the factors of the columns whose sum is closest to the values."""
    matrix = tf.constant(rows, tf.float64)
    factors = tf.linalg.lstsq(matrix, tf.constant(values, tf.float64)[:, None], fast=False)
    return [float(factor) for factor in factors[:, 0]]


def _norms() -> Iterator[list[float]]:
    """Yields gradient norms on fakes, between, and on real examples; each varies alone."""
    yield [1.0, 1.0, 1.0]
    for place in range(3):
        for norm in (0.5, 2.0, 3.0):
            norms = [1.0] * 3
            norms[place] = norm
            yield norms


def _formula(weights: Mapping[str, float]) -> str:
    return " + ".join(f"{weight:.4g} {name}" for name, weight in weights.items()) or "no penalty"
