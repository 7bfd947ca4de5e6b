"""Tests of the networks for signals, rectangles and any number of channels."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
from models import conv1d, conv3d, dcgan, resnet
from models.conv1d import Conv1D, TransposedConv1D
from models.conv3d import Conv3D, TransposedConv3D
from models.convolutions import Conv2D
from models.normalization import BatchNormalization
from tests.helpers.runs import library_with, strategy_over

LATENTS = 6


def build(name, shape, width=8, **choices):
    tf.keras.utils.set_random_seed(0)
    return models.build(name, shape, LATENTS, width, **{"model_depth": 1, **choices})


def random(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


SHAPES = [
    ("conv1d", (4, 1)),
    ("conv1d", (5, 16)),
    ("conv1d", (15, 2)),
    ("conv1d", (16, 1)),
    ("conv1d", (97, 5)),
    ("conv1d", (1030, 2)),
    ("conv3d", (4, 1, 1, 3)),
    ("conv3d", (8, 8, 8, 1)),
    ("conv3d", (9, 14, 5, 2)),
    ("dcgan", (24, 12, 3)),
    ("dcgan", (9, 33, 16)),
    ("dcgan", (8, 8, 5)),
    ("dcgan", (31, 17, 2)),
    ("resnet", (32, 64, 2)),
    ("resnet", (96, 48, 16)),
    ("mlp", (7, 5)),
    ("mlp", (3, 4, 16)),
    ("mlp", (5,)),
]


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize(("name", "shape"), SHAPES)
def test_samples_have_the_shape_and_the_range_of_the_examples(name, shape, bounded):
    generator, critic = build(name, shape, bounded=bounded)
    for weight in generator.trainable_variables[-2:]:
        weight.assign(1000 * (0.5 - random(*weight.shape)))
    samples = generator(random(3, LATENTS), training=True)
    assert samples.shape == (3, *shape) and samples.dtype == tf.float32
    assert (np.abs(samples).max() <= 1) == (bounded and len(shape) > 1)
    assert generator.output_shape == (None, *shape)
    scores = critic(random(3, *shape), training=True)
    assert scores.shape == (3, 1) and scores.dtype == tf.float32 and np.ptp(scores) > 0


@pytest.mark.parametrize("normalization", ["none", "layer", "group", "instance", "spectral"])
@pytest.mark.parametrize(
    ("name", "shape"),
    [("conv1d", (21, 5)), ("conv1d", (4, 1)), ("dcgan", (9, 14, 2)), ("conv3d", (9, 4, 3, 2))],
)
def test_the_penalty_has_a_finite_gradient_in_every_kernel(name, shape, normalization):
    _, critic = build(name, shape, critic_normalization=normalization)
    with tf.GradientTape() as tape:
        penalty = tf.reduce_mean(
            losses.gradient_penalty(
                critic, random(5, *shape), random(5, *shape, seed=1), seed=[1, 2]
            )
        )
    kernels = [weight for weight in critic.trainable_variables if len(weight.shape) > 1]
    for gradient in tape.gradient(penalty, kernels):
        assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0


@pytest.mark.parametrize(
    ("length", "lengths"),
    [
        (4, [4, 2, 2]),
        (5, [5, 3, 3]),
        (15, [15, 8, 4]),
        (64, [64, 16, 4]),
        (100, [100, 25, 7]),
        (16384, [16384, 4096, 1024, 256, 64, 16]),  # WaveGAN
    ],
)
def test_lengths_of_the_features_of_a_signal(length, lengths):
    assert conv1d.reductions(length) == lengths


@pytest.mark.parametrize(
    ("sides", "shapes"),
    [
        ((64, 64, 64), [(64,) * 3, (32,) * 3, (16,) * 3, (8,) * 3, (4,) * 3]),  # 3D-GAN
        ((16, 33, 3), [(16, 33, 3), (8, 17, 3), (4, 9, 3), (2, 5, 3), (2, 3, 3)]),
        ((4, 1, 1), [(4, 1, 1), (2, 1, 1), (2, 1, 1)]),
    ],
)
def test_sides_of_the_features_of_a_volume(sides, shapes):
    assert conv3d.reductions(sides) == shapes


def test_channels_of_conv3d_are_those_of_3d_gan():
    for network in build("conv3d", (64, 64, 64, 1), width=64):
        kernels = [layer.kernel.shape for layer in network.layers if isinstance(layer, Conv3D)]
        channels = [1, 64, 128, 256, 512]
        if network.name == "generator":
            channels.reverse()
        pairs = itertools.pairwise(channels)
        assert [tuple(shape) for shape in kernels] == [(4, 4, 4, *pair) for pair in pairs]


@pytest.mark.parametrize("sides", [(8, 8, 8), (9, 4, 3)])
def test_convolutions_of_volumes_are_those_of_keras_and_the_other_is_their_transpose(sides):
    settings = conv3d._window(sides)
    conv = Conv3D(4, **settings, use_bias=False)
    x = random(2, *sides, 3)
    y = conv(x)
    keras = tf.keras.layers.Conv3D(
        4, settings["kernel_size"], strides=settings["strides"], padding="same", use_bias=False
    )
    keras.build(x.shape)
    keras.set_weights([np.array(conv.kernel)])
    np.testing.assert_allclose(y, keras(x), rtol=1e-4, atol=1e-5)
    upwards = TransposedConv3D(3, **settings, sides=sides, use_bias=False)
    upwards.build(y.shape)
    upwards.kernel.assign(tf.transpose(conv.kernel, [0, 1, 2, 4, 3]))
    z = random(*y.shape, seed=1)
    # The inner products <conv(x), z> and <x, transposed(z)> are equal.
    np.testing.assert_allclose(tf.reduce_sum(y * z), tf.reduce_sum(x * upwards(z)), rtol=1e-4)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_volumes_in_bfloat16_are_those_in_float32(transposed, seed):
    """TensorFlow's own gradient for the kernel is wrong on a CPU for these strides."""
    sides, settings = (3, 4, 3), {"kernel_size": [4, 4, 4], "strides": [1, 2, 1]}
    x = random(8, *((3, 2, 3) if transposed else sides), 4, seed=seed)

    def gradients(precision):
        given = {**settings, "sides": sides} if transposed else settings
        layer = (TransposedConv3D if transposed else Conv3D)(4, **given, dtype=precision)
        layer.build(x.shape)
        # Values that bfloat16 has, so that only the computation differs.
        layer.kernel.assign(tf.cast(tf.cast(random(4, 4, 4, 4, 4, seed=9), tf.bfloat16), "float32"))
        inputs = tf.cast(tf.cast(x, tf.bfloat16), "float32")
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = tf.reduce_sum(tf.cast(layer(inputs), tf.float32) ** 2)
        return tape.gradient(value, [inputs, layer.kernel])

    pairs = zip(gradients("float32"), gradients("mixed_bfloat16"), strict=True)
    for exact, rounded in pairs:
        assert np.linalg.norm(rounded - exact) < 0.02 * np.linalg.norm(exact)


def test_channels_of_conv1d_are_those_of_wavegan():
    generator, critic = build("conv1d", (16384, 1), width=64, classes=0)
    kernels = [layer.kernel.shape for layer in critic.layers if isinstance(layer, Conv1D)]
    channels = [1, 64, 128, 256, 512, 1024]
    assert [tuple(shape) for shape in kernels] == [
        (25, before, after) for before, after in itertools.pairwise(channels)
    ]
    assert generator.get_layer("reshape").output.shape[1:] == (16, 1024)
    _, constant = generator, build("conv1d", (64, 1), generator_channels="constant")[0]
    assert {layer.filters for layer in constant.layers if "conv" in layer.name} == {8}


@pytest.mark.parametrize(
    ("length", "strides", "size"), [(9, 4, 5), (16, 4, 25), (5, 2, 9), (2, 1, 3)]
)
def test_transposed_convolutions_are_the_transposes_of_convolutions(length, strides, size):
    """Tests <conv(x), y> = <x, transpose(y)>, and that a Keras layer has the same values."""
    x = random(2, length, 3)
    conv = Conv1D(4, size, strides=strides, use_bias=False)
    y = random(*conv(x).shape, seed=1)
    transpose = TransposedConv1D(3, size, strides=strides, sides=[length], use_bias=False)
    transpose.build(y.shape)
    transpose.kernel.assign(tf.transpose(tf.convert_to_tensor(conv.kernel), [0, 2, 1]))
    np.testing.assert_allclose(
        tf.reduce_sum(conv(x) * y), tf.reduce_sum(x * transpose(y)), rtol=1e-4
    )
    keras = tf.keras.layers.Conv1D(4, size, strides=strides, padding="same", use_bias=False)
    keras.build(x.shape)
    keras.set_weights([np.array(conv.kernel)])
    np.testing.assert_allclose(conv(x), keras(x), rtol=1e-4, atol=1e-5)


def test_every_weight_of_a_kernel_of_a_short_signal_is_used():
    """Tests that kernels are not longer than the signals that they see, and their padding."""
    for length in (4, 6, 11):
        _, critic = build("conv1d", (length, 1))
        with tf.GradientTape() as tape:
            score = tf.reduce_sum(critic(random(64, length, 1)))
        gradient = np.abs(tape.gradient(score, critic.get_layer("conv_1").kernel))
        used = gradient.max(axis=(1, 2)) > 0
        assert len(used) == 2 * length - 1
        assert used[1:-1].all() or used.sum() >= len(used) - 2  # the stride may skip the ends


def gradients_of(replicas, network):
    """Returns samples or scores of 12 examples, and gradients summed over the replicas."""
    strategy = strategy_over(replicas)
    with strategy.scope():
        pair = build("conv1d", (20, 2), critic_normalization="layer")
    model = pair[network == "critic"]
    inputs = random(12, 20, 2) if network == "critic" else random(12, LATENTS)
    share = 12 // replicas

    def on_replica():
        context = tf.distribute.get_replica_context()
        mine = inputs[context.replica_id_in_sync_group * share :][:share]
        with tf.GradientTape() as tape:
            outputs = model(mine, training=True)
            value = tf.reduce_sum(outputs**3)
        gradients = tape.gradient(value, model.trainable_variables)
        return outputs, context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)

    outputs, gradients = tf.function(lambda: strategy.run(on_replica))()
    local = strategy.experimental_local_results
    moments = [np.array(local(getattr(w, "_value", w))[0]) for w in model.non_trainable_variables]
    first = [np.array(local(each)[0]) for each in gradients]
    return np.concatenate(local(outputs)), first, moments


@pytest.mark.parametrize("network", ["generator", "critic"])
def test_conv1d_on_two_replicas_is_that_on_one(network):
    """Tests the outputs, the gradients and the moments of batch normalization."""
    (one, *expected), (two, *found) = (gradients_of(each, network) for each in (1, 2))
    np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5)
    assert bool(expected[1]) == (network == "generator")
    for ours, theirs in zip(itertools.chain(*expected), itertools.chain(*found), strict=True):
        scale = np.abs(ours).max()
        np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-5 * scale + 1e-5)


def test_batch_normalization_of_signals_is_over_examples_and_steps():
    x = np.random.default_rng(0).normal(2, 3, size=[6, 7, 4]).astype(np.float32)
    expected = (x - x.mean(axis=(0, 1))) / np.sqrt(x.var(axis=(0, 1)) + 1e-5)
    np.testing.assert_allclose(BatchNormalization()(x, training=True), expected, atol=1e-5)
    labels = np.arange(6) % 2
    norm = BatchNormalization(classes=2)
    norm.build([x.shape, labels.shape])
    norm.beta.assign([[0.0] * 4, [1.0] * 4])
    np.testing.assert_allclose(
        norm([x, labels], training=True), expected + labels[:, None, None], atol=1e-5
    )


def weights(model):
    return {
        f"{layer.name}/{weight.name.split('/')[-1].split(':')[0]}": tuple(weight.shape)
        for layer in model.layers
        for weight in layer.trainable_variables
    }


def test_a_dcgan_for_32_pixels_has_the_weights_of_earlier_versions():
    """Saved runs contain these names and shapes, in this order."""
    generator, critic = build("dcgan", (32, 32, 3))
    assert list(weights(generator).items()) == [
        ("dense/kernel", (6, 512)),
        ("dense/bias", (512,)),
        ("normalization_0/gamma", (32,)),
        ("normalization_0/beta", (32,)),
        ("conv_1/kernel", (5, 5, 16, 32)),
        ("normalization_1/gamma", (16,)),
        ("normalization_1/beta", (16,)),
        ("conv_2/kernel", (5, 5, 8, 16)),
        ("normalization_2/gamma", (8,)),
        ("normalization_2/beta", (8,)),
        ("image/kernel", (5, 5, 3, 8)),
        ("image/bias", (3,)),
    ]
    assert list(weights(critic).items()) == [
        ("conv_1/kernel", (5, 5, 3, 8)),
        ("conv_1/bias", (8,)),
        ("conv_2/kernel", (5, 5, 8, 16)),
        ("conv_2/bias", (16,)),
        ("conv_3/kernel", (5, 5, 16, 32)),
        ("conv_3/bias", (32,)),
        ("score/kernel", (512, 1)),
        ("score/bias", (1,)),
    ]


def test_a_resnet_for_32_pixels_has_the_weights_of_earlier_versions():
    generator, critic = build("resnet", (32, 32, 3))
    names = [f"up_{index}_{name}" for index in (1, 2, 3) for name in ("norm_1", "conv_1", "norm_2")]
    found = weights(generator)
    assert set(names) < {name.split("/")[0] for name in found} and len(found) == 36
    assert found["linear/kernel"] == (6, 4 * 4 * 8) and found["image/kernel"] == (3, 3, 8, 3)
    found = weights(critic)
    assert found["down_1_conv_1/kernel"] == (3, 3, 3, 8) and found["score/kernel"] == (8, 1)
    assert len(found) == 22


def test_a_transposed_rectangle_has_the_transposed_features():
    """Tests that the sides are not exchanged: a rectangle of 8x3 is reduced to 2x1."""
    generator, critic = build("dcgan", (24, 12, 3))
    assert generator.get_layer("reshape").output.shape[1:3] == (6, 3)
    assert dcgan.halvings(12, 24) == [(12, 24), (6, 12), (3, 6)]
    assert dcgan.halvings(9, 100) == [(9, 100), (5, 50), (3, 25)]
    assert dcgan.halvings(28, 28) == [(28, 28), (14, 14), (7, 7), (4, 4)]
    convs = [layer for layer in critic.layers if isinstance(layer, Conv2D)]
    assert [layer.output.shape[1:3] for layer in convs] == [(12, 6), (6, 3)]
    generator, _ = build("resnet", (48, 96, 1))
    assert generator.get_layer("reshape").output.shape[1:3] == (6, 12)


def test_supported_rectangles_are_those_that_can_be_halved():
    squares = []
    for height in range(4, 140):
        for width in range(4, 300, 4):
            shorter = min(height, width)
            halvings = len(resnet._channels(shorter, 8)) - 1
            sides = [side / 2**halvings for side in (height, width)]
            if models.MODELS["resnet"].supports((height, width)):
                assert all(side.is_integer() for side in sides) and 4 <= min(sides) < 8
                squares += [height] if height == width else []
            elif shorter in (32, 64, 128):
                assert not all(side.is_integer() for side in sides)
    assert squares == [32, 48, 64, 128]


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((2,), "mlp"),
        ((30,), "mlp"),
        ((64, 1), "conv1d"),
        ((4, 3), "conv1d"),
        ((3, 100), "mlp"),
        ((8, 8, 1), "mlp"),
        ((8, 9, 1), "dcgan"),
        ((4, 24, 1), "mlp"),  # too narrow for a dcgan
        ((24, 12, 3), "dcgan"),
        ((64, 64, 16), "dcgan"),
        ((8, 8, 8, 1), "conv3d"),
        ((2, 3, 4, 1), "conv3d"),
        ((2, 3, 2, 1), "mlp"),
    ],
)
def test_the_default_supports_the_examples(shape, name):
    assert models.MODELS.default(shape) == name
    models.check(None, shape)


def test_global_pooling_is_that_of_images_whose_shorter_side_is_32():
    models.check("resnet", (32, 64, 3), critic_pooling="sum")
    for name, shape in (("resnet", (64, 64, 3)), ("conv1d", (32, 1)), ("mlp", (32,))):
        with pytest.raises(
            models.DesignError, match="--critic_pooling=sum requires global pooling"
        ):
            models.check(name, shape, critic_pooling="sum")
    mean, total = (build("resnet", (32, 40, 1), critic_pooling=kind)[1] for kind in ("mean", "sum"))
    x = random(2, 32, 40, 1)
    np.testing.assert_allclose(8 * 10 * mean(x), total(x), rtol=1e-4, atol=1e-4)


def test_a_network_of_the_user_may_be_for_squares_or_signals_only():
    square = models.Model("dcgan", sizes="16", supports=lambda sides: sides == (16, 16))
    registry = models.Registry(
        {"square": square, "signals": models.Model("conv1d", kinds=("signals",))}
    )
    registry.check("square", (16, 16, 1))
    with pytest.raises(models.DesignError, match=r"16x32 pixels — use --image_size=16$"):
        registry.check("square", (16, 32, 1))
    with pytest.raises(models.DesignError, match="contains signals — use --model=signals"):
        registry.check("square", (16, 1))
    with pytest.raises(models.DesignError, match=r"contains points — use other data$"):
        registry.check("square", (16,))
    registry = registry.with_networks({"mine": None})
    assert [each.module for each in registry.check("mine", (16,))] == [None, None]


@pytest.mark.parametrize(
    ("name", "shape", "choices"),
    [
        ("conv1d", (21, 2), {"precision": "mixed_bfloat16", "bounded": False}),
        ("conv1d", (9, 1), {"classes": 3, "conditioning": "concatenation"}),
        ("dcgan", (9, 14, 2), {"condition_size": 2, "conditioning": "projection"}),
        ("conv3d", (4, 8, 3, 2), {"classes": 3, "conditioning": "projection"}),
        ("mlp", (4,), {"condition_size": 2, "conditioning": "concatenation"}),
    ],
)
def test_networks_can_be_kept_in_a_keras_file(name, shape, choices, tmp_path):
    pair = build(name, shape, **choices)
    labels = [tf.constant([0, 1, 2, 0])] if "classes" in choices else []
    labels = [random(4, 2)] if "condition_size" in choices else labels
    for network, inputs in zip(pair, (random(4, LATENTS), random(4, *shape)), strict=True):
        for weight in network.weights:
            weight.assign(0.1 + tf.abs(random(*weight.shape)))
        given = [inputs, *labels] if labels else inputs
        network.save(tmp_path / "network.keras")
        loaded = models.load(str(tmp_path / "network.keras"))
        np.testing.assert_array_equal(np.array(loaded(given)), np.array(network(given)))


def as_images(**options):
    """Returns conv1d as networks for the digits, whose 64 pixels are a signal."""
    generator, critic = models.build("conv1d", (64, 1), options["latent_size"], 4)
    latents, images = tf.keras.Input([options["latent_size"]]), tf.keras.Input([8, 8, 1])
    samples = tf.keras.layers.Reshape([8, 8, 1], dtype="float32")(generator(latents))
    scores = critic(tf.keras.layers.Reshape([64, 1], dtype="float32")(images))
    return (
        tf.keras.Model(latents, samples, name="generator"),
        tf.keras.Model(images, scores, name="critic"),
    )


@pytest.mark.slow
def test_conv1d_compiles_for_a_tpu(tmp_path):
    from tests.tpu.test_compile import compile_report  # noqa: PLC0415

    def build_networks(*arguments, **options):
        return as_images(**options)

    settings = {"dataset": "digits", "latent_size": 8, "batch_size": 16, "n_critic": 2}
    report = compile_report(tmp_path, "v5e-8", library_with(build_networks), **settings)
    assert report["replicas"] == 8
    for program in report["programs"].values():
        assert program["gradient_all_reduce_count"] == 1 and program["flops"] > 0
