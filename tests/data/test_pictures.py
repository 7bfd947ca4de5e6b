"""Rectangles, cropping, orientation, depth and channels of pictures in files."""

import io
import json
import math
import struct
import sys

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf

import wgan_gp
from tests.helpers.records import write_records
from tests.helpers.runs import (
    TINY,
    call_main,
    device_loops,
    find_data,
    held_in,
    open_data,
    resolved,
    train_tiny,
)
from wgan_gp.app.run_errors import explaining_errors
from wgan_gp.config import Config
from wgan_gp.data import pixels
from wgan_gp.data.feed import replica_batches
from wgan_gp.data.loop_input import open_loop_input
from wgan_gp.data.sources import decode as decoding
from wgan_gp.data.sources import python
from wgan_gp.data.sources.decode import Form
from wgan_gp.errors import UserError
from wgan_gp.run_directory.typed_json import load_dataclass


def ramp(height, width, channels=3, levels=256):
    """Returns a smooth image, which JPEG preserves, without any symmetry."""
    rows, columns = np.mgrid[0:height, 0:width]
    planes = [rows * 3 + columns, rows + columns * 2, rows * 2 + 40, columns * 3 + 20]
    image = np.stack([planes[number % 4] + number for number in range(channels)], -1)
    return (image * (levels // 256) % levels).astype(np.uint8 if levels == 256 else np.uint16)


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    PIL.Image.fromarray(image).save(file, kind, **options)
    return file.getvalue()


def deep_png(image):
    return tf.io.encode_png(image).numpy()


def put(folder, **files):
    """Writes files by name, in which "_" before the ending stands for a dot."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / ".".join(name.rsplit("_", 1))).write_bytes(content)
    return str(folder)


def settings_of(folder, **settings):
    plain = {"dataset": "image_folder", "batch_size": 1, "dequantization": False}
    return Config(**{**plain, "data_dir": str(folder), **settings})


def levels_of(examples, bits=8):
    return np.rint((np.asarray(examples, np.float64) + 1) * (2**bits - 1) / 2).astype(int)


# --image_size


@pytest.mark.parametrize(
    ("given", "kept"),
    [(32, 32), ("32", 32), ("32x32", 32), ("48x24", "48x24"), ("1x4096", "1x4096"), (None, None)],
)
def test_an_image_size_has_one_form(given, kept):
    config = Config(image_size=given)
    assert config.image_size == kept and type(config.image_size) is type(kept)
    saved = json.loads(json.dumps(config.to_dict()))
    again = load_dataclass(Config, saved, "config.json", "x")
    assert again == config and config.differences(again) == {}
    assert Config(image_size=7).differences(config) == {"image_size": kept}


BAD_SIZES = ["48x", "x48", "0x3", "48x24x3", "5000", "48x5000", "-1", "4.5", "big", " 48", "48X24"]


@pytest.mark.parametrize("text", [*BAD_SIZES, "٤٨", True, 4.0, [48, 24], 10**400])
def test_other_sizes_are_one_line(text):
    with pytest.raises(UserError, match=r"^--image_size=.* is (not a size|too small|too large)"):
        Config(image_size=text)


def test_a_flag_of_a_bad_size_is_one_line(capsys):
    for text in BAD_SIZES:
        assert call_main(f"--image_size={text}") == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert error.startswith(f"error: --image_size={text} ") and " — give " in error


def test_a_function_of_the_user_gets_a_pair_for_a_rectangle():
    received = []

    def function(image_size):
        received.append(image_size)
        sides = image_size if isinstance(image_size, tuple) else (image_size, image_size)
        return np.arange(4 * math.prod(sides), dtype=np.uint8).reshape(4, *sides, 1)

    for size in (8, "8x4"):
        python.find_source(Config(image_size=size, scaling="none"), function, "data")
    assert received == [8, (8, 4)]
    with pytest.raises(UserError, match=r"--image_size=8x5, but the examples of data have shape"):
        python.find_source(Config(image_size="8x5"), lambda: function((8, 4)), "data")


# Windows and rectangles


def test_the_central_window_is_the_largest_of_its_ratio():
    assert decoding.central_window((48, 24), (24, 24)) == (24, 24)
    assert decoding.central_window((48, 24), (48, 24)) == (48, 24)
    assert decoding.central_window((100, 30), (48, 24)) == (60, 30)
    assert decoding.central_window((30, 100), (48, 24)) == (30, 15)
    assert decoding.central_window((1, 100), (4096, 1)) == (1, 1)
    random = np.random.default_rng(0)
    for size, target in random.integers(1, 3000, [200, 2, 2]).tolist():
        window = decoding.central_window(tuple(size), tuple(target))
        assert window[0] == size[0] or window[1] == size[1]
        assert all(1 <= kept <= whole for kept, whole in zip(window, size, strict=True))


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ([(48, 24)], (48, 24, 3)),
        ([(48, 24)] * 3, (48, 24, 3)),
        ([(480, 640)] * 2, (48, 64, 3)),
        ([(48, 24), (24, 48)], (24, 24, 3)),
        ([(200, 100), (10, 10)], (64, 64, 3)),
        ([(20, 20)] * 2, (20, 20, 3)),
        ([(100, 100)] * 2, (64, 64, 3)),
    ],
)
@pytest.mark.parametrize("dataset", ["image_folder", "tfrecord"])
def test_the_default_size_is_that_of_equal_images(tmp_path, dataset, sizes, shape):
    images = {f"{number}_png": encoded(ramp(*size)) for number, size in enumerate(sizes)}
    folder = put(tmp_path / "images", **images)
    if dataset == "tfrecord":
        folder = write_records(tmp_path / "x", [{"image": each} for each in images.values()])
    assert find_data(settings_of(folder, dataset=dataset)).spec.example_shape == shape


RECTANGLES = {**TINY, "dataset": "image_folder", "batch_size": 4, "steps_per_loop": 2}


@pytest.fixture
def rectangles(tmp_path):
    images = {f"{number}_png": encoded(ramp(12, 6) + number) for number in range(4)}
    return put(tmp_path / "rectangles", **images)


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["off", "on"], indirect=True)
def test_rectangles_are_trained_on_whole(rectangles, tmp_path, cache, capsys):
    settings = {**RECTANGLES, "data_dir": rectangles, "train_steps": 2}
    run, _ = train_tiny(tmp_path / "run", **settings)
    assert "cropped" not in capsys.readouterr().err
    assert run.dataset.spec.example_shape == (12, 6, 3)
    config = resolved(Config(model_dir=f"{tmp_path}/run", **settings))
    assert config.image_size == "12x6"
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["image_size"] == "12x6"
    recorded = json.loads((tmp_path / "run" / "data.json").read_text())["spec"]
    assert recorded["example_shape"] == [12, 6, 3]


@pytest.mark.parametrize(
    "cache", [pytest.param("off", marks=pytest.mark.slow), "on"], indirect=True
)
def test_rectangles_are_read_whole(rectangles, cache):
    assert resolved(Config(**RECTANGLES, data_dir=rectangles)).image_size == "12x6"
    images, _ = open_data(settings_of(rectangles, batch_size=4)).read(4)
    found = {image.tobytes() for image in levels_of(images)}
    assert found == {(ramp(12, 6) + number).astype(int).tobytes() for number in range(4)}


def test_networks_without_rectangles_get_the_square(rectangles, capsys):
    """A resnet supports neither 12x6 nor 6x6 pixels, and a dcgan no side of 6 pixels."""
    config = settings_of(rectangles, model="resnet", batch_size=4)
    with pytest.raises(UserError, match="does not support images of 6x6 pixels"):
        resolved(config)
    assert "cropped to their central 6x6 pixels" in capsys.readouterr().err


@pytest.mark.parametrize(("size", "shape"), [("8x4", (8, 4)), ("4x8", (4, 8)), ("12x6", (12, 6))])
def test_digits_are_cropped_to_rectangles(size, shape):
    whole, _ = open_data(Config(batch_size=1)).read(8)
    part, _ = open_data(Config(batch_size=1, image_size=size)).read(8)
    assert part.shape == (8, *shape, 1)
    if size == "8x4":
        np.testing.assert_array_equal(part, whole[:, :, 2:6])
    with pytest.raises(UserError, match="--crop=none does not permit to crop the images of 8x8"):
        find_data(Config(image_size=size, crop="none"))
    assert find_data(Config(image_size=16, crop="none")).spec.example_shape == (16, 16, 1)


# --crop


def test_cropping_is_announced_once(tmp_path, capsys):
    folder = put(tmp_path / "x", a_png=encoded(ramp(48, 24)), b_png=encoded(ramp(96, 48)))
    open_data(settings_of(folder))
    line, priced = capsys.readouterr().err.splitlines()
    assert priced.startswith("decoding --data_dir=")
    cropped = "images such as a.png of 48x24 pixels are cropped to their central 24x24 pixels"
    assert line == f"note: --data_dir={folder}: {cropped}; --image_size=48x24 keeps it whole"
    mixed = put(tmp_path / "y", a_png=encoded(ramp(48, 24)), b_png=encoded(ramp(24, 48)))
    open_data(settings_of(mixed))
    assert f"{cropped}; --image_size=48x24 keeps it whole\n" in capsys.readouterr().err
    open_data(settings_of(folder, image_size="24x48"))
    assert "a.png of 48x24 pixels are cropped to their central 12x24" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["image_folder", "tfrecord"])
def test_images_of_another_ratio_are_refused(tmp_path, dataset):
    images = [encoded(ramp(48, 24)), encoded(ramp(96, 48))]
    if dataset == "tfrecord":
        folder = write_records(tmp_path / "x", [{"image": image} for image in images])
    else:
        folder = put(tmp_path / "x", a_png=images[0], b_png=images[1])
    config = settings_of(folder, dataset=dataset, crop="none")
    assert (
        open_data(Config(**{**config.to_dict(), "image_size": "10x5", "batch_size": 2})).size == 2
    )
    message = r"has 48x24 pixels, and --crop=none .* — use --image_size=48x24, or"
    with pytest.raises(UserError, match=message):
        find_data(config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cache", "kind"),
    [
        ("on", "PNG"),
        ("off", "JPEG"),
        ("off", "TIFF"),
    ],
    indirect=["cache"],
)
def test_a_late_image_of_another_ratio_is_refused(tmp_path, monkeypatch, cache, kind):
    """Headers are read only at the start of a large folder, and the other images at decoding."""
    ending = kind.lower()
    images = {
        f"{n}_{ending}": encoded(ramp(*((8, 4) if n < 3 else (4, 8))), kind) for n in range(4)
    }
    folder = put(tmp_path / "x", **images)
    monkeypatch.setattr("wgan_gp.data.sources.folder._INSPECTED", 1)
    config = settings_of(folder, image_size="8x4", crop="none", batch_size=4)
    assert find_data(config).spec.example_shape == (8, 4, 3)
    with (
        pytest.raises(UserError, match=rf"3\.{ending}: it has 4x8 pixels, and --crop=none"),
        explaining_errors(config),
    ):
        open_data(config).read(4)
    center = Config(**{**config.to_dict(), "crop": "center"})
    assert len(open_data(center).read(4)[0]) == 4


@pytest.mark.slow
@held_in("off")
def test_a_late_record_of_another_ratio_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("wgan_gp.data.sources.records._INSPECTED", 1)
    for name, sizes in (("a", [(8, 4)] * 2), ("b", [(8, 4), (4, 8)])):
        write_records(tmp_path / name, [{"image": encoded(ramp(*size))} for size in sizes])
    config = settings_of(f"{tmp_path}/[ab]", dataset="tfrecord", crop="none")
    message = rf"^--data_dir=.*: record 1 of {tmp_path}/b: it has 4x8 pixels, and --crop=none"
    with pytest.raises(UserError, match=message):
        open_data(config)


# Orientation


def exif_jpeg(body):
    """Returns a JPEG with the given Exif segment, which may be damaged."""
    segment = b"\xff\xe1" + (len(body) + 8).to_bytes(2, "big") + b"Exif\0\0" + body
    content = encoded(ramp(9, 5), "JPEG")
    return content[:2] + segment + content[2:]


def tag(order, value=6, offset=8, count=1, kind=3):
    def number(value, size):
        return value.to_bytes(size, "little" if order == b"II" else "big")

    entry = number(0x0112, 2) + number(kind, 2) + number(1, 4) + number(value, 2) + b"\0\0"
    head = order + number(42, 2) + number(offset, 4)
    return head + bytes(max(0, min(offset, 99) - 8)) + number(count, 2) + entry


@pytest.mark.parametrize(
    ("body", "is_turned"),
    [
        (tag(b"II"), True),
        (tag(b"MM"), True),
        (tag(b"II", offset=20), True),
        (tag(b"MM", value=9), False),
        (tag(b"MM", value=0), False),
        (tag(b"II", offset=2**31 + 8), False),
        (tag(b"MM", offset=2**32 - 1), False),
        (tag(b"II", offset=90)[:40], False),
        (tag(b"II", count=0), False),
        (tag(b"II", count=65535), True),
        (tag(b"II")[:14], False),
        (b"II*\0", False),
        (b"", False),
    ],
)
def test_damaged_metadata_are_no_orientation(body, is_turned):
    size = (5, 9) if is_turned else (9, 5)
    content = exif_jpeg(body)
    assert decoding.read_header(content, "x").size == size
    turned = np.rot90(ramp(9, 5), -1) if is_turned else ramp(9, 5)
    assert np.abs(decoding.decode(content, Form((*size, 3))).astype(int) - turned).max() <= 12


# 16 bits


DEEP = np.random.default_rng(0).integers(0, 2**16, [6, 5]).astype(np.uint16)


@pytest.mark.parametrize(
    ("cache", "kind"),
    [("on", "gray PNG"), ("off", "gray TIFF"), ("on", "color TIFF")],
    indirect=["cache"],
)
def test_16_bits_are_kept(tmp_path, kind, cache):
    image = np.stack([DEEP, DEEP[::-1], DEEP[:, ::-1]], -1) if "color" in kind else DEEP[..., None]
    if kind == "gray TIFF":
        folder = put(tmp_path / "x", a_tif=encoded(DEEP, "TIFF"))
    elif kind == "color TIFF":
        folder = put(tmp_path / "x", a_tif=raw_tiff(image))
    else:
        folder = put(tmp_path / "x", a_png=deep_png(image))
    channels = image.shape[2]
    config = settings_of(folder, image_channels=channels)
    data = open_data(config)
    assert data.format.dtype == tf.uint16 and data.format.shape == image.shape
    unread = find_data(config).open_unread(batch_size=1)
    assert unread.format.dtype == tf.uint16 and unread.format.example_bytes == 60 * channels
    examples, _ = data.read(3)
    np.testing.assert_array_equal(levels_of(examples, 16), [image] * 3)
    assert examples.numpy().min() >= -1 and examples.numpy().max() <= 1


def test_8_bits_among_16_are_stretched(tmp_path):
    image = ramp(6, 5)
    files = {"b_png": encoded(image), "c_gif": encoded(image[..., 0], "GIF")}
    files |= {"d_jpg": encoded(image, "JPEG", quality=100, subsampling=0)}
    files |= {"e_tif": encoded(image, "TIFF")}
    folder = put(tmp_path / "x", a_png=deep_png(DEEP[..., None]), **files)
    data = open_data(settings_of(folder, batch_size=5))
    assert data.size == 5
    stored = data.stored[0].numpy()
    np.testing.assert_array_equal(stored[0], np.repeat(DEEP[..., None], 3, 2))
    np.testing.assert_array_equal(stored[1], image.astype(int) * 257)
    np.testing.assert_array_equal(stored[2], np.repeat(image[..., :1], 3, 2).astype(int) * 257)
    assert np.abs(stored[3] // 257 - image.astype(int)).max() <= 6
    np.testing.assert_array_equal(stored[4], image.astype(int) * 257)


def test_a_color_png_of_16_bits_is_one_line(tmp_path, capsys):
    color = deep_png(np.stack([DEEP] * 3, -1))
    message = "it is a color PNG of 16 bits, which Pillow reduces to 8: convert it to TIFF"
    with pytest.raises(
        UserError, match=f"=.*/x contains no image that can be read; a.png: {message}"
    ):
        find_data(settings_of(put(tmp_path / "x", a_png=color)))
    path = write_records(tmp_path / "r", [{"image": color}])
    with pytest.raises(UserError, match=f"={path} .*{message}"):
        open_data(settings_of(path, dataset="tfrecord", batch_size=1))
    folder = put(tmp_path / "y", a_png=encoded(ramp(6, 5)), b_png=color)
    assert open_data(settings_of(folder, batch_size=1)).size == 1
    assert "left out: b.png (it is a color PNG of 16 bits" in capsys.readouterr().err


def test_levels_of_16_bits_are_dequantized():
    levels = tf.constant(np.arange(2**16).reshape(1, 256, 256, 1), tf.uint16)
    first = tf.constant(0, tf.int64)
    x = pixels.normalize(Config(), levels, first, bits=16).numpy().astype(np.float64)
    noise = (x + 1) * 2**15 - levels.numpy()
    assert noise.min() >= 0 and noise.max() < 1 and x.min() >= -1 and x.max() < 1
    assert abs(noise.mean() - 0.5) < 0.01 and abs(noise.var() - 1 / 12) < 0.002
    again = pixels.normalize(Config(), tf.cast(levels, tf.float32), first, bits=16)
    np.testing.assert_array_equal(again, x.astype(np.float32))
    plain = pixels.normalize(Config(dequantization=False), levels, first, bits=16)
    exact = (np.arange(2**16) / 32767.5 - 1).astype(np.float32)
    np.testing.assert_allclose(plain.numpy().ravel(), exact, atol=2**-24)
    assert plain.numpy().min() == -1 and plain.numpy().max() == 1


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["device", "off"], indirect=True)
def test_the_device_loop_reads_16_bits(tmp_path, cache):
    random = np.random.default_rng(1)
    images = {
        f"{n}_png": deep_png(random.integers(0, 2**16, [4, 3, 1]).astype(np.uint16))
        for n in range(8)
    }
    folder = put(tmp_path / "x", **images)
    data = open_data(settings_of(folder, batch_size=4, image_channels=1))
    strategy = tf.distribute.get_strategy()
    loop_input = open_loop_input(
        data, strategy, batch_size=4, n_critic=2, steps_per_loop=1, resident=cache == "device"
    )
    if cache == "device":
        assert loop_input.resident_bytes == 8 * 4 * 3 * 2 + 8 * 4
    elements = loop_input.distributed_elements(data, strategy, 0)
    batches = iter(replica_batches(data, tf.distribute.InputContext(), batch_size=4, first_step=0))
    read = tf.function(
        lambda element, step, first: loop_input.reader(element)(step, first), jit_compile=True
    )
    for start in (0, 2):
        element = next(elements)
        for step in range(2):
            first = tf.constant((start + step) * 4, tf.int64)
            examples, _ = read(element, tf.constant(step), first)
            np.testing.assert_array_equal(examples, next(batches)[0])


@pytest.mark.parametrize("dequantization", [True, False])
@pytest.mark.parametrize("bits", [8, 16])
def test_every_level_is_restored(bits, dequantization):
    """Also through the function of an export, and from levels that a critic of an export gets."""
    count = 2**bits
    levels = np.arange(count).repeat(2**19 // count).astype(f"uint{bits}").reshape(8, 256, -1, 1)
    units = pixels.Pixels(bits, dequantization)
    config, first = Config(dequantization=dequantization), tf.constant(0, tf.int64)
    samples = pixels.normalize(config, tf.constant(levels), first, bits=bits).numpy()
    for restored in (samples, levels, units.normalize(levels).numpy()):
        np.testing.assert_array_equal(units.restore(restored), levels)
    assert units.restore(samples).dtype == levels.dtype
    np.testing.assert_array_equal(units.restore_tensor(samples), levels)
    plain = pixels.normalize(Config(dequantization=False), tf.constant(levels), first, bits=bits)
    np.testing.assert_allclose(units.quantize(samples), plain, atol=1e-7)
    np.testing.assert_array_equal(units.plain.restore(plain.numpy()), levels)
    ends = units.restore(np.float32([-2, -1, 1, 2, np.nan, np.inf, -np.inf]))
    assert ends.tolist() == [0, 0, count - 1, count - 1, 0, count - 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "dequantization"), [(8, True), (16, True), (16, False)])
def test_samples_of_a_run_have_the_levels_of_its_data(bits, dequantization, tmp_path):
    image = DEEP[..., None] if bits == 16 else (DEEP[..., None] // 256).astype(np.uint8)
    folder = put(tmp_path / "x", **{f"{n}_png": deep_png(image) for n in range(4)})
    settings = {"data_dir": folder, "image_channels": 1, "dequantization": dequantization}
    settings = {**RECTANGLES, "train_steps": 2, **settings}
    run, found = f"{tmp_path}/True", {}
    for on_device in (True, False):
        with device_loops(on_device):
            _, writer = train_tiny(f"{tmp_path}/{on_device}", **settings)
        ((_, values),) = writer.summaries
        assert all(np.isfinite(value) for value in values.values())
    for kind, output in (("png", "p"), ("grid", "g.png"), ("npz", "n.npz")):
        flags = [f"--model_dir={run}", f"--output={tmp_path}/{output}", "--num_samples=2"]
        assert call_main("--mode=sample", f"--sample_format={kind}", *flags) == 0
    assert call_main("--mode=export", f"--model_dir={run}") == 0

    with np.load(f"{tmp_path}/n.npz") as archive:
        latents, samples = archive["latents"], archive["samples"]
    raw = tf.keras.models.load_model(f"{run}/exported/generator.keras")(latents).numpy()
    largest = 2**bits - 1
    if dequantization:
        levels = np.clip(np.floor((raw.astype(np.float64) + 1) * 2 ** (bits - 1)), 0, largest)
    else:
        levels = np.rint((raw.astype(np.float64) + 1) * largest / 2)
    assert samples.dtype == f"uint{bits}"
    errors = np.abs(samples.astype(int) - levels)  # Keras computes the samples in another batch
    assert errors.max() <= (bits == 16) and (errors > 0).mean() < 0.01
    found["load"] = wgan_gp.load(f"{run}/exported").sample(2)
    signatures = tf.saved_model.load(f"{run}/exported/saved_model").signatures
    given = {"seed": tf.constant(0, tf.int64), "count": tf.constant(2)}
    found["export"] = signatures["seed"](**given)["samples"].numpy()
    found["png"] = np.stack(
        [
            tf.io.decode_png(tf.io.read_file(f"{tmp_path}/p/0000{n}.png"), dtype=samples.dtype)
            for n in range(2)
        ]
    )
    for values in found.values():
        errors = np.abs(values.astype(int) - samples)
        assert errors.max() <= (bits == 16) and (errors > 0).mean() < 0.01
    with PIL.Image.open(f"{tmp_path}/g.png") as grid:
        shown = np.asarray(grid)[::5, ::5][: image.shape[0], : image.shape[1]]
    expected = samples[0, ..., 0] if bits == 8 else np.rint(samples[0, ..., 0] / 257)
    np.testing.assert_array_equal(shown, expected)
    critic = tf.keras.models.load_model(f"{run}/exported/critic.keras")
    normalized = pixels.Pixels(bits, dequantization).normalize(samples)
    scores = signatures["critic"](examples=tf.constant(samples, tf.float32))["scores"]
    np.testing.assert_allclose(scores, critic(normalized)[:, 0], rtol=1e-4, atol=1e-5)


def test_records_keep_16_bits(tmp_path):
    image = np.stack([DEEP, DEEP[::-1], DEEP[:, ::-1]], -1)
    images = [raw_tiff(image), encoded(DEEP, "TIFF")]
    path = write_records(tmp_path / "x", [{"image": content} for content in images])
    data = open_data(settings_of(path, dataset="tfrecord", batch_size=2))
    assert data.format.dtype == tf.uint16 and data.format.shape == (6, 5, 3)
    wanted = [image, np.repeat(DEEP[..., None], 3, 2)]
    np.testing.assert_array_equal(data.stored[0], wanted)


# Channels


MODES = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}


@pytest.mark.parametrize(
    ("mode", "kind"), [("L", "PNG"), ("LA", "TIFF"), ("RGB", "TIFF"), ("RGBA", "PNG")]
)
def test_channels_are_kept_dropped_and_added(tmp_path, kind, mode):
    image = ramp(6, 5, MODES[mode])
    image = image[..., 0] if mode == "L" else image
    folder = put(tmp_path / "x", **{f"a_{kind.lower()}": encoded(image, kind)})
    picture = PIL.Image.fromarray(image)
    for channels, other in ((2, "LA"), (4, "RGBA")):
        data = open_data(settings_of(folder, image_channels=channels, batch_size=1))
        wanted = np.asarray(picture.convert("RGBA").convert(other)).astype(int)
        assert np.abs(data.stored[0][0].numpy() - wanted).max() <= 1
    assert find_data(settings_of(folder)).spec.example_shape == (6, 5, 3)


def test_channels_that_pictures_do_not_have_are_refused(tmp_path):
    folder = put(tmp_path / "x", a_png=encoded(ramp(6, 5)))
    with pytest.raises(UserError, match=r"=5, but the images of .* have 3 channels — give 1"):
        find_data(settings_of(folder, image_channels=5))
    with pytest.raises(UserError, match="--image_channels=2 does not apply to --dataset=digits"):
        find_data(Config(image_channels=2))


# TIFF files that Pillow cannot read


def raw_tiff(image, orientation=1, sample_format=1):
    """Returns an uncompressed TIFF file of any number of channels, as the specification says."""
    height, width, channels = image.shape
    bits = np.full(channels, 8 * image.dtype.itemsize, "<u2").tobytes()
    bits_at, data_at = 8, 8 + max(4, len(bits))
    directory_at = data_at + image.nbytes + image.nbytes % 2
    entries = [(256, 4, 1, width), (257, 4, 1, height)]
    entries += [(258, 3, channels, bits_at if channels > 2 else int.from_bytes(bits, "little"))]
    entries += [(259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, data_at), (274, 3, 1, orientation)]
    entries += [(277, 3, 1, channels), (278, 4, 1, height), (279, 4, 1, image.nbytes)]
    entries += [(339, 3, 1, sample_format)]
    directory = struct.pack("<H", len(entries))
    directory += b"".join(struct.pack("<HHII", *entry) for entry in entries) + bytes(4)
    head = b"II*\0" + struct.pack("<I", directory_at) + bits.ljust(max(4, len(bits)), b"\0")
    return head + image.tobytes() + bytes(image.nbytes % 2) + directory


EIGHT = np.random.default_rng(2).integers(0, 2**16, [6, 5, 8]).astype("<u2")


@pytest.mark.parametrize(
    ("planes", "cache"), [("contig", "on"), ("separate", "off")], indirect=["cache"]
)
def test_many_channels_are_read_by_tifffile(tmp_path, planes, cache):
    content = raw_tiff(EIGHT, orientation=6)
    if planes == "separate":
        import tifffile  # noqa: PLC0415

        file, turned = io.BytesIO(), [(274, "H", 1, 6, True)]
        planar = {"photometric": "minisblack", "planarconfig": "separate", "extratags": turned}
        tifffile.imwrite(file, np.moveaxis(EIGHT, -1, 0), **planar)
        content = file.getvalue()
    folder = put(tmp_path / "x", a_tiff=content)
    data = open_data(settings_of(folder))
    assert data.format.shape == (5, 6, 8) and data.format.dtype == tf.uint16
    examples, _ = data.read(1)
    np.testing.assert_array_equal(levels_of(examples[0], 16), np.rot90(EIGHT, -1))
    with pytest.raises(UserError, match=r"=3, but the images of .* have 8 channels — give 1"):
        find_data(settings_of(folder, image_channels=3))


@pytest.mark.parametrize(
    ("image", "sample_format", "message"),
    [
        (EIGHT, 1, "a.tif: it is a TIFF that Pillow cannot read exactly: pip install tifffile"),
        (EIGHT[..., :3], 1, "a.tif: it is a TIFF that Pillow cannot read exactly: pip install tif"),
        (
            EIGHT[..., :1].view("<i2"),
            2,
            "a.tif: it is a TIFF of other levels than unsigned integers",
        ),
        (EIGHT[..., :2].copy().view("<u4"), 1, "a.tif: it is a TIFF of other levels than unsigned"),
    ],
)
def test_other_tiff_files_are_refused(tmp_path, monkeypatch, image, sample_format, message):
    monkeypatch.setitem(sys.modules, "tifffile", None)  # it is not installed
    folder = put(tmp_path / "x", a_tif=raw_tiff(image, sample_format=sample_format))
    with pytest.raises(UserError, match=message):
        find_data(settings_of(folder))


def test_damaged_tiff_files_are_left_out(tmp_path, capsys):
    content = raw_tiff(ramp(6, 5, 1))
    files = {f"{n}_tif": content[:n] for n in (0, 4, 8, 20, 60)}
    folder = put(tmp_path / "x", a_tif=content, b_png=content, **files)
    assert open_data(settings_of(folder, image_channels=1)).size == 2
    assert f"{len(files)} of {len(files) + 2} examples cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_gray_of_16_bits_is_turned_upright(orientation):
    """Pillow reads it exactly."""
    content = raw_tiff(DEEP[..., None], orientation=orientation)
    turned = {1: DEEP, 3: DEEP[::-1, ::-1], 6: np.rot90(DEEP, -1)}[orientation][..., None]
    assert decoding.read_header(content, "a").size == turned.shape[:2]
    np.testing.assert_array_equal(decoding.decode(content, Form(turned.shape, 16)), turned)


def test_tifffile_reads_what_pillow_cannot(tmp_path):
    import tifffile  # noqa: PLC0415

    for channels, dtype in ((3, np.uint16), (5, np.uint8), (16, np.uint16)):
        image = EIGHT.repeat(2, axis=2)[..., :channels].astype(dtype)
        path = tmp_path / f"{channels}.tif"
        tifffile.imwrite(path, image, photometric="minisblack", planarconfig="contig")
        form = Form(image.shape, 8 * image.dtype.itemsize)
        np.testing.assert_array_equal(decoding.decode(path.read_bytes(), form), image)
