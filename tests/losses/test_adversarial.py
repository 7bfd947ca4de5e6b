"""Adversarial and auxiliary losses against their formulas in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

import losses
from tests.helpers.runs import strategy_over

REAL = np.array([-2.0, -0.3, 0.0, 0.7, 1.0, 30.0])
FAKE = np.array([1.5, -0.4, 0.0, -1.0, 2.0, -30.0])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# name: critic's loss, its slopes by D(real) and D(fake); generator's loss, its slope.
EXPECTED = {
    "wasserstein": (FAKE - REAL, -1 + 0 * REAL, 1 + 0 * FAKE, -FAKE, -1 + 0 * FAKE),
    "logistic": (
        -np.log(sigmoid(REAL)) - np.log(sigmoid(-FAKE)),
        sigmoid(REAL) - 1,
        sigmoid(FAKE),
        -np.log(sigmoid(FAKE)),
        sigmoid(FAKE) - 1,
    ),
    "hinge": (
        np.maximum(0, 1 - REAL) + np.maximum(0, 1 + FAKE),
        -1.0 * (REAL < 1),
        1.0 * (FAKE > -1),
        -FAKE,
        -1 + 0 * FAKE,
    ),
    "least_squares": (
        ((REAL - 1) ** 2 + FAKE**2) / 2,
        REAL - 1,
        FAKE,
        (FAKE - 1) ** 2 / 2,
        FAKE - 1,
    ),
    # Written with tanh and exp, which do not overflow at the scores above.
    "relativistic": (
        np.logaddexp(0, FAKE - REAL),
        -(1 - np.tanh((REAL - FAKE) / 2)) / 2,
        (1 - np.tanh((REAL - FAKE) / 2)) / 2,
        np.logaddexp(0, REAL - FAKE),
        -(1 - np.tanh((FAKE - REAL) / 2)) / 2,
    ),
}


@pytest.mark.parametrize(
    ("compute", "dtype", "tolerance"),
    [("eager", "float64", 1e-12), ("xla", "float32", 1e-5)],
    indirect=["compute"],
)
@pytest.mark.parametrize("name", losses.ADVERSARIAL_LOSSES)
def test_values_and_slopes_are_those_of_the_formula(name, dtype, tolerance, compute):
    critic_loss, generator_loss, relativistic = losses.ADVERSARIAL_LOSSES[name]

    @compute
    def measure(real, fake):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([real, fake])
            for_critic = critic_loss(real, fake)
            for_generator = generator_loss(*[real] * relativistic, fake)
        slopes = tape.gradient(for_critic, [real, fake])
        return for_critic, *slopes, for_generator, tape.gradient(for_generator, fake)

    # [B, 1], as a Dense(1) gives it.
    measured = measure(tf.constant(REAL[:, None], dtype), tf.constant(FAKE[:, None], dtype))
    for ours, theirs in zip(measured, EXPECTED[name], strict=True):
        np.testing.assert_allclose(np.ravel(ours), theirs, rtol=tolerance, atol=tolerance)
        assert ours.dtype == dtype
    assert measured[0].shape == measured[3].shape == [len(REAL)]


@pytest.mark.parametrize("fake_dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", losses.ADVERSARIAL_LOSSES)
def test_losses_of_half_precision_scores_are_float32(name, dtype, fake_dtype):
    """0.01 is not a bfloat16, but its difference to 2 is computed from its rounded value."""
    critic_loss, generator_loss, relativistic = losses.ADVERSARIAL_LOSSES[name]
    real, fake = tf.constant([[0.01], [30.0]], dtype), tf.constant([[2.0], [-30.0]], fake_dtype)
    exact_real, exact_fake = (tf.cast(each, tf.float64) for each in (real, fake))
    for loss, arguments, exact in (
        (critic_loss, [real, fake], [exact_real, exact_fake]),
        (
            generator_loss,
            [*[real] * relativistic, fake],
            [*[exact_real] * relativistic, exact_fake],
        ),
    ):
        assert loss(*arguments).dtype == tf.float32
        np.testing.assert_allclose(loss(*arguments), loss(*exact), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "function",
    [
        losses.auxiliary.drift,
        losses.penalties.two_sided,
        losses.penalties.one_sided,
        losses.penalties.zero_centered,
    ],
    ids=lambda function: function.__name__,
)
def test_functions_of_one_number_are_computed_in_float32(function):
    """300 squared is infinite in float16, and 1.0078 squared is rounded in bfloat16."""
    for value, dtype in ((300.0, "float16"), (1.0078125, "bfloat16"), (3.0, "float64")):
        result = function(tf.constant([value], dtype))
        assert result.dtype == ("float64" if dtype == "float64" else "float32")
        np.testing.assert_allclose(result, function(tf.constant([value], tf.float64)), rtol=1e-6)


@pytest.mark.parametrize("shape", [[4, 3], [4, 3, 2, 1], [4, 1, 1, 1]])
def test_scores_of_patches_are_averaged(shape, compute):
    rng = np.random.default_rng(0)
    real, fake = rng.standard_normal([2, *shape])
    axes = tuple(range(1, len(shape)))

    @compute
    def measure(real, fake):
        return (
            losses.critic_loss(real, fake),
            losses.generator_loss(fake),
            losses.auxiliary.drift(real),
        )

    measured = measure(tf.constant(real), tf.constant(fake))
    expected = fake.mean(axes) - real.mean(axes), -fake.mean(axes), real.mean(axes) ** 2
    for ours, theirs in zip(measured, expected, strict=True):
        assert ours.shape == [4]
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    # One network may score more patches than there are in the other batch.
    np.testing.assert_allclose(
        losses.critic_loss(tf.constant(real), tf.constant(fake.mean(axes))), expected[0]
    )


def test_drift_is_the_squared_score(compute):
    np.testing.assert_allclose(compute(losses.auxiliary.drift)(tf.constant(REAL)), REAL**2)


def test_classification_loss_is_the_cross_entropy(compute):
    logits = np.random.default_rng(0).standard_normal([5, 3])
    labels = np.array([0, 2, 1, 1, 0])
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = -np.log(probabilities[np.arange(5), labels])
    loss = compute(losses.auxiliary.classification_loss)(tf.constant(logits), tf.constant(labels))
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    half = losses.auxiliary.classification_loss(tf.constant(logits, tf.bfloat16), labels)
    assert half.dtype == tf.float32
    np.testing.assert_allclose(half, expected, rtol=5e-2)


@pytest.mark.parametrize("kind", ["variable", "keras"])
@pytest.mark.parametrize("replicas", [0, 1, 4])
def test_clip_weights(replicas, kind):
    """Eagerly outside any strategy (0), on one device, on mirrored ones."""
    values = np.array([-3.0, -0.01, 0.2, 0.6], np.float32)
    strategy = strategy_over(replicas) if replicas else tf.distribute.get_strategy()
    with strategy.scope():
        if kind == "keras":
            layer = tf.keras.layers.Dense(1)
            layer.build([None, 4])
            layer.kernel.assign(values[:, None])
            weight = layer.kernel
        else:
            weight = tf.Variable(values)

    def clip():
        losses.auxiliary.clip_weights([weight], 0.5)

    if replicas:
        strategy.run(tf.function(clip))
        with strategy.scope():  # what one clips again stays as it is
            clip()
    else:
        clip()
    variable = weight if callable(weight.value) else weight.value
    for local in strategy.experimental_local_results(variable):
        np.testing.assert_array_equal(np.ravel(local), np.clip(values, -0.5, 0.5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.critic_loss(tf.zeros([]), tf.zeros([4])), "real_scores must have"),
        (lambda: losses.critic_loss(tf.zeros([4]), tf.zeros([4, 0])), "fake_scores must have"),
        (
            lambda: losses.critic_loss({"one": tf.zeros([4]), "two": tf.zeros([4])}, tf.zeros([4])),
            r"real_scores must be one tensor, got",
        ),
        (lambda: losses.critic_loss(tf.zeros([4]), tf.zeros([3])), "must have the same shape"),
        (
            lambda: losses.adversarial.hinge_critic_loss(tf.zeros([4]), tf.zeros([4], tf.float64)),
            "real_scores .float32. and fake_scores .float64. must have the same dtype",
        ),
        (
            lambda: losses.adversarial.logistic_critic_loss(
                tf.zeros([4], tf.int32), tf.zeros([4], tf.int32)
            ),
            "real_scores must have a floating-point dtype, got int32",
        ),
        (
            lambda: losses.adversarial.relativistic_generator_loss(
                tf.zeros([4]), tf.zeros([4], tf.int32)
            ),
            "^fake_scores must have a floating-point dtype, got int32",
        ),
        (lambda: losses.generator_loss(tf.zeros([])), "fake_scores must have shape"),
        (lambda: losses.auxiliary.drift(tf.zeros([4], tf.int32)), "real_scores must have"),
        (
            lambda: losses.auxiliary.classification_loss(tf.zeros([4]), tf.zeros([4], tf.int32)),
            r"logits must have shape \[B, K\]",
        ),
        (
            lambda: losses.auxiliary.classification_loss(tf.zeros([4, 3]), tf.zeros([4])),
            "labels must be",
        ),
        (
            lambda: losses.auxiliary.classification_loss(tf.zeros([4, 3]), tf.zeros([3], tf.int32)),
            "labels must be",
        ),
        (lambda: losses.auxiliary.clip_weights([], 0), "limit must be positive, got 0"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
