"""Stores of decoded examples: built once, resumed after a kill, never half-used, read in order."""

import errno
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import PIL.Image
import pytest
import tensorflow as tf

from tests.helpers.runs import held_in
from tests.helpers.sources import NumberedSource
from wgan_gp.config import PYTHON, DataSettings, DeviceSettings
from wgan_gp.data import feed
from wgan_gp.data.datasets import Dataset, find_dataset
from wgan_gp.data.feed import replica_batches, stored_batches
from wgan_gp.data.pipeline_errors import user_error_of
from wgan_gp.data.sources.folder import find_encoded
from wgan_gp.data.sources.npy import Shards, open_npy
from wgan_gp.data.store import building, opening, store
from wgan_gp.errors import UserError
from wgan_gp.run_directory import lock

EXAMPLE_BYTES = 4 * 3 * 3
LOCAL = DeviceSettings()
REMOTE = DeviceSettings(tpu="grpc://10.0.0.2:8470")


class Squares(NumberedSource):
    """Pictures whose levels are their index; those in `bad` cannot be read."""

    origin = "--data_dir=squares"
    shape = (4, 3, 3)

    def __init__(self, size=50, bad=(), dtype=np.uint8, version=0):
        super().__init__(bad)
        self.size, self.dtype, self.version = size, np.dtype(dtype), version

    def identity(self):
        return {"size": self.size, "version": self.version}

    def picture(self, number):
        return np.full(self.shape, number, self.dtype)


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch):
    monkeypatch.setattr(building, "SHARD_BYTES", 10 * EXAMPLE_BYTES)
    monkeypatch.setattr(lock, "_SETTLING", 0.01)


def levels(opened):
    return opened[:][0][:, 0, 0, 0].tolist()


def files_in(path):
    return sorted(each.name for each in pathlib.Path(path).iterdir())


def test_numpy_reads_a_store(tmp_path):
    built = building.build(Squares(25), f"{tmp_path}/s")
    shards = [np.load(tmp_path / "s" / f"examples-{number:05}.npy") for number in range(3)]
    assert [len(shard) for shard in shards] == [10, 10, 5] and shards[0].dtype == np.uint8
    np.testing.assert_array_equal(np.concatenate(shards)[:, 3, 2, 1], np.arange(25))
    np.testing.assert_array_equal(np.load(tmp_path / "s" / "labels.npy"), np.arange(25) % 2)
    assert json.loads((tmp_path / "s" / "data.json").read_text())["class_names"] == ["even", "odd"]
    assert files_in(tmp_path) == ["s"]
    examples, labels = built[np.array([24, 3, 11, 3])]
    assert examples[:, 1, 1, 1].tolist() == [24, 3, 11, 3] and labels.tolist() == [0, 1, 1, 1]
    np.testing.assert_array_equal(built[:][0], np.concatenate(shards))


@pytest.mark.parametrize("index", [-1, 50])
def test_an_index_out_of_range_is_an_error(tmp_path, index):
    built = building.build(Squares(50), f"{tmp_path}/s")
    with pytest.raises(IndexError, match="of 50 examples"):
        built[np.array([3, index])]


def test_threads_keep_the_order(tmp_path):
    class Slow(Squares):
        def decode(self, item):
            time.sleep(0.002 * (item % 3))
            return super().decode(item)

    assert levels(building.build(Slow(100), f"{tmp_path}/s")) == list(range(100))


def test_unreadable_examples_are_named_and_left_out_once(tmp_path, capsys):
    source = Squares(60, bad=range(0, 60, 2))
    for _ in range(2):
        found = opening.cached(source, str(tmp_path))
        assert levels(found) == list(range(1, 60, 2)) and set(found.labels) == {1}
    error = capsys.readouterr().err
    assert (
        error.count(
            "30 of 60 examples cannot be read and are left out: 0.png (it has no pixels), 2.png (it"
        )
        == 1
    )
    assert "38.png (it has no pixels) and 10 more\n" in error
    assert found.record.left_out == tuple(f"{index}.png" for index in range(0, 60, 2))
    assert len(source.read_indices) == 60
    assert levels(building.load(source)) == list(range(1, 60, 2))


def test_no_readable_example_is_an_error(tmp_path):
    message = r"squares has no example that can be read: 0.png \(it has no pixels\), 1.png"
    for folder in (str(tmp_path), None):
        with pytest.raises(UserError, match=message):
            opening.cached(Squares(3, bad=range(3)), folder)


def test_the_key_depends_on_the_source_the_shape_and_the_dtype(tmp_path):
    sources = [Squares(), Squares(version=1), Squares(dtype=np.uint16)]
    paths = {opening.cached(source, str(tmp_path)).path for source in sources}
    assert len(paths) == 3
    again = Squares()
    assert opening.cached(again, str(tmp_path)).path in paths and again.read_indices == []


class Stopping(Squares):
    """Numbers whose decoding a user stops."""

    def decode(self, item):
        if item == 34:
            raise KeyboardInterrupt
        return super().decode(item)


@pytest.mark.parametrize("root", ["local", "ram"])
def test_a_build_continues_with_complete_files(tmp_path, root):
    path = f"{tmp_path}/s" if root == "local" else f"ram://{tmp_path.name}/s"

    with pytest.raises(KeyboardInterrupt):
        building.build(Stopping(bad=[5, 33]), path)
    with pytest.raises(UserError, match="is not a complete store"):
        store.open_store(path)
    source = Squares(bad=[5, 33])
    found = building.build(source, path)
    assert min(source.read_indices) in (11, 21, 31)
    assert levels(found) == [index for index in range(50) if index not in (5, 33)]
    assert found.labels.tolist() == [index % 2 for index in levels(found)]
    assert found.record.left_out == ("5.png", "33.png")


BUILD = """
import sys, time
sys.path.insert(0, ".")
from tests.data.test_store import Squares, building, EXAMPLE_BYTES
building.SHARD_BYTES = 10 * EXAMPLE_BYTES

class Slow(Squares):
    def decode(self, item):
        if item == 30:
            print("ready", flush=True)
            time.sleep(600)
        return super().decode(item)

building.build(Slow(), sys.argv[1])
"""


@pytest.mark.slow
def test_a_killed_build_blocks_no_other_process(tmp_path):
    path = f"{tmp_path}/s"
    child = subprocess.Popen([sys.executable, "-c", BUILD, path], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    while not (tmp_path / "s.incomplete" / "data.json").exists():
        time.sleep(0.01)
    waiting = threading.Thread(target=building.build, args=[Squares(), path])
    waiting.start()
    time.sleep(0.1)
    assert waiting.is_alive()
    child.send_signal(signal.SIGKILL)
    child.wait()
    waiting.join()
    assert levels(store.open_store(path)) == list(range(50))
    assert files_in(tmp_path) == ["s"]


@pytest.mark.parametrize("root", ["local", "ram"])
def test_builders_at_the_same_time_share_one_store(tmp_path, monkeypatch, capsys, root):
    path = f"{tmp_path}/s" if root == "local" else f"ram://{tmp_path.name}/s"
    monkeypatch.setattr(lock, "_SETTLING", 0.05)
    monkeypatch.setattr(lock, "_POLL", 0.02)
    sources, found = [Squares(), Squares()], []
    started, resume = threading.Event(), threading.Event()

    class Waiting(Squares):
        def decode(self, item):
            started.set()
            assert resume.wait(20)
            return super().decode(item)

    sources[0] = Waiting()
    threads = [
        threading.Thread(target=lambda source=source: found.append(building.build(source, path)))
        for source in sources
    ]
    threads[0].start()
    assert started.wait(20)
    threads[1].start()
    time.sleep(0.2)
    resume.set()
    for thread in threads:
        thread.join()
    assert [levels(each) for each in found] == [list(range(50))] * 2
    assert sources[1].read_indices == []


def test_a_silent_holder_in_a_bucket_loses_its_lock(tmp_path, monkeypatch):
    for name, seconds in (("_SETTLING", 0.0), ("_POLL", 0.01), ("_SILENCE", 0.05)):
        monkeypatch.setattr(lock, name, seconds)
    path = f"ram://{tmp_path.name}/s"
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(f"{os.path.dirname(path)}/lock-s", "w") as file:
        file.write('{"host": "another", "pid": 5, "token": "killed"}')
    assert len(building.build(Squares(), path)) == 50
    assert not tf.io.gfile.exists(f"{os.path.dirname(path)}/lock-s")


def test_a_builder_that_lost_its_lock_writes_no_more(tmp_path):
    """Another machine took the lock over; its file of the store stays."""
    path = tmp_path / "lock-s"

    class Losing(Squares):
        def picture(self, number):
            if number == 5:
                path.write_text('{"host": "another", "pid": 5, "token": "new"}')
            return super().picture(number)

    with pytest.raises(UserError, match=r"no longer holds the lock \S+; process 5 on another"):
        building.build(Losing(), f"{tmp_path}/s")
    assert files_in(tmp_path) == ["lock-s", "s.incomplete"]
    assert files_in(tmp_path / "s.incomplete") == []


def test_a_full_disk_is_one_line_and_the_next_start_continues(tmp_path, monkeypatch):
    write = building.write_atomic

    def fail(path, content):
        if "examples-00002" in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(building, "write_atomic", fail)
    with pytest.raises(UserError, match=r"cannot be written \(.*No space left.*\) — free space"):
        opening.cached(Squares(), str(tmp_path))
    (name,) = files_in(tmp_path)
    assert name.endswith(".incomplete") and len(files_in(tmp_path / name)) == 4
    monkeypatch.undo()
    monkeypatch.setattr(building, "SHARD_BYTES", 10 * EXAMPLE_BYTES)
    source = Squares()
    assert levels(opening.cached(source, str(tmp_path))) == list(range(50))
    assert min(source.read_indices) == 20


def test_the_disk_is_priced_before_the_first_example(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2**26 + 1000))
    with pytest.raises(UserError, match=r"needs 1.8 KB in .* where 67.1 MB are free — free space"):
        building.build(Squares(), f"{tmp_path}/s")
    assert files_in(tmp_path) == []
    with pytest.raises(UserError, match="another disk, or off for examples that fit in memory"):
        opening.cached(Squares(), str(tmp_path), in_memory=True)
    assert len(opening.cached(Squares(), None, in_memory=True)) == 50


@held_in("off")
def test_pictures_that_no_disk_holds_are_one_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    bucket, usage = f"ram://{tmp_path.name}", shutil.disk_usage(tmp_path)
    opening.cached(Squares(), bucket)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2**26 + 1000))
    for data_cache, what in ((str(tmp_path), "decoding"), ("off", "decoding"), (bucket, "copying")):
        config, source = DataSettings(data_cache=data_cache), Squares()
        with pytest.raises(UserError, match=f"{what} .* needs 1.8 KB in") as caught:
            found(source, config, LOCAL).open(batch_size=1)
        assert "67.1 MB are free — free space, or give --data_cache" in str(caught.value)
        assert not source.read_indices
    assert "warning" not in capsys.readouterr().err


def test_a_build_that_was_stopped_keeps_its_files_if_the_disk_is_full(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        building.build(Stopping(), f"{tmp_path}/s")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2**26))
    with pytest.raises(UserError, match=r"needs .* free space"):
        building.build(Squares(), f"{tmp_path}/s")
    assert (tmp_path / "s.incomplete" / "examples-00000.npy").exists()


def test_a_folder_that_cannot_be_written_is_not_used(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for in_memory in (True, False):
        found = opening.cached(Squares(), f"{tmp_path}/file/stores", in_memory=in_memory)
        assert levels(found) == list(range(50))
        assert "squares is decoded at this start only" in capsys.readouterr().err
    temporary = pathlib.Path(found.path).parent
    assert temporary.exists()
    del found
    assert not temporary.exists()


@pytest.mark.parametrize("damage", ["cut", "missing", "record", "labels", "other"])
def test_a_damaged_store_is_built_again(tmp_path, capsys, damage):
    path = pathlib.Path(opening.cached(Squares(), str(tmp_path)).path)
    if damage == "cut":
        (path / "examples-00001.npy").write_bytes((path / "examples-00001.npy").read_bytes()[:-1])
    elif damage == "missing":
        (path / "examples-00004.npy").unlink()
    elif damage == "record":
        (path / "data.json").write_text((path / "data.json").read_text().replace("true", "false"))
    elif damage == "labels":
        np.save(path / "labels.npy", np.full(50, 2))
    else:
        np.save(path / "examples-00001.npy", np.zeros((10, 4, 3, 1), np.uint8))
    with pytest.raises((UserError, tf.errors.NotFoundError)):
        store.open_store(str(path))
    assert levels(opening.cached(Squares(), str(tmp_path))) == list(range(50))
    assert "it is built again" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["examples-00000.npy", "labels.npy", "data.json"])
@pytest.mark.parametrize("given", ["{}", "file://{}"])
def test_a_file_of_a_store_that_cannot_be_read_does_not_blame_the_data(
    tmp_path, capsys, name, given
):
    for label in "ab":
        (tmp_path / "pictures" / label).mkdir(parents=True)
        PIL.Image.new("RGB", (4, 4)).save(tmp_path / "pictures" / label / "x.png")
    settings = DataSettings(
        dataset="image_folder",
        data_dir=f"{tmp_path}/pictures",
        data_cache=given.format(tmp_path / "stores"),
    )

    def read():
        return find_dataset(settings, conditioning="acgan").open(batch_size=2)

    assert read().size == 2
    (path,) = (tmp_path / "stores").iterdir()
    (path / name).unlink()
    (path / name).mkdir()
    assert read().size == 2
    said = capsys.readouterr().err
    assert f"{path} cannot be written" in said and "is decoded at this start only" in said


def test_folders_of_others_are_kept(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(b"x")
    with pytest.raises(UserError, match="photos also contains other files"):
        building.build(source := Squares(), f"{tmp_path}/photos")
    with pytest.raises(UserError, match=r"a\.png cannot be written"):
        building.build(source, f"{tmp_path}/photos/a.png")
    assert not source.read_indices
    assert files_in(tmp_path / "photos") == ["a.png"]


@pytest.mark.parametrize("ending", ["", ".incomplete"])
def test_nothing_behind_a_link_is_changed(tmp_path, ending):
    precious = pathlib.Path(building.build(Squares(version=1), f"{tmp_path}/precious").path)
    before = {name: (precious / name).read_bytes() for name in files_in(precious)}
    path = opening.store_path(f"{tmp_path}/cache", store.key_of(Squares()))
    (tmp_path / "cache").mkdir()
    os.symlink(precious, path + ending)
    with pytest.raises(UserError, match="is a link to another folder — delete the link"):
        opening.cached(Squares(), f"{tmp_path}/cache")
    assert {name: (precious / name).read_bytes() for name in files_in(precious)} == before


def test_files_that_appear_during_a_build_are_kept(tmp_path):
    (tmp_path / "s").mkdir()

    class Slow(Squares):
        def decode(self, item):
            (tmp_path / "s").mkdir(exist_ok=True)
            (tmp_path / "s" / "mine").write_text("x")
            return super().decode(item)

    with pytest.raises(UserError, match=r"s cannot be written \(.*not empty"):
        building.build(Slow(), f"{tmp_path}/s")
    assert files_in(tmp_path / "s") == ["mine"]


def found(encoded, settings, devices):
    return Dataset(opening.slow(encoded, settings), settings, "none", devices)


def read_batches(data, steps=20, first_step=3, hosts=1, host=0):
    context = tf.distribute.InputContext(hosts, host, 2 * hosts)
    batches = iter(replica_batches(data, context, batch_size=8, first_step=first_step))
    return [[each.numpy() for each in next(batches)] for _ in range(steps)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_each_way_of_reading_yields_the_same_batches(tmp_path, monkeypatch, dtype):
    """From memory, from files by Python, and from files by TensorFlow alone, in a bucket."""
    source, expected = Squares(bad=[7], dtype=dtype), None
    bucket = f"ram://{tmp_path.name}/{np.dtype(dtype)}"
    for data_cache, devices, memory in (
        (str(tmp_path), LOCAL, "on"),
        (str(tmp_path), LOCAL, "off"),
        ("off", LOCAL, "on"),
        ("off", LOCAL, "off"),
        (bucket, REMOTE, "on"),
        (bucket, REMOTE, "off"),
        (bucket, LOCAL, "off"),
    ):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
        config = DataSettings(random_flips=True, data_cache=data_cache)
        with held_in(memory):
            data = found(source, config, devices).open(batch_size=1)
            unread = found(source, config, devices).open_unread(batch_size=1)
        assert data.held == (memory == "on") and data.size == 49
        assert unread.held == data.held and unread.format.shape == (4, 3, 3)
        batches = read_batches(data)
        expected = expected or batches
        for batch, other in zip(batches, expected, strict=True):
            np.testing.assert_array_equal(batch[0], other[0])
            np.testing.assert_array_equal(batch[1], other[1])
    assert len(files_in(tmp_path / "user" / "wgan_gp")) == 1  # the copy of the bucket


@pytest.mark.parametrize("kind", ["rows", "records"])
@held_in("off")
def test_a_restart_and_a_second_machine_continue_the_same_order(tmp_path, kind):
    root = str(tmp_path) if kind == "rows" else f"ram://{tmp_path.name}"
    config = DataSettings(data_cache=root)
    data = found(Squares(), config, LOCAL if kind == "rows" else REMOTE).open(batch_size=1)
    whole = np.concatenate([labels for _, labels in read_batches(data, 40, 0)])
    resumed = np.concatenate([labels for _, labels in read_batches(data, 20, 10)])
    np.testing.assert_array_equal(resumed, whole[80:160])
    parts = [read_batches(data, 4, 0, hosts=2, host=host) for host in range(2)]
    merged = [part[2 * step + i][1] for step in range(2) for part in parts for i in range(2)]
    np.testing.assert_array_equal(np.concatenate(merged), whole[:16])


@held_in("off")
def test_graphs_of_a_remote_tpu_call_no_python(tmp_path):
    config = DataSettings(data_cache=f"ram://{tmp_path.name}")
    data = found(Squares(), config, REMOTE).open(batch_size=1)
    batches = stored_batches(data, tf.distribute.InputContext(), 4, 0)
    graph = batches._as_serialized_graph().numpy()
    assert b"PyFunc" not in graph and b"FixedLengthRecordDataset" in graph


@held_in("off")
def test_a_remote_tpu_needs_a_bucket_for_large_data(tmp_path):
    for data_cache in (None, "off", str(tmp_path)):
        config = DataSettings(data_cache=data_cache)
        with pytest.raises(
            UserError, match=r"because of its size, .* — give --data_cache=gs://BUCKET"
        ):
            found(Squares(), config, REMOTE).open_unread(batch_size=1)


@pytest.mark.parametrize(
    ("size", "local", "remote"),
    [
        (2**30, True, True),
        (2**30 + 1, False, True),
        (feed.MAX_SENT_BYTES, False, True),
        (feed.MAX_SENT_BYTES + 1, False, False),
    ],
)
def test_what_can_be_sent_to_a_remote_tpu_is_held_in_memory(size, local, remote):
    assert feed.is_held(size, LOCAL) == local
    assert feed.is_held(size, REMOTE) == remote


ROWS = np.arange(27, dtype=np.float32).reshape(9, 3)
ENDLESS = tf.data.Dataset.from_tensor_slices(ROWS).repeat()


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (ROWS, {}),
        (ENDLESS.take(9), {}),
        (ENDLESS, {}),
        (pd.DataFrame({"a": range(99)}), {"column_types": "auto"}),
    ],
)
def test_python_data_that_cannot_be_sent_to_a_remote_tpu_are_refused(data, settings, monkeypatch):
    monkeypatch.setattr(feed, "MAX_SENT_BYTES", 100)
    config = DataSettings(dataset=PYTHON, **settings)
    found = find_dataset(config, devices=REMOTE, function=lambda: data)
    message = "^data is read during training because of its size, .* — give fewer examples, or run"
    for open_it in (found.open, found.open_unread):
        with pytest.raises(UserError, match=message):
            open_it(batch_size=1)
    monkeypatch.undo()
    if data is not ENDLESS:
        assert found.open(batch_size=1).size == len(data)


@pytest.mark.parametrize("dtype", ["u1", "<u2", "<f8"])
def test_rows_are_aligned_so_that_tensorflow_does_not_copy_them(tmp_path, dtype):
    values = np.arange(5 * 7).reshape(5, 7).astype(dtype)
    np.save(tmp_path / "x.npy", values)
    rows = open_npy(f"{tmp_path}/x.npy", "x")
    for form in (rows, Shards([rows, rows])):
        for count in range(1, 60):  # NumPy aligns by chance
            found = form[np.arange(count) % 5]
            assert found.ctypes.data % 64 == 0 and found.dtype == values.dtype
            np.testing.assert_array_equal(found, values[np.arange(count) % 5])


@held_in("off")
def test_a_store_that_is_cut_while_it_is_read_is_one_line(tmp_path):
    config = DataSettings(data_cache=str(tmp_path))
    data = found(Squares(), config, LOCAL).open(batch_size=1)
    batches = iter(replica_batches(data, tf.distribute.InputContext(), batch_size=8, first_step=0))
    next(batches)
    for path in tmp_path.glob("*/examples-*.npy"):
        os.truncate(path, 200)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(itertools.islice(batches, 1000))  # more than are read ahead
    assert "was changed, cut or deleted" in user_error_of(caught.value).what


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ("gs://b/c", {}, "gs://b/c"),
        ("off", {}, None),
        (None, {"XDG_CACHE_HOME": "/x"}, "/x/wgan_gp"),
        (None, {"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/wgan_gp"),
        (None, {"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/wgan_gp"),
    ],
)
def test_the_folder_of_the_stores(monkeypatch, given, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert opening.cache_folder(given) == expected


def test_array_trains_on_a_store(tmp_path):
    for name, level in {"b": 200, "a": 10}.items():
        (tmp_path / "in" / name).mkdir(parents=True)
        for index in range(6):
            picture = np.full((9, 9, 3), level + index, np.uint8)
            PIL.Image.fromarray(picture).save(tmp_path / "in" / name / f"{index}.png")
    pictures = DataSettings(dataset="image_folder", data_dir=f"{tmp_path}/in", image_size="8")
    out = opening.cached(find_encoded(pictures), f"{tmp_path}/cache").path
    found = np.concatenate([np.load(path) for path in sorted(pathlib.Path(out).glob("ex*.npy"))])
    assert found.shape == (12, 8, 8, 3)
    assert found[:, 0, 0, 0].tolist() == [*range(10, 16), *range(200, 206)]
    dataset = find_dataset(DataSettings(dataset="array", data_dir=out))
    assert dataset.label_count == 2 and dataset.spec.example_shape == (8, 8, 3)
    assert dataset.source.spec.class_names == ("a", "b")
