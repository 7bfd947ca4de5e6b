"""Comparison of the residual networks with the paper, and of their fused and plain forms."""

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
from models.convolutions import Conv2D, ConvMeanPool, UpsampleConv


def build(size=32, width=8, **choices):
    tf.keras.utils.set_random_seed(0)
    return models.build("resnet", (size, size, 3), 16, width, **choices)


def trainable(model):
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def scatter(model):
    """Sets all weights to random values, including biases, scales and moments."""
    generator = np.random.default_rng(7)
    for weight in model.weights:
        noise = 0.1 * generator.standard_normal(weight.shape)
        weight.assign(np.array(weight) + (np.abs(noise) if "variance" in weight.name else noise))


@pytest.mark.parametrize(
    ("choices", "of_generator", "of_critic"),
    [
        ({}, 1_204_483, 1_053_825),
        ({"classes": 10, "conditioning": "acgan"}, 1_218_307, 1_055_115),
    ],
)
def test_parameters_of_the_cifar10_networks(choices, of_generator, of_critic):
    generator, critic = models.build("resnet", (32, 32, 3), 128, 128, **choices)
    assert (trainable(generator), trainable(critic)) == (of_generator, of_critic)


def test_variances_of_initial_weights_are_those_of_the_paper():
    """Tests 4 / (fan_in + fan_out) for 3x3 kernels in residual paths, half of it for others."""
    for model in models.build("resnet", (32, 32, 3), 128, 128, classes=10, conditioning="acgan"):
        kernels = 0
        for layer in model.layers:
            for weight in layer.trainable_variables:
                values, name = np.array(weight), weight.name.split("/")[-1].split(":")[0]
                if name in ("bias", "beta"):
                    np.testing.assert_array_equal(values, 0)
                elif name == "gamma":
                    np.testing.assert_array_equal(values, 1)
                else:
                    kernels += 1
                    window = int(np.prod(values.shape[:-2]))
                    variance = 2 / (window * sum(values.shape[-2:]))
                    if "_conv_" in layer.name:
                        variance *= 2
                    # A uniform distribution is within sqrt(3) standard deviations.
                    assert np.abs(values).max() <= np.sqrt(3 * variance)
                    np.testing.assert_allclose(values.var(), variance, rtol=0.2, err_msg=layer.name)
        assert kernels == (11 if model.name == "generator" else 12)


class Reference:
    """The networks for CIFAR-10 in NumPy, with the weights of a model by layer name."""

    def __init__(self, model):
        self.weights = {
            layer.name: {
                weight.name.split("/")[-1].split(":")[0]: np.array(weight, np.float64)
                for weight in layer.weights
            }
            for layer in model.layers
        }

    def conv(self, x, name):
        kernel, bias = self.weights[name]["kernel"], self.weights[name]["bias"]
        size = kernel.shape[0] // 2
        padded = np.pad(x, [(0, 0), (size, size), (size, size), (0, 0)])
        height, width = x.shape[1:3]
        return bias + sum(
            padded[:, row : row + height, column : column + width] @ kernel[row, column]
            for row in range(kernel.shape[0])
            for column in range(kernel.shape[1])
        )

    def dense(self, x, name):
        return x @ self.weights[name]["kernel"] + self.weights[name]["bias"]

    def norm(self, x, name, labels=None):
        gamma, beta = self.weights[name]["gamma"], self.weights[name]["beta"]
        if gamma.ndim == 2:
            gamma, beta = gamma[labels][:, None, None], beta[labels][:, None, None]
        mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
        return gamma * (x - mean) / np.sqrt(variance + 1e-5) + beta

    def up(self, x, name, labels):
        h = np.maximum(self.norm(x, f"{name}_norm_1", labels), 0)
        h = self.conv(upsampled(h), f"{name}_conv_1")
        h = np.maximum(self.norm(h, f"{name}_norm_2", labels), 0)
        return self.conv(h, f"{name}_conv_2") + self.conv(upsampled(x), f"{name}_shortcut")

    def generator(self, latents, labels):
        x = self.dense(latents, "linear")
        x = x.reshape(len(x), 4, 4, -1)
        for index in (1, 2, 3):
            x = self.up(x, f"up_{index}", labels)
        x = np.maximum(self.norm(x, "normalization"), 0)
        return np.tanh(self.conv(x, "image"))

    def critic(self, images, pool=np.mean):
        h = np.maximum(self.conv(images, "down_1_conv_1"), 0)
        h = pooled(self.conv(h, "down_1_conv_2"))
        x = h + self.conv(pooled(images), "down_1_shortcut")  # pooling before the 1x1 convolution
        h = self.conv(np.maximum(x, 0), "down_2_conv_1")
        h = pooled(self.conv(np.maximum(h, 0), "down_2_conv_2"))
        x = h + pooled(self.conv(x, "down_2_shortcut"))  # pooling after the 1x1 convolution
        for name in ("block_3", "block_4"):
            h = self.conv(np.maximum(x, 0), f"{name}_conv_1")
            x = x + self.conv(np.maximum(h, 0), f"{name}_conv_2")
        features = pool(np.maximum(x, 0), axis=(1, 2))
        return self.dense(features, "score"), self.dense(features, "logits")


def upsampled(x):
    return x.repeat(2, axis=1).repeat(2, axis=2)


def pooled(x):
    return (x[:, ::2, ::2] + x[:, 1::2, ::2] + x[:, ::2, 1::2] + x[:, 1::2, 1::2]) / 4


@pytest.mark.parametrize("fused", [False, True])
def test_blocks_and_shortcuts_are_those_of_the_paper(fused):
    generator, critic = build(classes=10, conditioning="acgan", fused_resampling=fused)
    scatter(generator)
    scatter(critic)
    latents, labels = random(4, 16), np.array([3, 1, 4, 1])
    samples = generator([tf.constant(latents), tf.constant(labels)], training=True)
    expected = Reference(generator).generator(latents, labels)
    np.testing.assert_allclose(samples, expected, atol=2e-5)
    images = random(4, 32, 32, 3)
    for ours, theirs in zip(critic(images), Reference(critic).critic(images), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_the_sum_over_all_pixels_is_that_of_numpy():
    _, critic = build(classes=10, conditioning="acgan", critic_pooling="sum")
    scatter(critic)
    images = random(4, 32, 32, 3)
    for ours, theirs in zip(critic(images), Reference(critic).critic(images, np.sum), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("conditioning", ["acgan", "projection"])
def test_the_sum_over_8x8_pixels_is_64_times_the_mean(conditioning):
    """Compares the outputs without their biases, and the gradients."""
    real, fake = (tf.constant(random(4, 32, 32, 3, seed=seed)) for seed in (0, 1))
    labels = tf.constant([3, 1, 4, 1])
    found = {}
    for pooling in ("mean", "sum"):
        _, critic = build(classes=10, conditioning=conditioning, critic_pooling=pooling)
        scatter(critic)
        biases = [np.array(critic.get_layer("score").bias)]
        if conditioning == "acgan":
            biases.append(np.array(critic.get_layer("logits").bias))

        def outputs(images, critic=critic):
            inputs = [images, labels] if conditioning == "projection" else images
            return tf.nest.flatten(critic(inputs))

        def scores(images, outputs=outputs):
            return outputs(images)[0]

        pairs = zip(outputs(real), biases, strict=True)
        alpha = tf.fill([4], 0.3)
        found[pooling] = (
            [np.array(output) - bias for output, bias in pairs],
            np.array(losses.gradient_norm(scores, losses.interpolate(real, fake, alpha))),
            np.array(losses.gradient_penalty(scores, real, fake, alpha=alpha)),
        )
    (of_mean, norms, _), (of_sum, norms_of_sum, penalties) = found["mean"], found["sum"]
    for ours, theirs in zip(of_sum, of_mean, strict=True):
        np.testing.assert_allclose(ours, 64 * theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(norms_of_sum, 64 * norms, rtol=1e-4)
    np.testing.assert_allclose(penalties, (64 * norms.astype(np.float64) - 1) ** 2, rtol=1e-3)
    assert norms.min() > 0


@pytest.mark.parametrize(
    ("size", "channels_down", "channels_up"),
    [
        (48, [8, 16, 32, 64], [64, 32, 16, 8]),
        (64, [8, 16, 32, 64, 64], [64, 64, 32, 16, 8]),
        (128, [8, 16, 32, 64, 64, 64], [64, 64, 64, 32, 16, 8]),
    ],
)
def test_stages_for_larger_images_are_those_of_the_paper(size, channels_down, channels_up):
    generator, critic = build(size, critic_normalization="layer")
    stages = [layer.output.shape[-1] for layer in generator.layers if "_add" in layer.name]
    assert [generator.get_layer("reshape").output.shape[-1], *stages] == channels_up
    stages = [layer.output.shape[-1] for layer in critic.layers if "_add" in layer.name]
    assert [critic.get_layer("conv").filters, *stages] == channels_down
    assert critic.get_layer("flatten").input.shape[1:3] == ((6, 6) if size == 48 else (4, 4))
    assert sum("norm" in layer.name for layer in critic.layers) == 2 * len(stages)


def relative(ours, theirs):
    """Returns the largest difference, relative to the largest value."""
    return np.abs(np.array(ours) - np.array(theirs)).max() / np.abs(np.array(theirs)).max()


def derivatives(layer, x):
    """Returns outputs, their gradients, and those of a penalty on the gradient of the input."""
    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape(persistent=True) as inner:
            inner.watch(x)
            outputs = layer(x)
            value = tf.reduce_sum(tf.sin(outputs))
        gradients = inner.gradient(value, [x, layer.kernel])
        penalty = tf.reduce_sum((tf.norm(tf.reshape(gradients[0], [len(x), -1]), axis=1) - 1) ** 2)
    return [outputs, *gradients, outer.gradient(penalty, layer.kernel)]


@pytest.mark.slow
@pytest.mark.parametrize("kernel_size", [1, 3])
@pytest.mark.parametrize("kind", [ConvMeanPool, UpsampleConv])
def test_fused_layers_equal_plain_layers(kind, kernel_size, compute):
    x = random(3, 6, 8, 5)
    fused, plain = (kind(4, kernel_size, fused=fused) for fused in (True, False))
    for layer in (fused, plain):
        layer.build(x.shape)
        layer.kernel.assign(random(*layer.kernel.shape, seed=1))
    fused, plain = (
        compute(lambda layer=layer: derivatives(layer, tf.constant(x)))()
        for layer in (fused, plain)
    )
    for ours, theirs in zip(fused, plain, strict=True):
        assert relative(ours, theirs) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("size", [32, 48])
def test_fused_networks_equal_plain_networks(size):
    """Compares scores, samples, and the weight gradients of the loss and of the penalty."""
    results = []
    for fused in (True, False):
        generator, critic = build(size, fused_resampling=fused)
        scatter(generator)
        scatter(critic)

        def values_and_gradients(latents, real, generator=generator, critic=critic):
            with tf.GradientTape(persistent=True) as tape:
                fake = generator(latents, training=True)
                loss = tf.reduce_mean(critic(fake))
                penalty = tf.reduce_mean(
                    losses.gradient_penalty(critic, real, fake, alpha=tf.fill([4], 0.3))
                )
            weights = [*generator.trainable_variables, *critic.trainable_variables]
            of_loss = tape.gradient(loss, weights)
            of_penalty = tape.gradient(penalty, critic.trainable_variables)
            return fake, loss, penalty, *of_loss, *(g for g in of_penalty if g is not None)

        results.append(values_and_gradients(random(4, 16), random(4, size, size, 3)))
    for ours, theirs in zip(*results, strict=True):
        if np.abs(theirs).max() > 0:
            assert relative(ours, theirs) < 1e-4


@pytest.mark.slow
def test_fused_and_plain_networks_share_checkpoints(tmp_path):
    plain, fused = build(fused_resampling=False), build(fused_resampling=True)
    for model in plain:
        scatter(model)
    path = tf.train.Checkpoint(generator=plain[0], critic=plain[1]).save(str(tmp_path / "ckpt"))
    status = tf.train.Checkpoint(generator=fused[0], critic=fused[1]).restore(path)
    status.assert_consumed()
    images, latents = random(3, 32, 32, 3), random(3, 16)
    np.testing.assert_allclose(fused[1](images), plain[1](images), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fused[0](latents), plain[0](latents), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("size", [32, 48])
def test_canceled_biases_have_no_gradient_and_no_effect(size):
    """Tests biases that reach the last batch normalization directly or along shortcuts."""
    generator, _ = build(size)
    canceled = [layer for layer in generator.layers if getattr(layer, "bias_canceled", False)]
    assert len(canceled) == 9
    latents, target = random(8, 16), random(8, size, size, 3)

    def samples_and_gradients():
        with tf.GradientTape() as tape:
            samples = generator(latents, training=True)
            value = tf.reduce_sum(target * samples)
        return samples, tape.gradient(value, [layer.bias for layer in canceled])

    before, gradients = samples_and_gradients()
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, 0)
    for layer in canceled:
        layer.bias.assign(random(*layer.bias.shape))
    np.testing.assert_allclose(samples_and_gradients()[0], before, atol=1e-4)
    for layer in canceled:  # the gradient without the shortcut of zeros
        layer.bias_canceled = False
    computed = samples_and_gradients()[1]
    kernel = generator.get_layer("up_1_conv_1").kernel
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(target * generator(latents, training=True))
    scale = np.abs(tape.gradient(value, kernel)).max()
    assert max(np.abs(gradient).max() for gradient in computed) < 1e-4 * scale


def test_without_batch_normalization_no_bias_is_canceled():
    generator, _ = build(generator_normalization="none")
    assert not any(getattr(layer, "bias_canceled", False) for layer in generator.layers)


def test_a_strided_1x1_convolution_drops_unused_pixels_first():
    layer = Conv2D(4, 1, strides=2)
    x = random(2, 6, 6, 3)
    np.testing.assert_allclose(
        layer(x), tf.nn.conv2d(x, layer.kernel, 2, "SAME") + layer.bias, atol=1e-6
    )
