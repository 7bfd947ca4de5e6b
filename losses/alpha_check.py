"""Checks of the interpolates of a penalty, and of the alphas from which they are computed."""

import tensorflow as tf

from .findings import Finding
from .probe import BATCH

CALLS = 8


def check_interpolates(interpolates: list[tf.Tensor]) -> list[Finding]:
    """Checks the interpolates of several calls of a penalty.

    Args:
      interpolates: The interpolates of each call, `[B, elements]`, for real examples of 0 and fake
        examples of 1.

    Returns:
      The findings; [] if there are none.
    """
    if len(interpolates) < CALLS:
        message = (
            "the critic is not called with points between real and fake examples: take the "
            "gradient at real + alpha * (fake - real)"
        )
        return [Finding("no_interpolates", message)]
    points = tf.stack(interpolates)
    if tf.reduce_max(tf.math.reduce_std(points, axis=-1)) > 1e-3:
        message = (
            "alpha varies within an example, so that the points are not on the line from real to "
            f"fake: use one alpha per example, shape [{BATCH}, 1, ...]"
        )
        return [Finding("alpha_per_element", message)]
    return _check_alpha(points[..., 0])


def _check_alpha(alpha: tf.Tensor) -> list[Finding]:
    """Checks the distribution of alphas `[draws, B]`."""
    if tf.reduce_max(tf.math.reduce_std(alpha, axis=1)) < 1e-3:
        message = (
            "all examples of a batch have the same alpha: use one alpha per example, shape "
            f"[{BATCH}, 1, ...]"
        )
        return [Finding("alpha_per_batch", message)]
    low, high = float(tf.reduce_min(alpha)), float(tf.reduce_max(alpha))
    if low < -1e-3 or high > 1 + 1e-3:
        message = (
            f"alpha is between {low:.2f} and {high:.2f}: use the uniform distribution on [0, 1)"
        )
        return [Finding("alpha_out_of_range", message)]
    fixed = bool(tf.reduce_all(alpha == alpha[:1]))
    # Six standard errors of the mean, and more than six of the standard deviation.
    tolerance = 6.0 * 12**-0.5 / (BATCH if fixed else alpha.shape.num_elements()) ** 0.5
    mean, deviation = float(tf.reduce_mean(alpha)), float(tf.math.reduce_std(alpha))
    if abs(mean - 0.5) > tolerance or abs(deviation - 12**-0.5) > 0.7 * tolerance:
        message = (
            f"alpha has mean {mean:.2f} and standard deviation {deviation:.2f}: use the uniform "
            "distribution on [0, 1), for which they are 0.50 and 0.29"
        )
        return [Finding("alpha_not_uniform", message)]
    if fixed:
        message = "every call uses the same alphas: derive the seed from the step"
        return [Finding("same_alpha_every_call", message, fatal=False)]
    return []
