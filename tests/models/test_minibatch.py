"""The standard deviation over groups of examples, as a feature of critics."""

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
from models.minibatch import MinibatchStdDev
from tests.helpers.runs import train_tiny
from wgan_gp.config import Config
from wgan_gp.errors import UserError

SHAPES = [
    ("mlp", (6, 2)),
    ("conv1d", (16, 2)),
    ("conv3d", (5, 4, 6, 1)),
    ("dcgan", (20, 28, 3)),
    ("resnet", (32, 32, 3)),
    ("resnet", (48, 48, 1)),
    ("r3gan", (32, 32, 3)),
]


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def appended(x, size):
    """The feature by its definition: examples in a loop."""
    padded = np.concatenate([x, np.repeat(x[-1:], -len(x) % size, axis=0)])
    values = [padded[i // size * size :][:size].std(axis=0).mean() for i in range(len(x))]
    return np.concatenate(
        [x, np.broadcast_to(np.reshape(values, [-1] + [1] * (x.ndim - 1)), (*x.shape[:-1], 1))], -1
    )


@pytest.mark.parametrize("shape", [(8, 3), (8, 4, 2), (12, 2, 3, 5), (1, 3), (7, 2, 2, 3)])
@pytest.mark.parametrize("is_static", [True, False])
def test_the_feature_is_that_of_its_definition(shape, is_static):
    x = random(*shape)
    layer = MinibatchStdDev(4)
    spec = tf.TensorSpec([shape[0] if is_static else None, *shape[1:]], tf.float32)
    found = tf.function(layer, input_signature=[spec])(x)
    np.testing.assert_allclose(found, appended(x, 4), atol=2e-4)
    # A single pixel or feature of a group of one example has no deviation but epsilon's.
    if shape[0] == 1:
        np.testing.assert_allclose(found[..., -1], 1e-4, rtol=1e-3)


def test_equal_examples_have_finite_second_derivatives():
    """The examples of a generator that has collapsed are equal."""
    layer, weight = MinibatchStdDev(4), tf.Variable(2.0)
    x = tf.ones([4, 3])
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(x)
            total = tf.reduce_sum(layer(weight * x)[:, -1])
        gradient = inner.gradient(total, x)
        squared = tf.reduce_sum(tf.square(gradient + 1.0))
    assert np.isfinite(gradient).all() and np.isfinite(outer.gradient(squared, weight))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape"), SHAPES)
def test_every_critic_can_compare_the_examples_of_a_group(name, shape):
    _, critic = models.build(name, shape, 4, model_width=16, minibatch_stddev=4)

    def scores(x):
        return critic(x, training=True)

    if name == "r3gan":  # whose residual branches are initially zero
        for weight in critic.trainable_variables:
            weight.assign(0.1 * tf.random.stateless_normal(weight.shape, [1, 2]))
    examples = random(8, *shape)
    found = losses.check_critic(scores, examples, group_size=4, finite_differences=name == "mlp")
    assert found == []
    found = losses.check_critic(scores, examples, finite_differences=False)
    found = {each.name for each in found}
    assert found == {"coupled_examples"}
    # One weight more in each position of one kernel, or a shortcut.
    assert critic.get_layer("minibatch_stddev").group_size == 4
    _, plain = models.build(name, shape, 4, model_width=16)
    assert critic.count_params() > plain.count_params()


def test_a_coupling_of_groups_is_found():
    examples = random(16, 3)
    for statistic in (
        lambda x: tf.reduce_mean(x**2, axis=0),
        lambda x: tf.reduce_mean(x[::4] ** 2, axis=0),
    ):
        (found,) = losses.check_critic(
            lambda x, statistic=statistic: tf.reduce_sum(x**2 + statistic(x), axis=1),
            examples,
            group_size=4,
        )
        assert found.name == "coupled_examples"


@pytest.mark.parametrize(("count", "size"), [(16, 3), (4, 4), (16, 0), (12, 8)])
def test_check_critic_requires_whole_groups(count, size):
    with pytest.raises(ValueError, match=f"two or more whole groups of group_size={size}"):
        losses.check_critic(lambda x: x[:, :1] ** 2, random(count, 3), group_size=size)


@pytest.mark.parametrize("value", [1, -2])
def test_a_group_has_several_examples(value):
    with pytest.raises(models.DesignError, match=f"minibatch_stddev={value} is not a group"):
        models.build("mlp", (2,), 4, minibatch_stddev=value)


@pytest.mark.parametrize(
    ("settings", "replicas", "message"),
    [
        ({"batch_size": 24}, 4, "=24 .* over 4 replicas x 4 examples .* — use 16 or 32"),
        ({"batch_size": 18}, 1, "=18 .* over 4 examples of --minibatch_stddev — use 16 or 20"),
        ({"generator_batch_size": 40}, 4, "--generator_batch_size=40 does not divide"),
    ],
)
def test_every_replica_has_whole_groups(settings, replicas, message):
    with pytest.raises(UserError, match=message):
        Config(**{"batch_size": 16, **settings}, minibatch_stddev=4).check_replicas(replicas)
    Config(batch_size=32, minibatch_stddev=4).check_replicas(4)


@pytest.mark.slow
def test_a_run_trains_with_groups(tmp_path):
    run, writer = train_tiny(tmp_path, minibatch_stddev=4, train_steps=2, summary_interval=1)
    assert np.isfinite(writer.summaries[-1][1]["critic/loss"])
    assert run.state.critic.get_layer("minibatch_stddev").group_size == 4
