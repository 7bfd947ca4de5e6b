"""Tests of the random numbers, which are keyed by (seed, stream, step, example)."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from wgan_gp.runtime.randomness import RngStream, bits, normal, uncorrelated_bits, uniform


def numbers(seed=3, stream=RngStream.CRITIC_LATENTS, step=7, first=0, count=64, size=4, draw=bits):
    return draw(seed, stream, step=step, first=first, count=count, size=size)


@pytest.mark.parametrize("draw", [bits, uniform, normal])
@pytest.mark.parametrize("size", [1, 6, 128])
def test_a_replica_draws_its_slice_of_the_global_batch(draw, size):
    whole = numbers(size=size, draw=draw)
    slices = [numbers(first=first, count=16, size=size, draw=draw) for first in range(0, 64, 16)]
    np.testing.assert_array_equal(np.concatenate(slices), whole)


@pytest.mark.parametrize("draw", [bits, uniform, normal])
def test_xla_draws_the_same_numbers(draw):
    compiled = numbers(first=tf.constant(5, tf.int64), draw=tf.function(draw, jit_compile=True))
    np.testing.assert_allclose(compiled, numbers(first=5, draw=draw), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("draw", [bits, uniform, normal])
@pytest.mark.parametrize("seed", [0, 3, 2**31 - 1])
def test_seed_and_count_may_be_known_later_than_the_graph(draw, seed):
    whole = [tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int32)]
    later = tf.function(
        lambda seed, count: numbers(seed, count=count, size=6, draw=draw), input_signature=whole
    )
    found = later(tf.constant(seed, tf.int64), tf.constant(9))
    np.testing.assert_array_equal(found, numbers(seed, count=9, size=6, draw=draw))


def test_the_key_is_seed_and_stream():
    """The key must not change, because a resumed run would then draw different numbers."""
    expected = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[64, 4],
        key=tf.constant([3 << 32 | RngStream.SAMPLES], tf.uint64),
        counter=tf.constant([0, 7], tf.uint64),
        alg=1,
        dtype=tf.uint32,
    )
    np.testing.assert_array_equal(numbers(stream=RngStream.SAMPLES), expected)


@pytest.mark.parametrize(
    "other",
    [{"seed": 4}, {"stream": RngStream.GENERATOR_LATENTS}, {"step": 8}, {"first": 64}],
    ids=str,
)
def test_every_part_of_the_key_matters(other):
    assert not np.isin(numbers(**other), numbers()).any()


def test_large_steps_and_examples_are_distinct():
    far = numbers(seed=2**31 - 1, step=2**40, first=2**40, count=8).numpy()
    assert len(np.unique(far)) == far.size


def test_uniform_is_uniform():
    values = numbers(count=20_000, size=2, draw=uniform).numpy()
    assert values.dtype == np.float32
    assert values.min() >= 0 and values.max() < 1
    counts, _ = np.histogram(values, bins=20, range=(0, 1))
    assert abs(counts / 2000 - 1).max() < 0.1  # more than four standard deviations


def test_normal_is_standard_normal():
    values = numbers(count=20_000, size=3, draw=normal).numpy()
    assert np.isfinite(values).all()
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=0.03)
    np.testing.assert_allclose(np.cov(values.T), np.eye(3), atol=0.04)
    np.testing.assert_allclose((values**4).mean(), 3, atol=0.15)


def test_uncorrelated_bits_are_uniform_and_uncorrelated():
    draw = functools.partial(uncorrelated_bits, 3, RngStream.DEQUANTIZATION, size=2000)
    words = draw(first=0, count=2000).numpy()
    np.testing.assert_array_equal(draw(first=70, count=9), words[70:79])  # of their position
    values = words.astype(np.float64) / 2**32
    counts, _ = np.histogram(values, bins=20, range=(0, 1))
    assert abs(counts / 200_000 - 1).max() < 0.02  # pairs only are independent: wide
    for table in (values, values.T):  # places of an example, and examples
        correlation = np.corrcoef(table[:, :40], rowvar=False)
        np.testing.assert_allclose(correlation, np.eye(40), atol=0.12)
