"""Tests of labels and continuous conditions as inputs of the networks."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
from models.heads import AppendChannels
from models.normalization import BatchNormalization, FeatureModulation

LATENTS, WIDTH, K = 6, 8, 2
SHAPES = {"mlp": (3,), "dcgan": (9, 10, 2), "conv1d": (21, 2), "conv3d": (8, 5, 4, 2)}
SHAPES["resnet"] = (32, 40, 1)
KINDS = {"labels": {"classes": 3}, "conditions": {"condition_size": K}}


def build(name, **choices):
    tf.keras.utils.set_random_seed(0)
    return models.build(name, SHAPES[name], LATENTS, WIDTH, **{"model_depth": 1, **choices})


def random(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


def given(kind):
    """Returns four labels or conditions, which differ."""
    return tf.constant([0, 1, 2, 1]) if kind == "labels" else random(4, K)


# The penalty does not depend on the kind, so the kinds alternate over the normalizations.
ALL = [
    (name, normalization, conditioning, kind)
    for name in ("mlp", "dcgan", "conv1d")
    for conditioning, kinds in (
        ("projection", itertools.cycle(KINDS)),
        ("concatenation", itertools.cycle(reversed(KINDS))),
    )
    for normalization, kind in zip(("none", "layer", "group", "spectral"), kinds, strict=False)
] + [
    ("conv3d", "layer", "projection", "conditions"),
    ("conv3d", "none", "concatenation", "labels"),
    ("resnet", "layer", "projection", "conditions"),
    ("resnet", "layer", "concatenation", "labels"),
]


@pytest.mark.parametrize(("name", "normalization", "conditioning", "kind"), ALL)
def test_critics_depend_on_labels_and_have_finite_second_gradients(
    name, normalization, conditioning, kind
):
    _, critic = build(
        name, critic_normalization=normalization, conditioning=conditioning, **KINDS[kind]
    )
    labels, examples = given(kind), random(4, *SHAPES[name])
    same = tf.repeat(examples[:1], 4, axis=0)
    scores = np.array(critic([same, labels]))[:, 0]
    assert len(np.unique(scores[:3])) == 3

    def bound(x):
        return critic([x, labels])

    with tf.GradientTape() as tape:
        penalty = losses.gradient_penalty(bound, examples, -examples, seed=[1, 2])
    variables = critic.trainable_variables
    gradients = tape.gradient(penalty, variables)
    for variable, gradient in zip(variables, gradients, strict=True):
        assert gradient is None or np.isfinite(gradient).all(), variable.name
    first = [v for v in variables if "kernel" in v.name or len(v.shape) > 1]
    assert all(
        np.abs(tape_gradient).max() > 0
        for tape_gradient in map_gradients(first, variables, gradients)
    )


def map_gradients(wanted, variables, gradients):
    by_id = {
        id(variable): gradient for variable, gradient in zip(variables, gradients, strict=True)
    }
    return [by_id[id(variable)] for variable in wanted]


@pytest.mark.parametrize(
    ("name", "normalization"),
    [
        *itertools.product(SHAPES, ["batch", "none"]),
        *((name, "film") for name in SHAPES if name != "mlp"),
    ],
)
def test_generators_depend_on_conditions(name, normalization):
    generator, _ = build(
        name, condition_size=K, conditioning="projection", generator_normalization=normalization
    )
    assert [tuple(each.shape) for each in generator.inputs] == [(None, LATENTS), (None, K)]
    latents = tf.repeat(random(1, LATENTS), 4, axis=0)
    samples = np.array(generator([latents, given("conditions")], training=False))
    changes = np.abs(samples[1:] - samples[:1]).reshape(3, -1).max(axis=1)
    assert (changes > 1e-4).all()


def test_scale_and_offset_are_linear_functions_of_the_condition():
    x, conditions = np.array(random(12, 5, 4)), np.array(random(12, K, seed=1))
    norm = BatchNormalization(condition_size=K)
    norm.build([x.shape, conditions.shape])
    plain = (x - x.mean(axis=(0, 1))) / np.sqrt(x.var(axis=(0, 1)) + 1e-5)
    np.testing.assert_allclose(norm([x, conditions], training=True), plain, atol=1e-5)
    drawn = {
        name: np.array(random(*getattr(norm, name).shape, seed=index))
        for index, name in enumerate(("gamma", "beta", "gamma_kernel", "beta_kernel"))
    }
    for name, value in drawn.items():
        getattr(norm, name).assign(value)
    scale = drawn["gamma"] + conditions @ drawn["gamma_kernel"]
    offset = drawn["beta"] + conditions @ drawn["beta_kernel"]
    expected = plain * scale[:, None] + offset[:, None]
    np.testing.assert_allclose(norm([x, conditions], training=True), expected, rtol=1e-4, atol=1e-4)
    again = BatchNormalization.from_config(norm.get_config())
    assert again.condition_size == K


def test_film_scales_and_shifts_each_channel_by_labels_or_conditions():
    x, conditions = np.array(random(4, 5, 3)), np.array(random(4, K, seed=1))
    labels = np.array([2, 0, 1, 1])
    for kind, given_to, chosen in (
        ({"classes": 3}, labels, lambda values, _: values[labels]),
        ({"condition_size": K}, conditions, lambda values, kernel: values + conditions @ kernel),
    ):
        film = FeatureModulation(**kind)
        np.testing.assert_allclose(film([x, given_to]), x, rtol=1e-6)  # initially
        for index, weight in enumerate(film.weights):
            weight.assign(random(*weight.shape, seed=index))
        kernels = [np.array(getattr(film, f"{name}_kernel", 0)) for name in ("gamma", "beta")]
        scale = chosen(np.array(film.gamma), kernels[0])[:, None]
        offset = chosen(np.array(film.beta), kernels[1])[:, None]
        np.testing.assert_allclose(film([x, given_to]), x * scale + offset, rtol=1e-5, atol=1e-6)
        again = FeatureModulation.from_config(film.get_config())
        assert again.get_config() == film.get_config()


def test_film_makes_samples_depend_on_labels_and_not_on_each_other():
    choices = {"conditioning": "acgan", "generator_normalization": "film", **KINDS["labels"]}
    generator, _ = build("resnet", **choices)
    for layer in generator.layers:
        if isinstance(layer, FeatureModulation):
            layer.gamma.assign(1 + 0.3 * random(*layer.gamma.shape))
    assert not generator.non_trainable_variables  # no moments
    assert not any(getattr(layer, "bias_canceled", False) for layer in generator.layers)
    latents = tf.repeat(random(1, LATENTS), 4, axis=0)
    labels = given("labels")
    samples = np.array(generator([latents, labels], training=True))
    assert np.abs(samples[0] - samples[1]).max() > 1e-4
    np.testing.assert_allclose(samples[1], samples[3], atol=1e-6)
    alone = generator([latents[:1], labels[:1]], training=True)
    np.testing.assert_allclose(samples[:1], alone, atol=1e-6)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"model": "resnet"}, "film requires labels or conditions, .* — give --conditioning"),
        ({"model": "mlp", "conditioning": "acgan"}, "does not apply to the generator of mlp, whi"),
        (
            {"model": "dcgan", "generator_model": "r3gan", "conditioning": "acgan"},
            "does not apply to the generator of r3gan",
        ),
    ],
)
def test_film_without_labels_or_layers_to_modulate_is_an_error(choices, message):
    with pytest.raises(models.DesignError, match=message):
        models.check(**choices, example_shape=(32, 32, 1), generator_normalization="film")


@pytest.mark.parametrize("normalization", ["batch", "film"])
def test_conditions_enter_every_normalization_of_a_generator(normalization):
    generator, _ = build(
        "conv1d",
        condition_size=K,
        conditioning="concatenation",
        generator_normalization=normalization,
    )
    kind = {"batch": BatchNormalization, "film": FeatureModulation}[normalization]
    norms = [layer for layer in generator.layers if isinstance(layer, kind)]
    assert len(norms) == 2 and all(layer.condition_size == K for layer in norms)
    with tf.GradientTape() as tape:
        samples = generator([random(4, LATENTS), given("conditions")], training=True)
        value = tf.reduce_sum(samples * random(*samples.shape, seed=3))
    for gradient in tape.gradient(value, [layer.gamma_kernel for layer in norms]):
        assert np.abs(gradient).max() > 0


def test_projection_is_the_inner_product_with_a_linear_embedding_of_the_condition():
    _, critic = build("mlp", condition_size=K, conditioning="projection")
    points, conditions = random(4, 3), random(4, K, seed=1)
    features = tf.keras.Model(critic.inputs[0], critic.get_layer("activation_1").output)(points)
    embedding = np.array(conditions) @ np.array(critic.get_layer("projection").kernel).T
    expected = critic.get_layer("score")(features)[:, 0] + np.sum(features * embedding, axis=1)
    np.testing.assert_allclose(critic([points, conditions])[:, 0], expected, rtol=1e-4, atol=1e-6)


def test_concatenation_appends_constant_channels():
    x, vectors = random(2, 3, 4, 5), random(2, K, seed=1)
    result = np.array(AppendChannels()([x, vectors]))
    assert result.shape == (2, 3, 4, 5 + K)
    np.testing.assert_array_equal(result[..., :5], x)
    np.testing.assert_array_equal(result[..., 5:] - np.array(vectors)[:, None, None], 0)
    flat = np.array(AppendChannels()([x[:, 0, 0], vectors]))
    np.testing.assert_array_equal(flat, np.concatenate([x[:, 0, 0], vectors], axis=1))
    _, critic = build("conv1d", classes=3, conditioning="concatenation")
    assert critic.get_layer("conv_1").kernel.shape[1] == SHAPES["conv1d"][-1] + 3


@pytest.mark.parametrize("conditioning", ["projection", "concatenation"])
@pytest.mark.parametrize("name", ["mlp", "conv1d"])
def test_conditions_in_bfloat16(name, conditioning):
    choices = {"condition_size": K, "conditioning": conditioning}
    exact = build(name, **choices)
    rounded = build(name, **choices, precision="mixed_bfloat16")
    for one, other, inputs in zip(
        exact, rounded, (random(4, LATENTS), random(4, *SHAPES[name])), strict=True
    ):
        outputs = other([inputs, given("conditions")])
        assert outputs.dtype == tf.float32
        np.testing.assert_allclose(outputs, one([inputs, given("conditions")]), atol=0.1)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"condition_size": K, "conditioning": "acgan"},
            "conditioning=acgan classifies, but .* conditions instead of classes — use "
            "--conditioning=projection or --conditioning=concatenation",
        ),
        (
            {"condition_size": K, "classes": 3, "conditioning": "projection"},
            "condition_size=2 excludes classes=3 — give one of them",
        ),
        (
            {"classes": 3, "conditioning": "concatenation", "generator_normalization": "none"},
            "conditioning=concatenation gives the generator no access to labels",
        ),
    ],
)
@pytest.mark.parametrize("function", [models.check, models.build])
def test_unsupported_conditions_are_errors(function, choices, message):
    with pytest.raises(models.DesignError, match=message):
        function("conv1d", (32, 1), latent_size=LATENTS, **choices)
