"""The known mistakes that show on a linear critic, and the values they give there."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from .probe import BATCH, Probe

Value = Callable[[float], float]  # of the penalty, by the norm of w


def known_mistakes(
    probe: Probe, measured: Sequence[float], norms: Sequence[float]
) -> Iterator[tuple[str, str, Value]]:
    """(name, message, norm of w -> value) of each mistake that shows on a linear critic."""
    # All elements of w are of one size, so a norm over fewer elements is smaller by a root.
    expected, root_elements = probe.expected, probe.elements**0.5
    yield (
        "norm_over_batch",
        "the norm is taken over the whole batch instead of each example",
        lambda norm: expected(norm * BATCH**0.5),
    )
    yield (
        "gradient_of_mean",
        f"the gradient is that of the mean score, {BATCH} times too small: differentiate the sum",
        lambda norm: expected(norm / BATCH),
    )
    yield (
        "gradient_of_mean",
        "the gradient is that of the mean score, and its norm is taken over the whole batch",
        lambda norm: expected(norm / BATCH**0.5),
    )
    rank = len(probe.shape)
    for count in range(1, rank):
        for axes in itertools.combinations(range(rank), count):
            if axes != tuple(range(1, rank)):
                covered = math.prod(probe.shape[axis] for axis in axes)
                yield (
                    "norm_over_axes",
                    f"the norm is taken over axes {list(axes)} only: take all but the first",
                    _scaled_norm(expected, covered**0.5 / root_elements),
                )
    yield (
        "missing_root",
        "the squared norm is used where the norm belongs",
        lambda norm: expected(norm**2),
    )
    yield (
        "root_mean_square",
        "the squares are averaged where they must be summed",
        lambda norm: expected(norm / root_elements),
    )
    yield (
        "sum_of_absolutes",
        "the norm is the sum of absolute values, not the Euclidean one",
        lambda norm: expected(norm * root_elements),
    )
    yield (
        "two_sided" if probe.one_sided else "one_sided",
        "norms below the target are penalised, though one-sided was asked for"
        if probe.one_sided
        else "norms below the target cost nothing, though two-sided was asked for",
        lambda norm: expected(norm, one_sided=not probe.one_sided),
    )
    at_half = probe.target - max(measured[2] / probe.weight, 0.0) ** 0.5
    epsilon = at_half**2 - norms[2] ** 2
    if epsilon > 0:
        yield (
            "epsilon_under_root",
            f"{epsilon:.1e} is added to the squared norm: guard the root at 0 alone",
            lambda norm: expected((norm**2 + epsilon) ** 0.5),
        )
    factor = measured[1] / expected(norms[1]) if expected(norms[1]) else 0.0
    if factor:
        yield (
            "scaled",
            f"the values are {factor:.4g} times what they should be (is the penalty weight in "
            "them? give it as `weight`; or is it a sum over the batch?)",
            lambda norm: factor * expected(norm),
        )


def _scaled_norm(expected: Value, factor: float) -> Value:
    return lambda norm: expected(norm * factor)
