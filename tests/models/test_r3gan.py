"""Tests of grouped convolutions, and of the networks of R3GAN."""

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
from models.grouped import GroupedConv2D


def random(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


def split_convolution(inputs, kernel, group_size):
    """Returns the grouped convolution as one convolution for each group."""
    groups = inputs.shape[-1] // group_size
    parts = zip(tf.split(inputs, groups, -1), tf.split(kernel, groups, -1), strict=True)
    return tf.concat([tf.nn.conv2d(x, k, 1, "SAME") for x, k in parts], -1)


def values_and_gradients(function, inputs, kernel):
    """Returns values, first gradients, and the gradients of the squared first gradient."""
    with tf.GradientTape() as outer:
        outer.watch([inputs, kernel])
        with tf.GradientTape() as inner:
            inner.watch([inputs, kernel])
            outputs = function(inputs, kernel)
            total = tf.reduce_sum(tf.sin(outputs))
        first = inner.gradient(total, [inputs, kernel])
        squared = tf.reduce_sum(first[0] ** 2)
    return [outputs, *first, *outer.gradient(squared, [inputs, kernel])]


@pytest.mark.parametrize(
    ("channels", "group_size"),
    [(16, 16), (32, 16), (96, 16), (256, 16), (6, 2), (160, 160), (12, 1)],
)
def test_a_grouped_convolution_has_the_values_and_gradients_of_other_forms(channels, group_size):
    layer = GroupedConv2D(channels, 3, group_size=group_size)
    inputs, kernel = random(2, 5, 4, channels), random(3, 3, group_size, channels, seed=1) / 10
    ours = values_and_gradients(layer.product, inputs, kernel)
    plain = values_and_gradients(lambda x, k: split_convolution(x, k, group_size), inputs, kernel)
    for one, other in zip(ours, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    # Without oneDNN, the CPU has no gradient of a native one.
    native = tf.nn.conv2d(inputs, kernel, 1, "SAME")
    np.testing.assert_allclose(ours[0], native, rtol=1e-4, atol=1e-5)


def test_a_grouped_convolution_rejects_channels_that_do_not_fit():
    with pytest.raises(ValueError, match="group_size=4 must divide filters=6"):
        GroupedConv2D(6, 3, group_size=4)
    with pytest.raises(ValueError, match="must have filters=8 channels, got 4"):
        GroupedConv2D(8, 3, group_size=4).build([None, 5, 5, 4])


def build(shape=(32, 32, 3), width=8, **choices):
    return models.build("r3gan", shape, 6, width, **{"model_depth": 1, **choices})


def updated(model):
    """Makes the residual branches of a network nonzero."""
    for index, weight in enumerate(model.trainable_variables):
        if not np.any(weight):
            weight.assign(0.1 * random(*weight.shape, seed=index))
    return model


@pytest.mark.parametrize(
    ("shape", "fused"), [((32, 32, 1), True), ((48, 48, 3), False), ((32, 64, 5), True)]
)
def test_shapes(shape, fused):
    generator, critic = build(shape, fused_resampling=fused)
    samples = updated(generator)(random(3, 6))
    assert samples.shape == (3, *shape)
    assert np.abs(samples).max() <= 1
    assert critic(samples).shape == (3, 1)


@pytest.mark.slow
def test_the_number_of_weights():
    width, latents, colors, depth = 16, 6, 3, 2
    channels = [width, 2 * width, 4 * width, 8 * width]
    blocks = depth * sum(c * 2 * c + 2 * c + 9 * 16 * 2 * c + 2 * c + 2 * c * c for c in channels)
    resampling = sum(c * 2 * c for c in channels[:-1])
    basis = 16 * channels[-1]
    generator, critic = build(width=width, model_depth=depth)
    shared = blocks + resampling + basis + colors * width
    assert generator.count_params() == shared + latents * channels[-1]
    assert critic.count_params() == shared + channels[-1] + 1


@pytest.mark.slow
def test_residual_branches_are_initially_zero_and_the_critic_linear():
    _, critic = build(width=16)
    first, second = random(2, 32, 32, 3), random(2, 32, 32, 3, seed=1)
    np.testing.assert_allclose(
        critic(first + second), critic(first) + critic(second), rtol=1e-4, atol=1e-4
    )
    found = losses.check_critic(critic, random(8, 32, 32, 3))
    assert [each.name for each in found] == ["constant_gradient"]


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_an_updated_critic_can_be_penalized(precision):
    _, critic = build(width=16, precision=precision)
    updated(critic)
    if precision == "float32":
        assert losses.check_critic(critic, random(8, 32, 32, 3)) == []
    with tf.GradientTape() as tape:
        penalty = losses.gradient_penalty(
            critic, random(4, 32, 32, 3), random(4, 32, 32, 3, seed=1), seed=[1, 2]
        )
    kernels = [each for each in critic.trainable_variables if len(each.shape) > 1]
    for gradient in tape.gradient(penalty, kernels):
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0


@pytest.mark.parametrize("conditioning", ["acgan", "projection", "concatenation"])
def test_samples_depend_on_labels(conditioning):
    generator, critic = build(classes=3, conditioning=conditioning)
    latents = tf.repeat(random(1, 6), 2, axis=0)
    first, second = updated(generator)([latents, tf.constant([0, 2])])
    assert np.abs(first - second).max() > 1e-3
    assert len(critic.inputs) == (1 if conditioning == "acgan" else 2)


def test_critic_normalization_is_an_error():
    with pytest.raises(models.DesignError, match="critic_normalization=layer does not apply"):
        build(critic_normalization="layer")


@pytest.mark.slow
def test_a_network_is_restored_from_a_keras_file(tmp_path):
    for model, inputs in zip(build(width=16), (random(2, 6), random(2, 32, 32, 3)), strict=True):
        path = str(tmp_path / f"{model.name}.keras")
        updated(model).save(path)
        loaded = tf.keras.models.load_model(path)
        np.testing.assert_array_equal(loaded(inputs), model(inputs))
