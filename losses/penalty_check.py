"""Checks any implementation of the gradient penalty against closed forms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from .checked_penalty import (
    BATCH,
    CheckedPenalty,
    FormulaCritic,
    PenaltyError,
    PenaltyFunction,
)
from .findings import Finding
from .lazy_tensorflow import tf
from .scores import at_least_float32

_CALLS = 8  # of the penalty, whose points are compared
_ROUNDING = 0.02  # of an alpha, if points are rounded to bfloat16
_HALF = 2e-3  # relative error of a penalty in bfloat16
_Value = Callable[[float], float]  # maps the norm of w to the value of the penalty


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
      raises: The call raises an error.
      no_interpolates: The gradient is not taken between real and fake examples.
      points_off_the_line: The gradient is taken at other points, such as real + alpha * fake.
      alpha_per_element, alpha_per_group, alpha_per_batch: Alpha is not one value per example.
      alpha_out_of_range, alpha_not_uniform: Alpha is not uniform on [0, 1).
      same_alpha_every_call: Every call uses the same alphas, as from a fixed seed. Not fatal.
      norm_over_batch, norm_over_axes: The norm is over the whole batch, or only over some axes
        of an example, such as the channels.
      gradient_of_mean: The gradient is that of the mean score, which is B times too small.
      mean_of_norms: The norms are averaged before the target is subtracted.
      missing_root, root_mean_square, sum_of_absolutes: The norm is not the Euclidean norm.
      one_sided, two_sided: The penalty is one-sided in place of two-sided, or vice versa.
      scaled: The values are correct up to a factor: a penalty weight, a sum in place of a mean.
      wrong_value: The values are incorrect for another reason.
      no_weight_gradient, wrong_weight_gradient: The values are correct, but their gradient with
        respect to the critic's weights is not.
      sqrt_at_zero: The penalty or its gradient is infinite or NaN for a constant critic.
      epsilon_under_root: A constant is added to the squared norm, which changes every norm.
      fake_not_detached: The penalty has a gradient with respect to the fake examples, and so to
        the generator. Not fatal: it is harmless if only the critic's weights are updated.
      half_precision_norm: The norm or its squares are computed in bfloat16. Not fatal if only
        bfloat16 examples are affected.
      mean_per_replica, same_alpha_on_every_replica: Each replica averages over its own examples,
        or all replicas use the same alphas. Checked only if `strategy` is given.

    Args:
      penalty: Maps (critic, real, fake) to the mean over the batch, or to `[B]`. The critic that
        it gets returns scores `[B, 1]`, has `trainable_variables`, and accepts further arguments
        such as training=True.
      weight: The penalty weight that the values include, > 0.
      target: The gradient norm at which the penalty is 0, >= 0.
      one_sided: Whether the penalty should penalize only norms above the target.
      example_shape: Shape of the examples for the test. Sides of different lengths make it
        possible to identify incorrect axes.
      strategy: A strategy of several replicas that also runs the penalty. A scalar must then be
        the replica's share of the global mean; `[B]` is reduced by this function.

    Returns:
      The findings; [] if there are none.

    Raises:
      ValueError: If `weight` is not positive or `target` is negative.
    """
    if not weight > 0 or not target >= 0:
        raise ValueError(f"weight must be > 0 and target >= 0, got {weight} and {target}")
    checked = CheckedPenalty(penalty, weight, target, one_sided, tuple(example_shape))
    try:
        return _check(checked, strategy)
    except PenaltyError as error:
        cause = error.__cause__
        first_line = str(cause).partition("\n")[0]
        hint = ""
        if "None" in first_line:
            hint = "; a gradient is None if the tape does not watch the points (tape.watch)"
        elif isinstance(cause, AttributeError):
            hint = "; the penalty is called with (critic, real, fake)"
        return [Finding("raises", f"the call raised {type(cause).__name__}: {first_line}{hint}")]


def _check(checked: CheckedPenalty, strategy: tf.distribute.Strategy | None) -> list[Finding]:
    draws = checked.record_points(_CALLS)
    findings = _check_points(checked.endpoints(), [points for _, points in draws])
    findings += _check_norm(checked)
    if not any(finding.fatal for finding in findings):  # the same mistake is not reported twice
        findings += (
            _check_curved(checked, *draws[0])
            or _check_weight_gradient(checked)
            or [
                *_check_constant_critic(checked),
                *_check_half_precision(checked),
            ]
        )
    findings += _check_detached(checked)
    if strategy is not None:
        findings += _check_replicas(checked, strategy)
    return findings


def _check_norm(checked: CheckedPenalty) -> list[Finding]:
    """Checks the value for linear critics, and identifies the mistake if it is incorrect."""
    expected, norms = checked.expected, (1.0, 3.0, 0.5, checked.target)
    measured = [float(checked(checked.linear_critic(norm), *checked.examples())) for norm in norms]

    def fits(hypothesis: Callable[[float], float]) -> bool:
        return all(
            math.isclose(value, hypothesis(norm), rel_tol=2e-3, abs_tol=1e-5 * checked.weight)
            for value, norm in zip(measured, norms, strict=True)
        )

    if fits(expected):
        excess = measured[-1]
        if excess > 1e-10 * checked.weight * max(1.0, checked.target) ** 2:
            measure = f"the penalty of a norm of {checked.target:g} is {excess:.1e}, not 0"
            return _check_half_precision(checked) or [_epsilon(measure)]
        return []
    table = ", ".join(
        f"{value:.4g} where |w| = {norm:g} (correct: {expected(norm):.4g})"
        for value, norm in zip(measured[:3], norms, strict=False)
    )
    for name, message, hypothesis in _known_mistakes(checked, measured, norms):
        if fits(hypothesis):
            return [Finding(name, f"{message}; the penalty of linear critics is {table}")]
    return [Finding("wrong_value", f"the penalty of linear critics D(x) = w.x is {table}")]


def _check_curved(checked: CheckedPenalty, value: float, points: tf.Tensor) -> list[Finding]:
    """Checks the value for a critic whose gradient norm differs between examples.

    There, the mean of the squares differs from the square of the mean.
    """
    norms = checked.curvature * tf.norm(points, axis=1)
    correct = float(tf.reduce_mean([checked.expected(float(norm)) for norm in norms]))
    if math.isclose(value, correct, rel_tol=5e-3):
        return []
    table = f"the penalty of norms between {float(tf.reduce_min(norms)):.2f} and "
    table += f"{float(tf.reduce_max(norms)):.2f} is {value:.4g} (correct: {correct:.4g})"
    if math.isclose(value, checked.expected(float(tf.reduce_mean(norms))), rel_tol=5e-3):
        message = f"the norms are averaged: average the penalties of the examples; {table}"
        return [Finding("mean_of_norms", message)]
    return [Finding("wrong_value", table)]


def _check_weight_gradient(checked: CheckedPenalty) -> list[Finding]:
    size = checked.target + 2.0
    _, slope = _value_and_slope(checked, size)
    if slope is None:
        message = (
            "the penalty has no gradient with respect to the critic's weights: do not convert "
            "tensors to numbers or stop the gradient"
        )
        return [Finding("no_weight_gradient", message)]
    correct = checked.slope(size)
    if not math.isclose(slope, correct, rel_tol=2e-3):
        message = (
            f"d penalty / d|w| is {slope:.4g} at |w| = {size:g} (correct: {correct:g}): check for "
            "a stop_gradient on a part of the penalty"
        )
        return [Finding("wrong_weight_gradient", message)]
    return []


def _check_constant_critic(checked: CheckedPenalty) -> list[Finding]:
    value, slope = _value_and_slope(checked, 0.0)
    if not math.isfinite(value) or (slope is not None and not math.isfinite(slope)):
        message = (
            f"the penalty of a constant critic is {value:g} and its gradient is {slope}: guard "
            "the square root where its argument is 0"
        )
        return [Finding("sqrt_at_zero", message)]
    # The epsilon under the square root that this value implies. With max(., epsilon) in place of
    # a sum, the value is the same, but the slope at small norms is correct: not a mistake.
    epsilon = (checked.target - max(value / checked.weight, 0.0) ** 0.5) ** 2
    if checked.one_sided or epsilon < 1e-13:
        return []
    small = 2.0 * epsilon**0.5
    _, slope = _value_and_slope(checked, small)
    correct = 2.0 * checked.weight * (small - checked.target)
    if slope is None or math.isclose(slope, correct, rel_tol=2e-2):
        return []
    return [_epsilon(f"the gradient norm of a constant critic is {epsilon**0.5:.1e}, not 0")]


def _check_half_precision(checked: CheckedPenalty) -> list[Finding]:
    """Checks the precision with a gradient that is exact in bfloat16, unlike its sum of squares."""
    size, count = _rounded_gradient(checked)
    correct = checked.expected(size * count**0.5)
    elements = [size] * count + [0.0] * (checked.elements - count)

    def formula(examples: tf.Tensor) -> tf.Tensor:
        flat = tf.reshape(tf.cast(examples, tf.float32), [-1, checked.elements])
        return tf.linalg.matvec(flat, tf.constant(elements))

    for dtype in (tf.float32, tf.bfloat16):
        try:
            examples = [tf.cast(x, dtype) for x in checked.examples()]
            value = float(checked(FormulaCritic(formula), *examples))
        except PenaltyError:
            continue  # an implementation may reject this dtype
        if not math.isclose(value, correct, rel_tol=_HALF / 2):
            message = (
                f"the penalty of {dtype.name} images is {value:.5g} (correct: {correct:.5g}): cast "
                "the gradient to float32 before its squares are summed"
            )
            return [Finding("half_precision_norm", message, fatal=dtype == tf.float32)]
    return []


def _rounded_gradient(checked: CheckedPenalty) -> tuple[float, int]:
    """Returns the size of equal elements of a gradient, and their number.

    Of all sizes that bfloat16 represents, they are those for which the penalty differs most if the
    norm is rounded to bfloat16, and if the squares or their sum are.
    """

    def rounded(values: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.cast(values, tf.bfloat16), tf.float64)

    counts = tf.range(1, min(checked.elements, 256) + 1, dtype=tf.float64)
    mantissas = tf.range(128, 256, dtype=tf.float64) / 128
    exponents = tf.pow(tf.constant(2.0, tf.float64), tf.range(-8, 3, dtype=tf.float64))
    center = max(checked.target, 1.0) / checked.elements**0.5
    scales = exponents * 2.0 ** round(math.log2(center))
    sizes = tf.reshape(mantissas[:, None] * scales, [-1, 1])
    norms = sizes * tf.sqrt(counts)
    correct = checked.expected_at(norms)
    wrong = (
        rounded(norms),
        tf.sqrt(rounded(counts * sizes**2)),
        tf.sqrt(counts * rounded(sizes**2)),
    )
    errors = tf.reduce_min([abs(checked.expected_at(each) - correct) for each in wrong], axis=0)
    # Far enough from the target that other small errors have no influence.
    is_far = correct > 0.03 * checked.weight * max(1.0, checked.target) ** 2
    relative = tf.where(is_far, errors / correct, 0.0)
    best = tf.unravel_index(tf.argmax(tf.reshape(relative, [-1])), norms.shape)
    return float(sizes[best[0], 0]), int(counts[best[1]])


def _check_detached(checked: CheckedPenalty) -> list[Finding]:
    real, fake = checked.examples()
    with tf.GradientTape() as tape:
        tape.watch(fake)
        value = checked(checked.curved_critic(), real, fake)
    gradient = tape.gradient(value, fake)
    if gradient is None or not tf.reduce_any(gradient != 0):
        return []
    message = (
        "the penalty has a gradient with respect to the fake examples, and so to the generator: "
        "wrap them in tf.stop_gradient, unless you update only the critic's weights by it"
    )
    return [Finding("fake_not_detached", message, fatal=False)]


def _check_replicas(checked: CheckedPenalty, strategy: tf.distribute.Strategy) -> list[Finding]:
    replicas, findings, size = strategy.num_replicas_in_sync, [], checked.target + 2.0

    @tf.function
    def step() -> list[tf.Tensor]:
        values = []
        for critic in (checked.linear_critic(size), checked.curved_critic()):
            result = tf.convert_to_tensor(checked.penalty(critic, *checked.equal_examples()))
            if result.shape.rank:  # one value per example, which the caller of the penalty reduces
                result = tf.reduce_mean(at_least_float32(result)) / replicas
            values.append(result)
        return values

    linear, curved = strategy.run(step)
    total = float(strategy.reduce(tf.distribute.ReduceOp.SUM, linear, axis=None))
    correct = checked.expected(size)
    if not math.isclose(total, correct, rel_tol=1e-2):
        message = (
            f"the sum of the penalty over {replicas} replicas is {total:.4g} (correct: "
            f"{correct:.4g}): divide by the global batch size on each replica"
        )
        findings.append(Finding("mean_per_replica", message))
    # All examples are equal, so the value follows from this replica's alphas.
    values = {float(value) for value in strategy.experimental_local_results(curved)}
    if len(values) == 1 < replicas:
        message = "all replicas use the same alphas: give each replica its own seed"
        findings.append(Finding("same_alpha_on_every_replica", message))
    return findings


def _value_and_slope(checked: CheckedPenalty, norm: float) -> tuple[float, float | None]:
    """Returns the penalty of a linear critic and its derivative by the norm of the weights."""
    size = tf.Variable(norm)
    with tf.GradientTape() as tape:
        value = checked(checked.linear_critic(size), *checked.examples())
    slope = tape.gradient(value, size)
    return float(value), None if slope is None else float(slope)


def _epsilon(measured: str) -> Finding:
    message = (
        f"{measured}: a constant is added to the squared norm, which changes every norm; guard "
        "the square root only at 0"
    )
    return Finding("epsilon_under_root", message)


def _check_points(ends: Sequence[list[float]], draws: list[tf.Tensor]) -> list[Finding]:
    """Checks the points of several calls of a penalty.

    Args:
      ends: The real example and the fake one, as flat lists.
      draws: The points of each call, `[B, elements]`.

    Returns:
      The findings; [] if there are none.
    """
    if len(draws) < _CALLS:
        message = (
            "the critic is not called with points between real and fake examples: take the "
            "gradient at real + alpha * (fake - real)"
        )
        return [Finding("no_interpolates", message)]
    ends = tf.constant(ends, tf.float64)
    real, fake = tf.unstack(ends)
    points = tf.stack(draws)
    alphas = (points - real) / (fake - real)
    if tf.reduce_max(tf.math.reduce_std(alphas, axis=-1)) < _ROUNDING:
        return _check_alpha(tf.reduce_mean(alphas, axis=-1))
    if tf.reduce_min(alphas) > -_ROUNDING and tf.reduce_max(alphas) < 1 + _ROUNDING:
        factors = tf.reshape(points, [-1, len(real)]) @ tf.linalg.pinv(ends)
        apart = abs(tf.reshape(factors @ ends, points.shape) - points)
        if len(real) < 3 or tf.reduce_max(apart) > _ROUNDING:
            message = (
                "alpha varies within an example, so that the points are not on the line from real "
                f"to fake: use one alpha per example, shape [{BATCH}, 1, ...]"
            )
            return [Finding("alpha_per_element", message)]
    message = (
        "the points are not on the lines from real to fake examples: take the gradient at "
        "real + alpha * (fake - real)"
    )
    return [Finding("points_off_the_line", message)]


def _check_alpha(alpha: tf.Tensor) -> list[Finding]:
    """Checks the distribution of alphas `[draws, B]`."""
    if tf.reduce_max(tf.math.reduce_std(alpha, axis=1)) < 1e-3:
        message = (
            "all examples of a batch have the same alpha: use one alpha per example, shape "
            f"[{BATCH}, 1, ...]"
        )
        return [Finding("alpha_per_batch", message)]
    low, high = float(tf.reduce_min(alpha)), float(tf.reduce_max(alpha))
    if low < -_ROUNDING or high > 1 + _ROUNDING:
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
    distinct = [len(tf.unique(tf.round(each * 1e5))[0]) for each in alpha]
    if max(distinct) <= 0.55 * BATCH:  # alphas in bfloat16 have 0.79 of them
        message = (
            f"the {BATCH} examples of a batch have {max(distinct)} different alphas: use one alpha "
            f"per example, shape [{BATCH}, 1, ...]"
        )
        return [Finding("alpha_per_group", message)]
    if fixed:
        message = "every call uses the same alphas: derive the seed from the step"
        return [Finding("same_alpha_every_call", message, fatal=False)]
    return []


def _known_mistakes(
    checked: CheckedPenalty, measured: Sequence[float], norms: Sequence[float]
) -> Iterator[tuple[str, str, _Value]]:
    """Yields (name, message, value) for each mistake that a linear critic D(x) = w.x reveals.

    Args:
      checked: The penalty to be checked.
      measured: The penalties of linear critics with the first `norms`.
      norms: Norms of w.
    """
    yield from _batch_mistakes(checked)
    yield from _norm_mistakes(checked)
    yield from _value_mistakes(checked, measured, norms)


def _batch_mistakes(checked: CheckedPenalty) -> Iterator[tuple[str, str, _Value]]:
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


def _norm_mistakes(checked: CheckedPenalty) -> Iterator[tuple[str, str, _Value]]:
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
) -> Iterator[tuple[str, str, _Value]]:
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


def _scaled_norm(expected: _Value, factor: float) -> _Value:
    return lambda norm: expected(norm * factor)
