"""The gradient penalties that have a name, and weighted sums of them."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from .penalties import interpolate, one_sided, perturb, two_sided, zero_centred


class Penalty(NamedTuple):
    """A gradient penalty: the points of the gradient and a function of its norm.

    Attributes:
      points: Maps (real, fake, alpha, noise, scale of the noise) to points in the shape and dtype
        of `real`.
      function: Maps (norm `[B]`, target) to the unweighted penalty `[B]`; None for no penalty. The
        norm is then computed for the log only.
    """

    points: Callable[..., tf.Tensor]
    function: Callable[[tf.Tensor, float], tf.Tensor] | None


class WeightedPenalty(NamedTuple):
    """A part of a sum of penalties.

    Attributes:
      name: A key of PENALTIES.
      penalty: Its value.
      weight: Its weight in the critic's loss, >= 0.
    """

    name: str
    penalty: Penalty
    weight: float


def _interpolates(real, fake, alpha, noise, scale):
    return interpolate(real, fake, alpha)


def _around_real(real, fake, alpha, noise, scale):
    return perturb(real, noise, scale)


def _at_real(real, fake, alpha, noise, scale):
    return real


def _at_fake(real, fake, alpha, noise, scale):
    return fake


def _zero_centred(norm, target):
    return zero_centred(norm)


# The values of GanObjective.penalty.
PENALTIES = {
    "two_sided": Penalty(_interpolates, two_sided),
    "one_sided": Penalty(_interpolates, one_sided),
    "zero_centred": Penalty(_interpolates, _zero_centred),
    "r1": Penalty(_at_real, _zero_centred),
    "r2": Penalty(_at_fake, _zero_centred),
    "dragan": Penalty(_around_real, two_sided),
    "weight_clipping": Penalty(_interpolates, None),
    "none": Penalty(_interpolates, None),
}


def weighted_penalties(
    penalty: str | Sequence[str], weight: float | Sequence[float]
) -> tuple[WeightedPenalty, ...]:
    """Returns the parts of a sum of penalties, such as R1 + R2.

    Args:
      penalty: A key of PENALTIES, or several: as a sequence, or as text with commas.
      weight: The weight of each, or one weight for all, >= 0.

    Raises:
      ValueError: If a name is unknown or occurs twice, "none" or "weight_clipping" is one of
        several, or a weight is not a number >= 0.
    """
    names = penalty.split(",") if isinstance(penalty, str) else list(penalty)
    for name in names:
        if name not in PENALTIES:
            raise ValueError(f"penalty={name!r} is unknown: use one of {', '.join(PENALTIES)}")
        if len(names) > 1 and (PENALTIES[name].function is None or names.count(name) > 1):
            raise ValueError(
                f"penalty={penalty!r} is not a sum: combine different penalties of the gradient"
            )
    weights = [weight] * len(names) if isinstance(weight, (int, float)) else weight
    if isinstance(weights, str) or not all(map(_is_weight, weights)):
        raise ValueError(f"penalty_weight must be a number >= 0, got {weight!r}")
    if len(weights) != len(names):
        raise ValueError(
            f"penalty_weight={weight!r} has {len(weights)} numbers, but there are {len(names)} "
            "penalties: give one number for each"
        )
    return tuple(
        WeightedPenalty(name, PENALTIES[name], each)
        for name, each in zip(names, weights, strict=True)
    )


def _is_weight(value: object) -> bool:
    return isinstance(value, (int, float)) and value >= 0 and not math.isnan(value)
