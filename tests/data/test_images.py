"""Folders of images, TFRecords and prepared datasets, undamaged and damaged."""

import io
import itertools
import pathlib

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from tests.helpers.records import write_records
from tests.helpers.runs import (
    find_data,
    held_in,
    open_data,
    train_tiny,
)
from wgan_gp.config import Config
from wgan_gp.data.feed import check_elements, replica_batches
from wgan_gp.data.loop_input import is_resident
from wgan_gp.data.sources import decode as decoding
from wgan_gp.errors import UserError

SIDE = 16
INFINITE = tf.data.INFINITE_CARDINALITY
PLAIN = {"dequantization": False, "image_size": SIDE}


def picture(number):
    """Returns an image of one color, a function of `number`, which JPEG preserves."""
    return np.full([SIDE, SIDE, 3], [number * 4 % 256, 128, 255 - number * 3 % 256], np.uint8)


def encoded(pixels, kind="PNG", **options):
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def write_record_file(path, images, label_key="label", image_key="image"):
    write_records(path, ({image_key: image, label_key: number % 3} for number, image in images))


@pytest.fixture
def folder(tmp_path):
    """A folder of 30 readable images of all formats in three classes, and of unreadable files."""
    for number in range(30):
        directory = tmp_path / "pictures" / "abc"[number % 3]
        directory.mkdir(parents=True, exist_ok=True)
        kind = ["PNG", "JPEG", "GIF"][number % 3]
        options = {"quality": 100} if kind == "JPEG" else {}
        name = f"{number:02}.{kind.lower()}"
        (directory / name).write_bytes(encoded(picture(number), kind, **options))
    top = tmp_path / "pictures"
    noise = np.random.default_rng(0).integers(0, 256, [64, 64, 3]).astype(np.uint8)
    jpeg = encoded(noise, "JPEG")
    (top / "a" / "torn.jpg").write_bytes(jpeg[: len(jpeg) // 2])
    (top / "a" / "text.png").write_bytes(b"not an image")
    (top / "b" / "empty.png").write_bytes(b"")
    (top / "b" / "notes.txt").write_text("ignored")
    (top / ".hidden").mkdir()
    (top / ".hidden" / "x.png").write_bytes(encoded(picture(0)))
    return str(top)


def numbers_of(images):
    """Returns the numbers of images of `picture`, from their red and blue values."""
    levels = (np.asarray(images, np.float64) + 1) * 127.5
    red, blue = levels[..., 0].mean((1, 2)), levels[..., 2].mean((1, 2))
    expected = np.array([[picture(n)[0, 0, 0], picture(n)[0, 0, 2]] for n in range(60)])
    far = np.abs(expected[None] - np.stack([red, blue], 1)[:, None]).max(-1)
    assert far.min(axis=1).max() < 1.5
    return far.argmin(axis=1)


def epoch(data, batch_size, count):
    batches = iter(
        replica_batches(data, tf.distribute.InputContext(), batch_size=batch_size, first_step=0)
    )
    images, labels = zip(*(next(batches) for _ in range(count)), strict=True)
    return np.concatenate(images), np.concatenate(labels)


BAD = {"a/torn.jpg", "a/text.png", "b/empty.png"}


@pytest.mark.parametrize("cache", ["on", "off"], indirect=True)
def test_unreadable_images_are_left_out(folder, cache, capsys):
    config = Config(dataset="image_folder", data_dir=folder, batch_size=10, **PLAIN)
    data = open_data(config)
    assert data.size == 30 and data.held == (cache == "on")
    said = capsys.readouterr().err
    assert "3 of 33 examples cannot be read and are left out: a/text.png (it is not a" in said
    assert "), a/torn.jpg (" in said and said.endswith("), b/empty.png (it is empty)\n")
    images, labels = epoch(data, 10, 3)
    numbers = numbers_of(images)
    assert sorted(numbers) == list(range(30))
    np.testing.assert_array_equal(labels, numbers % 3)


@pytest.mark.parametrize("channels", [1, 3])
def test_cmyk_images_keep_their_colors(tmp_path, channels):
    cmyk = PIL.Image.new("CMYK", (SIDE, SIDE), (0, 200, 100, 20))
    cmyk.save(tmp_path / "ink.jpg", quality=100)
    settings = {"data_dir": str(tmp_path), "batch_size": 1, "image_channels": channels, **PLAIN}
    images, _ = open_data(Config(dataset="image_folder", **settings)).read(1)
    expected = np.asarray(cmyk.convert("RGB").convert("L" if channels == 1 else "RGB"))[0, 0]
    expected = expected / 127.5 - 1
    np.testing.assert_allclose(images[0, 4, 4], expected, atol=0.05)


@pytest.mark.parametrize("dataset", ["image_folder", "tfrecord"])
def test_an_unreadable_location_is_refused(dataset):
    with pytest.raises(UserError, match="--data_dir=s3://a/b "):
        find_data(Config(dataset=dataset, data_dir="s3://a/b"))


def test_large_images_are_reduced_by_averaging(tmp_path):
    """Stripes one pixel wide become gray; subsampling would keep them."""
    for height in (34, 70, 140, 256, 700):
        stripes = np.zeros([height, height + 44, 3], np.uint8)
        stripes[:, ::2] = 255
        (tmp_path / f"{height}.png").write_bytes(encoded(stripes))
        (tmp_path / f"{height}.jpg").write_bytes(encoded(stripes, "JPEG", quality=95))
    config = Config(dataset="image_folder", data_dir=str(tmp_path), batch_size=10, **PLAIN)
    images, _ = open_data(config).read(10)
    assert images.shape == (10, SIDE, SIDE, 3) and np.abs(images).max() < 0.1


@pytest.mark.parametrize(
    ("files", "settings", "message"),
    [
        (None, {}, "--data_dir=.* is not a folder — give a folder"),
        ([], {}, "--data_dir=.* contains no images — add JPEG, PNG, GIF"),
        (
            ["x.png"],
            {"batch_size": 8},
            "--batch_size=8 is larger than .* 1 example — use at most 1",
        ),
        (
            ["x.png"],
            {"conditioning": "acgan"},
            "--conditioning=acgan needs labels, .* put the images",
        ),
    ],
)
def test_folders_that_cannot_be_trained_on_are_refused(tmp_path, files, settings, message):
    path = tmp_path / "folder"
    if files is not None:
        path.mkdir()
        for name in files:
            (path / name).write_bytes(encoded(picture(1)))
    config = Config(dataset="image_folder", data_dir=str(path), **settings)
    with pytest.raises(UserError, match=message):
        open_data(config)


@pytest.mark.parametrize("cache", ["on", "off"], indirect=True)
def test_a_folder_without_readable_images_is_refused(tmp_path, cache):
    (tmp_path / "x.png").write_bytes(b"no")
    settings = {"data_dir": str(tmp_path), "image_size": 8}
    config = Config(dataset="image_folder", **settings)
    with pytest.raises(UserError, match="contains no image that can be read"):
        open_data(config)


@pytest.fixture
def shards(tmp_path):
    """60 images in four files, the second of which has a damaged record."""
    for shard in range(4):
        images = [(number, encoded(picture(number))) for number in range(shard, 60, 4)]
        write_record_file(tmp_path / f"images-{shard}.tfrecord", images)
    path = tmp_path / "images-1.tfrecord"
    content = bytearray(path.read_bytes())
    place = content.index(encoded(picture(13))) + 20
    content[place] ^= 1
    path.write_bytes(content)
    return f"{tmp_path}/images-*.tfrecord"


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["on", "off"], indirect=True)
def test_the_files_after_a_damaged_one_are_read(shards, cache, capfd):
    config = Config(dataset="tfrecord", data_dir=shards, batch_size=48, **PLAIN)
    data = open_data(config)
    assert data.size == 48
    said = capfd.readouterr().err
    assert said.count("warning: ") == 1 and "images-1.tfrecord is damaged (corrupted rec" in said
    images, labels = epoch(data, 48, 2)
    orders = []
    for part in (slice(0, 48), slice(48, 96)):
        numbers = numbers_of(images[part])
        assert sorted(numbers) == sorted(set(range(60)) - set(range(13, 60, 4)))
        np.testing.assert_array_equal(labels[part], numbers % 3)
        orders.append(numbers)
    assert (orders[0] != orders[1]).any()


def test_the_feature_names_of_imagenet_are_supported(tmp_path):
    images = [(number, encoded(picture(number))) for number in range(6)]
    path = tmp_path / "x.tfrecord"
    write_record_file(path, images, label_key="image/class/label", image_key="image/encoded")
    config = Config(dataset="tfrecord", data_dir=str(path), batch_size=6, **PLAIN)
    images, labels = open_data(config).read(6)
    np.testing.assert_array_equal(labels, numbers_of(images) % 3)


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        (None, {}, "matches no files — give a folder, or a pattern"),
        ("text", {}, "contains no tf.train.Example — give TFRecord"),
        ({"label_key": "name"}, {"conditioning": "acgan"}, "needs labels, .* as the feature label"),
    ],
)
def test_records_that_cannot_be_trained_on_are_refused(tmp_path, content, settings, message):
    path = tmp_path / "x.tfrecord"
    if content == "text":
        path.write_text("a text that is long enough to be taken for a record")
    elif content is not None:
        write_record_file(path, [(2, encoded(picture(2)))], **content)
    config = Config(dataset="tfrecord", data_dir=str(path), batch_size=1, **settings)
    with pytest.raises(UserError, match=message):
        open_data(config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "cache"),
    [
        ("folder", "off"),
        ("mnist", "on"),  # test_data.py reads digits alike
        ("records", "off"),
        ("mnist", "off"),
    ],
    indirect=["cache"],
)
def test_batches_do_not_depend_on_replicas_hosts_or_restarts(kind, cache, folder, shards, prepared):
    data = {
        "folder": {"dataset": "image_folder", "data_dir": folder},
        "records": {"dataset": "tfrecord", "data_dir": shards},
        "mnist": {"dataset": "mnist", "data_dir": prepared},
    }[kind]
    config = Config(batch_size=8, image_size=SIDE, random_flips=True, **data)
    data = open_data(config)

    def read(steps, first_step=0, hosts=1, replicas=1):
        contexts = [tf.distribute.InputContext(hosts, host, replicas) for host in range(hosts)]
        parts = [
            replica_batches(data, context, batch_size=8, first_step=first_step)
            for context in contexts
        ]
        # Otherwise several machines would lose the static shapes.
        assert hosts == 1 or {int(part.cardinality()) for part in parts} == {INFINITE}
        streams = [iter(part) for part in parts]
        local = replicas // hosts
        return np.stack(
            [
                np.concatenate([next(stream)[0] for stream in streams for _ in range(local)])
                for _ in range(steps)
            ]
        )

    np.testing.assert_array_equal(read(12, replicas=4), read(12))
    whole = read(12)
    np.testing.assert_array_equal(read(12, hosts=2, replicas=4), whole)
    np.testing.assert_array_equal(read(3, first_step=9, hosts=2, replicas=4), whole[9:])
    other = open_data(Config(**{**config.to_dict(), "seed": 1}))
    assert (other.read(8)[0].numpy() != whole[0]).any()


@pytest.mark.parametrize("cache", ["on", "off"], indirect=True)
def test_each_epoch_has_every_example_once(prepared, cache):
    config = Config(dataset="cifar10", data_dir=prepared, batch_size=12, dequantization=False)
    images, _ = epoch(open_data(config), 12, 10)
    first, second = ([image.tobytes() for image in part] for part in np.split(images, 2))
    assert len(set(first)) == 60 and set(first) == set(second) and first != second


@pytest.mark.parametrize("cache", ["on", "off"], indirect=True)
def test_an_unknown_split_is_refused(prepared, cache):
    with pytest.raises(
        UserError, match="=dev is not a split of --dataset=mnist — use one of test, train"
    ):
        open_data(Config(dataset="mnist", data_dir=prepared, split="dev"))


@pytest.mark.slow
@held_in("off")
def test_a_conditional_run_trains_on_a_folder(folder, tmp_path):
    run, writer = train_tiny(
        tmp_path / "run",
        dataset="image_folder",
        data_dir=folder,
        conditioning="projection",
        image_size=SIDE,
        train_steps=2,
        steps_per_loop=2,
        sample_interval=0,
    )
    assert find_data(run.config).spec.classes == 3
    ((_, logged),) = writer.summaries
    assert all(np.isfinite(value) for value in logged.values())


def test_elements_that_a_tpu_does_not_support_are_refused():
    with pytest.raises(UserError, match="yields uint8, which a TPU does not support"):
        check_elements((tf.TensorSpec([2, 8], tf.uint8),))
    with pytest.raises(UserError, match=r"without a fixed shape: TensorSpec\(shape=\(None, 8\)"):
        check_elements((tf.TensorSpec([None, 8], tf.float32),))


def test_records_with_an_unreadable_first_image_are_read(tmp_path, capfd):
    path = tmp_path / "x.tfrecord"
    write_record_file(path, [(0, b"no picture"), (1, encoded(picture(1)))])
    config = Config(dataset="tfrecord", data_dir=str(path), batch_size=1)
    assert find_data(config).spec.example_shape == (SIDE, SIDE, 3)
    assert open_data(config).size == 1
    assert "record 0 of" in capfd.readouterr().err


class Squares(tfds.core.GeneratorBasedBuilder):
    """A dataset that is generated instead of downloaded."""

    CHANNELS = 3
    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = pathlib.Path(__file__).parent  # the default searches for a package

    def _info(self):
        image = tfds.features.Image(shape=(SIDE, SIDE, self.CHANNELS))
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict({"image": image}))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for number in range(30):
            yield number, {"image": picture(number)}


class Transparent(Squares):
    """A dataset of images with an alpha channel."""

    CHANNELS = 4

    def _generate_examples(self):
        yield 0, {"image": np.full([SIDE, SIDE, 4], 100, np.uint8)}


def test_alpha_channels_are_dropped(tmp_path):
    settings = {"data_dir": str(tmp_path), "download": True, "batch_size": 1, **PLAIN}
    images, _ = open_data(Config(dataset="transparent", **settings)).read(1)
    assert images.shape == (1, SIDE, SIDE, 3)


def test_download_prepares_a_dataset(tmp_path):
    settings = {"dataset": "squares", "data_dir": str(tmp_path), "batch_size": 30, **PLAIN}
    with pytest.raises(UserError, match=r"is not prepared: .* — add --download on"):
        open_data(Config(**settings))
    data = open_data(Config(download=True, **settings))
    assert sorted(numbers_of(data.read(30)[0])) == list(range(30))


def test_an_incomplete_dataset_is_refused(tmp_path, caplog):
    (tmp_path / "squares" / "1.0.0").mkdir(parents=True)
    config = Config(dataset="squares", data_dir=str(tmp_path), download=True)
    with pytest.raises(UserError, match=r"squares/1.0.0 contains an incomplete dataset — del"):
        open_data(config)
    assert not caplog.records


def test_a_failed_download_is_one_line(tmp_path, monkeypatch):
    def fail(self, **given):
        raise ConnectionError("no network\nat all")

    monkeypatch.setattr(Squares, "download_and_prepare", fail)
    config = Config(dataset="squares", data_dir=f"{tmp_path}/none", download=True)
    with pytest.raises(UserError, match=r"ConnectionError: no network\) — check the network, or"):
        open_data(config)


@pytest.mark.parametrize(
    ("kind", "cache"),
    [
        *itertools.product(["folder", "shards", "prepared"], ["device", "off"]),
        ("folder", "on"),
    ],
    indirect=["cache"],
)
def test_properties_are_known_without_reading(kind, cache, request, monkeypatch, capsys):
    """The number of images includes the unreadable ones."""
    source = request.getfixturevalue(kind)
    dataset = {"folder": "image_folder", "shards": "tfrecord", "prepared": "cifar10"}[kind]
    settings = {"dataset": dataset, "data_dir": source}
    dataset = find_data(Config(**settings))
    opened = dataset.open(batch_size=1)
    capsys.readouterr()
    monkeypatch.setattr(decoding, "decode", None)
    unread = dataset.open_unread(batch_size=1)
    assert unread.size == {"folder": 33}.get(kind, opened.size)
    assert opened.size == {"folder": 30}.get(kind, unread.size)
    assert (unread.format.shape, unread.format.dtype) == (opened.format.shape, tf.uint8)
    assert unread.held == opened.held == (cache != "off")
    assert is_resident(unread) == is_resident(opened) == (cache == "device")
    for data in (unread, opened) if unread.held else ():
        examples, labels = data.stored
        assert examples.shape == [data.size, *dataset.spec.example_shape]
        assert labels.shape == [data.size]
        assert (examples.dtype, labels.dtype) == (tf.uint8, tf.int32)
    assert "not prepared" not in capsys.readouterr().err
    with pytest.raises(UserError, match=f"--batch_size=99 is larger .* has {unread.size} examples"):
        dataset.open_unread(batch_size=99)


def test_an_unprepared_dataset_is_assumed_to_fit(tmp_path, capsys):
    """Compiling needs no data."""
    dataset = find_data(Config(dataset="mnist", data_dir=str(tmp_path)))
    unread = dataset.open_unread(batch_size=1)
    assert is_resident(unread)
    # A TPU pads the 784 levels of an image to 896.
    assert unread.size == 2**30 // 896
    found = capsys.readouterr().err
    assert "=mnist is not prepared, so its number of images is unknown: assuming 1,198,372" in found


def test_the_split_of_a_prepared_dataset_is_checked_first(prepared):
    with pytest.raises(UserError, match="--split=dev is not a split of --dataset=cifar10"):
        find_data(Config(dataset="cifar10", data_dir=prepared, split="dev"))
