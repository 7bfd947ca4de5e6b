"""Tests of the networks: shapes, ranges, and the requirements of a gradient penalty."""

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
from models import resnet
from models.activations import LeakyReLU
from models.design import CONDITIONINGS, CRITIC_NORMALIZATIONS, GENERATOR_NORMALIZATIONS
from tests.helpers.runs import strategy_over
from wgan_gp import config

# The examples that each network supports, at the smallest size that has its structure.
IMAGES = [
    *(("dcgan", (size, size, channels)) for size in (8, 28, 48, 64) for channels in (1, 3)),
    *(("resnet", (size, size, 3)) for size in (32, 48, 64, 128)),
]
ALL = [*IMAGES, ("mlp", (2,)), ("mlp", (8, 8, 1))]
SMALL = [
    ("dcgan", (16, 16, 3)),
    ("mlp", (2,)),
    ("resnet", (32, 32, 3)),
    ("conv1d", (40, 2)),
    ("conv3d", (8, 9, 5, 2)),
]
LARGE = [("resnet", (48, 48, 3))]
OF_ALL = ("none", "layer", "spectral")
ONE_EACH = [*SMALL, *(pytest.param(*each, marks=pytest.mark.slow) for each in LARGE)]

POOLS = "--model=resnet --image_size=32"


def build(name, shape, latent_size=6, width=8, **choices):
    return models.build(name, shape, latent_size, width, **{"model_depth": 1, **choices})


def random(*shape):
    return tf.constant(np.random.default_rng(0).standard_normal(shape), tf.float32)


def trainable(model):
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape"), SMALL)
def test_initial_weights_depend_on_the_seed_and_differ_between_layers(name, shape):
    def kernels(seed):
        tf.keras.utils.set_random_seed(seed)
        pair = build(name, shape, model_depth=3, critic_normalization="spectral")
        weights = [weight for model in pair for weight in model.weights if len(weight.shape) > 1]
        return [np.array(weight).ravel() for weight in weights]

    first, again, other = kernels(0), kernels(0), kernels(1)
    for one, same, different in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(one, same)
        assert (one != different).any()
    assert len({kernel[:8].tobytes() for kernel in first}) == len(first)


@pytest.mark.parametrize(("name", "shape"), ALL)
def test_shapes_and_range(name, shape):
    generator, critic = build(name, shape)
    samples = generator(random(3, 6), training=True)
    assert samples.shape == (3, *shape)
    assert samples.dtype == tf.float32
    if len(shape) == 3:
        assert np.abs(samples).max() <= 1
    scores = critic(samples, training=True)
    assert scores.shape == (3, 1)
    assert np.ptp(scores) > 0


# All networks use the normalizations of models/normalization.py, so one network has all of them.
CRITICS = [
    (name, shape, kind)
    for name, shape in (*SMALL, *LARGE)
    for kind in CRITIC_NORMALIZATIONS
    if name == "dcgan" or (kind == "layer" if (name, shape) in LARGE else kind in OF_ALL)
]


@pytest.mark.parametrize(("name", "shape", "normalization"), CRITICS)
def test_scores_do_not_depend_on_other_examples(name, shape, normalization):
    """Tests that d D(x_i) / d x_j is 0 for i != j, unlike with batch normalization."""
    _, critic = build(name, shape, width=16, critic_normalization=normalization)
    # The tests of the losses compare the second derivatives with finite differences.
    found = losses.check_critic(
        lambda x: critic(x, training=True), random(6, *shape), finite_differences=False
    )
    # Power iteration changes the estimate, and therefore the scores, in every call. It has not yet
    # converged to the singular vectors, whose derivative would be exact.
    estimated = {"random_scores", "estimated_gradient"}
    allowed = estimated if normalization == "spectral" else set()
    assert {each.name for each in found} <= allowed
    points = random(5, *shape)
    with tf.GradientTape() as tape:
        tape.watch(points)
        score = critic(points, training=True)[2, 0]
    influence = np.abs(tape.gradient(score, points)).reshape(5, -1).sum(axis=1)
    assert influence[2] > 0
    np.testing.assert_array_equal(np.delete(influence, 2), 0)


@pytest.mark.parametrize(("name", "shape", "normalization"), CRITICS)
def test_the_penalty_has_a_gradient_in_every_kernel_of_the_critic(name, shape, normalization):
    _, critic = build(name, shape, width=16, critic_normalization=normalization)
    with tf.GradientTape() as tape:
        penalty = tf.reduce_mean(
            losses.gradient_penalty(critic, random(5, *shape), -random(5, *shape), seed=[1, 2])
        )
    kernels = [weight for weight in critic.trainable_variables if len(weight.shape) > 1]
    for gradient in tape.gradient(penalty, kernels):
        assert np.abs(gradient).max() > 0


def double_gradients(function, points):
    """Returns the square of a function, its gradient, and the gradient of the squared gradient."""
    with tf.GradientTape() as outer:
        outer.watch(points)
        with tf.GradientTape() as inner:
            inner.watch(points)
            value = function(points) ** 2
        gradient = inner.gradient(value, points)
        squared = tf.reduce_sum(gradient**2)
    return value, gradient, outer.gradient(squared, points)


@pytest.mark.parametrize("after_few_channels", [False, True])
@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_leaky_relu_has_the_values_and_gradients_of_tensorflow(slope, after_few_channels):
    points = random(64, 5)
    fast = double_gradients(LeakyReLU(slope, after_few_channels=after_few_channels), points)
    plain = double_gradients(lambda x: tf.nn.leaky_relu(x, slope), points)
    for ours, theirs in zip(fast, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("after_few_channels", [False, True])
def test_leaky_relu_has_no_second_derivative(after_few_channels):
    """Tests that the second derivative is None, not zeros that flow through the network."""
    points, upstream = random(64), random(64)
    with tf.GradientTape() as outer:
        outer.watch(points)
        with tf.GradientTape() as inner:
            inner.watch(points)
            value = LeakyReLU(0.0, after_few_channels=after_few_channels)(points)
        gradient = inner.gradient(value, points, upstream)
    assert outer.gradient(gradient, points) is None


def assert_equal_with_derivatives(ours, plain, points):
    for one, other in zip(
        double_gradients(ours, points), double_gradients(plain, points), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())


@pytest.mark.parametrize(
    ("name", "shape", "kind", "groups"),
    [
        ("dcgan", (16, 16, 3), "layer", 1),
        ("mlp", (2,), "layer", 1),
        ("resnet", (48, 48, 3), "layer", 1),
        ("dcgan", (16, 16, 3), "group", 8),
        ("mlp", (2,), "group", 4),
        ("dcgan", (16, 16, 3), "instance", 0),
        ("conv1d", (40, 2), "layer", 1),
        ("conv1d", (40, 2), "group", 8),
        ("conv3d", (8, 9, 5, 2), "instance", 0),
    ],
)
def test_critic_normalization_is_over_each_example(name, shape, kind, groups, monkeypatch):
    """Tests mean 0 and variance 1 of each group, and a scale and an offset of each channel."""
    monkeypatch.setattr("models.normalization.GROUPS", 8)
    _, critic = build(name, shape, width=16, model_depth=2, critic_normalization=kind)
    added = [layer for layer in critic.layers if "norm" in layer.name]
    assert added
    for layer in added:
        assert len(layer._inbound_nodes) == 1  # each layer is used once
        before = 3 + 2 * tf.random.normal([5, *layer.input.shape[1:]])
        channels = before.shape[-1]
        count = groups if kind != "instance" else channels
        after = np.reshape(layer(before), [5, -1, count, channels // count])
        np.testing.assert_allclose(after.mean(axis=(1, 3)), 0, atol=1e-4)
        np.testing.assert_allclose(after.var(axis=(1, 3)), 1, rtol=1e-2)
        if kind == "layer" and len(before.shape) == 4:
            assert np.abs(np.mean(layer(before), axis=-1)).max() > 0.1
        assert [tuple(weight.shape) for weight in layer.weights] == [(channels,)] * 2


@pytest.mark.parametrize(("name", "shape"), ONE_EACH)
def test_spectral_normalization_divides_by_the_largest_singular_value(name, shape):
    _, critic = build(name, shape, critic_normalization="spectral")
    layers = [layer for layer in critic.layers if getattr(layer, "kernel", None) is not None]
    assert layers
    for layer in layers:
        assert layer.spectral, layer.name
    inner = layers[-2]
    shaped = [int(side) for side in inner.input.shape[1:]]
    for _ in range(50):  # one power iteration per call
        inner(tf.zeros([1, *shaped]), training=True)
    matrix = np.reshape(inner.kernel, [-1, inner.kernel.shape[-1]])
    largest = np.linalg.svd(matrix, compute_uv=False)[0]
    direction = np.array(inner.direction)
    examples = random(3, *shaped)
    outputs = inner(examples)  # inference does not update the estimate
    np.testing.assert_array_equal(inner.direction, direction)
    unbiased = inner.product(examples, tf.convert_to_tensor(inner.kernel)) / largest
    np.testing.assert_allclose(outputs, unbiased, rtol=1e-3, atol=1e-5)


def test_spectral_normalization_is_equal_on_one_and_four_replicas():
    def scores(replicas):
        strategy = strategy_over(replicas)
        tf.keras.utils.set_random_seed(0)
        with strategy.scope():
            _, critic = build("mlp", (2,), critic_normalization="spectral")
        examples = random(8, 2)
        for _ in range(3):
            results = strategy.run(lambda: critic(examples, training=True))
        return strategy.experimental_local_results(results)

    (one,) = scores(1)
    for other in scores(4):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("conditioning", ["acgan", "projection"])
@pytest.mark.parametrize(("name", "shape"), ONE_EACH)
def test_labels_reach_generator_and_critic(name, shape, conditioning):
    generator, critic = build(name, shape, classes=3, conditioning=conditioning)
    for weight in generator.weights:  # all classes have equal initial values
        if weight.shape[:1] == (3,):
            weight.assign(random(*weight.shape))
    latents = tf.tile(random(1, 6), [3, 1])
    samples = np.array(generator([latents, tf.range(3)], training=False))
    assert np.abs(samples[1:] - samples[:-1]).reshape(2, -1).max(axis=1).min() > 1e-3
    if conditioning == "acgan":
        scores, logits = critic(samples)
        assert (scores.shape, logits.shape, logits.dtype) == ((3, 1), (3, 3), tf.float32)
    else:
        same = tf.repeat(samples[:1], 3, axis=0)
        scores = np.array(critic([same, tf.range(3)]))
        assert scores.shape == (3, 1) and len(np.unique(scores)) == 3


def test_projection_is_the_inner_product_with_the_embedding_of_the_label():
    _, critic = build("mlp", (2,), classes=3, conditioning="projection")
    points, labels = random(4, 2), tf.constant([0, 2, 1, 2])
    features = tf.keras.Model(critic.inputs[0], critic.get_layer("activation_1").output)(points)
    embedding = np.array(critic.get_layer("projection").kernel)
    score = critic.get_layer("score")
    expected = score(features)[:, 0] + np.sum(features * embedding[:, [0, 2, 1, 2]].T, axis=1)
    np.testing.assert_allclose(critic([points, labels])[:, 0], expected, rtol=1e-5)


def test_the_choices_are_those_of_the_configuration():
    assert config.GENERATOR_NORMALIZATIONS == GENERATOR_NORMALIZATIONS
    assert config.CRITIC_NORMALIZATIONS == CRITIC_NORMALIZATIONS
    assert config.CONDITIONINGS == CONDITIONINGS


@pytest.mark.parametrize(("name", "shape"), SMALL)
def test_bfloat16_keeps_variables_outputs_and_the_penalty_in_float32(name, shape):
    """Tests that results differ from those in float32 only by the rounding of bfloat16."""
    tf.keras.utils.set_random_seed(0)
    plain_generator, plain = build(name, shape, width=32)
    tf.keras.utils.set_random_seed(0)
    generator, critic = build(name, shape, width=32, precision="mixed_bfloat16")
    assert {tf.as_dtype(weight.dtype) for weight in generator.weights} == {tf.float32}
    hidden = [layer.compute_dtype for layer in critic.layers if hasattr(layer, "filters")]
    assert "bfloat16" in hidden
    assert generator(random(3, 6)).dtype == tf.float32
    np.testing.assert_allclose(generator(random(3, 6)), plain_generator(random(3, 6)), atol=0.05)
    real, fake = random(8, *shape), random(8, *shape)[::-1]
    penalties = []
    for each in (plain, critic):
        with tf.GradientTape() as tape:
            penalty = losses.gradient_penalty(each, real, fake, alpha=tf.fill([8], 0.3))
        gradients = tape.gradient(penalty, each.trainable_variables[0])
        assert penalty.dtype == tf.float32 and np.isfinite(gradients).all()
        penalties.append(np.array(penalty))
    np.testing.assert_allclose(penalties[1], penalties[0], rtol=0.05, atol=0.01)


def test_settings_of_the_hard_networks():
    tanh = {"activation": "tanh"}
    for model in build("dcgan", (16, 16, 3), **tanh):
        kinds = {type(layer).__name__ for layer in model.layers}
        assert "LeakyReLU" not in kinds and "Activation" in kinds
    generator, _ = build("dcgan", (64, 64, 3), generator_normalization="none")
    assert not any("normalization" in layer.name for layer in generator.layers)
    assert all(layer.use_bias for layer in generator.layers if "conv" in layer.name)
    generator, critic = build("dcgan", (64, 64, 3), generator_channels="constant", width=64)
    assert {layer.filters for layer in generator.layers if "conv" in layer.name} == {64}
    assert [layer.filters for layer in critic.layers if "conv" in layer.name] == [64, 128, 256, 512]
    generator, critic = models.build(
        "dcgan", (64, 64, 3), 128, generator_model="mlp", generator_width=512, model_depth=4
    )
    units = [layer.filters for layer in generator.layers if hasattr(layer, "filters")]
    assert units == [512] * 4 + [64 * 64 * 3] and critic.get_layer("conv_4").filters == 512


def test_default_widths_are_those_of_the_registry():
    generator, critic = models.build("mlp", (2,), latent_size=6)
    width = models.MODELS["mlp"].width
    assert critic.count_params() == (2 + 1) * width + 2 * (width + 1) * width + width + 1
    assert generator.count_params() == (6 + 1) * width + 2 * (width + 1) * width + 2 * (width + 1)
    # A generator of a different network has the default of that network.
    generator, critic = models.build("dcgan", (8, 8, 1), 6, 16, generator_model="mlp")
    assert generator.get_layer("dense_1").filters == width
    assert sum("dense" in layer.name for layer in generator.layers) == 3
    generator, _ = models.build("dcgan", (8, 8, 1), 6, 16, generator_width=4)
    assert generator.get_layer("conv_1").filters == 4


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("dcgann", (8, 8, 1), "--model=dcgann is unknown — use one of mlp, dcgan, resnet"),
        (
            "dcgan",
            (7, 7, 1),
            "--model=dcgan does not support images of 7x7 pixels — use --image_size=8 or more",
        ),
        ("dcgan", (7, 16, 1), "7x16 pixels"),
        (
            "dcgan",
            (2,),
            "--model=dcgan generates images, but the dataset contains points — use --model=mlp",
        ),
        ("resnet", (40, 40, 3), "--image_size=32, 48, 64 or 128, or HxW .*, or --model=mlp"),
        ("resnet", (48, 100, 3), "48x100 pixels — use --image_size=32, 48, 64 or 128, or HxW"),
        (
            "dcgan",
            (64, 2),
            "--model=dcgan generates images, .* contains signals — use --model=mlp, conv1d",
        ),
        (
            "conv1d",
            (8, 8, 1),
            "--model=conv1d generates signals, .* contains images — use --model=mlp, dcgan",
        ),
        (
            "conv3d",
            (3, 2, 2, 1),
            "volumes of 3x2x2 voxels — use volumes whose longest side has 4 or more voxels, or",
        ),
        ("dcgan", (8, 8, 8, 1), "contains volumes — use --model=mlp, conv3d"),
        ("mlp", (2, 3, 4, 5, 6), "examples of shape .* — use points, signals, images, volumes"),
        ("conv3d", (8, 8, 1), "generates volumes, but the dataset contains images"),
        ("conv1d", (3, 2), "signals of 3 steps — use signals of 4 or more steps, or --model=mlp"),
    ],
)
def test_unsupported_combinations_are_errors(name, shape, message):
    with pytest.raises(models.DesignError, match=message):
        models.build(name, shape, latent_size=6)


def test_build_and_check_accept_all_settings():
    settings = {
        "model": "resnet",
        "generator_model": "mlp",
        "latent_size": 6,
        "model_width": 4,
        "generator_width": None,
        "model_depth": None,
        "conditioning": "projection",
        "activation": "tanh",
        "generator_normalization": "none",
        "generator_channels": "constant",
        "critic_normalization": "layer",
        "critic_pooling": "mean",
        "attention": 0,
        "minibatch_stddev": 2,
        "precision": "float32",
    }
    assert set(settings) == set(config.NetworkSettings().design)
    pair = models.check(**settings, example_shape=(32, 32, 3))
    assert pair == (models.MODELS["resnet"], models.MODELS["mlp"])
    generator, critic = models.build(**settings, example_shape=(32, 32, 3), classes=3)
    assert len(generator.inputs) == len(critic.inputs) == 2
    assert generator.get_layer("dense_1").filters == models.MODELS["mlp"].width
    assert models.check(None, (2,)) == 2 * (models.MODELS["mlp"],)


@pytest.mark.parametrize("function", [models.build, models.check])
def test_an_unknown_setting_is_an_error(function):
    with pytest.raises(TypeError, match="widht"):
        function("mlp", (2,), latent_size=6, widht=4)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"generator_normalization": "none", "conditioning": "acgan", "classes": 10},
            "no access to labels.* — use --generator_normalization=batch or film, or --generator_",
        ),
        ({"critic_normalization": "layer"}, "layer does not apply to --model=narrow — use none"),
    ],
)
def test_unsupported_settings_are_errors(choices, message):
    registry = models.Registry({"narrow": models.Model("dcgan", critic_normalizations=("none",))})
    with pytest.raises(models.DesignError, match=message):
        registry.build("narrow", (32, 32, 3), 6, **choices)


def test_images_that_cannot_be_resized_are_not_to_be_resized():
    with pytest.raises(models.DesignError, match="use images of size 8 or more, or --model=mlp"):
        models.check("dcgan", (7, 7, 1), resizable=False)


def test_critic_pooling_requires_a_critic_with_pooling():
    pooled = [("resnet", (resnet.SMALL, resnet.SMALL, 3))]
    for name, shape in ALL:
        if (name, shape) in pooled:
            models.check(name, shape, critic_pooling="sum")
            continue
        with pytest.raises(ValueError, match=r"^--critic_pooling=sum requires global pooling"):
            models.check(name, shape, critic_pooling="sum")
        models.check(name, shape, critic_pooling="mean")
    with pytest.raises(ValueError, match=f"critic of --model=dcgan .* use {POOLS}"):
        models.build("dcgan", (32, 32, 3), 6, 8, critic_pooling="sum", generator_model="resnet")


def test_only_biases_before_batch_normalization_are_omitted():
    """Tests that the first layer keeps its biases, of which it has one per pixel and channel."""
    generator, _ = build("dcgan", (16, 16, 3))
    assert generator.get_layer("dense").use_bias
    assert not generator.get_layer("conv_1").use_bias and generator.get_layer("image").use_bias


@pytest.mark.parametrize("name", ["latent_size", "model_width", "generator_width", "model_depth"])
def test_a_size_of_zero_is_not_the_default(name):
    sizes = {"latent_size": 8, "model_width": 4, name: 0}
    with pytest.raises(models.DesignError, match=f"--{name}=0 is too small"):
        models.build("mlp", (2,), **sizes)


@pytest.mark.parametrize(
    "choices", [{"condition_size": 2}, {"minibatch_stddev": 2}, {"classes": 3}]
)
@pytest.mark.parametrize("model", ["mlp", "r3gan"])
def test_the_policy_of_the_caller_rounds_nothing(model, choices):
    """Design.precision says the precision, not the global policy of another project."""
    shape = (5,) if model == "mlp" else (32, 32, 1)
    conditioning = {} if "minibatch_stddev" in choices else "concatenation"
    settings = {**choices, **({"conditioning": conditioning} if conditioning else {})}
    built = []
    for policy in ("float32", "mixed_bfloat16"):
        tf.keras.config.set_dtype_policy(policy)
        try:
            tf.keras.utils.set_random_seed(0)
            built.append(models.build(model, shape, 6, 4, **settings))
        finally:
            tf.keras.config.set_dtype_policy("float32")
    random = np.random.default_rng(0)
    latents = random.normal(size=[4, 6]).astype(np.float32)
    examples = random.normal(size=[4, *shape]).astype(np.float32)
    labels = {
        "condition_size": random.normal(size=[4, 2]).astype(np.float32),
        "classes": np.arange(4, dtype=np.int32) % 3,
    }
    given = [labels[name] for name in choices if name in labels]
    for role, inputs in enumerate((latents, examples)):
        expected, found = (
            networks[role]([inputs, *given] if given else inputs) for networks in built
        )
        np.testing.assert_array_equal(found, expected)
