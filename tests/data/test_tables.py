"""Tests of the measures of tables, signals and other arrays, and of their evaluators."""

import dataclasses
import json
import textwrap
import types
from typing import Any

import numpy as np
import pytest
import scipy.signal
import scipy.stats
import tensorflow as tf

from tests.helpers.runs import call_main
from wgan_gp.config import Config
from wgan_gp.data.conditions import Conditions
from wgan_gp.data.datasets import DataSpec
from wgan_gp.errors import UserError
from wgan_gp.evaluation import arrays, distances, evaluator, learned, results
from wgan_gp.evaluation.tables import _classified


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def mixture(count, modes=4, seed=0):
    """Draws from a mixture of Gaussians around `modes` points in six dimensions."""
    random = np.random.default_rng(seed)
    centers = 3 * np.random.default_rng(99).normal(size=(4, 6))
    return centers[random.integers(0, modes, count)] + random.normal(size=(count, 6))


# Distances, compared with scipy's and with closed forms.


def test_feature_distances_equal_scipys(monkeypatch):
    monkeypatch.setattr(distances, "_BLOCK_ELEMENTS", 150)  # blocks of two features
    samples, real = normal(70, 5), np.round(2 * normal(70, 5, seed=1), 1)  # with ties
    samples[:20, 3] = real[:20, 3]
    for found, function in (
        (
            distances.feature_distances(samples, real) * real.std(axis=0),
            scipy.stats.wasserstein_distance,
        ),
        (
            distances.kolmogorov_smirnov(samples, real),
            lambda first, second: scipy.stats.ks_2samp(first, second).statistic,
        ),
    ):
        expected = [function(samples[:, each], real[:, each]) for each in range(5)]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_feature_distances_do_not_depend_on_units_and_allow_constants():
    samples, real = normal(50, 3), normal(50, 3, seed=1)
    real[:, 2] = 7
    samples[:, 2] = 7.5
    units = np.array([1e6, 1e-6, 1])
    found = distances.feature_distances(samples * units + 4, real * units + 4)
    np.testing.assert_allclose(found, distances.feature_distances(samples, real), rtol=1e-9)
    assert found[2] == 0.5
    assert distances.kolmogorov_smirnov(samples, real)[2] == 1


def test_correlation_error_equals_numpys_and_skips_constants():
    real, samples = normal(60, 4), normal(60, 4, seed=1)
    real[:, 1] += real[:, 0]
    difference = np.corrcoef(samples.T) - np.corrcoef(real.T)
    expected = np.abs(difference[np.triu_indices(4, 1)]).mean()
    assert distances.correlation_error(samples, real) == pytest.approx(expected)
    constant = np.full([60, 1], 0.1)
    both = [np.concatenate([each, constant], axis=1) for each in (samples, real)]
    assert distances.correlation_error(*both) == pytest.approx(expected * 6 / 10)
    assert distances.correlation_error(samples[:, :1], real[:, :1]) == 0
    assert np.isfinite(distances.correlation_error(normal(9, 3000), normal(9, 3000, seed=1)))


def test_spectrum_error_of_a_gain_and_of_another_frequency():
    noise = normal(400, 64, 2)
    # Twice the amplitude is 6.02 dB at every frequency.
    assert distances.spectrum_error(2 * noise, noise) == pytest.approx(20 * np.log10(2), rel=1e-3)
    assert distances.spectrum_error(noise + 5, noise) == pytest.approx(0, abs=1e-9)
    assert distances.spectrum_error(normal(400, 64, 2, seed=1), noise) < 0.6
    low, high = (np.sin(np.arange(64) * f + normal(100, 1))[..., None] for f in (0.5, 0.8))
    assert distances.spectrum_error(high, low) > 10
    # Frequencies without power hardly count.
    quiet = low + 1e-4 * normal(100, 64, 1)
    assert distances.spectrum_error(quiet, low) < 0.1


def test_the_power_spectrum_is_scipys():
    signals = normal(7, 33, 2)
    window = np.sin(np.pi * (np.arange(33) + 0.5) / 33) ** 2
    _, expected = scipy.signal.periodogram(
        signals, window=window, axis=1, scaling="spectrum", detrend="constant"
    )
    expected = expected.mean(axis=0)[1:] * window.sum() ** 2 / 2  # both sides, unscaled
    np.testing.assert_allclose(distances.power_spectrum(signals), expected, rtol=1e-9)


def test_autocorrelation_of_an_autoregressive_process():
    random = np.random.default_rng(0)
    signals = np.zeros([2000, 80])
    for time in range(1, 80):
        signals[:, time] = 0.7 * signals[:, time - 1] + random.normal(size=2000)
    signals = signals[:, 40:, None]  # stationary
    found = distances.autocorrelation(signals)[:, 0]
    np.testing.assert_allclose(found[:5], 0.7 ** np.arange(1, 6), atol=0.02)
    assert len(found) == 20
    expected = np.mean(0.7 ** np.arange(1, 21))
    error = distances.autocorrelation_error(normal(2000, 40, 1), signals)
    assert error == pytest.approx(expected, abs=0.02)
    assert np.isfinite(distances.autocorrelation(np.ones([3, 4, 1]))).all()


# Classifiers and nearest neighbors.


@pytest.mark.slow
def test_a_missing_mode_raises_the_two_sample_accuracy():
    real = mixture(400)
    found = {
        modes: learned.two_sample_accuracy(mixture(400, modes, seed=1), real) for modes in (4, 3, 2)
    }
    assert abs(found[4] - 0.5) < 0.05
    # The best accuracy is 1/2 + (1 - modes / 4) / 2.
    assert 0.58 < found[3] < 0.67 and 0.7 < found[2] < 0.78


def test_two_sample_accuracy_sees_joint_differences_and_is_reproducible():
    real = normal(300, 2)
    real[:, 1] = real[:, 0] + 0.1 * real[:, 1]
    shuffled = np.column_stack([real[:, 0], np.random.default_rng(1).permutation(real[:, 1])])
    found = learned.two_sample_accuracy(shuffled, real)
    assert found > 0.8 and learned.two_sample_accuracy(shuffled, real) == found
    assert 0 <= learned.two_sample_accuracy(real[:2], real[2:5]) <= 1  # fewer than five folds


@pytest.mark.slow
def test_large_examples_are_reduced():
    """Checks that noise outside the components of the data, and roughness, are still visible."""
    basis = normal(3, 12 * 8)
    real, samples = ((normal(200, 3, seed=seed) @ basis).reshape(200, 12, 8) for seed in (1, 2))
    noisy = samples + 0.3 * normal(200, 12, 8, seed=3)
    reduce = learned.Reducer(real)
    assert reduce(real).shape == (200, 64 + 1 + 3 * 8) and reduce(real).dtype == np.float64
    assert abs(learned.two_sample_accuracy(samples, real) - 0.5) < 0.1
    assert learned.two_sample_accuracy(noisy, real) > 0.95
    one = learned.Reducer(np.ones([3, 5, 20, 4]))(np.ones([2, 5, 20, 4]))
    assert np.isfinite(one).all()


def test_two_sample_accuracy_does_not_depend_on_labels_that_both_sets_share():
    """Checks samples for the labels of the data: nothing else distinguishes the examples."""
    labels = np.random.default_rng(0).integers(0, 10, 300)
    examples = np.eye(10)[labels]
    assert learned.two_sample_accuracy(examples, examples) == 0.5
    noise = [examples + 0.1 * normal(300, 10, seed=seed) for seed in (1, 2)]
    error = np.sqrt(1 / (4 * 300))  # see studies/calibration.py
    assert abs(learned.two_sample_accuracy(*noise) - 0.5) < 4 * error


@pytest.mark.parametrize("size", [3, 100, 3000])
def test_distances_and_features_treat_all_sets_alike(size):
    """Checks that the order of the sets does not matter, and large numbers of any dtype."""
    first, second = normal(60, size), 2 * normal(50, size, seed=1)
    rows = learned.comparable([first, second])
    for found, expected in zip(learned.comparable([second, first]), rows[::-1], strict=True):
        np.testing.assert_allclose(
            *(np.linalg.norm(each[:, None] - each[None], axis=2) for each in (found, expected)),
            atol=1e-9,
        )
    scale = np.concatenate([first, second]).std(axis=0)
    exact = np.linalg.norm((first[:, None] - second[None]) / scale, axis=2)
    found = np.linalg.norm(rows[0][:, None] - rows[1][None], axis=2)
    # A squared distance in K random projections has the deviation sqrt(2 / K).
    tolerance = 1e-9 if size <= 1024 else 5 * np.sqrt(1 / (2 * 1024))
    np.testing.assert_allclose(found, exact, rtol=tolerance)
    seconds = [1_700_000_000 + np.rint(1000 * each).astype(np.int64) for each in (first, second)]
    moved = learned.comparable(seconds)
    far = np.linalg.norm(moved[0][:, None] - moved[1][None], axis=2)
    np.testing.assert_allclose(far, found, rtol=0.01)


def test_training_on_samples_uses_nothing_of_the_test_examples():
    """Checks that the answers for test examples do not depend on the other test examples."""
    train, test = normal(200, 100), normal(80, 100, seed=1)
    labels, truth = ((each[:, 0] > 0).astype(np.int32) for each in (train, test))
    test[40:] *= 1e3
    accuracies = [
        learned.transfer_accuracy(train, labels, test[part], truth[part])
        for part in (slice(None), slice(40), slice(40, None))
    ]
    assert accuracies[0] == pytest.approx((accuracies[1] + accuracies[2]) / 2, rel=1e-12)
    assert 0.5 < accuracies[1] < 1


def test_copies_of_the_data_are_closer_than_held_out_examples():
    data, held_out, samples = (normal(500, 3, seed=seed) for seed in range(3))
    reference = learned.nearest_distances(held_out, data)
    for real in (reference, learned.nearest_distances(data, data, without_itself=True)):
        fresh = learned.closeness(learned.nearest_distances(samples, data), real)
        assert fresh.distance_ratio == pytest.approx(1, abs=0.15)
        assert fresh.closer_share == pytest.approx(0.5, abs=0.07)
        noise = 1e-3 * normal(500, 3, seed=4)
        copies = learned.closeness(learned.nearest_distances(data + noise, data), real)
        assert copies.distance_ratio < 0.02 and copies.closer_share > 0.98
        # A fifth of copies hardly changes the median, but a tenth of the ranks.
        mixed = np.concatenate([data[:100] + noise[:100], samples[:400]])
        some = learned.closeness(learned.nearest_distances(mixed, data), real)
        assert 0.54 < some.closer_share < 0.66
        blurred = learned.closeness(learned.nearest_distances(3 * samples, data), real)
        assert blurred.distance_ratio > 2 and blurred.closer_share < 0.3
    # Rows that occur many times are copies of each other, and no rounding error is a distance.
    rows = 1000 * normal(20, 5, seed=6)
    places = np.random.default_rng(7).integers(0, 20, [2, 1000])
    equal, samples = rows[places[0]], rows[places[1]]
    distances = learned.nearest_distances(samples, equal)
    real = learned.nearest_distances(equal, equal, without_itself=True)
    assert not distances.any() and not real.any()
    assert learned.closeness(distances, real).distance_ratio == 1
    assert learned.closeness(np.zeros(3), np.zeros(3)).closer_share == 0.5  # all equal
    assert learned.closeness(np.zeros(3), np.zeros(3)).distance_ratio == 1


def test_transfer_accuracy_of_classes_and_of_conditions():
    features = normal(300, 3)
    labels = (features[:, 0] > 0).astype(np.int32) + (features[:, 0] > 1)
    good = learned.transfer_accuracy(features[:200], labels[:200], features[200:], labels[200:])
    wrong = learned.transfer_accuracy(-features[:200], labels[:200], features[200:], labels[200:])
    assert good > 0.95 and wrong < 0.5
    only = learned.transfer_accuracy(features, np.zeros(300, int), features, labels)
    assert only == (labels == 0).mean()
    conditions = np.stack([features[:, 1], features[:, 0] ** 2], axis=1)
    r2 = learned.transfer_accuracy(
        features[:200], conditions[:200], features[200:], conditions[200:]
    )
    assert 0.8 < r2 < 1


# Evaluators.


class FakeExamples:
    """Examples in memory, in the place of `examples.Examples`."""

    batch_size = 8

    def __init__(self, data, labels=None, held_out=None):
        self.data, self.held_out = data.astype(np.float32), held_out
        self.labels = np.zeros(len(data), np.int32) if labels is None else labels
        classes = 0 if labels is None or labels.ndim == 2 else labels.max() + 1
        spec = DataSpec(data.shape[1:], 0)
        self.dataset = types.SimpleNamespace(
            spec=spec,
            source=types.SimpleNamespace(spec=spec),
            label_count=classes,
            settings=types.SimpleNamespace(dataset="mine.py"),
        )

    def read(self, count):
        return self.data[:count], self.labels[:count]

    def read_held_out(self, count):
        return self.held_out


class FakeSampler:
    """A sampler of given samples, or of examples that equal their labels plus noise."""

    def __init__(self, samples, classes=0, condition_size=0):
        self.samples, self.classes = samples.astype(np.float32), classes
        self.conditions = Conditions.of(np.zeros([1, condition_size])) if condition_size else None
        self.requested = None

    def sample(self, count):
        return self.samples[:count]

    def noise(self, count):
        return self.samples[:count], None

    def generate(self, latents, labels):
        self.requested = labels
        return latents + labels.reshape(len(labels), -1)[:, :1]


def evaluate(samples, real, count=10_000, kind=None, sampler=None, restore=None, names=None):
    real = real if isinstance(real, FakeExamples) else FakeExamples(real)
    settings = Config(evaluate_samples=count)
    sampler = sampler or FakeSampler(samples)
    if restore or names:
        scaling: Any = types.SimpleNamespace(restore=restore or (lambda each: each), names=names)
        real.dataset.spec = dataclasses.replace(real.dataset.spec, scaling=scaling)
    made = evaluator.make_evaluator(settings, tf.distribute.get_strategy(), sampler, real, None)
    assert type(made) is (kind or arrays.TableEvaluator)
    values = made.evaluate()
    assert all(tag.startswith("evaluation/") for tag in values)
    assert np.isfinite(list(values.values())).all()
    assert results.table(3, values, made.metadata)  # every metric has an explanation
    return {tag.removeprefix("evaluation/"): value for tag, value in values.items()}, made


@pytest.mark.slow
def test_samples_of_the_distribution_reach_the_floors():
    real, samples = mixture(301), mixture(400, seed=5)
    samples[:, 4] += 4
    values, made = evaluate(samples, real, names=list("abcdef"))
    assert made.metadata == {"samples": 300, "extractor": None, "farthest_feature": "e"}
    for name in ("feature_wasserstein", "kolmogorov_smirnov"):
        assert values[f"{name}_largest"] > 2 * values[f"{name}_largest_floor"]
    assert values["two_sample_accuracy"] > 0.65 and abs(values["two_sample_floor"] - 0.5) < 0.12
    values, _ = evaluate(mixture(400, seed=5), real)
    for name in ("feature_wasserstein", "kolmogorov_smirnov", "correlation_error"):
        assert 0.5 < values[name] / values[f"{name}_floor"] < 2
    assert abs(values["two_sample_accuracy"] - 0.5) < 0.1
    assert abs(values["closer_than_real"] - 0.5) < 0.1
    assert "synthetic_trained_accuracy" not in values
    assert evaluate(mixture(400, seed=5), real)[0] == values  # deterministic


@pytest.mark.slow
def test_planted_copies_are_found_with_and_without_held_out_data():
    real = mixture(200)
    copies = np.random.default_rng(2).permutation(real)
    for held_out in (None, (mixture(100, seed=3).astype(np.float32), np.zeros(100, np.int32))):
        values, _ = evaluate(copies, FakeExamples(real, held_out=held_out))
        assert values["closest_distance_ratio"] < 0.01 and values["closer_than_real"] > 0.99
        assert abs(values["closest_distance_ratio_floor"] - 1) < 0.3
        assert abs(values["closer_than_real_floor"] - 0.5) < 0.15


@pytest.mark.slow
def test_samples_are_drawn_for_the_labels_of_the_data():
    """Checks data of two classes of different size, and continuous conditions."""
    labels = (np.arange(240) % 4 == 0).astype(np.int32)
    noise, others = 0.2 * normal(240, 3), 0.2 * normal(240, 3, seed=1)
    real = FakeExamples(noise + labels[:, None], labels)
    sampler = FakeSampler(others, classes=2)
    values, _ = evaluate(None, real, sampler=sampler)
    np.testing.assert_array_equal(sampler.requested, labels)
    assert values["two_sample_accuracy"] < 0.65
    assert values["synthetic_trained_accuracy"] > 0.95 < values["real_trained_accuracy"]
    real.held_out = (real.data[:50], 1 - labels[:50])  # labels that nothing predicts
    values, _ = evaluate(None, real, sampler=sampler)
    assert values["synthetic_trained_accuracy"] < 0.1 > values["real_trained_accuracy"]
    conditions = normal(240, 2, seed=2).astype(np.float32)
    real = FakeExamples(noise + conditions[:, :1], conditions)
    values, _ = evaluate(None, real, sampler=FakeSampler(others, condition_size=2))
    assert 0.2 < values["synthetic_trained_r2"] < 0.6  # one of two conditions is predictable
    assert 0.2 < values["real_trained_r2"] < 0.6


@pytest.mark.parametrize("value", [0.0, 0.1, 7e5 + 1 / 3])
@pytest.mark.parametrize("shape", [(3,), (100,), (20, 2), (4, 5, 4)])
def test_constant_data_equals_itself_and_differs_from_noise(shape, value):
    kind = arrays.SignalEvaluator if len(shape) == 2 else None
    scaling = (lambda rows: rows.astype(np.float64) + value) if value else None
    zeros = np.zeros((40, *shape))
    values, _ = evaluate(zeros, zeros, kind=kind, restore=scaling)
    for name in values:
        if name.startswith(("two_sample", "closer_than")):
            assert values[name] == 0.5
        else:
            assert values[name] == (1 if name.startswith("closest") else 0)
    values, _ = evaluate(normal(40, *shape), zeros, kind=kind, restore=scaling or np.asarray)
    assert values["two_sample_accuracy"] > 0.8 and values["closer_than_real"] == 0
    if kind:
        # The power of noise of deviation 1 is 40 dB above the floor, at all ten frequencies.
        assert values["spectrum_error"] == pytest.approx(40, abs=3)
    values, _ = evaluate(zeros, normal(40, *shape), kind=kind, restore=scaling or np.asarray)
    assert values["two_sample_accuracy"] > 0.8 and values["closest_distance_ratio"] < 1


def test_a_constant_channel_changes_no_metric_of_the_others():
    real, samples = (normal(60, 20, 1, seed=seed) for seed in (0, 1))
    alone, _ = evaluate(samples, real, kind=arrays.SignalEvaluator)
    both = (np.concatenate([each, np.full_like(each, 0.1)], axis=2) for each in (samples, real))
    values, _ = evaluate(*both, kind=arrays.SignalEvaluator)
    for name in ("spectrum_error", "autocorrelation_error", "feature_wasserstein"):
        assert values[name] == pytest.approx(alone[name] / 2)


def test_a_rare_value_is_measured_in_deviations_of_all_data():
    """Checks a feature that is constant in a half of the data."""
    real, samples = normal(200, 2), normal(200, 2, seed=1)
    real[:, 1] = 5000 * (np.arange(200) == 7)
    samples[:, 1] = 5000 * (np.arange(200) == 150)
    values, _ = evaluate(samples, real)
    # 5000 in one of 100 examples, in deviations of 5000 sqrt(1 / 200 - 1 / 200^2).
    assert values["feature_wasserstein_floor"] == pytest.approx(
        (values["feature_wasserstein_largest_floor"] + 0.01 / np.sqrt(199 / 200**2)) / 2, rel=0.5
    )
    assert values["feature_wasserstein_largest"] < 0.3


@pytest.mark.slow
def test_one_sample_far_outside_does_not_hide_the_others():
    real, samples = normal(120, 100), 1.5 * normal(120, 100, seed=1)
    before, _ = evaluate(samples, real)
    samples[5] = 3e38
    values, _ = evaluate(samples, real)
    for name in ("two_sample_accuracy", "closest_distance_ratio", "closer_than_real"):
        assert values[name] == pytest.approx(before[name], rel=0.15, abs=0.02)


@pytest.mark.slow
def test_signals_are_compared_by_spectrum_and_autocorrelation():
    times = np.arange(40)[:, None]

    def waves(frequency, seed):
        phases = np.random.default_rng(seed).uniform(0, 6, (120, 1, 2))
        return np.sin(times * frequency + phases)

    values, made = evaluate(waves(0.5, 1), waves(0.5, 0), kind=arrays.SignalEvaluator)
    assert values["spectrum_error"] < 1 and values["autocorrelation_error"] < 0.05
    assert made.metadata["farthest_feature"].startswith("channel ")
    other, _ = evaluate(waves(0.9, 1), waves(0.5, 0), kind=arrays.SignalEvaluator)
    assert other["spectrum_error"] > 5 > 5 * values["spectrum_error_floor"]
    assert other["autocorrelation_error"] > 0.3 > values["autocorrelation_error_floor"]
    assert other["two_sample_accuracy"] > 0.9
    one, _ = evaluate(normal(20, 1, 1), normal(20, 1, 1, seed=1), kind=arrays.SignalEvaluator)
    assert "spectrum_error" not in one


def test_a_projection_depends_on_no_memory_that_was_used_before(monkeypatch):
    rows = normal(10, learned.MAX_COMPARED + 1)
    expected = learned.comparable([rows])
    empty = np.empty

    def with_nan(*arguments, **options):
        array = empty(*arguments, **options)
        if array.dtype.kind == "f":
            array.fill(np.nan)
        return array

    monkeypatch.setattr(np, "empty", with_nan)
    np.testing.assert_array_equal(learned.comparable([rows]), expected)


def test_the_farthest_voxel_of_a_volume_is_named():
    real, samples = (np.clip(normal(40, 3, 4, 5, 1, seed=seed), -1, 1) for seed in (0, 1))
    samples[:, 1, 2, 3] = 1
    _, made = evaluate(samples, real)
    assert made.metadata["farthest_feature"] == "channel 0 at depth 1, row 2, column 3"


def test_missing_values_of_wide_tables_are_no_zeros():
    """The two halves differ only in what is missing: a value, or the first category."""
    random = np.random.default_rng(0)
    numbers = random.integers(0, 3, [400, learned.MAX_FEATURES + 6]).astype(np.float64)
    samples = numbers.copy()
    for column in range(0, 60, 2):
        samples[:, column] = np.where(numbers[:, column] == 0, np.nan, numbers[:, column])
    seen = [_classified(each) for each in (numbers, samples)]
    assert all(np.isfinite(each).all() for each in seen)
    assert learned.two_sample_accuracy(*seen) > 0.9
    zeros = [np.nan_to_num(each) for each in (numbers, samples)]
    assert learned.two_sample_accuracy(*zeros) < 0.6
    assert np.isnan(_classified(samples[:, :5])).any()  # the trees have a branch for them


def test_images_of_other_channels_and_none_need_no_network():
    real, samples = (np.clip(normal(40, 6, 5, 4, seed=seed), -1, 1) for seed in (0, 1))
    values, made = evaluate(samples, real)
    assert "column" in made.metadata["farthest_feature"]
    assert values["feature_wasserstein"] < 1
    gray = FakeExamples(real[..., :1])
    made = evaluator.make_evaluator(
        Config(feature_extractor="none"), None, FakeSampler(samples), gray, None
    )
    assert isinstance(made, arrays.TableEvaluator)
    # Samples are rounded to the 256 levels of pictures.
    levels = FakeExamples(np.rint(real * 127.5 - 0.5) / 127.5 + 0.5 / 127.5)
    near, _ = evaluate(levels.data[::-1] + 0.001, levels)
    assert near["feature_wasserstein"] < 1e-6 + near["feature_wasserstein_floor"]
    assert near["closest_distance_ratio"] < 1e-3


@pytest.mark.parametrize(
    ("settings", "labels", "found"),
    [
        ({}, 0, True),
        ({}, 5, False),
        ({"feature_extractor": "none"}, 5, True),
        ({"bounded": False}, 5, True),
        ({"side": 40}, 5, True),
    ],
)
def test_arrays_of_images_need_a_network_only_if_it_is_a_classifier(
    monkeypatch, settings, labels, found
):
    side = settings.pop("side", 6)
    real = FakeExamples(np.clip(normal(30, side, 5, 3), -1, 1), np.arange(30) % max(labels, 1))
    real.dataset.label_count = labels
    real.dataset.settings.dataset = "array"
    real.dataset.spec = DataSpec((side, 5, 3), 0, settings.pop("bounded", True))
    monkeypatch.setattr(evaluator, "make_extractor", lambda *arguments: None)
    monkeypatch.setattr(evaluator, "ImageEvaluator", lambda *arguments: None)
    made = evaluator.make_evaluator(Config(**settings), None, FakeSampler(real.data), real, None)
    assert isinstance(made, arrays.TableEvaluator) == found


@pytest.mark.slow
def test_values_are_compared_in_the_units_of_the_data():
    """Checks integers, which only rounding makes like the data."""
    real = np.random.default_rng(0).integers(0, 5, (200, 2)).astype(float)
    samples = np.random.default_rng(1).integers(0, 5, (200, 2)) + 0.3 * normal(200, 2)
    rough, _ = evaluate(samples, real)
    values, _ = evaluate(samples, real, restore=np.rint)
    assert rough["kolmogorov_smirnov"] > 1.5 * values["kolmogorov_smirnov"]
    assert rough["two_sample_accuracy"] > 0.8
    # Times of today in seconds, as integers; float32 would round them to multiples of 128.
    seconds, _ = evaluate(
        samples + 2, real, restore=lambda rows: 1_700_000_000 + rows.astype(np.int64)
    )
    assert seconds["two_sample_accuracy"] > 0.7 and seconds["correlation_error"] > 0
    assert values["two_sample_accuracy"] < 0.6


@pytest.mark.parametrize("shape", [(3,), (9, 2)])
def test_errors_are_one_line(shape):
    samples = normal(20, *shape)
    samples[[4, 9]] = np.nan
    kind = arrays.SignalEvaluator if len(shape) == 2 else None
    with pytest.raises(UserError, match=r"NaN or infinite values in 2 of 20 samples"):
        evaluate(samples, normal(20, *shape), kind=kind)
    with pytest.raises(UserError, match=r"--evaluate_samples=3 is too small .* give at least 4"):
        evaluate(normal(20, *shape), normal(20, *shape), count=3, kind=kind)
    with pytest.raises(UserError, match="at least 4 real examples, but there are only 3"):
        evaluate(samples, normal(3, *shape), kind=kind)
    with pytest.raises(UserError) as caught:
        evaluator.make_evaluator(
            Config(feature_extractor="inception"), None, None, FakeExamples(samples), None
        )
    what = "signals" if len(shape) == 2 else "points"
    assert str(caught.value) == (
        f"--feature_extractor=inception is for images, but mine.py contains {what} — "
        "omit --feature_extractor"
    )


@pytest.mark.slow
def test_a_table_is_evaluated_in_training_and_after(tmp_path, capsys):
    """Checks 30 features and an odd number of examples, with held-out data and labels."""
    (tmp_path / "cancer.py").write_text(
        textwrap.dedent("""
        import numpy as np
        import sklearn.datasets

        def dataset(split):
            examples, labels = sklearn.datasets.load_breast_cancer(return_X_y=True)
            examples = ((examples - examples.mean(0)) / examples.std(0)).astype(np.float32)
            part = slice(101) if split == "train" else slice(101, 150)
            return (examples[part], labels[part]) if split in ("train", "test") else None
        """)
    )
    flags = [f"--dataset={tmp_path}/cancer.py", f"--model_dir={tmp_path}/run"]
    training = ["--model=mlp", "--model_width=4", "--latent_size=4", "--batch_size=16"]
    training += ["--n_critic=1", "--train_steps=2", "--steps_per_loop=2", "--evaluate_interval=2"]
    training += ["--conditioning=projection", "--generator_normalization=none"]
    assert call_main(*flags, *training) == 0
    assert call_main(*flags, "--mode=evaluate") == 0
    lines = (tmp_path / "run/evaluation.jsonl").read_text().splitlines()
    during, after = map(json.loads, lines)
    assert during == after and during["samples"] == 100
    assert during["farthest_feature"].startswith("feature ")
    assert during["evaluation/two_sample_accuracy"] > 0.9
    assert during["evaluation/real_trained_accuracy"] > 0.8
    out = capsys.readouterr().out
    assert "two sample accuracy" in out and "the feature with the largest distance: feature" in out
