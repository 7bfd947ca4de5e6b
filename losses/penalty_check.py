"""`check_penalty`: closed forms against somebody else's gradient penalty."""

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
    """The mistakes that `penalty` makes, by name; [] if it is the gradient penalty of WGAN-GP.

    Calls it on critics whose penalty is known: on D(x) = w.x it is (|w| - 1)^2, whatever
    real and fake are. Where the value is wrong, it is compared with that of each known
    mistake. The function may be eager or a tf.function, but not compiled by XLA.

    The findings, by name:
      raises: the penalty cannot be called at all.
      no_interpolates: the gradient is not taken between real and fake.
      alpha_per_element, alpha_per_batch: alpha is not one value for each example.
      alpha_out_of_range, alpha_not_uniform: alpha is not uniform on [0, 1).
      same_alpha_every_call: as from a fixed seed. Not fatal.
      norm_over_batch, norm_over_axes: the norm is over the whole batch, or over some axes
        of an example only (the channels).
      gradient_of_mean: the gradient of the mean score, which is B times too small.
      mean_of_norms: the norms are averaged before the target is subtracted.
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
      penalty: (critic, real, fake) -> the mean over the batch, or `[B]`. Its critic gives
        scores `[B, 1]`, has `trainable_variables`, and may be called with more arguments,
        such as training=True.
      weight: the factor the function includes, > 0.
      target: the norm it asks for, >= 0.
      one_sided: whether it penalises norms above the target only.
      example_shape: of the examples it is called with; sides of different lengths tell
        wrong choices of axes apart.
      strategy: of several replicas, to run the function in. A scalar must then be this
        replica's share of the global mean; `[B]` is taken as it is.

    Raises:
      ValueError: a weight or a target out of range.
    """
    if not weight > 0 or not target >= 0:
        raise ValueError(f"weight must be positive, target not negative; got {weight}, {target}")
    probe = Probe(penalty, weight, target, one_sided, tuple(example_shape))
    try:
        return _check(probe, strategy)
    except RaisedError as error:
        cause = error.__cause__
        first_line = str(cause).partition("\n")[0]
        return [Finding("raises", f"it cannot be called: {type(cause).__name__}: {first_line}")]


def _check(probe: Probe, strategy: tf.distribute.Strategy | None) -> list[Finding]:
    draws = probe.draws_between(DRAWS)
    findings = [*_check_points([points for _, points in draws]), *_check_norm(probe)]
    if not any(finding.fatal for finding in findings):  # else what follows would repeat it
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
    """Each `[B, elements]`, between real = 0 and fake = 1."""
    if len(draws) < DRAWS:
        message = "the critic is never asked about a point between real and fake"
        return [Finding("no_interpolates", message)]
    points = tf.stack(draws)
    if tf.reduce_max(tf.math.reduce_std(points, axis=-1)) > 1e-3:
        message = "alpha differs inside an example: the points leave the line from real to fake"
        return [Finding("alpha_per_element", message)]
    return _check_alpha(points[..., 0])


def _check_alpha(alpha: tf.Tensor) -> list[Finding]:
    """`[draws, B]`."""
    if tf.reduce_max(tf.math.reduce_std(alpha, axis=1)) < 1e-3:
        message = f"one alpha for the whole batch: draw one for each example, [{BATCH}, 1, ...]"
        return [Finding("alpha_per_batch", message)]
    low, high = float(tf.reduce_min(alpha)), float(tf.reduce_max(alpha))
    if low < -1e-3 or high > 1 + 1e-3:
        message = f"alpha between {low:.2f} and {high:.2f}: it must be uniform on [0, 1)"
        return [Finding("alpha_out_of_range", message)]
    fixed = bool(tf.reduce_all(alpha == alpha[:1]))
    # Six standard errors of the mean, and about as many of the deviation.
    tolerance = 6.0 * 12**-0.5 / (BATCH if fixed else alpha.shape.num_elements()) ** 0.5
    mean, deviation = float(tf.reduce_mean(alpha)), float(tf.math.reduce_std(alpha))
    if abs(mean - 0.5) > tolerance or abs(deviation - 12**-0.5) > 0.7 * tolerance:
        message = (
            f"alpha has mean {mean:.2f} and standard deviation {deviation:.2f}: "
            "uniform on [0, 1) they are 0.50 and 0.29"
        )
        return [Finding("alpha_not_uniform", message)]
    if fixed:
        message = "every call draws the same alphas: let the seed follow the step"
        return [Finding("same_alpha_every_call", message, fatal=False)]
    return []


def _check_norm(probe: Probe) -> list[Finding]:
    """On linear critics: the value, and if it is wrong, whose value it is."""
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
            return [_epsilon(f"at a norm of {probe.target:g} the penalty is {excess:.1e}, not 0")]
        return []
    table = ", ".join(
        f"{value:.4g} where |w| = {norm:g} (right: {expected(norm):.4g})"
        for value, norm in zip(measured[:3], norms, strict=False)
    )
    for name, message, hypothesis in known_mistakes(probe, measured, norms):
        if fits(hypothesis):
            return [Finding(name, f"{message}; on linear critics it is {table}")]
    return [Finding("wrong_value", f"on linear critics D(x) = w.x it is {table}")]


def _check_curved(probe: Probe, value: float, points: tf.Tensor) -> list[Finding]:
    """Where the examples' norms differ, the order of mean and square matters."""
    norms = probe.curvature * tf.norm(points, axis=1)
    right = float(tf.reduce_mean([probe.expected(float(norm)) for norm in norms]))
    if math.isclose(value, right, rel_tol=5e-3):
        return []
    table = f"where the norms are {float(tf.reduce_min(norms)):.2f} to "
    table += f"{float(tf.reduce_max(norms)):.2f} it is {value:.4g} (right: {right:.4g})"
    if math.isclose(value, probe.expected(float(tf.reduce_mean(norms))), rel_tol=5e-3):
        message = f"the norms are averaged before the target is subtracted: {table}"
        return [Finding("mean_of_norms", message)]
    return [Finding("wrong_value", table)]


def _check_weight_gradient(probe: Probe) -> list[Finding]:
    size = probe.target + 2.0
    _, slope = _value_and_slope(probe, size)
    if slope is None:
        message = "the penalty has no gradient for the critic's weights: it trains nothing"
        return [Finding("no_weight_gradient", message)]
    right = 2.0 * probe.weight * (size - probe.target)
    if not math.isclose(slope, right, rel_tol=2e-3):
        message = f"d penalty / d|w| is {slope:.4g} at |w| = {size:g}, where it must be {right:g}"
        return [Finding("wrong_weight_gradient", message)]
    return []


def _check_constant_critic(probe: Probe) -> list[Finding]:
    value, slope = _value_and_slope(probe, 0.0)
    if not math.isfinite(value) or (slope is not None and not math.isfinite(slope)):
        message = (
            f"at a constant critic the penalty is {value:g} and its gradient {slope}: guard the "
            "root where its argument is 0"
        )
        return [Finding("sqrt_at_zero", message)]
    # What the value says was added under the root, if anything was. A guard that only holds
    # the root up at 0, max(., epsilon), is no such thing: the slope at small norms is right.
    epsilon = (probe.target - max(value / probe.weight, 0.0) ** 0.5) ** 2
    if probe.one_sided or epsilon < 1e-13:
        return []
    small = 2.0 * epsilon**0.5
    _, slope = _value_and_slope(probe, small)
    right = 2.0 * probe.weight * (small - probe.target)
    if slope is None or math.isclose(slope, right, rel_tol=2e-2):
        return []
    return [_epsilon(f"at a constant critic the norm is {epsilon**0.5:.1e}, not 0")]


def _check_half_precision(probe: Probe) -> list[Finding]:
    """A gradient whose elements are exact in bfloat16, and whose norm is not."""

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
            continue  # it takes no such images, so it computes nothing wrong with them
        if not math.isclose(value, right, rel_tol=4e-3):
            message = (
                f"with {dtype.name} images the penalty is {value:.5g} where it must be "
                f"{right:.5g}: cast the gradient to float32 before its squares are summed"
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
        "the penalty has a gradient for the fakes, and through them for the generator: wrap "
        "them in tf.stop_gradient, unless only the critic's weights are ever updated by it"
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
            if result.shape.rank:  # one value an example: this function's user reduces it
                result = tf.reduce_mean(at_least_float32(result)) / replicas
            values.append(result)
        return values

    linear, curved = strategy.run(step)
    total = float(strategy.reduce(tf.distribute.ReduceOp.SUM, linear, axis=None))
    right = probe.expected(size)
    if not math.isclose(total, right, rel_tol=1e-2):
        message = (
            f"over {replicas} replicas the penalty adds up to {total:.4g}, not to {right:.4g}: "
            "each replica must divide by the global batch"
        )
        findings.append(Finding("mean_per_replica", message))
    # With real = 0 and fake = 1, the value follows from this replica's alphas.
    if len({float(value) for value in strategy.experimental_local_results(curved)}) == 1 < replicas:
        message = "every replica draws the same alphas: give each a seed of its own"
        findings.append(Finding("same_alpha_on_every_replica", message))
    return findings


def _value_and_slope(probe: Probe, norm: float) -> tuple[float, float | None]:
    """The penalty of a linear critic, and its derivative by the norm of the weights."""
    size = tf.Variable(norm)
    with tf.GradientTape() as tape:
        value = probe(probe.linear_critic(size), *probe.images())
    slope = tape.gradient(value, size)
    return float(value), None if slope is None else float(slope)


def _epsilon(measured: str) -> Finding:
    message = (
        f"{measured}: a constant is added to the squared norm, which moves every norm; guard the "
        "root at 0 alone"
    )
    return Finding("epsilon_under_root", message)
