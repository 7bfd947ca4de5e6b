"""Checks any implementation of the gradient penalty against closed forms."""

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from .findings import Finding
from .mistakes import known_mistakes
from .probe import BATCH, PenaltyFunction, Probe, ProbeCritic, RaisedError
from .scores import at_least_float32

DRAWS = 8


def check_penalty(
    penalty: PenaltyFunction,
    *,
    weight: float = 1.0,
    target: float = 1.0,
    one_sided: bool = False,
    example_shape: Sequence[int] = (8, 6, 3),
    strategy: tf.distribute.Strategy | None = None,
) -> list[Finding]:
    """Finds the mistakes that an implementation of the gradient penalty of WGAN-GP makes.

    Calls it with critics whose penalty is known: that of D(x) = w.x is (|w| - 1)^2 for any real
    and fake examples. An incorrect value is compared with the value of each known mistake. The
    implementation may be eager or a tf.function, but not compiled by XLA.

    Findings, by name:
      raises: the call raises an error.
      no_interpolates: the gradient is not taken between real and fake examples.
      alpha_per_element, alpha_per_batch: alpha is not one value per example.
      alpha_out_of_range, alpha_not_uniform: alpha is not uniform on [0, 1).
      same_alpha_every_call: every call uses the same alphas, as from a fixed seed. Not fatal.
      norm_over_batch, norm_over_axes: the norm is over the whole batch, or only over some axes
        of an example, such as the channels.
      gradient_of_mean: the gradient is that of the mean score, which is B times too small.
      mean_of_norms: the norms are averaged before the target is subtracted.
      missing_root, root_mean_square, sum_of_absolutes: the norm is not the Euclidean norm.
      one_sided, two_sided: the penalty is one-sided in place of two-sided, or vice versa.
      scaled: the values are correct up to a factor: a penalty weight, a sum in place of a mean.
      wrong_value: the values are incorrect for another reason.
      no_weight_gradient, wrong_weight_gradient: the values are correct, but their gradient with
        respect to the critic's weights is not.
      sqrt_at_zero: the penalty or its gradient is infinite or NaN for a constant critic.
      epsilon_under_root: a constant is added to the squared norm, which changes every norm.
      fake_not_detached: the penalty has a gradient with respect to the fake examples, and so to
        the generator. Not fatal: it is harmless if only the critic's weights are updated.
      half_precision_norm: the norm is computed in bfloat16. Not fatal if only bfloat16 examples
        are affected.
      mean_per_replica, same_alpha_on_every_replica: each replica averages over its own examples,
        or all replicas use the same alphas. Checked only if `strategy` is given.

    Args:
      penalty: maps (critic, real, fake) to the mean over the batch, or to `[B]`. The critic that
        it gets returns scores `[B, 1]`, has `trainable_variables`, and accepts further arguments
        such as training=True.
      weight: the penalty weight that the values include, > 0.
      target: the gradient norm at which the penalty is 0, >= 0.
      one_sided: whether only norms above the target are to be penalized.
      example_shape: shape of the examples for the test. Sides of different lengths make it
        possible to identify incorrect axes.
      strategy: a strategy of several replicas that also runs the penalty. A scalar must then be
        the replica's share of the global mean; `[B]` is reduced by this function.

    Returns:
      The findings; [] if there are none.

    Raises:
      ValueError: if `weight` is not positive or `target` is negative.
    """
    if not weight > 0 or not target >= 0:
        raise ValueError(f"weight must be > 0 and target >= 0, got {weight} and {target}")
    probe = Probe(penalty, weight, target, one_sided, tuple(example_shape))
    try:
        return _check(probe, strategy)
    except RaisedError as error:
        cause = error.__cause__
        first_line = str(cause).partition("\n")[0]
        return [Finding("raises", f"the call raised {type(cause).__name__}: {first_line}")]


def _check(probe: Probe, strategy: tf.distribute.Strategy | None) -> list[Finding]:
    draws = probe.draws_between(DRAWS)
    findings = [*_check_points([points for _, points in draws]), *_check_norm(probe)]
    if not any(finding.fatal for finding in findings):  # the same mistake is not reported twice
        findings += (
            _check_curved(probe, *draws[0])
            or _check_weight_gradient(probe)
            or [
                *_check_constant_critic(probe),
                *_check_half_precision(probe),
            ]
        )
    findings += _check_detached(probe)
    if strategy is not None:
        findings += _check_replicas(probe, strategy)
    return findings


def _check_points(draws: list[tf.Tensor]) -> list[Finding]:
    """Checks points `[B, elements]` of several calls, each between real = 0 and fake = 1."""
    if len(draws) < DRAWS:
        message = (
            "the critic is not called with points between real and fake examples: take the "
            "gradient at real + alpha * (fake - real)"
        )
        return [Finding("no_interpolates", message)]
    points = tf.stack(draws)
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


def _check_norm(probe: Probe) -> list[Finding]:
    """Checks the value for linear critics, and identifies the mistake if it is incorrect."""
    expected, norms = probe.expected, (1.0, 3.0, 0.5, probe.target)
    measured = [float(probe(probe.linear_critic(norm), *probe.images())) for norm in norms]

    def fits(hypothesis: Callable[[float], float]) -> bool:
        return all(
            math.isclose(value, hypothesis(norm), rel_tol=2e-3, abs_tol=1e-5 * probe.weight)
            for value, norm in zip(measured, norms, strict=True)
        )

    if fits(expected):
        excess = measured[-1]
        if excess > 1e-10 * probe.weight * max(1.0, probe.target) ** 2:
            return [_epsilon(f"the penalty of a norm of {probe.target:g} is {excess:.1e}, not 0")]
        return []
    table = ", ".join(
        f"{value:.4g} where |w| = {norm:g} (correct: {expected(norm):.4g})"
        for value, norm in zip(measured[:3], norms, strict=False)
    )
    for name, message, hypothesis in known_mistakes(probe, measured, norms):
        if fits(hypothesis):
            return [Finding(name, f"{message}; the penalty of linear critics is {table}")]
    return [Finding("wrong_value", f"the penalty of linear critics D(x) = w.x is {table}")]


def _check_curved(probe: Probe, value: float, points: tf.Tensor) -> list[Finding]:
    """Checks the value for a critic whose gradient norm differs between examples.

    There, the mean of the squares differs from the square of the mean.
    """
    norms = probe.curvature * tf.norm(points, axis=1)
    right = float(tf.reduce_mean([probe.expected(float(norm)) for norm in norms]))
    if math.isclose(value, right, rel_tol=5e-3):
        return []
    table = f"the penalty of norms between {float(tf.reduce_min(norms)):.2f} and "
    table += f"{float(tf.reduce_max(norms)):.2f} is {value:.4g} (correct: {right:.4g})"
    if math.isclose(value, probe.expected(float(tf.reduce_mean(norms))), rel_tol=5e-3):
        message = f"the norms are averaged: average the penalties of the examples; {table}"
        return [Finding("mean_of_norms", message)]
    return [Finding("wrong_value", table)]


def _check_weight_gradient(probe: Probe) -> list[Finding]:
    size = probe.target + 2.0
    _, slope = _value_and_slope(probe, size)
    if slope is None:
        message = (
            "the penalty has no gradient with respect to the critic's weights: do not convert "
            "tensors to numbers or stop the gradient"
        )
        return [Finding("no_weight_gradient", message)]
    right = 2.0 * probe.weight * (size - probe.target)
    if not math.isclose(slope, right, rel_tol=2e-3):
        message = (
            f"d penalty / d|w| is {slope:.4g} at |w| = {size:g} (correct: {right:g}): check for "
            "a stop_gradient on a part of the penalty"
        )
        return [Finding("wrong_weight_gradient", message)]
    return []


def _check_constant_critic(probe: Probe) -> list[Finding]:
    value, slope = _value_and_slope(probe, 0.0)
    if not math.isfinite(value) or (slope is not None and not math.isfinite(slope)):
        message = (
            f"the penalty of a constant critic is {value:g} and its gradient is {slope}: guard "
            "the square root where its argument is 0"
        )
        return [Finding("sqrt_at_zero", message)]
    # The epsilon under the square root that this value implies. With max(., epsilon) in place of
    # a sum, the value is the same, but the slope at small norms is correct: not a mistake.
    epsilon = (probe.target - max(value / probe.weight, 0.0) ** 0.5) ** 2
    if probe.one_sided or epsilon < 1e-13:
        return []
    small = 2.0 * epsilon**0.5
    _, slope = _value_and_slope(probe, small)
    right = 2.0 * probe.weight * (small - probe.target)
    if slope is None or math.isclose(slope, right, rel_tol=2e-2):
        return []
    return [_epsilon(f"the gradient norm of a constant critic is {epsilon**0.5:.1e}, not 0")]


def _check_half_precision(probe: Probe) -> list[Finding]:
    """Checks the precision by a gradient that is exact in bfloat16, and whose norm is not."""

    def lost(count: int) -> float:
        norm = count**0.5 / 8
        rounded = float(tf.cast(norm, tf.bfloat16))
        right = probe.expected(norm)
        return abs(probe.expected(rounded) / right - 1) if right else 0.0

    count = max(range(1, min(probe.elements, 256) + 1), key=lost)
    if lost(count) < 8e-3:
        return []  # too few elements to tell
    ones = [0.125] * count + [0.0] * (probe.elements - count)
    right = probe.expected(count**0.5 / 8)

    def formula(examples: tf.Tensor) -> tf.Tensor:
        flat = tf.reshape(tf.cast(examples, tf.float32), [-1, probe.elements])
        return tf.linalg.matvec(flat, tf.constant(ones))

    for dtype in (tf.float32, tf.bfloat16):
        try:
            value = float(probe(ProbeCritic(formula), *(tf.cast(x, dtype) for x in probe.images())))
        except RaisedError:
            continue  # an implementation need not accept images of this dtype
        if not math.isclose(value, right, rel_tol=4e-3):
            message = (
                f"the penalty of {dtype.name} images is {value:.5g} (correct: {right:.5g}): cast "
                "the gradient to float32 before its squares are summed"
            )
            return [Finding("half_precision_norm", message, fatal=dtype == tf.float32)]
    return []


def _check_detached(probe: Probe) -> list[Finding]:
    real, fake = probe.images()
    with tf.GradientTape() as tape:
        tape.watch(fake)
        value = probe(probe.curved_critic(), real, fake)
    gradient = tape.gradient(value, fake)
    if gradient is None or not tf.reduce_any(gradient != 0):
        return []
    message = (
        "the penalty has a gradient with respect to the fake examples, and so to the generator: "
        "wrap them in tf.stop_gradient, unless you update only the critic's weights by it"
    )
    return [Finding("fake_not_detached", message, fatal=False)]


def _check_replicas(probe: Probe, strategy: tf.distribute.Strategy) -> list[Finding]:
    replicas, findings, size = strategy.num_replicas_in_sync, [], probe.target + 2.0

    @tf.function
    def step() -> list[tf.Tensor]:
        values = []
        for critic in (probe.linear_critic(size), probe.curved_critic()):
            result = tf.convert_to_tensor(
                probe.penalty(critic, tf.zeros(probe.shape), tf.ones(probe.shape))
            )
            if result.shape.rank:  # one value per example, which the caller of the penalty reduces
                result = tf.reduce_mean(at_least_float32(result)) / replicas
            values.append(result)
        return values

    linear, curved = strategy.run(step)
    total = float(strategy.reduce(tf.distribute.ReduceOp.SUM, linear, axis=None))
    right = probe.expected(size)
    if not math.isclose(total, right, rel_tol=1e-2):
        message = (
            f"the sum of the penalty over {replicas} replicas is {total:.4g} (correct: "
            f"{right:.4g}): divide by the global batch size on each replica"
        )
        findings.append(Finding("mean_per_replica", message))
    # With real = 0 and fake = 1, the value follows from this replica's alphas.
    if len({float(value) for value in strategy.experimental_local_results(curved)}) == 1 < replicas:
        message = "all replicas use the same alphas: give each replica its own seed"
        findings.append(Finding("same_alpha_on_every_replica", message))
    return findings


def _value_and_slope(probe: Probe, norm: float) -> tuple[float, float | None]:
    """Returns the penalty of a linear critic and its derivative by the norm of the weights."""
    size = tf.Variable(norm)
    with tf.GradientTape() as tape:
        value = probe(probe.linear_critic(size), *probe.images())
    slope = tape.gradient(value, size)
    return float(value), None if slope is None else float(slope)


def _epsilon(measured: str) -> Finding:
    message = (
        f"{measured}: a constant is added to the squared norm, which changes every norm; guard "
        "the square root only at 0"
    )
    return Finding("epsilon_under_root", message)
