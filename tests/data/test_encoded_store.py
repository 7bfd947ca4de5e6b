"""Stores of pictures that no disk holds decoded: encoded as PNG, or else as JPEG."""

import dataclasses
import itertools
import json
import logging
import os
import pathlib
import re
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.sources import NumberedSource
from wgan_gp.config import DataSettings, DeviceSettings
from wgan_gp.data.datasets import find_dataset
from wgan_gp.data.feed.pipeline import replica_batches
from wgan_gp.data.feed.pipeline_errors import user_error_of
from wgan_gp.data.store import building, cache, lock, opening, store
from wgan_gp.data.store import encoding as encodings
from wgan_gp.errors import UserError

SIDE, COUNT = 48, 50
LOCAL = DeviceSettings()
REMOTE = DeviceSettings(tpu="grpc://10.0.0.2:8470")


class Pictures(NumberedSource):
    """Pictures of large steps, of which a PNG is small, or of grain, of which a JPEG is smaller."""

    origin = "--data_dir=photos"
    size = COUNT

    def __init__(self, *, grain=False, channels=3, dtype=np.uint8, bad=()):
        super().__init__(bad)
        self.shape, self.dtype = (SIDE, SIDE, channels), np.dtype(dtype)
        self.grain = grain

    def identity(self):
        return {"grain": self.grain}

    def picture(self, number):
        most = np.iinfo(self.dtype).max
        y, x, c = np.indices(self.shape)
        if self.grain:
            grain = np.random.default_rng(number).random(self.shape) / 32
            levels = (0.48 + 0.48 * np.sin((y + c) / 9 + x / 15 + number) + grain) * most
        else:
            levels = (0.5 + 0.5 * np.sin((y // 4 + c) / 3 + x // 8 + number)) * most
        return levels.astype(self.dtype)

    @property
    def bytes(self):
        """The size of all decoded pictures."""
        return self.size * int(np.prod(self.shape)) * self.dtype.itemsize


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch):
    monkeypatch.setattr(building, "SHARD_BYTES", 10 * SIDE * SIDE * 3)
    monkeypatch.setattr(lock, "_SETTLING", 0.01)


@pytest.fixture
def set_free(monkeypatch):
    """Sets the bytes that a store may use on each disk."""
    usage = shutil.disk_usage("/")

    def set_free(count):
        free = building._RESERVED + int(count)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))

    return set_free


@pytest.fixture
def build_as(tmp_path, set_free):
    """Returns the store of a source in `tmp_path`, decoded or as PNG."""

    def build_as(encoding, source=None):
        source = source or Pictures()
        set_free(source.bytes - 1 if encoding else source.bytes)
        built = cache.cached(source, str(tmp_path))
        assert built.record.encoding == encoding
        return built

    return build_as


def decoded(source):
    return np.stack([source.read(index).array for index in range(source.size)])


def read_batches(data, steps=20, first_step=3, hosts=1, host=0):
    context = tf.distribute.InputContext(hosts, host, 2 * hosts)
    batches = iter(replica_batches(data, context, batch_size=8, first_step=first_step))
    return [[each.numpy() for each in next(batches)] for _ in range(steps)]


def open_streamed(source, data_cache, devices=LOCAL):
    config = DataSettings(cache="off", data_cache=str(data_cache), random_flips=True)
    return opening.SourceReader(source).open(config, classes=0, devices=devices)


def assert_equal_batches(found, expected):
    for batch, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(batch[0], other[0])
        np.testing.assert_array_equal(batch[1], other[1])


@pytest.mark.parametrize(
    ("grain", "room", "encoding", "line"),
    [
        (False, 1.0, "", r"346 KB in .*/s, 67.5 MB free"),
        (
            True,
            0.99,
            "png",
            r"346 KB decoded do not fit in .*/s \(67.5 MB free\): keeping them as PNG",
        ),
        (
            True,
            0.7,
            "jpeg",
            r"keeping them as JPEG of quality 95, which loses detail, about 9... KB",
        ),
    ],
)
def test_the_first_form_that_fits_is_kept(tmp_path, set_free, caplog, grain, room, encoding, line):
    caplog.set_level(logging.INFO)
    source = Pictures(grain=grain)
    set_free(room * source.bytes)
    built = building.build(source, f"{tmp_path}/s", ("png", "jpeg"))
    assert built.record.encoding == encoding
    (message,) = caplog.messages
    assert re.search(f"decoding --data_dir=photos: .*{line}", message)
    if encoding:
        used = built.rows.contents[:]
        estimated = COUNT * encodings.estimated_bytes(decoded(source), encoding)
        assert 1.19 < estimated / sum(map(len, used)) < 1.21
        assert building.size_text(estimated) in message


def test_a_full_disk_is_the_error_of_decoded_pictures(tmp_path, set_free):
    set_free(1000)
    message = r"decoding --data_dir=photos needs 346 KB in .* free — free space"
    with pytest.raises(UserError, match=message):
        building.build(Pictures(), f"{tmp_path}/s", ("png", "jpeg"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("channels", "dtype"), [(2, np.uint8), (4, np.uint8), (3, np.int16), (4, np.uint16)]
)
def test_other_examples_are_not_encoded(tmp_path, set_free, channels, dtype):
    source = Pictures(channels=channels, dtype=dtype)
    set_free(source.bytes - 1)
    with pytest.raises(UserError, match="photos needs"):
        building.build(source, f"{tmp_path}/s", ("png", "jpeg"))


def test_16_bits_are_never_a_jpeg(tmp_path, set_free):
    source = Pictures(grain=True, dtype=np.uint16)
    set_free(source.bytes - 1)
    with pytest.raises(UserError, match="photos needs"):
        building.build(source, f"{tmp_path}/s", ("png", "jpeg"))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 3])
def test_png_is_exact(build_as, channels, dtype):
    source = Pictures(channels=channels, dtype=dtype, bad=[7])
    built = build_as("png", source)
    source.bad = ()
    expected = np.delete(decoded(source), 7, axis=0)
    loaded = built.load()
    assert loaded.dtype == dtype
    np.testing.assert_array_equal(loaded, expected)
    indices = np.array([48, 3, 11, 3])
    examples, labels = built[indices]
    np.testing.assert_array_equal(examples, expected[indices])
    assert labels.tolist() == [1, 1, 0, 1]
    np.testing.assert_array_equal(built[8:23][0], expected[8:23])
    assert len(built[5:5][0]) == 0
    for wrong in (-1, COUNT):
        with pytest.raises(IndexError):
            built[np.array([wrong])]


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_is_near(tmp_path, set_free, channels):
    source = Pictures(grain=True, channels=channels)
    set_free(0.7 * source.bytes)
    reader = opening.SourceReader(source)
    settings = DataSettings(cache="off", data_cache=str(tmp_path))
    data = reader.open(settings, classes=0, devices=LOCAL)
    assert reader.notes == ["kept as JPEG of quality 95, which loses detail"]
    built = cache.cached(source, str(tmp_path))
    assert built.record.encoding == "jpeg"
    error = np.abs(built.load().astype(int) - decoded(source))
    assert 0 < error.mean() < 2 and error.max() < 16
    settings = dataclasses.replace(settings, cache="on")  # decodes the same pixels
    in_memory = opening.SourceReader(source).open(settings, classes=0, devices=LOCAL)
    assert_equal_batches(read_batches(data), read_batches(in_memory))


def test_numpy_reads_the_files(build_as):
    built = build_as("png")
    path = pathlib.Path(built.path)
    content = np.concatenate([np.load(each) for each in sorted(path.glob("examples-*.npy"))])
    ends = np.load(path / "ends.npy")
    assert content.dtype == np.uint8 and content.ndim == 1 and ends.dtype == np.int64
    assert len(ends) == COUNT and ends[-1] == len(content)
    picture = tf.io.decode_png(content[ends[22] : ends[23]].tobytes())
    np.testing.assert_array_equal(picture, Pictures().read(23).array)
    assert json.loads((path / "data.json").read_text())["encoding"] == "png"


def test_the_next_start_finds_it_whatever_is_free(tmp_path, build_as, set_free):
    built = build_as("png")
    for free in (0, 1e12):
        set_free(free)
        source = Pictures()
        again = cache.cached(source, str(tmp_path))
        assert again.path == built.path and again.record.encoding == "png"
        assert source.read_indices == []


def test_a_decoded_store_is_found_on_a_full_disk(tmp_path, build_as, set_free):
    build_as("")
    set_free(0)
    assert cache.cached(Pictures(), str(tmp_path)).record.encoding == ""


def test_data_in_memory_are_not_kept_with_a_loss(tmp_path, set_free, capsys):
    set_free(0.7 * Pictures().bytes)
    for grain, encoding in ((False, "png"), (True, "")):
        found = cache.cached(Pictures(grain=grain), str(tmp_path), in_memory=True)
        assert found.record.encoding == encoding and (found.path is None) == grain
        np.testing.assert_array_equal(found.load(), decoded(Pictures(grain=grain)))
    assert "is decoded at this start only" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_batches_equal_those_of_a_decoded_store(tmp_path, set_free, dtype):
    source = Pictures(dtype=dtype, bad=[7])
    expected = read_batches(open_streamed(source, tmp_path / "decoded"))
    set_free(source.bytes - 1)
    data = open_streamed(source, tmp_path / "encoded")
    assert type(data).__name__ == "StreamedEncoded" and data.size == 49
    assert_equal_batches(read_batches(data), expected)
    in_memory = DataSettings(data_cache=f"{tmp_path}/encoded", random_flips=True)
    data = opening.SourceReader(source).open(in_memory, classes=0, devices=LOCAL)
    assert type(data).__name__ == "StoredData"
    assert_equal_batches(read_batches(data), expected)


def test_a_part_has_the_chosen_examples(tmp_path, build_as):
    build_as("png")
    part = open_streamed(Pictures(), tmp_path).part(np.arange(COUNT) % 2 == 1)
    assert part.size == COUNT // 2
    assert {int(label) for _, labels in read_batches(part) for label in labels} == {1}


@pytest.mark.slow
def test_a_restart_and_a_second_machine_continue_the_same_order(tmp_path, build_as):
    build_as("png")
    data = open_streamed(Pictures(), tmp_path)
    whole = read_batches(data, 40, 0)
    assert_equal_batches(read_batches(data, 20, 10), whole[20:])
    parts = [read_batches(data, 4, 0, hosts=2, host=host) for host in range(2)]
    merged = [part[2 * step + i] for step in range(2) for part in parts for i in range(2)]
    merged = [np.concatenate(each) for each in zip(*merged, strict=True)]
    expected = [np.concatenate(each) for each in zip(*whole[:4], strict=True)]
    np.testing.assert_array_equal(merged[1], expected[1])


def test_builders_at_the_same_time_share_one_store(tmp_path, set_free, monkeypatch):
    monkeypatch.setattr(lock, "_POLL", 0.02)
    set_free(Pictures().bytes - 1)
    sources, found = [Pictures(), Pictures()], []

    def build(source):
        found.append(building.build(source, f"{tmp_path}/s", ["png"]))

    threads = [threading.Thread(target=build, args=[source]) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found:
        np.testing.assert_array_equal(each.load(), decoded(Pictures()))
    assert sorted(bool(source.read_indices) for source in sources) == [False, True]


@pytest.mark.parametrize("writes", range(12))
def test_a_build_that_was_stopped_continues_in_its_encoding(
    tmp_path, set_free, monkeypatch, writes
):
    """A store has three files for each part of the pictures, which are written in turn."""
    left = writes

    def stop_before(write):
        def stopping(*arguments):
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            write(*arguments)

        return stopping

    path, source = f"{tmp_path}/s", Pictures(bad=[1, 9])
    set_free(source.bytes - 1)
    with monkeypatch.context() as patch:
        patch.setattr(building, "write_atomic", stop_before(building.write_atomic))
        patch.setattr(store, "write_object", stop_before(store.write_object))
        with pytest.raises(KeyboardInterrupt):
            building.build(source, path, ["png"])
    with pytest.raises(UserError, match="is not a complete store"):
        store.open_store(path)
    is_begun = (tmp_path / "s.incomplete" / "data.json").exists()
    assert is_begun == (writes >= 4)
    set_free(1e12)
    built = building.build(source, path, ["png"])
    assert built.record.encoding == ("png" if is_begun else "")
    assert built.record.left_out == ("1.png", "9.png")
    source.bad = ()
    np.testing.assert_array_equal(built.load(), np.delete(decoded(source), [1, 9], axis=0))
    assert built.labels.tolist() == [index % 2 for index in range(COUNT) if index not in (1, 9)]


def test_a_decoded_build_that_was_stopped_is_not_begun_again(tmp_path, set_free):
    class Stopping(Pictures):
        def read(self, item):
            if item == 34:
                raise KeyboardInterrupt
            return super().read(item)

    with pytest.raises(KeyboardInterrupt):
        building.build(Stopping(), f"{tmp_path}/s", ["png"])
    set_free(1000)
    with pytest.raises(UserError, match="free space"):
        building.build(Pictures(), f"{tmp_path}/s", ["png"])
    assert (tmp_path / "s.incomplete" / "examples-00000.npy").exists()


@pytest.mark.parametrize("damage", ["cut", "missing", "ends", "order"])
def test_a_damaged_store_is_built_again(tmp_path, build_as, capsys, damage):
    path = pathlib.Path(build_as("png").path)
    shard, ends = path / "examples-00001.npy", np.load(path / "ends.npy")
    if damage == "cut":
        shard.write_bytes(shard.read_bytes()[:-1])
    elif damage == "missing":
        (path / "ends.npy").unlink()
    elif damage == "ends":
        np.save(path / "ends.npy", ends[:-1])
    else:
        ends[[3, 4]] = ends[[4, 3]]
        np.save(path / "ends.npy", ends)
    with pytest.raises((UserError, tf.errors.NotFoundError)):
        store.open_store(str(path))
    np.testing.assert_array_equal(
        cache.cached(Pictures(), str(tmp_path)).load(), decoded(Pictures())
    )
    assert "it is built again" in capsys.readouterr().err


def test_a_store_that_is_cut_while_it_is_read_is_one_line(tmp_path, build_as):
    build_as("png")
    data = open_streamed(Pictures(), tmp_path)
    batches = iter(replica_batches(data, tf.distribute.InputContext(), batch_size=8, first_step=0))
    next(batches)
    for path in tmp_path.glob("*/examples-*.npy"):
        os.truncate(path, 200)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(itertools.islice(batches, 1000))  # more than are read ahead
    assert "was changed, cut or deleted" in user_error_of(caught.value).what


def test_a_few_decoded_pictures_are_in_memory_at_a_time(build_as, monkeypatch):
    """A file has 10 pictures."""
    counts = []

    def encoded(pictures, encoding):
        counts.append(len(pictures))
        return encodings.encoded(pictures, encoding)

    monkeypatch.setattr(building, "encoded", encoded)
    monkeypatch.setattr(building, "_STEP_BYTES", 3 * SIDE * SIDE * 3)
    monkeypatch.setattr(building, "_LEAST_STEP", 1)
    np.testing.assert_array_equal(build_as("png").load(), decoded(Pictures()))
    assert counts == [3, 3, 3, 1] * 5


@pytest.mark.parametrize("encoding", ["png", "jpeg"])
@pytest.mark.parametrize("place", [0.02, 0.5, 0.98])
def test_a_flipped_bit_is_one_line(tmp_path, set_free, encoding, place):
    """A decoder would report it with a long text, or decode another picture."""
    source = Pictures(grain=encoding == "jpeg")
    set_free((0.7 if encoding == "jpeg" else 0.99) * source.bytes)
    built = cache.cached(source, str(tmp_path))
    assert built.record.encoding == encoding
    path = pathlib.Path(built.path) / "examples-00001.npy"
    content = bytearray(path.read_bytes())
    content[128 + int(place * (len(content) - 128))] ^= 4  # after the header of .npy
    path.write_bytes(content)
    message = f"{re.escape(str(path))} has a damaged picture — delete {re.escape(built.path)}, "
    with pytest.raises(UserError, match=message):
        store.open_store(built.path).load()
    batches = replica_batches(
        open_streamed(source, tmp_path), tf.distribute.InputContext(), batch_size=8, first_step=0
    )
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(batches.take(COUNT))
    assert re.match(message, str(user_error_of(caught.value)))


@pytest.mark.parametrize("encoding", ["", "png"])
def test_the_copy_of_a_bucket_is_encoded_if_the_disk_is_small(
    tmp_path, build_as, set_free, monkeypatch, encoding
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    source, bucket = Pictures(), f"ram://{tmp_path.name}-{encoding}"
    built = pathlib.Path(build_as(encoding, source).path)
    tf.io.gfile.makedirs(f"{bucket}/{built.name}")
    for each in built.iterdir():
        tf.io.gfile.copy(str(each), f"{bucket}/{built.name}/{each.name}")
    set_free(source.bytes - 1)
    batches = read_batches(open_streamed(source, bucket))
    (copied,) = (tmp_path / "user" / "wgan_gp").iterdir()
    assert store.open_store(str(copied)).record.encoding == "png"
    np.testing.assert_array_equal(store.open_store(str(copied)).load(), decoded(source))
    set_free(1e12)
    assert_equal_batches(batches, read_batches(open_streamed(source, tmp_path)))
    if encoding:
        for each in built.iterdir():
            assert (copied / each.name).read_bytes() == each.read_bytes()
        with pytest.raises(UserError, match=r"keeps its pictures encoded, which the machines of"):
            open_streamed(source, bucket, REMOTE)


def test_an_array_of_examples_is_something_else(build_as):
    path = build_as("png").path
    with pytest.raises(UserError, match=r"keeps encoded pictures, not arrays of examples — give"):
        find_dataset(DataSettings(dataset="array", data_dir=path))
