"""`check_penalty`: closed forms against somebody else's gradient penalty."""

import itertools
import math
from collections.abc import Callable

import tensorflow as tf

from .findings import Finding
from .penalties import one_sided as one_sided_of
from .penalties import two_sided as two_sided_of
from .scores import at_least_float32

# (critic, real, fake) -> the penalty: a scalar, the mean over the batch, or `[B]`
PenaltyFunction = Callable[[Callable, tf.Tensor, tf.Tensor], tf.Tensor]

# Every axis has another length, so that each wrong choice of axes has a value of its own.
BATCH, *EXAMPLE = SHAPE = (64, 8, 6, 3)
ELEMENTS = math.prod(EXAMPLE)
DRAWS = 8


def check_penalty(
    penalty: PenaltyFunction,
    *,
    weight: float = 1.0,
    target: float = 1.0,
    one_sided: bool = False,
    strategy: tf.distribute.Strategy | None = None,
) -> list[Finding]:
    """The mistakes that `penalty` makes, by name; [] if it is the gradient penalty of WGAN-GP.

    Calls it on critics whose penalty is known: on D(x) = w.x it is (|w| - 1)^2, whatever
    real and fake are. Where the value is wrong, it is compared with that of each known
    mistake. The function may be eager or a tf.function, but not compiled by XLA.

    The findings, by name:
      no_interpolates: the gradient is not taken between real and fake.
      alpha_per_element, alpha_per_batch: alpha is not one value for each example.
      alpha_out_of_range, alpha_not_uniform: alpha is not uniform on [0, 1).
      norm_over_batch, norm_over_axes: the norm is over the whole batch, or over some axes
        of an example only (the channels).
      gradient_of_mean: the gradient of the mean score, which is B times too small.
      missing_root, root_mean_square, sum_of_absolutes: not the Euclidean norm.
      one_sided, two_sided: the other kind than asked for.
      scaled: right but for a factor: a penalty weight, a sum instead of a mean.
      wrong_value: none of these, and wrong.
      no_weight_gradient, wrong_weight_gradient: the value is right, but not its gradient
        for the critic's weights.
      sqrt_at_zero: infinite or NaN at a critic that is constant.
      epsilon_under_root: a constant is added to the squared norm, which moves every norm.
      fake_not_detached: the penalty has a gradient for the fakes, and so for the
        generator. Harmless where only the critic's weights are updated: not fatal.
      half_precision_norm: the norm is computed in bfloat16; if for bfloat16 images only,
        not fatal.
      mean_per_replica, same_alpha_on_every_replica: looked for if `strategy` is given.

    Args:
      penalty: (critic, real, fake) -> the mean over the batch, or `[B]`; it may call its
        critic with more arguments, such as training=True.
      weight: the factor the function includes.
      target: the norm it asks for.
      one_sided: whether it penalises norms above the target only.
      strategy: of several replicas, to run the function in. A scalar must then be this
        replica's share of the global mean; `[B]` is taken as it is.
    """
    expected = _Expected(weight, target, one_sided)
    findings = [*_check_points(penalty), *_check_norm(penalty, expected)]
    if not findings:  # else what follows would only repeat it
        findings = [
            *_check_constant_critic(penalty, expected),
            *_check_half_precision(penalty, expected),
        ]
    findings += _check_detached(penalty)
    if strategy is not None:
        findings += _check_replicas(penalty, expected, strategy)
    return findings


class _Expected:
    """weight * what is asked of a norm."""

    def __init__(self, weight: float, target: float, one_sided: bool):
        self.weight, self.target, self.one_sided = weight, target, one_sided

    def __call__(self, norm: float, *, one_sided: bool | None = None) -> float:
        ask = one_sided_of if (self.one_sided if one_sided is None else one_sided) else two_sided_of
        return self.weight * float(ask(tf.constant(norm, tf.float64), self.target))


def _check_points(penalty: PenaltyFunction) -> list[Finding]:
    """Between real = 0 and fake = 1, a point's elements are its alpha."""
    draws = []
    for _ in range(DRAWS):
        seen: list = []

        def critic(examples, *_, seen=seen, **__):
            tf.py_function(lambda values: seen.append(values.numpy()), [examples], [])
            return tf.reduce_sum(examples, axis=[1, 2, 3])

        penalty(critic, tf.zeros(SHAPE), tf.ones(SHAPE))
        # The critic may have been shown real and fake examples as well.
        between = [points for points in seen if abs(points).max() > 0 and abs(points - 1).max() > 0]
        if not between:
            message = "the critic is never asked about a point between real and fake"
            return [Finding("no_interpolates", message)]
        draws.append(tf.cast(tf.reshape(between[-1], [len(between[-1]), -1]), tf.float64))
    points = tf.stack(draws)
    spread = tf.reduce_max(points, axis=-1) - tf.reduce_min(points, axis=-1)
    alpha = points[..., 0]
    if tf.reduce_max(spread) > 1e-3:
        message = "alpha differs inside an example: the points leave the line from real to fake"
        return [Finding("alpha_per_element", message)]
    if tf.reduce_max(tf.math.reduce_std(alpha, axis=1)) < 1e-3:
        message = "one alpha for the whole batch: draw one for each example, shape [B, 1, 1, 1]"
        return [Finding("alpha_per_batch", message)]
    low, high = float(tf.reduce_min(alpha)), float(tf.reduce_max(alpha))
    if low < -1e-3 or high > 1 + 1e-3:
        message = f"alpha between {low:.2f} and {high:.2f}: it must be uniform on [0, 1)"
        return [Finding("alpha_out_of_range", message)]
    # Over 512 draws these are off by more than 0.07 once in millions.
    mean, deviation = float(tf.reduce_mean(alpha)), float(tf.math.reduce_std(alpha))
    if abs(mean - 0.5) > 0.07 or abs(deviation - 12**-0.5) > 0.05:
        message = (
            f"alpha has mean {mean:.2f} and standard deviation {deviation:.2f}: "
            "uniform on [0, 1) they are 0.50 and 0.29"
        )
        return [Finding("alpha_not_uniform", message)]
    return []


def _check_norm(penalty: PenaltyFunction, expected: _Expected) -> list[Finding]:
    """On linear critics: the value, and if it is wrong, whose value it is."""
    norms = (1.0, 3.0, 0.5, expected.target)
    measured = [_value(penalty, _linear_critic(norm)) for norm in norms]

    def fits(hypothesis: Callable[[float], float]) -> bool:
        return all(
            math.isclose(value, hypothesis(norm), rel_tol=2e-3, abs_tol=1e-5 * expected.weight)
            for value, norm in zip(measured, norms, strict=True)
        )

    if fits(expected):
        excess = measured[-1]
        if excess > 1e-10 * expected.weight:
            return [_epsilon(f"at a norm of {expected.target} the penalty is {excess:.1e}, not 0")]
        return _check_weight_gradient(penalty, expected)
    table = ", ".join(
        f"{value:.4g} where |w| = {norm:g} (right: {expected(norm):.4g})"
        for value, norm in zip(measured[:3], norms, strict=False)
    )
    for name, message, hypothesis in _mistakes(expected, measured, norms):
        if fits(hypothesis):
            return [Finding(name, f"{message}; on linear critics it is {table}")]
    return [Finding("wrong_value", f"on linear critics D(x) = w.x it is {table}")]


def _mistakes(expected, measured, norms):
    """(name, message, norm of w -> value) of each mistake that shows on a linear critic."""
    # All elements of w are of one size, so a norm over fewer elements is smaller by a root.
    root_batch, root_elements = BATCH**0.5, ELEMENTS**0.5
    yield (
        "norm_over_batch",
        "the norm is taken over the whole batch instead of each example",
        lambda norm: expected(norm * root_batch),
    )
    yield (
        "gradient_of_mean",
        f"the gradient is that of the mean score, {BATCH} times too small: differentiate the sum",
        lambda norm: expected(norm / BATCH),
    )
    yield (
        "gradient_of_mean",
        "the gradient is that of the mean score, and its norm is taken over the whole batch",
        lambda norm: expected(norm / root_batch),
    )
    for count in range(1, 4):
        for axes in itertools.combinations(range(4), count):
            if axes == (1, 2, 3):
                continue
            covered = math.prod(SHAPE[axis] for axis in axes)
            yield (
                "norm_over_axes",
                f"the norm is taken over axes {list(axes)} only: take all but the first",
                lambda norm, covered=covered: expected(norm * (covered / ELEMENTS) ** 0.5),
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
        "two_sided" if expected.one_sided else "one_sided",
        "norms below the target are penalised, though one-sided was asked for"
        if expected.one_sided
        else "norms below the target cost nothing, though two-sided was asked for",
        lambda norm: expected(norm, one_sided=not expected.one_sided),
    )
    at_half = expected.target - max(measured[2] / expected.weight, 0.0) ** 0.5
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


def _check_weight_gradient(penalty: PenaltyFunction, expected: _Expected) -> list[Finding]:
    size = expected.target + 2.0
    _, gradient = _value_and_slope(penalty, size)
    if gradient is None:
        message = "the penalty has no gradient for the critic's weights: it trains nothing"
        return [Finding("no_weight_gradient", message)]
    right = 2.0 * expected.weight * (size - expected.target)
    if not math.isclose(gradient, right, rel_tol=2e-3):
        message = (
            f"d penalty / d|w| is {gradient:.4g} at |w| = {size:g}, where it must be {right:g}"
        )
        return [Finding("wrong_weight_gradient", message)]
    return []


def _check_constant_critic(penalty: PenaltyFunction, expected: _Expected) -> list[Finding]:
    value, slope = _value_and_slope(penalty, 0.0)
    if not math.isfinite(value) or slope is None or not math.isfinite(slope):
        message = (
            f"at a constant critic the penalty is {value:g} and its gradient {slope}: guard the "
            "root where its argument is 0"
        )
        return [Finding("sqrt_at_zero", message)]
    # What the value says was added under the root, if anything was. A guard that only holds
    # the root up at 0, max(., epsilon), is no such thing: the slope at small norms is right.
    epsilon = (expected.target - max(value / expected.weight, 0.0) ** 0.5) ** 2
    if expected.one_sided or epsilon < 1e-13:
        return []
    small = 2.0 * epsilon**0.5
    _, slope = _value_and_slope(penalty, small)
    right = 2.0 * expected.weight * (small - expected.target)
    if slope is None or math.isclose(slope, right, rel_tol=2e-2):
        return []
    return [_epsilon(f"at a constant critic the norm is {epsilon**0.5:.1e}, not 0")]


def _check_half_precision(penalty: PenaltyFunction, expected: _Expected) -> list[Finding]:
    """139 elements of 1/8, exact in bfloat16; the norm 1.4737 is not."""
    ones = [0.125] * 139 + [0.0] * (ELEMENTS - 139)
    direction = tf.reshape(tf.constant(ones), [1, *EXAMPLE])
    right = expected(139**0.5 / 8)

    def critic(examples, *_, **__):
        return tf.reduce_sum(tf.cast(examples, tf.float32) * direction, axis=[1, 2, 3])

    for dtype in (tf.float32, tf.bfloat16):
        try:
            result = penalty(critic, *(tf.cast(images, dtype) for images in _images()))
        except (TypeError, ValueError, tf.errors.InvalidArgumentError):
            continue  # it takes no such images, so it computes nothing wrong with them
        value = float(tf.reduce_mean(at_least_float32(tf.convert_to_tensor(result))))
        if not math.isclose(value, right, rel_tol=3e-3):
            message = (
                f"with {dtype.name} images the penalty is {value:.5g} where it must be "
                f"{right:.5g}: cast the gradient to float32 before its squares are summed"
            )
            return [Finding("half_precision_norm", message, fatal=dtype == tf.float32)]
    return []


def _check_detached(penalty: PenaltyFunction) -> list[Finding]:
    real, fake = _images()
    with tf.GradientTape() as tape:
        tape.watch(fake)
        value = penalty(_curved_critic, real, fake)
    gradient = tape.gradient(value, fake)
    if gradient is None or not tf.reduce_any(gradient != 0):
        return []
    message = (
        "the penalty has a gradient for the fakes, and through them for the generator: wrap "
        "them in tf.stop_gradient, unless only the critic's weights are ever updated by it"
    )
    return [Finding("fake_not_detached", message, fatal=False)]


def _check_replicas(
    penalty: PenaltyFunction, expected: _Expected, strategy: tf.distribute.Strategy
) -> list[Finding]:
    replicas, findings = strategy.num_replicas_in_sync, []

    @tf.function
    def step():
        values = []
        for critic in (_linear_critic(3.0), _curved_critic):
            result = tf.convert_to_tensor(penalty(critic, tf.zeros(SHAPE), tf.ones(SHAPE)))
            if result.shape.rank:  # one value an example: this function's user reduces it
                result = tf.reduce_mean(at_least_float32(result)) / replicas
            values.append(result)
        return values

    linear, curved = strategy.run(step)
    total = float(strategy.reduce(tf.distribute.ReduceOp.SUM, linear, axis=None))
    if not math.isclose(total, expected(3.0), rel_tol=1e-2):
        message = (
            f"over {replicas} replicas the penalty adds up to {total:.4g}, not to "
            f"{expected(3.0):.4g}: each replica must divide by the global batch"
        )
        findings.append(Finding("mean_per_replica", message))
    # With real = 0 and fake = 1, the value follows from this replica's alphas.
    if len({float(value) for value in strategy.experimental_local_results(curved)}) == 1 < replicas:
        message = "every replica draws the same alphas: give each a seed of its own"
        findings.append(Finding("same_alpha_on_every_replica", message))
    return findings


def _linear_critic(norm: float | tf.Tensor) -> Callable:
    """D(x) = w.x with |w| = norm and elements of one size, both signs among them."""
    signs = [1.0 if element % 3 else -1.0 for element in range(ELEMENTS)]
    direction = tf.reshape(tf.constant(signs), EXAMPLE) / ELEMENTS**0.5

    def critic(examples, *_, **__):
        return norm * tf.tensordot(tf.cast(examples, tf.float32), direction, 3)

    return critic


def _curved_critic(examples, *_, **__):
    """D(x) = |x|^2 / 2, whose gradient at x is x."""
    return tf.reduce_sum(tf.square(examples), axis=[1, 2, 3]) / 2


def _images() -> tuple[tf.Tensor, tf.Tensor]:
    return tuple(tf.random.stateless_uniform(SHAPE, [0, seed], -1.0, 1.0) for seed in (1, 2))


def _value(penalty: PenaltyFunction, critic: Callable) -> float:
    return float(
        tf.reduce_mean(at_least_float32(tf.convert_to_tensor(penalty(critic, *_images()))))
    )


def _value_and_slope(penalty: PenaltyFunction, norm: float) -> tuple[float, float | None]:
    """The penalty of a linear critic, and its derivative by the norm of the weights."""
    size = tf.Variable(norm)
    with tf.GradientTape() as tape:
        value = tf.reduce_mean(penalty(_linear_critic(size), *_images()))
    slope = tape.gradient(value, size)
    return float(value), None if slope is None else float(slope)


def _epsilon(measured: str) -> Finding:
    message = (
        f"{measured}: a constant is added to the squared norm, which moves every norm; guard the "
        "root at 0 alone"
    )
    return Finding("epsilon_under_root", message)
