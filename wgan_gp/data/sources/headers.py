"""The headers of images, and the form into which the images of a dataset are decoded."""

from __future__ import annotations

import dataclasses
import io
import warnings
from collections.abc import Sequence

import PIL.Image
from absl import logging

from ...config import LARGEST_SIDE, DataSettings, image_size_of
from ...errors import UserError, printable
from . import tiff
from .shapes import (
    MAX_DEFAULT_SIDE,
    central_window,
    default_rectangle,
    default_square,
    image_shape,
    is_cropped,
)

_PILLOW_FORMATS = ("JPEG", "PNG", "GIF")  # TensorFlow decodes the same formats
_PNG_SIGNATURE, _PNG_DEPTH_AT = b"\x89PNG", 24
_ORIENTATION = 0x0112
_MAX_PICTURE_CHANNELS = 4  # color and alpha


@dataclasses.dataclass(frozen=True)
class Header:
    """The properties of an image that its header contains.

    Attributes:
      name: The name of the image for messages.
      size: Height and width of the upright image, in pixels.
      bits: 16 for a PNG or TIFF of 16 bits, else 8.
      channels: The number of channels of a TIFF, else 3.
      problem: The reason why images of this type cannot be read and the remedy, or None.
    """

    name: str
    size: tuple[int, int]
    bits: int = 8
    channels: int = 3
    problem: tuple[str, str] | None = None


def read_header(name: str, encoded: bytes) -> Header | None:
    """Returns the header of an encoded image, or None if it cannot be read.

    Args:
      name: The name of the image for messages.
      encoded: The content of the file, or its beginning up to the end of the header.
    """
    try:
        if tiff.is_tiff(encoded):
            found = tiff.read_header(encoded)
            bits = 16 if found.bits > 8 else 8
            return Header(name, found.size, bits, found.channels, found.problem)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about large images; see pixels.MAX_PIXELS
            with PIL.Image.open(io.BytesIO(encoded), formats=_PILLOW_FORMATS) as image:
                width, height = image.size
                if _is_turned(image):
                    height, width = width, height
        is_deep = encoded.startswith(_PNG_SIGNATURE) and encoded[_PNG_DEPTH_AT] > 8
        return Header(name, (height, width), 16 if is_deep else 8)
    # For damaged files, Pillow raises exceptions of many types.
    except Exception:
        return None


def _is_turned(image: PIL.Image.Image) -> bool:
    """Returns True if a JPEG's Exif metadata exchange its rows and columns."""
    if image.format == "PNG" or "exif" not in image.info:
        return False
    exif = PIL.Image.Exif()
    try:
        exif.load(image.info["exif"])
    # For damaged metadata, Pillow raises exceptions of many types.
    except Exception:
        return False
    return exif.get(_ORIENTATION) in (5, 6, 7, 8)


@dataclasses.dataclass(frozen=True)
class ImageForm:
    """The form into which the images of a dataset are decoded.

    Attributes:
      shape: `(H, W, C)`, to which images are cropped and resized.
      bits: 8 for uint8, 16 for uint16.
      crop: The value of --crop.
      has_tiff: Whether the images may be TIFF files.
    """

    shape: tuple[int, int, int]
    bits: int = 8
    crop: str = "center"
    has_tiff: bool = False


def choose_form(
    origin: str, headers: Sequence[Header], settings: DataSettings, *, has_tiff: bool = False
) -> ImageForm:
    """Returns the form of the images of a folder or of TFRecord files, and announces cropping.

    If all headers have one size, this size is the default, reduced to at most 64 pixels. Otherwise
    the default is a square as large as the shorter side of the first image, at most 64 pixels.

    Args:
      origin: The flag for messages, such as "--data_dir=photos".
      headers: Headers of some of the images, the first image first.
      settings: --image_size, --image_channels and --crop.
      has_tiff: Whether the images may be TIFF files.

    Raises:
      UserError: If --crop=none and an image would be cropped, if the number of channels does not
        fit the images, or if their type cannot be read.
    """
    first = headers[0] if headers else None
    if first is None:
        size = default_square(None)
    elif all(header.size == first.size for header in headers):
        size = default_rectangle(first.size)
    else:
        size = default_square(first.size)
    if first is not None and first.problem:
        what, remedy = first.problem
        raise UserError(f"{origin}: {printable(first.name)} {what}", remedy)
    channels = _choose_channels(origin, first, settings)
    shape = image_shape(settings, size, channels)
    _report_cropping(origin, headers, shape[:2], settings)
    return ImageForm(shape, first.bits if first else 8, settings.crop, has_tiff)


def choose_declared_form(
    origin: str,
    size: tuple[int | None, int | None],
    channels: int,
    bits: int,
    settings: DataSettings,
) -> ImageForm:
    """Returns the form of images whose size is declared; otherwise like `choose_form`.

    Args:
      origin: The flag for messages, such as "--dataset=cifar10".
      size: Height and width, which are the default. None if images differ in it.
      channels: The number of channels without --image_channels.
      bits: 8 or 16.
      settings: --image_size, --image_channels and --crop.
    """
    height, width = size
    headers = []
    default = default_square((height or MAX_DEFAULT_SIDE, width or MAX_DEFAULT_SIDE))
    if height is not None and width is not None:
        default = height, width
        headers = [Header("the first", default)]
    _choose_channels(origin, None, settings)
    shape = image_shape(settings, default, channels)
    _report_cropping(origin, headers, shape[:2], settings)
    return ImageForm(shape, bits, settings.crop)


def _choose_channels(origin: str, first: Header | None, settings: DataSettings) -> int:
    """Returns the default number of channels; see `choose_form`."""
    wanted = settings.image_channels
    own = first.channels if first else 3
    if own > _MAX_PICTURE_CHANNELS:
        if wanted in (None, own):
            return own
        raise UserError(
            f"--image_channels={wanted}, but the images of {origin} have {own} channels",
            f"give --image_channels={own}, or omit it",
        )
    if wanted is not None and wanted > _MAX_PICTURE_CHANNELS:
        raise UserError(
            f"--image_channels={wanted} requires TIFF images of {wanted} channels, which {origin} "
            "does not contain",
            "give 1, 2, 3 or 4, or omit it",
        )
    return 3


def _report_cropping(
    origin: str, headers: Sequence[Header], target: tuple[int, int], settings: DataSettings
) -> None:
    """Prints that images are cropped, once for a dataset, or refuses them under --crop=none."""
    header = next((header for header in headers if is_cropped(header.size, target)), None)
    if header is None:
        return
    whole = uncropped_size(header.size, target)
    if settings.crop == "none":
        shown = f"{printable(header.name)} has {_text(header.size)}"
        raise cropping_error(origin, shown, whole)
    window = central_window(header.size, target)
    logging.info(
        f"note: {origin}: images such as {printable(header.name)} of {_text(header.size)} are "
        f"cropped to their central {_text(window)}; --image_size={whole} keeps it whole"
    )


def cropping_error(origin: str, problem: str, whole: int | str = "HxW") -> UserError:
    """Returns the error of an image that --crop=none does not permit to crop.

    Args:
      origin: The flag for messages, such as "--data_dir=photos".
      problem: The image and its size, such as "a.png has another aspect ratio".
      whole: The size at which it would not be cropped.
    """
    return UserError(
        f"{origin}: {problem}, and --crop=none does not permit cropping it to the aspect ratio of "
        "--image_size",
        f"use --image_size={whole}, or --crop=center",
    )


def uncropped_size(size: tuple[int, int], target: tuple[int, int]) -> int | str:
    """Returns a value of --image_size that does not crop an image.

    Args:
      size: Height and width of the image.
      target: The sides that crop it. The result is not much larger.
    """
    limit = max(*target, MAX_DEFAULT_SIDE)
    if max(size) <= limit:
        return image_size_of(*size)
    scale = min(min(target) / min(size), LARGEST_SIDE / max(size))
    height, width = (max(1, round(side * scale)) for side in size)
    return image_size_of(height, width)


def _text(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]} pixels"
