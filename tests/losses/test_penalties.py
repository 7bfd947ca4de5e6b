"""The penalties: closed forms on linear critics, and a two-layer critic in NumPy.

A linear critic w.x has the gradient w everywhere, so its penalty is (|w| - 1)^2.
"""

import numpy as np
import pytest
import tensorflow as tf

import losses

BATCH = 64
SHAPE = (BATCH, 32, 32, 3)


def linear_critic(norm, shape=SHAPE):
    """Returns the critic D(x) = w.x with |w| = norm, which returns `[B]`."""
    direction = np.random.default_rng(0).standard_normal(shape[1:])
    weights = tf.constant(norm * direction / np.linalg.norm(direction), tf.float32)
    return lambda x: tf.tensordot(tf.cast(x, tf.float32), weights, len(shape) - 1)


def images(seed, shape=SHAPE):
    return tf.constant(np.random.default_rng(seed).uniform(-1, 1, shape), tf.float32)


def penalty(critic, **options):
    return losses.gradient_penalty(critic, images(1), images(2), seed=[3, 4], **options)


class TwoLayers:
    """The critic D(x) = v . tanh(W x + b), with manually derived gradients."""

    def __init__(self, dtype):
        rng = np.random.default_rng(5)
        # The gradient norms are around 1, on both sides.
        self.w, self.b, self.v = (
            rng.standard_normal([6, 4]) * 0.6,
            rng.standard_normal([6]),
            rng.standard_normal([6]),
        )
        self.variables = [tf.Variable(value, dtype=dtype) for value in (self.w, self.b, self.v)]

    def __call__(self, x):
        w, b, v = self.variables
        return tf.linalg.matvec(tf.tanh(tf.matmul(x, w, transpose_b=True) + b), v)

    def expected(self, points, function, slope):
        """Returns penalties `[B]`, and the gradients of their sum with respect to W, b and v.

        Args:
          points: `[B, 4]`.
          function, slope: Map a norm to the penalty, and to its derivative.
        """
        penalties, by_w, by_b, by_v = [], 0.0, 0.0, 0.0
        for x in points:
            t = np.tanh(self.w @ x + self.b)
            s = self.v * (1 - t**2)
            gradient = self.w.T @ s  # dD / dx
            norm = np.linalg.norm(gradient)
            penalties.append(function(norm))
            q = slope(norm) * gradient / norm  # dpenalty / dgradient
            r = self.w @ q  # dpenalty / ds
            a = -2 * self.v * t * r * (1 - t**2)  # dpenalty / d(W x + b)
            by_w = by_w + np.outer(s, q) + np.outer(a, x)
            by_b = by_b + a
            by_v = by_v + r * (1 - t**2)
        return np.array(penalties), [by_w, by_b, by_v]


RNG = np.random.default_rng(1)
REAL, FAKE, NOISE = RNG.standard_normal([3, 8, 4])
ALPHA = RNG.uniform(size=[8])
BETWEEN = REAL + ALPHA[:, None] * (FAKE - REAL)


def two_sided(target):
    return (lambda n: (n - target) ** 2), (lambda n: 2 * (n - target))


def one_sided(target):
    return (lambda n: max(0, n - target) ** 2), (lambda n: 2 * max(0, n - target))


# For each value of --penalty: the function call, the points, and the penalty and its derivative.
GRADIENT_PENALTIES = {
    "two_sided": (
        lambda c, real, fake, alpha, _: losses.gradient_penalty(c, real, fake, alpha=alpha),
        BETWEEN,
        two_sided(1.0),
    ),
    "one_sided": (
        lambda c, real, fake, alpha, _: losses.gradient_penalty(
            c, real, fake, alpha=alpha, one_sided=True
        ),
        BETWEEN,
        one_sided(1.0),
    ),
    "zero_centered": (
        lambda c, real, fake, alpha, _: losses.gradient_penalty(
            c, real, fake, alpha=alpha, target=0.0
        ),
        BETWEEN,
        two_sided(0.0),
    ),
    "r1": (lambda c, real, *_: losses.r1_penalty(c, real), REAL, two_sided(0.0)),
    "r2": (lambda c, real, fake, *_: losses.r2_penalty(c, fake), FAKE, two_sided(0.0)),
    "dragan": (
        lambda c, real, fake, alpha, noise: losses.penalties.dragan_penalty(c, real, noise=noise),
        REAL + 0.25 * NOISE,
        two_sided(1.0),
    ),
}


def test_every_gradient_penalty_is_tested():
    registered = {
        name for name, penalty in losses.PENALTIES.items() if penalty.function is not None
    }
    assert set(GRADIENT_PENALTIES) == registered


@pytest.mark.parametrize(
    ("compute", "dtype", "tolerance"),
    [("eager", "float64", 1e-6), ("xla", "float32", 1e-4)],
    indirect=["compute"],
)
@pytest.mark.parametrize("name", GRADIENT_PENALTIES)
def test_values_and_weight_gradients_are_those_of_numpy(name, dtype, tolerance, compute):
    call, points, (function, slope) = GRADIENT_PENALTIES[name]
    critic = TwoLayers(dtype)
    expected, expected_gradients = critic.expected(points, function, slope)
    assert (expected > 0.01).any()

    def both(of_call):
        with tf.GradientTape() as tape:
            value = of_call(critic, *(tf.constant(x, dtype) for x in (REAL, FAKE, ALPHA, NOISE)))
        return value, tape.gradient(value, critic.variables)

    def by_objective(critic, real, fake, alpha, noise):
        objective = losses.GanObjective(penalty=name)
        terms = objective.critic_terms(critic, real, fake, alpha=alpha, noise=noise, step=0)
        return terms["penalty"]

    for of_call in (call, by_objective):
        value, gradients = compute(lambda of_call=of_call: both(of_call))()
        assert value.shape == [8] and value.dtype == dtype
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)
        for ours, theirs in zip(gradients, expected_gradients, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


class Convolutions:
    """A critic of two convolutions for images [2, 2, 1], differentiated by finite differences."""

    def __init__(self):
        rng = np.random.default_rng(6)
        self.variables = [tf.Variable(rng.standard_normal(s)) for s in ((3, 3, 1, 3), (2, 2, 3, 2))]

    def __call__(self, images):
        first, second = self.variables
        x = tf.tanh(tf.nn.conv2d(images, first, 1, "SAME"))
        return tf.reduce_sum(tf.tanh(tf.nn.conv2d(x, second, 2, "SAME")), axis=[1, 2, 3])

    def norms(self, images, step=1e-4):
        """Returns gradient norms `[B]` of images `[B, 2, 2, 1]`, by central differences."""
        moves = step * np.eye(4).reshape(4, 1, 2, 2, 1)
        slopes = [np.array(self(images + move) - self(images - move)) for move in moves]
        return np.linalg.norm(slopes, axis=0) / (2 * step)


@pytest.mark.parametrize("name", GRADIENT_PENALTIES)
def test_values_and_weight_gradients_are_those_of_finite_differences(name):
    """Tests a convolutional critic; the expected values do not need automatic differentiation."""
    call, points, (function, _) = GRADIENT_PENALTIES[name]
    critic = Convolutions()
    images = [x.reshape(8, 2, 2, 1) for x in (REAL, FAKE, NOISE, points)]
    real, fake, noise = map(tf.constant, images[:3])

    def expected():
        return np.array([function(norm) for norm in critic.norms(images[3])])

    with tf.GradientTape() as tape:
        value = call(critic, real, fake, tf.constant(ALPHA), noise)
    np.testing.assert_allclose(value, expected(), rtol=1e-6, atol=1e-8)
    assert (expected() > 0.01).any()
    for variable, gradient in zip(
        critic.variables, tape.gradient(value, critic.variables), strict=True
    ):
        weights, slopes = variable.numpy(), np.zeros(variable.shape)
        for place in np.ndindex(weights.shape):
            moved = []
            for step in (1e-4, -1e-4):
                changed = weights.copy()
                changed[place] += step
                variable.assign(changed)
                moved.append(expected().sum())
            slopes[place] = (moved[0] - moved[1]) / 2e-4
        variable.assign(weights)
        # The error is the squared step times the third derivatives, which are below 100.
        np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-5)


def test_the_examples_are_on_both_sides_of_the_target():
    """Ensures that the tests above distinguish one-sided and two-sided penalties."""
    function, slope = one_sided(1.0)
    values, _ = TwoLayers("float64").expected(BETWEEN, function, slope)
    assert (values == 0).any() and (values > 0).any()


def test_interpolates_lie_on_the_line_with_one_alpha_per_example(compute):
    real, fake = images(1), images(2)
    alpha = tf.linspace(0.0, 1.0, BATCH)
    weight = alpha.numpy()[:, None, None, None]
    np.testing.assert_allclose(
        compute(losses.interpolate)(real, fake, alpha),
        (1 - weight) * real + weight * fake,
        atol=1e-6,
    )


def test_perturbed_points_lie_around_the_real_ones(compute):
    real, noise = images(1), images(2)
    points = compute(lambda: losses.penalties.perturb(real, noise, 0.5))()
    np.testing.assert_allclose(points, real.numpy() + 0.5 * noise.numpy(), rtol=1e-6)


def drawn_points(call, compute=lambda function: function):
    """Returns the penalties of |x|^2 / 2, whose gradient is x, for real = 0 and fake = 1."""
    shape = (512, 2, 2, 1)

    @compute
    def penalties():
        return call(
            lambda x: tf.reduce_sum(x**2, axis=[1, 2, 3]) / 2, tf.zeros(shape), tf.ones(shape)
        )

    return penalties().numpy()


def test_alphas_are_uniform_and_one_for_each_example(compute):
    norms = drawn_points(
        lambda c, real, fake: losses.gradient_penalty(c, real, fake, seed=[1, 2], target=0.0),
        compute,
    )
    # A point of four elements alpha has the norm 2 alpha.
    alpha = np.sqrt(norms) / 2
    assert len(np.unique(alpha)) > 500  # not one alpha for the batch
    assert alpha.min() >= 0 and alpha.max() < 1  # not a normal distribution
    assert abs(alpha.mean() - 0.5) < 0.05 and abs(alpha.std() - 12**-0.5) < 0.03


def test_alpha_is_equal_for_all_pixels_of_an_example():
    seen = []

    def critic(points):
        seen.append(points.numpy())
        return tf.reduce_sum(points, axis=[1, 2, 3])

    losses.gradient_penalty(critic, tf.zeros(SHAPE), tf.ones(SHAPE))
    assert np.ptp(seen[0], axis=(1, 2, 3)).max() == 0  # not one per pixel


def test_random_numbers_depend_only_on_the_seed():
    for call in (
        lambda seed: lambda c, real, fake: losses.gradient_penalty(c, real, fake, seed=seed),
        lambda seed: lambda c, real, fake: losses.penalties.dragan_penalty(c, real, seed=seed),
    ):
        np.testing.assert_array_equal(drawn_points(call([1, 2])), drawn_points(call([1, 2])))
        assert (drawn_points(call([1, 2])) != drawn_points(call([1, 3]))).any()
        assert (drawn_points(call(None)) != drawn_points(call(None))).any()


def test_dragan_noise_is_normal_with_the_given_scale():
    # With real = 0, a point is the noise: four elements of variance 0.3^2.
    squares = drawn_points(
        lambda c, real, _: losses.penalties.dragan_penalty(
            c, real, seed=[1, 2], scale=0.3, target=0.0
        )
    )
    assert abs(squares.mean() / (4 * 0.3**2) - 1) < 0.1
    assert abs(squares.std() / (8**0.5 * 0.3**2) - 1) < 0.2  # chi-squared with 4 degrees of freedom


def test_norm_is_over_all_elements_of_each_example(compute):
    # A norm over the whole batch would give 49, over the channels only about 0.94.
    value = compute(lambda: penalty(linear_critic(1.0)))()
    assert value.shape == [BATCH]
    np.testing.assert_allclose(value, 0, atol=1e-10)


@pytest.mark.parametrize(
    ("norm", "options", "expected"),
    [
        (3.0, {}, 4.0),
        (0.5, {}, 0.25),
        (0.5, {"one_sided": True}, 0.0),
        (3.0, {"one_sided": True}, 4.0),
        (3.0, {"target": 0.0}, 9.0),
        (3.0, {"target": 2.5}, 0.25),
        (2.0, {"target": 2.5, "one_sided": True}, 0.0),
    ],
)
def test_linear_critic_has_the_closed_form(norm, options, expected, compute):
    value = compute(lambda: penalty(linear_critic(norm), **options))()
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_points_and_functions_can_be_combined():
    norm = losses.gradient_norm(linear_critic(3.0), images(1))
    np.testing.assert_allclose(losses.penalties.two_sided(norm), 4.0, rtol=1e-5)
    np.testing.assert_allclose(losses.penalties.one_sided(norm, 1.5), 2.25, rtol=1e-5)
    np.testing.assert_allclose(losses.penalties.zero_centered(norm), 9.0, rtol=1e-5)


def test_the_gradient_of_a_patch_critic_is_that_of_its_mean_score(compute):
    """A 1x1 convolution of stride 1 with weight w has the gradient w / (pixels) at each pixel."""
    points = images(1, (4, 6, 5, 1))
    norm = compute(lambda: losses.gradient_norm(lambda x: 7.0 * x, points))()
    np.testing.assert_allclose(norm, 7.0 * 30**0.5 / 30, rtol=1e-6)


def test_no_epsilon_is_added_to_the_squared_norm(compute):
    norm = compute(lambda: losses.gradient_norm(linear_critic(1e-6), images(1)))()
    np.testing.assert_allclose(norm, 1e-6, rtol=1e-5)


def test_a_gradient_that_is_not_a_number_has_no_norm(compute):
    """The score of each example is finite, but its derivative is infinity times 0."""

    def critic(x):
        return tf.reduce_sum(x + tf.sqrt(0.0 * x), axis=1)

    points = tf.ones([2, 3])
    assert np.isfinite(critic(points)).all()
    assert np.isnan(compute(lambda: losses.gradient_norm(critic, points))()).all()


@pytest.mark.parametrize("name", GRADIENT_PENALTIES)
def test_penalty_of_a_constant_critic_is_the_squared_target(name, compute):
    call, _, (function, _) = GRADIENT_PENALTIES[name]
    weights = tf.Variable(tf.zeros(4))

    @compute
    def value_and_gradient():
        with tf.GradientTape() as tape:
            value = call(
                lambda x: tf.linalg.matvec(x, weights),
                *(tf.constant(x, tf.float32) for x in (REAL, FAKE, ALPHA, NOISE)),
            )
        return value, tape.gradient(value, weights)

    value, gradient = value_and_gradient()
    np.testing.assert_array_equal(value, [function(0)] * 8)
    np.testing.assert_array_equal(gradient, np.zeros(4))


@pytest.mark.parametrize("name", GRADIENT_PENALTIES)
def test_penalties_have_no_gradient_in_the_examples(name):
    real, fake, alpha, noise = (tf.constant(x) for x in (REAL, FAKE, ALPHA, NOISE))
    with tf.GradientTape() as tape:
        tape.watch([real, fake])
        value = GRADIENT_PENALTIES[name][0](
            lambda x: tf.reduce_sum(x**3, axis=1), real, fake, alpha, noise
        )
    assert tape.gradient(value, [real, fake]) == [None, None]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_norm_of_half_precision_gradients_is_computed_in_float32(dtype, compute):
    points = tf.cast(images(1), dtype)
    norm = compute(lambda: losses.gradient_norm(linear_critic(1.0), points))()
    assert norm.dtype == tf.float32
    # The elements of the gradient are rounded to half precision, the sum of squares is not.
    np.testing.assert_allclose(norm, 1.0, rtol=1e-3)


@pytest.mark.parametrize("compute", ["eager", "graph", "xla"], indirect=True)
def test_penalty_in_mixed_bfloat16_is_close_to_float32(compute):
    def critic(policy):
        tf.keras.mixed_precision.set_global_policy(policy)
        try:
            tf.keras.utils.set_random_seed(1)
            return tf.keras.Sequential(
                [
                    tf.keras.Input([8, 8, 3]),
                    tf.keras.layers.Conv2D(16, 3, strides=2),
                    tf.keras.layers.LeakyReLU(),
                    tf.keras.layers.Flatten(),
                    tf.keras.layers.Dense(1),
                ]
            )
        finally:
            tf.keras.mixed_precision.set_global_policy("float32")

    real, fake = images(1, (16, 8, 8, 3)), images(2, (16, 8, 8, 3))

    def penalties(critic, dtype):
        return compute(
            lambda: losses.gradient_penalty(
                critic, tf.cast(real, dtype), tf.cast(fake, dtype), alpha=tf.linspace(0.0, 1.0, 16)
            )
        )()

    single = penalties(critic("float32"), tf.float32)
    mixed_critic = critic("mixed_bfloat16")
    assert mixed_critic(real).dtype == tf.bfloat16
    for dtype in (tf.float32, tf.bfloat16):
        mixed = penalties(mixed_critic, dtype)
        assert mixed.dtype == tf.float32
        np.testing.assert_allclose(mixed, single, atol=0.02)


def test_lazy_regularization_has_the_same_mean(compute):
    """Tests that value and gradient are k times as large at every k-th step, and 0 at others."""
    size = tf.Variable(3.0)

    @compute
    def on_step(step):
        with tf.GradientTape() as tape:
            (value,) = losses.lazy_regularization(
                4,
                step,
                lambda: (
                    losses.r1_penalty(lambda x: size * tf.reduce_sum(x, 1), images(1, (2, 3))),
                ),
                like=(tf.zeros([2]),),
            )
        return value, tape.gradient(value, size, unconnected_gradients="zero")

    # |w|^2 = 3 size^2 = 27, with the derivative 6 size, for two examples.
    for step in range(9):
        value, gradient = on_step(tf.constant(step, tf.int64))
        due = 4.0 * (step % 4 == 0)
        np.testing.assert_allclose(value, [27 * due] * 2, rtol=1e-6)
        np.testing.assert_allclose(gradient, 2 * 18 * due, rtol=1e-6)


def test_lazy_regularization_at_every_step_computes_the_term():
    assert (
        losses.lazy_regularization(1, tf.constant(3), lambda: "computed", like=None) == "computed"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: losses.interpolate(tf.zeros([4, 2]), tf.zeros([4, 3]), tf.zeros([4])),
            "real .4, 2. and fake .4, 3. must have the same shape",
        ),
        (
            lambda: losses.gradient_penalty(tf.identity, tf.zeros([4, 2]), tf.zeros([3, 2])),
            "real .4, 2. and fake .3, 2. must have the same shape",
        ),
        (
            lambda: losses.interpolate(
                tf.zeros([4, 2]), tf.zeros([4, 2], tf.float64), tf.zeros([4])
            ),
            "real .float32. and fake .float64. must have the same dtype",
        ),
        (
            lambda: losses.interpolate(tf.zeros([4, 2]), tf.zeros([4, 2]), tf.zeros([4, 2])),
            "one value per example",
        ),
        (
            lambda: losses.interpolate(
                tf.zeros([4, 2], tf.uint8), tf.zeros([4, 2], tf.uint8), tf.zeros([4])
            ),
            "real must have a floating-point dtype, got uint8",
        ),
        (
            lambda: losses.r1_penalty(tf.identity, tf.zeros([4, 2], tf.uint8)),
            "real must have a floating-point dtype, got uint8",
        ),
        (
            lambda: losses.penalties.dragan_penalty(
                tf.identity, tf.zeros([4, 2]), noise=tf.zeros([4, 1])
            ),
            "real .4, 2. and noise .4, 1. must have the same shape",
        ),
        (
            lambda: losses.penalties.perturb(tf.zeros([4, 2]), tf.zeros([4, 2]), -1.0),
            "scale must not be negative, got -1",
        ),
        (
            lambda: losses.penalties.two_sided(tf.zeros([4]), -1.0),
            "target must not be negative, got -1",
        ),
        (
            lambda: losses.penalties.one_sided(tf.zeros([4]), -1.0),
            "target must not be negative, got -1",
        ),
        (lambda: losses.gradient_norm(lambda x: tf.zeros([4]), tf.zeros([4, 2])), "is None"),
        (
            lambda: losses.gradient_norm(tf.reduce_sum, tf.zeros([4, 2])),
            r"critic's scores must have shape \[B\], \[B, 1\] or, for patches, .*, got \(\)",
        ),
        (
            lambda: losses.gradient_norm(lambda x: (x, x), tf.zeros([4, 1])),
            "the critic's scores must be one tensor, got",
        ),
        (
            lambda: losses.gradient_norm(lambda x: tf.reduce_sum(x, 0), tf.zeros([4, 3])),
            r"the critic must return one score per example, \(4,\), got \(3,\)",
        ),
        (
            lambda: losses.gradient_norm(tf.identity, tf.zeros([4, 1], tf.int32)),
            "points must have a floating-point dtype, got int32",
        ),
        (
            lambda: losses.gradient_penalty(
                tf.identity, tf.zeros([4]), tf.zeros([4]), alpha=tf.zeros([4]), seed=[1, 2]
            ),
            "alpha and seed were both given",
        ),
        (
            lambda: losses.penalties.dragan_penalty(
                tf.identity, tf.zeros([4]), noise=tf.zeros([4]), seed=[1, 2]
            ),
            "noise and seed were both given",
        ),
        (
            lambda: losses.lazy_regularization(0, tf.constant(0), tuple, like=()),
            "interval must be positive",
        ),
    ],
)
def test_errors_name_invalid_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
