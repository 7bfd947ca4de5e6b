"""TIFF images of 8 or 16 bits and any number of channels.

Pillow reads most of them. It reads color of 16 bits with a loss, and more than four channels not at
all; the package tifffile, which is optional, reads these.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import warnings
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps
import PIL.TiffImagePlugin

SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
INSTALL = "pip install tifffile"
# Tags, and the format of a sample that is an unsigned integer.
_WIDTH, _HEIGHT, _BITS, _COLORS, _ORIENTATION, _CHANNELS, _FORMAT = (
    256,
    257,
    258,
    262,
    274,
    277,
    339,
)
_UNSIGNED = 1
# Values of the tag PhotometricInterpretation.
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE = 0, 1, 2, 3
_MAX_PILLOW_CHANNELS = 4


@dataclasses.dataclass(frozen=True)
class TiffHeader:
    """The first directory of a TIFF file.

    Attributes:
      size: Height and width of the upright image.
      channels: The number of samples of a pixel.
      bits: The largest number of bits of a sample.
      orientation: The value of the tag Orientation, 1 ... 8.
      colors: The value of the tag PhotometricInterpretation.
      is_unsigned: Whether samples are unsigned integers.
    """

    size: tuple[int, int]
    channels: int
    bits: int
    orientation: int
    colors: int
    is_unsigned: bool

    @property
    def problem(self) -> tuple[str, str] | None:
        """The reason why the image cannot be read and the remedy, or None."""
        kind = f"{self.channels} channel{'s' if self.channels > 1 else ''} of {self.bits} bits"
        if self.bits not in (1, 2, 4, 8, 16) or not self.is_unsigned:
            signed = "" if self.is_unsigned else ", signed or floating-point"
            return f"is a TIFF of {kind}{signed}", "store unsigned integers of 8 or 16 bits"
        if self.needs_tifffile and self.colors not in (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB):
            return f"is a TIFF of {kind} that are not red, green and blue", "store RGB"
        if self.needs_tifffile and importlib.util.find_spec("tifffile") is None:
            return f"is a TIFF of {kind}, which Pillow cannot read", INSTALL
        return None

    @property
    def has_palette(self) -> bool:
        """True if the samples of pixels are places in a palette of colors."""
        return self.colors == _PALETTE

    @property
    def needs_tifffile(self) -> bool:
        """True if Pillow cannot read the image without a loss."""
        return self.channels > _MAX_PILLOW_CHANNELS or (self.bits > 8 and self.channels > 1)


def is_tiff(encoded: bytes) -> bool:
    """Returns True if a file begins as a TIFF file does."""
    return encoded[:4] in SIGNATURES


def read_header(encoded: bytes) -> TiffHeader:
    """Returns the header of a TIFF file.

    Raises:
      KeyError, ValueError, SyntaxError, struct.error: If the file is damaged.
    """
    with io.BytesIO(encoded) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an incomplete file, which lacks a tag
        is_big = b"+" in encoded[2:4]
        directory = PIL.TiffImagePlugin.ImageFileDirectory_v2(file.read(16 if is_big else 8))
        file.seek(directory.next)
        directory.load(file)
    height, width = int(directory[_HEIGHT]), int(directory[_WIDTH])
    orientation = int(directory.get(_ORIENTATION, 1))
    formats = _as_tuple(directory.get(_FORMAT, _UNSIGNED))
    return TiffHeader(
        size=(width, height) if orientation in (5, 6, 7, 8) else (height, width),
        channels=int(directory.get(_CHANNELS, 1)),
        bits=max(map(int, _as_tuple(directory.get(_BITS, 1)))),
        orientation=orientation if orientation in range(1, 9) else 1,
        colors=int(directory.get(_COLORS, _BLACK_IS_ZERO)),
        is_unsigned=set(formats) == {_UNSIGNED},
    )


def read_tiff(encoded: bytes) -> np.ndarray:
    """Returns the first image of a TIFF file, upright, `[H, W, C]` uint8 or uint16.

    Raises:
      ValueError: If the image has another type, or needs tifffile, which is not installed.
      Exception: If the file is damaged; Pillow and tifffile raise errors of many types.
    """
    header = read_header(encoded)
    if header.problem:
        raise ValueError("the image {}: {}".format(*header.problem))
    if header.needs_tifffile:
        levels = turn(_read_with_tifffile(encoded), header.orientation)
    else:
        with PIL.Image.open(io.BytesIO(encoded), formats=("TIFF",)) as opened:
            image = PIL.ImageOps.exif_transpose(opened)  # newer versions turn it themselves
            levels = levels_of(image)
            if not image.mode.startswith("I"):
                return levels
    # Neither package inverts these levels.
    return np.iinfo(levels.dtype).max - levels if header.colors == _WHITE_IS_ZERO else levels


def levels_of(image: PIL.Image.Image) -> np.ndarray:
    """Returns the pixels of a picture of any mode of Pillow, `[H, W, C]` uint8 or uint16.

    Raises:
      ValueError: If the pixels are real numbers or integers of more than 16 bits.
    """
    if image.mode.startswith("I"):
        levels = np.asarray(image)
        if levels.min() < 0 or levels.max() > 65535:
            raise ValueError("the image has levels of more than 16 bits")
        levels = levels.astype(np.uint16)
    elif image.mode == "F":
        raise ValueError("the image has floating-point levels")
    elif image.mode == "PA" or "transparency" in image.info:
        levels = np.asarray(image.convert("RGBA"))
    elif image.mode in ("L", "LA", "RGB", "RGBA"):
        levels = np.asarray(image)
    elif image.mode in ("La", "RGBa"):  # colors multiplied by alpha
        levels = np.asarray(image.convert(image.mode.upper()))
    else:  # a palette, black and white, or inks
        levels = np.asarray(image.convert("L" if image.mode == "1" else "RGB"))
    return np.ascontiguousarray(levels[..., None] if levels.ndim == 2 else levels)


def _read_with_tifffile(encoded: bytes) -> np.ndarray:
    """Returns the first image of a TIFF file as it is stored, `[H, W, C]`."""
    import tifffile  # noqa: PLC0415  (optional)

    with tifffile.TiffFile(io.BytesIO(encoded)) as file:
        page = file.pages[0]
        levels = page.asarray()
        if page.axes.startswith("S"):  # the channels are stored one after the other
            levels = np.moveaxis(levels, 0, -1)
    return levels[..., None] if levels.ndim == 2 else levels


def turn(image: np.ndarray, orientation: int) -> np.ndarray:
    """Returns an image `[H, W, C]` upright.

    Args:
      image: The image as it is stored.
      orientation: The value of the tag Orientation, 1 ... 8.
    """
    if orientation >= 5:
        image = image.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return np.ascontiguousarray(image)


def _as_tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)
