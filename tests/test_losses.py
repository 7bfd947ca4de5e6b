"""Closed forms: a linear critic w.x has the gradient w everywhere.

Each row of the known penalty mistakes that this module can make has its test here; the
name says which mistake it finds.
"""

import numpy as np
import pytest
import tensorflow as tf

import losses

BATCH = 64
SHAPE = (BATCH, 32, 32, 3)


def linear_critic(norm, shape=SHAPE):
    """x -> w.x with |w| = norm; returns `[B]`."""
    direction = np.random.default_rng(0).standard_normal(shape[1:])
    weights = tf.constant(norm * direction / np.linalg.norm(direction), tf.float32)
    return lambda x: tf.tensordot(tf.cast(x, tf.float32), weights, len(shape) - 1)


def images(seed, shape=SHAPE):
    return tf.constant(np.random.default_rng(seed).uniform(-1, 1, shape), tf.float32)


def penalty(critic, **options):
    return losses.gradient_penalty(critic, images(1), images(2), seed=[3, 4], **options)


def test_critic_loss_is_fake_minus_real_for_each_example():
    loss = losses.critic_loss(tf.constant([1.0, 2.0]), tf.constant([[5.0], [7.0]]))
    np.testing.assert_array_equal(loss, [4.0, 5.0])


def test_generator_loss_is_minus_the_score():
    np.testing.assert_array_equal(losses.generator_loss(tf.constant([[1.0], [-2.0]])), [-1.0, 2.0])


def test_interpolates_lie_on_the_line_with_one_alpha_per_example():
    real, fake = images(1), images(2)
    alpha = tf.linspace(0.0, 1.0, BATCH)
    weight = alpha.numpy()[:, None, None, None]
    np.testing.assert_allclose(
        losses.interpolate(real, fake, alpha), (1 - weight) * real + weight * fake, atol=1e-6
    )


def drawn_alphas(**options):
    """The alphas that gradient_penalty draws: it looks at 0 + alpha * (1 - 0)."""
    seen = []

    def critic(points):
        seen.append(points)
        return tf.reduce_sum(points, axis=[1, 2, 3])

    shape = (512, 2, 2, 1)
    losses.gradient_penalty(critic, tf.zeros(shape), tf.ones(shape), **options)
    return seen[0].numpy()


@pytest.mark.parametrize("options", [{}, {"seed": [1, 2]}])
def test_alpha_is_uniform_one_per_example(options):
    points = drawn_alphas(**options)
    assert np.ptp(points, axis=(1, 2, 3)).max() == 0  # not one per pixel
    alpha = points[:, 0, 0, 0]
    assert len(np.unique(alpha)) > 500  # not one for the batch
    assert alpha.min() >= 0 and alpha.max() < 1  # not normal
    assert abs(alpha.mean() - 0.5) < 0.05 and abs(alpha.std() - 12**-0.5) < 0.03


def test_alpha_follows_from_the_seed():
    np.testing.assert_array_equal(drawn_alphas(seed=[1, 2]), drawn_alphas(seed=[1, 2]))
    assert (drawn_alphas(seed=[1, 2]) != drawn_alphas(seed=[1, 3])).any()


def test_norm_is_per_example_and_over_all_of_it():
    # Over the whole batch the bug gives 49, over the channels alone about 0.94.
    assert penalty(linear_critic(1.0)).shape == [BATCH]
    np.testing.assert_allclose(penalty(linear_critic(1.0)), 0, atol=1e-10)


@pytest.mark.parametrize(
    ("norm", "options", "expected"),
    [
        (3.0, {}, 4.0),
        (0.5, {}, 0.25),
        (0.5, {"one_sided": True}, 0.0),
        (3.0, {"one_sided": True}, 4.0),
        (3.0, {"target": 0.0}, 9.0),
        (3.0, {"target": 2.5}, 0.25),
    ],
)
def test_linear_critic_has_the_closed_form(norm, options, expected):
    np.testing.assert_allclose(penalty(linear_critic(norm), **options), expected, rtol=1e-5)


def test_nothing_is_added_under_the_root():
    norm = losses.gradient_norm(linear_critic(1e-6), images(1))
    np.testing.assert_allclose(norm, 1e-6, rtol=1e-5)


def test_constant_critic_has_penalty_one_and_no_nan():
    weights = tf.Variable(tf.zeros(SHAPE[1:]))
    with tf.GradientTape() as tape:
        value = tf.reduce_mean(penalty(lambda x: tf.tensordot(x, weights, 3)))
    assert value == 1
    np.testing.assert_array_equal(tape.gradient(value, weights), np.zeros(SHAPE[1:]))


@pytest.mark.parametrize("compile_options", [{}, {"jit_compile": True}])
def test_weight_gradient_through_both_tapes(compile_options):
    """D(x) = a |x|^2 / 2 has the gradient a x, so d penalty / da = 2 (a|x| - 1) |x|."""
    scale, points = tf.Variable(0.7), images(1)

    @tf.function(**compile_options)
    def weight_gradient():
        with tf.GradientTape() as tape:
            value = losses.gradient_penalty(
                lambda x: scale * tf.reduce_sum(x**2, axis=[1, 2, 3]) / 2, points, points
            )
        return value, tape.gradient(value, scale)

    value, gradient = weight_gradient()
    norms = np.linalg.norm(points.numpy().reshape(BATCH, -1), axis=1)
    np.testing.assert_allclose(value, (0.7 * norms - 1) ** 2, rtol=1e-4)
    np.testing.assert_allclose(gradient, (2 * (0.7 * norms - 1) * norms).sum(), rtol=1e-4)


def test_no_gradient_reaches_the_images():
    real, fake = images(1), images(2)
    with tf.GradientTape() as tape:
        tape.watch([real, fake])
        value = losses.gradient_penalty(lambda x: tf.reduce_sum(x**2, [1, 2, 3]), real, fake)
    assert tape.gradient(value, [real, fake]) == [None, None]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_norm_is_taken_in_float32(dtype):
    points = tf.cast(images(1), dtype)
    norm = losses.gradient_norm(linear_critic(1.0), points)
    assert norm.dtype == tf.float32
    # The gradient's elements are rounded to half precision; their squares' sum is not.
    np.testing.assert_allclose(norm, 1.0, rtol=1e-3)


def test_objective_terms_add_up_and_leave_the_generator_alone():
    weights = tf.Variable(2.0)
    objective = losses.WassersteinGradientPenalty(penalty_weight=3.0)

    def critic(x):
        return tf.reduce_sum(tf.tanh(x), axis=[1, 2, 3])

    with tf.GradientTape() as tape:
        fake = weights * images(2)
        terms = objective.critic_terms(critic, images(1), fake, tf.linspace(0.0, 0.9, BATCH))
    assert set(terms) == set(objective.critic_term_names)
    assert all(term.shape == [BATCH] for term in terms.values())
    np.testing.assert_allclose(
        terms["loss"], -terms["wasserstein"] + 3 * terms["penalty"], rtol=1e-5
    )
    np.testing.assert_allclose(terms["wasserstein"], critic(images(1)) - critic(fake), rtol=1e-4)
    np.testing.assert_allclose(terms["penalty"], (terms["gradient_norm"] - 1) ** 2, rtol=1e-4)
    assert tape.gradient(terms["loss"], weights) is None


def test_objective_penalty_is_gradient_penalty():
    objective = losses.WassersteinGradientPenalty(one_sided=True, penalty_target=0.5)
    alpha = tf.linspace(0.0, 0.9, BATCH)

    def critic(x):
        return tf.reduce_sum(tf.sin(x), axis=[1, 2, 3]) / 32

    terms = objective.critic_terms(critic, images(1), images(2), alpha)
    expected = losses.gradient_penalty(
        critic, images(1), images(2), alpha=alpha, target=0.5, one_sided=True
    )
    np.testing.assert_allclose(terms["penalty"], expected, rtol=1e-6)


def test_generator_terms_carry_the_gradient_to_the_fakes():
    objective, fake = losses.WassersteinGradientPenalty(), tf.Variable(images(1))
    with tf.GradientTape() as tape:
        terms = objective.generator_terms(linear_critic(2.0), fake)
    assert set(terms) == set(objective.generator_term_names)
    gradient = tape.gradient(terms["loss"], fake)
    np.testing.assert_allclose(np.linalg.norm(gradient[0]), 2.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.critic_loss(tf.zeros([4, 2]), tf.zeros([4])), "real_scores must have"),
        (lambda: losses.critic_loss(tf.zeros([4]), tf.zeros([3])), "same size"),
        (lambda: losses.generator_loss(tf.zeros([])), "fake_scores must have"),
        (
            lambda: losses.interpolate(tf.zeros([4, 2]), tf.zeros([4, 3]), tf.zeros([4])),
            "one shape",
        ),
        (
            lambda: losses.interpolate(tf.zeros([4, 2]), tf.zeros([4, 2]), tf.zeros([4, 2])),
            "one value per example",
        ),
        (
            lambda: losses.interpolate(
                tf.zeros([4, 2], tf.uint8), tf.zeros([4, 2], tf.uint8), tf.zeros([4])
            ),
            "floating-point",
        ),
        (lambda: losses.gradient_norm(lambda x: tf.zeros([4]), tf.zeros([4, 2])), "is None"),
        (lambda: losses.gradient_norm(lambda x: x, tf.zeros([4, 2])), "critic's scores"),
        (
            lambda: losses.gradient_penalty(
                tf.identity, tf.zeros([4]), tf.zeros([4]), alpha=tf.zeros([4]), seed=[1, 2]
            ),
            "not both",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
