"""Gradient penalties, per example: where the gradient is taken, and what is asked of its norm.

    where                                     what
    interpolate(real, fake, alpha)            two_sided(norm, target)
    perturb(real, noise, scale)               one_sided(norm, target)
    real, fake                                zero_centred(norm)

A penalty is `what(gradient_norm(critic, where))`. The functions at the end are the pairs
that have a name; the equation of WGAN-GP (Gulrajani et al. 2017, "Improved Training of
Wasserstein GANs", arXiv:1704.00028, equation 3 and algorithm 1, lines 6 and 7) is

    x^      = real + alpha * (fake - real),  alpha ~ U[0, 1), one per example
    penalty = (|grad_x^ D(x^)|_2 - 1)^2
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .scores import Critic, at_least_float32, floating, like_each_other, score

# Where the gradient is taken.


def interpolate(real: tf.Tensor, fake: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """Points on the straight lines between real and fake examples.

    Args:
      real: `[B, ...]`, floating point.
      fake: the same shape and dtype as `real`.
      alpha: `[B]`, in [0, 1): 0 gives `real`, towards 1 gives `fake`. One value moves a
        whole example; a value per pixel would leave the line between the two.

    Returns:
      A tensor like `real`.

    Raises:
      ValueError: `real` and `fake` differ in shape or dtype, are no floating-point
        tensors, or `alpha` does not have shape `[B]`.
    """
    real, fake = like_each_other(real, "real", fake, "fake")
    alpha = tf.cast(alpha, real.dtype)
    if not alpha.shape.is_compatible_with(real.shape[:1]):
        raise ValueError(
            f"alpha {alpha.shape} must have shape {real.shape[:1]}: one value per example"
        )
    alpha = tf.reshape(alpha, [-1] + [1] * (real.shape.rank - 1))
    return real + alpha * (fake - real)


def perturb(real: tf.Tensor, noise: tf.Tensor, scale: float) -> tf.Tensor:
    """real + scale * noise: points around the real examples.

    Args:
      real: `[B, ...]`, floating point.
      noise: the same shape and dtype as `real`, standard normal.
      scale: standard deviation of the perturbation, >= 0, in units of the data.

    Returns:
      A tensor like `real`.

    Raises:
      ValueError: `real` and `noise` differ in shape or dtype or are no floating-point
        tensors, or `scale` is negative.
    """
    real, noise = like_each_other(real, "real", noise, "noise")
    return real + _not_negative("scale", scale) * noise


def gradient_norm(critic: Critic, points: tf.Tensor) -> tf.Tensor:
    """The Euclidean norm of the critic's gradient at each point, over all its elements.

    Differentiable once more, with respect to the critic's weights. Where the gradient is
    exactly zero the norm is 0 and its own gradient is taken as 0, so that a critic that
    is still constant gives no NaN; nothing is added under the root, so that a norm of 1
    is 1.

    Args:
      critic: maps `[B, ...]` to scores `[B]` or `[B, 1]`; each score must depend on its
        own example only (no batch-norm): `check_critic` can tell.
      points: `[B, ...]`, floating point.

    Returns:
      `[B]`, float32 (float64 for float64 points).

    Raises:
      ValueError: points of an integer dtype, scores of another shape or dtype, or scores
        that do not depend on the points.
    """
    points = floating(points, "points")
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(points)
        # d(sum of scores) / d points stacks the examples' own gradients, because no
        # score depends on another example.
        total = tf.reduce_sum(score(critic, points))
    gradient = tape.gradient(total, points)
    if gradient is None:
        raise ValueError(
            "the critic's scores do not depend on its input: its gradient is None "
            "(is there an integer cast, an argmax or a stop_gradient in it?)"
        )
    gradient = at_least_float32(gradient)
    squared = tf.reduce_sum(tf.square(gradient), axis=list(range(1, gradient.shape.rank)))
    # The inner `where` keeps sqrt's infinite slope at 0 out of the backward pass: the
    # outer one alone would multiply it by zero, which is NaN.
    positive = squared > 0
    root = tf.sqrt(tf.where(positive, squared, tf.ones_like(squared)))
    return tf.where(positive, root, tf.zeros_like(root))


# What is asked of the norm.


def two_sided(norm: tf.Tensor, target: float = 1.0) -> tf.Tensor:
    """(norm - target)^2, the shape of `norm`.

    WGAN-GP: Gulrajani et al. 2017 (arXiv:1704.00028), equation 3.

    Raises:
      ValueError: `target` is negative.
    """
    return tf.square(norm - _not_negative("target", target))


def one_sided(norm: tf.Tensor, target: float = 1.0) -> tf.Tensor:
    """max(0, norm - target)^2, the shape of `norm`: smaller norms cost nothing.

    WGAN-LP: Petzka et al. 2018 (arXiv:1709.08894).

    Raises:
      ValueError: `target` is negative.
    """
    return tf.square(tf.nn.relu(norm - _not_negative("target", target)))


def zero_centred(norm: tf.Tensor) -> tf.Tensor:
    """norm^2.

    Mescheder et al. 2018 (arXiv:1801.04406), equations 9 and 10; at interpolates,
    Thanh-Tung et al. 2019 (arXiv:1902.03984).
    """
    return tf.square(norm)


_one_sided = one_sided  # for `gradient_penalty`, which has an argument of that name


# The pairs that have a name. `real` and `fake` are constants to all of them: the gradient
# flows to the critic's weights only.


def gradient_penalty(
    critic: Critic,
    real: tf.Tensor,
    fake: tf.Tensor,
    *,
    alpha: tf.Tensor | None = None,
    seed: tf.Tensor | None = None,
    target: float = 1.0,
    one_sided: bool = False,
) -> tf.Tensor:
    """The unweighted gradient penalty of each example (arXiv:1704.00028, equation 3).

    Multiply by the penalty weight (10 in the paper) and add to `critic_loss`. With
    target=0 it is the zero-centred penalty at interpolates (arXiv:1902.03984).

    Args:
      critic: maps `[B, ...]` to scores `[B]` or `[B, 1]`.
      real: `[B, ...]`, floating point.
      fake: the same shape and dtype as `real`.
      alpha: `[B]` in [0, 1), where on the line between `real` and `fake` to look. Drawn
        here if left out.
      seed: `[2]` integers for a stateless draw of alpha; without it the draw is stateful.
        Every replica with one seed draws the same alphas: give each its own.
      target: the gradient norm asked for.
      one_sided: penalise only norms above `target` (WGAN-LP, arXiv:1709.08894).

    Returns:
      `[B]`, float32 (float64 for float64 images), >= 0.

    Raises:
      ValueError: see `interpolate` and `gradient_norm`; a negative target; or both alpha
        and seed given.
    """
    real, fake = like_each_other(real, "real", fake, "fake")
    _one_source("alpha", alpha, seed)
    if alpha is None:
        shape = tf.shape(real)[:1]
        alpha = (
            tf.random.uniform(shape) if seed is None else tf.random.stateless_uniform(shape, seed)
        )
    points = interpolate(tf.stop_gradient(real), tf.stop_gradient(fake), alpha)
    ask = _one_sided if one_sided else two_sided
    return ask(gradient_norm(critic, points), target)


def r1_penalty(critic: Critic, real: tf.Tensor) -> tf.Tensor:
    """|grad D(real)|^2, `[B]`: Mescheder et al. 2018 (arXiv:1801.04406), equation 9.

    The paper weighs it by gamma / 2. Arguments, dtypes and errors as for `gradient_norm`.
    """
    return zero_centred(gradient_norm(critic, tf.stop_gradient(floating(real, "real"))))


def r2_penalty(critic: Critic, fake: tf.Tensor) -> tf.Tensor:
    """|grad D(fake)|^2, `[B]`: Mescheder et al. 2018 (arXiv:1801.04406), equation 10.

    The paper weighs it by gamma / 2. Arguments, dtypes and errors as for `gradient_norm`.
    """
    return zero_centred(gradient_norm(critic, tf.stop_gradient(floating(fake, "fake"))))


def dragan_penalty(
    critic: Critic,
    real: tf.Tensor,
    *,
    noise: tf.Tensor | None = None,
    seed: tf.Tensor | None = None,
    scale: float = 0.25,
    target: float = 1.0,
) -> tf.Tensor:
    """(|grad D(real + scale * noise)| - target)^2, `[B]`, with standard normal noise.

    DRAGAN: Kodali et al. 2017 (arXiv:1705.07215), whose noise is N(0, c I): scale is the
    root of c. Scale it to the data; much code takes half the batch's standard deviation,
    which would make the penalty of one example depend on the others.

    Args:
      critic: maps `[B, ...]` to scores `[B]` or `[B, 1]`.
      real: `[B, ...]`, floating point.
      noise: like `real`, standard normal. Drawn here if left out.
      seed: `[2]` integers for a stateless draw of the noise; see `gradient_penalty`.
      scale: standard deviation of the perturbation, in units of the data.
      target: the gradient norm asked for.

    Returns:
      `[B]`, float32 (float64 for float64 images), >= 0.

    Raises:
      ValueError: see `perturb`, `gradient_norm` and `two_sided`; or both noise and seed
        given.
    """
    real = tf.stop_gradient(floating(real, "real"))
    _one_source("noise", noise, seed)
    if noise is None:
        shape = tf.shape(real)
        noise = (
            tf.random.normal(shape, dtype=real.dtype)
            if seed is None
            else tf.random.stateless_normal(shape, seed, dtype=real.dtype)
        )
    return two_sided(gradient_norm(critic, perturb(real, noise, scale)), target)


# How often.


def lazily(interval: int, step: tf.Tensor, compute: Callable, like: Any) -> Any:
    """`compute()`, times `interval`, on every `interval`-th step; zeros, for free, on the others.

    Lazy regularization: Karras et al. 2020 (arXiv:1912.04958), section 3.1. The mean over
    steps, of the values and of their gradients, is what it would be on every step.

    Args:
      interval: k: steps 0, k, 2k, ... count. 1: all of them.
      step: scalar integer, critic steps done so far.
      compute: () -> a tensor or a structure of them, such as a penalty.
      like: the shapes and dtypes of what `compute` returns, as tensors.

    Returns:
      Tensors like those of `compute`.

    Raises:
      ValueError: `interval` is not positive.
    """
    if interval < 1:
        raise ValueError(f"interval must be positive, got {interval}")
    if interval == 1:
        return compute()

    def on_this_step() -> Any:
        return tf.nest.map_structure(lambda value: value * float(interval), compute())

    def on_the_others() -> Any:
        return tf.nest.map_structure(tf.zeros_like, like)

    step = tf.convert_to_tensor(step)
    due = tf.equal(tf.math.floormod(step, tf.cast(interval, step.dtype)), 0)
    return tf.cond(due, on_this_step, on_the_others)


def _not_negative(name: str, value: float) -> float:
    if not tf.is_tensor(value) and value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    return value


def _one_source(name: str, drawn: tf.Tensor | None, seed: tf.Tensor | None) -> None:
    if drawn is not None and seed is not None:
        raise ValueError(f"give {name} or a seed to draw it from, not both")
