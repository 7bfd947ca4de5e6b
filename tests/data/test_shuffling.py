"""The order of examples: a different permutation in every epoch."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.runs import open_run, resolved
from wgan_gp.config import Config
from wgan_gp.data import shuffling
from wgan_gp.data.data_record import DataRecord, check_data
from wgan_gp.data.shuffling import shuffled
from wgan_gp.run_directory.directory import RunDirectory
from wgan_gp.runtime.randomness import RngStream, bits

POWERS = [2**k + d for k in range(8, 21) for d in (-1, 0, 1) if 2**k + d <= 2**20]
LARGE = [2**20 + 1, 1_281_167, 2**31 + 11, 10**12]
KEYS = [(0, 0), (0, 1), (1, 0), (0, 256), (256, 0), (2**20 - 1, 2**20 - 1), (77_777, 1_000_003)]


def untraced(seed, positions, size):
    """Returns `shuffled` without tracing, for tests of many seeds and sizes."""
    return shuffling._shuffled(seed, size, positions).numpy()


def epoch_order(seed, epoch, size):
    return untraced(seed, tf.range(epoch * size, (epoch + 1) * size, dtype=tf.int64), size)


@pytest.mark.parametrize(
    "sizes",
    [
        range(1, 49),
        POWERS,
        [1797, 50_000, 60_000, 999_983],
        pytest.param(range(49, 257), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_each_epoch_has_every_example_once(sizes):
    for size in sizes:
        for epoch in (0, 300):
            np.testing.assert_array_equal(
                np.sort(epoch_order(3, epoch, size)), np.arange(size), err_msg=str(size)
            )


def unshuffled(seed, epoch, examples, size):
    """Returns the places of examples in an epoch, except for its first 16 places."""
    rows = math.isqrt(size - 1) + 1
    columns = -(-size // rows)
    rounds = shuffling._ROUNDS
    words = bits(
        seed, RngStream.SHUFFLE, step=0, first=epoch, count=1, size=rounds * rows + 1
    ).numpy()
    tables = words[0, :-1].astype(np.int64).reshape(rounds, rows)
    cells, outside = np.array(examples), np.ones(len(examples), bool)
    while outside.any():
        row, column = np.divmod(cells, columns)
        for of_column, of_row in tables.reshape(-1, 2, rows)[::-1]:
            column = (column - of_row[row]) % columns
            row = (row - of_column[column]) % rows
        cells = np.where(outside, row * columns + column, cells)
        outside = cells >= size
    return cells


@pytest.mark.parametrize("size", [1797, *LARGE])
def test_every_example_has_one_place(size):
    """Tests the inverse, because there are too many places to test all of them."""
    places = np.random.default_rng(0).integers(16, size, 5000)
    examples = untraced(3, tf.constant(5 * size + places), size)
    assert examples.min() >= 0 and examples.max() < size
    np.testing.assert_array_equal(unshuffled(3, 5, examples, size), places)
    head = untraced(3, tf.constant(5 * size + np.arange(16)), size)
    np.testing.assert_array_equal(np.sort(unshuffled(3, 5, head, size)), np.arange(16))


def decode_key(order):
    """Returns (seed, epoch), decoded from the order of the first 16 places of an epoch."""
    code = 0
    for index, value in enumerate(order[:16]):
        code += int((order[index + 1 : 16] < value).sum()) * math.factorial(15 - index)
    key = code // 19
    for factor in (0xFF51AFD7ED558CCD, 0x94D049BB133111EB, 0xBF58476D1CE4E5B9):
        key ^= key >> 20
        key = key * pow(factor, -1, 2**40) % 2**40
    return divmod(key, 2**20)


@pytest.mark.parametrize("size", [16, 17, 1797, 2**20])
def test_orders_of_all_epochs_and_seeds_differ(size):
    """Seed and epoch can be decoded from the order."""
    random = np.random.default_rng(0)
    for seed, epoch in [*KEYS, *random.integers(0, 2**20, [20, 2]).tolist()]:
        positions = tf.range(epoch * size, epoch * size + 16, dtype=tf.int64)
        assert decode_key(untraced(seed, positions, size)) == (seed, epoch)


@pytest.mark.parametrize("size", [1797, 50_000, 60_000, 202_599])
def test_orders_of_distant_epochs_and_seeds_are_independent(size):
    """TensorFlow's own shuffle repeats its orders."""
    begins = epoch_order(0, 0, size)
    for seed, epoch in ((0, 256), (0, 512), (256, 0), (2**20, 0), (0, 2**20), (2**31 - 1, 2**30)):
        np.testing.assert_array_equal(np.sort(epoch_order(seed, epoch, size)), np.arange(size))
        assert (epoch_order(seed, epoch, size) == begins).mean() < 12 / size


@pytest.mark.parametrize("size", [20, 50, 101])
def test_every_order_is_as_likely(size):
    """Tests examples by place, first pairs, and differences of neighbors and of epochs."""
    epochs = 60 * size
    orders = np.concatenate(
        [
            shuffled(3, tf.range(first * size, (first + 60) * size, dtype=tf.int64), size)
            for first in range(0, epochs, 60)
        ]
    ).reshape(epochs, size)
    over_places = np.stack([np.bincount(row, minlength=size) for row in orders.T])
    pairs = np.bincount(orders[:, 0] * size + orders[:, 1], minlength=size * size)
    pairs = pairs.reshape(size, size)[~np.eye(size, dtype=bool)]
    steps = np.bincount(((orders[:, 1:] - orders[:, :-1]) % size).ravel())[1:]
    changes = np.bincount(((orders[1:] - orders[:-1]) % size).ravel())
    for counts in (over_places, pairs, steps, changes):
        chi_square = (np.square(counts - counts.mean()) / counts.mean()).sum()
        freedom = counts.size - 1
        assert abs(chi_square - freedom) < 4 * math.sqrt(2 * freedom)


def test_neighbors_do_not_predict_each_other():
    for size, epochs in ((1797, 100), (60_000, 10)):
        orders = [epoch_order(0, epoch, size) for epoch in range(epochs)]
        for distance in (1, 2, 43, 64):
            found = [np.corrcoef(order[:-distance], order[distance:])[0, 1] for order in orders]
            assert abs(np.mean(found)) < 4 / math.sqrt(size * epochs)


def test_examples_do_not_depend_on_the_batch():
    """Batches may span epochs and be larger than the dataset."""
    for size in (3, 16, 40, 1797):
        whole = shuffled(7, tf.range(4000, dtype=tf.int64), size).numpy()
        for first, count in ((0, 1), (15, 64), (1790, 64), (3900, 100)):
            part = shuffled(7, tf.range(first, first + count, dtype=tf.int64), size)
            np.testing.assert_array_equal(part, whole[first : first + count])
        mixed = np.random.default_rng(0).permutation(4000)[:200]
        np.testing.assert_array_equal(shuffled(7, tf.constant(mixed), size), whole[mixed])
        slices = tf.data.Dataset.range(0, 4000, 50).map(
            lambda first, size=size: shuffled(7, first + tf.range(50, dtype=tf.int64), size)
        )
        np.testing.assert_array_equal(np.concatenate(list(slices.as_numpy_iterator())), whole)


@pytest.mark.parametrize("dataset", ["digits", "gaussians_8"])
def test_a_run_with_the_old_order_prints_one_warning(tmp_path, capsys, dataset):
    config = resolved(Config(dataset=dataset, model_width=4, model_dir=str(tmp_path)))
    directory = RunDirectory(str(tmp_path))
    run = open_run(config)
    data = DataRecord.of(run.dataset, run.data.size)
    assert data.order == (2 if dataset == "digits" else None)  # points are generated

    def start():
        """Checks and claims the directory as training does; returns the number of warnings."""
        check_data(directory, config, data)
        directory.claim(config, data.to_dict()).release()
        return capsys.readouterr().err.count("read the examples in a different order")

    assert start() == 0
    (tmp_path / "checkpoints" / "ckpt-5.json").write_text("{}")
    assert start() == 0
    saved = {"example_shape": data.spec.example_shape, "classes": 0}  # as in an earlier version
    (tmp_path / "data.json").write_text(json.dumps(saved))
    assert [start(), start()] == ([1, 0] if dataset == "digits" else [0, 0])
