"""Recomputation in the backward passes, which changes neither gradients nor state."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from conftest import TINY, call_main, train_tiny
from test_step import IMAGES, R3GAN, one_update

import losses
import models
from models import recomputation
from models.replay import first_pass, with_replay
from models.segments import find_segments
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.keras import WGANGP

BATCH = 4
LABELS = tf.constant([0, 1, 2, 1])


def differentiate(networks, called, labels):
    """Returns the gradients of a critic step with a penalty and of a generator step, and the state.

    Args:
      networks: The generator and the critic, which have the weights.
      called: The same networks as they are called.
      labels: The labels, or [].
    """
    shape = networks[1].inputs[0].shape[1:]
    real = tf.random.stateless_normal([BATCH, *shape], [1, 2])
    latents = tf.random.stateless_normal([BATCH, 3], [3, 4])
    takes_labels = len(networks[1].inputs) > 1

    def score(x):
        output = called[1]([x, *labels] if takes_labels else x, training=True)
        return sum(tf.nest.flatten(tf.nest.map_structure(tf.reduce_sum, output)))

    @tf.function(autograph=False)
    def gradients():
        with tf.GradientTape() as tape:
            fake = called[0]([latents, *labels] if labels else latents, training=True)
            loss = score(fake)
        found = tape.gradient(loss, networks[0].trainable_variables)
        with tf.GradientTape() as tape:
            # A sum of squared slopes needs second derivatives, and is smooth.
            with tf.GradientTape() as inner:
                inner.watch(real)
                value = score(real)
            slopes = inner.gradient(value, real)
            loss = value - score(fake) + tf.reduce_sum(slopes**2)
        found += tape.gradient(loss, networks[1].trainable_variables)
        return [tf.convert_to_tensor(each) for each in found if each is not None]

    before = [each.get_weights() for each in networks]
    found = [each.numpy() for each in gradients()]
    state = [each.numpy() for network in networks for each in network.non_trainable_variables]
    for network, values in zip(networks, before, strict=True):
        network.set_weights(values)
    return found, state


@pytest.mark.parametrize(
    ("name", "shape", "design"),
    [
        ("mlp", (6,), {"critic_normalization": "spectral", "minibatch_stddev": 2}),
        ("dcgan", (8, 8, 1), {"classes": 3, "conditioning": "projection"}),
        ("conv1d", (8, 2), {"classes": 3, "conditioning": "acgan"}),
        pytest.param(
            "conv1d",
            (8, 2),
            {"classes": 3, "conditioning": "concatenation"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "resnet", (32, 32, 1), {"critic_normalization": "spectral"}, marks=pytest.mark.slow
        ),
        pytest.param("resnet101", (32, 32, 1), {"depth": 1}, marks=pytest.mark.slow),
        pytest.param("r3gan", (32, 32, 1), {"depth": 1}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_gradients_and_state_are_those_of_the_network(name, shape, design):
    """First and second derivatives; moments of batch normalization; directions of spectral norms.

    The critic is called twice, so a recomputation that read a direction again would differ.
    """
    networks = models.build(name, shape, latent_size=3, width=4, **design)
    labels = [LABELS] if design.get("classes") else []
    expected, state = differentiate(networks, networks, labels)
    found, state_found = differentiate(networks, [models.remat(each) for each in networks], labels)
    assert len(found) == len(expected) > 4
    for ours, theirs in zip(found, expected, strict=True):
        assert np.linalg.norm(ours - theirs) <= 2e-6 * np.linalg.norm(theirs) + 1e-7
    for ours, theirs in zip(state_found, state, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def hidden_layers(outputs=1):
    x = inputs = tf.keras.Input([4])
    for _ in range(3):
        x = tf.keras.layers.Activation("tanh")(tf.keras.layers.Dense(4)(x))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(outputs)(x))


def count_products(network, called):
    """Returns the matrix products in the program of a penalty's gradient, after optimization."""

    @tf.function(jit_compile=True, autograph=False)
    def gradient(x):
        with tf.GradientTape() as tape:
            penalty = tf.reduce_mean(losses.gradient_penalty(called, x, x + 1.0, alpha=x[:, 0]))
        return tape.gradient(penalty, network.trainable_variables[0])

    program = gradient.experimental_get_compiler_ir(tf.ones([BATCH, 4]))("optimized_hlo")
    return program.count(" dot(")


def test_the_compiler_does_not_merge_the_recomputation(monkeypatch):
    network = hidden_layers()
    kept = count_products(network, network)
    recomputed = count_products(network, models.remat(network, xla=True))
    monkeypatch.setattr(recomputation, "_after", lambda first, then, xla: then)
    assert recomputed > count_products(network, models.remat(network, xla=True)) >= kept


def names(network):
    return [
        ([layer.name for layer in segment.model.layers if layer.weights], segment.recomputed)
        for segment in find_segments(network, "critic")
    ]


def test_segments_are_pairs_of_convolutions_or_residual_blocks():
    """A block begins with its activation, after the addition of the last one."""
    _, critic = models.build("dcgan", (8, 8, 1), latent_size=3, width=4)
    assert names(critic) == [(["conv_1", "conv_2"], True), (["score"], False)]
    _, critic = models.build("resnet", (32, 32, 1), latent_size=3, width=4)
    blocks = [
        ([f"{block}_conv_1", f"{block}_conv_2", *shortcut], True)
        for block, shortcut in (
            ("down_1", ["down_1_shortcut"]),
            ("down_2", ["down_2_shortcut"]),
            ("block_3", []),
            ("block_4", []),
        )
    ]
    assert names(critic) == [*blocks, (["score"], False)]


def test_layers_that_draw_or_update_are_not_computed_again():
    x = inputs = tf.keras.Input([4])
    for layer in (tf.keras.layers.Dropout(0.5), tf.keras.layers.BatchNormalization()):
        x = layer(tf.keras.layers.Dense(4)(tf.keras.layers.Dense(4)(x)))
    x = tf.keras.layers.Dense(4)(tf.keras.layers.Dense(4)(x))
    network = tf.keras.Model(inputs, x)
    assert [segment.recomputed for segment in find_segments(network, "critic")] == [
        False,
        False,
        True,
    ]


def test_an_operation_between_layers_is_computed_again():
    """Keras 3 has operations that are not layers."""
    x = inputs = tf.keras.Input([4])
    x = tf.keras.layers.Dense(4)(tf.keras.layers.Dense(4)(x)) + x
    network = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(x))
    assert [segment.recomputed for segment in find_segments(network, "critic")] == [True, False]


class Subclassed(tf.keras.Model):
    def __init__(self):
        super().__init__(name="critic")
        self.dense = tf.keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)


def shared():
    x = inputs = tf.keras.Input([4])
    dense = tf.keras.layers.Dense(4)
    return tf.keras.Model(inputs, dense(dense(x)), name="critic")


class OfSequential(tf.keras.Model):
    """Has the attributes of a functional model in Keras 2, but no inputs."""

    def __init__(self):
        super().__init__(name="critic")
        self.chain = tf.keras.Sequential([tf.keras.layers.Dense(1)])

    def call(self, x):
        return self.chain(x)


def nested():
    return tf.keras.Sequential([hidden_layers(), tf.keras.layers.Dense(1)], name="critic")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Subclassed, "is not a functional Keras model"),
        (OfSequential, "is not a functional Keras model"),
        (shared, "contains another model, or calls a layer twice"),
        (nested, "contains another model, or calls a layer twice"),
    ],
)
def test_a_network_that_is_not_a_chain_is_an_error(make, message):
    network = make()
    network(tf.ones([2, 4]))
    with pytest.raises(models.DesignError, match=f"the critic {message}"):
        models.remat(network)


def test_values_of_the_first_pass_are_replayed():
    count = iter(range(10))
    function = with_replay(lambda: [first_pass(lambda: next(count)) for _ in range(2)])
    assert function() == function() == [0, 1]
    assert first_pass(lambda: next(count)) == 2  # outside, it is an ordinary call


@pytest.fixture
def recomputed(monkeypatch):
    """The value of `xla` in each call of `recomputed`, which makes a function recomputed."""
    values, original = [], recomputation.recomputed

    def record(function, weights, *, xla):
        values.append(xla)
        return original(function, weights, xla=xla)

    monkeypatch.setattr(recomputation, "recomputed", record)
    return values


@pytest.mark.parametrize("network", ["critic", "generator"])
@pytest.mark.parametrize(
    "settings",
    [
        {"generator_batch_size": None, "accumulate": 2},
        pytest.param(R3GAN, marks=pytest.mark.slow),
        pytest.param({"augment": "bcr"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_an_update_on_two_replicas_is_that_of_one_without_recomputation(
    network, settings, recomputed
):
    config = dataclasses.replace(IMAGES, **{"critic_normalization": "layer", **settings})
    config = dataclasses.replace(config, generator_normalization="none")
    expected, terms = one_update(1, network, config=dataclasses.replace(config, accumulate=1))
    assert not recomputed
    found, terms_found = one_update(2, network, config=dataclasses.replace(config, remat=True))
    assert recomputed
    for ours, theirs in zip(found, expected, strict=True):
        assert np.linalg.norm(ours - theirs) <= 2e-6 * np.linalg.norm(theirs) + 1e-7
    assert terms_found == pytest.approx(terms, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("jit_compile", ["off", "on"])
def test_a_run_has_the_same_weights(jit_compile, tmp_path, recomputed):
    """The host loop and the device loop that XLA compiles compute the same, also after a resume."""
    settings = {"train_steps": 4, "steps_per_loop": 2, "learning_rate_schedule": "constant"}
    plain, _ = train_tiny(tmp_path / "plain", **settings)
    settings |= {"model_dir": tmp_path / "run", "jit_compile": jit_compile}
    train_tiny(**{**settings, "train_steps": 2})
    assert not recomputed
    resumed, _ = train_tiny(**settings, remat=True)
    assert set(recomputed) == {jit_compile == "on"}
    for network in ("generator", "critic"):
        pairs = zip(
            *[getattr(each.state, network).get_weights() for each in (resumed, plain)], strict=True
        )
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    resumed.state.critic.save(str(tmp_path / "critic.keras"))  # its layers are also in segments
    saved = models.load(str(tmp_path / "critic.keras"))
    np.testing.assert_array_equal(saved.get_weights()[0], resumed.state.critic.get_weights()[0])


def test_fit_tells_whether_xla_compiles(recomputed):
    config = Config(batch_size=8, n_critic=1, latent_size=4, remat=True)
    model = WGANGP(hidden_layers(outputs=4), hidden_layers(), config)
    model.compile(jit_compile=True)
    model.fit(np.zeros([8, 4], np.float32), verbose=0)
    assert set(recomputed) == {True}


def test_a_lazy_penalty_is_refused():
    with pytest.raises(UserError, match="--remat is not supported with --penalty_interval=2"):
        Config(remat=True, penalty_interval=2)


NETWORKS = """
from tensorflow import keras
from tensorflow.keras import Sequential, layers

def generator(design):
    return Sequential([layers.Dense(4), layers.{layer}, layers.Dense(2)])

class Plain(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)

    def call(self, x):
        return self.dense(x)

def critic(design):
    return {critic}
"""
CHAIN = "Sequential([layers.Dense(4), layers.ReLU(), layers.Dense(4), layers.Dense(1)])"


@pytest.mark.parametrize(
    ("layer", "critic", "status", "message"),
    [
        ("ReLU()", CHAIN, 0, None),
        ("BatchNormalization()", CHAIN, 0, "--remat has no effect on the generator: each part"),
        ("Dropout(0.5)", "Plain()", 2, "; the critic is not a functional Keras model"),
    ],
)
def test_networks_of_the_user(layer, critic, status, message, tmp_path, capsys):
    path = tmp_path / "networks.py"
    path.write_text(NETWORKS.format(layer=layer, critic=critic))
    tiny = {**TINY, "model": path, "model_dir": tmp_path / "run", "train_steps": 1}
    del tiny["model_width"]
    arguments = [f"--{name}={value}" for name, value in tiny.items()]
    assert call_main(*arguments, "--remat") == status
    printed = capsys.readouterr().err
    assert "remat" not in printed if message is None else message in printed
