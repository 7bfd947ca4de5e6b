"""Scalars over replicas: shares that add up, and denominators that are summed themselves."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import strategy_over

import losses

SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN


def on_replicas(strategy, function, values):
    """Runs `function` on replica r's `values[r]`; the per-replica results."""

    def value_of(context):
        return tf.constant(values[context.replica_id_in_sync_group])

    inputs = strategy.experimental_distribute_values_from_function(value_of)
    return strategy.run(tf.function(function), args=(inputs,))


def test_tutorial_example_gives_three_and_a_half():
    """Two replicas of two examples: the shares are 1.25 and 2.25, and 3.5 is right."""
    strategy, values = strategy_over(2), [[2.0, 3.0], [4.0, 5.0]]
    shares = on_replicas(strategy, lambda x: losses.global_mean(x, 4), values)
    assert [float(x) for x in strategy.experimental_local_results(shares)] == [1.25, 2.25]
    assert strategy.reduce(SUM, shares, axis=None) == 3.5
    # The same, said the other way: a share times the replicas is the replica's own mean.
    local_means = on_replicas(strategy, lambda x: losses.global_mean(x, 4) * 2, values)
    assert [float(x) for x in strategy.experimental_local_results(local_means)] == [2.5, 4.5]
    assert strategy.reduce(MEAN, local_means, axis=None) == 3.5
    # The mistake this guards against.
    metric = tf.keras.metrics.Mean()
    for share in strategy.experimental_local_results(shares):
        metric.update_state(share)
    assert float(metric.result()) == 1.75


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_weighted_global_mean_is_that_of_the_whole_batch(replicas):
    rng = np.random.default_rng(0)
    values = rng.standard_normal([4, 4]).astype(np.float32)
    # 3, 1, 4 and 0 valid examples: a mean of means would be wrong, and NaN on the last.
    weights = np.array([[1, 1, 1, 0], [0, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], np.float32)
    expected = (values * weights).sum() / weights.sum()
    expected_gradient = (values * weights * values).sum() / weights.sum()
    strategy = strategy_over(replicas)
    with strategy.scope():
        scale = tf.Variable(1.0)

    def value_and_gradient(pair):
        with tf.GradientTape() as tape:
            value = losses.weighted_global_mean(scale * pair[0], pair[1])
        # d(scale * l * w) with l weighting itself, so that examples differ.
        with tf.GradientTape() as second:
            other = losses.weighted_global_mean(scale * pair[0] ** 2, pair[1])
        return value, tape.gradient(value, scale), second.gradient(other, scale)

    split = np.stack([values.reshape(replicas, -1), weights.reshape(replicas, -1)], axis=1)
    value, gradient, second = on_replicas(strategy, value_and_gradient, split)
    for local in strategy.experimental_local_results(value):
        np.testing.assert_allclose(local, expected, rtol=1e-6)
    np.testing.assert_allclose(strategy.reduce(SUM, gradient, axis=None), expected, rtol=1e-5)
    np.testing.assert_allclose(
        strategy.reduce(SUM, second, axis=None), expected_gradient, rtol=1e-5
    )


def test_half_precision_is_summed_in_float32():
    """70,000 is beyond float16, and bfloat16 has 8 bits for a sum of thousands."""
    for dtype in (tf.float16, tf.bfloat16):
        ones = tf.ones([1000], dtype)
        np.testing.assert_allclose(losses.global_mean(ones, 70_000), 1 / 70, rtol=1e-6)
        np.testing.assert_allclose(losses.weighted_global_mean(ones, ones), 1, rtol=1e-6)


def test_weighted_global_mean_outside_any_strategy():
    assert losses.weighted_global_mean([1.0, 2.0, 9.0], [3.0, 1.0, 0.0]) == 1.25


def test_weighted_global_mean_refuses_a_cross_replica_context():
    with strategy_over(2).scope(), pytest.raises(ValueError, match=r"inside strategy\.run"):
        losses.weighted_global_mean([1.0], [1.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.global_mean(tf.zeros([]), 4), "per_example must have shape"),
        (lambda: losses.global_mean(tf.zeros([4]), 0), "must be positive"),
        (lambda: losses.weighted_global_mean(tf.zeros([4]), tf.zeros([3])), "weights"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
