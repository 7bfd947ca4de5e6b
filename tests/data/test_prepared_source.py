"""Datasets of tensorflow-datasets: every file format, parts of splits, damage, class names."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from tests.helpers.runs import find_data, open_data
from wgan_gp.config import Config, DataSettings
from wgan_gp.data.feed import replica_batches
from wgan_gp.data.source import NO_LABEL
from wgan_gp.data.sources import tfds as prepared
from wgan_gp.data.sources.encoded import Unreadable
from wgan_gp.data.sources.tfds import PreparedSource, find_encoded
from wgan_gp.data.store import building
from wgan_gp.errors import UserError

SIDE = 4
NAMES = ("cat", "dog", "bird")
SPLITS = {"train": range(20), "test": range(100, 106), "validation": range(200, 204)}


def example(number):
    return {"image": np.full([SIDE, SIDE, 3], number, np.uint8), "label": number % 3}


def write(
    folder,
    splits=None,
    *,
    image=None,
    label=None,
    file_format="tfrecord",
    shards=3,
    name="shades",
):
    """Writes a dataset, the files of its train split last, and returns its folder."""
    features = {
        "image": image or tfds.features.Image(shape=(SIDE, SIDE, 3)),
        "label": label or tfds.features.ClassLabel(names=NAMES),
    }
    splits = splits or {"train": map(example, SPLITS["train"])}
    builder = tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version="1.0.0",
        features=tfds.features.FeaturesDict(features),
        split_datasets={split: list(enumerate(each)) for split, each in splits.items()},
        data_dir=str(folder),
        file_format=file_format,
        download_config=tfds.download.DownloadConfig(num_shards=shards),
        disable_shuffling=True,
    )
    return pathlib.Path(builder.data_path)


@pytest.fixture(scope="module")
def shades(tmp_path_factory):
    """Returns the folder of a dataset with three splits of several files."""
    folder = tmp_path_factory.mktemp("shades")
    write(folder, {name: map(example, numbers) for name, numbers in SPLITS.items()})
    return str(folder)


def find(folder, **settings):
    return find_encoded(DataSettings(dataset="shades", data_dir=str(folder), **settings))


def numbers_of(source, first=0):
    return [int(source.read(item)[0, 0, 0]) for item in source.items(first)]


@pytest.mark.parametrize("file_format", ["tfrecord", "parquet"])
def test_examples_are_read_in_order_from_any_one_on(tmp_path, file_format):
    path = write(tmp_path, file_format=file_format)
    assert len(list(path.glob(f"*.{file_format}-*"))) == 3
    source = find(tmp_path)
    assert source.size == 20 and numbers_of(source) == list(SPLITS["train"])
    items = list(source.items())
    for first in range(21):
        assert list(source.items(first)) == items[first:]
    assert [item.label for item in items[:4]] == [0, 1, 2, 0]
    assert source.read(items[7]).shape == (SIDE, SIDE, 3)


@pytest.mark.parametrize(
    ("split", "numbers", "held_out"),
    [
        ("train", SPLITS["train"], "test"),
        ("test", SPLITS["test"], "validation"),
        ("train[:75%]", range(15), "test"),
        ("train[13:15]+test[2:]", [13, 14, *range(102, 106)], "validation"),
        ("test+validation", [*SPLITS["test"], *SPLITS["validation"]], None),
        ("all", [number for numbers in SPLITS.values() for number in numbers], None),
    ],
)
def test_a_split_can_be_a_part_or_a_sum(shades, split, numbers, held_out):
    source, numbers = find(shades, split=split), sorted(numbers)
    assert (source.size, sorted(numbers_of(source))) == (len(numbers), numbers)
    assert numbers_of(source, 4) == numbers_of(source)[4:]
    assert source.held_out_split == held_out


@pytest.mark.parametrize("split", ["dev", "train[:x]", "train[:999]", "dev[:3]", "train["])
def test_other_splits_are_refused(shades, split):
    with pytest.raises(UserError) as caught:
        find(shades, split=split)
    assert str(caught.value) == (
        f"--split={split} is not a split of --dataset=shades — use one of test, train, validation, "
        "or a part such as train[:1000]"
    )


def test_classes_have_the_names_of_the_dataset(shades, tmp_path):
    settings = Config(dataset="shades", data_dir=shades, conditioning="acgan")
    assert find_data(settings).spec.class_names == NAMES and find_data(settings).spec.classes == 3
    assert find(shades).of_split("test").class_names == NAMES
    write(tmp_path, label=tfds.features.ClassLabel(num_classes=3))
    assert find(tmp_path).class_names == ("0", "1", "2")


def test_a_feature_that_is_no_class_is_no_label(tmp_path):
    write(tmp_path, label=tfds.features.Scalar(np.int64))
    source = find(tmp_path)
    assert source.class_names is None and numbers_of(source) == list(SPLITS["train"])
    assert {item.label for item in source.items()} == {0}


def test_the_held_out_split_has_the_form_of_the_training_data(shades, tmp_path, caplog):
    config = Config(
        dataset="shades",
        data_dir=shades,
        data_cache=str(tmp_path),
        image_size="4x6",
        dequantization=False,
    )
    with caplog.at_level("INFO"):
        data = find_data(config).open_held_out()
    assert (data.size, data.format.shape) == (6, (4, 6, 3))
    assert caplog.text.count("are cropped to") == 1


def test_sixteen_bits_are_kept(tmp_path):
    levels = np.random.default_rng(0).integers(0, 65536, [5, SIDE, SIDE, 1]).astype(np.uint16)
    image = tfds.features.Image(shape=(SIDE, SIDE, 1), dtype=np.uint16)
    write(tmp_path, {"train": [{"image": each, "label": 0} for each in levels]}, image=image)
    source = find(tmp_path)
    assert source.dtype == np.uint16
    found = [source.read(item) for item in source.items()]
    np.testing.assert_array_equal(found, levels)


def test_images_of_real_numbers_are_refused(tmp_path):
    image = tfds.features.Image(shape=(SIDE, SIDE, 1), dtype=np.float32)
    pixels = np.zeros([SIDE, SIDE, 1], np.float32)
    write(tmp_path, {"train": [{"image": pixels, "label": 0}]}, image=image, shards=1)
    with pytest.raises(UserError, match="=shades has no images of uint8 or uint16, but"):
        find(tmp_path)


def test_an_image_that_cannot_be_decoded_is_left_out_and_named(tmp_path, caplog):
    examples = list(map(example, range(6)))
    examples[4]["image"] = b"no picture"
    write(tmp_path, {"train": examples})
    source = find(tmp_path)
    items = list(source.items())
    with pytest.raises(Unreadable, match="it is not a complete JPEG"):
        source.read(items[4])
    np.testing.assert_array_equal(building.load(source).rows[:][:, 0, 0, 0], [0, 1, 2, 3, 5])
    assert "1 of 6 examples cannot be read and is left out: example 4 of train" in caplog.text


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


def cut_between_examples(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwrite(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("file_format", "damage", "message"),
    [
        ("tfrecord", cut, "cannot be read (truncated record"),
        (
            "tfrecord",
            cut_between_examples,
            "cannot be read (Input dataset was expected to contain 12",
        ),
        ("tfrecord", overwrite, "cannot be read (corrupted record"),
        ("tfrecord", empty, "cannot be read (Input dataset was expected to contain 12"),
        ("tfrecord", pathlib.Path.unlink, "cannot be read ("),
        ("array_record", pathlib.Path.exists, "cannot be read (`.as_dataset()` not implemented"),
        ("parquet", cut, "cannot be read ("),
        ("parquet", empty, "cannot be read ("),
    ],
)
def test_damage_ends_the_reading_with_the_name_of_the_folder(
    tmp_path, file_format, damage, message
):
    """All records have the same size."""
    path = write(tmp_path, {"train": [example(1)] * 12}, file_format=file_format)
    damage(path / f"shades-train.{file_format}-00001-of-00003")
    with pytest.raises(UserError) as caught:
        list(find(tmp_path).items())
    named = "" if damage == pathlib.Path.unlink else f": {path}"
    assert f"--dataset=shades{named} {message}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cache", ["on", "off"], indirect=True)
def test_examples_without_a_label_train_an_unconditional_run(tmp_path, cache):
    """A split of stl10 has only such examples."""
    examples = list(map(example, range(6)))
    examples[2]["label"] = examples[5]["label"] = NO_LABEL
    write(tmp_path, {"train": examples})
    settings = {
        **{"dataset": "shades", "data_dir": str(tmp_path), "data_cache": f"{tmp_path}/cache"},
        **{"batch_size": 6},
    }
    _, labels = open_data(Config(**settings)).read(6)
    assert sorted(labels.numpy()) == [-1, -1, 0, 0, 1, 1]
    with pytest.raises(UserError, match="2 of 6 examples have no label, which the run needs — use"):
        open_data(Config(**settings, conditioning="acgan"))


def test_a_label_without_a_class_is_refused(tmp_path):
    path = write(tmp_path, label=tfds.features.ClassLabel(num_classes=3)) / "features.json"
    path.write_text(path.read_text().replace('"numClasses": "3"', '"numClasses": "2"'))
    source = find(tmp_path)
    assert source.class_names == ("0", "1")
    with pytest.raises(UserError, match=r"=shades: example 2 of train: it has the label 2, but "):
        numbers_of(source)


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["on", "off"], indirect=True)
def test_batches_do_not_depend_on_replicas_hosts_or_restarts(shades, tmp_path, cache):
    def read(steps, first_step=0, hosts=1, replicas=1):
        config = Config(
            **{"dataset": "shades", "data_dir": shades, "data_cache": str(tmp_path)},
            **{"batch_size": 8, "random_flips": True},
        )
        data = open_data(config)
        contexts = [tf.distribute.InputContext(hosts, host, replicas) for host in range(hosts)]
        streams = [
            iter(replica_batches(data, context, batch_size=8, first_step=first_step))
            for context in contexts
        ]
        parts = [
            next(stream)
            for _ in range(steps)
            for stream in streams
            for _ in range(replicas // hosts)
        ]
        return [np.concatenate(values) for values in zip(*parts, strict=True)]

    whole = read(6)
    for hosts, replicas in ((1, 2), (1, 4), (2, 2), (2, 4), (4, 4)):
        for expected, found in zip(whole, read(6, 0, hosts, replicas), strict=True):
            np.testing.assert_array_equal(found, expected)
    for first in range(1, 6):
        for expected, found in zip(whole, read(6 - first, first), strict=True):
            np.testing.assert_array_equal(found, expected[8 * first :])


@pytest.mark.parametrize("cache", ["on", "off"], indirect=True)
def test_the_second_start_decodes_nothing(shades, tmp_path, monkeypatch, cache):
    config = Config(
        **{"dataset": "shades", "data_dir": shades, "data_cache": str(tmp_path)},
        **{"batch_size": 20, "dequantization": False, "conditioning": "acgan"},
    )
    first = open_data(config).read(20)
    monkeypatch.setattr(PreparedSource, "items", None)
    monkeypatch.setattr(PreparedSource, "read", None)
    for before, now in zip(first, open_data(config).read(20), strict=True):
        np.testing.assert_array_equal(now, before)


class Tints(tfds.core.GeneratorBasedBuilder):
    """A dataset that is generated in place of downloaded."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = pathlib.Path(__file__).parent  # the default searches for a package

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(SIDE, SIDE, 3)),
            "label": tfds.features.ClassLabel(names=NAMES),
        }
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(9), "test": self._generate_examples(5)}

    def _generate_examples(self, count):
        for number in range(count):
            yield number, example(number)


def test_a_dataset_is_prepared_when_it_is_opened(tmp_path, capsys):
    settings = {
        **{"dataset": "tints", "data_dir": str(tmp_path), "data_cache": f"{tmp_path}/cache"},
        **{"batch_size": 9, "download": True},
    }
    source = find_encoded(DataSettings(**{key: settings[key] for key in ("dataset", "data_dir")}))
    assert not source.is_prepared and source.held_out_split is None and source.class_names == NAMES
    with pytest.raises(UserError, match=r"=tints is not prepared: .*tints/1.0.0 does not exist"):
        source.identity()
    dataset = find_data(Config(**settings, conditioning="acgan"))
    assert dataset.open_held_out() is None
    assert dataset.open(batch_size=9).size == 9 and dataset.open_held_out().size == 5
    assert "its number of images is unknown" not in capsys.readouterr().err
    assert dataset.fingerprint() == find_data(Config(**settings)).fingerprint()
    source.prepare()  # another process may have prepared it
    assert (source.size, source.held_out_split) == (9, "test")
    with pytest.raises(UserError, match="--split=dev is not a split of --dataset=tints"):
        find_data(Config(**settings, split="dev"))


def test_an_image_that_is_cropped_is_named(tmp_path):
    examples = list(map(example, range(4)))
    examples[2]["image"] = np.zeros([SIDE, 2 * SIDE, 3], np.uint8)
    write(tmp_path, {"train": examples}, image=tfds.features.Image(shape=(None, None, 3)))
    source = find(tmp_path, image_size=SIDE, crop="none")
    with pytest.raises(UserError, match=r"=shades: example 2 of train: it has 4x8 pixels, and --"):
        building.load(source)


def test_the_identity_changes_with_the_examples(tmp_path):
    write(tmp_path)
    before = find(tmp_path).identity()
    assert find(tmp_path).identity() == before
    others = (
        *(find(tmp_path, split="train[:10]"), find(tmp_path, split="train[10:]")),
        *(find(tmp_path, image_size=2), find(tmp_path, image_size="4x2", crop="center")),
    )
    identities = [before, *(each.identity() for each in others)]
    tf.io.gfile.rmtree(str(tmp_path / "shades"))
    prepared.find_builder.cache_clear()
    write(tmp_path, {"train": map(example, range(1, 21))})
    identities.append(find(tmp_path).identity())
    assert all(identities.count(each) == 1 for each in identities)
