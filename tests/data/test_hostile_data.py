"""Data that would block the program, be read twice, or cause misleading error messages."""

import io
import os
import socket
import threading
import types
import zlib

import numpy as np
import PIL.Image
import pytest
import requests
import tensorflow as tf

from tests.helpers.records import write_records
from tests.helpers.runs import find_data, open_data
from wgan_gp.config import Config, DataSettings
from wgan_gp.data import pipeline_errors
from wgan_gp.data.sources import listing
from wgan_gp.data.sources import tfds as prepared
from wgan_gp.data.sources.folder import find_encoded
from wgan_gp.errors import UserError, printable
from wgan_gp.runtime.tensorflow_patches import limit_requests

SIDE = 8


def png(value=0):
    file = io.BytesIO()
    PIL.Image.fromarray(np.full([SIDE, SIDE, 3], value, np.uint8)).save(file, "PNG")
    return file.getvalue()


def put(path, content=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png() if content is None else content)


def listed(folder):
    source = find_encoded(DataSettings(data_dir=str(folder)))
    return [item.name for item in source.items()]


def test_links_to_folders_are_followed_once(tmp_path, capsys):
    top = tmp_path / "top"
    put(top / "z" / "1.png")
    put(tmp_path / "elsewhere" / "deep" / "2.png")
    (top / "a").symlink_to("z")  # is listed before z, but files keep their path without links
    (top / "b").symlink_to("../elsewhere")
    (top / "c").symlink_to("../elsewhere")
    assert listed(top) == ["b/deep/2.png", "z/1.png"]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"--data_dir={top}: skipped links to folders that were already listed" in said
    assert said.endswith("that contain the link: a and 1 more\n")


@pytest.mark.parametrize("target", [".", "..", "../..", "/"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_link_to_a_parent_folder_is_not_followed(tmp_path, capsys, target, scheme):
    put(tmp_path / "top" / "sub" / "1.png")
    (tmp_path / "top" / "sub" / "up").symlink_to(target)
    assert listed(f"{scheme}{tmp_path}/top") == ["sub/1.png"]
    assert capsys.readouterr().err.endswith("that contain the link: sub/up\n")


def test_special_files_are_skipped_with_one_warning(tmp_path, capsys):
    put(tmp_path / "1.png")
    os.mkfifo(tmp_path / "2.png")
    (tmp_path / "3.png").symlink_to("/dev/zero")
    (tmp_path / "4.png").symlink_to("4.png")
    (tmp_path / "5.png").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(os.path.relpath(tmp_path / "6.png"))
    assert listed(tmp_path) == ["1.png"]
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "skipped entries that are not regular files, such as" in said
    assert said.endswith(": 2.png and 4 more\n")


def test_a_name_that_is_not_utf8_is_skipped(tmp_path, capsys):
    put(tmp_path / "1.png")
    for name in (b"2\xff.png", b"\xfe"):
        os.mkdir(os.fsencode(tmp_path) + b"/" + name)
    assert listed(tmp_path) == ["1.png"]
    said = capsys.readouterr().err
    assert said.endswith("skipped names that are not UTF-8: 2\\xff.png and 1 more\n")


@pytest.mark.parametrize("dataset", ["image_folder", "tfrecord", "mnist"])
def test_a_path_that_is_not_utf8_is_refused(tmp_path, dataset):
    place = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    with pytest.raises(UserError, match=r"^--data_dir=/.*/\\xff is not valid UTF-8 — give text"):
        find_data(Config(dataset=dataset, data_dir=place))


def test_a_record_file_whose_name_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "1").write_bytes(b"")
    with open(os.fsencode(tmp_path) + b"/\xff", "wb"):
        pass
    with pytest.raises(UserError, match=rf"^--data_dir={tmp_path}/\* cannot be read \(.*utf-8"):
        find_data(Config(dataset="tfrecord", data_dir=f"{tmp_path}/*"))


def test_names_are_printed_in_one_line(tmp_path, capsys):
    put(tmp_path / "1.png")
    put(tmp_path / "2\n\x1b[2J.png", b"no picture")
    open_data(Config(dataset="image_folder", data_dir=str(tmp_path), batch_size=1))
    said = capsys.readouterr().err
    assert "is left out: 2\\n\\x1b[2J.png (it is not a complete JPEG" in said
    assert said.count("\n") == 2  # the other line states the size of the store
    assert printable("größe 猫.png") == "größe 猫.png"


@pytest.mark.parametrize("kind", ["file", "pipe", "gone"])
def test_a_path_that_is_not_a_folder_is_refused(tmp_path, kind):
    place = tmp_path / "x"
    {"file": lambda: put(place), "pipe": lambda: os.mkfifo(place), "gone": str}[kind]()
    with pytest.raises(UserError, match=r"/x is n.* a folder.* — give a folder of images"):
        find_data(Config(dataset="image_folder", data_dir=str(place)))


def test_a_folder_without_read_permission_is_refused(tmp_path, monkeypatch):
    put(tmp_path / "a" / "1.png")
    allowed = os.scandir

    def refuse(path):
        if str(path).endswith("/a"):
            raise PermissionError(13, "Permission denied", path)
        return allowed(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match=r"cannot be read \(.*Permission denied: '/.*/a'\)"):
        find_data(Config(dataset="image_folder", data_dir=str(tmp_path)))


@pytest.mark.parametrize("dataset", ["image_folder", "tfrecord", "mnist"])
def test_an_unreachable_bucket_is_refused(monkeypatch, dataset):
    """isdir and listdir would report the bucket as missing."""

    def fail(path):
        raise tf.errors.FailedPreconditionError(None, None, "Could not resolve host\nwhen")

    monkeypatch.setattr(tf.io.gfile, "exists", fail)
    monkeypatch.setattr(tf.io.gfile, "isdir", lambda path: False)
    with pytest.raises(UserError, match=r"--data_dir=gs://b/c cannot be reached \(Could not res"):
        find_data(Config(dataset=dataset, data_dir="gs://b/c"))


@pytest.mark.parametrize("dataset", ["image_folder", "tfrecord", "mnist"])
def test_a_bucket_that_does_not_answer_is_refused(monkeypatch, dataset):
    asked = threading.Event()
    monkeypatch.setattr(tf.io.gfile, "exists", lambda path: asked.wait())
    monkeypatch.setattr(listing, "_LOOKUP_TIMEOUT", 0.05)
    with pytest.raises(UserError, match="--data_dir=gs://b/c cannot be reached: no answer within"):
        find_data(Config(dataset=dataset, data_dir="gs://b/c"))
    asked.set()


def huge_png():
    """Returns a black PNG of 12,000 x 12,000 pixels of one bit, 18 kB."""

    def chunk(kind, content):
        body = kind + content
        return len(content).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    sides = (12_000).to_bytes(4, "big") * 2
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", sides + b"\x01\x00\x00\x00\x00"),
            chunk(b"IDAT", zlib.compress(bytes(12_000 * 1501))),
            chunk(b"IEND", b""),
        ]
    )


def test_an_image_of_too_many_pixels_is_not_decoded(tmp_path, capfd):
    put(tmp_path / "1.png", huge_png())
    put(tmp_path / "2.png")
    put(tmp_path / "3.png", b"")
    settings = {"data_dir": str(tmp_path), "image_size": SIDE, "batch_size": 1}
    assert open_data(Config(dataset="image_folder", **settings)).size == 1
    said = capfd.readouterr().err
    assert "left out: 1.png (it has 144,000,000 pixels, more than 134,217,728), 3.png" in said
    dataset = find_data(Config(dataset="image_folder", data_dir=str(tmp_path)))
    assert dataset.spec.example_shape == (SIDE, SIDE, 3)


# Records.


IMAGE = png()
NO_INTEGER = tf.train.Feature(int64_list=tf.train.Int64List())
NO_BYTES = tf.train.Feature(bytes_list=tf.train.BytesList())


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ({"image": [IMAGE, IMAGE]}, "the first example has no image"),
        ({"image": NO_BYTES}, "the first example has no image"),
        ({"image": list(range(9))}, "the first example has no image .* — store"),
    ],
)
def test_invalid_features_are_described(tmp_path, features, says):
    path = write_records(tmp_path / "x", [{"image": IMAGE, "label": 1, **features}])
    with pytest.raises(UserError, match=says) as raised:
        find_data(Config(dataset="tfrecord", data_dir=path))
    assert f"--data_dir={path}" in str(raised.value)


@pytest.mark.parametrize(
    "labels", [[0.5, 2.5], [[1, 2], [1, 1]], [[1], [1, 1]], [1, None], [b"a", b"b" * 300]]
)
def test_an_unconditional_run_accepts_labels_that_are_no_classes(tmp_path, labels, capsys):
    examples = [{"image": png(100 * n), "label": label} for n, label in enumerate(labels)]
    for example in examples:
        if example["label"] is None:
            del example["label"]
    path = write_records(tmp_path / "x", examples)
    config = Config(dataset="tfrecord", data_dir=path, batch_size=2)
    dataset = find_data(config)
    assert dataset.spec.class_names is None and dataset.open(batch_size=2).size == 2
    assert "label is not used as classes" in capsys.readouterr().err
    with pytest.raises(UserError, match="=projection needs labels, but --dataset=tfrecord has"):
        find_data(Config(**{**config.to_dict(), "conditioning": "projection"}))


def test_other_errors_of_a_pipeline_are_not_replaced():
    failing = tf.data.Dataset.range(1).map(lambda x: tf.debugging.check_numerics(1 / x, "odd"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="odd") as found:
        next(iter(failing))
    assert pipeline_errors.user_error_of(found.value) is None


def test_pipes_among_records_are_skipped(tmp_path, capsys):
    write_records(tmp_path / "1", [{"image": IMAGE}])
    os.mkfifo(tmp_path / "2")
    (tmp_path / "3").mkdir()
    config = Config(dataset="tfrecord", data_dir=f"{tmp_path}/*", batch_size=1)
    assert open_data(config).size == 1
    assert f"broken links: {tmp_path}/2\n" in capsys.readouterr().err
    with pytest.raises(UserError, match="/2 matches no files"):
        find_data(Config(dataset="tfrecord", data_dir=f"{tmp_path}/2"))


# tensorflow-datasets.


@pytest.mark.parametrize("content", ["{", "", "[]", "null", '{"splits": 3}', "\xff"])
@pytest.mark.parametrize("name", ["mnist", "unknown_to_tfds"])
def test_a_damaged_description_is_named(tmp_path, name, content):
    folder = tmp_path / name / "3.0.1"
    put(folder / "dataset_info.json", content.encode("latin1"))
    with pytest.raises(
        UserError, match=f"--dataset={name} is neither .*; delete {folder.parent} if"
    ):
        find_data(Config(dataset=name, data_dir=str(tmp_path)))


def test_a_failed_lookup_names_the_dataset(monkeypatch):
    import tensorflow_datasets as tfds  # noqa: PLC0415

    def fail(*arguments, **given):
        raise tf.errors.FailedPreconditionError(None, None, "Could not resolve host")

    monkeypatch.setattr(tfds, "builder", fail)
    with pytest.raises(UserError, match=r"--dataset=kubric:x is neither .*resolve host"):
        prepared.find_builder("kubric:x", None)


@pytest.fixture
def sent(monkeypatch):
    """The timeout and the retries of each request; requests fail without a network."""
    requests_sent = []

    def send(adapter, request, stream=False, timeout=None, **given):
        requests_sent.append((timeout, adapter.max_retries))
        raise requests.ConnectionError("no network")

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    limit_requests.cache_clear()
    yield requests_sent
    limit_requests.cache_clear()


def test_downloads_have_timeouts(sent, tmp_path):
    """The timeout is the time between two parts of a response, not the total time."""
    from tensorflow_datasets.core.download import downloader  # noqa: PLC0415

    def download(**given):
        with downloader._open_url("https://example.org/x", verify=True):
            pass

    builder = types.SimpleNamespace(data_path=tmp_path / "none", download_and_prepare=download)
    with pytest.raises(UserError, match=r"cannot be downloaded and prepared .*no network"):
        prepared.prepare(Config(dataset="mnist", download=True), builder)
    ((timeout, retries),) = sent
    assert timeout == (5, 60)
    assert (retries.connect, retries.read, retries.other) == (2, 1, 2)
    assert retries.total == downloader.MAX_RETRIES  # for responses such as 503
    assert socket.getdefaulttimeout() is None


def test_a_request_with_a_timeout_keeps_it(sent):
    limit_requests()
    with pytest.raises(requests.ConnectionError):
        requests.get("https://example.org", timeout=7)
    ((timeout, retries),) = sent
    assert timeout == 7 and retries.connect is None
