"""The gradient penalty of WGAN-GP, per example, and the three parts it is made of.

Gulrajani et al. 2017, "Improved Training of Wasserstein GANs" (arXiv:1704.00028),
equation 3 and algorithm 1, lines 6 and 7:

    x^      = real + alpha * (fake - real),  alpha ~ U[0, 1), one per example
    penalty = (|grad_x^ D(x^)|_2 - 1)^2
"""

import tensorflow as tf

from .wasserstein import Critic, at_least_float32, score


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
    real, fake = tf.convert_to_tensor(real), tf.convert_to_tensor(fake)
    if not real.dtype.is_floating or real.dtype != fake.dtype:
        raise ValueError(
            f"real ({real.dtype.name}) and fake ({fake.dtype.name}) must be of one "
            "floating-point dtype: cast the images first"
        )
    if not real.shape.is_compatible_with(fake.shape):
        raise ValueError(f"real {real.shape} and fake {fake.shape} must have one shape")
    alpha = tf.cast(alpha, real.dtype)
    if not alpha.shape.is_compatible_with(real.shape[:1]):
        raise ValueError(
            f"alpha {alpha.shape} must have shape {real.shape[:1]}: one value per example"
        )
    alpha = tf.reshape(alpha, [-1] + [1] * (real.shape.rank - 1))
    return real + alpha * (fake - real)


def gradient_norm(critic: Critic, points: tf.Tensor) -> tf.Tensor:
    """The Euclidean norm of the critic's gradient at each point, over all its elements.

    Differentiable once more, with respect to the critic's weights. Where the gradient is
    exactly zero the norm is 0 and its own gradient is taken as 0, so that a critic that
    is still constant gives no NaN; nothing is added under the root, so that a norm of 1
    is 1.

    Args:
      critic: maps `[B, ...]` to scores `[B]` or `[B, 1]`; each score must depend on its
        own example only (no batch-norm).
      points: `[B, ...]`, floating point.

    Returns:
      `[B]`, float32 (float64 for float64 points).

    Raises:
      ValueError: scores of another shape, or scores that do not depend on the points.
    """
    points = tf.convert_to_tensor(points)
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


def norm_penalty(norm: tf.Tensor, *, target: float = 1.0, one_sided: bool = False) -> tf.Tensor:
    """(norm - target)^2, or max(0, norm - target)^2 if `one_sided`; the shape of `norm`.

    Two-sided: Gulrajani et al. 2017 (arXiv:1704.00028), equation 3. One-sided: Petzka et
    al. 2018 (arXiv:1709.08894), equation 8, WGAN-LP.
    """
    excess = norm - target
    return tf.square(tf.nn.relu(excess) if one_sided else excess)


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

    Multiply by the penalty weight (10 in the paper) and add to `critic_loss`. The
    gradient flows to the critic's weights only: `real` and `fake` are taken as constants.

    Args:
      critic: maps `[B, ...]` to scores `[B]` or `[B, 1]`.
      real: `[B, ...]`, floating point.
      fake: the same shape and dtype as `real`.
      alpha: `[B]` in [0, 1), where on the line between `real` and `fake` to look. Drawn
        here if left out.
      seed: `[2]` integers for a stateless draw of alpha; without it the draw is stateful.
        Every replica with one seed draws the same alphas: give each its own.
      target: the gradient norm asked for.
      one_sided: penalise only norms above `target`.

    Returns:
      `[B]`, float32 (float64 for float64 images), >= 0.

    Raises:
      ValueError: see `interpolate` and `gradient_norm`; or both alpha and seed given.
    """
    real = tf.stop_gradient(tf.convert_to_tensor(real))
    fake = tf.stop_gradient(tf.convert_to_tensor(fake))
    if alpha is None:
        shape = tf.shape(real)[:1]
        alpha = (
            tf.random.uniform(shape) if seed is None else tf.random.stateless_uniform(shape, seed)
        )
    elif seed is not None:
        raise ValueError("give alpha or a seed to draw it from, not both")
    norm = gradient_norm(critic, interpolate(real, fake, alpha))
    return norm_penalty(norm, target=target, one_sided=one_sided)
