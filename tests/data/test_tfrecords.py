"""TFRecord files of others: compressed, with other names, with raw pixels, and damaged."""

import io
import json
import pathlib
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tests.helpers.records import write_records
from tests.helpers.runs import find_data, open_data
from wgan_gp.config import Config, DataSettings
from wgan_gp.data.feed import replica_batches
from wgan_gp.data.sources import records
from wgan_gp.data.sources.encoded import Unreadable
from wgan_gp.data.sources.records import find_encoded
from wgan_gp.errors import UserError

SIDE = 8
COUNT = 12
RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, [COUNT, SIDE, SIDE, 3]).astype(np.uint8)


def png(pixels):
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def examples(numbers=range(COUNT), image="image", label="label"):
    return [{image: png(PIXELS[i]), label: i % 3} for i in numbers]


def source(path, **settings):
    given = DataSettings(dataset="tfrecord", data_dir=str(path), **settings)
    return find_encoded(given, "--data_dir")


def read(found):
    """Returns the arrays and labels of all readable examples of a source."""
    arrays, labels = [], []
    for item in found.items():
        try:
            example = found.read(item)
        except Unreadable:
            continue
        arrays.append(example)
        labels.append(item.label)
    return np.stack(arrays), labels


# Files


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_all_compressions_are_read(tmp_path, compression):
    write_records(tmp_path / "a.tfrecord", examples(), compression)
    found = source(tmp_path / "a.tfrecord")
    arrays, labels = read(found)
    np.testing.assert_array_equal(arrays, PIXELS)
    assert labels == [i % 3 for i in range(COUNT)]
    assert (found.size, found.class_names) == (COUNT, ("0", "1", "2"))
    assert [item.label for item in found.items(first=7)] == labels[7:]


@pytest.mark.parametrize(
    "value",
    ["{0}", "{0}/*.tfrecord*", "{0}/*-00000*, {0}/*-00001-of*"],
)
def test_files_are_found_by_each_kind_of_name(tmp_path, value):
    write_records(tmp_path / "x.tfrecord-00000-of-00002", examples(range(7)))
    write_records(tmp_path / "x.tfrecord-00001-of-00002", examples(range(7, COUNT)))
    found = source(value.format(tmp_path))
    np.testing.assert_array_equal(read(found)[0], PIXELS)
    names = [item.name for item in found.items()]
    assert names[6] == f"record 6 of {tmp_path}/x.tfrecord-00000-of-00002"
    assert names[7] == f"record 0 of {tmp_path}/x.tfrecord-00001-of-00002"
    for first in (6, 7, 8, COUNT):
        assert [item.name for item in found.items(first)] == names[first:]


def test_a_path_that_exists_is_no_pattern(tmp_path):
    write_records(tmp_path / "a,[b]@2", examples())
    assert source(tmp_path / "a,[b]@2").size == COUNT


def test_a_bucket_is_read(tmp_path):
    folder = f"ram://{tmp_path.name}"
    tf.io.gfile.makedirs(folder)
    for name, compression in (("a", ""), ("b", "GZIP"), ("c", "ZLIB")):
        local = write_records(tmp_path / name, examples(), compression)
        tf.io.gfile.copy(local, f"{folder}/{name}")
    found = source(folder)
    np.testing.assert_array_equal(read(found)[0], np.concatenate([PIXELS] * 3))
    assert found.size == 3 * COUNT and found.fingerprint()["sizes"] is None


def test_other_files_of_a_folder_are_named(tmp_path, capsys):
    write_records(tmp_path / "a.tfrecord", examples())
    (tmp_path / "README.txt").write_text("these are the records of a dataset, see the homepage")
    (tmp_path / "_SUCCESS").write_text("")
    assert source(tmp_path).size == COUNT
    assert (
        f"files without readable TFRecords are skipped: {tmp_path}/README.txt\n"
        in capsys.readouterr().err
    )


# Features


def test_the_only_feature_of_bytes_is_the_picture(tmp_path):
    example = {"picture": png(PIXELS[0]), "kind": b"cat", "n": 1}
    path = write_records(tmp_path / "other", [example])
    says = r"no image \(its features: kind, n, picture\).*name its feature image"
    with pytest.raises(UserError, match=says):
        source(path)
    path = write_records(tmp_path / "one", [{"jpeg": png(PIXELS[0])}])
    np.testing.assert_array_equal(read(source(path))[0], PIXELS[:1])


def test_that_the_first_example_has_no_label_is_noted(tmp_path, capsys):
    rows = [{"image": png(PIXELS[0])}, *examples(range(1, 6))]
    found = source(write_records(tmp_path / "x", rows))
    assert found.class_names is None and found.size == 6
    assert "some examples have no label: label is not used as classes" in capsys.readouterr().err


def test_the_names_of_imagenet_are_known(tmp_path):
    """Its labels are 1 to 1000, and its files contain the height and the width."""
    rows = [
        {
            "image/encoded": png(PIXELS[i]),
            "image/height": SIDE,
            "image/width": SIDE,
            "image/class/label": i + 1,
            "image/class/text": b"kind",
            "image/format": b"JPEG",
        }
        for i in range(3)
    ]
    found = source(write_records(tmp_path / "train-00000-of-01024", rows))
    np.testing.assert_array_equal(read(found)[0], PIXELS[:3])
    assert found.class_names == ("1", "2", "3")


RAW = {
    "sides": lambda x: {"image_raw": x.tobytes(), "height": SIDE, "width": SIDE},
    "depth": lambda x: {"image": x.tobytes(), "rows": SIDE, "cols": SIDE, "depth": 3},
    "StyleGAN": lambda x: {"data": x.transpose(2, 0, 1).tobytes(), "shape": [3, SIDE, SIDE]},
    "shape": lambda x: {"image": x.tobytes(), "shape": [SIDE, SIDE, 3]},
}


@pytest.mark.parametrize("kind", RAW)
def test_raw_pixels_are_read(tmp_path, kind):
    path = write_records(tmp_path / "a.tfrecord", map(RAW[kind], PIXELS))
    np.testing.assert_array_equal(read(source(path))[0], PIXELS)
    small = read(source(path, image_size=4, image_channels=1))[0]
    encoded = write_records(tmp_path / "b.tfrecord", examples())
    np.testing.assert_array_equal(small, read(source(encoded, image_size=4, image_channels=1))[0])


@pytest.mark.parametrize(
    "shape", [{"height": SIDE, "width": SIDE, "depth": 1}, {"shape": [SIDE] * 2}]
)
def test_raw_gray_pixels_of_16_bits_are_read(tmp_path, shape):
    deep = PIXELS[..., 0].astype("<u2") * 257
    path = write_records(tmp_path / "a", [{"image": x.tobytes(), **shape} for x in deep])
    found = source(path, image_channels=1)
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(read(found)[0], deep[..., None])


def test_raw_pixels_of_another_size_are_unreadable(tmp_path):
    rows = [RAW["sides"](x) for x in PIXELS]
    rows[4]["image_raw"] = rows[4]["image_raw"][:-1]
    found = source(write_records(tmp_path / "a", rows))
    np.testing.assert_array_equal(read(found)[0], np.delete(PIXELS, 4, axis=0))


def test_encoded_pictures_may_have_as_many_bytes_as_pixels(tmp_path):
    contents = [png(x) for x in PIXELS]
    rows = [{"image": each, "height": 1, "width": len(contents[0])} for each in contents]
    np.testing.assert_array_equal(read(source(write_records(tmp_path / "a", rows)))[0], PIXELS)


# Labels


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([1, 2, 7], ("1", "2", "7")),
        ([10, 9, -1], ("-1", "9", "10")),
        ([b"dog", b"cat", b"dog"], ("cat", "dog")),
        ([2.0, 3.0, 2.0], ("2", "3")),
        ([[0, 0, 1], [1, 0, 0], [0, 0, 1]], ("0", "2")),
        ([2**40, 5, 5], ("5", str(2**40))),
    ],
)
@pytest.mark.parametrize("files", [1, 3])
def test_labels_of_any_kind_become_classes(tmp_path, values, names, files):
    rows = [{"image": png(PIXELS[i]), "label": values[i]} for i in range(3)]
    for number in range(files):
        write_records(tmp_path / str(number), rows[number::files])
    found = source(tmp_path)
    assert found.class_names == names
    wanted = [max(v.index(1), 0) if isinstance(v, list) else v for v in values]
    named = [name.decode() if isinstance(name, bytes) else str(int(name)) for name in wanted]
    assert [names[label] for label in read(found)[1]] == named


def test_files_without_labels_have_no_classes(tmp_path):
    found = source(write_records(tmp_path / "a", [{"image": png(x)} for x in PIXELS]))
    assert found.class_names is None and set(read(found)[1]) == {0}


def test_a_record_of_something_else_adds_no_class(tmp_path):
    with tf.io.TFRecordWriter(f"{tmp_path}/b") as writer:
        writer.write(b"\xff" * 9)
    write_records(tmp_path / "a", examples())
    found = source(tmp_path)
    assert found.class_names == ("0", "1", "2") and found.size == COUNT + 1
    assert len(read(found)[1]) == COUNT


# Damage


def flip(content):
    content[content.index(png(PIXELS[5])) + 20] ^= 1
    return content


DAMAGE = {
    "flipped bit": (flip, 5),
    "zeros at the end": (lambda x: x + bytes(10**5), COUNT),
    "cut": (lambda x: x[:-30], COUNT - 1),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("cache", ["device", "off"], indirect=True)
def test_a_damaged_file_ends_with_its_readable_records(tmp_path, damage, cache, capfd):
    change, count = DAMAGE[damage]
    path = pathlib.Path(write_records(tmp_path / "a.tfrecord", examples()))
    path.write_bytes(change(bytearray(path.read_bytes())))
    write_records(tmp_path / "b.tfrecord", examples([0]))
    kept = [*range(count), 0]
    found = source(tmp_path)
    arrays, labels = read(found)
    np.testing.assert_array_equal(arrays, PIXELS[kept])
    assert labels == [number % 3 for number in kept] and found.size == len(kept)
    assert list(found.items())[count].name == f"record 0 of {tmp_path}/b.tfrecord"
    (line,) = capfd.readouterr().err.splitlines()
    assert f"{path} is damaged" in line and f": only its first {count} records are read" in line
    settings = {"data_dir": str(tmp_path)}
    for _ in range(2):
        assert open_data(Config(dataset="tfrecord", batch_size=1, **settings)).size == len(kept)
    assert capfd.readouterr().err.count("is damaged") == 1  # the second start decodes nothing


def test_a_file_without_a_readable_record_is_skipped(tmp_path, capsys):
    path = pathlib.Path(write_records(tmp_path / "a", examples()))
    path.write_bytes(b"\0" * 8 + path.read_bytes()[8:])
    write_records(tmp_path / "b", examples([0]))
    assert source(tmp_path).size == 1
    assert f"without readable TFRecords are skipped: {path}\n" in capsys.readouterr().err


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_files_are_read_up_to_damage(tmp_path, compression, capsys):
    pixels = RANDOM.integers(0, 256, [300, SIDE, SIDE, 3]).astype(np.uint8)
    rows = [{"image": png(x), "label": 1} for x in pixels]
    path = pathlib.Path(write_records(tmp_path / "a", rows, compression))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = source(path)
    arrays, _ = read(found)
    assert 20 < len(arrays) == found.size < len(rows)
    np.testing.assert_array_equal(arrays, pixels[: len(arrays)])
    assert f"only its first {len(arrays)} records" in capsys.readouterr().err


def test_records_are_read_without_the_runtime_of_tensorflow(tmp_path):
    """Otherwise --cpu_replicas could not be set up afterwards."""
    path = write_records(tmp_path / "a", examples())
    program = f"""if True:
        import tensorflow as tf
        from wgan_gp.config import DataSettings
        from wgan_gp.data.sources.records import find_encoded
        assert find_encoded(DataSettings(dataset="tfrecord", data_dir={path!r})).size == {COUNT}
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
        )
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# Stores and the order


def test_the_second_start_reads_no_labels(tmp_path, monkeypatch, capfd):
    write_records(tmp_path / "a", examples())
    for compression in ("GZIP", "ZLIB"):
        write_records(tmp_path / compression, examples(), compression)
    for conditioning in ("none", "projection"):
        config = Config(
            dataset="tfrecord", data_dir=str(tmp_path), batch_size=4, conditioning=conditioning
        )
        dataset = find_data(config)
        assert dataset.label_count == 3 and dataset.open_unread(batch_size=4).size == 3 * COUNT
        data = dataset.open(batch_size=4)
        assert data.size == 3 * COUNT and sorted(data.labels) == sorted([0, 1, 2] * COUNT)
        monkeypatch.setattr(records, "_scan", None)
    assert capfd.readouterr().err.count("decoding --data_dir") == 1


def test_another_time_size_or_flag_makes_another_store(tmp_path):
    path = write_records(tmp_path / "a", examples())
    found = [
        json.dumps(source(path, **settings).identity())
        for settings in ({}, {"image_size": 4}, {"image_size": SIDE})
    ]
    assert found[0] == found[2] != found[1]
    write_records(path, examples())
    assert json.dumps(source(path).identity()) not in found


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["device", "off"], indirect=True)
def test_each_epoch_has_every_record_once_from_any_position(tmp_path, cache):
    for number in range(3):
        write_records(tmp_path / str(number), examples(range(number, COUNT, 3)))
    config = Config(dataset="tfrecord", data_dir=str(tmp_path), batch_size=4)
    data = open_data(Config(**{**config.to_dict(), "dequantization": False}))

    def order(steps, first_step=0, hosts=1, replicas=1):
        contexts = [tf.distribute.InputContext(hosts, host, replicas) for host in range(hosts)]
        streams = [
            iter(replica_batches(data, context, batch_size=4, first_step=first_step))
            for context in contexts
        ]
        local = replicas // hosts
        images = [
            next(stream)[0].numpy()
            for _ in range(steps)
            for stream in streams
            for _ in range(local)
        ]
        levels = np.rint((np.concatenate(images) + 1) * 127.5).astype(np.uint8)
        return [PIXELS.tolist().index(image.tolist()) for image in levels]

    whole = order(9)
    epochs = np.split(np.array(whole), 3)
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    for first in range(9):
        assert order(9 - first, first) == whole[4 * first :]
    for hosts, replicas in ((1, 2), (1, 4), (2, 2), (2, 4), (4, 4)):
        assert order(9, 0, hosts, replicas) == whole
    assert order(4, 5, 2, 4) == whole[20:]
