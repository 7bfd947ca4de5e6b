"""Decodes image files, and normalizes images to the range of the critic."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from ...config import DataSettings
from ...runtime.randomness import RngStream, uncorrelated_bits, uniform
from . import channels, tiff
from .headers import ImageForm
from .orientation import UPRIGHT, find_orientation, is_transposed, make_upright
from .resizing import central_window, count_larger, crop, reduce, reduce_if_large, round_to

# The limit protects the memory: a file of a few hundred kilobytes can declare more pixels than
# this, and many files are decoded in parallel. This many pixels take 400 MB when decoded.
MAX_PIXELS = 2**27
BMP_SIGNATURE = b"BM"  # the first bytes of a BMP file
# The divisors by which libjpeg can reduce a JPEG while decoding.
_JPEG_RATIOS = (1, 2, 4, 8)


def decode(encoded: tf.Tensor, form: ImageForm) -> tf.Tensor:
    """Decodes a JPEG, PNG, GIF (first frame) or TIFF, crops its center and resizes it.

    The center is the largest central window that has the aspect ratio of the result. Downsampling
    averages over all pixels that a new pixel covers. Otherwise aliasing would add noise, which the
    critic would learn.

    Args:
      encoded: The content of the file, scalar string.
      form: The shape `(H, W, C)` and the number of bits of the result. C is 1 (gray), 2 (gray and
        alpha), 3 (RGB), 4 (RGB and alpha) or the number of channels of a TIFF.

    Returns:
      `[H, W, C]` uint8 or uint16.

    Raises:
      tf.errors.InvalidArgumentError: If the file has another format, is damaged or has more than
        MAX_PIXELS pixels.
    """
    height, width, count = form.shape
    sides = height, width

    def decode_colors() -> tf.Tensor:
        window = tf.cond(
            tf.io.is_jpeg(encoded),
            lambda: _decode_jpeg(encoded, sides),
            lambda: _decode_other(encoded, sides),
        )
        return tf.image.rgb_to_grayscale(window) if count == 1 else window

    def decode_any() -> tf.Tensor:
        return _decode_any(encoded, form)

    if form.bits > 8 or count not in (1, 3):
        window = decode_any()
    elif form.has_tiff:
        window = tf.cond(tiff.begins_as_tiff(encoded), decode_any, decode_colors)
    else:
        window = decode_colors()
    # The factor is now less than 2, where bilinear interpolation uses all pixels.
    resized = tf.image.resize(window, sides)
    return tf.ensure_shape(round_to(dtype_of(form), resized), form.shape)


def dtype_of(form: ImageForm) -> tf.DType:
    """Returns the dtype of decoded images, tf.uint8 or tf.uint16."""
    return tf.uint16 if form.bits > 8 else tf.uint8


def is_cropped(encoded: tf.Tensor, form: ImageForm) -> tf.Tensor:
    """Returns True if `decode` crops an image; see `shapes.is_cropped`. Reads only its header."""

    def size_of_other() -> tf.Tensor:
        def size() -> tf.Tensor:
            return _header_size(encoded)[::-1]

        if not form.has_tiff:
            return size()
        is_tiff = tiff.begins_as_tiff(encoded)
        return tf.cond(is_tiff, lambda: tiff.decode_size(encoded), size)

    size = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: _turned(tf.image.extract_jpeg_shape(encoded)[:2], find_orientation(encoded)),
        size_of_other,
    )
    target = form.shape[:2]
    kept = tf.cast(central_window(size, target)[2:], tf.int64)
    return tf.reduce_any((tf.cast(size, tf.int64) - kept) * target >= kept)


def _decode_jpeg(encoded: tf.Tensor, target: tuple[int, int]) -> tf.Tensor:
    """Returns the central window of a JPEG as RGB, less than twice as large as the target."""
    orientation = find_orientation(encoded)
    return tf.cond(
        orientation == UPRIGHT,
        lambda: _decode_upright(encoded, target),
        lambda: _decode_turned(encoded, orientation, target),
    )


def _decode_upright(encoded: tf.Tensor, target: tuple[int, int]) -> tf.Tensor:
    """Returns the central window of a JPEG, as stored.

    libjpeg decodes at a half, a quarter or an eighth of the size quickly and with averaging.
    """
    size = tf.image.extract_jpeg_shape(encoded)[:2]
    with tf.control_dependencies([_check_size(size)]):
        size = tf.identity(size)
    halvings = count_larger(size, target, _JPEG_RATIOS)
    # Pixels outside the window are not decoded.
    reduced = -(-size // tf.gather([*_JPEG_RATIOS, _JPEG_RATIOS[-1]], halvings))
    window = central_window(reduced, target)

    def at(ratio: int) -> tf.Tensor:
        # The result is RGB, because libjpeg cannot convert CMYK to grayscale.
        return tf.image.decode_and_crop_jpeg(encoded, window, channels=3, ratio=ratio)

    return tf.switch_case(
        halvings,
        [
            *(functools.partial(at, ratio) for ratio in _JPEG_RATIOS),
            lambda: reduce(at(_JPEG_RATIOS[-1]), target),
        ],
    )


# Not inlined, because for other images the nodes of a branch that is not taken cost time.
@tf.function(experimental_attributes={"_noinline": True}, autograph=False)
def _decode_turned(
    encoded: tf.Tensor, orientation: tf.Tensor, target: tuple[int, int]
) -> tf.Tensor:
    """Returns the central window of a JPEG after it was turned upright.

    The whole image is decoded. It is cropped later, because its margins may be unequal by a pixel.
    """
    size = _turned(tf.image.extract_jpeg_shape(encoded)[:2], orientation)
    with tf.control_dependencies([_check_size(size)]):
        halvings = count_larger(size, target, _JPEG_RATIOS)
    ratios = [*_JPEG_RATIOS, _JPEG_RATIOS[-1]]
    image = tf.switch_case(
        halvings,
        [
            functools.partial(tf.image.decode_jpeg, encoded, channels=3, ratio=ratio)
            for ratio in ratios
        ],
    )
    return reduce_if_large(crop(make_upright(image, orientation), target), target)


# Not inlined, for the same reason.
@tf.function(experimental_attributes={"_noinline": True}, autograph=False)
def _decode_other(encoded: tf.Tensor, target: tuple[int, int]) -> tf.Tensor:
    """Returns the central window of a PNG or GIF as RGB, as `_decode_jpeg` does for a JPEG.

    The image has one or three channels, with or without alpha, which is dropped.
    """
    with tf.control_dependencies([check_not_bmp(encoded), _check_size(_header_size(encoded))]):
        encoded = tf.identity(encoded)
    window = crop(tf.io.decode_image(encoded, expand_animations=False), target)
    is_color = tf.cast(tf.shape(window)[2] >= 3, tf.int32)
    window = tf.gather(window, is_color * [0, 1, 2], axis=2)
    window.set_shape([None, None, 3])
    return reduce_if_large(window, target)


@tf.function(experimental_attributes={"_noinline": True}, autograph=False)
def _decode_any(encoded: tf.Tensor, form: ImageForm) -> tf.Tensor:
    """Returns the central window of an image of any format, depth and number of channels."""
    dtype = dtype_of(form)

    def decode_jpeg() -> tf.Tensor:
        with tf.control_dependencies([_check_size(tf.image.extract_jpeg_shape(encoded)[:2])]):
            image = tf.image.decode_jpeg(encoded, channels=3)
        return channels.to_dtype(make_upright(image, find_orientation(encoded)), dtype)

    def decode_other() -> tf.Tensor:
        with tf.control_dependencies([check_not_bmp(encoded), _check_size(_header_size(encoded))]):
            checked = tf.identity(encoded)
        return tf.cond(
            tf.strings.substr(checked, 0, 4) == b"\x89PNG",
            lambda: tf.image.decode_png(checked, dtype=dtype),
            lambda: channels.to_dtype(tf.io.decode_image(checked, expand_animations=False), dtype),
        )

    def decode_tiff() -> tf.Tensor:
        if not form.has_tiff:
            return decode_other()
        return tf.cond(
            tiff.begins_as_tiff(encoded),
            lambda: tiff.decode(encoded, dtype, MAX_PIXELS),
            decode_other,
        )

    image = tf.cond(tf.io.is_jpeg(encoded), decode_jpeg, decode_tiff)
    target = form.shape[0], form.shape[1]
    window = channels.convert(crop(image, target), form.shape[2])
    return reduce_if_large(window, target)


def _turned(size: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Returns height and width of an image after it was turned upright."""
    return tf.cond(is_transposed(orientation), lambda: size[::-1], lambda: size)


def _header_size(encoded: tf.Tensor) -> tf.Tensor:
    """Returns width and height `[2]` int32, in the header of a PNG or GIF."""

    def sides_at(first: int, count: int, dtype: tf.DType, little_endian: bool) -> tf.Tensor:
        sides = tf.io.decode_raw(tf.strings.substr(encoded, first, count), dtype, little_endian)
        return tf.cast(sides, tf.int32)

    return tf.cond(
        tf.strings.substr(encoded, 0, 2) == b"GI",
        lambda: sides_at(6, 4, tf.uint16, little_endian=True),
        lambda: sides_at(16, 8, tf.int32, little_endian=False),
    )


def _check_size(size: tf.Tensor) -> tf.Operation:
    """Asserts that an image has at most MAX_PIXELS pixels."""
    count = tf.reduce_prod(tf.cast(size, tf.int64))
    return tf.debugging.Assert(count <= MAX_PIXELS, ["the image has too many pixels"])


def check_not_bmp(encoded: tf.Tensor) -> tf.Operation:
    """Asserts that an image is not a BMP, of which TensorFlow ignores the color palette."""
    is_other = tf.strings.substr(encoded, 0, 2) != BMP_SIGNATURE
    return tf.debugging.Assert(is_other, ["BMP images are not supported"])


def normalize(
    settings: DataSettings, levels: tf.Tensor, first: tf.Tensor, *, bits: int = 8
) -> tf.Tensor:
    """Normalizes images to [-1, 1], with dequantization and random flips if configured.

    Dequantization maps a level x in 0 ... 255 to 2 (x / 256 - 1/2) + u, with u drawn uniformly
    from [0, 1/128) at every use. The result is in [-1, 1) and has no discrete levels that the
    critic could detect, as in the code of Gulrajani et al. 2017 (arXiv:1704.00028). With
    --nodequantization, the result is x / 127.5 - 1. For 16 bits, 65536 replaces 256, 1/32768
    replaces 1/128, and 32767.5 replaces 127.5.

    Args:
      settings: The seed, --dequantization and --random_flips.
      levels: `[B, H, W, C]`, integers of any dtype in 0 ... 2^bits - 1.
      first: The position of the first image, scalar int64.
      bits: 8 or 16.

    Returns:
      `[B, H, W, C]` float32.
    """
    images = flip(settings, tf.cast(levels, tf.float32), first)
    if not settings.dequantization:
        # 1 / 127.5 is 2^-7 + 2^-15 + 2^-23 + 2^-31 and so on. These products are exact, so all
        # devices compute the same result. A division would be rounded differently under XLA.
        if bits > 8:  # 1 / 32767.5 is 2^-15 + 2^-31 and so on
            return (images * 2.0**-15 - 1) + images * 2.0**-31
        return (images * (2.0**-7 + 2.0**-15) - 1) + images * (2.0**-23 + 2.0**-31)
    count, *rest = levels.shape
    words = uncorrelated_bits(
        settings.seed, RngStream.DEQUANTIZATION, first=first, count=count, size=int(np.prod(rest))
    )
    # Steps of 2^-23 match the resolution of float32 near 1, so the sum is exact and stays below 1.
    # They leave 16 random bits below a level of 8 bits, and 8 below a level of 16 bits.
    high = tf.bitcast(tf.bitwise.right_shift(words, tf.constant(8 + bits, tf.uint32)), tf.int32)
    noise = tf.reshape(tf.cast(high, tf.float32), levels.shape)
    return images * 2.0 ** (1 - bits) + (noise * 2.0**-23 - 1)


def flip(settings: DataSettings, images: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Mirrors half of the images under --random_flips, as a function of (seed, position)."""
    if not settings.random_flips:
        return images
    coin = uniform(
        settings.seed, RngStream.FLIPS, step=0, first=first, count=images.shape[0], size=1
    )
    return tf.where(coin[:, :, None, None] < 0.5, images[:, :, ::-1], images)
