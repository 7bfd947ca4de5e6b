"""The form of the pictures of a dataset, and one encoded picture: its header, and its pixels.

Processes that only decode import this module, so it does not import TensorFlow.
Pillow decodes all formats. The package tifffile, which is optional, decodes TIFF files that Pillow
cannot read exactly: of more than four channels, or of 16 bits in color. Other pictures of which
Pillow would drop bits are refused.
"""

from __future__ import annotations

import dataclasses
import io
import logging as std_logging
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import PIL.Image
from absl import logging

from ...config import DataSettings, image_size_of
from ...errors import UserError, naming, printable, reason
from .encoded import Unreadable
from .shapes import (
    MAX_DEFAULT_SIDE,
    central_window,
    default_rectangle,
    default_square,
    image_shape,
    is_cropped,
)

MAX_COLOR_CHANNELS = 4  # red, green, blue and alpha
# A file of a few hundred kilobytes can declare more pixels than this, and many files are decoded in
# parallel. This many pixels take 400 MB when decoded.
MAX_PIXELS = 2**27
MAX_BYTES = 2**30  # of a file; an archive of a few kilobytes can declare more
SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".webp", ".bmp", ".dib", ".tif", ".tiff"),
    *(".avif", ".ppm", ".pgm", ".pbm", ".pnm", ".heic", ".heif"),
)
KINDS = "JPEG, PNG, GIF, WebP, BMP, TIFF, AVIF or PPM"
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "PPM")
_JPEG_FORMATS = ("JPEG", "MPO")  # cameras write several JPEGs into one file, an MPO
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_PNG_DEPTH_AT = 24
# Tags of a TIFF, the last of which is 1 for unsigned integers.
_BITS, _COLORS, _ORIENTATION = 258, 262, 274
_CHANNELS, _FORMAT, _UNSIGNED = 277, 339, 1
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB = 0, 1, 2  # values of the tag of the colors
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # Pillow's name of each number of channels
_LUMA = np.array([299, 587, 114], np.float32) / 1000  # of red, green and blue (ITU-R BT.601)

# The filter with which the tools of StyleGAN and EDM prepare their datasets. Pillow widens it by
# the factor of the reduction, so that all pixels count and nothing aliases (arXiv:2104.11222).
_FILTER = PIL.Image.Resampling.LANCZOS
# A picture is first reduced by averaging whole blocks, to no less than this many times the result.
# Pillow's documentation calls 3 indistinguishable from the filter alone; libjpeg averages better.
_GAP, _JPEG_GAP = 3.0, 2

# The formats are imported here, because several threads would import them at the same time.
PIL.Image.init()
# Pillow warns about large pictures and damaged metadata. Our own messages name what is unreadable,
# and warnings.catch_warnings does not work in threads.
warnings.filterwarnings("ignore", module=r"PIL\.")
std_logging.getLogger("PIL.TiffImagePlugin").setLevel(std_logging.CRITICAL)


@dataclasses.dataclass(frozen=True)
class Form:
    """The form into which the pictures of a dataset are decoded.

    Attributes:
      shape: `(H, W, C)`, to which pictures are cropped and resized.
      bits: 8 for uint8, 16 for uint16.
      crop: The value of --crop.
      exact: Whether pictures of another size are refused, in place of cropping and resizing.
    """

    shape: tuple[int, int, int]
    bits: int = 8
    crop: str = "center"
    exact: bool = False

    @property
    def dtype(self) -> np.dtype:
        """The dtype of decoded pictures."""
        return np.dtype(np.uint16 if self.bits > 8 else np.uint8)


@dataclasses.dataclass(frozen=True)
class Header:
    """The properties of a picture that its header contains.

    Attributes:
      name: The name of the picture for messages.
      size: Height and width of the upright picture, in pixels.
      bits: 16 if its levels have more than 8 bits, else 8.
      channels: The number of channels; 3 for a picture with a palette.
    """

    name: str
    size: tuple[int, int]
    bits: int = 8
    channels: int = 3


def choose_form(origin: str, headers: Sequence[Header], settings: DataSettings) -> Form:
    """Returns the form of the pictures in files or records, and announces cropping.

    If all headers have one size, this size is the default, reduced to at most 64 pixels. Otherwise
    the default is a square as large as the shorter side of the first picture, at most 64 pixels.

    Args:
      origin: The flag for messages, such as "--data_dir=photos".
      headers: Headers of some of the pictures, the first picture first.
      settings: --image_size, --image_channels and --crop.

    Raises:
      UserError: If --crop=none and a picture would be cropped, or if the number of channels does
        not fit the pictures.
    """
    if not headers:
        return make_form(origin, settings, size=default_square(None), channels=3, bits=8)
    first = headers[0]
    is_one_size = all(header.size == first.size for header in headers)
    return make_form(
        origin,
        settings,
        size=default_rectangle(first.size) if is_one_size else default_square(first.size),
        channels=first.channels if first.channels > MAX_COLOR_CHANNELS else 3,
        bits=first.bits,
        sizes=[(header.name, header.size) for header in headers],
    )


def make_form(
    origin: str,
    settings: DataSettings,
    *,
    size: tuple[int, int],
    channels: int,
    bits: int,
    sizes: Sequence[tuple[str, tuple[int, int]]] = (),
) -> Form:
    """Returns the form of pictures, and announces cropping once for a dataset; see `choose_form`.

    Args:
      origin: The flag for messages, such as "--dataset=cifar10".
      settings: --image_size, --image_channels and --crop.
      size: Height and width without --image_size.
      channels: The number of channels without --image_channels.
      bits: 8 or 16.
      sizes: The names of some pictures, and their height and width.
    """
    wanted = settings.image_channels
    if wanted not in (None, channels) and max(wanted, channels) > MAX_COLOR_CHANNELS:
        raise UserError(
            f"--image_channels={wanted}, but the images of {origin} have {channels} channels",
            "give 1, 2, 3 or 4 for pictures of colors, or omit it",
        )
    form = Form(image_shape(settings, size, channels), bits, settings.crop)
    target = form.shape[:2]
    name, found = next(((name, each) for name, each in sizes if is_cropped(each, target)), ("", ()))
    if not found:
        return form
    name = printable(name)
    with naming(f"{origin}: {name}"):
        check_cropping(found, form)
    logging.info(
        f"note: {origin}: images such as {name} of {_pixels_text(found)} are cropped to their "
        f"central {_pixels_text(central_window(found, target))}; "
        f"--image_size={_uncropped(found, target)} keeps it whole"
    )
    return form


def check_cropping(size: tuple[int, int], form: Form) -> None:
    """Raises UserError if a picture of this height and width must not be cropped or resized."""
    target = form.shape[:2]
    if form.exact and size != target:
        raise UserError(
            f"it has {_pixels_text(size)}, but the first one {_pixels_text(target)}",
            "give the size at which they are compared, such as --image_size=64",
        )
    if form.crop == "none" and is_cropped(size, target):
        raise UserError(
            f"it has {_pixels_text(size)}, and --crop=none does not permit cropping it to the "
            "aspect ratio of --image_size",
            f"use --image_size={_uncropped(size, target)}, or --crop=center",
        )


def _uncropped(size: tuple[int, int], target: tuple[int, int]) -> int | str:
    """Returns a value of --image_size that does not crop a picture, not much larger than these."""
    return image_size_of(*default_rectangle(size, max(*target, MAX_DEFAULT_SIDE)))


def _pixels_text(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]} pixels"


def read_header(content: bytes, name: str) -> Header | None:
    """Returns the header of an encoded picture, or None if it cannot be read.

    Args:
      content: The content of the file, or its beginning up to the end of the header. WebP and AVIF
        files must be complete.
      name: The name of the picture for messages.
    """
    try:
        if _needs_tifffile(content):
            height, width, channels = (levels := _read_tiff(content)).shape
            return Header(name, (height, width), 8 * levels.itemsize, channels)
        with _open(content) as image:
            # A PNG without Exif metadata before its pixels would be decoded to find it after them.
            may_turn = image.format != "PNG" or "exif" in image.info
            if image.format == "TIFF":
                image.load()  # turns it
            size = _upright_size(image.size, _orientation(image) if may_turn else 1)
            bits = 16 if image.mode.startswith("I") else 8
            channels = 3 if image.mode == "P" else len(image.getbands())
            return Header(name, size, bits, channels)
    # For damaged files, Pillow raises exceptions of many types.
    except Exception:
        return None


def decode(content: str | bytes | np.ndarray, form: Form) -> np.ndarray:
    """Decodes a picture, turns it upright, crops its center and resizes it.

    The center is the largest central window that has the aspect ratio of the result. Of a file with
    several frames or pages, the first one is decoded. Several threads may call this function.

    Args:
      content: The content of a file, whose format does not depend on its name; the path of a local
        file; or the upright pixels `[H, W, K]` uint8 or uint16.
      form: The shape `(H, W, C)` and the number of bits of the result. C is 1 (gray), 2 (gray and
        alpha), 3 (RGB), 4 (RGB and alpha) or the number of channels of a TIFF.

    Returns:
      `[H, W, C]` uint8 or uint16.

    Raises:
      Unreadable: If the content is no picture, is damaged, or has more than MAX_PIXELS pixels.
      UserError: If --crop=none does not permit to crop the picture.
    """
    if isinstance(content, np.ndarray):
        channels = content.shape[2]
        if content.dtype != np.uint8 or form.bits > 8 or {channels, form.shape[2]} - set(_MODES):
            return _fit_levels(content, form)
        return _fit(PIL.Image.fromarray(content[..., 0] if channels == 1 else content), form)
    if isinstance(content, str):
        content = read_local(content)
    try:
        if _needs_tifffile(content):
            return _fit_levels(_read_tiff(content), form)
        with _open(content) as image:
            if form.bits == 8 and form.shape[2] in _MODES and not image.mode.startswith("I"):
                return _fit(image, form)
            return _fit_levels(_read_levels(image), form)
    except (Unreadable, UserError):
        raise
    # For damaged files, Pillow and tifffile raise exceptions of many types.
    except Exception as error:
        raise Unreadable(_describe(content, error)) from error


def read_local(path: str, count: int = -1) -> bytes:
    """Returns the content of a local file, or its first `count` bytes.

    Raises:
      Unreadable: If it cannot be read, or has more than MAX_BYTES.
    """
    try:
        with open(path, "rb", buffering=0) as file:  # a buffer would double the time
            check_size(os.fstat(file.fileno()).st_size)
            return file.read(count) or b""
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error


def check_size(size: int) -> None:
    """Raises Unreadable if a file has more than MAX_BYTES."""
    if size > MAX_BYTES:
        raise Unreadable(f"it has {size / 2**30:.1f} GiB")


def _open(content: bytes) -> PIL.Image.Image:
    """Returns a picture whose pixels are not decoded yet."""
    image = PIL.Image.open(io.BytesIO(content), formats=_FORMATS)
    _check_pixels(image.size)
    _check_levels(image, content)
    return image


def _needs_tifffile(content: bytes) -> bool:
    """Returns True for a TIFF that Pillow cannot read, or not exactly."""
    if not content.startswith(_TIFF):
        return False
    try:
        with PIL.Image.open(io.BytesIO(content), formats=["TIFF"]) as image:
            channels = _tag(image, _CHANNELS, 1)
            return channels > MAX_COLOR_CHANNELS or (channels > 1 and max(_bits(image)) > 8)
    except PIL.UnidentifiedImageError:
        return True


def _check_levels(image: Any, content: bytes) -> None:
    """Raises Unreadable for levels of which Pillow would drop bits.

    Pillow keeps all bits of gray pictures, and the high byte of the levels of others.
    """
    if image.format == "TIFF":
        formats = np.atleast_1d(_tag(image, _FORMAT, _UNSIGNED))
        if not {1, 2, 4, 8, 16}.issuperset(_bits(image)) or set(formats) != {_UNSIGNED}:
            raise Unreadable(
                "it is a TIFF of other levels than unsigned integers of 8 or 16 bits: convert "
                "them, or save a .npy file for --dataset=array"
            )
    is_deep = image.format == "PNG" and content[_PNG_DEPTH_AT] > 8
    if image.format == "PPM" and image.tile:
        arguments = image.tile[0].args
        is_deep = isinstance(arguments, tuple) and arguments[-1] > 255
    if is_deep and not image.mode.startswith("I"):
        raise Unreadable(
            f"it is a color {image.format} of 16 bits, which Pillow reduces to 8: convert it to "
            "TIFF, or to .npy for --dataset=array"
        )


def _tag(image: Any, tag: int, default: int) -> Any:
    return image.tag_v2.get(tag, default)


def _bits(image: PIL.Image.Image) -> list[int]:
    return np.atleast_1d(_tag(image, _BITS, 1)).tolist()


def _check_pixels(size: tuple[int, int]) -> None:
    if size[0] * size[1] > MAX_PIXELS:
        raise Unreadable(f"it has {size[0] * size[1]:,} pixels, more than {MAX_PIXELS:,}")


def _describe(content: bytes, error: Exception) -> str:
    """Returns the reason why a picture cannot be read."""
    if not content:
        return "it is empty"
    if isinstance(error, PIL.UnidentifiedImageError):
        return f"it is not a complete {KINDS} file"
    return reason(error) or type(error).__name__


def _orientation(image: PIL.Image.Image) -> int:
    """Returns the orientation in the Exif or XMP metadata, 1 ... 8; 1 if there is none."""
    try:
        return _known_turn(image.getexif().get(_ORIENTATION, 1))
    # For damaged metadata, Pillow raises exceptions of many types.
    except Exception:
        return 1


def _known_turn(orientation: Any) -> int:
    return int(orientation) if orientation in range(1, 9) else 1


def _upright_size(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Returns height and width of a picture of this width and height after it was turned."""
    width, height = size
    return (width, height) if orientation >= 5 else (height, width)


def _window(size: tuple[int, int], form: Form, orientation: int = 1) -> tuple[int, int, int, int]:
    """Returns the central window of a picture as left, top, right and bottom, as it is stored.

    Args:
      size: Height and width of the upright picture.
      form: The form, whose aspect ratio the window has.
      orientation: The orientation in which the picture is stored.
    """
    height, width = central_window(size, form.shape[:2])
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    if orientation in (3, 4, 7, 8):
        top = size[0] - height - top
    if orientation in (2, 3, 6, 7):
        left = size[1] - width - left
    if orientation >= 5:
        top, left, height, width = left, top, width, height
    return left, top, left + width, top + height


def _fit(image: PIL.Image.Image, form: Form) -> np.ndarray:
    """Returns the center of a picture of 8 bits, resized by Pillow."""
    if image.format not in _JPEG_FORMATS:
        image.load()  # turns a TIFF, and finds the Exif metadata after the pixels of a PNG
    orientation = _orientation(image)
    size = _upright_size(image.size, orientation)
    check_cropping(size, form)
    height, width, channels = form.shape
    wide, tall = (height, width) if orientation >= 5 else (width, height)
    left, top, right, bottom = _window(size, form, orientation)
    # libjpeg decodes at a half, a quarter or an eighth of the size, in less time.
    least = (
        max(1, image.width * _JPEG_GAP * wide // (right - left)),
        max(1, image.height * _JPEG_GAP * tall // (bottom - top)),
    )
    width_stored = image.width
    drafted = image.draft("L" if channels <= 2 else "RGB", least)
    scale = drafted[1][2] / width_stored if drafted else 1
    mode = _MODES[channels]
    if image.mode != mode:
        image = image.convert(mode)
    if (right - left, bottom - top) == (wide, tall):
        is_whole = image.size == (wide, tall)
        fitted = image if is_whole else image.crop((left, top, right, bottom))
    else:
        box = (left * scale, top * scale, right * scale, bottom * scale)
        fitted = image.resize((wide, tall), _FILTER, box, reducing_gap=_GAP)
    levels = np.asarray(fitted).reshape(tall, wide, channels)
    return _turn(levels, orientation)


def _read_levels(image: PIL.Image.Image) -> np.ndarray:
    """Returns the upright pixels of a picture, `[H, W, K]` uint8 or uint16.

    Raises:
      Unreadable: If the pixels are integers of more than 16 bits.
    """
    image.load()  # turns a TIFF
    orientation, transparency = _orientation(image), image.info.get("transparency")
    if image.mode.startswith("I"):
        levels = np.asarray(image)
        if levels.min() < 0 or levels.max() > 65535:
            raise Unreadable("it has levels of more than 16 bits")
        levels = levels.astype(np.uint16)[..., None]
        if transparency is not None:  # the level that is transparent
            alpha = (levels != transparency) * np.uint16(65535)
            levels = np.concatenate([levels, alpha], axis=2)
        if image.format == "TIFF" and _tag(image, _COLORS, 1) == 0:
            levels = 65535 - levels  # white is zero, which Pillow does not invert
        return _turn(levels, orientation)
    if image.mode == "PA" or transparency is not None:
        image = image.convert("RGBA")
    elif image.mode in ("La", "RGBa"):  # colors multiplied by alpha
        image = image.convert(image.mode.upper())
    elif image.mode not in ("L", "LA", "RGB", "RGBA"):  # a palette, black and white, or inks
        image = image.convert("L" if image.mode == "1" else "RGB")
    levels = np.asarray(image)
    return _turn(levels[..., None] if levels.ndim == 2 else levels, orientation)


def _turn(image: np.ndarray, orientation: int) -> np.ndarray:
    """Returns an image `[H, W, C]` upright.

    Args:
      image: The image as it is stored.
      orientation: The orientation in its metadata, 1 ... 8.
    """
    if orientation >= 5:
        image = image.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return np.ascontiguousarray(image)


def _fit_levels(levels: np.ndarray, form: Form) -> np.ndarray:
    """Returns the center of an upright picture `[H, W, K]` of any depth, resized."""
    size = (levels.shape[0], levels.shape[1])
    check_cropping(size, form)
    left, top, right, bottom = _window(size, form)
    levels = levels[top:bottom, left:right]
    if levels.dtype != form.dtype:  # 255 becomes 65535, or the low bytes are dropped
        deepened = levels.astype(np.uint16) * np.uint16(257) if form.bits > 8 else levels >> 8
        levels = deepened.astype(form.dtype)
    levels = _with_channels(levels, form.shape[2])
    if levels.shape != form.shape:
        levels = _resize(levels, form.shape[:2])
    return np.ascontiguousarray(levels)


def _with_channels(levels: np.ndarray, channels: int) -> np.ndarray:
    """Returns a picture `[H, W, K]` with another number of channels; see `decode`."""
    count = levels.shape[2]
    if count == channels:
        return levels
    if max(count, channels) > MAX_COLOR_CHANNELS:
        raise Unreadable(f"it has {count} channels, not {channels}")
    colors = levels[..., :3] if count >= 3 else levels[..., :1]
    if channels <= 2 and count >= 3:
        colors = (colors @ _LUMA + 0.5).astype(levels.dtype)[..., None]
    elif channels >= 3 and count <= 2:
        colors = np.repeat(colors, 3, axis=2)
    if channels % 2:
        return colors
    opaque = np.full_like(levels[..., :1], np.iinfo(levels.dtype).max)
    return np.concatenate([colors, opaque if count % 2 else levels[..., -1:]], axis=2)


def _resize(levels: np.ndarray, target: tuple[int, int]) -> np.ndarray:
    """Returns a picture `[H, W, C]` resized by Pillow in float32, which holds 16 bits exactly.

    Colors are weighted by alpha, if there is one, as Pillow does for pictures of 8 bits.
    """
    most = np.iinfo(levels.dtype).max
    planes = [plane.astype(np.float32) for plane in np.moveaxis(levels, 2, 0)]
    if len(planes) in (2, 4):
        planes[:-1] = [color * (planes[-1] / most) for color in planes[:-1]]
    height, width = target
    resized = [
        np.asarray(PIL.Image.fromarray(plane).resize((width, height), _FILTER, reducing_gap=_GAP))
        for plane in planes
    ]
    if len(planes) in (2, 4):
        weight = np.maximum(resized[-1] / most, 1 / most)
        resized[:-1] = [color / weight for color in resized[:-1]]
    return np.clip(np.rint(np.stack(resized, axis=2)), 0, most).astype(levels.dtype)


def _read_tiff(content: bytes) -> np.ndarray:
    """Returns the upright pixels of the first image of a TIFF, `[H, W, C]` uint8 or uint16.

    Raises:
      Unreadable: If its pixels have another type, or tifffile is not installed.
      Exception: If the file is damaged; tifffile raises errors of many types.
    """
    try:
        import tifffile  # noqa: PLC0415  (optional)
    except ImportError:
        raise Unreadable(
            "it is a TIFF that Pillow cannot read exactly: pip install tifffile"
        ) from None
    std_logging.getLogger("tifffile").setLevel(std_logging.CRITICAL)  # an error is raised, too
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        page = file.pages[0]
        kind = f"it is a TIFF of {page.samplesperpixel} channels of {page.bitspersample} bits"
        if page.dtype not in (np.uint8, np.uint16) or page.bitspersample not in (8, 16):
            raise Unreadable(f"{kind}: store unsigned integers of 8 or 16 bits")
        if page.photometric not in (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB):
            raise Unreadable(f"{kind} that are not red, green and blue: store RGB")
        _check_pixels((page.imagewidth, page.imagelength))
        levels = page.asarray()
        if page.axes.startswith("S"):  # the channels are stored one after the other
            levels = np.moveaxis(levels, 0, -1)
        if page.photometric == _WHITE_IS_ZERO:
            levels = np.iinfo(levels.dtype).max - levels
        levels = levels[..., None] if levels.ndim == 2 else levels
        return _turn(levels, _known_turn(page.tags.valueof(_ORIENTATION, 1)))
