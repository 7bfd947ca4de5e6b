"""The built-in and prepared datasets, and the pipeline that splits batches over replicas."""

import itertools

import numpy as np
import pytest
import sklearn.datasets
import tensorflow as tf
import tensorflow_datasets as tfds

from tests.helpers.runs import find_data, open_data, strategy_over
from wgan_gp.config import Config
from wgan_gp.data.datasets import BUILT_IN
from wgan_gp.data.feed import distributed_batches, replica_batches
from wgan_gp.errors import UserError


def classes_of(dataset, data_dir=None):
    conditional = {"conditioning": "acgan"} if dataset != "swiss_roll" else {}
    return find_data(Config(dataset=dataset, data_dir=data_dir, **conditional)).spec.classes


def read_labeled(dataset, count, first=0, **settings):
    data = open_data(Config(dataset=dataset, batch_size=1, **settings))
    return [values.numpy() for values in data.read(count, first)]


def read(dataset, count, first=0, **settings):
    return read_labeled(dataset, count, first, **settings)[0]


@pytest.mark.slow
@pytest.mark.parametrize("dataset", [*BUILT_IN, "mnist", "cifar10"])
def test_batches_are_static_and_functions_of_position(dataset, prepared):
    config = Config(dataset=dataset, data_dir=prepared, batch_size=32)
    data = open_data(config)
    assert data.format.shape == find_data(config).spec.example_shape
    batches = replica_batches(data, tf.distribute.InputContext(), batch_size=32, first_step=0)
    assert batches.element_spec == (
        tf.TensorSpec([32, *data.format.shape], tf.float32),
        tf.TensorSpec([32], tf.int32),
    )
    # With autotuning, the end of a run would wait for the tuner, up to a minute.
    assert batches.options().autotune.enabled is False
    both, second, other = (
        read_labeled(dataset, count, first, data_dir=prepared, seed=seed)
        for count, first, seed in ((64, 0, 0), (32, 32, 0), (32, 32, 1))
    )
    for whole, part in zip(both, second, strict=True):
        np.testing.assert_array_equal(whole[32:], part)
    assert (second[0] != other[0]).any()
    labels = np.unique(both[1])
    assert labels.min() == 0 and labels.max() < max(1, classes_of(dataset, prepared))


def test_no_copy_to_a_replica_is_tuned(monkeypatch):
    """Otherwise, the end of a run on several replicas waited up to a minute for each of them."""
    tuned, make = [], tf.data.Dataset.__iter__

    def record(dataset):
        tuned.append(dataset.options().autotune.enabled)
        return make(dataset)

    monkeypatch.setattr(tf.data.Dataset, "__iter__", record)
    data = open_data(Config(batch_size=8))
    batches = distributed_batches(data, strategy_over(2), 0, batch_size=8)
    assert next(batches)[0].values[1].shape == (4, 8, 8, 1)
    assert tuned == [False, False]


def test_labels_match_their_images():
    images, labels = read_labeled("digits", 1797)
    digits = sklearn.datasets.load_digits()
    expected = {tuple(row): label for row, label in zip(digits.data, digits.target, strict=True)}
    pixels = np.rint((images + 1) * 8).reshape(1797, -1)
    assert [expected[tuple(row)] for row in pixels] == labels.tolist()
    for dataset in ("gaussians_8", "gaussians_25"):
        points, labels = read_labeled(dataset, 4000)
        for label in range(classes_of(dataset)):
            assert points[labels == label].std(axis=0).max() < 0.1


def test_levels_are_dequantized_with_new_noise_at_every_use(prepared):
    """Levels x become 2 (x / 256 - 1/2) + u, with u uniform on [0, 1/128)."""
    builder = tfds.builder("cifar10", data_dir=prepared)
    levels = {
        example["image"].tobytes(): int(example["label"])
        for example in tfds.as_numpy(builder.as_dataset(split="train"))
    }
    first, labels = read_labeled("cifar10", 60, data_dir=prepared)
    second, _ = read_labeled("cifar10", 60, 60, data_dir=prepared)
    assert first.min() >= -1 and first.max() < 1
    uint8 = np.floor((first.astype(np.float64) + 1) * 128).astype(np.uint8)
    assert [levels[image.tobytes()] for image in uint8] == labels.tolist()
    noise = (first.astype(np.float64) + 1) * 128 - uint8
    assert abs(noise.mean() - 0.5) < 0.01 and abs(noise.var() - 1 / 12) < 0.002
    again = np.floor((second.astype(np.float64) + 1) * 128).astype(np.uint8)
    assert {image.tobytes() for image in again} == set(levels)
    assert not set(first.ravel()) & set(second.ravel()) > set(first.ravel())


def test_random_flips_mirror_half_of_the_images(prepared):
    plain = read("cifar10", 600, data_dir=prepared)
    mixed = read("cifar10", 600, data_dir=prepared, random_flips=True)
    same = [np.abs(a - b).max() < 0.01 for a, b in zip(plain, mixed, strict=True)]
    mirrored = [np.abs(a[:, ::-1] - b).max() < 0.01 for a, b in zip(plain, mixed, strict=True)]
    assert sum(same) + sum(mirrored) == 600 and 250 < sum(mirrored) < 350


@pytest.mark.slow
def test_prepared_images_are_resized(prepared):
    images = read("mnist", 8, data_dir=prepared, image_size=32)
    assert images.shape == (8, 32, 32, 1) and images.min() >= -1 and images.max() < 1


def test_an_unprepared_dataset_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"=cifar10 is not prepared: .*cifar.* does not exist"):
        open_data(Config(dataset="cifar10", data_dir=str(tmp_path)))


def test_each_epoch_has_every_digit_once():
    images = read("digits", 1797)
    assert images.min() == -1 and images.max() == 1
    pixels = np.rint((images + 1) * 8).reshape(1797, -1)
    expected = sklearn.datasets.load_digits().data
    np.testing.assert_array_equal(pixels[np.lexsort(pixels.T)], expected[np.lexsort(expected.T)])


def test_digits_are_resized():
    images = read("digits", 8, image_size=32)
    assert images.shape == (8, 32, 32, 1)
    assert images.min() >= -1 and images.max() <= 1 and images.std() > 0.3


def test_gaussians_25_has_modes_on_a_grid():
    points = read("gaussians_25", 20_000)
    centers = np.rint(points / 2) * 2
    modes, counts = np.unique(centers, axis=0, return_counts=True)
    np.testing.assert_array_equal(modes, list(itertools.product([-4, -2, 0, 2, 4], repeat=2)))
    assert counts.min() > 650  # of 800
    np.testing.assert_allclose((points - centers).std(axis=0), 0.05, rtol=0.03)


def test_gaussians_8_has_modes_on_a_circle():
    points = read("gaussians_8", 8000)
    angle = np.rint(np.arctan2(points[:, 1], points[:, 0]) / (np.pi / 4)) * np.pi / 4
    centers = 2 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    np.testing.assert_allclose((points - centers).std(axis=0), 0.02, rtol=0.05)
    assert np.unique(angle % (2 * np.pi), return_counts=True)[1].min() > 850


def test_swiss_roll_is_a_spiral():
    points = read("swiss_roll", 8000) * 7.5
    angle = np.arctan2(points[:, 1], points[:, 0])
    # On the spiral, the radius equals the angle, apart from full turns and the noise.
    turns = (np.linalg.norm(points, axis=1) - angle) / (2 * np.pi)
    residual = 2 * np.pi * (turns - np.rint(turns))
    assert residual.std() < 0.3
    assert 4.0 < np.linalg.norm(points, axis=1).min() < 5.0
    assert 14.0 < np.linalg.norm(points, axis=1).max() < 15.5


def global_batches(replicas, steps, first_step=0):
    strategy = strategy_over(replicas)
    data = open_data(Config())
    batches = distributed_batches(data, strategy, first_step, batch_size=60)
    return [
        np.concatenate(strategy.experimental_local_results(next(batches)[0])) for _ in range(steps)
    ]


@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_read_slices_of_the_global_batch(replicas):
    np.testing.assert_array_equal(global_batches(replicas, 3), global_batches(1, 3))


def test_hosts_read_slices_of_the_global_batch():
    """Two hosts of two replicas each: host h feeds the replicas 2h and 2h + 1."""
    data = open_data(Config())
    hosts = [
        replica_batches(
            data,
            tf.distribute.InputContext(2, host, 4),
            batch_size=60,
            first_step=0,
        ).as_numpy_iterator()
        for host in range(2)
    ]
    for expected in global_batches(1, 3):
        parts = [next(host)[0] for host in hosts for _ in range(2)]
        np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_a_restart_reads_the_same_batches():
    np.testing.assert_array_equal(global_batches(1, 2, first_step=40), global_batches(1, 42)[40:])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"dataset": "digit"},
            "--dataset=digit is neither built in nor opened by .* — use",
        ),
        ({"dataset": "swiss_roll", "image_channels": 3}, "--image_channels=3 .* — omit it"),
        ({"dataset": "swiss_roll", "image_size": 8}, "--image_size=8 .* — omit it"),
    ],
)
def test_invalid_settings_are_named(settings, message):
    with pytest.raises(UserError, match=message):
        find_data(Config(**settings))


def test_only_conditional_runs_require_labels():
    for dataset, count in (("swiss_roll", 0), ("digits", 10)):
        unconditional = find_data(Config(dataset=dataset))
        assert (unconditional.spec.classes, unconditional.label_count) == (0, count)
    assert find_data(Config(dataset="gaussians_8", conditioning="acgan")).spec.classes == 8
    with pytest.raises(UserError, match="=acgan needs labels, but --dataset=swiss_roll has none"):
        find_data(Config(dataset="swiss_roll", conditioning="acgan"))
