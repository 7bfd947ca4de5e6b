"""Losses of layers: regularizers of weights, and the refusal of losses of outputs.

Plain gradient descent with rate 1 shows the gradient itself.
"""

import dataclasses
import functools
import json

import numpy as np
import pytest
import tensorflow as tf

import losses
import wgan_gp
from tests.helpers.runs import strategy_over
from wgan_gp.training.networks import UserNetwork
from wgan_gp.training.state import TrainState
from wgan_gp.training.step import ReplicaStep

layers = tf.keras.layers
C = 0.03
L2 = tf.keras.regularizers.L2(C)
SHIFT = np.array([0.5, -2.0], np.float32)  # every sample
REAL = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)
KERNEL = np.array([[0.3, -1.0, 2.0], [0.7, 0.1, -0.4]], np.float32)
STEP = tf.constant(0, tf.int64)


class Squares(layers.Layer):
    """Adds a mean of squares in training only."""

    def call(self, inputs, training=False):
        if training:
            self.add_loss(C * tf.reduce_mean(tf.reduce_sum(inputs**2, axis=1)))
        return inputs


class Subclassed(tf.keras.Model):
    """Adds the loss of `Squares` itself, in a model inside a model."""

    def __init__(self, *inside, **options):
        super().__init__(**options)
        self.inside = tf.keras.Sequential(inside)

    def call(self, inputs, training=False):
        hidden = self.inside(inputs)
        if training:
            self.add_loss(C * tf.reduce_mean(tf.reduce_sum(hidden**2, axis=1)))
        return hidden


def hidden(**options):
    return layers.Dense(
        3, kernel_initializer=tf.constant_initializer(KERNEL), use_bias=False, **options
    )


def shifted(**options):
    """A generator that returns SHIFT for all latents."""
    return layers.Dense(
        2,
        kernel_initializer="zeros",
        bias_initializer=tf.constant_initializer(SHIFT),
        **options,
    )


def score():
    return layers.Dense(1, kernel_initializer="ones", trainable=False)


class Functions:
    """A network that is not a Keras model."""

    def __init__(self, *parts):
        self.parts = parts

    @property
    def trainable_variables(self):
        return [weight for part in self.parts for weight in part.trainable_variables]

    def __call__(self, inputs, training=False):
        for part in self.parts:
            inputs = part(inputs, training=training) if isinstance(part, Squares) else part(inputs)
        return inputs


# Networks that add C * |kernel|^2.
OF_WEIGHTS = {
    "layer": lambda layer, *rest: tf.keras.Sequential([layer(kernel_regularizer=L2), *rest]),
    "nested": lambda layer, *rest: tf.keras.Sequential(
        [tf.keras.Sequential([layer(kernel_regularizer=L2)]), *rest]
    ),
    "callable": lambda layer, *rest: Functions(layer(kernel_regularizer=L2), *rest),
}
# (replicas, accumulate, --penalty_interval)
PLACES = [
    (1, 1, 1),
    (2, 2, 2),
]


def plain(layer, *rest):
    return tf.keras.Sequential([layer(), *rest])


def one_update(
    network,
    generator,
    critic,
    replicas=1,
    accumulate=1,
    compute=lambda function: function,
    make_objective=losses.GanObjective,
    **objective,
):
    """Returns the update of each weight of a network, and the global means of its terms."""
    config = wgan_gp.Config(batch_size=8, n_critic=1, latent_size=4, accumulate=accumulate)
    strategy = strategy_over(replicas)
    with strategy.scope():
        tf.keras.utils.set_random_seed(0)
        networks = {
            "generator": UserNetwork(generator(), "generator", tf.TensorSpec([2, 4])),
            "critic": UserNetwork(critic(), "critic", tf.TensorSpec([2, 2])),
        }
        optimizers = {}
        for name, each in networks.items():
            each(tf.zeros(each.inputs.shape))
            optimizers[name] = tf.keras.optimizers.SGD(1.0)
            optimizers[name].build(each.trainable_variables)
    counters = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    step = ReplicaStep(
        TrainState(*networks.values(), *optimizers.values(), *counters),
        make_objective(**objective),
        losses.global_mean,
        losses.regularization_share,
        optimization=config,
        latent_size=4,
    )
    weights = networks[network].trainable_variables
    before = [np.array(weight) for weight in weights]
    if network == "critic":
        size = 8 // replicas
        parts = iter([REAL[i * size : (i + 1) * size] for i in range(replicas)])
        values = strategy.experimental_distribute_values_from_function(
            lambda _: (tf.constant(next(parts)), tf.zeros([size], tf.int32))
        )
        run = compute(lambda *batch: step.critic_step(*batch, STEP))
        shares = strategy.run(run, args=values)
    else:
        shares = strategy.run(compute(lambda: step.generator_step(STEP)))
    sums = {
        name: strategy.reduce("SUM", share, axis=None).numpy() for name, share in shares.items()
    }
    updates = [np.array(new) - old for new, old in zip(weights, before, strict=True)]
    return updates, sums


def plain_generator():
    return plain(shifted)


@pytest.mark.parametrize("make", OF_WEIGHTS.values(), ids=OF_WEIGHTS)
def test_a_regularizer_of_a_weight_adds_its_value_and_its_gradient(make):
    (bare,), terms = one_update("critic", plain_generator, lambda: plain(hidden, score()))
    assert "regularization" not in terms
    (update,), regularized = one_update("critic", plain_generator, lambda: make(hidden, score()))
    np.testing.assert_allclose(update - bare, -2 * C * KERNEL, atol=1e-5)
    expected = C * (KERNEL**2).sum()
    np.testing.assert_allclose(regularized["regularization"], expected, rtol=1e-5)
    np.testing.assert_allclose(regularized["loss"] - terms["loss"], expected, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "accumulate", "penalty_interval"), PLACES)
def test_replicas_micro_batches_and_lazy_penalties_count_each_loss_once(
    replicas, accumulate, penalty_interval
):
    options = {
        "replicas": replicas,
        "accumulate": accumulate,
        "penalty_interval": penalty_interval,
        "compute": functools.partial(tf.function, autograph=False),
    }
    (bare,), _ = one_update("critic", plain_generator, lambda: plain(hidden, score()), **options)
    (update,), terms = one_update(
        "critic", plain_generator, lambda: OF_WEIGHTS["layer"](hidden, score()), **options
    )
    np.testing.assert_allclose(update - bare, -2 * C * KERNEL, atol=1e-5)
    np.testing.assert_allclose(terms["regularization"], C * (KERNEL**2).sum(), rtol=1e-5)


@pytest.mark.parametrize(("replicas", "accumulate"), [(1, 1), (2, 2)])
def test_the_generator_has_a_term_of_its_own(replicas, accumulate):
    """The regularizers of the critic, which scores its samples, are not a part of it."""
    places = {"replicas": replicas, "accumulate": accumulate}

    def critic():
        return OF_WEIGHTS["layer"](hidden, score())

    def generator():
        return tf.keras.Sequential([shifted(bias_regularizer=L2)])

    bare, terms = one_update("generator", plain_generator, critic, **places)
    assert "regularization" not in terms
    update, regularized = one_update("generator", generator, critic, **places)
    np.testing.assert_allclose(update[1] - bare[1], -2 * C * SHIFT, atol=1e-5)
    expected = C * (SHIFT**2).sum()
    np.testing.assert_allclose(regularized["regularization"], expected, rtol=1e-5)
    np.testing.assert_allclose(regularized["loss"] - terms["loss"], expected, rtol=1e-4)


def test_an_objective_cannot_have_another_term_of_this_name():
    @dataclasses.dataclass(frozen=True)
    class Other(losses.GanObjective):
        generator_term_names = ("loss", "regularization")

    with pytest.raises(wgan_gp.UserError, match="the name of the regularizers of weights"):
        one_update(
            "generator",
            lambda: plain(lambda: shifted(bias_regularizer=L2)),
            lambda: plain(hidden, score()),
            make_objective=Other,
        )


# Networks with a loss of the outputs of a layer, whose name is "lossy".
OF_OUTPUTS = {
    "activity_regularizer": lambda: tf.keras.Sequential(
        [hidden(activity_regularizer=L2, name="lossy"), score()]
    ),
    "nested": lambda: tf.keras.Sequential(
        [tf.keras.Sequential([hidden(), Squares(name="lossy")]), score()]
    ),
    "of the model": lambda: Subclassed(hidden(), score(), name="lossy"),
    "callable": lambda: Functions(hidden(), Squares(name="lossy"), score()),
}


@pytest.mark.parametrize("make", OF_OUTPUTS.values(), ids=OF_OUTPUTS)
def test_a_loss_of_outputs_is_refused_and_its_layer_named(make, tmp_path):
    config = wgan_gp.Config(model_dir=str(tmp_path), batch_size=8, latent_size=4)
    with pytest.raises(
        wgan_gp.UserError, match=r"critic: .* of the layer lossy \((an act|add_loss)"
    ):
        wgan_gp.train(config, generator=lambda: plain(shifted), critic=lambda _: make(), data=REAL)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param(
            {"cpu_replicas": 2, "accumulate": 2, "penalty_interval": 2}, marks=pytest.mark.slow
        ),
        pytest.param(
            {"jit_compile": "on", "precision": "mixed_bfloat16"},
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_a_run_logs_the_term(tmp_path, settings):
    config = wgan_gp.Config(
        model_dir=str(tmp_path),
        train_steps=1,
        steps_per_loop=1,
        summary_interval=1,
        sample_interval=0,
        batch_size=8,
        n_critic=1,
        latent_size=4,
        **settings,
    )
    result = wgan_gp.train(
        config,
        generator=lambda: plain(shifted),
        critic=lambda design: plain(
            lambda: hidden(kernel_regularizer=L2, dtype=design.precision), score()
        ),
        data=REAL,
    )
    expected = C * (KERNEL**2).sum()
    np.testing.assert_allclose(result.history["critic/regularization"], [expected], rtol=1e-5)
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    values = json.loads(line)
    np.testing.assert_allclose(values["critic/regularization"], expected, rtol=1e-5)
    assert "generator/regularization" not in values
