"""Tests of self-attention in the residual networks."""

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

import losses
import models
from models.attention import Attention
from tests.helpers.runs import strategy_over

PARTS = ("queries", "keys", "values", "output")


def build(size=32, attention=16, **choices):
    tf.keras.utils.set_random_seed(0)
    return models.build("resnet", (size, size, 3), 6, 16, attention=attention, **choices)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_the_layers_compute_the_equations_of_the_paper():
    """Keras's layer computes the weighted means; NumPy the 1x1 convolutions and the sum."""
    _, critic = build()
    critic.get_layer("attention_add").scale.assign(0.7)
    x = random(2, 16, 16, 16)
    kernels = {part: np.array(critic.get_layer(f"attention_{part}").kernel)[0, 0] for part in PARTS}
    queries, keys, values = (
        (x @ kernels[part]).reshape(2, 256, 2) for part in ("queries", "keys", "values")
    )
    means = tf.keras.layers.Attention(use_scale=False)([queries, values, keys])
    expected = x + 0.7 * (np.array(means) @ kernels["output"]).reshape(x.shape)
    start = critic.get_layer("down_1_add").output
    layers = tf.keras.Model(start, critic.get_layer("attention_add").output)
    np.testing.assert_allclose(layers(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(32, 16), (32, 8), (48, 24), (64, 8), (128, 64)])
def test_attention_is_at_the_size_of_the_features_in_both_networks(size):
    for network in build(*size):
        attention = [layer for layer in network.layers if isinstance(layer, Attention)]
        assert [layer.output.shape[1:3] for layer in attention] == [(size[1], size[1])]
        assert [layer.name for layer in network.layers].count("attention_add") == 1


@pytest.mark.slow
def test_networks_are_initially_those_without_attention():
    inputs = random(2, 6), random(2, 32, 32, 3)
    pairs = zip(build(attention=8), build(attention=0), inputs, strict=True)
    for network, plain, x in pairs:
        for layer in plain.layers:
            if layer.weights:
                network.get_layer(layer.name).set_weights(layer.get_weights())
        np.testing.assert_array_equal(network(x), plain(x))
        network.get_layer("attention_add").scale.assign(1.0)
        assert np.abs(network(x) - plain(x)).max() > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("normalization", ["layer", "none"])
def test_scores_do_not_depend_on_other_examples_and_have_second_derivatives(normalization):
    _, critic = build(attention=8, critic_normalization=normalization, activation="tanh")
    critic.get_layer("attention_add").scale.assign(1.0)
    assert losses.check_critic(critic, random(3, 32, 32, 3)) == []
    with tf.GradientTape() as tape:
        penalty = losses.gradient_penalty(
            critic, random(2, 32, 32, 3), random(2, 32, 32, 3, seed=1), seed=[1, 2]
        )
    kernels = [critic.get_layer(f"attention_{part}").kernel for part in PARTS]
    scale = critic.get_layer("attention_add").scale
    for gradient in tape.gradient(penalty, [*kernels, scale]):
        assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0


def test_the_kernels_of_a_spectrally_normalized_critic_are_normalized():
    generator, critic = build(critic_normalization="spectral")
    for part in PARTS:
        assert critic.get_layer(f"attention_{part}").spectral
        assert not generator.get_layer(f"attention_{part}").spectral


def test_bfloat16_keeps_the_softmax_and_the_scale_in_float32():
    parts = [tf.constant(random(1, 4, 4, 8, seed=seed), tf.bfloat16) for seed in range(3)]
    found = Attention(dtype="mixed_bfloat16")(parts)
    queries, keys, values = (tf.reshape(part, [16, 8]) for part in parts)
    products = np.array(queries @ tf.transpose(keys)).astype(np.float64)
    weights = tf.cast(scipy.special.softmax(products, axis=1), tf.bfloat16)
    assert found.dtype == tf.bfloat16
    np.testing.assert_array_equal(tf.reshape(found, [16, 8]), weights @ values)
    _, critic = build(precision="mixed_bfloat16")
    assert critic.get_layer("attention_add").scale.dtype == tf.float32
    assert critic(random(2, 32, 32, 3)).dtype == tf.float32


@pytest.mark.slow
def test_gradients_on_four_replicas_are_those_on_one():
    images = random(8, 32, 32, 3)

    def gradients(replicas):
        strategy = strategy_over(replicas)
        with strategy.scope():
            _, critic = build(attention=8, activation="tanh")
            scale = critic.get_layer("attention_add").scale
            scale.assign(1.0)
        share = 8 // replicas

        def step():
            index = tf.distribute.get_replica_context().replica_id_in_sync_group
            x = tf.reshape(tf.constant(images), [replicas, share, 32, 32, 3])[index]
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(critic(x, training=True)) / 8
            found = tape.gradient(loss, critic.trainable_variables)
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, found)

        found = strategy.experimental_local_results(strategy.run(tf.function(step)))[0]
        return [np.array(each) for each in found]

    for one, four in zip(gradients(1), gradients(4), strict=True):
        np.testing.assert_allclose(one, four, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("resnet", {"attention": 32}, "--attention=32 is not a size .* 32 pixels — use 16 or 8"),
        ("resnet", {"attention": 4}, "use 16 or 8"),
        ("dcgan", {"attention": 8}, "--attention=8 does not apply to --model=dcgan — omit it, or"),
        (
            "resnet",
            {"attention": 8, "generator_model": "mlp"},
            "does not apply to --generator_model=mlp",
        ),
    ],
)
def test_other_sizes_and_networks_are_refused(name, settings, message):
    with pytest.raises(models.DesignError, match=message):
        models.check(name, (32, 40, 3), **settings)
