"""Decodes image files to uint8 images, and normalizes them to the range of the critic."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from ..config import DataSettings
from ..runtime.randomness import RngStream, uncorrelated_bits, uniform

# The limit protects the memory: a file of a few hundred kilobytes can declare more pixels than
# this, and many files are decoded in parallel. This many pixels take 400 MB when decoded.
MAX_PIXELS = 2**27
BMP_SIGNATURE = b"BM"  # the first bytes of a BMP file
# The divisors by which libjpeg can reduce a JPEG while decoding.
_JPEG_RATIOS = (1, 2, 4, 8)


def decode(encoded: tf.Tensor, example_shape: tuple[int, ...]) -> tf.Tensor:
    """Decodes a JPEG, PNG or GIF (first frame), crops its center square and resizes it.

    Downsampling averages over all pixels that a new pixel covers. Otherwise aliasing would add
    noise, which the critic would learn.

    Args:
      encoded: The content of the file, scalar string.
      example_shape: `(S, S, C)`, where C is 1 (grayscale) or 3 (RGB).

    Returns:
      `[S, S, C]` uint8.

    Raises:
      tf.errors.InvalidArgumentError: If the file has another format, is damaged or has more than
        MAX_PIXELS pixels.
    """
    side, _, channels = example_shape
    square = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: _decode_jpeg(encoded, side),
        lambda: _decode_other(encoded, side),
    )
    if channels == 1:
        square = tf.image.rgb_to_grayscale(square)
    # The factor is now less than 2, where bilinear interpolation uses all pixels.
    return tf.ensure_shape(_rounded(tf.image.resize(square, [side, side])), example_shape)


def _decode_jpeg(encoded: tf.Tensor, side: int) -> tf.Tensor:
    """Returns the center square of a JPEG as RGB, with sides of less than twice `side` pixels.

    libjpeg decodes at a half, a quarter or an eighth of the size quickly and with averaging.
    """
    size = tf.image.extract_jpeg_shape(encoded)[:2]
    with tf.control_dependencies([_check_size(size)]):
        size = tf.identity(size)
    enough = tf.reduce_min(size) >= [2 * side * ratio for ratio in _JPEG_RATIOS]
    halvings = tf.reduce_sum(tf.cast(enough, tf.int32))
    # Pixels outside the square are not decoded.
    window = _middle_square(-(-size // tf.gather([*_JPEG_RATIOS, _JPEG_RATIOS[-1]], halvings)))

    def at(ratio: int) -> tf.Tensor:
        # The result is RGB, because libjpeg cannot convert CMYK to grayscale.
        return tf.image.decode_and_crop_jpeg(encoded, window, channels=3, ratio=ratio)

    return tf.switch_case(
        halvings,
        [
            *(functools.partial(at, ratio) for ratio in _JPEG_RATIOS),
            lambda: _reduced(at(_JPEG_RATIOS[-1]), side),
        ],
    )


# Not inlined, because for other images the nodes of a branch that is not taken cost time.
@tf.function(experimental_attributes={"_noinline": True}, autograph=False)
def _decode_other(encoded: tf.Tensor, side: int) -> tf.Tensor:
    """Returns the center square of a PNG or GIF as RGB, as `_decode_jpeg` does for a JPEG.

    The image has one or three channels, with or without alpha, which is dropped.
    """
    with tf.control_dependencies([check_not_bmp(encoded), _check_size(_header_size(encoded))]):
        encoded = tf.identity(encoded)
    image = tf.io.decode_image(encoded, expand_animations=False)
    size = tf.shape(image)
    square = tf.image.crop_to_bounding_box(image, *tf.unstack(_middle_square(size[:2])))
    is_color = tf.cast(size[2] >= 3, tf.int32)
    square = tf.gather(square, is_color * [0, 1, 2], axis=2)
    square.set_shape([None, None, 3])
    return tf.cond(tf.shape(square)[0] >= 2 * side, lambda: _reduced(square, side), lambda: square)


def _header_size(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the two sides `[2]` int32 in the header of a PNG or GIF."""

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


def _middle_square(size: tf.Tensor) -> tf.Tensor:
    """Returns top, left, height and width of the center square of an image of shape `size`."""
    square = tf.minimum(size, size[::-1])
    return tf.concat([(size - square) // 2, square], axis=0)


def _reduced(square: tf.Tensor, side: int) -> tf.Tensor:
    """Returns a square image resized to `side` by averaging over areas."""
    return _rounded(tf.image.resize(square, [side, side], method="area"))


def _rounded(images: tf.Tensor) -> tf.Tensor:
    return tf.cast(images + 0.5, tf.uint8)


def normalize(settings: DataSettings, uint8_images: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Normalizes images to [-1, 1], with dequantization and random flips if configured.

    Dequantization maps a level x in 0 ... 255 to 2 (x / 256 - 1/2) + u, with u drawn uniformly
    from [0, 1/128) at every use. The result is in [-1, 1) and has no discrete levels that the
    critic could detect, as in the code of Gulrajani et al. 2017 (arXiv:1704.00028). With
    --nodequantization, the result is x / 127.5 - 1.

    Args:
      settings: The seed, --dequantization and --random_flips.
      uint8_images: `[B, H, W, C]` uint8.
      first: The position of the first image, scalar int64.

    Returns:
      `[B, H, W, C]` float32.
    """
    images = flip(settings, tf.cast(uint8_images, tf.float32), first)
    if not settings.dequantization:
        # 1 / 127.5 is 2^-7 + 2^-15 + 2^-23 + 2^-31 and so on. These products are exact, so all
        # devices compute the same result. A division would be rounded differently under XLA.
        return (images * (2.0**-7 + 2.0**-15) - 1) + images * (2.0**-23 + 2.0**-31)
    count, *rest = uint8_images.shape
    words = uncorrelated_bits(
        settings.seed, RngStream.DEQUANTIZATION, first=first, count=count, size=int(np.prod(rest))
    )
    # 16 bits match the resolution of float32 near 1, so the sum is exact and stays below 1.
    high = tf.bitcast(tf.bitwise.right_shift(words, tf.constant(16, tf.uint32)), tf.int32)
    noise = tf.reshape(tf.cast(high, tf.float32), uint8_images.shape)
    return images * 2.0**-7 + (noise * 2.0**-23 - 1)


def flip(settings: DataSettings, images: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Mirrors half of the images under --random_flips, as a function of (seed, position)."""
    if not settings.random_flips:
        return images
    coin = uniform(
        settings.seed, RngStream.FLIPS, step=0, first=first, count=images.shape[0], size=1
    )
    return tf.where(coin[:, :, None, None] < 0.5, images[:, :, ::-1], images)
