"""Scalars over replicas: shares that add up, and denominators that are summed themselves."""

import numpy as np
import pytest
import tensorflow as tf

import losses
from tests.helpers.runs import strategy_over

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
    # reduce_over_replicas knows both.
    for scaled, scaling in ((shares, "share"), (local_means, "mean")):
        reduced = losses.reduce_over_replicas(strategy, {"loss": scaled}, scaling=scaling)
        assert reduced["loss"] == 3.5
    assert losses.reduce_over_replicas(strategy, shares) == 3.5
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


CONTEXTS = {
    "default": tf.distribute.get_strategy,
    "one device": lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
    "two mirrored": lambda: strategy_over(2),
    "four mirrored": lambda: strategy_over(4),
}


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_reductions_in_every_replica_context(context, traced):
    """A value an example, a weighted one, and weight decay, on one global batch of 8."""
    strategy, values = CONTEXTS[context](), np.arange(8.0, dtype=np.float32)
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        weight = tf.Variable(3.0)

    def step(local):
        with tf.GradientTape(persistent=True) as tape:
            parts = {
                "mean": losses.global_mean(weight * local, 8),
                "decay": losses.regularization_share([weight**2, 2.0 * weight]),
                "weighted": losses.weighted_global_mean(weight * local, local),
            }
        slopes = {name: tape.gradient(part, weight) for name, part in parts.items()}
        return parts, slopes

    inputs = strategy.experimental_distribute_values_from_function(
        lambda replica: tf.constant(np.split(values, replicas)[replica.replica_id_in_sync_group])
    )
    parts, slopes = strategy.run(tf.function(step) if traced else step, args=(inputs,))
    weighted = parts.pop("weighted")
    total = losses.reduce_over_replicas(strategy, parts)
    assert total["mean"] == 3 * 3.5 and total["decay"] == 15
    # The weighted mean is the global one already: the mean of the replicas' is the same.
    expected = (values**2).sum() / values.sum()
    whole = losses.reduce_over_replicas(strategy, weighted, scaling="mean")
    np.testing.assert_allclose(whole, 3 * expected, rtol=1e-6)
    slopes = losses.reduce_over_replicas(strategy, slopes)
    assert slopes["mean"] == 3.5 and slopes["decay"] == 8
    np.testing.assert_allclose(slopes["weighted"], expected, rtol=1e-6)


def test_global_mean_takes_a_batch_size_that_is_known_late():
    @tf.function(input_signature=[tf.TensorSpec([None])])
    def mean(values):
        return losses.global_mean(values, tf.shape(values)[0])

    assert mean([1.0, 2.0, 6.0]) == 3
    with pytest.raises(tf.errors.InvalidArgumentError, match="global_batch_size must be positive"):
        mean([])


@pytest.mark.parametrize("size", [0, tf.data.UNKNOWN_CARDINALITY])
def test_a_batch_size_that_is_not_positive_is_refused_everywhere(size):
    for compiled in (False, True):
        with pytest.raises(ValueError, match="global_batch_size must be positive"):
            tf.function(losses.global_mean, jit_compile=compiled)(tf.ones([2]), size)
    mean = tf.function(losses.global_mean, jit_compile=True)  # which cannot raise an error
    assert np.isnan(mean(tf.ones([2]), tf.constant(size)))
    assert mean(tf.ones([2]), tf.constant(4)) == 0.5


def test_no_gradient_reaches_the_weights_of_a_mean():
    """Else it would be that of the sum, not of the mean, which does not depend on the factor."""
    factor, values = tf.Variable(1.0), tf.Variable([1.0, 3.0])
    with tf.GradientTape() as tape:
        mean = losses.weighted_global_mean(values, factor * tf.constant([1.0, 3.0]))
    assert mean == 2.5
    slopes, none = tape.gradient(mean, [values, factor])
    np.testing.assert_array_equal(slopes, [0.25, 0.75])
    assert none is None


def test_reductions_compiled_or_not(compute):
    values, weights = tf.constant([1.0, 2.0, 9.0]), tf.constant([3.0, 1.0, 0.0])
    assert compute(losses.weighted_global_mean)(values, weights) == 1.25
    assert compute(lambda x: losses.global_mean(x, 6))(values) == 2
    assert compute(lambda x: losses.regularization_share([x[0], x[1]]))(values) == 3


def test_regularization_share_of_nothing_is_zero():
    assert losses.regularization_share([]) == 0
    assert losses.regularization_share(tf.constant(2.0)) == 2


def test_an_entry_of_weight_zero_is_left_out_whatever_it_is(compute):
    values = tf.constant([1.0, np.nan, np.inf])

    @compute
    def value_and_slope(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            value = losses.weighted_global_mean(values, [2.0, 0.0, 0.0])
        return value, tape.gradient(value, values)

    value, slope = value_and_slope(values)
    assert value == 1
    np.testing.assert_array_equal(slope, [1, 0, 0])


BAD_WEIGHTS = [
    ([2.0, -1.0], "weights must not be negative"),
    ([0.0, 0.0], "weights must have a positive sum over all replicas"),
]


@pytest.mark.parametrize(("weights", "message"), BAD_WEIGHTS)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        losses.weighted_global_mean([1.0, 2.0], weights)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tf.function(losses.weighted_global_mean)(tf.constant([1.0, 2.0]), tf.constant(weights))


@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize(("weights", "message"), BAD_WEIGHTS)
def test_bad_weights_are_refused_on_replicas(weights, message, replicas):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        on_replicas(
            strategy_over(replicas),
            lambda x: losses.weighted_global_mean(x, x),
            [weights] * replicas,
        )


@pytest.mark.parametrize(("weights", "message"), BAD_WEIGHTS)
def test_xla_cannot_raise_so_a_mean_by_bad_weights_is_nan(weights, message):
    compiled = tf.function(losses.weighted_global_mean, jit_compile=True)
    assert np.isnan(compiled(tf.constant([1.0, 2.0]), tf.constant(weights))), message


@pytest.mark.parametrize("call", ["weighted_global_mean", "regularization_share"])
def test_a_cross_replica_context_is_refused(call):
    arguments = ([1.0], [1.0]) if call == "weighted_global_mean" else (1.0,)
    with (
        strategy_over(2).scope(),
        pytest.raises(ValueError, match=rf"{call} was called in a cross-replica context: call"),
    ):
        getattr(losses, call)(*arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: losses.global_mean(tf.zeros([]), 4),
            r"shape \[B\], got \(\): pass the loss of each example, as a Keras loss with "
            'reduction="none" returns it',
        ),
        (
            lambda: losses.global_mean(tf.zeros([4, 8, 6]), 4),
            r"shape \[B\], got \(4, 8, 6\): first reduce it to one value per example, e.g. "
            r"tf.reduce_mean\(per_example, \[1, 2\]\)",
        ),
        (lambda: losses.global_mean(tf.zeros([4]), 0), "global_batch_size must be positive"),
        (
            lambda: losses.global_mean(tf.zeros([4], tf.int32), 4),
            "per_example must have a floating-point dtype, got int32",
        ),
        (
            lambda: losses.weighted_global_mean([1, 2], [0.5, 0.5]),
            "per_example must have a floating-point dtype, got int32",
        ),
        (
            lambda: losses.weighted_global_mean(tf.zeros([4]), tf.zeros([3])),
            r"weights \(3,\) must have the same shape as per_example \(4,\)",
        ),
        (lambda: losses.regularization_share(tf.zeros([2])), "must be scalars, got shape"),
        (
            lambda: losses.reduce_over_replicas(tf.distribute.get_strategy(), 1.0, scaling="sum"),
            "scaling='sum' is unknown: use one of share, mean",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
