"""Decoding of single pictures, judged by Pillow, by TensorFlow and by files of other programs."""

import base64
import concurrent.futures
import io
import subprocess
import sys

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf

from wgan_gp.data.sources import decode as decoding
from wgan_gp.data.sources.decode import Form, central_window, decode, read_header
from wgan_gp.data.sources.encoded import Unreadable
from wgan_gp.errors import UserError

MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
EXACT = {"WEBP": {"lossless": True}, "AVIF": {"quality": 100}}
KINDS = {
    "JPEG": ["L", "RGB", "CMYK"],
    "PNG": ["1", "L", "LA", "P", "RGB", "RGBA"],
    "GIF": ["L", "P"],
    "WEBP": ["RGB", "RGBA"],
    "BMP": ["1", "L", "P", "RGB"],
    "TIFF": ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"],
    "AVIF": ["RGB", "RGBA"],
    "PPM": ["1", "L", "RGB"],
}

# Written by Java 17's ImageIO: 9 rows y and 13 columns x of the color (19 x, 28 y, 2 x y).
JAVA = {
    "BMP of 16 bits": "Qk0"
    "+AQAAAAAAAEIAAAAoAAAADQAAAAkAAAABABAAAwAAAPwAAAAAAAAAAAAAAAAAAAADAAAAAPgAAO"
    "AHAAAfAAAA4AbiFuQu5j7oTupm7HbuhvCW8q7zvvXO9+YAAAAGAhYDLgU+B04JZgp2DIYOlg+uEb4TzhTmAABABUEVQy1E"
    "PUZNR2VJdUqFTJVNrU+9UM1S5QAAYARhFGIsZDxlTGZkZ3RphGqUa6xsvG3Mb+QAAIADgROCK4M7hEuFY4Zzh4OIk4mrir"
    "uLy4zjAACgAqESoSqiOqNKpGKkcqWCppKnqqe6qMqp4gAAwAHAEcEpwTnCScJhw3HDgcSRxKnFucXJxuEAAOAA4BDgKOE4"
    "4UjhYOFw4oDikOKo4rjjyOPgAAAAAAAQACgAOABIAGAAcACAAJAAqAC4AMgA4AAA",
    "PNG": "iVBORw0KGgoAAAANSUhEUgAAAA0AAAAJCAIAAABmGDE9AAABNUlEQVR4Xg3KoUqEMQAH8D8icsghhzvkC0MuHOM"
    "4DB8G2eCCGOTCwoUFsewQo8hYuiQG1xaMw2QcrPgEw7AX2Bss7EH0l38AQAAGCEACGrCAAwKQgAxUoP8nUBB6xOixoCeST"
    "jQ9tXTq6Fmgs0TPM51XetHpAHAQfsz4RPCp5DPN55YPjtPAF4kvM19VftX5CCgQdcLUVKhzqQatLq1aOrUOakzqJqtNVXd"
    "dbQEDYibMzIQZpFlos7JmdIYHc5vMNptdNQ/d7AEP4k+Znwt/Kf1K+2vrN87fB79L/jH75+pfuz8AESROWRxEXMo46rixc"
    "euiCnGf4kuOhxo/evwECkg5Y4WKspaF63Jvi3LlKRSTylsuvpavXiLQQNqMtYVoo2y3uu1s27tmQntP7TO379p+evv9Ax8"
    "BfTv963b1AAAAAElFTkSuQmCC",
}


def photo(height, width):
    """Returns a smooth picture without symmetry, which JPEG nearly preserves."""
    y, x = np.mgrid[:height, :width] / max(height, width)
    waves = [np.sin(9 * x + 5 * y), np.cos(13 * y * x), np.sin(30 * x * x)]
    return (127 + 100 * np.stack(waves, 2)).astype(np.uint8)


def noise(height, width, channels, dtype=np.uint8):
    top = np.iinfo(dtype).max
    return np.random.default_rng(0).integers(0, top, (height, width, channels), dtype, True)


def encoded(image, kind, **options):
    file = io.BytesIO()
    if isinstance(image, np.ndarray):
        image = PIL.Image.fromarray(image)
    image.save(file, kind, **options)
    return file.getvalue()


def difference(first, second):
    return np.abs(np.asarray(first, np.float64) - np.asarray(second, np.float64))


@pytest.mark.parametrize("channels", MODES)
@pytest.mark.parametrize(("kind", "mode"), [(k, m) for k, modes in KINDS.items() for m in modes])
def test_each_kind_has_the_pixels_of_pillow(kind, mode, channels):
    image = PIL.Image.fromarray(noise(9, 13, 4), "RGBA").convert("RGB" if mode == "P" else "RGBA")
    if kind == "JPEG":
        image = PIL.Image.fromarray(photo(9, 13))
    content = encoded(image.convert(mode), kind, **EXACT.get(kind, {}))
    with PIL.Image.open(io.BytesIO(content)) as opened:
        expected = np.asarray(opened.convert(MODES[channels])).reshape(9, 13, channels)
    # Gray of a JPEG is the channel that the file contains, not a sum of rounded colors.
    most = (2 if kind == "JPEG" else 1) if channels < 3 else 0
    assert difference(decode(content, Form((9, 13, channels))), expected).max() <= most
    deep = decode(content, Form((9, 13, channels), bits=16))
    assert deep.dtype == np.uint16
    assert difference(deep / 257, expected).max() <= max(most, 0)


@pytest.mark.parametrize("name", JAVA)
def test_files_of_java_are_read(name):
    y, x = np.mgrid[:9, :13]
    content = base64.b64decode(JAVA[name])
    image = decode(content, Form((9, 13, 3)))
    expected = np.stack([19 * x, 28 * y, 2 * x * y], 2)
    # A BMP of 16 bits has 5, 6 and 5 bits for the colors.
    assert difference(image, expected).max() <= (8 if "BMP" in name else 0)


def test_all_levels_of_a_gray_png_of_16_bits_are_kept():
    """TensorFlow writes and reads the file with libpng."""
    image = noise(9, 13, 1, np.uint16)
    content = tf.io.encode_png(image).numpy()
    assert (decode(content, Form((9, 13, 1), 16)) == image).all()
    assert read_header(content, "a").bits == 16
    for wanted in (1, 3, 4):
        expected = tf.io.decode_png(content, channels=wanted, dtype=tf.uint16)
        np.testing.assert_array_equal(decode(content, Form((9, 13, wanted), 16)), expected)
        expected = tf.io.decode_png(content, channels=wanted)
        np.testing.assert_array_equal(decode(content, Form((9, 13, wanted))), expected)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize(
    "content",
    [
        *(tf.io.encode_png(noise(9, 13, n, np.uint16)).numpy() for n in (2, 3, 4)),
        b"P6 13 9 65535\n" + noise(9, 13, 3, np.uint16).tobytes(),
    ],
)
def test_colors_of_16_bits_are_not_reduced_without_a_word(content, bits):
    assert read_header(content, "a") is None
    with pytest.raises(Unreadable, match=r"it is a color P.. of 16 bits, .*: convert it to TIFF"):
        decode(content, Form((9, 13, 3), bits))


def test_the_transparent_color_of_a_deep_png_becomes_alpha():
    levels = np.array([[5, 60000]], np.uint16)
    content = encoded(levels, "PNG", transparency=60000)
    assert decode(content, Form((1, 2, 2), 16)).tolist() == [[[5, 65535], [60000, 0]]]


@pytest.mark.parametrize("channels", [1, 3, 4, 6])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_tiffs_of_tifffile_keep_their_levels(channels, dtype):
    import tifffile  # noqa: PLC0415

    image, file = noise(9, 13, channels, dtype), io.BytesIO()
    kind = "rgb" if channels in (3, 4) else "minisblack"
    options = {"planarconfig": "contig"} if channels > 1 else {}
    tifffile.imwrite(file, image.squeeze(), photometric=kind, **options)
    bits = 8 * image.dtype.itemsize
    header = read_header(file.getvalue(), "a")
    assert (header.size, header.channels, header.bits) == ((9, 13), channels, bits)
    assert (decode(file.getvalue(), Form((9, 13, channels), bits)) == image).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 6])
def test_tiffs_whose_zero_is_white_are_inverted(channels, dtype):
    import tifffile  # noqa: PLC0415

    levels = np.arange(12 * channels).reshape(3, 4, channels).astype(dtype)
    file = io.BytesIO()
    options = {"planarconfig": "contig"} if channels > 1 else {}
    tifffile.imwrite(file, levels.squeeze(), photometric="miniswhite", **options)
    form = Form(levels.shape, bits=8 * levels.dtype.itemsize)
    found = decoding.decode(file.getvalue(), form)
    np.testing.assert_array_equal(found, np.iinfo(dtype).max - levels)


def test_inks_of_16_bits_are_not_taken_for_red_green_and_blue():
    import tifffile  # noqa: PLC0415

    file = io.BytesIO()
    tifffile.imwrite(file, np.zeros([4, 4, 4], np.uint16), photometric="separated")
    with pytest.raises(Unreadable, match=r"4 channels of 16 bits that are not red, .*: store RGB"):
        decoding.decode(file.getvalue(), Form((4, 4, 3)))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("target", [(64, 64), (32, 48), (48, 24), (120, 160), (200, 300)])
def test_resizing_is_that_of_pillow(kind, target):
    content = encoded(photo(240, 320), kind, **({"quality": 95} if kind == "JPEG" else {}))
    with PIL.Image.open(io.BytesIO(content)) as opened:
        whole = opened.convert("RGB")
    height, width = central_window((240, 320), target)
    top, left = (240 - height) // 2, (320 - width) // 2
    window = whole.crop((left, top, left + width, top + height))
    expected = window.resize(target[::-1], PIL.Image.Resampling.LANCZOS)
    found = difference(decode(content, Form((*target, 3))), expected)
    assert found.max() <= 2 and found.mean() < 0.3
    found = difference(decode(content, Form((*target, 3), 16)) / 257, expected)
    assert found.max() <= 2.5


def test_reduction_averages_and_does_not_alias():
    """Stripes of one pixel become their mean; picking pixels would keep black or white."""
    stripes = np.tile(np.array([0, 255], np.uint8), (256, 128))
    for content in (encoded(stripes, "PNG"), encoded(stripes, "JPEG", quality=100)):
        image = decode(content, Form((16, 16, 1))).astype(int)  # the filter overshoots at edges
        assert np.abs(image[:, 2:-2] - 127.5).max() <= 2
    deep = tf.io.encode_png((stripes.astype(np.uint16) * 257)[..., None]).numpy()
    image = decode(deep, Form((16, 16, 1), 16))[:, 2:-2] / 65535
    assert np.abs(image - 0.5).max() < 0.01
    assert len(np.unique(decode(deep, Form((24, 24, 1), 16)) % 257)) > 1  # not only 8 bits


def test_transparent_pixels_do_not_color_their_neighbors():
    import tifffile  # noqa: PLC0415

    image = np.zeros((64, 64, 4), np.uint16)
    image[:, ::2] = [60000, 0, 0, 65535]  # red; the pixels between are black and transparent
    for bits in (8, 16):
        file = io.BytesIO()
        tifffile.imwrite(file, image, photometric="rgb", extrasamples=["unassalpha"])
        content = tf.io.encode_png((image >> 8).astype(np.uint8)).numpy()
        content = content if bits == 8 else file.getvalue()
        colors = decode(content, Form((8, 8, 4), bits))
        red = 60000 if bits == 16 else 60000 >> 8
        assert difference(colors[..., 0], red).max() <= red * 0.01


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "AVIF"])
def test_pictures_are_turned_upright(kind, orientation):
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    options = {"JPEG": {"quality": 95}, "AVIF": {"quality": 95}}.get(kind, EXACT.get(kind, {}))
    content = encoded(photo(111, 167), kind, exif=exif, **options)
    with PIL.Image.open(io.BytesIO(content)) as opened:
        upright = PIL.ImageOps.exif_transpose(opened).convert("RGB")
    size = upright.height, upright.width
    assert read_header(content, "a").size == size
    height, width = central_window(size, (24, 20))
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    box = (left, top, left + width, top + height)
    expected = upright.resize((20, 24), PIL.Image.Resampling.LANCZOS, box)
    found = difference(decode(content, Form((24, 20, 3))), expected)
    assert found.max() <= 5 and found.mean() < 0.5  # JPEG stores half of the colors


def test_the_first_frame_of_an_animation_is_used():
    frames = [PIL.Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    for kind in ("GIF", "PNG", "WEBP", "TIFF", "AVIF", "MPO"):
        options = {"save_all": True, "append_images": frames[1:], **EXACT.get(kind, {})}
        image = decode(encoded(frames[0], kind, **options), Form((8, 8, 3)))
        assert difference(image, [255, 0, 0]).max() <= 2, kind


@pytest.mark.parametrize("kind", KINDS)
def test_cut_files_are_unreadable(kind):
    content = encoded(noise(40, 52, 3), kind)
    for end in (0, 1, 8, 30, len(content) // 3, len(content) - len(content) // 10):
        for bits in (8, 16):
            with pytest.raises(Unreadable):
                decode(content[:end], Form((16, 16, 3), bits))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"P5 is a drive", "invalid|not a complete"),
        (encoded(PIL.Image.new("1", (12001, 11200)), "PNG"), "134,411,200 pixels, more than"),
        (encoded(PIL.Image.new("1", (30000, 11000)), "PNG"), r"\(330000000 pixels\) exceeds"),
        (
            encoded(PIL.Image.new("F", (4, 4)), "TIFF"),
            "other levels than unsigned integers of 8 or 16 bits: convert",
        ),
    ],
)
def test_the_reason_is_named(content, reason):
    for bits in (8, 16):
        with pytest.raises(Unreadable, match=reason):
            decode(content, Form((4, 4, 3), bits))


@pytest.mark.slow  # TensorFlow is imported again
def test_large_pictures_are_read_without_a_warning():
    """Pillow itself warns from 89 million pixels on."""
    program = """if True:
        import io, PIL.Image
        from wgan_gp.data.sources import decode
        file = io.BytesIO()
        PIL.Image.new("1", (9500, 9500)).save(file, "PNG")
        print(decode.decode(file.getvalue(), decode.Form((2, 2, 1))).tolist())
        print(PIL.Image.MAX_IMAGE_PIXELS)
    """
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.split("\n")[0] == "[[[0], [0]], [[0], [0]]]", result.stderr
    assert "Warning" not in result.stderr
    assert int(result.stdout.split()[-1]) == 89478485  # Pillow's own limit stays


def test_crop_none_refuses_a_picture_of_another_shape():
    content = encoded(photo(48, 24), "PNG")
    assert decode(content, Form((24, 12, 3), crop="none")).shape == (24, 12, 3)
    for bits in (8, 16):
        with pytest.raises(UserError, match=r"48x24 pixels, and --crop=none .* --image_size=48x24"):
            decode(content, Form((24, 24, 3), bits, crop="none"))


def test_several_threads_decode_the_same_pixels():
    contents = [encoded(photo(60 + n % 7, 80), kind) for n, kind in enumerate([*KINDS] * 6)]
    deep = [tf.io.encode_png(noise(20, 30 + n, 1, np.uint16)).numpy() for n in range(8)]
    form = Form((16, 16, 3), 16)
    expected = [decode(content, form) for content in contents + deep]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda content: decode(content, form), contents + deep))
    assert all((a == b).all() for a, b in zip(expected, found, strict=True))
