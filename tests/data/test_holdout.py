"""The examples that --holdout sets aside, by a fixed rule: no fit knows them."""

import dataclasses

import numpy as np
import pandas
import PIL.Image
import pytest
import sklearn.model_selection
import tensorflow as tf

from tests.helpers.runs import TINY, call_main, find_data, held_in, open_data, resolved
from wgan_gp.config import Config, DataSettings
from wgan_gp.data.datasets import find_dataset
from wgan_gp.data.feed import replica_batches
from wgan_gp.data.source import is_held_out
from wgan_gp.data.sources import decode as decoding
from wgan_gp.errors import UserError


@pytest.mark.parametrize(("size", "share"), [(30, 0.1), (7, 0.3), (1001, 0.25), (2, 0.5)])
def test_the_rule_is_that_of_scikit_learn(size, share):
    kept, held_out = sklearn.model_selection.train_test_split(
        range(size), test_size=share, random_state=0
    )
    found = is_held_out(size, share)
    assert set(np.flatnonzero(found)) == set(held_out) and set(np.flatnonzero(~found)) == set(kept)
    assert not is_held_out(size, None).any() and not is_held_out(size, 0.0).any()


def values_of(data):
    """Returns the first value of each example of an epoch, in units of the data, and the labels."""
    examples, labels = data.read(data.size)
    return np.asarray(examples, np.float64).reshape(data.size, -1)[:, 0], labels.numpy()


def write_pictures(folder):
    for number in range(40):
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.new("L", (8, 8), number).save(path)
    return str(folder)


@pytest.mark.parametrize("cache", ["on", "off"], indirect=True)
def test_classes_without_examples_are_named(tmp_path, cache):
    """The only picture of a class is held out, and that of another one cannot be read."""
    folder = write_pictures(tmp_path / "x")
    for name in ("rare", "torn"):
        (tmp_path / "x" / name).mkdir()
        PIL.Image.new("L", (8, 8)).save(tmp_path / "x" / name / "0.png")
    (tmp_path / "x" / "torn" / "0.png").write_bytes(b"x")
    shares = [percent / 100 for percent in range(10, 60)]
    share = next(share for share in shares if is_held_out(41, share)[40])
    settings = {"data_dir": folder, "dataset": "image_folder", "data_cache": "off"}
    for holdout, unused in ((share, "rare, torn"), (None, "torn")):
        dataset = find_dataset(DataSettings(**settings, holdout=holdout), conditioning="projection")
        data = dataset.open(batch_size=1)
        assert f"; no example of {unused} to train on" in dataset.describe(data)
    unconditional = find_dataset(DataSettings(**settings))
    assert "to train on" not in unconditional.describe(unconditional.open(batch_size=1))


@pytest.mark.parametrize("cache", ["on", "off"], indirect=True)
def test_held_out_pictures_are_decoded_once(tmp_path, monkeypatch, cache):
    decode, decoded = decoding.decode, []
    monkeypatch.setattr(
        decoding, "decode", lambda *given, **form: decoded.append(given) or decode(*given, **form)
    )
    settings = {"dataset": "image_folder", "data_dir": write_pictures(tmp_path / "x")}
    settings |= {"data_cache": "off", "holdout": 0.2, "image_channels": 1}
    dataset = find_dataset(DataSettings(**settings))
    for plain in (False, True):
        dataset.open(batch_size=1, plain=plain)
        decoded.clear()
        if plain:
            dataset.settings = dataclasses.replace(dataset.settings, dequantization=False)
        shared = values_of(dataset.open_held_out())
        assert not decoded
        again = find_dataset(dataset.settings).open_held_out()
        for one, other in zip(shared, values_of(again), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("cache", ["on", "off"], indirect=True)
@pytest.mark.parametrize("kind", ["image_folder", "array", "digits", "python"])
def test_each_example_is_trained_on_or_held_out(tmp_path, kind, cache):
    numbers = np.arange(40, dtype=np.uint8)
    function = None
    settings = {"dataset": kind, "dequantization": False, "holdout": 0.2}
    if kind == "image_folder":
        settings |= {"data_dir": write_pictures(tmp_path / "x"), "image_channels": 1}
    elif kind == "array":
        np.save(tmp_path / "x.npy", numbers[:, None].astype(np.float32))
        settings |= {"data_dir": f"{tmp_path}/x.npy", "scaling": "none"}
    elif kind == "python":
        images = np.tile(numbers[:, None, None, None], [1, 8, 8, 1])

        def function():
            return images, numbers % 2

    for seed in (0, 1):
        dataset = find_dataset(Config(seed=seed, **settings), function=function)
        kept, held_out = dataset.open(batch_size=1), dataset.open_held_out()
        total = 1797 if kind == "digits" else 40
        chosen = np.flatnonzero(is_held_out(total, 0.2))
        assert (kept.size, held_out.size) == (total - len(chosen), len(chosen))
        assert dataset.open_unread(batch_size=1).size == kept.size and dataset.has_held_out
        if kind == "digits":
            continue
        half = 19.5 if kind == "python" else 127.5  # data of Python is scaled to its range
        found = [
            np.rint(values if kind == "array" else (values + 1) * half).astype(int)
            for values in (values_of(kept)[0], values_of(held_out)[0])
        ]
        order = (
            np.array([*range(0, 40, 2), *range(1, 40, 2)]) if kind == "image_folder" else numbers
        )
        if kind == "image_folder":
            order = np.array(sorted(range(40), key=lambda n: ("ab"[n % 2], f"{n}.png")))
        assert set(found[1]) == set(order[chosen]) and len(set(found[1])) == len(chosen)
        assert set(found[0]) | set(found[1]) == set(range(40))
        assert not set(found[0]) & set(found[1])


@pytest.mark.parametrize("scaling", ["minmax", "standard", "whiten"])
def test_scalings_do_not_know_the_held_out_examples(tmp_path, scaling):
    random = np.random.default_rng(0)
    values = random.normal(size=[50, 2])
    held_out = is_held_out(49, 0.2)  # an invalid row is not counted
    values[:49][held_out] += 1000
    values = np.insert(values[:49], 7, np.nan, axis=0)
    np.save(tmp_path / "x.npy", values)
    np.save(tmp_path / "y.npy", np.delete(values, 7, axis=0)[~held_out])
    settings = {"dataset": "array", "scaling": scaling, "invalid": "drop"}
    dataset = find_data(Config(data_dir=f"{tmp_path}/x.npy", holdout=0.2, **settings))
    alone = find_data(Config(data_dir=f"{tmp_path}/y.npy", **settings))
    assert dataset.spec.scaling == alone.spec.scaling
    examples, _ = dataset.open(batch_size=1).stored
    np.testing.assert_array_equal(examples, alone.open(batch_size=1).stored[0])
    assert dataset.open_held_out().size == 10
    assert np.abs(dataset.open_held_out().read(10)[0]).min() > 5


def test_conditions_are_standardized_without_the_held_out_examples():
    conditions = np.arange(30, dtype=np.float64)[:, None]
    held_out = is_held_out(30, 0.1)
    conditions[held_out] = 1e6
    data = {"examples": np.random.default_rng(0).normal(size=[30, 2]), "conditions": conditions}
    settings = Config(dataset="python", holdout=0.1)
    dataset = find_dataset(settings, conditioning="projection", function=lambda: data)
    assert dataset.spec.conditions.mean == pytest.approx(conditions[~held_out].mean())
    frame = pandas.DataFrame({"x": np.random.default_rng(0).normal(size=30), "c": conditions[:, 0]})
    settings = Config(dataset="python", holdout=0.1, condition_columns="c")
    dataset = find_dataset(settings, conditioning="projection", function=lambda: frame)
    assert dataset.spec.conditions.as_frame(np.array([[9.0]]))["c"][0] < 30


@pytest.mark.slow
def test_a_restart_and_other_machines_read_the_same_part(tmp_path):
    settings = {"dataset": "image_folder", "data_dir": write_pictures(tmp_path / "x")}
    for cache in ("on", "off"):
        with held_in(cache):
            data = open_data(Config(batch_size=4, holdout=0.1, **settings))

        def read(first_step, hosts, data=data):
            contexts = [tf.distribute.InputContext(hosts, host, hosts) for host in range(hosts)]
            streams = [
                iter(replica_batches(data, each, batch_size=4, first_step=first_step))
                for each in contexts
            ]
            return np.stack([np.concatenate([next(each)[0] for each in streams]) for _ in range(9)])

        whole = read(0, 1)
        np.testing.assert_array_equal(read(0, 2), whole)
        np.testing.assert_array_equal(read(4, 2)[:5], whole[4:])


def test_what_cannot_be_held_out_is_one_line(tmp_path):
    with pytest.raises(UserError, match="only to data of a fixed number of examples — give --hold"):
        open_data(Config(dataset="gaussians_8", holdout=0.1))
    for share, says in ((-0.1, "too small"), (1.0, "too large — give less than 1")):
        with pytest.raises(UserError, match=f"--holdout={share} is {says}"):
            Config(holdout=share)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=[40, 2]))
    flags = {"dataset": "array", "data_dir": f"{tmp_path}/x.npy", "holdout": 0.1}
    with pytest.raises(UserError, match=r"--holdout=0.1 and --test_data_dir=.* omit one of them"):
        Config(**flags, test_data_dir=f"{tmp_path}/x.npy")
    with pytest.raises(UserError, match=r"--holdout=0.99 leaves none of 40 examples"):
        open_data(Config(**{**flags, "holdout": 0.99}))


def test_ada_holds_out_a_tenth_by_default(tmp_path):
    folder = write_pictures(tmp_path / "x")
    settings = {"dataset": "image_folder", "data_dir": folder, "batch_size": 4}
    ada = {"augment": "ada"}
    assert resolved(Config(**settings)).holdout == 0
    assert resolved(Config(**settings, **ada)).holdout == 0.1
    assert resolved(Config(**settings, **ada, test_data_dir=folder)).holdout == 0
    assert resolved(Config(**settings, **ada, holdout=0.3)).holdout == 0.3


@pytest.mark.slow
def test_ada_trains_on_a_plain_folder(tmp_path, capsys):
    folder = write_pictures(tmp_path / "x")
    settings = {**TINY, "dataset": "image_folder", "data_dir": folder, "batch_size": 4}
    settings |= {"augment": "ada", "train_steps": 100}
    flags = [f"--{name}={value}" for name, value in settings.items()]
    assert call_main(f"--model_dir={tmp_path}/run", *flags) == 0
    said = capsys.readouterr().err
    assert ": 36 examples of 8x8 pixels and 3 channels, 2 classes (a, b); 4 examples held" in said
