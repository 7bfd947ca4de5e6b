"""Comparison of batch, critic and spectral normalization with NumPy."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
from models.design import Design
from models.normalization import BatchNormalization, critic_normalizer
from models.spectral import spectrally_normalized
from tests.helpers.runs import strategy_over


def features(shape=(12, 5, 5, 4), mean=1.0):
    return (mean + 2 * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)


def expected(x, gamma=1.0, beta=0.0):
    mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    return gamma * (x - mean) / np.sqrt(variance + 1e-5) + beta


@pytest.mark.slow
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_one_pass_moments_are_accurate(mean):
    """Tests that a large mean reduces the accuracy only until it is accumulated."""
    x = features(mean=mean)
    norm = BatchNormalization()
    norm(x, training=True)
    first = np.abs(norm(x, training=True) - expected(x.astype(np.float64))).max()
    assert first < (1e-5 if mean < 10 else 5e-3)
    train = tf.function(lambda: norm(x, training=True))
    for _ in range(1000):
        outputs = train()
    np.testing.assert_allclose(outputs, expected(x.astype(np.float64)), atol=2e-5)


def test_gradients_are_those_of_the_keras_layer():
    x, upstream = tf.constant(features()), tf.constant(features()[::-1])
    ours, theirs = BatchNormalization(), tf.keras.layers.BatchNormalization(epsilon=1e-5)

    def gradients(norm):
        norm.build(x.shape)
        norm.gamma.assign([1.0, -2.0, 0.5, 3.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(upstream * norm(x, training=True) ** 2)
        return tape.gradient(value, [x, *norm.trainable_variables])

    for mine, other in zip(gradients(ours), gradients(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-4 * np.abs(other).max())


@pytest.mark.parametrize("replicas", [1, 4])
def test_moments_and_gradients_are_those_of_the_global_batch(replicas):
    strategy = strategy_over(replicas)
    with strategy.scope():
        norm = BatchNormalization()
        norm.build([None, 5, 5, 4])
    x = tf.constant(features())
    share = 12 // replicas

    def on_replica():
        index = tf.distribute.get_replica_context().replica_id_in_sync_group
        mine = x[index * share : (index + 1) * share]
        with tf.GradientTape() as tape:
            tape.watch(mine)
            outputs = norm(mine, training=True)
            value = tf.reduce_sum(outputs**3)
        return outputs, tape.gradient(value, mine)

    results = tf.function(lambda: strategy.run(on_replica))()
    outputs, gradient = (
        np.concatenate(strategy.experimental_local_results(each)) for each in results
    )
    np.testing.assert_allclose(outputs, expected(features()), atol=1e-5)
    single = BatchNormalization()
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(single(x, training=True) ** 3)
    np.testing.assert_allclose(gradient, tape.gradient(value, x), rtol=1e-4, atol=1e-5)
    for copy in strategy.experimental_local_results(
        getattr(norm.moving_mean, "_value", norm.moving_mean)
    ):
        np.testing.assert_allclose(copy, 0.01 * features().mean(axis=(0, 1, 2)), rtol=1e-5)


def test_each_class_has_a_scale_and_an_offset_and_all_classes_share_the_moments():
    x, labels = features(), np.arange(12) % 3
    norm = BatchNormalization(classes=3)
    norm.build([[None, 5, 5, 4], [None]])
    gamma, beta = (np.random.default_rng(seed).normal(size=[3, 4]) for seed in (1, 2))
    norm.gamma.assign(gamma)
    norm.beta.assign(beta)
    each = [values[labels][:, None, None] for values in (gamma, beta)]
    np.testing.assert_allclose(
        norm([x, labels], training=True), expected(x, *each), rtol=1e-4, atol=1e-5
    )


def test_sampling_uses_accumulated_moments():
    x = features()
    norm = BatchNormalization()
    for _ in range(3):
        norm(x, training=True)
    before = [np.array(weight) for weight in norm.weights]
    found = norm(x[:4], training=False)
    for weight, value in zip(norm.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)  # sampling does not update weights
    kept = 0.99**3
    mean = (1 - kept) * x.mean(axis=(0, 1, 2))
    variance = (1 - kept) * x.var(axis=(0, 1, 2)) + kept
    np.testing.assert_allclose(
        found, (x[:4] - mean) / np.sqrt(variance + 1e-5), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("shape", [(7, 4), (3, 3, 2, 5)])
def test_spectral_normalization_and_its_gradient_are_those_of_numpy(shape, compute):
    """Tests three power iterations (Miyato et al. 2018, algorithm 1 and equation 12)."""
    random = np.random.default_rng(0)
    kernel, upstream = (random.standard_normal(shape) for _ in range(2))
    start = random.standard_normal([shape[-1], 1])
    weight, direction = tf.Variable(kernel, dtype=tf.float32), tf.Variable(start, dtype=tf.float32)

    @compute
    def value_and_gradient():
        with tf.GradientTape() as tape:
            value = spectrally_normalized(tf.convert_to_tensor(weight), direction, update=True)
            total = tf.reduce_sum(value * upstream)
        return value, tape.gradient(total, weight)

    matrix, right = kernel.reshape(-1, shape[-1]), start
    for _ in range(3):
        left = matrix @ right
        left /= np.linalg.norm(left)
        right = matrix.T @ left
        right /= np.linalg.norm(right)
        largest = (left.T @ matrix @ right).item()
        value, gradient = value_and_gradient()
        np.testing.assert_allclose(value, kernel / largest, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(direction, right, rtol=1e-5, atol=1e-6)
        # The gradient of G . W / (u W v), in which u and v are constants.
        by_kernel = upstream / largest
        by_kernel -= (upstream * kernel).sum() / largest**2 * (left @ right.T).reshape(shape)
        np.testing.assert_allclose(gradient, by_kernel, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(7, 4), (3, 3, 2, 5)])
def test_spectral_norm_converges_to_the_largest_singular_value(shape):
    kernel = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    start = np.random.default_rng(1).standard_normal([shape[-1], 1])
    direction = tf.Variable(start, dtype=tf.float32)
    for _ in range(200):
        value = spectrally_normalized(tf.constant(kernel), direction, update=True)
    singular = np.linalg.svd(np.reshape(kernel, [-1, shape[-1]]), compute_uv=False)
    found = np.linalg.svd(np.reshape(value, [-1, shape[-1]]), compute_uv=False)
    np.testing.assert_allclose(found, singular / singular[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("channels", "groups"),
    [(3, 1), (8, 2), (50, 10), (70, 14), (128, 32), (129, 3), (300, 30), (1000, 25)],
)
def test_groups_are_as_many_as_possible_with_four_channels_each(channels, groups):
    sizes = {"latent_size": 4, "model_width": 8, "generator_width": 8}
    design = Design(example_shape=(8, 8, 1), **sizes)
    normalize = critic_normalizer(dataclasses.replace(design, critic_normalization="group"))
    made = tf.keras.Model(inputs := tf.keras.Input([2, 2, channels]), normalize(inputs, "name"))
    assert made.get_layer("name").groups == groups


@pytest.mark.parametrize(("kind", "groups"), [("layer", 1), ("group", 2), ("instance", 8)])
def test_critic_normalization_and_its_gradients_are_those_of_numpy(kind, groups, compute):
    """Compares with the definition, and gradients with its central differences in float64."""
    random = np.random.default_rng(0)
    x, upstream = random.standard_normal([2, 2, 3, 3, 8])
    gamma, beta = random.standard_normal([2, 8])
    design = Design(
        example_shape=(8, 8, 1),
        latent_size=4,
        model_width=8,
        generator_width=8,
        critic_normalization=kind,
    )
    inputs = tf.keras.Input([3, 3, 8])
    model = tf.keras.Model(inputs, critic_normalizer(design)(inputs, "normalization"))
    model.set_weights([gamma, beta])

    def by_definition(x, gamma, beta):
        each = x.reshape(2, 9, groups, 8 // groups)
        mean, variance = (f(axis=(1, 3), keepdims=True) for f in (each.mean, each.var))
        return gamma * ((each - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape) + beta

    @compute
    def value_and_gradients():
        given = tf.constant(x, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(given)
            value = model(given, training=True)
            total = tf.reduce_sum(value * upstream)
        return value, tape.gradient(total, [given, *model.trainable_variables])

    value, gradients = value_and_gradients()
    np.testing.assert_allclose(value, by_definition(x, gamma, beta), rtol=1e-4, atol=1e-5)
    arguments = (x, gamma, beta)
    for position, gradient in enumerate(gradients):
        expected = np.zeros_like(arguments[position])
        for place in np.ndindex(expected.shape):
            moved = []
            for step in (1e-5, -1e-5):
                changed = [each.copy() for each in arguments]
                changed[position][place] += step
                moved.append((by_definition(*changed) * upstream).sum())
            expected[place] = (moved[0] - moved[1]) / 2e-5
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("normalization", ["layer", "group", "instance"])
def test_the_second_derivative_of_a_normalized_critic_is_exact(normalization):
    """tf.nn.moments would omit a term, which is large if few values are normalized together."""
    _, critic = models.build(
        "dcgan", (8, 8, 1), 5, 8, critic_normalization=normalization, activation="tanh"
    )
    examples = tf.random.stateless_normal([4, 8, 8, 1], [0, 1])
    found = losses.check_critic(lambda x: critic(x, training=True), examples)
    assert "omitted_second_derivative" not in {finding.name for finding in found}
    keras_layer = tf.keras.layers.GroupNormalization
    exact = [layer for layer in critic.layers if isinstance(layer, keras_layer)]
    features = tf.random.stateless_normal([4, *exact[0].input.shape[1:]], [0, 2])
    same = keras_layer(exact[0].groups, epsilon=exact[0].epsilon)
    np.testing.assert_allclose(exact[0](features), same(features), atol=1e-5)
