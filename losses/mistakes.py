"""Known mistakes in gradient penalties, and the value of each on a linear critic."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from .probe import BATCH, CheckedPenalty

Value = Callable[[float], float]  # maps the norm of w to the value of the penalty


def known_mistakes(
    checked: CheckedPenalty, measured: Sequence[float], norms: Sequence[float]
) -> Iterator[tuple[str, str, Value]]:
    """Yields (name, message, value) for each mistake that a linear critic D(x) = w.x reveals.

    Args:
      checked: The penalty to be checked.
      measured: The penalties of linear critics with the first `norms`.
      norms: Norms of w.
    """
    yield from _batch_mistakes(checked)
    yield from _norm_mistakes(checked)
    yield from _value_mistakes(checked, measured, norms)


def _batch_mistakes(checked: CheckedPenalty) -> Iterator[tuple[str, str, Value]]:
    expected = checked.expected
    yield (
        "norm_over_batch",
        "the norm is taken over the whole batch: take it over each example",
        lambda norm: expected(norm * BATCH**0.5),
    )
    yield (
        "gradient_of_mean",
        f"the gradient is that of the mean score, {BATCH} times too small: differentiate the sum "
        "of the scores",
        lambda norm: expected(norm / BATCH),
    )
    yield (
        "gradient_of_mean",
        "the gradient is that of the mean score, and its norm is over the whole batch: "
        "differentiate the sum of the scores, and take the norm over each example",
        lambda norm: expected(norm / BATCH**0.5),
    )


def _norm_mistakes(checked: CheckedPenalty) -> Iterator[tuple[str, str, Value]]:
    # All elements of w have the same absolute value, so the norm over a fraction of the elements is
    # the norm over all elements times the square root of that fraction.
    expected, root_elements = checked.expected, checked.elements**0.5
    rank = len(checked.shape)
    for count in range(1, rank):
        for axes in itertools.combinations(range(rank), count):
            if axes != tuple(range(1, rank)):
                covered = math.prod(checked.shape[axis] for axis in axes)
                yield (
                    "norm_over_axes",
                    f"the norm is taken over axes {list(axes)}: take it over all axes but the "
                    "first",
                    _scaled_norm(expected, covered**0.5 / root_elements),
                )
    yield (
        "missing_root",
        "the squared norm is used in place of the norm: take its square root",
        lambda norm: expected(norm**2),
    )
    yield (
        "root_mean_square",
        "the squares are averaged in place of being summed: use reduce_sum",
        lambda norm: expected(norm / root_elements),
    )
    yield (
        "sum_of_absolutes",
        "the norm is the sum of absolute values: use the Euclidean norm",
        lambda norm: expected(norm * root_elements),
    )


def _value_mistakes(
    checked: CheckedPenalty, measured: Sequence[float], norms: Sequence[float]
) -> Iterator[tuple[str, str, Value]]:
    expected = checked.expected
    yield (
        "two_sided" if checked.one_sided else "one_sided",
        "norms below the target are penalized: clip (norm - target) at 0, or pass one_sided=False"
        if checked.one_sided
        else "norms below the target are not penalized: do not clip, or pass one_sided=True",
        lambda norm: expected(norm, one_sided=not checked.one_sided),
    )
    at_half = checked.target - max(measured[2] / checked.weight, 0.0) ** 0.5
    epsilon = at_half**2 - norms[2] ** 2
    if epsilon > 0:
        yield (
            "epsilon_under_root",
            f"{epsilon:.1e} is added to the squared norm: guard the square root only at 0",
            lambda norm: expected((norm**2 + epsilon) ** 0.5),
        )
    factor = measured[1] / expected(norms[1]) if expected(norms[1]) else 0.0
    if factor:
        yield (
            "scaled",
            f"the values are {factor:.4g} times the correct ones: if they include the penalty "
            "weight, pass it as `weight`; if they are summed over the batch, average them",
            lambda norm: factor * expected(norm),
        )


def _scaled_norm(expected: Value, factor: float) -> Value:
    return lambda norm: expected(norm * factor)
