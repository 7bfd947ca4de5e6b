"""Folders and archives of pictures, with the conventions of the programs that write them."""

import dataclasses
import io
import json
import os
import pathlib
import shutil
import zipfile

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from wgan_gp.config import DataSettings
from wgan_gp.data.datasets import find_dataset
from wgan_gp.data.sources import decode as decoding
from wgan_gp.data.sources.encoded import Unreadable
from wgan_gp.data.sources.folder import find_encoded
from wgan_gp.data.sources.picture_labels import divide, split_name
from wgan_gp.data.store.store import key_of
from wgan_gp.errors import UserError


def picture(number, kind="PNG"):
    """Returns a file with a picture of one gray level."""
    file = io.BytesIO()
    PIL.Image.new("L", (8, 8), number).save(file, kind)
    return file.getvalue()


def numbered(*names):
    """Returns files by name: pictures whose gray levels are their places, and other contents."""
    files = {}
    for number, name in enumerate(names):
        if isinstance(name, str):
            files[name] = picture(number)
        else:
            files[name[0]] = name[1].encode() if isinstance(name[1], str) else name[1]
    return files


def write(folder, files, kind="folder"):
    """Writes files into a folder, or an archive of it, and returns its path."""
    if kind == "zip":
        path = folder.with_suffix(".zip")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return str(path)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return str(folder)


def find(path, **settings):
    given = {"dataset": "image_folder", "data_dir": path, "image_size": 8, "image_channels": 1}
    return find_encoded(DataSettings(**{**given, **settings}))


def content_of(source):
    """Returns the name, the gray level and the name of the class of each example."""
    names = source.class_names or ("",)
    examples = [(item, source.read(item)) for item in source.items()]
    assert all(example.shape == source.shape for _, example in examples)
    return [(item.name, int(example.max()), names[item.label]) for item, example in examples]


@pytest.mark.parametrize("kind", ["folder", "zip"])
@pytest.mark.parametrize("wrapper", ["", "photos/", "a/b/"])
def test_folders_and_archives_have_the_same_examples(tmp_path, kind, wrapper):
    names = [f"{wrapper}{name}" for name in ("cat/1.png", "cat/x/2.png", "dog/3.png")]
    extra = ["__MACOSX/cat/._1.png", f"{wrapper}cat/._1.png", f"{wrapper}dog/Thumbs.db"]
    source = find(write(tmp_path / "data", numbered(*names, *extra), kind))
    assert content_of(source) == [
        (names[0], 0, "cat"), (names[1], 1, "cat"), (names[2], 2, "dog")
    ]  # fmt: skip
    assert [item.label for item in source.items(2)] == [1]
    assert (source.class_names, source.size) == (("cat", "dog"), 3)
    assert source.dtype == np.uint8
    json.dumps(source.identity())


def test_pictures_outside_a_subfolder_have_no_classes(tmp_path, caplog):
    caplog.set_level("INFO")
    source = find(write(tmp_path / "data", numbered("cat/1.png", "2.png")))
    assert source.class_names is None and [each[1] for each in content_of(source)] == [1, 0]
    assert (
        "2.png is next to the folders of other pictures: the folders are no classes" in caplog.text
    )
    caplog.clear()
    find(write(tmp_path / "flat", numbered("1.png", "2.png")))
    assert not caplog.text


def test_a_bucket_is_read_by_tensorflow():
    files = numbered("train/cat/1.png", "train/dog/2.png", "test/cat/3.png", "test/dog/4.png")
    for name, content in files.items():
        path = f"ram://folder_source/{name}"
        tf.io.gfile.makedirs(os.path.dirname(path))
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(content)
    assert [each[1:] for each in content_of(find("ram://folder_source"))] == [
        (0, "cat"),
        (1, "dog"),
    ]
    with tf.io.gfile.GFile("ram://folder_source.zip", "wb") as remote:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        remote.write(file.getvalue())
    found = content_of(find("ram://folder_source.zip", split="test"))
    assert [each[1:] for each in found] == [(2, "cat"), (3, "dog")]


def test_splits_are_selected_and_are_not_classes(tmp_path, capsys):
    names = [
        f"{split}/{kind}/{number}.png"
        for split in ("train", "val", "test")
        for kind in ("cat", "dog")
        for number in range(2)
    ]
    path = write(tmp_path / "data", numbered(*names))
    source = find(path)
    assert content_of(source) == [
        (name, number, name.split("/")[1]) for number, name in enumerate(names[:4])
    ]
    assert "--split=train selects 4 of 12 images" in capsys.readouterr().err
    assert [each[1] for each in content_of(find(path, split="validation"))] == [4, 5, 6, 7]
    assert [each[1] for each in content_of(find(path, split="val"))] == [4, 5, 6, 7]
    assert source.held_out_split == "test"
    held_out = source.of_split("test")
    assert [each[1] for each in content_of(held_out)] == [8, 9, 10, 11]
    assert held_out.held_out_split == "validation" and held_out.shape == source.shape
    with pytest.raises(UserError, match=r"is not a split of .* test, train, validation"):
        find(path, split="unlabeled")


def test_a_split_without_the_classes_is_not_held_out(tmp_path):
    names = ["train/cat/1.png", "train/dog/2.png", "test/3.png", "val/cat/4.png", "val/dog/5.png"]
    source = find(write(tmp_path / "data", numbered(*names)))
    assert source.held_out_split == "validation"
    # A split in which a class does not occur numbers the classes as the training data does.
    names = ["train/cat/1.png", "train/dog/2.png", "test/dog/3.png"]
    source = find(write(tmp_path / "other", numbered(*names)))
    assert content_of(source.of_split("test")) == [("test/dog/3.png", 2, "dog")]


def test_a_missing_split_is_refused(tmp_path):
    path = write(tmp_path / "data", numbered("cat/1.png", "dog/2.png"))
    with pytest.raises(UserError, match="no folders train, validation or test"):
        find(path, split="test")


@pytest.mark.parametrize(
    ("folders", "splits"),
    [
        (["train", "val", "test"], {"train", "validation", "test"}),
        (["Train", "Valid"], {"train", "validation"}),
        (["train2017", "val2017"], {"train", "validation"}),
        (["seg_train", "seg_test"], {"train", "test"}),
        (["train", "test", "extra"], {"train", "test"}),
        (["train", "bus", "car"], {""}),  # vehicles
        (["freight_train", "test_tube", "bottle"], {""}),
        (["bullet_train", "steam_train"], {""}),
        (["images/train", "images/val"], {"train", "validation"}),
        (["train/images", "val/images"], {"train", "validation"}),
    ],
)
def test_which_folders_are_splits(folders, splits):
    names = [f"{folder}/{kind}/a.png" for folder in folders for kind in ("cat", "dog")]
    divided = divide(names)
    assert set(divided) == splits
    if splits != {""}:
        assert {folder for placed in divided.values() for _, folder in placed} == {"cat", "dog"}


def test_names_of_splits():
    assert split_name("DEV") == "validation" and split_name("training-set") == "train"
    assert split_name("straining") is None and split_name("train_val") is None


HUGGING_FACE = "file_name,label\na.png,dog\nb.png,cat\nc.png,dog\n"
ENCODED = [  # as Windows writes them
    (*file, encoding)
    for encoding in ("utf-8-sig", "utf-16", "cp1252")
    for file in (
        ("metadata.csv", "file_name,label\na.png,né\nb.png,oie\n", ["né", "oie"]),
        ("metadata.jsonl", '{"file_name": "a.png", "label": "né"}\n', ["né"]),
    )
]
JSON_LINES = '{"file_name": "a.png", "class": 10}\n{"file_name": "b.png", "class": 9}\n'


@pytest.mark.parametrize(
    ("name", "text", "labels"),
    [
        ("metadata.csv", HUGGING_FACE, ["dog", "cat", "dog"]),
        ("metadata.csv", HUGGING_FACE.replace("label", "Target"), ["dog", "cat", "dog"]),
        ("metadata.csv", "\ufeff" + HUGGING_FACE.replace(",", ";"), ["dog", "cat", "dog"]),
        (
            "metadata.csv",
            "file_name,kind\na.png,7\nb.png,10\nc.png,7\nd.png,10\n",
            ["7", "10", "7"],
        ),
        ("metadata.csv", "file_name,text\na.png,one\nb.png,two\nc.png,three\n", None),
        ("metadata.csv", "name,label\na.png,dog\nb.png,cat\n", None),
        ("metadata.csv", "file_name,label\na.png,0.25\nb.png,0.5\nc.png,0.75\n", None),
        ("metadata.csv", "file_name,label\na.png,1_1\nb.png,11\nc.png,11\n", ["1_1", "11", "11"]),
        ("metadata.csv", "file_name,label\na.png,01\nb.png,1\nc.png,001\n", ["01", "1", "001"]),
        ("metadata.csv", "file_name,label\na.png,x\nb.png,y\nb.png,y\n", ["x", "y"]),
        ("metadata.csv", "file_name,label\na.png,x\nb.png,y\nb.png,x\n", None),
        ("metadata.jsonl", JSON_LINES, ["10", "9"]),
        ("metadata.jsonl", '{"file_name": "a.png", "label": "a\u2028b\x85"}\n', ["a\u2028b"]),
        ("metadata.jsonl", JSON_LINES.replace("10", "1e400").replace("9", "9" * 25), None),
        *((name, text.encode(encoding), labels) for name, text, labels, encoding in ENCODED),
        ("dataset.json", '{"labels": [["a.png", 6], ["b.png", 2], ["c.png", 6]]}', ["6", "2", "6"]),
        ("dataset.json", '{"labels": [["a.png", [0, 1]], ["b.png", [1, 0]]]}', ["1", "0"]),
        ("dataset.json", '{"labels": [["a.png", [0.5, 1]], ["b.png", [1, 0]]]}', None),
        ("dataset.json", '{"labels": null}', None),
        ("dataset.json", '{"title": "photos"}', None),
    ],
)
@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_labels_in_files(tmp_path, name, text, labels, kind):
    files = numbered("a.png", "b.png", "c.png", (name, text))
    source = find(write(tmp_path / "data", files, kind))
    found = content_of(source)
    if labels is None:
        assert source.class_names is None and len(found) == 3
    else:
        assert [each[2] for each in found] == labels  # a picture without a label is left out
        are_numbers = all(each.isdigit() and str(int(each)) == each for each in labels)
        in_order = sorted(set(labels), key=int if are_numbers else None)
        assert source.class_names == tuple(in_order)


def test_stylegan_shards_are_not_classes(tmp_path):
    names = [f"0000{number % 2}/img{number}.png" for number in range(4)]
    labels = json.dumps({"labels": [[name, number // 2] for number, name in enumerate(names)]})
    source = find(write(tmp_path / "data", numbered(*names, ("dataset.json", labels)), "zip"))
    assert sorted((level, label) for _, level, label in content_of(source)) == [
        (0, "0"), (1, "0"), (2, "1"), (3, "1")
    ]  # fmt: skip
    plain = find(
        write(tmp_path / "plain", numbered(*names, ("dataset.json", '{"labels": null}')), "zip")
    )
    assert plain.class_names is None


def test_each_split_has_its_own_file_of_labels(tmp_path):
    files = numbered(
        *("train/a.png", "train/b.png", "test/a.png"),
        ("train/metadata.csv", "file_name,label\na.png,x\nb.png,y\n"),
        ("test/metadata.csv", "file_name,label\na.png,y\n"),
    )
    source = find(write(tmp_path / "data", files))
    assert [each[2] for each in content_of(source)] == ["x", "y"]
    assert [each[2] for each in content_of(source.of_split("test"))] == ["y"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("metadata.csv", 'file_name,label\na.png,"dog\n', "metadata.csv: line 2 has a quote"),
        ("metadata.jsonl", "{", "metadata.jsonl cannot be read"),
        ("metadata.csv", b"a\0\0\0\0b", "metadata.csv is not a text file"),
        ("metadata.jsonl", b"{\0}", "metadata.jsonl is not a text file"),
        ("metadata.csv", "file_name,label\na.png,x,y\n", "metadata.csv: line 2"),
        ("dataset.json", "[" * 100_000, "dataset.json cannot be read"),
        ("dataset.json", '{"labels": [1, 2]}', "dataset.json cannot be read"),
        ("dataset.json", '{"labels": [["a.png", [1, 0]], ["b.png", 1]]}', "neither numbers nor"),
        ("metadata.csv", b"\xff\xfe\x00", "metadata.csv is not a text file"),
        (
            "metadata.csv",
            "file_name,label\na.png,café\n".encode() + "b.png,thé\n".encode("cp1252"),
            "line 3 is not in UTF-8, but other lines are",
        ),
    ],
)
def test_a_damaged_file_of_labels_is_one_line(tmp_path, name, text, message):
    path = write(tmp_path / "data", numbered("a.png", (name, text)))
    with pytest.raises(UserError, match=message):
        find(path)


def test_several_labels_of_one_picture_are_named(tmp_path, capsys):
    text = "file_name,label\na.png,x\nb.png,y\na.png,y\n"
    find(write(tmp_path / "data", numbered("a.png", "b.png", ("metadata.csv", text))))
    assert "metadata.csv: an image has several labels" in capsys.readouterr().err


def test_the_key_notices_other_pictures_of_the_same_names(tmp_path):
    """Replaced within one second, in another archive, and in another folder of a bucket."""
    path, keys = tmp_path / "data.zip", set()
    for level in (1, 2):
        write(tmp_path / "data", {"a.png": picture(level)}, "zip")
        os.utime(path, ns=(10**18 + level, 10**18 + level))
        keys.add(key_of(find(str(path))))
    for level in (1, 2):
        remote = f"ram://{tmp_path.name}/{level}"
        tf.io.gfile.makedirs(remote)
        with tf.io.gfile.GFile(f"{remote}/a.png", "wb") as file:
            file.write(picture(level))
        keys.add(key_of(find(remote)))
        keys.add(key_of(find(f"{remote}/")))
    assert len(keys) == 4


def test_labels_of_missing_pictures_are_named(tmp_path, capsys):
    text = "file_name,label\na.png,x\nb.png,y\nz.png,x\n"
    find(write(tmp_path / "data", numbered("a.png", "b.png", "c.png", ("metadata.csv", text))))
    printed = capsys.readouterr().err
    assert "1 images with labels do not exist, such as z.png" in printed
    assert "1 of 3 images have no label and are left out, such as c.png" in printed


def test_the_content_decides_the_format(tmp_path, capsys):
    files = {f"{number}.jpg": picture(number, "WEBP") for number in range(4)}
    files["5.png"] = picture(5, "AVIF")
    files["6.gif"] = picture(6, "TIFF")
    files |= {
        "8": picture(8, "PNG"),
        "readme": b"Python is a language",
        "notes.txt": b"BM",
        "a.bin": b"P5 x",
    }
    source = find(write(tmp_path / "data", files))
    assert source.size == 6
    content = content_of(source)
    assert content[0][1] == 0 and content[4][0] == "5.png"
    assert "not images are skipped: 8 and 3 more" in capsys.readouterr().err


def test_unreadable_pictures_are_named_with_their_reason(tmp_path):
    files = numbered("a.png", "b.png", ("c.jpg", "text"), ("d.heic", b"\0\0\0\x18ftypheic" * 4))
    for kind in ("folder", "zip"):
        source = find(write(tmp_path / "data", files, kind))
        reasons = {}
        for item in source.items():
            try:
                source.read(item)
            except Unreadable as error:
                reasons[item.name] = str(error)
        assert set(reasons) == {"c.jpg", "d.heic"}
        assert "not a complete JPEG, PNG" in reasons["d.heic"]
    heic = write(tmp_path / "heic", {"d.heic": files["d.heic"]})
    with pytest.raises(UserError, match=r"no image that can be read; d.heic: it is not a complete"):
        find(heic)


def test_a_damaged_member_of_a_zip_is_unreadable(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(3):
            archive.writestr(f"{number}.png", picture(number))
    content = bytearray(path.read_bytes())
    place = content.index(b"IDAT", content.index(b"IDAT") + 1)
    content[place + 6] ^= 255
    path.write_bytes(content)
    items = list((source := find(str(path))).items())
    assert [source.read(items[number]).max() for number in (0, 2)] == [0, 2]
    with pytest.raises(Unreadable, match="CRC"):
        source.read(items[1])


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_last_file_of_a_path_is_used(tmp_path):
    """Programs that unpack an archive do the same."""
    path = tmp_path / "a.zip"
    files = [("x\\1.png", 1), ("x/2.png", 2), ("x/1.png", 3), ("./x/2.png", 4), ("x/2.png", 5)]
    with zipfile.ZipFile(path, "w") as archive:
        for name, level in files:
            archive.writestr(name, picture(level))
    source = find(str(path))
    assert content_of(source) == [("x/1.png", 3, ""), ("x/2.png", 5, "")]


@pytest.mark.parametrize("kind", ["tar", "gztar", "bztar", "xztar"])
def test_other_archives_are_to_be_unpacked_first(tmp_path, kind):
    folder = write(tmp_path / "data", numbered("a.png"))
    path = shutil.make_archive(f"{tmp_path}/packed", kind, folder)
    with pytest.raises(
        UserError, match=r"nor a \.zip archive that .* — give .*; unpack other archives first"
    ):
        find(path)


def test_archives_that_cannot_be_read_are_one_line(tmp_path):
    files = numbered("cat/a.png", "dog/b.png")
    content = pathlib.Path(write(tmp_path / "data", files, "zip")).read_bytes()
    for end in (len(content) // 2, len(content) // 3):
        (tmp_path / "cut.zip").write_bytes(content[:end])
        with pytest.raises(UserError, match=r"is neither a folder nor a \.zip archive that"):
            find(str(tmp_path / "cut.zip"))
    (tmp_path / "text.zip").write_text("text")
    with pytest.raises(
        UserError, match=r"is neither a folder nor a \.zip archive that .* — give a folder"
    ):
        find(str(tmp_path / "text.zip"))
    with pytest.raises(UserError, match="is not a folder"):
        find(str(tmp_path / "missing"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is not a folder"):
        find(str(tmp_path / "pipe"))
    with pytest.raises(UserError, match="contains no images"):
        find(write(tmp_path / "empty", {"a.txt": b""}))


def test_an_encrypted_zip_is_refused(tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(b"")
    write(tmp_path / "a", numbered("secret.png"), "zip")
    content = bytearray(path.read_bytes())
    for signature, flags_at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + flags_at] |= 1
    path.write_bytes(content)
    with pytest.raises(
        UserError, match=r"no image that can be read; secret.png: File .* is encrypted"
    ):
        find(str(path))


def test_a_member_that_declares_gigabytes_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "MAX_BYTES", 1000)
    files = numbered("a.png", ("b.png", bytes(2000)))
    for kind in ("folder", "zip"):
        source = find(write(tmp_path / "data", files, kind))
        with pytest.raises(Unreadable, match="GiB"):
            source.read(list(source.items())[1])


def test_names_that_would_leave_a_folder_are_only_names(tmp_path):
    files = numbered("../../a.png", "/etc/b.png", "c\\d.png")
    source = find(write(tmp_path / "data", files, "zip"))
    assert sorted(each[1] for each in content_of(source)) == [0, 1, 2]
    assert os.listdir(tmp_path) == ["data.zip"]


def test_links_and_pipes_are_skipped(tmp_path, capsys):
    path = write(tmp_path / "data", numbered("cat/1.png", "dog/2.png"))
    os.symlink(path, tmp_path / "data" / "cat" / "again")
    os.mkfifo(tmp_path / "data" / "pipe.png")
    assert len(content_of(find(path))) == 2
    assert "pipes and broken links: pipe.png" in capsys.readouterr().err


def test_the_identity_changes_with_the_files_and_the_form(tmp_path):
    path = write(tmp_path / "data", numbered("cat/1.png", "dog/2.png"))
    first = find(path).identity()
    assert find(path).identity() == first
    changed = [find(path, image_size=4).identity(), find(path, crop="none").identity()]
    os.utime(f"{path}/cat/1.png", (1, 1))
    changed.append(find(path).identity())
    os.rename(f"{path}/cat", f"{path}/lion")
    changed.append(find(path).identity())
    assert all(each != first for each in changed)


def test_crop_none_names_the_picture(tmp_path):
    files = numbered("a.png")
    file = io.BytesIO()
    PIL.Image.new("L", (16, 8)).save(file, "PNG")
    files["b.png"] = file.getvalue()
    path = write(tmp_path / "data", files)
    with pytest.raises(UserError, match=r"b.png: it has 8x16 pixels, and --crop=none"):
        find(path, crop="none")
    source = find(path)
    assert source.square_side == 8 and source.resized(
        DataSettings(image_size="4x2", image_channels=3)
    ).shape == (4, 2, 3)


def labels_of(data):
    return sorted(data.read(data.size)[1].numpy().tolist())


def test_classes_of_other_data_keep_their_numbers(tmp_path):
    write(tmp_path / "train", numbered("cat/1.png", "dog/2.png", "fox/3.png"))
    write(tmp_path / "test", numbered("dog/4.png", "fox/5.png"))
    settings = DataSettings(
        dataset="image_folder", data_dir=f"{tmp_path}/train", test_data_dir=f"{tmp_path}/test"
    )
    dataset = find_dataset(settings, conditioning="acgan")
    assert labels_of(dataset.open_held_out()) == [1, 2]
    resumed = find_dataset(
        dataclasses.replace(settings, data_dir=f"{tmp_path}/test"), conditioning="acgan"
    )
    resumed.use_recorded(dataset.spec)
    assert resumed.label_count == 3 and labels_of(resumed.open(batch_size=1)) == [1, 2]
    write(tmp_path / "test", numbered("wolf/6.png"))
    with pytest.raises(UserError, match="contains the class 'wolf', which the training data lacks"):
        dataset.open_held_out()
    assert labels_of(find_dataset(settings).open_held_out()) == [0, 1, 2]
    write(tmp_path / "bare", numbered("1.png"))
    without = dataclasses.replace(settings, test_data_dir=f"{tmp_path}/bare")
    assert labels_of(find_dataset(without).open_held_out()) == [0]
    with pytest.raises(UserError, match="bare has no labels, which the run needs"):
        find_dataset(without, conditioning="acgan").open_held_out()
