"""Labels of any kind, and files of arrays of NumPy, h5py, MATLAB and SciPy."""

import io
import json
import os
import zipfile

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import sklearn.preprocessing
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.runs import LIBRARY, call_main, find_data, held_in, strategy_over
from wgan_gp.app.saved_run import SavedRun
from wgan_gp.config import Config
from wgan_gp.data.datasets import find_dataset
from wgan_gp.data.pipeline_errors import user_error_of
from wgan_gp.data.sources.array_files import open_arrays
from wgan_gp.data.sources.labels import number_labels, numbered_like
from wgan_gp.errors import UserError
from wgan_gp.evaluation.examples import Examples
from wgan_gp.run_directory.directory import RunDirectory

EXAMPLES = np.random.default_rng(0).normal(size=(12, 3))
NUMBERS = np.arange(12) % 3 * 2 + 1  # 1, 3, 5: from 1, with gaps
TINY = "--model=mlp --model_width=4 --train_steps=2 --steps_per_loop=2 --batch_size=4 --n_critic=1"


def read(path):
    return open_arrays(str(path), f"--data_dir={path}")


@settings(max_examples=30, deadline=None)
@given(
    values=st.lists(st.integers(-4, 4), min_size=1, max_size=9),
    dtype=st.sampled_from(["int8", "int64", ">i4", "float16", "float64", "U3", "S3", "object"]),
    is_column=st.booleans(),
)
def test_labels_are_numbered_as_scikit_learn_does(values, dtype, is_column):
    labels = np.array(values).astype(dtype)
    expected = sklearn.preprocessing.LabelEncoder()
    numbers = expected.fit_transform(
        values if labels.dtype.kind in "ifO" else list(map(str, values))
    )
    found, names = number_labels(labels[:, None] if is_column else labels, "x")
    assert found.tolist() == numbers.tolist() and found.dtype == np.int64
    assert names == tuple(str(int(name)) for name in expected.classes_)


def test_one_hot_and_boolean_labels():
    found, names = number_labels(np.eye(4, dtype=np.float32)[[3, 0, 3]], "x")
    assert found.tolist() == [1, 0, 1] and names == ("0", "3")
    found, names = number_labels(np.array([True, False]), "x")
    assert found.tolist() == [1, 0] and names == ("False", "True")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.5, 1], "not integers, such as 0.5 of example 0 — .* as `conditions`"),
        ([[0, 1], [1, 1]], r"labels of shape \[2, 2\]"),
        ([1, np.nan], "no label for example 1"),
        (pd.Series(["a", None]), "no label for example 1"),
        (pd.array([1, None], dtype="Int64"), "no label for example 1"),
        (np.ma.array([1, 2], mask=[1, 0]), "no label for example 0"),
        ([1j, 2], "labels of type complex128"),
        ([1e17, 0], "not integers, such as 1e"),
        ([0, np.inf], "not integers, such as inf of example 1"),
        ([10**24, 1], "labels of type object"),
    ],
)
def test_values_that_are_no_labels(labels, message):
    is_masked = np.ma.isMaskedArray(labels)
    with pytest.raises(UserError, match=f"^--data_dir=x .*{message}"):
        number_labels(labels if is_masked else np.asarray(labels), "--data_dir=x")


def test_classes_are_found_by_name():
    assert numbered_like(("a", "b", "c"), np.array([1, 0]), ("a", "c"), "x").tolist() == [2, 0]
    with pytest.raises(UserError, match=r"contains the class 'd', .* use only a, b"):
        numbered_like(("a", "b"), np.array([0]), ("d",), "x")


def write_hdf5(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values


def write_matlab_7_3(path, **arrays):
    """Writes the layout of MATLAB's -v7.3: HDF5 with reversed axes after 512 bytes of text."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in arrays.items():
            file[name] = np.atleast_2d(values).T
            file[name].attrs["MATLAB_class"] = np.bytes_("double")
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\2IM")


@pytest.mark.parametrize("dtype", ["f8", ">f4", "f2", "u1"])
@pytest.mark.parametrize("ending", ["npz", "z.npz", "h5", "hdf5", "mat", "7.3.mat"])
def test_files_of_named_arrays(tmp_path, ending, dtype):
    path, examples = tmp_path / f"x.{ending}", (10 * EXAMPLES).astype(dtype)
    if ending == "npz":
        np.savez(path, examples=np.asfortranarray(examples), labels=NUMBERS)
    elif ending == "z.npz":
        np.savez_compressed(path, samples=examples, labels=NUMBERS[:, None])
    elif ending == "mat":
        scipy.io.savemat(path, {"X": examples.astype("f8"), "y": NUMBERS, "other": 3})
    elif ending == "7.3.mat":
        write_matlab_7_3(path, X=examples, y=NUMBERS)
    else:
        write_hdf5(path, images=examples, labels=NUMBERS)
    data = read(path)
    np.testing.assert_array_equal(data.examples[:], examples)
    assert data.class_names == ("1", "3", "5")
    np.testing.assert_array_equal(data.labels, np.arange(12) % 3)


def test_images_of_matlab_have_their_number_last(tmp_path):
    """Street View House Numbers has this form, with labels from 1 in a column."""
    images = np.arange(5 * 4 * 4 * 3, dtype=np.uint8).reshape(5, 4, 4, 3)
    labels = np.array([[2], [1], [2], [1], [10]])
    scipy.io.savemat(tmp_path / "x.mat", {"X": np.moveaxis(images, 0, -1), "y": labels})
    data = read(tmp_path / "x.mat")
    np.testing.assert_array_equal(data.examples, images)
    assert data.class_names == ("1", "2", "10") and data.labels.tolist() == [1, 0, 1, 0, 2]


def test_texts_of_matlab_and_hdf5_are_labels(tmp_path):
    names = ["rose", "iris"] * 6
    cells = np.array(names, object)[:, None]
    scipy.io.savemat(tmp_path / "a.mat", {"examples": EXAMPLES, "labels": cells})
    scipy.io.savemat(tmp_path / "b.mat", {"examples": EXAMPLES, "labels": names})
    write_hdf5(tmp_path / "c.h5", examples=EXAMPLES, labels=names)
    for name in ("a.mat", "b.mat", "c.h5"):
        data = read(tmp_path / name)
        assert data.class_names == ("iris", "rose") and data.labels.tolist() == [1, 0] * 6


@pytest.mark.parametrize("common", ["labels", "conditions"])
def test_a_folder_of_shards_with_labels_beside_them(tmp_path, common):
    for i in range(4):
        np.save(tmp_path / f"examples-{i}.npy", EXAMPLES[3 * i : 3 * i + 3])
    (tmp_path / "._examples-0.npy").write_bytes(b"macOS")
    np.save(tmp_path / f"{common}.npy", NUMBERS)
    (tmp_path / "data.json").write_text(json.dumps({"class_names": list("abcdef")}))
    data = read(tmp_path)
    np.testing.assert_array_equal(data.examples[1:11], EXAMPLES[1:11])
    np.testing.assert_array_equal(data.examples[np.array([11, 0, 5])], EXAMPLES[[11, 0, 5]])
    if common == "labels":
        assert data.class_names == ("b", "d", "f")
    else:
        assert data.conditions.tolist() == NUMBERS[:, None].tolist() and data.labels is None


def test_shards_with_labels_of_their_own(tmp_path):
    np.savez(tmp_path / "a.npz", examples=EXAMPLES[:6], labels=["a"] * 6)
    np.savez(tmp_path / "b.npz", examples=EXAMPLES[6:], labels=["b"] * 6)
    data = read(tmp_path)
    assert data.class_names == ("a", "b") and data.labels.tolist() == [0] * 6 + [1] * 6
    np.savez(tmp_path / "c.npz", examples=EXAMPLES)
    with pytest.raises(UserError, match=r"c.npz has .*, but a.npz has .* and labels"):
        read(tmp_path)


def test_a_structured_array_is_a_table(tmp_path):
    rows = np.array([(1, 2.5, b"x"), (3, 4.5, b"y")], [("a", "i4"), ("b", "f8"), ("Class", "S1")])
    np.save(tmp_path / "x.npy", rows)
    data = read(tmp_path / "x.npy")
    assert data.names == ("a", "b") and data.class_names == ("x", "y")
    assert data.examples.tolist() == [[1, 2.5], [3, 4.5]]


def test_hostile_files_are_one_line(tmp_path):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        content, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 3)}
    )
    with zipfile.ZipFile(tmp_path / "tera.npz", "w") as archive:
        archive.writestr("examples.npy", content.getvalue() + b"x" * 99)
    with h5py.File(tmp_path / "tera.h5", "w") as file:
        file.create_dataset("examples", (10**12, 3), "f8", chunks=(1000, 3))
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["examples"] = h5py.ExternalLink("/etc/passwd", "/")
        file.create_dataset("x", (9, 3), "u1", external=[("/etc/passwd", 0, 27)])
    for name, message in (
        ("tera.npz", "declares 24,000,000,000,000 bytes of numbers, but has 99"),
        ("tera.h5", "declares arrays of 24,000 GB"),
        ("other.h5", "contains the arrays none"),
    ):
        with pytest.raises(UserError, match=rf"{name} .*{message}"):
            read(tmp_path / name)


@pytest.mark.parametrize("change", ["cut", "same size", "deleted"])
@held_in("off")
def test_a_file_that_changes_while_it_is_read_is_one_line(tmp_path, change):
    path = tmp_path / "x.npy"
    np.save(path, EXAMPLES)
    config = Config(dataset="array", data_dir=str(path), batch_size=4)
    data = find_data(config).open(batch_size=4)
    if change == "deleted":
        path.unlink()
    else:
        np.save(path, EXAMPLES[: 5 if change == "cut" else 12])
        os.utime(path, (1, 1))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        data.read(4)
    assert "x.npy was changed, cut or deleted" in str(user_error_of(caught.value))


@pytest.mark.slow
def test_labels_keep_their_names_in_samples(tmp_path):
    path, run = tmp_path / "x.npz", f"--model_dir={tmp_path}/run"
    np.savez(path, examples=EXAMPLES, labels=NUMBERS)
    flags = ["--dataset=array", f"--data_dir={path}", "--conditioning=projection"]
    assert not call_main(*flags, *TINY.split(), run)
    saved = json.loads((tmp_path / "run" / "data.json").read_text())
    assert saved["spec"]["classes"] == 3 and saved["spec"]["class_names"] == ["1", "3", "5"]
    output = ["--sample_format=npz", f"--output={tmp_path}/s.npz", "--num_samples=7"]
    assert not call_main("--mode=sample", run, *output)
    samples = np.load(tmp_path / "s.npz")
    assert samples["class_names"].tolist() == ["1", "3", "5"]
    assert samples["labels"].tolist() == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (NUMBERS[:, None], ("1", "3", "5")),
        (NUMBERS.astype(float), ("1", "3", "5")),
        (NUMBERS[:, None].astype(float), ("1", "3", "5")),
        (np.eye(3)[NUMBERS // 2], ("0", "1", "2")),
        (NUMBERS.astype(str), ("1", "3", "5")),
        (NUMBERS / 2, None),
        (np.ones([12, 2]), None),
    ],
)
def test_pairs_of_python_have_labels_unless_they_cannot_be_labels(labels, names, caplog):
    for data in ((EXAMPLES, labels), {"examples": EXAMPLES, "labels": labels}):
        if names is None and isinstance(data, dict):
            with pytest.raises(UserError, match="other numbers as `conditions`"):
                find_dataset(Config(), function=lambda data=data: data)
            continue
        dataset = find_dataset(Config(), function=lambda data=data: data)
        assert dataset.spec.class_names == names
        assert (dataset.source.spec.conditions is None) == (names is not None)
        # Energies that are whole numbers by chance would silently be classes.
        are_doubtful = names is not None and labels.dtype == float and isinstance(data, tuple)
        assert ("so they are classes" in caplog.text) == (are_doubtful and labels.size == 12)
        caplog.clear()


@held_in("off")
def test_dictionaries_of_python_name_conditions():
    data = {"examples": EXAMPLES, "conditions": NUMBERS}
    for value in (data, tf.data.Dataset.from_tensor_slices(data)):
        dataset = find_dataset(
            Config(), function=lambda value=value: value, conditioning="projection"
        )
        assert dataset.spec.classes == 0 and dataset.spec.conditions.size == 1


@pytest.mark.slow
@held_in("off")
def test_streams_have_numbers_of_classes():
    def find(labels):
        data = tf.data.Dataset.from_tensor_slices((EXAMPLES, labels)).repeat()
        config = Config(batch_size=4)
        return find_dataset(config, function=lambda: data, conditioning="projection")

    dataset = find(np.eye(3)[NUMBERS // 2])
    found = dataset.open(batch_size=12).read(12)[1]
    assert dataset.spec.class_names == ("0", "1", "2") and found.numpy().tolist() == [0, 1, 2] * 4
    with pytest.raises(UserError, match=r"needs labels, .* are one-hot rows in a stream"):
        find(NUMBERS)


def test_held_out_splits_have_the_classes_of_training():
    def function(split):
        return (EXAMPLES, NUMBERS if split == "train" else NUMBERS.clip(3))

    dataset = find_dataset(Config(), function=function, conditioning="projection")
    labels = dataset.open_held_out().read(12)[1].numpy()
    assert sorted(labels.tolist()) == [1] * 8 + [2] * 4


def test_held_out_arrays_of_another_rank_or_range(tmp_path, capsys):
    np.save(tmp_path / "a.npy", 255 * EXAMPLES)
    np.save(tmp_path / "b.npy", EXAMPLES.reshape(4, 3, 3))
    np.save(tmp_path / "c.npy", EXAMPLES)
    flags = {"dataset": "array", "data_dir": f"{tmp_path}/a.npy"}
    with pytest.raises(UserError, match=r"b.npy contains examples of shape \(3, 3\), but the run"):
        find_data(Config(**flags, test_data_dir=f"{tmp_path}/b.npy")).open_held_out()
    find_data(Config(**flags, test_data_dir=f"{tmp_path}/c.npy")).open_held_out()
    assert "c.npy has values from -" in capsys.readouterr().err


def test_masked_arrays_of_python_are_missing():
    masked = np.ma.array(EXAMPLES, mask=np.eye(12, 3))
    with pytest.raises(UserError, match=r"masked. elements in 3 of 12 rows"):
        find_dataset(Config(), function=lambda: masked)


def saved_run_of(tmp_path, **settings):
    """Returns a saved run with the data of a configuration, and its dataset in training."""
    settings = {"dataset": "array", "batch_size": 1, **settings}
    config = Config(conditioning="projection", **settings)
    dataset = find_data(config)
    run = SavedRun(config, RunDirectory(str(tmp_path / "run")), dataset.spec, LIBRARY)
    return run, dataset


def test_held_out_labels_of_a_saved_run_are_those_of_training(tmp_path):
    """The held-out file lacks the first class, so that its own numbers are others."""
    for name, classes in (("train", "abcabc"), ("test", "bcbc")):
        rows = np.stack([np.arange(len(classes)), np.arange(len(classes)) % 3], axis=1)
        np.savez(tmp_path / name, examples=rows, labels=np.array(list(classes)))
    files = {"data_dir": f"{tmp_path}/train.npz", "test_data_dir": f"{tmp_path}/test.npz"}
    saved, in_training = saved_run_of(tmp_path, **files)
    for dataset in (in_training, saved.find_dataset()):
        _, labels = Examples(dataset, strategy_over(1), 2).read_held_out(9)
        assert sorted(labels) == [1, 1, 2, 2]


def test_held_out_conditions_of_a_saved_run_are_standardized_as_in_training(tmp_path):
    random = np.random.default_rng(0)
    for name, mean in (("train", 5.0), ("test", 8.0)):
        conditions = random.normal(mean, 2, [20, 1])
        np.savez(tmp_path / name, examples=random.normal(size=[20, 3]), conditions=conditions)
    files = {"data_dir": f"{tmp_path}/train.npz", "test_data_dir": f"{tmp_path}/test.npz"}
    saved, in_training = saved_run_of(tmp_path, **files)
    expected, found = (
        Examples(dataset, strategy_over(1), 2).read_held_out(20)
        for dataset in (in_training, saved.find_dataset())
    )
    np.testing.assert_array_equal(found[1], expected[1])
    assert expected[1].mean() > 1


def test_splits_of_python_have_the_numbers_of_the_run(tmp_path):
    """Training had the classes a, b and c; the splits now lack a."""
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)

    def data(split, classes):
        return rows[: len(classes)], np.array(list(classes))

    def found_in(*splits, conditioning):
        function = lambda split: data(split, splits[split == "test"])  # noqa: E731
        settings = Config(dataset="python", batch_size=1, holdout=0.0)
        return find_dataset(settings, conditioning=conditioning, function=function)

    spec = found_in("abca", "abc", conditioning="projection").spec
    saved = found_in("bcb", "cbc", conditioning="none")
    saved.use_recorded(spec)
    examples = Examples(saved, strategy_over(1), 1)
    images, labels = examples.read(3)
    expected = {0: 1, 2: 2, 4: 1}  # by the first number of the row
    first = saved.spec.scaling.restore(images)[:, 0]
    assert [expected[round(float(each))] for each in first] == labels.tolist()
    assert sorted(examples.read_held_out(3)[1]) == [1, 2, 2]


@pytest.mark.parametrize("conditioning", ["none", "projection"])
@held_in("off")
def test_the_labels_of_a_stream_are_read_by_every_mode(conditioning):
    rows = np.arange(12, dtype=np.float32).reshape(6, 2) / 12
    labels = np.array([0, 1, 1, 0, 1, 0])
    stream = tf.data.Dataset.from_tensor_slices((rows, np.eye(2)[labels]))
    settings = Config(dataset="python", conditioning=conditioning)
    function = lambda split: stream if split == "train" else None  # noqa: E731
    dataset = find_dataset(settings, conditioning=conditioning, function=function)
    assert dataset.label_count == 2
    np.testing.assert_array_equal(Examples(dataset, strategy_over(1), 2).read(6)[1], labels)
