"""Updates in micro-batches equal updates of whole batches."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.training.test_step import IMAGES, R3GAN, one_update
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.training.accumulation import sum_over_micro_batches

PROJECTION = {"conditioning": "projection", "generator_model": "mlp"}
PLAIN = {"generator_normalization": "none", "generator_batch_size": 32}


def test_a_function_gets_every_part_in_order(compute):
    examples = tf.reshape(tf.range(24.0), [8, 3])
    numbers = tf.range(8)

    def describe(x, number):
        assert x.shape == [2, 3] and number.shape == [2]  # static, as a TPU requires
        return {"sum": tf.reduce_sum(x**2), "first": tf.one_hot(number[0], 8, dtype=tf.int32)}

    @compute
    def total():
        like = {"sum": 0.0, "first": tf.zeros([8], tf.int32)}
        return sum_over_micro_batches(describe, {"x": examples, "number": numbers}, 4, like=like)

    found = total()
    assert found["sum"] == tf.reduce_sum(examples**2)
    np.testing.assert_array_equal(found["first"], [1, 0, 1, 0, 1, 0, 1, 0])


def norm(gradients, minus=None):
    """The norm of the gradients of all weights, or of their differences from others."""
    pairs = zip(gradients, minus or [0.0] * len(gradients), strict=True)
    return np.linalg.norm(np.concatenate([np.ravel(one - other) for one, other in pairs]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "settings"),
    [
        ("critic", {}),
        ("generator", R3GAN),
        ("critic", R3GAN),
        ("generator", {"augment": "diffaugment"}),
        ("critic", {**PROJECTION, "penalty_interval": 2}),
        ("critic", {"augment": "diffaugment", "minibatch_stddev": 4}),
    ],
    ids=str,
)
def test_micro_batches_have_the_gradient_of_the_batch(network, settings):
    """To 1e-6 of the norm of the gradient, whose sums are rounded in another order."""
    if "augment" in settings:
        settings = {**settings, "augment_policy": "color,translation,cutout"}
    config = dataclasses.replace(IMAGES, **{**PLAIN, **settings})
    expected, terms = one_update(1, network, config=config)
    for replicas in (1, 2):
        accumulated = dataclasses.replace(config, accumulate=4 // replicas)
        # A loop over micro-batches is a part of the program.
        found, terms_found = one_update(replicas, network, trace=not settings, config=accumulated)
        assert norm(found, minus=expected) <= 1e-6 * norm(expected)
        assert terms_found == pytest.approx(terms, rel=1e-5, abs=1e-7)


@pytest.mark.slow
def test_a_critic_step_has_the_samples_of_the_whole_batch():
    """Batch normalization in the generator does not change a critic step, to 1e-6 of its norm."""
    config = dataclasses.replace(IMAGES, generator_normalization="batch")
    expected, _ = one_update(1, "critic", config=config)
    found, _ = one_update(1, "critic", config=dataclasses.replace(config, accumulate=4))
    assert norm(found, minus=expected) <= 1e-6 * norm(expected)


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_batch_normalization_has_the_moments_of_each_micro_batch(replicas):
    """The moments differ from those of the batch; replicas exchange those of a micro-batch."""
    config = dataclasses.replace(IMAGES, generator_normalization="batch")
    whole, _ = one_update(1, "generator", config=config)
    found, _ = one_update(replicas, "generator", config=dataclasses.replace(config, accumulate=2))
    assert all(np.isfinite(each).all() for each in found)
    assert max(np.abs(a - b).max() for a, b in zip(found, whole, strict=True)) > 1e-3


@pytest.mark.parametrize(
    ("settings", "replicas", "message"),
    [
        ({}, 4, "--batch_size=8 .* over 4 replicas x 4 micro-batches of --accumulate — use 16"),
        ({"generator_batch_size": 18}, 1, "--generator_batch_size=18 .* 4 micro.* — use 16 or 20"),
        ({"minibatch_stddev": 4}, 1, "4 micro-batches .* x 4 examples of --minibatch_s.* — use 16"),
    ],
)
def test_batches_are_divided_into_equal_parts(settings, replicas, message):
    with pytest.raises(UserError, match=message):
        Config(batch_size=8, accumulate=4, **settings).check_replicas(replicas)
    Config(batch_size=32, accumulate=4).check_replicas(4)
