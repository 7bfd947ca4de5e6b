"""The networks: shapes, ranges, and what a gradient penalty asks of a critic."""

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
from models.layers import LeakyReLU

IMAGES = [("dcgan", (size, size, channels)) for size in (8, 16, 32, 64, 128) for channels in (1, 3)]
ALL = [*IMAGES, ("mlp", (2,)), ("mlp", (8, 8, 1))]


def random(*shape):
    return tf.constant(np.random.default_rng(0).standard_normal(shape), tf.float32)


@pytest.mark.parametrize(("name", "shape"), ALL)
def test_shapes_and_range(name, shape):
    generator, critic = models.build(name, shape, latent_size=6, width=8)
    samples = generator(random(3, 6), training=True)
    assert samples.shape == (3, *shape)
    assert samples.dtype == tf.float32
    if len(shape) == 3:
        assert np.abs(samples).max() <= 1
    scores = critic(samples, training=True)
    assert scores.shape == (3, 1)
    assert np.ptp(scores) > 0


@pytest.mark.parametrize("normalization", ["none", "layer"])
@pytest.mark.parametrize(("name", "shape"), [("dcgan", (16, 16, 3)), ("mlp", (2,))])
def test_no_example_influences_another_ones_score(name, shape, normalization):
    """A critic with batch-norm fails this: d D(x_i) / d x_j is 0 for i != j."""
    _, critic = models.build(
        name, shape, latent_size=6, width=16, critic_normalization=normalization
    )
    assert losses.check_critic(lambda x: critic(x, training=True), random(12, *shape)) == []
    points = random(5, *shape)
    with tf.GradientTape() as tape:
        tape.watch(points)
        score = critic(points, training=True)[2, 0]
    influence = np.abs(tape.gradient(score, points)).reshape(5, -1).sum(axis=1)
    assert influence[2] > 0
    np.testing.assert_array_equal(np.delete(influence, 2), 0)


@pytest.mark.parametrize(("name", "shape"), [("dcgan", (16, 16, 3)), ("mlp", (2,))])
def test_the_penalty_reaches_every_kernel_of_the_critic(name, shape):
    _, critic = models.build(name, shape, latent_size=6, width=16)
    with tf.GradientTape() as tape:
        penalty = tf.reduce_mean(
            losses.gradient_penalty(critic, random(5, *shape), -random(5, *shape), seed=[1, 2])
        )
    kernels = [weight for weight in critic.trainable_variables if len(weight.shape) > 1]
    for gradient in tape.gradient(penalty, kernels):
        assert np.abs(gradient).max() > 0


def test_dcgan_generator_batch_norm_is_synchronized():
    generator, _ = models.build("dcgan", (8, 8, 1), latent_size=6, width=4)
    norms = [
        layer for layer in generator.layers if isinstance(layer, tf.keras.layers.BatchNormalization)
    ]
    assert norms
    assert all(layer.synchronized for layer in norms)


@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_leaky_relu_is_the_plain_one_in_value_and_both_gradients(slope):
    points, direction = random(64, 5), random(64, 5)[::-1]

    def value_and_gradients(activation):
        with tf.GradientTape() as outer:
            outer.watch(points)
            with tf.GradientTape() as inner:
                inner.watch(points)
                value = activation(points) ** 2
            gradient = inner.gradient(value, points)
            along = tf.reduce_sum(gradient * direction)
        return value, gradient, outer.gradient(along, points)

    fast = value_and_gradients(LeakyReLU(slope))
    plain = value_and_gradients(lambda x: tf.nn.leaky_relu(x, slope))
    for ours, theirs in zip(fast, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize(("name", "shape"), [("dcgan", (16, 16, 3)), ("mlp", (2,))])
def test_layer_normalization_is_over_all_of_an_example(name, shape):
    """Moments over (H, W, C) together are 0 and 1; over the channels alone they are not.

    Each channel has a scale and an offset of its own.
    """
    _, critic = models.build(name, shape, latent_size=6, width=8, critic_normalization="layer")
    _, plain = models.build(name, shape, latent_size=6, width=8)
    added = [layer for layer in critic.layers if "normalization" in layer.name]
    assert len(critic.layers) == len(plain.layers) + len(added) and added
    for layer in added:
        before = 3 + 2 * tf.random.normal([5, *layer.input.shape[1:]])
        after = np.reshape(layer(before), [5, -1])
        np.testing.assert_allclose(after.mean(axis=1), 0, atol=1e-5)
        np.testing.assert_allclose(after.var(axis=1), 1, rtol=1e-3)
        channels = before.shape[-1]
        assert [tuple(weight.shape) for weight in layer.weights] == [(channels,)] * 2
        if len(before.shape) == 4:
            assert np.abs(np.mean(layer(before), axis=-1)).max() > 0.1


def test_default_width_is_the_registrys():
    generator, critic = models.build("mlp", (2,), latent_size=6)
    width = models.MODELS["mlp"].width
    assert critic.count_params() == (2 + 1) * width + 2 * (width + 1) * width + width + 1
    assert generator.count_params() == (6 + 1) * width + 2 * (width + 1) * width + 2 * (width + 1)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("dcgann", (8, 8, 1), "--model=dcgann is unknown — use one of mlp, dcgan"),
        ("dcgan", (12, 12, 1), "--image_size with one of 8, 16, 32, 64, 128"),
        ("dcgan", (8, 16, 1), "8x16 pixels"),
        ("dcgan", (2,), "use --model=mlp"),
    ],
)
def test_impossible_combinations_are_refused(name, shape, message):
    with pytest.raises(ValueError, match=message):
        models.build(name, shape, latent_size=6)
