"""Sources by position, and the pipeline that splits them over replicas."""

import itertools

import numpy as np
import pytest
import sklearn.datasets
import tensorflow as tf
from conftest import strategy_over

from wgan_gp.config import Config
from wgan_gp.data.pipeline import distributed_batches, replica_batches
from wgan_gp.data.registry import DATASETS, example_shape, open_source
from wgan_gp.errors import UserError


def read(dataset, count, first=0, **settings):
    source = open_source(Config(dataset=dataset, **settings))
    return source.read(tf.constant(first, tf.int64), count).numpy()


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_source_is_static_float32_and_a_function_of_position(dataset):
    config = Config(dataset=dataset)
    source = open_source(config)
    assert source.example_shape == example_shape(config)
    batches = replica_batches(source, tf.distribute.InputContext(), batch_size=32, first_step=0)
    assert batches.element_spec == tf.TensorSpec([32, *source.example_shape], tf.float32)
    np.testing.assert_array_equal(read(dataset, 64)[32:], read(dataset, 32, first=32))
    assert (read(dataset, 32) != read(dataset, 32, seed=1)).any()


def test_digits_are_whole_once_an_epoch_and_in_range():
    images = read("digits", 1797)
    assert images.min() == -1 and images.max() == 1
    pixels = np.rint((images + 1) * 8).reshape(1797, -1)
    expected = sklearn.datasets.load_digits().data
    np.testing.assert_array_equal(pixels[np.lexsort(pixels.T)], expected[np.lexsort(expected.T)])


def test_digits_are_resized():
    images = read("digits", 8, image_size=32)
    assert images.shape == (8, 32, 32, 1)
    assert images.min() >= -1 and images.max() <= 1 and images.std() > 0.3


def test_gaussians_25_has_its_modes_and_its_deviation():
    points = read("gaussians_25", 20_000)
    centres = np.rint(points / 2) * 2
    modes, counts = np.unique(centres, axis=0, return_counts=True)
    np.testing.assert_array_equal(modes, list(itertools.product([-4, -2, 0, 2, 4], repeat=2)))
    assert counts.min() > 650  # of 800
    np.testing.assert_allclose((points - centres).std(axis=0), 0.05, rtol=0.03)


def test_gaussians_8_lies_on_its_circle():
    points = read("gaussians_8", 8000)
    angle = np.rint(np.arctan2(points[:, 1], points[:, 0]) / (np.pi / 4)) * np.pi / 4
    centres = 2 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    np.testing.assert_allclose((points - centres).std(axis=0), 0.02, rtol=0.05)
    assert np.unique(angle % (2 * np.pi), return_counts=True)[1].min() > 850


def test_swiss_roll_is_a_spiral():
    points = read("swiss_roll", 8000) * 7.5
    angle = np.arctan2(points[:, 1], points[:, 0])
    # On the spiral the radius is the angle, up to whole turns and the noise.
    turns = (np.linalg.norm(points, axis=1) - angle) / (2 * np.pi)
    residual = 2 * np.pi * (turns - np.rint(turns))
    assert residual.std() < 0.3
    assert 4.0 < np.linalg.norm(points, axis=1).min() < 5.0
    assert 14.0 < np.linalg.norm(points, axis=1).max() < 15.5


def global_batches(replicas, steps, first_step=0):
    strategy = strategy_over(replicas)
    source = open_source(Config())
    batches = distributed_batches(source, strategy, first_step, batch_size=60)
    return [
        np.concatenate(strategy.experimental_local_results(next(batches))) for _ in range(steps)
    ]


@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_read_the_slices_of_one_batch(replicas):
    np.testing.assert_array_equal(global_batches(replicas, 3), global_batches(1, 3))


def test_hosts_read_the_slices_of_one_batch():
    """Two hosts of two replicas each: host h feeds the replicas 2h and 2h + 1."""
    source = open_source(Config())
    hosts = [
        replica_batches(
            source,
            tf.distribute.InputContext(2, host, 4),
            batch_size=60,
            first_step=0,
        ).as_numpy_iterator()
        for host in range(2)
    ]
    for expected in global_batches(1, 3):
        parts = [next(host) for host in hosts for _ in range(2)]
        np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_restarting_at_a_step_gives_the_batches_of_an_uninterrupted_run():
    np.testing.assert_array_equal(global_batches(1, 2, first_step=40), global_batches(1, 42)[40:])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataset": "digit"}, "--dataset=digit is unknown — use one of digits, gaussians_8"),
        ({"dataset": "swiss_roll", "image_size": 8}, "--image_size=8 .* — leave it out"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(UserError, match=message):
        example_shape(Config(**settings))
