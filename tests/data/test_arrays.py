"""--dataset=array: files of numbers, their scaling, and samples in their units."""

import io
import itertools
import json
import math
import os
import zipfile

import numpy as np
import pytest
import scipy.optimize
import sklearn.datasets
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import wgan_gp
from tests.helpers.runs import (
    LIBRARY,
    TINY,
    call_main,
    find_data,
    held_in,
    open_data,
    reread,
    without_tracing,
)
from wgan_gp.app.resolve import resolve
from wgan_gp.app.saved_run import find_run
from wgan_gp.app.training import train
from wgan_gp.config import Config, DataSettings, DeviceSettings
from wgan_gp.data.datasets import find_dataset
from wgan_gp.data.feed import replica_batches
from wgan_gp.data.scaling import Statistics
from wgan_gp.data.sources import arrays
from wgan_gp.data.sources.array_files import open_arrays
from wgan_gp.errors import UserError
from wgan_gp.writers.writer import MemoryWriter

RANDOM = np.random.default_rng(0)
DTYPES = ["bool", "uint8", "int8", "uint16", "int32", "int64", "float16", "float32", "float64"]
SMALL = {"train_steps": 2, "steps_per_loop": 1, "batch_size": 8, "model": "mlp", "model_width": 4}
SMALL |= {"sample_interval": 0, "n_critic": 1}


def save(path, array):
    """Writes an array as .npy to any path of tf.io.gfile."""
    content = io.BytesIO()
    np.save(content, array)
    with tf.io.gfile.GFile(str(path), "wb") as file:
        file.write(content.getvalue())
    return str(path)


def spec_of(**flags):
    return find_dataset(DataSettings(**{"dataset": "array", **flags})).spec


def read(path, count, **flags):
    """Returns the first examples and labels of training."""
    data = open_data(Config(dataset="array", data_dir=str(path), batch_size=2, **flags))
    return [part.numpy() for part in data.read(count)]


def train_result(model_dir, writers=(), **flags):
    """Trains without tracing, and returns the result."""
    config = Config(**{**TINY, **flags, "model_dir": str(model_dir)})
    with without_tracing():
        return train(*resolve(config, LIBRARY.models), LIBRARY, writers=writers)


def train_run(model_dir, writers=(), **flags):
    return train_result(model_dir, writers, **flags).run


# A diagnosis requires five summaries.
DIAGNOSED = {**SMALL, "train_steps": 5, "summary_interval": 1, "penalty_target": 10.0}


def check_diagnosis(writer):
    """The slope of the critic is still far below the target."""
    ((step, _, text),) = [each for each in writer.texts if each[1] == "diagnosis"]
    values = writer.summaries[-1][1]
    assert step == 5 and text.startswith("critic too weak: it estimates a distance of ")
    assert values["probe/distance_of_means"] > 1 and 0 < values["probe/diversity"] < 2


def sorted_rows(examples):
    rows = examples.reshape(len(examples), -1)
    return rows[np.lexsort(rows.T)]


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    dtype=st.sampled_from(
        ["bool", "uint8", "int8", "uint16", "int32", "int64", "float16", "float32", "float64"]
    ),
    scaling=st.sampled_from(["minmax", "standard", "whiten", "none"]),
    ending=st.sampled_from(["npy", "npz"]),
    cache=st.sampled_from(["on", "off"]),
)
def test_every_shape_and_dtype_is_read_back(tmp_path_factory, shape, dtype, scaling, ending, cache):
    """Training sees the values of the data, in another order."""
    values = np.random.default_rng(1).uniform(-50, 200, (7, *shape))
    array = (values > 60) if dtype == "bool" else values.astype(dtype)
    array[0], array[1] = array.min(), array.max()  # so that nothing is constant
    folder = tmp_path_factory.mktemp("arrays")
    path = str(folder / f"data.{ending}")
    np.save(path, array) if ending == "npy" else np.savez(path, examples=array)
    if scaling == "whiten" and len(shape) == 3:
        with pytest.raises(UserError, match="whiten is for features and signals of up to 1024"):
            read(path, 7, scaling=scaling)
        return
    with held_in(cache):
        found, _ = read(path, 7, scaling=scaling)
    spec = spec_of(data_dir=path, scaling=scaling)
    assert found.dtype == np.float32 and found.shape == (7, *shape)
    assert not spec.scaling.bounded or np.abs(found).max() <= 1
    restored = spec.scaling.restore(found)
    assert (restored.dtype == array.dtype) == (
        spec.scaling.dequantized or dtype in ("float32", "float64")
    )
    if scaling == "whiten" and array.dtype.kind in "iub":
        np.testing.assert_allclose(restored, restored.round(), atol=0.01)
        restored = restored.round()
    # Rounding errors change the order of sorted rows, so each row is paired with the nearest one.
    rows, expected = (each.reshape(7, -1).astype(float) for each in (restored, array))
    distances = np.abs(rows[:, None] - expected).max(axis=-1)
    pairs = scipy.optimize.linear_sum_assignment(distances)
    assert distances[pairs].max() <= (0 if spec.scaling.dequantized else 1e-4)


@pytest.mark.parametrize("shape", [(6,), (4, 2)])
def test_whitened_examples_have_variance_1_in_all_directions(tmp_path, shape):
    """Constant features are left out, and directions without variance stay small."""
    values = RANDOM.normal(size=(3000, math.prod(shape)))
    values[:, 0] += 2 * values[:, 1]
    values[:, 2] = 5 * values[:, 3] - 1
    data = np.concatenate([values.reshape(-1, *shape), np.full((3000, *shape[:-1], 1), 7.0)], -1)
    path = save(tmp_path / "x.npy", data)
    flags = {"dataset": "array", "data_dir": path, "scaling": "whiten", "invalid": "drop"}
    spec = spec_of(**flags)
    assert spec.example_shape == shape and not spec.bounded
    found, _ = read(path, 3000, scaling="whiten", invalid="drop")
    variances = np.linalg.eigvalsh(np.cov(found.reshape(3000, -1).T.astype(float)))
    assert variances[0] < 1e-6
    np.testing.assert_allclose(variances[1:], 1, atol=2e-3)
    np.testing.assert_allclose(found.reshape(3000, -1).mean(axis=0), 0, atol=1e-6)
    restored = spec.scaling.restore(found)
    assert restored.dtype == np.float64
    np.testing.assert_allclose(sorted_rows(restored), sorted_rows(data), atol=1e-5)
    assert reread(spec.scaling) == spec.scaling


@pytest.mark.slow
def test_a_whitened_run_samples_scores_and_exports_in_the_units_of_the_data(tmp_path):
    data = (RANDOM.normal(size=(64, 5, 2)) + RANDOM.normal(size=(64, 1, 1))) * [1, 50] + [0, 1000]
    path = save(tmp_path / "x.npy", data)
    flags = {"dataset": "array", "data_dir": path, "scaling": "whiten", **DIAGNOSED}
    run = train_run(tmp_path / "run", [writer := MemoryWriter()], **flags)
    check_diagnosis(writer)
    whitened = run.dataset.spec.scaling.normalize(tf.constant(data))
    assert np.abs(np.cov(whitened.numpy().reshape(64, -1).T)).max() < 1.1
    output = (f"--output={tmp_path}/s.npy", "--sample_format=npy", "--num_samples=9")
    assert not call_main("--mode=sample", f"--model_dir={tmp_path}/run", *output)
    samples = np.load(tmp_path / "s.npy")
    assert samples.shape == (9, 5, 2) and samples.mean(axis=(0, 1))[1] > 500
    assert not call_main("--mode=export", f"--model_dir={tmp_path}/run")
    exported = tf.saved_model.load(f"{tmp_path}/run/exported/saved_model").signatures
    scores = exported["critic"](examples=tf.constant(data[:4], tf.float32))["scores"]
    np.testing.assert_allclose(run.state.critic(whitened[:4])[:, 0], scores, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_digits_as_an_array_train_like_the_dataset(tmp_path):
    """The weights are equal, bit for bit."""
    images = sklearn.datasets.load_digits().images[..., None]
    path = save(tmp_path / "digits.npy", images)
    first = train_run(tmp_path / "a", dataset="array", data_dir=path, **SMALL)
    second = train_run(tmp_path / "b", dataset="digits", **SMALL)
    weights = [run.state.generator.get_weights() for run in (first, second)]
    assert all(np.array_equal(a, b) for a, b in zip(*weights, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["breast_cancer", "wine", "digits"],
)
def test_tables_of_scikit_learn_are_sampled_in_their_units_and_evaluated(tmp_path, name):
    """Digits as [N, 64] have constant features, which samples repeat."""
    data, labels = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    np.savez(tmp_path / "x.npz", examples=data, labels=labels)
    flags = {"dataset": "array", "data_dir": str(tmp_path / "x.npz"), "scaling": "standard"}
    flags |= {"invalid": "drop", "conditioning": "projection", "generator_normalization": "none"}
    result = train_result(tmp_path / "run", evaluate_samples=100, **SMALL, **flags)
    samples = result.sample(200)
    assert samples.shape == (200, data.shape[1]) and np.isfinite(samples).all()
    constant = data.std(axis=0) == 0
    assert constant.sum() == (3 if name == "digits" else 0)
    np.testing.assert_array_equal(samples.std(axis=0) == 0, constant)
    # In the units of the data, the means differ by few of the deviations of the features.
    assert (np.abs(samples.mean(axis=0) - data.mean(axis=0)) <= 3 * data.std(axis=0)).all()
    values = result.evaluate()
    assert {"evaluation/two_sample_accuracy", "evaluation/synthetic_trained_accuracy"} <= set(
        values
    )
    assert np.isfinite(list(values.values())).all()


@pytest.mark.slow
def test_data_whose_first_examples_are_equal_trains(tmp_path):
    """Such as pictures of which many are empty, and numbers with few different values."""
    flags = {"scaling": "none", "dequantization": False}
    path = save(tmp_path / "x.npy", np.arange(40.0).reshape(40, 1))
    order, _ = read(path, 8, **flags)
    examples = RANDOM.normal(size=(40, 3))
    examples[order[:, 0].astype(int)] = 0
    path = save(tmp_path / "x.npy", examples)
    np.testing.assert_array_equal(read(path, 8, **flags)[0], np.zeros([8, 3]))
    run = train_run(tmp_path / "run", dataset="array", data_dir=path, **flags, **SMALL)
    assert run.state.iteration == 2


def test_integers_with_256_levels_are_dequantized_like_images(tmp_path):
    images = RANDOM.integers(0, 256, (9, 4, 4, 1)).astype(np.uint8)
    images[0, 0, 0], images[1, 0, 0] = 0, 255
    from wgan_gp.data import pixels  # noqa: PLC0415

    settings_ = DataSettings(dataset="array", data_dir=save(tmp_path / "x.npy", images))
    first = tf.constant(5, tf.int64)
    found = find_dataset(settings_).spec.scaling.normalize_stored(
        settings_, tf.constant(images), first
    )
    np.testing.assert_array_equal(found, pixels.normalize(settings_, tf.constant(images), first))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_memory_streams_and_remote_files_give_the_same_order(tmp_path, dtype):
    array = RANDOM.integers(0, 200, (23, 5, 2)).astype(dtype)
    local, remote = save(tmp_path / "x.npy", array), save(f"ram://arrays/{dtype}.npy", array)
    folder = tmp_path / "shards"
    folder.mkdir()
    for name, part in (("a", array[:10]), ("b", array[10:])):
        save(folder / f"{name}.npy", part)
    expected, _ = read(local, 60)
    for path, cache in itertools.product([local, remote, str(folder)], ["on", "off"]):
        with held_in(cache):
            found, _ = read(path, 60)
        np.testing.assert_array_equal(found, expected)


@held_in("off")
def test_a_stream_continues_at_any_step(tmp_path):
    path = save(tmp_path / "x.npy", RANDOM.normal(size=(11, 3)))
    data = open_data(Config(dataset="array", data_dir=path, batch_size=4))

    def batches(first_step, count):
        found = replica_batches(
            data, tf.distribute.InputContext(), batch_size=4, first_step=first_step
        )
        return [batch.numpy() for batch, _ in found.take(count)]

    np.testing.assert_array_equal(batches(0, 6)[3:], batches(3, 3))


@pytest.mark.slow
@held_in("off")
def test_an_interrupted_streamed_run_equals_an_uninterrupted_one(tmp_path):
    flags = {"dataset": "array", "data_dir": save(tmp_path / "x.npy", RANDOM.normal(size=(20, 3)))}
    flags |= {**SMALL, "learning_rate_schedule": "constant"}
    train_run(tmp_path / "twice", **{**flags, "train_steps": 1})
    twice = train_run(tmp_path / "twice", **flags)
    once = train_run(tmp_path / "once", **flags)
    for a, b in zip(once.state.critic.get_weights(), twice.state.critic.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_labels_become_classes(tmp_path):
    examples, labels = RANDOM.normal(size=(12, 4)), np.arange(12) % 3
    np.savez(tmp_path / "x.npz", examples=examples, labels=labels)
    flags = {"dataset": "array", "data_dir": str(tmp_path / "x.npz"), "scaling": "none"}
    data = open_data(Config(**flags, conditioning="projection", batch_size=4))
    found, found_labels = data.read(12)
    places = [np.abs(examples[:, 0] - row[0]).argmin() for row in found.numpy()]
    np.testing.assert_array_equal(found_labels, labels[places])


def test_statistics_are_those_of_all_examples():
    examples = 1e6 + RANDOM.normal(size=(50, 3, 2))
    statistics = Statistics(2)
    for part in np.split(examples, [7, 30]):
        statistics.add(part)
    np.testing.assert_allclose(statistics.mean, examples.mean((0, 1)), rtol=1e-14)
    np.testing.assert_allclose(statistics.variance, examples.var((0, 1)), rtol=1e-9)
    scaled = statistics.scaling(
        "standard", dtype=examples.dtype, dequantize=True, names=None
    ).normalize(tf.constant(examples))
    np.testing.assert_allclose(np.mean(scaled, (0, 1)), 0, atol=1e-6)
    np.testing.assert_allclose(np.std(scaled, (0, 1)), 1, atol=1e-6)


TABLE = "length,empty,width\n1,5,0.5\n2,5,0.25\n3,5,nan\n4,5,0.125\n" + "5,5,1\n" * 8


@pytest.mark.slow
def test_invalid_examples_and_constant_features_are_left_out_by_choice(tmp_path, capsys):
    path = tmp_path / "fields.npy"
    np.save(path, np.genfromtxt(io.StringIO(TABLE), delimiter=",", names=True))
    flags = {"dataset": "array", "data_dir": str(path), "invalid": "drop"}
    run = train_run(tmp_path / "run", **flags, **SMALL)
    shown = capsys.readouterr().err
    assert "NaN or infinity in 1 of 12 examples, in width; these examples are left out" in shown
    assert "is constant in empty" in shown
    assert run.dataset.spec.example_shape == (2,) and run.data.size == 11
    saved = json.loads((tmp_path / "run" / "data.json").read_text())
    assert saved["spec"]["scaling"]["names"] == ["length", "empty", "width"]
    out = tmp_path / "samples.csv"
    assert not call_main(
        "--mode=sample", f"--model_dir={tmp_path}/run", "--sample_format=csv", f"--output={out}"
    )
    names, *rows = [line.split(",") for line in out.read_text().splitlines()]
    assert names == ["length", "empty", "width"] and len(rows) == 64
    assert {row[1] for row in rows} == {"5.0"}
    widths = np.array([float(row[2]) for row in rows])
    assert (widths > -1).all() and (widths < 2).all()  # an untrained mlp is near the middle


@pytest.mark.slow
def test_samples_scores_and_exports_are_in_the_units_of_the_data(tmp_path):
    array = RANDOM.integers(1000, 1100, (40, 6, 2)).astype(np.int16)
    path, run = save(tmp_path / "x.npy", array), f"--model_dir={tmp_path}/run"
    trained = train_run(tmp_path / "run", dataset="array", data_dir=path, **SMALL)
    for ending in ("npy", "npz"):
        output = f"--output={tmp_path}/s.{ending}"
        assert not call_main("--mode=sample", run, f"--sample_format={ending}", output)
    samples = np.load(tmp_path / "s.npy")
    np.testing.assert_array_equal(samples, np.load(tmp_path / "s.npz")["samples"])
    assert samples.dtype == np.int16 and samples.min() >= 1000 and samples.max() < 1100
    assert not call_main("--mode=export", run)
    exported = tf.saved_model.load(f"{tmp_path}/run/exported/saved_model").signatures
    again = exported["seed"](seed=tf.constant(0, tf.int64), count=tf.constant(64))["samples"]
    assert np.abs(again - samples).max() <= 1 and np.mean(again == samples) > 0.99
    scores = exported["critic"](examples=tf.constant(array[:5], tf.float32))["scores"]
    found = wgan_gp.load(f"{tmp_path}/run/exported").score(array[:5])
    np.testing.assert_allclose(found, scores, atol=1e-4)
    normalized = trained.dataset.spec.scaling.normalize(tf.constant(array[:5]))
    np.testing.assert_allclose(trained.state.critic(normalized)[:, 0], scores, atol=1e-4)


@pytest.mark.slow
def test_a_run_keeps_the_scaling_of_its_beginning(tmp_path, capsys):
    array = RANDOM.uniform(0, 1, (20, 3))
    path = save(tmp_path / "x.npy", array)
    flags = {"dataset": "array", "data_dir": path, "learning_rate_schedule": "constant", **SMALL}
    before = train_run(tmp_path / "run", **flags).dataset.spec.scaling
    save(path, 10 * array)
    after = train_run(tmp_path / "run", **{**flags, "train_steps": 3}).dataset.spec.scaling
    assert after == before
    assert "the data differs from the data of" in capsys.readouterr().err


@pytest.mark.slow
def test_held_out_data_has_the_scaling_of_the_training_data(tmp_path):
    flags = {"dataset": "array", "data_dir": save(tmp_path / "a.npy", RANDOM.uniform(size=(20, 3)))}
    flags["test_data_dir"] = save(tmp_path / "b.npy", np.full([9, 3], 3.0) + np.eye(9, 3))
    run = train_run(tmp_path / "run", [writer := MemoryWriter()], **flags, **DIAGNOSED)
    check_diagnosis(writer)
    assert all("held_out/negative_critic_loss" in values for _, values in writer.summaries)
    held_out = run.dataset.open_held_out()
    assert held_out.read(9)[0].numpy().min() > 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.npy", b"", "cannot be read"),
        ("x.npy", np.arange(6.0), "contains examples of shape [6]"),
        ("x.npy", np.zeros([0, 3]), "contains examples of shape [0, 3]"),
        ("x.npy", np.zeros([4, 3], complex), "dtype complex128"),
        ("x.npy", np.array([["a"]]), "contains examples of shape [1, 1] and dtype <U1"),
        ("x.npy", np.array([[{}]]), "contains Python objects"),
        ("x.npy", np.zeros([4, 0, 3]), "contains examples of shape [4, 0, 3]"),
        ("x.npz", {"a": np.eye(3), "b": np.eye(3)}, "the arrays a, b, but none named examples"),
        ("x.npy", np.zeros([4], [("a", "f8"), ("b", "U3")]), "contains <U3 in b"),
        ("x.npz", {"examples": np.eye(3), "labels": np.arange(2)}, "labels of shape [2]"),
        ("x.npz", {"examples": np.eye(3), "labels": np.int64(3)}, "labels of shape []"),
        ("x.npz", {"examples": np.eye(3), "conditions": np.float32(3)}, "conditions of shape []"),
        ("x.npz", {"examples": np.eye(3), "conditions": np.eye(3, 0)}, "of shape [3, 0]"),
        ("x.npz", {"examples": np.eye(3), "conditions": [*"abc"]}, "of shape [3] and dtype <U1"),
        ("x.npz", {"examples": np.eye(3), "conditions": 1j * np.eye(3)}, "dtype complex128"),
        ("x.npz", {"examples": np.eye(3), "conditions": 1e300 * np.eye(3)}, "that are too large"),
        ("x.npz", b"PK", "cannot be read"),
        ("x.csv", b"a,b\n1,2\n3\n", "line 3 has 1 column in place of 2"),
        ("x.csv", b"a,b\n", "contains no examples"),
        ("x.csv", b"\xff\xfe", "contains no examples"),
        ("x.csv", b"a,b\n1," + b"2" * 200_000, "line 2"),
        ("x.npy", np.full([4, 2, 3], 7), "is constant in channel 0, channel 1, channel 2"),
        ("x.bin", b"1", "ends in none of .npy, .npz, .h5, "),
    ],
)
def test_files_that_cannot_be_trained_on(tmp_path, capsys, name, content, message):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, dict):
        np.savez(path, **content)
    else:
        np.save(path, content)
    assert call_main("--dataset=array", f"--data_dir={path}", f"--model_dir={tmp_path}/run") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --data_dir=") and message in line and " — " in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"labels": np.linspace(0, 1, 90)}, "contains labels that are not integers, such as 0.01"),
        ({"labels": np.ones([90, 2])}, "contains labels of shape [90, 2]"),
        ({"labels": ["a", "", *"b" * 88]}, "has no label for example 1"),
        ({"labels": [-1, *[0] * 89], "class_names": ["a", "b"]}, "contains the labels -1 to 0"),
    ],
)
def test_labels_that_cannot_be_classes_are_noted(tmp_path, capsys, content, message):
    """A run that needs labels is refused in a second line."""
    path = str(tmp_path / "x.npz")
    np.savez(path, examples=RANDOM.normal(size=(90, 3)), **content)
    dataset = find_data(Config(dataset="array", data_dir=path))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"note: --data_dir={path} {message}")
    assert line.endswith(": the labels are not used as classes")
    assert dataset.label_count == 0 and dataset.open(batch_size=4).size == 90
    with pytest.raises(UserError, match=r"=acgan needs labels, .* give a file with labels or cond"):
        find_data(Config(dataset="array", data_dir=path, conditioning="acgan"))


def test_an_archive_of_something_else_is_reported(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("examples.npy", b"not an array")
    with pytest.raises(UserError, match="cannot be read \\(the magic string"):
        open_arrays(str(tmp_path / "x.npz"), "--data_dir=x")


@pytest.mark.parametrize("folder", ["{}", "ram://fortran"])
def test_arrays_in_fortran_order_have_the_same_examples(tmp_path, folder):
    """A table of pandas is usually saved in this order."""
    array = RANDOM.normal(size=(9, 4, 2))
    path = save(f"{folder.format(tmp_path)}/x.npy", np.asfortranarray(array))
    rows = open_arrays(path, "--data_dir=x").examples
    np.testing.assert_array_equal(rows[2:5], array[2:5])
    np.testing.assert_array_equal(rows[np.array([7, 0])], array[[7, 0]])


@pytest.mark.parametrize("scaling", ["minmax", "standard", "whiten"])
@pytest.mark.parametrize("size", [1.7e308, 1e200, 1e-300])
@pytest.mark.filterwarnings("error")
def test_values_that_cannot_be_scaled_are_reported(tmp_path, scaling, size):
    values = size * RANDOM.uniform(-1, 1, (9, 2))
    values[:, 1] = RANDOM.normal(size=9)
    path = save(tmp_path / "x.npy", values)
    settings_ = DataSettings(dataset="array", data_dir=path, scaling=scaling)
    with pytest.raises(UserError, match="values in feature 0 that are too large, or too close"):
        find_dataset(settings_)


def test_a_cut_file_and_unequal_shards_are_reported(tmp_path):
    path = tmp_path / "x.npy"
    save(path, np.eye(50))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError, match=r"x\.npy is cut"):
        open_arrays(str(path), "--data_dir=x")
    save(path, np.eye(3))
    save(tmp_path / "y.npy", np.eye(4))
    with pytest.raises(UserError, match=r"y\.npy has examples of shape \[4\]"):
        open_arrays(str(tmp_path), "--data_dir=x")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--dataset=array"], "--dataset=array needs --data_dir"),
        (["--dataset=array", "--data_dir=/nowhere.npy"], "--data_dir=/nowhere.npy does not exist"),
        (["--scaling=standard"], "--scaling=standard applies only to --dataset=array"),
        (["--invalid=drop"], "--invalid=drop applies only to --dataset=array"),
        (["--dataset=array", "--data_dir={}", "--image_size=5"], "--image_size=5, but the"),
        (["--dataset=array", "--data_dir={}", "--image_channels=3"], "--image_channels=3, but"),
        (["--dataset=array", "--data_dir={}", "--conditioning=acgan"], "needs labels"),
    ],
)
def test_flags_that_do_not_fit(tmp_path, capsys, flags, message):
    path = save(tmp_path / "x.npy", RANDOM.normal(size=(90, 3)))
    assert call_main(*(flag.format(path) for flag in flags), f"--model_dir={tmp_path}/run") == 2
    assert message in capsys.readouterr().err


def test_errors_do_not_suggest_to_resize_arrays(tmp_path):
    path = save(tmp_path / "x.npy", RANDOM.normal(size=(9, 24, 12, 3)))
    flags = {"dataset": "array", "data_dir": path}
    with pytest.raises(UserError, match="24x12 pixels — use images of size 32, 48, 64 or 128,"):
        resolve(Config(**flags, model="resnet"), LIBRARY.models)
    with pytest.raises(UserError, match="--dataset=array, which has 9 examples — use at most 9"):
        find_data(Config(**flags)).open(batch_size=10)


def test_the_size_of_a_large_file_is_printed_before_it_is_read(tmp_path, monkeypatch, caplog):
    np.save(tmp_path / "a.npy", np.arange(600.0).reshape(300, 2))
    settings = Config(dataset="array", data_dir=f"{tmp_path}/a.npy")
    for large, expected in ((4801, ""), (4800, f"reading 0.0 GiB of --data_dir={tmp_path}/a.npy")):
        monkeypatch.setattr(arrays, "_LARGE", large)
        caplog.clear()
        with caplog.at_level("INFO"):
            find_dataset(settings)
        assert expected in caplog.text and bool(expected) == bool(caplog.text)


def test_a_pipe_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    with pytest.raises(UserError, match=r"x\.npy is not a file"):
        open_arrays(str(tmp_path / "x.npy"), "--data_dir=x")


@held_in("off")
def test_a_remote_tpu_does_not_stream_arrays(tmp_path):
    flags = {"dataset": "array", "data_dir": save(tmp_path / "x.npy", np.eye(4))}
    dataset = find_dataset(DataSettings(**flags), devices=DeviceSettings(tpu="far"))
    with pytest.raises(UserError, match=r"machines of --tpu=far cannot read it .* --tpu=local"):
        dataset.open(batch_size=1)


def test_samples_have_the_precision_of_the_data():
    examples = 1e9 + RANDOM.uniform(size=(50, 2))
    statistics = Statistics(2)
    statistics.add(examples)
    scaling = statistics.scaling("minmax", dtype=examples.dtype, dequantize=True, names=None)
    restored = scaling.restore(scaling.normalize(tf.constant(examples)).numpy())
    np.testing.assert_allclose(restored, examples, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        (1.7e9 + RANDOM.uniform(0, 50, 200), tf.float64),
        (1e100 * RANDOM.normal(size=200), tf.float64),
        (10**9 + np.arange(200), tf.float64),
        (10**9 * np.arange(200), tf.float32),
        (1000 + np.arange(200), tf.float32),
        (100 + np.linspace(0, 10, 200), tf.float32),
        (np.float32(1.7e9) + 128 * np.arange(200, dtype=np.float32), tf.float32),
        (RANDOM.integers(0, 256, 200).astype(np.uint8), tf.float32),
    ],
)
def test_signatures_have_float64_where_float32_is_too_coarse(column, dtype):
    rows = column[:, None]
    statistics = Statistics(1)
    statistics.add(rows)
    scaling = statistics.scaling("minmax", dtype=rows.dtype, dequantize=True, names=None)
    assert scaling.signature_dtype == dtype
    values = scaling.normalize(tf.constant(rows))
    restored = scaling.restore_tensor(values)
    assert restored.dtype == dtype
    np.testing.assert_allclose(
        restored, rows, rtol=0, atol=1e-6 * float(np.ptp(column.astype(float)))
    )
    assert len(np.unique(restored)) == len(np.unique(column))


@pytest.mark.slow
def test_exports_and_tables_keep_the_precision_of_a_large_offset(tmp_path):
    """Exports draw the samples of --mode=sample, also those of a constant integer."""
    times = 1.7e9 + RANDOM.uniform(0, 50, (200, 1))
    data = np.concatenate([times, np.full_like(times, 2**24 + 1)], axis=1)
    path = save(tmp_path / "x.npy", data)
    flags = {"dataset": "array", "data_dir": path, "invalid": "drop", **SMALL}
    run = train_run(tmp_path / "run", **flags)
    for ending in ("npy", "csv"):
        arguments = [f"--sample_format={ending}", f"--output={tmp_path}/s.{ending}"]
        arguments += ["--num_samples=200", f"--model_dir={tmp_path}/run"]
        assert not call_main("--mode=sample", *arguments)
    samples = np.load(tmp_path / "s.npy")
    # float32 has one number here, and a narrow network a few equal outputs.
    assert len(np.unique(samples[:, 0])) > 150 and (samples[:, 1] == 2**24 + 1).all()
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "s.csv", delimiter=","), samples)
    assert not call_main("--mode=export", f"--model_dir={tmp_path}/run")
    signatures = tf.saved_model.load(f"{tmp_path}/run/exported/saved_model").signatures
    found = signatures["seed"](seed=tf.constant(0, tf.int64), count=tf.constant(200))["samples"]
    assert found.dtype == tf.float64 and len(np.unique(found[:, 0])) > 150
    np.testing.assert_allclose(found, samples, rtol=0, atol=1e-4)
    scores = signatures["critic"](examples=tf.constant(data))["scores"]
    normalized = (data[:, :1] - times.min()) / np.ptp(times) * 2 - 1
    expected = run.state.critic(tf.constant(normalized, tf.float32))[:, 0]
    np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("scaling", ["minmax", "standard"])
@pytest.mark.parametrize(
    "levels",
    [
        np.arange(-(2**15), 2**15, dtype=np.int16),
        np.arange(2**16, dtype=np.uint16),
        np.arange(10**9, 10**9 + 50_001, 7, dtype=np.int32),
        np.arange(2**32 - 3000, 2**32, dtype=np.uint32),
        np.arange(2**52, 2**52 + 1000, dtype=np.int64),
        np.arange(-8, 9, dtype=np.int8),
        np.arange(3, 250, dtype=np.uint8),
        np.array([False, True]),
    ],
    ids=lambda levels: str(levels.dtype),
)
def test_noise_does_not_move_integers_to_another_level(levels, scaling, jit_compile):
    """The device loop normalizes with XLA."""
    rows = np.resize(levels, (max(len(levels), 2**14), 1))
    statistics = Statistics(1)
    statistics.add(rows)
    found = statistics.scaling(scaling, dtype=rows.dtype, dequantize=True, names=None)
    stored = tf.constant(found.to_stored(rows))
    normalize = tf.function(
        lambda first: found.normalize_stored(DataSettings(seed=1), stored, first),
        jit_compile=jit_compile,
        autograph=False,
    )
    noisy = [normalize(tf.constant(first * len(rows), tf.int64)).numpy() for first in range(3)]
    for values in noisy:
        restored = found.restore(values)
        assert restored.dtype == rows.dtype
        np.testing.assert_array_equal(restored, rows)
    assert np.unique(np.concatenate(noisy)).size > 2 * len(levels)


def held_out(tmp_path, training, other, **flags):
    """Returns all normalized held-out examples in order, and the scaling of the training data."""
    flags |= {"dataset": "array", "data_dir": save(tmp_path / "a.npy", training)}
    dataset = find_data(Config(**flags, test_data_dir=save(tmp_path / "b.npy", other)))
    data = dataset.open_held_out()
    found, _ = data.read(data.size)
    return np.sort(found.numpy().ravel()).astype(float), dataset.spec.scaling


@pytest.mark.parametrize("training", ["uint8", "int16", "bool", ">i2"])
@pytest.mark.parametrize("other", ["int16", "int64", "float16", "float64", ">f4"])
def test_held_out_data_of_another_dtype_keeps_its_values(tmp_path, training, other):
    """Also values that the dtype of the training data cannot represent."""
    values = np.array([[-7], [1], [300], [2]])
    levels = np.arange(100).reshape(-1, 1).astype(training)
    integers, scaling = held_out(tmp_path, levels, values.astype(other))
    raw = integers * scaling.scale[0] + scaling.offset[0]
    np.testing.assert_array_equal(np.floor(raw), np.sort(values.ravel()))
    assert np.abs(raw - np.floor(raw) - 0.5).max() > 0.01  # noise, as in training
    if np.dtype(other).kind == "f":
        numbers, _ = held_out(tmp_path, levels, (values + 0.25).astype(other))
        raw = numbers * scaling.scale[0] + scaling.offset[0]
        np.testing.assert_allclose(raw, np.sort(values.ravel()) + 0.25 + 0.5, atol=1e-4)


def test_held_out_rows_with_nan_are_left_out_for_integer_training_data(tmp_path):
    levels = np.arange(40, dtype=np.uint8).reshape(-1, 1)
    other = np.array([[49.46], [np.nan], [3.5]])
    found, scaling = held_out(tmp_path, levels, other, invalid="drop")
    raw = found * scaling.scale[0] + scaling.offset[0]
    np.testing.assert_allclose(raw, [4.0, 49.96], atol=1e-4)


@pytest.mark.slow
def test_a_continued_run_keeps_the_values_of_another_dtype(tmp_path):
    levels = np.arange(40, dtype=np.uint8).reshape(-1, 1)
    run = train_run(
        tmp_path / "run", dataset="array", data_dir=save(tmp_path / "a.npy", levels), **SMALL
    )
    scaling = run.dataset.spec.scaling
    path = save(tmp_path / "b.npy", np.array([[300], [-5]], np.int16))
    dataset = find_data(Config(dataset="array", data_dir=path))
    dataset.use_recorded(run.dataset.spec)
    found = dataset.open(batch_size=1).read(2)[0].numpy()
    raw = found.astype(float) * scaling.scale[0] + scaling.offset[0]
    np.testing.assert_array_equal(np.sort(np.floor(raw).ravel()), [-5, 300])
    far = save(tmp_path / "c.npy", np.array([[1e100], [0.0]]))
    with pytest.raises(UserError, match="values in feature 0 that are too far"):
        held_out(tmp_path, levels, np.load(far))


@pytest.mark.parametrize(
    ("column", "flags", "message"),
    [
        (np.float32(1.7e9) + 128 * np.arange(50, dtype=np.float32), {}, "float32 numbers are 128"),
        (
            np.float16(1000) + np.arange(50, dtype=np.float16),
            {},
            "near 1049, where float16 numbers are 1 apart",
        ),
        (1.7e9 + np.arange(50.0), {}, ""),
        (1e16 + 2 * np.arange(50.0), {}, "near 1e+16, where float64 numbers are 2 apart"),
        (10**18 + 10 * np.arange(5000), {}, "float64 numbers are 128 apart — subtract a constant"),
        (1e5 + np.linspace(0, 1, 50), {"scaling": "none"}, "float32 numbers are 0.00781 apart"),
        (np.arange(50, dtype=np.int32) + 10**6, {}, ""),
    ],
)
def test_columns_that_are_rounded_by_their_dtype_are_named(
    tmp_path, capsys, column, flags, message
):
    path = save(
        tmp_path / "x.npy", np.stack([np.arange(len(column)), column], 1, dtype=column.dtype)
    )
    spec_of(data_dir=path, **flags)
    shown = capsys.readouterr().err
    assert message in shown and ("x.npy is rounded in feature 1: the" in shown) == bool(message)


@pytest.mark.slow
def test_names_of_classes_have_the_numbers_of_the_training_data(tmp_path):
    def write(name, labels):
        rows = np.stack([np.arange(len(labels)), np.arange(len(labels)) % 7], axis=1)
        np.savez(tmp_path / name, examples=rows, labels=labels)
        return str(tmp_path / name)

    data_dir = write("train.npz", ["rose", "iris", "lily", "iris"] * 4)
    flags = {"dataset": "array", "data_dir": data_dir, "conditioning": "projection"}
    other = write("test.npz", ["rose", "lily"] * 4)
    dataset = find_data(Config(**flags, test_data_dir=other))
    assert dataset.spec.class_names == ("iris", "lily", "rose")
    held_out = dataset.open_held_out().read(8)[1].numpy()
    assert sorted(held_out.tolist()) == [1] * 4 + [2] * 4
    run = train_run(tmp_path / "run", **flags, **SMALL)
    saved = find_run(run.directory.path, {}, LIBRARY)
    shorter = find_data(Config(**{**flags, "data_dir": other}))
    shorter.use_recorded(saved.spec)  # as on a resume
    assert sorted(set(shorter.open(batch_size=2).read(8)[1].numpy())) == [1, 2]
    for name, labels, message in (
        ("unknown.npz", ["rose", "tulip"] * 4, "contains the class 'tulip'"),
        ("numbers.npz", ["0", "1"] * 4, "contains the class '0', which the training data lacks"),
    ):
        config = Config(**flags, test_data_dir=write(name, labels))
        with pytest.raises(UserError, match=f"--test_data_dir=.*{message}"):
            find_data(config).open_held_out()
