"""Tests of check_critic and check_penalty with implementations that make known mistakes."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
from tests.helpers.runs import strategy_over

KERAS = tf.keras.layers
EXAMPLES = tf.constant(np.random.default_rng(0).standard_normal([12, 8, 8, 3]), tf.float32)


def gradient_penalty(
    critic,
    real,
    fake,
    *,
    alpha=lambda size: tf.random.uniform([size, 1, 1, 1]),
    total=tf.reduce_sum,
    squared_norm=lambda gradient: tf.reduce_sum(
        tf.square(tf.cast(gradient, tf.float32)), [1, 2, 3]
    ),
    root=lambda squared: tf.sqrt(tf.maximum(squared, 1e-12)),
    detach=tf.stop_gradient,
    reduce=tf.reduce_mean,
    between=lambda real, fake, alpha: real + alpha * (fake - real),
):
    """Computes the penalty as commonly implemented; the arguments introduce mistakes."""
    real, fake = detach(real), detach(fake)
    points = between(real, fake, tf.cast(alpha(real.shape[0]), real.dtype))
    with tf.GradientTape() as tape:
        tape.watch(points)
        score = total(critic(points, training=True))
    norm = root(squared_norm(tape.gradient(score, points)))
    return reduce((norm - 1.0) ** 2)


def with_mistake(**mistake):
    return lambda critic, real, fake: gradient_penalty(critic, real, fake, **mistake)


# For each mistake: the name of the finding, and the arguments that introduce the mistake.
MISTAKES = {
    "alpha per pixel": ("alpha_per_element", {"alpha": lambda n: tf.random.uniform([n, 8, 6, 3])}),
    "alpha per channel": (
        "alpha_per_element",
        {"alpha": lambda n: tf.random.uniform([n, 1, 1, 3])},
    ),
    "one alpha for the batch": ("alpha_per_batch", {"alpha": lambda n: tf.random.uniform([])}),
    "alpha one half": ("alpha_per_batch", {"alpha": lambda n: tf.fill([n, 1, 1, 1], 0.5)}),
    "alpha from a normal": (
        "alpha_out_of_range",
        {"alpha": lambda n: tf.random.normal([n, 1, 1, 1])},
    ),
    "alpha squared": (
        "alpha_not_uniform",
        {"alpha": lambda n: tf.random.uniform([n, 1, 1, 1]) ** 2},
    ),
    "always at the fakes": ("no_interpolates", {"alpha": lambda n: tf.ones([n, 1, 1, 1])}),
    "one alpha for two examples": (
        "alpha_per_group",
        {"alpha": lambda n: tf.repeat(tf.random.uniform([n // 2, 1, 1, 1]), 2, axis=0)},
    ),
    "one alpha for eight examples": (
        "alpha_per_group",
        {"alpha": lambda n: tf.tile(tf.random.uniform([n // 8, 1, 1, 1]), [8, 1, 1, 1])},
    ),
    "alpha from -1 to 1": (
        "alpha_out_of_range",
        {"alpha": lambda n: tf.random.uniform([n, 1, 1, 1], -1.0, 1.0)},
    ),
    "alpha up to one half": (
        "alpha_not_uniform",
        {"alpha": lambda n: tf.random.uniform([n, 1, 1, 1], 0.0, 0.5)},
    ),
    "real + alpha fake": ("points_off_the_line", {"between": lambda r, f, a: r + a * f}),
    "alpha real + alpha fake": ("points_off_the_line", {"between": lambda r, f, a: a * (r + f)}),
    "alpha fake": ("points_off_the_line", {"between": lambda r, f, a: a * f}),
    "alpha real": ("points_off_the_line", {"between": lambda r, f, a: a * r}),
    "real - alpha (fake - real)": (
        "alpha_out_of_range",
        {"between": lambda r, f, a: r - a * (f - r)},
    ),
    "half of alpha (fake - real)": (
        "alpha_not_uniform",
        {"between": lambda r, f, a: r + 0.5 * a * (f - r)},
    ),
    "real + alpha (real - fake)": (
        "alpha_out_of_range",
        {"between": lambda r, f, a: r + a * (r - f)},
    ),
    "two alphas": (
        "points_off_the_line",
        {"between": lambda r, f, a: a * r + tf.random.uniform(a.shape) * f},
    ),
    "noise around the points": (
        "points_off_the_line",
        {"between": lambda r, f, a: r + a * (f - r) + 0.3 * tf.random.normal(r.shape)},
    ),
    "noise around real examples": (
        "points_off_the_line",
        {"between": lambda r, f, a: r + a * tf.random.normal(r.shape)},
    ),
    "between real examples": (
        "no_interpolates",
        {"between": lambda r, f, a: r + a * (tf.reverse(r, [0]) - r)},
    ),
    "sum without a difference": ("points_off_the_line", {"between": lambda r, f, a: r + f}),
    "norm over the batch": ("norm_over_batch", {"squared_norm": lambda g: tf.reduce_sum(g**2)}),
    "norm over channels": ("norm_over_axes", {"squared_norm": lambda g: tf.reduce_sum(g**2, -1)}),
    "norm over pixels": ("norm_over_axes", {"squared_norm": lambda g: tf.reduce_sum(g**2, [1, 2])}),
    "norm over rows": ("norm_over_axes", {"squared_norm": lambda g: tf.reduce_sum(g**2, 1)}),
    "gradient of the mean": ("gradient_of_mean", {"total": tf.reduce_mean}),
    "no root": ("missing_root", {"root": tf.identity}),
    "mean under the root": (
        "root_mean_square",
        {"squared_norm": lambda g: tf.reduce_mean(g**2, [1, 2, 3])},
    ),
    "sum of absolutes": (
        "sum_of_absolutes",
        {"squared_norm": lambda g: tf.reduce_sum(abs(g), [1, 2, 3]), "root": tf.identity},
    ),
    "mean of the norms": ("mean_of_norms", {"root": lambda s: tf.reduce_mean(tf.sqrt(s))}),
    "sum over the batch": ("scaled", {"reduce": tf.reduce_sum}),
    "weight left in": ("scaled", {"reduce": lambda x: 10 * tf.reduce_mean(x)}),
    "one-sided": ("one_sided", {"root": lambda s: tf.maximum(tf.sqrt(s), 1.0)}),
    "clipped norm": ("wrong_value", {"root": lambda s: tf.minimum(tf.sqrt(s), 2.0)}),
    "stopped norm": ("no_weight_gradient", {"root": lambda s: tf.stop_gradient(tf.sqrt(s))}),
    "half-stopped norm": (
        "wrong_weight_gradient",
        {"root": lambda s: tf.sqrt(s) / 2 + tf.stop_gradient(tf.sqrt(s) / 2)},
    ),
    "root at zero": ("sqrt_at_zero", {"root": tf.sqrt}),
    "tf.norm at zero": (
        "sqrt_at_zero",
        {
            "squared_norm": lambda g: tf.norm(
                tf.reshape(tf.cast(g, tf.float32), [len(g), -1]), axis=1
            ),
            "root": tf.identity,
        },
    ),
    "epsilon 1e-12": ("epsilon_under_root", {"root": lambda s: tf.sqrt(s + 1e-12)}),
    "epsilon 1e-8": ("epsilon_under_root", {"root": lambda s: tf.sqrt(s + 1e-8)}),
    "epsilon 1e-4": ("epsilon_under_root", {"root": lambda s: tf.sqrt(s + 1e-4)}),
    "epsilon 1e-2": ("epsilon_under_root", {"root": lambda s: tf.sqrt(s + 1e-2)}),
    "fakes not detached": ("fake_not_detached", {"detach": tf.identity}),
    "norm in half precision": (
        "half_precision_norm",
        {"squared_norm": lambda g: tf.reduce_sum(g**2, [1, 2, 3])},
    ),
    "norm cast to half precision": (
        "half_precision_norm",
        {"squared_norm": lambda g: tf.reduce_sum(tf.cast(g, tf.bfloat16) ** 2, [1, 2, 3])},
    ),
    "sum of squares in half precision, root in float32": (
        "half_precision_norm",
        {
            "squared_norm": lambda g: tf.cast(
                tf.reduce_sum(tf.cast(g, tf.bfloat16) ** 2, [1, 2, 3]), tf.float32
            )
        },
    ),
    "squares in half precision, summed in float32": (
        "half_precision_norm",
        {
            "squared_norm": lambda g: tf.reduce_sum(
                tf.cast(tf.cast(g, tf.bfloat16) ** 2, tf.float32), [1, 2, 3]
            )
        },
    ),
}


def names(findings):
    return [finding.name for finding in findings]


@pytest.mark.parametrize("kind", ["eager", "tf.function"])
def test_a_correct_penalty_has_no_findings(kind):
    wrap = tf.function if kind == "tf.function" else lambda function: function
    assert losses.check_penalty(wrap(with_mistake())) == []
    assert losses.check_penalty(wrap(with_mistake(reduce=tf.identity))) == []
    assert losses.check_penalty(wrap(losses.gradient_penalty)) == []


@pytest.mark.parametrize(
    "options",
    [{"one_sided": True}, {"target": 0.0}, {"target": 2.5}, {"target": 2.5, "one_sided": True}],
)
def test_gradient_penalty_has_no_findings_for_its_own_options_only(options):
    def penalty(*arguments):
        return 10.0 * losses.gradient_penalty(*arguments, **options)

    assert losses.check_penalty(penalty, weight=10.0, **options) == []
    assert losses.check_penalty(penalty, weight=10.0)
    assert names(losses.check_penalty(penalty, **options)) == ["scaled"]


def test_a_two_sided_penalty_is_not_one_sided():
    assert names(losses.check_penalty(losses.gradient_penalty, one_sided=True)) == ["two_sided"]


@pytest.mark.parametrize("case", MISTAKES)
def test_known_mistakes_are_found(case):
    name, mistake = MISTAKES[case]
    findings = losses.check_penalty(with_mistake(**mistake))
    assert names(findings) == [name]
    assert len(findings[0].message) > 30 and "\n" not in str(findings[0])
    harmless = name == "fake_not_detached" or case == "norm in half precision"
    assert findings[0].fatal is not harmless


@pytest.mark.parametrize("target", [0.0, 2.5])
def test_half_precision_is_found_for_other_targets(target):
    def penalty(critic, real, fake):
        points = losses.interpolate(real, fake, tf.random.uniform([len(real)]))
        with tf.GradientTape() as tape:
            tape.watch(points)
            scores = critic(points)
        squares = tf.cast(tape.gradient(scores, points), tf.bfloat16) ** 2
        norm = tf.cast(tf.sqrt(tf.reduce_sum(squares, [1, 2, 3])), tf.float32)
        return tf.reduce_mean((norm - target) ** 2)

    assert "half_precision_norm" in names(losses.check_penalty(penalty, target=target))


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        (lambda size: tf.random.uniform([size, 1, 1, 1], dtype=tf.bfloat16), None),
        (
            lambda size: tf.clip_by_value(tf.random.normal([size, 1, 1, 1]), 0.0, 1.0),
            "alpha_not_uniform",
        ),
    ],
)
def test_alphas_may_be_exactly_0_or_1(alpha, expected):
    tf.random.set_seed(0)
    found = names(losses.check_penalty(with_mistake(alpha=alpha)))
    assert found == ([] if expected is None else [expected])


def test_a_penalty_may_require_float32():
    def penalty(critic, real, fake):
        tf.debugging.assert_type(real, tf.float32)
        return gradient_penalty(critic, real, fake)

    assert losses.check_penalty(penalty) == []


@pytest.mark.slow
def test_mistakes_on_several_replicas_are_found():
    strategy = strategy_over(4)
    mean_per_replica = with_mistake()
    assert names(losses.check_penalty(mean_per_replica, strategy=strategy)) == ["mean_per_replica"]

    def share_of(per_example):
        replicas = tf.distribute.get_replica_context().num_replicas_in_sync
        return losses.global_mean(per_example, 64 * replicas)

    for correct in (with_mistake(reduce=share_of), with_mistake(reduce=tf.identity)):
        assert losses.check_penalty(correct, strategy=strategy) == []
    one_seed = functools.partial(losses.gradient_penalty, seed=[7, 7])
    assert names(losses.check_penalty(one_seed, strategy=strategy)) == [
        "same_alpha_every_call",
        "same_alpha_on_every_replica",
    ]
    far = {"target": 20.0, "one_sided": True}
    correct = functools.partial(losses.gradient_penalty, **far)
    assert losses.check_penalty(correct, strategy=strategy, **far) == []


@pytest.mark.parametrize(
    "seeds", [range(5), pytest.param(range(5, 60), marks=pytest.mark.slow)], ids=str
)
def test_a_fixed_seed_is_found(seeds):
    for seed in seeds:
        one_seed = functools.partial(losses.gradient_penalty, seed=[seed, 0])
        (finding,) = losses.check_penalty(one_seed)
        assert finding.name == "same_alpha_every_call" and not finding.fatal


@pytest.mark.parametrize("target", [0.1, 1.0, 30.0, 1000.0])
def test_any_target_is_supported(target):
    correct = functools.partial(losses.gradient_penalty, target=target)
    assert losses.check_penalty(correct, target=target) == []


def in_one_call(critic, real, fake):
    """Computes scores and penalty from one call of the critic."""
    alpha = tf.random.uniform([real.shape[0], 1, 1, 1])
    points = tf.stop_gradient(real + alpha * (fake - real))
    with tf.GradientTape() as tape:
        tape.watch(points)
        scores = critic(tf.concat([real, fake, points], axis=0), training=True)
        total = tf.reduce_sum(tf.split(scores, 3)[2])
    squared = tf.reduce_sum(tf.cast(tape.gradient(total, points), tf.float32) ** 2, [1, 2, 3])
    return tf.reduce_mean((tf.sqrt(tf.maximum(squared, 1e-12)) - 1.0) ** 2)


def for_keras_models(critic, real, fake):
    """Computes the penalty of a critic that must have weights and return scores [B, 1]."""
    assert isinstance(critic.trainable_variables, list)

    def scores(x):
        return tf.squeeze(critic(x, training=True), axis=1)

    return gradient_penalty(lambda x, training: scores(x)[:, tf.newaxis][:, 0], real, fake)


def in_random_pairs(critic, real, fake):
    """Computes the penalty between real examples and fakes in another order."""
    return gradient_penalty(critic, real, tf.random.shuffle(fake))


def from_fake_to_real(critic, real, fake):
    """Computes the points as the paper writes them."""
    return gradient_penalty(critic, real, fake, between=lambda r, f, a: a * r + (1 - a) * f)


def with_points_in_half_precision(critic, real, fake):
    """Computes the points as a mixed precision policy does."""

    def between(r, f, a):
        r, f, a = (tf.cast(each, tf.bfloat16) for each in (r, f, a))
        return tf.cast(r + a * (f - r), tf.float32)

    return gradient_penalty(critic, real, fake, between=between)


def with_opposite_alphas(critic, real, fake):
    """Computes the penalty for alphas in pairs of a and 1 - a, which reduces its variance."""

    def alpha(size):
        half = tf.random.uniform([size // 2, 1, 1, 1])
        return tf.concat([half, 1.0 - half], axis=0)

    return gradient_penalty(critic, real, fake, alpha=alpha)


@pytest.mark.parametrize(
    "penalty",
    [
        in_one_call,
        for_keras_models,
        in_random_pairs,
        from_fake_to_real,
        with_points_in_half_precision,
        with_opposite_alphas,
    ],
)
def test_other_correct_implementations_have_no_findings(penalty):
    assert losses.check_penalty(penalty) == []


def for_points(critic, real, fake, axis=1):
    """Computes the penalty for examples `[D]` only."""
    points = tf.stop_gradient(real + tf.random.uniform([len(real), 1]) * (fake - real))
    with tf.GradientTape() as tape:
        tape.watch(points)
        scores = critic(points)
    gradient = tf.cast(tape.gradient(scores, points), tf.float32)
    squared = tf.reduce_sum(gradient**2, axis)
    return tf.reduce_mean((tf.sqrt(tf.maximum(squared, 1e-12)) - 1.0) ** 2)


def without_watch(critic, real, fake):
    with tf.GradientTape() as tape:
        scores = critic(0.5 * (real + fake))
    return tf.reduce_mean((tape.gradient(scores, real) ** 2 - 1.0) ** 2)


def test_example_shape_selects_the_examples():
    assert losses.check_penalty(for_points, example_shape=[2]) == []
    wrong = functools.partial(for_points, axis=None)
    assert names(losses.check_penalty(wrong, example_shape=[2])) == ["norm_over_batch"]
    # By default, the examples are images.
    (finding,) = losses.check_penalty(for_points)
    assert finding.name == "raises" and "Incompatible shapes" in finding.message


@pytest.mark.parametrize(
    ("penalty", "word"),
    [
        (lambda critic, real: 0.0, "TypeError"),
        (lambda *_: None, "ValueError"),
        (without_watch, "TypeError: .*NoneType.*; a gradient is None if .* (tape.watch)"),
        (lambda critic, real, fake: critic.shape, "; the penalty is called with (critic, real"),
    ],
)
def test_a_penalty_that_raises_is_reported(penalty, word):
    (finding,) = losses.check_penalty(penalty)
    assert finding.name == "raises" and "\n" not in finding.message
    assert all(part in finding.message for part in word.split(".*"))


def test_a_constant_penalty_is_reported():
    assert "no_interpolates" in names(losses.check_penalty(lambda *_: 0.5))


@pytest.mark.parametrize("options", [{"weight": 0.0}, {"weight": -1.0}, {"target": -1.0}])
def test_check_penalty_rejects_invalid_weights_and_targets(options):
    with pytest.raises(ValueError, match="weight must be > 0 and target >= 0"):
        losses.check_penalty(losses.gradient_penalty, **options)


def network(*layers, head=None):
    return tf.keras.Sequential(
        [
            tf.keras.Input([8, 8, 3]),
            KERAS.Conv2D(8, 3),
            *layers,
            KERAS.Flatten(),
            *([head] if head else []),
            KERAS.Dense(1),
        ]
    )


def training(model):
    return lambda x: model(x, training=True)


def minibatch_stddev(x):
    """Returns scores with statistics over strided groups of 4 examples, as in ProGAN."""
    features = tf.reshape(x, [12, -1])[:, :10]
    groups = tf.reshape(features, [4, 3, 10])
    deviation = tf.reduce_mean(tf.math.reduce_std(groups, axis=0), axis=1)
    return tf.reduce_sum(tf.tanh(features), 1) + tf.tile(deviation, [4])


def weakly_coupled(x):
    """Returns scores that contain a thousandth of the mean over the batch."""
    own = tf.reduce_sum(tf.tanh(x), [1, 2, 3])
    return own + 0.001 * tf.reduce_mean(own)


def even_batch_statistics(x):
    """Returns scores that are coupled by value only, and not by the signs of other examples."""
    scale = tf.math.rsqrt(tf.stop_gradient(tf.reduce_mean(x**2, axis=0)))
    return tf.reduce_sum(tf.tanh(x * scale), [1, 2, 3])


def constant_batch_statistics(x):
    """Returns scores that are coupled by value only, not in their gradients."""
    mean = tf.stop_gradient(tf.reduce_mean(x, axis=0))
    return tf.reduce_sum(tf.tanh(x - mean), [1, 2, 3])


WEIGHT = tf.Variable(tf.ones([3]))


@tf.custom_gradient
def without_second_derivative(x):
    return tf.reduce_sum(x**2, [1, 2, 3]), lambda upstream: tf.stop_gradient(
        2 * x * upstream[:, None, None, None]
    )


@pytest.mark.parametrize(
    ("critic", "expected"),
    [
        (lambda: network(KERAS.LeakyReLU()), []),
        (lambda: network(KERAS.GroupNormalization(1), KERAS.ReLU()), []),
        (lambda: network(KERAS.BatchNormalization(), KERAS.ReLU()), []),  # in inference mode
        (lambda: lambda x: tf.reduce_sum(tf.sin(x), [1, 2, 3], keepdims=True)[:, 0, 0], []),
        (
            lambda: training(network(KERAS.BatchNormalization(), KERAS.ReLU())),
            ["coupled_examples"],
        ),
        (
            lambda: training(network(KERAS.ReLU(), head=KERAS.BatchNormalization())),
            ["coupled_examples", "zero_gradient"],
        ),
        (lambda: minibatch_stddev, ["coupled_examples"]),
        (lambda: constant_batch_statistics, ["coupled_examples"]),
        (lambda: even_batch_statistics, ["coupled_examples"]),
        (lambda: weakly_coupled, ["coupled_examples"]),
        (
            lambda: training(network(KERAS.BatchNormalization(), KERAS.ReLU(), KERAS.Dropout(0.5))),
            ["random_scores", "coupled_examples"],
        ),
        (lambda: training(network(KERAS.ReLU(), KERAS.Dropout(0.5))), ["random_scores"]),
        (network, ["constant_gradient"]),
        (lambda: lambda x: 0.0 * tf.reduce_sum(x, [1, 2, 3]), ["zero_gradient"]),
        (lambda: lambda x: tf.zeros([12]), ["no_gradient"]),
        (
            lambda: lambda x: tf.cast(tf.argmax(tf.reshape(x, [12, -1]), 1), tf.float32),
            ["no_gradient"],
        ),
        (lambda: lambda x: tf.zeros([2, 12]), ["score_shape"]),
        (lambda: lambda x: tf.zeros([12, 0]), ["score_shape"]),
        (lambda: lambda x: {"one": x[:, 0, 0, 0], "two": x[:, 1, 0, 0]}, ["score_shape"]),
        (lambda: lambda x: (tf.zeros([12]), tf.zeros([12, 3])), ["score_shape"]),
        (lambda: tf.reduce_sum, ["score_shape"]),
        (lambda: lambda x: tf.zeros([12], tf.int32), ["score_dtype"]),
        (lambda: lambda x: tf.math.log(tf.reduce_sum(x, [1, 2, 3])), ["not_finite"]),
        (lambda: lambda x: tf.reduce_sum(tf.sqrt(tf.nn.relu(x)), [1, 2, 3]), ["not_finite"]),
        (
            lambda: lambda x: without_second_derivative(x) + WEIGHT[0],
            ["no_second_derivative"],
        ),
        (
            lambda: (
                lambda x: tf.reduce_sum(
                    tf.tanh(tf.image.resize(x * WEIGHT, [16, 16], "bicubic")), [1, 2, 3]
                )
            ),
            ["no_second_derivative"],
        ),
    ],
)
def test_properties_of_critics_are_found(critic, expected):
    findings = losses.check_critic(critic(), EXAMPLES)
    assert names(findings) == expected
    harmless = {"zero_gradient", "constant_gradient", "random_scores"}
    for finding in findings:
        assert finding.fatal is (finding.name not in harmless)
        assert len(finding.message) > 30 and "\n" not in finding.message


def scores_after(activation):
    """Returns a critic of two layers with 7 hidden units, the first of which has a name."""
    inner = tf.Variable(tf.random.stateless_normal([192, 7], [0, 1]), name="inner")
    outer = tf.Variable(tf.random.stateless_normal([7, 1], [0, 2]), name="outer")
    return lambda x: activation(tf.reshape(x, [-1, 192]) @ inner / 14.0) @ outer


@tf.custom_gradient
def tanh_with_a_stopped_slope(x):
    return tf.tanh(x), lambda upstream: upstream * tf.stop_gradient(1 - tf.tanh(x) ** 2)


@tf.custom_gradient
def tanh_with_its_own_slope(x):
    return tf.tanh(x), lambda upstream: upstream * (1 - tf.tanh(x) ** 2)


@tf.custom_gradient
def rounded_as_if_smooth(x):
    return tf.round(x), lambda upstream: upstream


def straight_through(x):
    return tf.tanh(x + tf.stop_gradient(tf.round(x) - x))


def in_python(x):
    return tf.ensure_shape(tf.numpy_function(np.ones_like, [x], tf.float32), x.shape) * tf.tanh(x)


def in_a_loop(x):
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(2 * y)), (0, x))[1]


def in_a_branch(x):
    return tf.cond(tf.reduce_sum(x) > 1e6, lambda: x, lambda: tf.tanh(x))


def of_random_numbers(x):
    return tf.tanh(x + 1e-9 * tf.random.normal(x.shape))


WRONG = ["wrong_second_derivative"]


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        (tanh_with_its_own_slope, []),
        (tf.nn.relu, []),
        (tf.nn.gelu, []),
        (lambda x: tf.sort(x, axis=1) * tf.range(7.0), []),
        (in_a_loop, []),
        (in_a_branch, []),
        (of_random_numbers, []),
        (tf.function(tf.tanh), []),
        (tf.function(tf.nn.softmax, jit_compile=True), []),
        (lambda x: tf.map_fn(tf.tanh, x), []),
        (lambda x: tf.abs(tf.signal.fft(tf.cast(x, tf.complex64))), []),
        (tanh_with_a_stopped_slope, WRONG),
        (tf.function(tanh_with_a_stopped_slope), WRONG),
        (lambda x: tanh_with_a_stopped_slope(x) + tf.tanh(x), WRONG),
        (lambda x: tf.map_fn(tanh_with_a_stopped_slope, x), WRONG),
        (straight_through, ["estimated_gradient"]),
        (lambda x: tf.tanh(rounded_as_if_smooth(x)), ["estimated_gradient"]),
        (in_python, ["unchecked_second_derivative"]),
        (tf.recompute_grad(tf.tanh), ["no_second_derivative"]),
    ],
)
def test_second_derivatives_are_compared_with_finite_differences(activation, expected):
    findings = losses.check_critic(scores_after(activation), EXAMPLES)
    assert names(findings) == expected
    for finding in findings:
        assert finding.fatal is (finding.name in (*WRONG, "no_second_derivative"))
        assert "\n" not in finding.message
        if expected == WRONG:
            assert "inner" in finding.message
    without = losses.check_critic(scores_after(activation), EXAMPLES, finite_differences=False)
    assert names(without) == [name for name in expected if name == "no_second_derivative"]


def normalized_pixels(x):
    mean = tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(x - mean), -1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3)


def test_the_term_that_tf_nn_moments_omits_is_found():
    """It is large where the mean is that of a few values: three channels of a pixel."""
    for layer, expected in (
        (KERAS.LayerNormalization(), ["omitted_second_derivative"]),
        (KERAS.Lambda(normalized_pixels), []),
    ):
        tf.keras.utils.set_random_seed(0)
        findings = losses.check_critic(network(KERAS.Conv2D(3, 3), layer, KERAS.ReLU()), EXAMPLES)
        assert names(findings) == expected
        assert not any(finding.fatal for finding in findings)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("position", ["before", "after"])
def test_a_bilinear_resize_in_a_critic_is_found(activation, position):
    resize = KERAS.UpSampling2D(interpolation="bilinear")
    hidden = KERAS.Conv2D(4, 3, activation=activation, name="hidden")
    layers = [resize, hidden] if position == "before" else [hidden, resize]
    (finding,) = losses.check_critic(network(KERAS.Activation("tanh"), *layers), EXAMPLES)
    assert finding.name == "wrong_second_derivative" and finding.fatal
    assert "/kernel" in finding.message and "interpolation='nearest'" in finding.message
    nearest = KERAS.UpSampling2D(interpolation="nearest")
    layers = [nearest if layer is resize else KERAS.Conv2D(4, 3) for layer in layers]
    assert losses.check_critic(network(KERAS.Activation("tanh"), *layers), EXAMPLES) == []


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (lambda: [KERAS.LayerNormalization([1, 2, 3]), KERAS.Activation("gelu")], []),
        (lambda: [KERAS.ReLU(), KERAS.MaxPooling2D(), KERAS.DepthwiseConv2D(2)], []),
        (lambda: [KERAS.Reshape([36, 8]), KERAS.MultiHeadAttention(2, 4)], []),
        pytest.param(lambda: [KERAS.Reshape([12, 24]), KERAS.LSTM(5)], [], marks=pytest.mark.slow),
        (lambda: [KERAS.Reshape([6, 6, 8, 1]), KERAS.MaxPooling3D(), KERAS.Activation("tanh")], []),
        (
            lambda: [KERAS.SpectralNormalization(KERAS.Conv2D(8, 3)), KERAS.Activation("tanh")],
            ["estimated_gradient"],
        ),
    ],
)
def test_layers_of_keras_with_a_second_derivative_are_accepted(layers, expected):
    *others, last = layers()
    inputs = tf.keras.Input([8, 8, 3])
    features = KERAS.Conv2D(8, 3)(inputs)
    for layer in others:
        features = layer(features)
    attention = isinstance(last, KERAS.MultiHeadAttention)
    features = last(features, features) if attention else last(features)
    scores = KERAS.Dense(1, kernel_initializer="zeros")(KERAS.Flatten()(features))
    critic = training(tf.keras.Model(inputs, scores))
    found = names(losses.check_critic(critic, EXAMPLES))
    # Where the last weights are 0, the gradient is 0; the second derivative is checked elsewhere.
    assert [name for name in found if name != "zero_gradient"] == expected


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("mlp", [2], {"critic_normalization": "spectral"}),
        ("dcgan", [8, 8, 1], {"critic_normalization": "layer"}),
        ("dcgan", [8, 8, 1], {"critic_normalization": "spectral"}),
        ("dcgan", [8, 8, 1], {"minibatch_stddev": 4}),
        ("conv1d", [16, 2], {"precision": "mixed_bfloat16"}),
        ("conv3d", [4, 8, 5, 2], {"critic_normalization": "layer"}),
        pytest.param("resnet", [32, 32, 3], {"fused_resampling": True}, marks=pytest.mark.slow),
        pytest.param(
            "resnet", [32, 32, 3], {"critic_normalization": "group"}, marks=pytest.mark.slow
        ),
        pytest.param("r3gan", [32, 32, 3], {"model_depth": 1}, marks=pytest.mark.slow),
    ],
)
def test_the_second_derivatives_of_the_networks_of_models_are_correct(name, shape, options):
    """Some of them contain custom gradients, which train.py does not check before each run."""
    _, critic = models.build(name, tuple(shape), 5, 8, **options)
    examples = tf.random.stateless_normal([8, *shape], [0, 1])
    group = options.get("minibatch_stddev", 1)
    findings = losses.check_critic(training(critic), examples, group_size=group)
    # The first vectors of spectral normalization are not yet the singular vectors.
    spectral = {"random_scores", "estimated_gradient"} if "spectral" in options.values() else set()
    assert set(names(findings)) <= {"constant_gradient"} | spectral


def test_a_critic_that_requires_the_number_of_its_examples_is_checked():
    """Tests a critic that is bound to labels: it is not called with fewer examples."""
    _, critic = models.build("mlp", (2,), 5, 8, classes=3, conditioning="concatenation")
    labels = tf.constant([0, 2, 1, 1])
    examples = tf.random.stateless_normal([4, 2], [0, 1])
    assert losses.check_critic(lambda x: critic([x, labels]), examples) == []


def test_the_check_does_not_change_the_state_of_a_critic():
    """Tests the vectors of spectral normalization: each call in Python refines them once."""
    calls = []
    for finite_differences in (True, False):
        tf.keras.utils.set_random_seed(0)
        layer = KERAS.SpectralNormalization(KERAS.Dense(5))
        critic = tf.keras.Sequential([tf.keras.Input([6]), layer, KERAS.Dense(1)])
        losses.check_critic(
            training(critic),
            tf.random.stateless_normal([8, 6], [0, 1]),
            finite_differences=finite_differences,
        )
        calls.append(layer.vector_u.numpy())
    np.testing.assert_array_equal(*calls)


def test_the_finding_names_the_operation_without_a_second_derivative():
    (finding,) = losses.check_critic(
        lambda x: tf.reduce_sum(tf.tanh(tf.image.resize(x * WEIGHT, [9, 9], "bicubic")), [1, 2, 3]),
        EXAMPLES,
    )
    assert "ResizeBicubicGrad" in finding.message


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("normalization", [None, "batch"])
def test_a_critic_in_mixed_precision(normalization, policy):
    """Tests that rounding to 8 bits neither resembles nor conceals dependent examples."""
    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        layers = [KERAS.BatchNormalization()] if normalization else []
        critic = network(*layers, KERAS.LeakyReLU())
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    found = names(losses.check_critic(training(critic), EXAMPLES))
    assert found == (["coupled_examples"] if normalization else [])


def test_batch_normalization_before_a_linear_head_makes_the_penalty_one():
    """Tests that the gradient is 0, so that the penalty is the squared target."""
    critic = training(network(KERAS.ReLU(), head=KERAS.BatchNormalization()))
    value = losses.gradient_penalty(critic, EXAMPLES, -EXAMPLES)
    np.testing.assert_allclose(value, 1.0, atol=1e-3)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (tf.zeros([4, 2], tf.uint8), "example_batch must have a floating-point dtype"),
        (tf.zeros([1, 2]), "with B >= 2"),
        (tf.zeros([4]), "with B >= 2"),
        (tf.zeros([4, 2]), "must contain examples that differ"),
    ],
)
def test_check_critic_rejects_unsuitable_batches(batch, message):
    with pytest.raises(ValueError, match=message):
        losses.check_critic(lambda x: x, batch)


def test_the_norm_over_a_batch_of_64_gives_a_penalty_of_49():
    """Tests the closed form, (8 - 1)^2 for 64 examples with gradient norm 1."""
    (finding,) = losses.check_penalty(with_mistake(squared_norm=lambda g: tf.reduce_sum(g**2)))
    assert "49 where |w| = 1" in finding.message
    assert math.isclose((64**0.5 - 1) ** 2, 49)
