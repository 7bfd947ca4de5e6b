"""Gradient penalties per example, each composed of points and a function of the gradient norm.

    points                                    function
    interpolate(real, fake, alpha)            two_sided(norm, target)
    perturb(real, noise, scale)               one_sided(norm, target)
    real, fake                                zero_centered(norm)

A penalty is `function(gradient_norm(critic, points))`. The functions `*_penalty` are the
combinations that have a name in the literature. WGAN-GP (Gulrajani et al. 2017, "Improved
Training of Wasserstein GANs", arXiv:1704.00028, equation 3 and algorithm 1, lines 6 and 7) is

    x^      = real + alpha * (fake - real),  alpha ~ U[0, 1), one per example
    penalty = (|grad_x^ D(x^)|_2 - 1)^2

Examples are one tensor `[B, ...]`, or a nested structure of tensors for a critic of several inputs.
All inputs of an example then share one alpha, and the norm is over all of them.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .lazy_tensorflow import tf
from .scores import (
    Critic,
    Examples,
    as_examples,
    at_least_float32,
    floating,
    matching_examples,
    of_batch,
    score,
)

# Points at which the gradient is taken.


def interpolate(real: Examples, fake: Examples, alpha: tf.Tensor) -> Examples:
    """Returns points on the straight lines between real and fake examples.

    Args:
      real: `[B, ...]`, floating point, or a nested structure of such tensors.
      fake: The structure, shapes and dtypes of `real`.
      alpha: `[B]`, in [0, 1): 0 gives `real`, values near 1 give nearly `fake`. There is one
        value per example, because a value per pixel would leave the line.

    Returns:
      real + alpha * (fake - real), in the structure, shapes and dtypes of `real`.

    Raises:
      ValueError: If `real` and `fake` differ in structure, shape or dtype or are not
        floating-point, or `alpha` does not have shape `[B]`.
    """

    def between(real: tf.Tensor, fake: tf.Tensor) -> tf.Tensor:
        weight = tf.cast(alpha, real.dtype)
        if not weight.shape.is_compatible_with(real.shape[:1]):
            raise ValueError(
                f"alpha must have shape {real.shape[:1]}, got {weight.shape}: use one value per "
                "example"
            )
        weight = of_batch(weight, real, "alpha")
        return real + tf.reshape(weight, [-1] + [1] * (real.shape.rank - 1)) * (fake - real)

    return tf.nest.map_structure(between, *matching_examples(real, "real", fake, "fake"))


def perturb(real: Examples, noise: Examples, scale: float) -> Examples:
    """Returns points around the real examples, real + scale * noise.

    Args:
      real: `[B, ...]`, floating point, or a nested structure of such tensors.
      noise: The structure, shapes and dtypes of `real`, standard normal.
      scale: Standard deviation of the perturbation, >= 0, in units of the data.

    Returns:
      The points, in the structure, shapes and dtypes of `real`.

    Raises:
      ValueError: If `real` and `noise` differ in structure, shape or dtype or are not
        floating-point, or `scale` is negative.
    """
    scale = _not_negative("scale", scale)
    real, noise = matching_examples(real, "real", noise, "noise")
    return tf.nest.map_structure(lambda each, other: each + scale * other, real, noise)


def gradient_norm(critic: Critic, points: Examples) -> tf.Tensor:
    """Computes the Euclidean norm of the critic's gradient at each point.

    The norm is over all elements of all inputs of an example, and is differentiable with
    respect to the critic's weights. Where the gradient is exactly zero, the norm and its derivative
    are 0, so that a constant critic does not cause NaN. Where the gradient is NaN, so is the norm.
    No epsilon is added under the square root, so a norm of 1 is exactly 1.

    Args:
      critic: Maps `[B, ...]` to scores `[B]`, `[B, 1]` or, of patches, `[B, ...]`, of which the
        mean is differentiated. Each score must depend on its own example only, which batch
        normalization violates; `check_critic` tests this.
      points: `[B, ...]`, floating point, or a nested structure of such tensors.

    Returns:
      `[B]`, float32 (float64 for float64 points).

    Raises:
      ValueError: If the points are not floating-point, the scores have another shape or dtype,
        or the scores do not depend on the points.
    """
    points = as_examples(points, "points")
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(points)
        # No score depends on another example, so the gradient of the sum holds the gradient of
        # each score for its own example.
        total = tf.reduce_sum(score(critic, points))
    gradients = [each for each in tape.gradient(total, tf.nest.flatten(points)) if each is not None]
    if not gradients:
        raise ValueError(
            "the critic's scores do not depend on a tensor of its input (the gradient is None): "
            "remove integer casts, argmax and stop_gradient from the critic"
        )
    squared = _sum([_squared_norm(at_least_float32(each)) for each in gradients])
    # The derivative of sqrt is infinite at 0. The outer `where` alone would multiply it by zero
    # in the backward pass, which is NaN; the inner one avoids it.
    is_zero = squared == 0
    root = tf.sqrt(tf.where(is_zero, tf.ones_like(squared), squared))
    return tf.where(is_zero, tf.zeros_like(root), root)


def _squared_norm(gradient: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.square(gradient), axis=list(range(1, gradient.shape.rank)))


def _sum(values: list[tf.Tensor]) -> tf.Tensor:
    """Returns the sum in the largest of the dtypes."""
    dtype = max((each.dtype for each in values), key=lambda dtype: dtype.size)
    return functools.reduce(tf.add, [tf.cast(each, dtype) for each in values])


# Functions of the gradient norm.


def two_sided(norm: tf.Tensor, target: float = 1.0) -> tf.Tensor:
    """Computes (norm - target)^2, which penalizes norms on both sides of the target.

    WGAN-GP: Gulrajani et al. 2017 (arXiv:1704.00028), equation 3.

    Args:
      norm: Gradient norms, any shape, floating point.
      target: The gradient norm at which the penalty is 0, >= 0.

    Returns:
      The penalty, in the shape of `norm`, float32 (float64 for float64 norms).

    Raises:
      ValueError: If `target` is negative.
    """
    return tf.square(_norms(norm) - _not_negative("target", target))


def one_sided(norm: tf.Tensor, target: float = 1.0) -> tf.Tensor:
    """Computes max(0, norm - target)^2, which penalizes only norms above the target.

    WGAN-LP: Petzka et al. 2018 (arXiv:1709.08894). Arguments, result and errors are those of
    `two_sided`.
    """
    return tf.square(tf.nn.relu(_norms(norm) - _not_negative("target", target)))


def zero_centered(norm: tf.Tensor) -> tf.Tensor:
    """Computes norm^2, the zero-centered penalty.

    R1 and R2 apply it to the gradient at real and at fake examples (Mescheder et al. 2018,
    arXiv:1801.04406, equations 9 and 10), 0-GP at interpolates (Thanh-Tung et al. 2019,
    arXiv:1902.03984).

    Args:
      norm: Gradient norms, any shape, floating point.

    Returns:
      The penalty, in the shape of `norm`, float32 (float64 for float64 norms).
    """
    return tf.square(_norms(norm))


_one_sided = one_sided  # for `gradient_penalty`, which has an argument of that name


# Named penalties. All of them treat `real` and `fake` as constants: the gradient flows to the
# critic's weights only.


def gradient_penalty(
    critic: Critic,
    real: Examples,
    fake: Examples,
    *,
    alpha: tf.Tensor | None = None,
    seed: tf.Tensor | None = None,
    target: float = 1.0,
    one_sided: bool = False,
) -> tf.Tensor:
    """Computes the unweighted gradient penalty of WGAN-GP for each example.

    Gulrajani et al. 2017 (arXiv:1704.00028), equation 3. Multiply the penalty by its weight (10
    in the paper) and add it to `critic_loss`. With target=0, it is the zero-centered penalty at
    interpolates (Thanh-Tung et al. 2019, arXiv:1902.03984).

    Args:
      critic: Maps `[B, ...]` to scores, see `gradient_norm`.
      real: `[B, ...]`, floating point, or a nested structure of such tensors.
      fake: The structure, shapes and dtypes of `real`.
      alpha: `[B]`, in [0, 1), the position on each line between `real` and `fake`. Uniform
        random numbers by default.
      seed: `[2]` integers for stateless random numbers; by default they are stateful. Replicas
        with the same seed use the same numbers, so give each replica its own seed.
      target: The gradient norm at which the penalty is 0, >= 0.
      one_sided: Whether to penalize only norms above `target` (WGAN-LP, Petzka et al. 2018,
        arXiv:1709.08894).

    Returns:
      `[B]`, float32 (float64 for float64 examples), >= 0.

    Raises:
      ValueError: If `target` is negative, both `alpha` and `seed` are given, or `interpolate` or
        `gradient_norm` raises it.
    """
    real, fake = matching_examples(real, "real", fake, "fake")
    _at_most_one("alpha", alpha, seed)
    if alpha is None:
        shape = tf.shape(tf.nest.flatten(real)[0])[:1]
        alpha = (
            tf.random.uniform(shape) if seed is None else tf.random.stateless_uniform(shape, seed)
        )
    points = interpolate(constant(real), constant(fake), alpha)
    function = _one_sided if one_sided else two_sided
    return function(gradient_norm(critic, points), target)


def r1_penalty(critic: Critic, real: Examples) -> tf.Tensor:
    """Computes the R1 penalty, |grad D(real)|^2, for each example.

    Mescheder et al. 2018 (arXiv:1801.04406), equation 9, where its weight is gamma / 2.

    Args:
      critic: Maps `[B, ...]` to scores, see `gradient_norm`.
      real: `[B, ...]`, floating point, or a nested structure of such tensors.

    Returns:
      `[B]`, float32 (float64 for float64 examples), >= 0.

    Raises:
      ValueError: If `real` is not floating-point, or `gradient_norm` raises it.
    """
    return zero_centered(gradient_norm(critic, constant(as_examples(real, "real"))))


def r2_penalty(critic: Critic, fake: Examples) -> tf.Tensor:
    """Computes the R2 penalty, |grad D(fake)|^2, for each example.

    Mescheder et al. 2018 (arXiv:1801.04406), equation 10, where its weight is gamma / 2.
    Arguments, result and errors are those of `r1_penalty`, for `fake` in place of `real`.
    """
    return zero_centered(gradient_norm(critic, constant(as_examples(fake, "fake"))))


def dragan_penalty(
    critic: Critic,
    real: Examples,
    *,
    noise: Examples | None = None,
    seed: tf.Tensor | None = None,
    scale: float = 0.25,
    target: float = 1.0,
) -> tf.Tensor:
    """Computes the DRAGAN penalty, (|grad D(real + scale * noise)| - target)^2.

    Kodali et al. 2017 (arXiv:1705.07215). Their noise is N(0, c I), so `scale` is the square
    root of c. Choose it to suit the data. Many implementations use half the standard deviation
    of the batch instead, which makes the penalty of an example depend on the other examples.

    Args:
      critic: Maps `[B, ...]` to scores, see `gradient_norm`.
      real: `[B, ...]`, floating point, or a nested structure of such tensors.
      noise: The structure, shapes and dtypes of `real`, standard normal. Random numbers by default.
      seed: `[2]` integers for stateless random numbers, see `gradient_penalty`.
      scale: Standard deviation of the perturbation, >= 0, in units of the data.
      target: The gradient norm at which the penalty is 0, >= 0.

    Returns:
      `[B]`, float32 (float64 for float64 examples), >= 0.

    Raises:
      ValueError: If both `noise` and `seed` are given, or `perturb`, `gradient_norm` or
        `two_sided` raises it.
    """
    real = constant(as_examples(real, "real"))
    _at_most_one("noise", noise, seed)
    if noise is None:
        noise = _normal_like(real, seed)
    return two_sided(gradient_norm(critic, perturb(real, noise, scale)), target)


# Penalties by name, and weighted sums of them.


class Penalty(NamedTuple):
    """A gradient penalty: the points of the gradient and a function of its norm.

    Attributes:
      points: Maps (real, fake, alpha, noise, scale of the noise) to points in the structure, shapes
        and dtypes of `real`.
      function: Maps (norm `[B]`, target) to the unweighted penalty `[B]`; None for no penalty. The
        norm is then computed for the log only.
    """

    points: Callable[..., tf.Tensor]
    function: Callable[[tf.Tensor, float], tf.Tensor] | None

    @property
    def has_target(self) -> bool:
        """Is True if the penalty is 0 at a gradient norm that can be chosen."""
        return self.function in (two_sided, one_sided)


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


def _zero_centered(norm, target):
    return zero_centered(norm)


# The values of GanObjective.penalty. Those with a function can be summed.
PENALTIES = {
    "two_sided": Penalty(_interpolates, two_sided),
    "one_sided": Penalty(_interpolates, one_sided),
    "zero_centered": Penalty(_interpolates, _zero_centered),
    "r1": Penalty(_at_real, _zero_centered),
    "r2": Penalty(_at_fake, _zero_centered),
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
    is_one = isinstance(weight, numbers.Real)
    weights: Any = [float(weight)] * len(names) if is_one else weight  # type: ignore[arg-type]
    if isinstance(weights, str) or not all(map(_is_weight, weights)):
        raise ValueError(f"penalty_weight must be a number >= 0, got {weight!r}")
    if len(weights) != len(names):
        raise ValueError(
            f"penalty_weight={weight!r} has {len(weights)} numbers, but there are {len(names)} "
            "penalties: give one number for each"
        )
    return tuple(
        WeightedPenalty(name, PENALTIES[name], float(each))
        for name, each in zip(names, weights, strict=True)
    )


def _is_weight(value: object) -> bool:
    return isinstance(value, numbers.Real) and float(value) >= 0


def constant(examples: Examples) -> Examples:
    """Returns examples through which no gradient flows."""
    return tf.nest.map_structure(tf.stop_gradient, examples)


def _normal_like(examples: Examples, seed: tf.Tensor | None) -> Examples:
    """Returns standard normal numbers in the structure of the examples; each input has its own."""
    noise = []
    for index, each in enumerate(tf.nest.flatten(examples)):
        if seed is None:
            noise.append(tf.random.normal(tf.shape(each), dtype=each.dtype))
        else:
            own = tf.random.experimental.stateless_fold_in(seed, index) if index else seed
            noise.append(tf.random.stateless_normal(tf.shape(each), own, dtype=each.dtype))
    return tf.nest.pack_sequence_as(examples, noise)


def _norms(values: tf.Tensor) -> tf.Tensor:
    return at_least_float32(floating(values, "norm"))


def _not_negative(name: str, value: float) -> float:
    if not tf.is_tensor(value) and value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    return value


def _at_most_one(name: str, drawn: tf.Tensor | None, seed: tf.Tensor | None) -> None:
    if drawn is not None and seed is not None:
        raise ValueError(f"{name} and seed were both given: pass only one of them")
