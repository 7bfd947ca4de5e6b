"""TFRecord files of others: compressed, with other names, with raw pixels, and damaged."""

import io
import pathlib

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from wgan_gp.config import DataSettings
from wgan_gp.data.sources.tfrecords import find_source
from wgan_gp.errors import UserError

SIDE = 8
RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, [12, SIDE, SIDE, 3]).astype(np.uint8)


def png(pixels):
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def feature(value):
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def write(path, examples, compression=""):
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression)) as writer:
        for example in examples:
            features = {name: feature(value) for name, value in example.items()}
            content = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(content.SerializeToString())


def examples(numbers=range(12), image="image", label="label"):
    return [{image: png(PIXELS[i]), label: i % 3} for i in numbers]


def source(path, **settings):
    return find_source(DataSettings(dataset="tfrecord", data_dir=str(path), **settings), "--data_dir")


def read(found):
    """Returns the arrays and labels of all examples of a source."""
    read_examples = [found.read(item) for item in found.items()]
    return np.stack([each.array for each in read_examples]), [each.label for each in read_examples]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_all_compressions_are_read(tmp_path, compression):
    write(tmp_path / "a.tfrecord", examples(), compression)
    found = source(tmp_path / "a.tfrecord")
    arrays, labels = read(found)
    np.testing.assert_array_equal(arrays, PIXELS)
    assert labels == [i % 3 for i in range(12)]
    assert (found.size, found.class_names) == (12, ("0", "1", "2"))
    assert [found.read(item).label for item in found.items(first=7)] == labels[7:]


@pytest.mark.parametrize(
    "value", ["{0}", "{0}/*.tfrecord*", "{0}/x.tfrecord@2", "{0}/x.tfrecord-00000*,{0}/*-00001-of*"]
)
def test_files_are_found_by_each_kind_of_name(tmp_path, value):
    write(tmp_path / "x.tfrecord-00000-of-00002", examples(range(7)))
    write(tmp_path / "x.tfrecord-00001-of-00002", examples(range(7, 12)))
    arrays, _ = read(source(value.format(tmp_path)))
    np.testing.assert_array_equal(arrays, PIXELS)


def test_a_missing_file_of_numbered_ones_is_named(tmp_path):
    write(tmp_path / "x-00001-of-00003", examples())
    with pytest.raises(UserError, match="lacks 2 of 3 files, such as .*/x-00000-of-00003"):
        source(tmp_path / "x@3")


def test_other_files_of_a_folder_are_counted(tmp_path, capsys):
    write(tmp_path / "a.tfrecord", examples())
    (tmp_path / "README.txt").write_text("these are the records of a dataset, see the homepage")
    assert source(tmp_path).size == 12
    assert "files that are no TFRecords: 1" in capsys.readouterr().err


def test_features_of_other_names_are_found_or_given(tmp_path):
    write(tmp_path / "only", [{"picture": png(PIXELS[0]), "kind": b"cat", "n": 1}])
    with pytest.raises(UserError, match=r"no image \(its features: kind, n, picture\).*--image_fe"):
        source(tmp_path / "only")
    found = source(tmp_path / "only", image_feature="picture", label_feature="kind")
    assert found.class_names == ("cat",)
    np.testing.assert_array_equal(read(found)[0], PIXELS[:1])
    write(tmp_path / "one", [{"jpeg": png(PIXELS[0])}])
    np.testing.assert_array_equal(read(source(tmp_path / "one"))[0], PIXELS[:1])
    with pytest.raises(UserError, match=r"--label_feature=kind, but .* has no such label"):
        source(tmp_path / "one", label_feature="kind")


@pytest.mark.parametrize("kind", ["height and width", "StyleGAN", "gray"])
def test_raw_pixels_are_read(tmp_path, kind):
    raw = {
        "height and width": lambda x: {
            "image_raw": x.tobytes(), "height": SIDE, "width": SIDE, "depth": 3
        },
        "StyleGAN": lambda x: {
            "data": x.transpose(2, 0, 1).tobytes(), "shape": [3, SIDE, SIDE]
        },
        "gray": lambda x: {"image": x[..., 0].tobytes(), "rows": SIDE, "cols": SIDE},
    }[kind]
    write(tmp_path / "a.tfrecord", [raw(pixels) for pixels in PIXELS])
    arrays, _ = read(source(tmp_path / "a.tfrecord", image_channels=1 if kind == "gray" else 3))
    np.testing.assert_array_equal(arrays, PIXELS[..., :1] if kind == "gray" else PIXELS)


def test_the_largest_of_several_sizes_is_read(tmp_path):
    for level, side in ((2, 4), (3, 8)):
        small = PIXELS[:, :side, :side]
        rows = [{"data": x.transpose(2, 0, 1).tobytes(), "shape": [3, side, side]} for x in small]
        write(tmp_path / f"faces-r{level:02}.tfrecords", rows)
    np.testing.assert_array_equal(read(source(tmp_path))[0], PIXELS)


def test_labels_from_1_with_gaps_become_classes_without_gaps(tmp_path):
    write(tmp_path / "a", [{"image": png(PIXELS[i]), "label": (1, 2, 7)[i % 3]} for i in range(6)])
    found = source(tmp_path / "a")
    assert found.class_names == ("1", "2", "7")
    assert read(found)[1] == [0, 1, 2, 0, 1, 2]


def test_a_label_beyond_num_classes_is_refused(tmp_path):
    write(tmp_path / "a", examples())
    found = source(tmp_path / "a", num_classes=2)
    with pytest.raises(UserError, match="has the label '2', but its classes are 0, 1 — set --num"):
        read(found)


@pytest.mark.parametrize("damage", ["flipped", "cut", "zeros"])
def test_readable_records_of_a_damaged_file_are_read(tmp_path, damage, capsys):
    path = pathlib.Path(tmp_path / "a.tfrecord")
    write(path, examples())
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[content.index(png(PIXELS[5])) + 20] ^= 1
    path.write_bytes({"cut": content[:-30], "zeros": content + bytes(1000)}.get(damage, content))
    arrays, _ = read(source(path))
    kept = {"flipped": [i for i in range(12) if i != 5], "cut": range(11), "zeros": range(12)}
    np.testing.assert_array_equal(arrays, PIXELS[list(kept[damage])])
    said = capsys.readouterr().err
    assert said.count(f"{path} is damaged at byte") == said.count("warning: ") == 1
