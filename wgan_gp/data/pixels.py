"""From the bytes of a picture to grey levels, and from grey levels to what a critic sees."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from ..config import Config
from ..randomness import Stream, uncorrelated_bits, uniform

# A file of a few hundred kilobytes can say that it holds more, and many are decoded at once: they
# would take all memory. So much is 400 MB, decoded.
MOST_PIXELS = 2**27
# A JPEG is decoded at this fraction of its size, where that leaves pixels enough.
_JPEG_RATIOS = (1, 2, 4, 8)


def decode(encoded: tf.Tensor, example_shape: tuple[int, ...]) -> tf.Tensor:
    """A JPEG, PNG, BMP or GIF (its first frame), cropped to its middle square and resized.

    Making it smaller averages over all pixels that a new one covers: without, a small copy
    of a photograph is noise that a critic learns.

    Args:
      encoded: scalar string, the file's content.
      example_shape: `(S, S, C)`, C 1 (grey) or 3.

    Returns:
      `[S, S, C]` uint8.

    Raises:
      tf.errors.InvalidArgumentError: it is none of these, or damaged, or of more than MOST_PIXELS.
    """
    side, _, channels = example_shape
    square = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: _decode_jpeg(encoded, side),
        lambda: _decode_other(encoded, side),
    )
    if channels == 1:
        square = tf.image.rgb_to_grayscale(square)
    # Less than two pixels to a new one are left: bilinear, which weighs them all.
    return tf.ensure_shape(_rounded(tf.image.resize(square, [side, side])), example_shape)


def _decode_jpeg(encoded: tf.Tensor, side: int) -> tf.Tensor:
    """Its middle square, in colour, of less than twice `side` pixels a side.

    At a half, a quarter or an eighth of its size a JPEG is quick to decode, and averaged.
    """
    size = tf.image.extract_jpeg_shape(encoded)[:2]
    with tf.control_dependencies([_check_size(size)]):
        size = tf.identity(size)
    enough = tf.reduce_min(size) >= [2 * side * ratio for ratio in _JPEG_RATIOS]
    halvings = tf.reduce_sum(tf.cast(enough, tf.int32))
    # What is not of the square is not decoded at all.
    window = _middle_square(-(-size // tf.gather([*_JPEG_RATIOS, _JPEG_RATIOS[-1]], halvings)))

    def at(ratio: int) -> tf.Tensor:
        # In colour, because libjpeg makes no grey of CMYK.
        return tf.image.decode_and_crop_jpeg(encoded, window, channels=3, ratio=ratio)

    return tf.switch_case(
        halvings,
        [
            *(functools.partial(at, ratio) for ratio in _JPEG_RATIOS),
            lambda: _reduced(at(_JPEG_RATIOS[-1]), side),
        ],
    )


# One operation to those who do not need it: the nodes of a branch not taken cost time.
@tf.function(experimental_attributes={"_noinline": True}, autograph=False)
def _decode_other(encoded: tf.Tensor, side: int) -> tf.Tensor:
    """The same of other formats, whose channels are one or three, with or without alpha."""
    with tf.control_dependencies([_check_palette(encoded), _check_size(_stated_size(encoded))]):
        encoded = tf.identity(encoded)
    image = tf.io.decode_image(encoded, expand_animations=False)
    size = tf.shape(image)
    square = tf.image.crop_to_bounding_box(image, *tf.unstack(_middle_square(size[:2])))
    is_colour = tf.cast(size[2] >= 3, tf.int32)
    square = tf.gather(square, is_colour * [0, 1, 2], axis=2)
    square.set_shape([None, None, 3])
    return tf.cond(tf.shape(square)[0] >= 2 * side, lambda: _reduced(square, side), lambda: square)


def _stated_size(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the two sides `[2]` int32 that the head of a PNG, BMP or GIF states."""

    def at(first: int, count: int, dtype: tf.DType, little_endian: bool = True) -> tf.Tensor:
        sides = tf.io.decode_raw(tf.strings.substr(encoded, first, count), dtype, little_endian)
        return tf.abs(tf.cast(sides, tf.int32))  # a BMP may be upside down, of negative height

    kind = tf.strings.substr(encoded, 0, 2)
    return tf.case(
        [
            (kind == b"BM", lambda: at(18, 8, tf.int32)),
            (kind == b"GI", lambda: at(6, 4, tf.uint16)),
        ],
        default=lambda: at(16, 8, tf.int32, little_endian=False),
    )


def _check_size(size: tf.Tensor) -> tf.Operation:
    """Fails for a picture of more than MOST_PIXELS."""
    count = tf.reduce_prod(tf.cast(size, tf.int64))
    return tf.debugging.Assert(count <= MOST_PIXELS, ["a picture of too many pixels"])


def _check_palette(encoded: tf.Tensor) -> tf.Operation:
    """Fails for a BMP with a palette other than grey levels, which TensorFlow passes over."""

    def is_sound() -> tf.Tensor:
        head = tf.cast(tf.io.decode_raw(tf.strings.substr(encoded, 0, 30), tf.uint8), tf.int32)
        # Behind the file's header, 14 bytes, and the picture's, whose length it says itself.
        begin = 14 + head[14] + 256 * head[15]
        bits_per_pixel = head[28]
        return tf.cond(bits_per_pixel > 8, lambda: True, lambda: is_grey(begin))

    def is_grey(begin: tf.Tensor) -> tf.Tensor:
        palette = tf.io.decode_raw(tf.strings.substr(encoded, begin, 4 * 256), tf.uint8)
        colours = tf.cast(tf.reshape(palette, [256, 4])[:, :3], tf.int32)
        return tf.reduce_all(colours == tf.range(256)[:, None])

    is_bmp = tf.strings.substr(encoded, 0, 2) == b"BM"
    return tf.debugging.Assert(
        tf.cond(is_bmp, is_sound, lambda: True), ["a BMP with a palette of colours"]
    )


def _middle_square(size: tf.Tensor) -> tf.Tensor:
    """Top, left, height and width, of an image of height and width `size`."""
    square = tf.minimum(size, size[::-1])
    return tf.concat([(size - square) // 2, square], axis=0)


def _reduced(square: tf.Tensor, side: int) -> tf.Tensor:
    """Each pixel the mean of the area that it covers."""
    return _rounded(tf.image.resize(square, [side, side], method="area"))


def _rounded(levels: tf.Tensor) -> tf.Tensor:
    return tf.cast(levels + 0.5, tf.uint8)


def finish(config: Config, levels: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Grey levels as numbers in [-1, 1], mirrored by the toss of a coin where that is asked for.

    Grey levels x in 0 ... 255 become 2 (x / 256 - 1/2) + u with u uniform on [0, 1/128), drawn
    anew at every use: within [-1, 1), and no step is left for a critic to see. So does the code
    of Gulrajani et al. 2017 (arXiv:1704.00028). Without --dequantization: x / 127.5 - 1.

    Args:
      config: of the run.
      levels: `[B, H, W, C]` uint8.
      first: position of the first, scalar int64.

    Returns:
      `[B, H, W, C]` float32.
    """
    images = flipped(config, tf.cast(levels, tf.float32), first)
    if not config.dequantization:
        return images / 127.5 - 1
    count, *rest = levels.shape
    words = uncorrelated_bits(
        config.seed, Stream.DEQUANTIZATION, first=first, count=count, size=int(np.prod(rest))
    )
    # 16 bits, as fine as float32 is beside 1: so the sum is exact, and stays below 1.
    high = tf.bitcast(tf.bitwise.right_shift(words, tf.constant(16, tf.uint32)), tf.int32)
    noise = tf.reshape(tf.cast(high, tf.float32), levels.shape)
    return images * 2.0**-7 + (noise * 2.0**-23 - 1)


def flipped(config: Config, images: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Every image or its mirror image, as (seed, position) says; all as they are unless asked."""
    if not config.random_flips:
        return images
    coin = uniform(config.seed, Stream.FLIPS, step=0, first=first, count=images.shape[0], size=1)
    return tf.where(coin[:, :, None, None] < 0.5, images[:, :, ::-1], images)
