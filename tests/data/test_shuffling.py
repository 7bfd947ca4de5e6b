"""The order of examples: a different permutation in every epoch."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tests.helpers.runs import open_data
from wgan_gp.config import Config
from wgan_gp.data.feed import own_places, replica_batches, shuffled


def read(seed, size, first, count, batch=None):
    """Returns the examples at `count` positions from `first` on, read in batches."""
    batches = shuffled(seed, size, first, batch or count).take(-(-count // (batch or count)))
    return np.concatenate(list(batches.as_numpy_iterator()))[:count]


def epoch_of(seed, epoch, size):
    return read(seed, size, epoch * size, size)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 256, 257, 1797, 2**20 + 1])
def test_each_epoch_has_every_example_once(size):
    epochs = read(3, size, 300 * size, 2 * size).reshape(2, size)
    np.testing.assert_array_equal(np.sort(epochs), np.tile(np.arange(size), [2, 1]))


def test_every_order_is_as_likely():
    orders = read(3, 5, 0, 5 * 12_000).reshape(-1, 5)
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 120
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("size", [1797, 50_000])
def test_orders_of_epochs_and_seeds_are_independent(size):
    """A place has the same example in two orders by chance only, one place on average."""
    begins = epoch_of(0, 0, size)
    others = ((0, 1), (1, 0), (0, 256), (256, 0), (2**20, 0), (0, 2**20), (2**31 - 1, 2**30))
    for seed, epoch in others:
        other = epoch_of(seed, epoch, size)
        assert (other == begins).sum() < 12
        # Nor are neighbors neighbors again.
        assert (np.diff(other) == np.diff(begins)).sum() < 12


@pytest.mark.parametrize("size", [3, 16, 40, 1797])
def test_an_example_depends_on_its_position_only(size):
    """Reading may begin anywhere, and batches may span epochs and be larger than the dataset."""
    whole = read(7, size, 0, 4000)
    for first, batch in ((0, 1), (15, 64), (1790, 64), (1797, 7), (3900, 100)):
        np.testing.assert_array_equal(read(7, size, first, 100, batch), whole[first : first + 100])


def test_two_machines_divide_the_order_of_one():
    data = open_data(Config(batch_size=8))

    def read_steps(hosts, host):
        context = tf.distribute.InputContext(hosts, host, 4)
        steps = own_places(data, context, count=2, first_step=300)
        return np.stack(list(steps.take(5).as_numpy_iterator()))

    one = read_steps(1, 0)
    np.testing.assert_array_equal(one.ravel(), read(0, data.size, 2400, 40))
    np.testing.assert_array_equal(one, np.concatenate([read_steps(2, 0), read_steps(2, 1)], axis=1))


def test_the_order_is_that_of_the_supported_versions_of_tensorflow():
    """TensorFlow may change it in another version; then a resumed run reads another order."""
    assert epoch_of(0, 0, 8).tolist() == [6, 4, 1, 0, 3, 2, 5, 7]


def test_batches_of_several_hosts_are_endless_for_tensorflow():
    """Tests the cardinality: unless it is infinite, several machines lose the static shapes."""
    data = open_data(Config(batch_size=8))
    context = tf.distribute.InputContext(2, 1, 2)
    batches = replica_batches(data, context, batch_size=8, first_step=3)
    assert batches.cardinality() == tf.data.INFINITE_CARDINALITY
