"""Tests of the evaluation metrics, the feature extractors, the cache and --mode=evaluate."""

import dataclasses
import io
import itertools
import json
import os
import pathlib
import shutil
import zipfile

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

from studies.calibration import PICTURES, Drawn
from tests.helpers.runs import call_main, find_data, held_in, open_data, strategy_over, train_tiny
from wgan_gp.config import Config, DataSettings, ranking
from wgan_gp.data import datasets
from wgan_gp.data.pixels import NEAREST
from wgan_gp.data.sources import toys
from wgan_gp.errors import UserError
from wgan_gp.evaluation import (
    classifier,
    evaluator,
    examples,
    extractors,
    metrics,
    points,
    pretrained,
    results,
)
from wgan_gp.writers.console import ConsoleWriter
from wgan_gp.writers.files import EvaluationFileWriter
from wgan_gp.writers.writer import Writers


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# The metrics, compared with other implementations of their definitions.


@pytest.mark.parametrize(
    "size", [1, 4, 30]
)  # 30: more dimensions than rows, so the covariance is singular
def test_fid_equals_its_definition(size):
    real, fake = normal(20, size), 1.5 * normal(25, size, seed=1) + 0.3
    first, second = (np.atleast_2d(np.cov(each.T)) for each in (real, fake))
    root = scipy.linalg.sqrtm(first @ second + 1e-14 * np.eye(size)).real
    expected = np.square(real.mean(0) - fake.mean(0)).sum()
    expected += np.trace(first + second - 2 * root)
    found = metrics.frechet_distance(
        metrics.Moments.from_features(real), metrics.Moments.from_features(fake)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_fid_of_gaussians_in_closed_form():
    mean, scale = np.array([1.0, -2.0, 0.5]), 1.7
    unit = metrics.Moments(np.zeros(3), np.eye(3))
    other = metrics.Moments(mean, scale**2 * np.eye(3))
    expected = mean @ mean + 3 * (scale - 1) ** 2
    np.testing.assert_allclose(metrics.frechet_distance(unit, other), expected, rtol=1e-12)
    # Singular covariances, too: two lines at a right angle.
    lines = [metrics.Moments(np.zeros(2), np.diag(each)) for each in ([4.0, 0], [0, 9.0])]
    np.testing.assert_allclose(metrics.frechet_distance(*lines), 4 + 9, rtol=1e-12)


@pytest.mark.parametrize("rows", [5, 300])
def test_fid_of_equal_sets_is_0(rows):
    moments = metrics.Moments.from_features(normal(rows, 64))
    assert 0 <= metrics.frechet_distance(moments, moments) < 1e-10


def test_kid_equals_its_definition(monkeypatch):
    monkeypatch.setattr(
        metrics, "_BLOCK_ELEMENTS", 40
    )  # blocks of a few rows; the last one is smaller
    real, fake = normal(13, 3), normal(17, 3, seed=1) + 1

    def kernel(x, y):
        return (sum(a * b for a, b in zip(x, y, strict=True)) / 3 + 1) ** 3

    def within(rows):
        return np.mean([kernel(x, y) for x, y in itertools.permutations(rows, 2)])

    across = np.mean([kernel(x, y) for x in real for y in fake])
    expected = within(real) + within(fake) - 2 * across
    np.testing.assert_allclose(metrics.kernel_distance(real, fake), expected, rtol=1e-10)


def test_kid_has_no_bias():
    values = [
        metrics.kernel_distance(normal(20, 2, seed=seed), normal(20, 2, seed=1000 + seed))
        for seed in range(400)
    ]
    # Three standard errors. If the diagonal were included, the mean would be near 0.8.
    assert abs(np.mean(values)) < 3 * np.std(values) / 20
    assert min(values) < 0


@pytest.mark.parametrize(
    ("real_count", "fake_count", "size"), [(20, 23, 6), (9, 23, 4), (2, 30, 2)]
)
def test_kid_deviation_uses_subsets_of_both_sets(monkeypatch, real_count, fake_count, size):
    """Checks subsets of constant size, of half the smaller set, and of two rows."""
    monkeypatch.setattr(metrics, "KERNEL_SUBSET_SIZE", 6)
    monkeypatch.setattr(metrics, "KERNEL_SUBSETS", 7)
    real, fake = normal(real_count, 3), normal(fake_count, 3, seed=1)
    distances, distance = [], metrics.kernel_distance

    def spy(*sets):
        for rows, whole in zip(sets, (real, fake), strict=True):
            drawn = {row.tobytes() for row in rows}
            assert len(rows) == len(drawn) == size  # without replacement
            assert drawn <= {row.tobytes() for row in whole}
        distances.append(distance(*sets))
        return distances[-1]

    monkeypatch.setattr(metrics, "kernel_distance", spy)
    deviation = metrics.kernel_distance_deviation(real, fake)
    assert deviation == pytest.approx(np.std(distances)) and deviation > 0
    assert len(distances) == 7 and len(set(distances)) > 1
    assert metrics.kernel_distance_deviation(real, fake) == deviation  # the same subsets


def test_kid_deviation_estimates_the_deviation_over_new_draws(monkeypatch):
    """Compares subsets that hardly overlap with new draws from the distribution."""
    monkeypatch.setattr(metrics, "KERNEL_SUBSET_SIZE", 100)
    real, fake = normal(5000, 2), normal(5000, 2, seed=1)
    values = [
        metrics.kernel_distance(normal(100, 2, seed=seed), normal(100, 2, seed=1000 + seed))
        for seed in range(2, 102)
    ]
    deviation = metrics.kernel_distance_deviation(real, fake)
    # Each deviation is computed from a hundred values, so its standard error is about 10 %.
    assert 0.6 < deviation / np.std(values) < 1.6


def test_inception_score_of_certain_and_of_uniform_predictions():
    certain = np.eye(5)[np.arange(200) % 5]
    assert metrics.inception_score(certain) == pytest.approx((5, 0))
    assert metrics.inception_score(np.full([200, 5], 0.2)) == pytest.approx((1, 0))
    assert metrics.inception_score(np.eye(5)[[2] * 200]) == pytest.approx((1, 0))
    assert metrics.inception_score(certain[:3])[0] == 1  # three parts with one sample each


def test_inception_score_uses_consecutive_parts():
    random = np.random.default_rng(0)
    given = random.dirichlet(np.ones(4), 57)
    scores = []
    for part in range(10):
        chosen = given[part * 57 // 10 : (part + 1) * 57 // 10]
        marginal = chosen.mean(axis=0)
        divergences = [
            sum(p * np.log(p / q) for p, q in zip(row, marginal, strict=True)) for row in chosen
        ]
        scores.append(np.exp(np.mean(divergences)))
    assert metrics.inception_score(given) == pytest.approx((np.mean(scores), np.std(scores)))


def naive_manifold_metrics(real, fake):
    def radii(rows, k):
        return [
            sorted(np.linalg.norm(row - other) for j, other in enumerate(rows) if j != i)[k - 1]
            for i, row in enumerate(rows)
        ]

    def inside(point, center, radius):
        return np.linalg.norm(point - center) <= radius

    def share(rows, balls):
        return np.mean([any(inside(row, *ball) for ball in balls) for row in rows])

    def balls_around(rows, k):
        return list(zip(rows, radii(rows, k), strict=True))

    balls = balls_around(real, 5)
    return (
        share(fake, balls_around(real, 3)),
        share(real, balls_around(fake, 3)),
        sum(inside(row, *ball) for row in fake for ball in balls) / (5 * len(fake)),
        np.mean([any(inside(row, *ball) for row in fake) for ball in balls]),
    )


@pytest.mark.parametrize("size", [1, 2, 6])
def test_manifold_metrics_equal_their_definitions(monkeypatch, size):
    monkeypatch.setattr(metrics, "_BLOCK_ELEMENTS", 70)
    real, fake = normal(31, size), 0.7 * normal(23, size, seed=1) + 0.5
    found = dataclasses.astuple(metrics.manifold_metrics(real, fake))
    np.testing.assert_allclose(found, naive_manifold_metrics(real, fake))
    assert found == dataclasses.astuple(
        metrics.manifold_metrics(real, fake, metrics.squared_radii(real))
    )
    assert len(set(found)) == 4  # so that swapped metrics would fail the test


def test_manifold_metrics_of_points_on_a_line():
    real = np.arange(10.0)[:, None]  # distances to third neighbors are 2 or 3, to fifth ones 3 to 5
    far = metrics.manifold_metrics(real, real + 100.25)
    assert dataclasses.astuple(far) == (0, 0, 0, 0)
    # All samples are equal: precision is 1, but recall is 0.
    collapsed = metrics.manifold_metrics(real, np.full([8, 1], 4.25))
    assert (collapsed.precision, collapsed.recall) == (1, 0)
    # The balls around 1 to 8 (radius 3 or 4) and around 0 and 9 (radius 5) contain 4.25.
    assert (collapsed.density, collapsed.coverage) == (10 / 5, 1)
    half = metrics.manifold_metrics(real, np.linspace(0.1, 3.9, 10)[:, None])
    assert half.precision == 1 and half.recall < 0.7 and half.coverage < 1


def test_manifold_metrics_need_two_points_only():
    found = metrics.manifold_metrics(np.array([[0.0], [1.0]]), np.array([[0.5], [9.0]]))
    assert dataclasses.astuple(found) == (0.5, 1, 1, 1)


def test_a_point_on_the_edge_of_a_ball_is_inside():
    """Checks duplicates, whose balls have radius 0; with <, all metrics would be 0."""
    same = np.repeat([[1.0, 2.0]], 7, axis=0)
    assert dataclasses.astuple(metrics.manifold_metrics(same, same)) == (1, 1, 7 / 5, 1)


# Classifiers and the computation of features.


def tiny_evaluator(replicas=1, folder=None, draw=None, **settings):
    """Returns an evaluator of the samples that `draw` returns for a count; by default, noise."""
    config = Config(**{"batch_size": 32, "evaluate_samples": 101, **settings})
    dataset = find_data(config)

    class Sampler:
        classes = dataset.spec.classes

        def sample(self, count):
            shape = (count, *dataset.spec.example_shape)
            return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)

    sampler = Sampler()
    if draw is not None:
        sampler.sample = draw
    strategy = strategy_over(replicas)
    data = examples.Examples(dataset, strategy, config.batch_size)
    return evaluator.make_evaluator(config, strategy, sampler, data, folder)


def examples_of(config, replicas=1):
    return examples.Examples(find_data(config), strategy_over(replicas), config.batch_size)


def real_digits(count):
    images, labels = open_data(Config()).read(count)
    return images.numpy(), labels.numpy()


@pytest.mark.slow
def test_every_example_is_read_once_for_any_batch_size_and_number_of_replicas():
    expected, labels = real_digits(1797)
    for replicas, batch_size, count in ((1, 32, 101), (4, 32, 101), (4, 64, 1797), (1, 48, 9999)):
        config = Config(batch_size=batch_size, dequantization=True, random_flips=True)
        read = examples_of(config, replicas).read(count)
        np.testing.assert_array_equal(read[0], expected[:count])
        np.testing.assert_array_equal(read[1], labels[:count])
    assert len({image.tobytes() for image in expected}) > 1790  # no image twice


@held_in("off")
def test_a_stream_of_unknown_length_is_read_once():
    rows = np.arange(12, dtype=np.float32).reshape(6, 2) / 12
    spec = tf.TensorSpec([2], tf.float32)
    stream = tf.data.Dataset.from_generator(lambda: iter(rows), output_signature=spec)
    for endless, count in ((False, 6), (True, 9)):
        data = stream.repeat() if endless else stream
        settings = DataSettings(dataset="python")
        dataset = datasets.find_dataset(settings, function=lambda split, data=data: data)
        found = examples.Examples(dataset, strategy_over(1), 4).read(9)[0]
        np.testing.assert_array_equal(found, np.tile(rows, [2, 1])[:count])


def test_no_count_stands_for_all_examples(monkeypatch):
    monkeypatch.setattr(examples, "_MOST_STREAMED", 100)
    digits = examples_of(Config())
    assert sum(len(images) for images, _ in digits.batches(None)) == 1797
    points = examples_of(Config(dataset="gaussians_8"))
    assert sum(len(drawn) for drawn, _ in points.batches(None)) == 100


def test_examples_are_read_without_noise_or_flips(prepared):
    settings = {"dataset": "mnist", "data_dir": prepared, "batch_size": 30}
    plain = Config(**settings, dequantization=False)
    augmented = Config(**settings, dequantization=True, random_flips=True)
    expected, images = (examples_of(config).read(60)[0] for config in (plain, augmented))
    np.testing.assert_array_equal(images, expected)
    np.testing.assert_allclose((images + 1) * 127.5, np.rint((images + 1) * 127.5), atol=1e-4)


@pytest.fixture(scope="module")
def digits_folder(tmp_path_factory):
    """Returns the folder of the classifier of digits, which is fitted once for these tests."""
    return str(tmp_path_factory.mktemp("digits"))


@pytest.mark.slow
def test_metrics_are_the_same_on_one_and_two_replicas(digits_folder):
    one, two = (tiny_evaluator(replicas, digits_folder).evaluate() for replicas in (1, 2))
    assert one.keys() == two.keys() and one["evaluation/fid"] > 1
    for tag, value in one.items():
        assert two[tag] == pytest.approx(value, rel=1e-4), tag


def test_padding_is_not_part_of_the_features():
    """Compares the features of batches of several sizes with those of one batch."""
    found = []

    def extract(images):
        return tf.reshape(images, [images.shape[0], -1])[:, :5], None

    images = normal(101, 8, 8, 1).astype(np.float32)
    for replicas, size in ((1, 104), (1, 32), (4, 32)):
        compute = extractors.run_on_replicas(
            extractors.Extractor("pixels", "", extract), strategy_over(replicas), size
        )
        parts = [compute(batch) for batch in examples.split_into_batches(images, size)]
        assert all(len(part) == 1 for part in parts)  # no probabilities
        found.append(np.concatenate([part[0] for part in parts]))
    for each in found:
        np.testing.assert_array_equal(each, images.reshape(101, -1)[:, :5])


def test_metrics_of_the_data_itself(digits_folder):
    # The classifier is fitted to the first half of the images.
    images, labels = (part[898:] for part in real_digits(1797))
    # The classes alternate, as those of a conditional sampler do.
    by_class = [images[labels == label] for label in range(10)]
    alternating = np.stack([each[:80] for each in by_class], axis=1).reshape(-1, 8, 8, 1)
    values = tiny_evaluator(
        folder=digits_folder,
        draw=lambda count: alternating[:count],
        conditioning="acgan",
        evaluate_samples=800,
    ).evaluate()
    values = {tag.removeprefix("evaluation/"): value for tag, value in values.items()}
    assert values["fid"] < 0.1 and abs(values["kid"]) < 0.02
    assert values["precision"] > 0.95 and values["recall"] > 0.95 and values["coverage"] > 0.95
    assert values["inception_score"] > 7 and values["confidence"] > 0.9
    # Of the 80 images of a class, an accuracy above 0.92 leaves some to other classes.
    assert 0.08 < values["smallest_class"] <= 0.1 <= values["largest_class"] < 0.12
    # Both accuracies are of images to which the classifier is not fitted: 800, and a fifth of 898.
    error = np.sqrt(0.05 * 0.95 * (1 / 800 + 1 / 180))
    assert values["class_accuracy"] == pytest.approx(values["classifier_accuracy"], abs=4 * error)
    assert 0.92 < values["classifier_accuracy"] < 1  # of 180 images


def test_samples_are_compared_with_images_to_which_the_classifier_is_not_fitted(digits_folder):
    made = tiny_evaluator(folder=digits_folder, evaluate_samples=9999)
    images, labels = real_digits(1797)
    model = classifier.Classifier(classifier.fit(images[:898], labels[:898], 10))
    expected, _ = model(tf.constant(extractors.quantize(images[898:], NEAREST)))
    np.testing.assert_allclose(made._real, expected, atol=1e-5)
    assert model.examples == 898


@pytest.mark.parametrize(
    ("count", "fitted", "message"),
    [(1, 0, "at least 2 real images, but there is only one"), (3, 2, "at least 4 .* only 3")],
)
def test_too_few_images_are_reported(count, fitted, message):
    images, labels = real_digits(count)
    drawn = Drawn(PICTURES, images, labels, None, images)
    strategy, cache = strategy_over(1), examples.ArrayCache(None)
    extractor = extractors.Extractor(
        "pixels", "", lambda batch: (tf.reshape(batch, [batch.shape[0], -1]), None), fitted=fitted
    )
    made = evaluator.ImageEvaluator(count, strategy, drawn, drawn, cache, extractor)
    with pytest.raises(UserError, match=message):
        made.evaluate()


def test_class_accuracy_is_low_if_all_samples_are_of_one_class(digits_folder):
    images, labels = real_digits(1797)
    threes = images[labels == 3]
    values = tiny_evaluator(
        folder=digits_folder,
        draw=lambda count: threes[:count],
        conditioning="acgan",
    ).evaluate()
    assert values["evaluation/class_accuracy"] == pytest.approx(0.1, abs=0.02)
    assert values["evaluation/smallest_class"] == 0 and values["evaluation/largest_class"] > 0.97
    assert values["evaluation/recall"] < 0.5 < values["evaluation/precision"]


def test_quantize_rounds_to_the_levels_of_a_png():
    levels = np.arange(256, dtype=np.float32).reshape(1, 16, 16, 1)
    images = levels / 127.5 - 1
    rounded = extractors.quantize(images, NEAREST)
    np.testing.assert_allclose(rounded, images, atol=1e-7)
    near = extractors.quantize(images + 0.4 / 127.5, NEAREST)
    np.testing.assert_array_equal(near[:, :-1], rounded[:, :-1])
    assert np.abs(extractors.quantize(np.array([-3.0, 3.0]))).max() == 1


def test_samples_are_quantized_before_features_are_computed(digits_folder):
    images, _ = real_digits(101)
    first, second = (
        tiny_evaluator(folder=digits_folder, draw=lambda count, shift=shift: images + shift)
        for shift in (0.0, 1e-4)
    )
    assert first.evaluate() == second.evaluate()


def test_a_classifier_of_four_classes_of_which_two_have_no_examples():
    random = np.random.default_rng(0)
    labels = random.choice([1, 3], 200)
    images = (labels[:, None, None, None] - 2 + 0.3 * random.normal(size=[200, 2, 2, 1])) / 2
    model = classifier.Classifier(classifier.fit(images.astype(np.float32), labels, classes=4))
    assert model.accuracy > 0.95
    features, probabilities = model(tf.constant(images, tf.float32))
    assert features.shape == (200, classifier.HIDDEN_UNITS)
    np.testing.assert_allclose(tf.reduce_sum(probabilities, axis=1), 1, rtol=1e-5)
    assert (np.argmax(probabilities, axis=1) == labels).mean() > 0.95
    assert not np.any(np.array(probabilities)[:, [0, 2]])


def test_a_classifier_equals_scikit_learns_and_is_tested_on_held_out_images(monkeypatch):
    images, labels = real_digits(400)
    spied = {}
    perceptron = classifier.sklearn.neural_network.MLPClassifier

    class Spy(perceptron):
        def fit(self, pixels, targets):
            spied["model"], spied["count"] = self, len(pixels)
            return super().fit(pixels, targets)

    monkeypatch.setattr(classifier.sklearn.neural_network, "MLPClassifier", Spy)
    arrays = classifier.fit(images, labels, classes=10)
    assert spied["count"] == 320
    pixels = images.reshape(400, -1)
    expected = spied["model"].predict_proba(pixels)
    _, probabilities = classifier.Classifier(arrays)(tf.constant(images))
    np.testing.assert_allclose(probabilities, expected, atol=1e-4)
    correct = expected[320:].argmax(axis=1) == labels[320:]
    assert float(arrays["accuracy"]) == pytest.approx(correct.mean())
    again = classifier.fit(images, labels, classes=10)
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)


# Networks from files.


def linear(channels=3, side=4, outputs=2):
    """Returns a linear network whose features depend on each channel in another way."""
    inputs = tf.keras.Input([side, side, channels])
    features = tf.keras.layers.Conv2D(outputs, side, use_bias=False)(inputs)
    return tf.keras.Model(inputs, features)


def save(model, path):
    if path.suffix:
        model.save(path)
        return

    class Exported(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernel = tf.Variable(model.get_weights()[0])

        @tf.function(input_signature=[tf.TensorSpec([None, 4, 4, 3])])
        def serve(self, images):
            return {
                "pool_3": tf.nn.conv2d(images, self.kernel, 1, "VALID"),
                "logits": tf.reduce_mean(images, [1, 2]),
            }

        @tf.function(input_signature=[tf.TensorSpec([None, 4, 4, 3])])
        def __call__(self, images):
            return tf.nn.conv2d(images, self.kernel, 1, "VALID")

    exported = Exported()
    signatures = {"serving_default": exported.serve} if "signed" in path.name else None
    tf.saved_model.save(exported, str(path), signatures=signatures)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "replicas"), [("model.keras", 1), ("model.h5", 4), ("signed", 1), ("callable", 4)]
)
def test_a_network_from_a_file_computes_the_features(tmp_path, name, replicas):
    model = linear()
    save(model, tmp_path / name)
    strategy = strategy_over(replicas)
    extractor = extractors.make_extractor(
        str(tmp_path / name), strategy, examples_of(Config(), replicas), examples.ArrayCache(None)
    )
    # The images are gray and have 8x8 pixels; the network takes color images of 4x4 pixels.
    images = normal(7, 8, 8, 1).astype(np.float32)
    features, *probabilities = extractors.run_on_replicas(extractor, strategy, 8)(images)
    small = np.repeat(tf.image.resize(images, [4, 4]), 3, axis=3)
    expected = np.einsum("nijc,ijcd->nd", small, model.get_weights()[0])
    np.testing.assert_allclose(features, expected, atol=1e-5)
    if name == "signed":
        np.testing.assert_allclose(
            probabilities[0], tf.nn.softmax(small.mean(axis=(1, 2))), atol=1e-6
        )
    else:
        assert not probabilities


def test_color_images_for_a_network_that_takes_gray_images(tmp_path):
    model = linear(channels=1, side=8)
    model.save(tmp_path / "gray.keras")
    _, network = pretrained.load_model(str(tmp_path / "gray.keras"))
    images = normal(3, 8, 8, 3).astype(np.float32)
    gray = tf.image.rgb_to_grayscale(images)
    np.testing.assert_allclose(
        network(tf.constant(images))[0], np.reshape(model(gray), [3, 2]), atol=1e-5
    )


def test_a_changed_file_has_another_key(tmp_path):
    keys = []
    for outputs in (2, 3):
        linear(outputs=outputs).save(tmp_path / "model.keras")
        keys.append(pretrained.load_model(str(tmp_path / "model.keras"))[0])
    assert keys[0] != keys[1]


def bad_model(tmp_path, name):
    path = tmp_path / name
    if name == "text.keras":
        path.write_text("no model")
    elif name == "vectors.keras":
        tf.keras.Sequential([tf.keras.Input([5]), tf.keras.layers.Dense(2)]).save(path)
    elif name == "colors.keras":
        linear(channels=5).save(path)
    elif name == "empty":
        path.mkdir()
    elif name == "outputs":
        module = tf.Module()
        module.serve = tf.function(
            lambda images: {"a": images, "b": images},
            input_signature=[tf.TensorSpec([None, None, None, None])],
        )
        tf.saved_model.save(module, str(path), signatures=module.serve)
    elif name == "nothing":
        tf.saved_model.save(tf.Module(), str(path))
    return path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "is neither a Keras file (.keras or .h5) nor a SavedModel folder"),
        ("empty", "is neither a Keras file (.keras or .h5) nor a SavedModel folder"),
        ("text.keras", "cannot be loaded"),
        (
            "vectors.keras",
            "its input has shape (None, 5); float32 images [None, H, W, C] are needed",
        ),
        ("colors.keras", "cannot compute features of images of shape (8, 8, 1)"),
        ("outputs", "none of its outputs (a, b) is named features or pool_3"),
        ("nothing", "it has no signature serving_default and is not callable"),
    ],
)
def test_an_unsuitable_path_is_reported_in_one_line(tmp_path, name, message):
    path = bad_model(tmp_path, name)
    with pytest.raises(UserError) as caught:
        tiny_evaluator(feature_extractor=str(path))
    line = str(caught.value)
    assert line.startswith(f"--feature_extractor={path} ") and message in line
    assert line.endswith(
        "— use inception, classifier, or a Keras file or SavedModel that takes images"
    )
    assert "\n" not in line


@pytest.mark.parametrize("name", ["x.keras", "x.h5", "saved"])
def test_a_pipe_is_rejected(tmp_path, name):
    path = tmp_path / name
    pipe = path if path.suffix else path / "saved_model.pb"
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(
        UserError, match=f"--feature_extractor={path}: {pipe} is not a regular file"
    ):
        pretrained.load_model(str(path))


def test_a_path_that_cannot_be_read_is_reported_in_one_line(monkeypatch):
    with pytest.raises(UserError, match=r"--feature_extractor=/\\xff\.keras is not UTF-8"):
        pretrained.load_model("/\udcff.keras")

    def fail(path):
        raise tf.errors.FailedPreconditionError(None, None, "Could not resolve host")

    monkeypatch.setattr(tf.io.gfile, "exists", fail)
    with pytest.raises(UserError, match=r"gs://b/x\.keras cannot be reached \(Could not resolve"):
        pretrained.load_model("gs://b/x.keras")


def keras_file_with_code(path, kind):
    """Writes a Keras file whose code, if it is run, makes the folder `ran` in the same folder."""
    ran = str(path.parent / "ran")
    inputs = tf.keras.Input([4, 4, 3])
    outputs = tf.keras.layers.Lambda(lambda x: (__import__("os").mkdir(ran), x)[1])(inputs)
    if kind == "module":
        outputs = tf.keras.layers.Activation("relu")(inputs)
    model = tf.keras.Model(inputs, outputs)
    made = path.with_name(f"made{'.keras' if kind == 'module' else path.suffix}")
    model.save(path.with_suffix(".h5") if kind == "h5 in keras" else made)
    if kind == "h5 in keras":
        path.with_suffix(".h5").rename(made)
    if kind == "module":  # any function of any module
        with zipfile.ZipFile(made) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        config = parts["config.json"].replace(
            b'"activation": "relu"',
            b'"activation": {"class_name": "function", "module": "os", "config": "mkdir",'
            b' "registered_name": "mkdir"}',
        )
        assert config != parts["config.json"]
        with zipfile.ZipFile(made, "w") as archive:
            for name, content in {**parts, "config.json": config}.items():
                archive.writestr(name, content)
    made.rename(path)
    if os.path.isdir(ran):
        os.rmdir(ran)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("x.keras", "lambda"),
        ("x.h5", "lambda"),
        ("x.keras", "h5 in keras"),
        ("x.keras", "module"),
    ],
)
def test_code_in_a_keras_file_is_not_run(tmp_path, name, kind):
    keras_file_with_code(tmp_path / name, kind)
    with pytest.raises(UserError, match="cannot be loaded"):
        pretrained.load_model(str(tmp_path / name))
    assert not (tmp_path / "ran").exists()


def test_a_failed_download_of_inception_is_reported_in_one_line(monkeypatch):
    def offline(fname, origin):
        raise Exception(f"URL fetch failure on {origin}: None -- Name or service not known")

    monkeypatch.setattr(tf.keras.utils, "get_file", offline)
    with pytest.raises(UserError) as caught:
        tiny_evaluator(feature_extractor="inception")
    line = str(caught.value)
    assert line.startswith(
        "--feature_extractor=inception cannot be downloaded or loaded (URL fetch failure"
    )
    assert (
        "use the path of a SavedModel or Keras file or, for labeled images, classifier" in line
        and "classifier" in line
    )
    # Inception is the default for large images and for images without labels.
    with pytest.raises(
        UserError, match="--feature_extractor=inception cannot be downloaded or loaded"
    ):
        tiny_evaluator(image_size=33)


def test_inception_is_unpacked_and_gets_large_color_images(tmp_path, monkeypatch):
    class Inception(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3])])
        def __call__(self, images):
            size = tf.cast(tf.shape(images), tf.float32)
            features = tf.reduce_mean(images, [1, 2])[:, :1] + size[None, 1:3]
            return {"pool_3": features, "logits": tf.zeros([tf.shape(images)[0], 1008])}

    tf.saved_model.save(Inception(), str(tmp_path / "made"))
    archive = shutil.make_archive(str(tmp_path / "archive"), "gztar", tmp_path / "made")
    urls = []
    monkeypatch.setattr(
        tf.keras.utils, "get_file", lambda fname, origin: urls.append(origin) or archive
    )
    key, network = pretrained.load_inception("inception")
    features, probabilities = network(tf.ones([2, 8, 8, 1]))
    np.testing.assert_allclose(features, np.full([2, 2], 300.0))
    np.testing.assert_allclose(probabilities, np.full([2, 1008], 1 / 1008), rtol=1e-5)
    assert urls == [key]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"feature_extractor": "classifier", "dataset": "swiss_roll"},
            "--feature_extractor=classifier is for images, but swiss_roll contains points",
        ),
    ],
)
def test_an_extractor_that_does_not_fit_the_data_is_rejected(settings, message):
    with pytest.raises(UserError, match=message):
        tiny_evaluator(**settings)


def test_a_classifier_needs_labels(monkeypatch):
    shape, _, size = datasets.BUILT_IN["digits"]
    monkeypatch.setitem(datasets.BUILT_IN, "digits", (shape, 0, size))
    with pytest.raises(
        UserError, match="needs labels of at least two classes, but digits has fewer"
    ):
        tiny_evaluator(feature_extractor="classifier")


def test_a_classifier_is_fitted_to_examples_of_known_classes(monkeypatch):
    images, labels = real_digits(1000)
    cache = examples.ArrayCache(None)
    for unknown, is_enough in ((labels > 4, True), (labels > 0, False), (labels >= 0, False)):
        some = np.where(unknown, -1, labels)
        monkeypatch.setattr(examples.Examples, "read", lambda *_, some=some: (images, some))
        read = examples_of(Config())
        if not is_enough:
            with pytest.raises(UserError, match=r"but the first \d+ examples have fewer — use in"):
                classifier.fit_or_load(read, cache, 10)
            continue
        model = classifier.fit_or_load(read, cache, 10)
        assert model.examples == int(classifier.MAX_SHARE * 1000)
        predicted = np.argmax(model(tf.constant(images))[1], axis=1)
        assert set(predicted) == {0, 1, 2, 3, 4}


# Values that are NaN or infinite.


def evaluator_of_pixels(monkeypatch, bad_pixel, value, output="features", folder=None):
    """Returns an evaluator of samples whose first pixel is 1 at position 3 and 0.2 elsewhere.

    The first pixel of every real image is -1. The extractor returns `value` as one element of its
    `output` for images whose first pixel is nearly `bad_pixel`.
    """

    def extract(images):
        pixels = tf.reshape(images, [-1, 64])
        outputs = {"features": pixels, "probabilities": tf.nn.softmax(pixels)}
        bad = abs(pixels[:, :1] - bad_pixel) < 0.1
        outputs[output] = tf.where(bad & (tf.range(64) == 5), value, outputs[output])
        return tuple(outputs.values())

    def draw(count):
        images = np.full([count, 8, 8, 1], 0.2, np.float32)
        images[3, 0, 0] = 1.0
        return images

    extractor = extractors.Extractor("pixels", "", extract)
    monkeypatch.setattr(evaluator, "make_extractor", lambda *arguments: extractor)
    return tiny_evaluator(folder=folder, draw=draw)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("output", "bad_pixel", "message"),
    [
        ("features", 1.0, "features for 1 of 101 samples (at positions 3)"),
        (
            "probabilities",
            0.2,
            "probabilities for 100 of 101 samples (at positions 0, 1, 2, 4, 5, ...)",
        ),
        (
            "features",
            -1.0,
            "features for 101 of 101 real images (at positions 0, 1, 2, 3, 4, ...)",
        ),
    ],
)
def test_features_that_are_not_finite_are_an_error(monkeypatch, output, bad_pixel, value, message):
    with pytest.raises(UserError) as caught:
        evaluator_of_pixels(monkeypatch, bad_pixel, value, output).evaluate()
    assert str(caught.value) == (
        f"--feature_extractor=pixels computes NaN or infinite {message} — use another extractor"
    )


def test_features_that_are_not_finite_are_not_cached(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="real images"):
        evaluator_of_pixels(monkeypatch, -1.0, np.nan, folder=str(tmp_path)).evaluate()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("dataset", ["digits", "swiss_roll"])
def test_samples_that_are_not_finite_are_an_error(digits_folder, dataset, value):
    """Checks values that quantization would turn into black or white pixels."""
    shape = (8, 8, 1) if dataset == "digits" else (2,)

    def draw(count):
        samples = np.zeros([count, *shape], np.float32)
        samples[[4, 9]] = value
        return samples

    tiny = tiny_evaluator(folder=digits_folder, dataset=dataset, draw=draw)
    with pytest.raises(UserError) as caught:
        tiny.evaluate()
    assert str(caught.value) == (
        "the generator produces NaN or infinite values in 2 of 101 samples (at positions 4, 9) — "
        "select an earlier checkpoint with --restore_from"
    )


# The cache.


@pytest.fixture
def counted(monkeypatch):
    """Returns a dictionary that counts fits of classifiers and passes over real examples."""
    calls = {"fitted": 0, "read": 0}
    fit, batches = classifier.fit, examples.Examples.batches

    def count_fit(*arguments):
        calls["fitted"] += 1
        return fit(*arguments)

    def count_batches(self, count):
        calls["read"] += 1
        return batches(self, count)

    monkeypatch.setattr(classifier, "fit", count_fit)
    monkeypatch.setattr(examples.Examples, "batches", count_batches)
    return calls


@pytest.mark.slow
def test_the_classifier_and_the_real_features_are_cached(tmp_path, counted, capsys):
    first = tiny_evaluator(folder=str(tmp_path))
    values = first.evaluate()
    assert counted == {"fitted": 1, "read": 2}
    assert first.evaluate() == values
    # A later process reads the examples to check that they are unchanged, and computes nothing.
    assert tiny_evaluator(folder=str(tmp_path)).evaluate() == values
    assert counted == {"fitted": 1, "read": 4}
    assert "fitted a classifier of 10 classes: accuracy 9" in capsys.readouterr().err
    # With another number of examples, the features differ, but the classifier is the same.
    tiny_evaluator(folder=str(tmp_path), evaluate_samples=50).evaluate()
    assert counted == {"fitted": 1, "read": 6}
    # Another dataset (here, another image size) shares nothing.
    tiny_evaluator(folder=str(tmp_path), image_size=9).evaluate()
    assert counted == {"fitted": 2, "read": 8}


def as_if_encrypted(content):
    """Sets the encryption flag of each part of a zip file, which its checksums do not cover."""
    changed = bytearray(content)
    place = content.find(b"PK\x01\x02")
    while place >= 0:
        changed[place + 8] |= 1
        place = content.find(b"PK\x01\x02", place + 1)
    return bytes(changed)


def damage(path, kind):
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "cut": content[:middle],
            "changed": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "emptied": b"",
            "encrypted": as_if_encrypted(content),
        }[kind]
    )


@pytest.mark.parametrize("kind", ["cut", "changed", "emptied", "encrypted"])
def test_damaged_arrays_are_computed_again(tmp_path, capsys, kind):
    computed = []

    def compute():
        computed.append(True)
        return {"values": np.arange(1000)}

    def read():
        cache = examples.ArrayCache(str(tmp_path))
        arrays = cache.get_or_compute("numbers", compute, lambda: "hash of the examples")
        cache.write()
        np.testing.assert_array_equal(arrays["values"], np.arange(1000))
        return len(computed)

    assert [read(), read()] == [1, 1]
    damage(tmp_path / "numbers.npz", kind)
    assert [read(), read()] == [2, 2]
    assert capsys.readouterr().err.count("is damaged; it will be computed again") == 1


@pytest.mark.slow
def test_damaged_files_of_an_evaluation_are_computed_again(tmp_path, counted, capsys):
    values = tiny_evaluator(folder=str(tmp_path)).evaluate()
    paths = sorted(tmp_path.glob("*.npz"))
    assert [path.name.partition("-")[0] for path in paths] == ["classifier", "features"]
    for path in paths:
        damage(path, "cut")
    assert tiny_evaluator(folder=str(tmp_path)).evaluate() == values
    assert counted == {"fitted": 2, "read": 4}
    assert capsys.readouterr().err.count("is damaged; it will be computed again") == 2
    tiny_evaluator(folder=str(tmp_path)).evaluate()
    assert counted == {"fitted": 2, "read": 6}


def test_an_evaluation_succeeds_if_the_cache_cannot_be_written(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    assert tiny_evaluator(folder=str(blocked)).evaluate()
    assert capsys.readouterr().err.count("cannot be written") == 2


# Points.


def test_mode_coverage_counts_points_within_three_deviations():
    """Uses modes at (2, 0), (0, 2), (-2, 0), ... with a standard deviation of 0.02."""
    given = np.array([[2.05, 0.0], [2.0, -0.059], [0.0, 2.059], [1.0, 1.0], [-2.0, 0.061]])
    assert points.mode_coverage(given, "gaussians_8") == points.ModeCoverage(
        modes=8, covered=2, high_quality_share=0.6, smallest_mode_share=0.0
    )


@pytest.mark.parametrize(("dataset", "modes"), [("gaussians_25", 25), ("gaussians_8", 8)])
def test_the_data_covers_all_modes_equally(dataset, modes):
    data = open_data(Config(dataset=dataset)).read(10_000)[0].numpy()
    coverage = points.mode_coverage(data, dataset)
    assert coverage.modes == coverage.covered == modes
    # The share of a 2-D Gaussian within three standard deviations is 1 - exp(-9/2).
    assert coverage.high_quality_share == pytest.approx(1 - np.exp(-4.5), abs=0.005)
    assert coverage.smallest_mode_share > 0.75 / modes


def test_mode_coverage_of_collapsed_and_of_scattered_samples():
    mode = toys.mode_centers("gaussians_25")[:1]
    collapsed = points.mode_coverage(np.repeat(mode, 100, axis=0), "gaussians_25")
    assert dataclasses.astuple(collapsed) == (25, 1, 1.0, 0.0)
    scattered = points.mode_coverage(np.ones([100, 2]), "gaussians_25")
    assert dataclasses.astuple(scattered) == (25, 0, 0.0, 0.0)


def test_wasserstein_uses_the_best_assignment():
    first, second = normal(5, 2), normal(5, 2, seed=1)
    best = min(
        np.linalg.norm(first - second[list(order)], axis=1).mean()
        for order in itertools.permutations(range(5))
    )
    assert points.wasserstein(first, second) == pytest.approx(best, rel=1e-12)
    assert points.wasserstein(first, np.add(first[::-1], [3, 4])) == pytest.approx(5)


@pytest.mark.parametrize("dataset", ["gaussians_8", "swiss_roll"])
def test_metrics_of_points(dataset):
    count = 300
    data = open_data(Config(dataset=dataset)).read(2 * count)[0].numpy()
    settings = {"dataset": dataset, "evaluate_samples": count}
    good = tiny_evaluator(4, draw=lambda n: np.add(data[-n:], [0, 1]), **settings)
    assert good.metadata == {"samples": count, "extractor": None}
    values = good.evaluate()
    floor = values["evaluation/wasserstein_floor"]
    assert floor == pytest.approx(points.wasserstein(data[:count], data[count:]))
    assert values["evaluation/wasserstein"] == pytest.approx(
        points.wasserstein(data[:count], np.add(data[count:], [0, 1]))
    )
    assert 0 < floor < 0.5 < values["evaluation/wasserstein"]
    collapsed = tiny_evaluator(
        draw=lambda n: np.repeat(np.array([[2.0, 0.01]], np.float32), n, axis=0), **settings
    ).evaluate()
    if dataset == "gaussians_8":
        assert collapsed["evaluation/modes_covered"] == 1
        assert collapsed["evaluation/high_quality_share"] == 1
    else:
        assert "evaluation/modes_covered" not in collapsed


def test_the_number_of_assigned_points_is_limited(monkeypatch):
    monkeypatch.setattr(points, "MAX_ASSIGNED", 40)
    data = open_data(Config(dataset="swiss_roll")).read(80)[0].numpy()
    values = tiny_evaluator(
        dataset="swiss_roll",
        evaluate_samples=500,
        draw=lambda count: np.zeros([count, 2], np.float32),
    ).evaluate()
    expected = np.linalg.norm(data[:40], axis=1).mean()
    assert values["evaluation/wasserstein"] == pytest.approx(expected, rel=1e-5)


# Runs.


def contents(folder):
    return {
        path: path.read_bytes()
        for path in sorted(pathlib.Path(folder).rglob("*"))
        if path.is_file()
    }


def lines_of(folder):
    text = (pathlib.Path(folder) / "evaluation.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def scalars_of(folder):
    """Returns the evaluations in a folder's event files: (step, tag) -> value."""
    return {
        (event.step, value.tag): float(tf.make_ndarray(value.tensor))
        for path in sorted(folder.glob("events.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag.startswith("evaluation/")
    }


@pytest.mark.slow
def test_evaluation_of_a_saved_run(tmp_path, capsys):
    settings = {
        "dataset": "digits",
        "learning_rate_schedule": "constant",
    }
    flags = (f"--model_dir={tmp_path}", "--mode=evaluate", "--evaluate_samples=100")
    train_tiny(tmp_path, train_steps=5, **settings)
    assert call_main(*flags) == 0
    train_tiny(tmp_path, train_steps=10, **settings)
    before = contents(tmp_path)
    capsys.readouterr()
    assert call_main(*flags) == 0
    out, err = capsys.readouterr()
    assert f"{tmp_path}/checkpoints/ckpt-10: 10 iterations" in err
    assert out.startswith("after 10 iterations, 100 samples, features of classifier:\n  fid ")
    fresh, trained = lines_of(tmp_path)
    assert (fresh["step"], trained["step"]) == (5, 10)
    assert list(trained)[:3] == ["step", "samples", "extractor"]
    assert (trained["samples"], trained["extractor"]) == (100, "classifier")
    for tag in (
        "fid",
        "kid",
        "kid_deviation",
        "inception_score",
        "precision",
        "recall",
        "density",
        "coverage",
    ):
        assert f"evaluation/{tag}" in trained and f"\n  {tag.replace('_', ' ')} " in out
    assert trained["evaluation/fid"] != fresh["evaluation/fid"]
    assert "evaluation/class_accuracy" not in trained
    # TensorBoard shows these evaluations as a separate run.
    events = scalars_of(tmp_path / "evaluation")
    for line in (fresh, trained):
        for tag in [each for each in line if each.startswith("evaluation/")]:
            assert events[line["step"], tag] == pytest.approx(line[tag])
    assert not scalars_of(tmp_path / "train")
    # There is one more line and one more event file; nothing else has changed.
    after = contents(tmp_path)
    new = [path for path in after if path not in before]
    assert [path.name.partition(".")[0] for path in new] == ["events"]
    assert {path.name for path in before if after[path] != before[path]} == {"evaluation.jsonl"}
    # --restore_from selects an older checkpoint.
    assert call_main(*flags, f"--restore_from={tmp_path}/checkpoints/ckpt-5") == 0
    assert lines_of(tmp_path)[-1] == fresh


@pytest.mark.slow
def test_training_improves_the_fid(tmp_path):
    settings = {
        "dataset": "digits",
        "model_width": 16,
        "latent_size": 16,
        "batch_size": 64,
        "learning_rate_schedule": "constant",
        "evaluate_interval": 250,
        "evaluate_samples": 500,
    }
    _, fresh = train_tiny(tmp_path, train_steps=5, **settings)
    _, trained = train_tiny(tmp_path, train_steps=250, **{**settings, "steps_per_loop": 50})
    (_, before), (_, after) = fresh.evaluations[-1], trained.evaluations[-1]
    assert after["evaluation/fid"] < 0.7 * before["evaluation/fid"]


def evaluated_in_training(folder, **settings):
    """Trains a run with evaluations, checks their records and returns the last one."""
    settings |= {"dataset": "digits", "evaluate_samples": 41, "n_critic": 1}
    _, writer = train_tiny(folder, train_steps=12, evaluate_interval=8, **settings)
    assert [step for step, _ in writer.evaluations] == [
        10,
        12,
    ]  # after loops of five, and at the end
    lines = lines_of(folder)
    assert [line["step"] for line in lines] == [10, 12]
    assert {"step": 12, "samples": 41, "extractor": "classifier"}.items() <= lines[1].items()
    for (_, values), line in zip(writer.evaluations, lines, strict=True):
        assert {tag: line[tag] for tag in values} == values
    events = scalars_of(folder / "train")
    assert {step for step, _ in events} == {10, 12}
    assert events[12, "evaluation/fid"] == pytest.approx(lines[1]["evaluation/fid"])
    return writer.evaluations[1][1]


@pytest.mark.slow
def test_evaluation_in_training_is_the_same_on_one_and_two_replicas(tmp_path):
    one, two = (
        evaluated_in_training(tmp_path / str(replicas), cpu_replicas=replicas)
        for replicas in (1, 2)
    )
    for tag in ("evaluation/fid", "evaluation/kid", "evaluation/inception_score"):
        assert two[tag] == pytest.approx(one[tag], rel=1e-3), tag


@pytest.mark.slow
def test_there_is_no_evaluation_by_default(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise AssertionError("evaluated")

    monkeypatch.setattr(evaluator, "make_evaluator", refuse)
    _, writer = train_tiny(tmp_path, train_steps=5)
    assert not writer.evaluations
    assert not (tmp_path / "evaluation").exists()
    assert not (tmp_path / "evaluation.jsonl").exists()


@pytest.mark.slow
def test_points_are_evaluated_in_training_and_after(tmp_path, capsys):
    settings = {"dataset": "gaussians_8", "evaluate_samples": 100}
    train_tiny(tmp_path, train_steps=5, evaluate_interval=5, **settings)
    assert call_main(f"--model_dir={tmp_path}", "--mode=evaluate") == 0
    during, after = lines_of(tmp_path)
    assert during == after and during["extractor"] is None
    assert set(during) - {"step", "samples", "extractor"} == {
        f"evaluation/{name}"
        for name in ("modes_covered", "high_quality_share", "wasserstein", "wasserstein_floor")
    }
    assert "after 5 iterations, 100 samples:\n  modes covered " in capsys.readouterr().out


def test_the_terminal_shows_an_evaluation_in_one_line():
    file = io.StringIO()
    writer = Writers(ConsoleWriter(100, file=file))
    writer.begin(0)
    writer.evaluation(50, {"evaluation/fid": 12.3456, "evaluation/inception_score": 2.0})
    assert file.getvalue() == "50/100: fid 12.35, inception score 2\n"


def test_evaluations_later_than_the_checkpoint_are_removed(tmp_path):
    path = tmp_path / "evaluation.jsonl"
    writer = EvaluationFileWriter(str(path), {"samples": 7, "extractor": "x"})
    for step in (5, 10, 15):
        writer.scalars(step, {"critic/loss": 1.0})  # not written to evaluation.jsonl
        writer.evaluation(step, {"evaluation/fid": 2.5})
    writer.begin(10)
    assert lines_of(tmp_path) == [
        {"step": step, "samples": 7, "extractor": "x", "evaluation/fid": 2.5} for step in (5, 10)
    ]


def test_a_run_with_a_missing_extractor_does_not_begin(tmp_path):
    settings = {"dataset": "digits", "evaluate_interval": 5, "feature_extractor": "/nowhere"}
    with pytest.raises(UserError, match="is neither a Keras file"):
        train_tiny(tmp_path, train_steps=5, **settings)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_mode_evaluate_without_a_run_is_an_error(tmp_path, capsys):
    assert call_main(f"--model_dir={tmp_path}", "--mode=evaluate") == 2
    assert f"--model_dir={tmp_path} contains no run" in capsys.readouterr().err


def test_copies_of_the_data_are_inside_the_balls_despite_rounding():
    """Checks that each point is in its own ball and on the edges of those of its neighbors."""
    for scale in (1e-3, 1.0, 1e3):
        real = scale * np.random.default_rng(0).normal(100.0, 1.0, [300, 16])
        found = metrics.manifold_metrics(real, real.copy())
        assert (found.precision, found.recall, found.coverage) == (1.0, 1.0, 1.0)
        assert found.density == pytest.approx(6 / 5)


@pytest.mark.parametrize(("dtype", "is_picture"), [(np.uint8, True), (np.float32, False)])
def test_volumes_of_bytes_are_rounded_like_images(dtype, is_picture):
    """A background of 0 would differ from the tanh of a generator, which hardly reaches -1."""
    random = np.random.default_rng(0)
    levels = random.integers(0, 256, [40, 4, 4, 4, 1]) * (np.arange(4) > 1)[:, None]
    data = levels.astype(np.uint8) if is_picture else (levels / 127.5 - 1).astype(np.float32)
    settings = DataSettings(dataset="python")
    dataset = datasets.find_dataset(settings, function=lambda split: data)
    read = examples.Examples(dataset, strategy_over(1), 4)

    class Sampler:
        classes, conditions = 0, None

        def sample(self, count):
            return read.read(count)[0] + np.float32(1e-3)

    config = Config(feature_extractor="none", evaluate_samples=40)
    made = evaluator.make_evaluator(config, strategy_over(1), Sampler(), read, None)
    values = made.evaluate()
    background = values["evaluation/kolmogorov_smirnov_largest"]
    assert (background < 0.9) == is_picture


def test_the_best_value_of_metrics_is_known():
    """The best value of others is neither small nor large, or they do not rank samples."""
    known = set(ranking.RANKING)
    others = {"density", "largest_class", "classifier_accuracy", "two_sample_accuracy"}
    others |= {"closest_distance_ratio", "closer_than_real"}
    others |= {name for name in results._EXPLANATIONS if name.endswith(("_floor", "_deviation"))}
    others |= {name for name in results._EXPLANATIONS if name.startswith("real_trained")}
    assert known | others == set(results._EXPLANATIONS) and not known & others
