"""TIFF images that Pillow cannot read exactly, read by the package tifffile, which is optional.

They have more than four channels, or 16 bits in color. Pillow reads the others.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..encoded import Unreadable

SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
INSTALL = "pip install tifffile"
_ORIENTATION = 274  # a tag
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB = 0, 1, 2  # values of the tag PhotometricInterpretation


def is_tiff(content: bytes) -> bool:
    """Returns True if a file begins as a TIFF file does."""
    return content[:4] in SIGNATURES


@contextlib.contextmanager
def first_page(content: bytes) -> Iterator[Any]:
    """Opens the first image of a file, a TiffPage of tifffile.

    Raises:
      Unreadable: If its pixels have another type, or tifffile is not installed.
      Exception: If the file is damaged; tifffile raises errors of many types.
    """
    try:
        import tifffile  # noqa: PLC0415  (optional)
    except ImportError:
        raise Unreadable(f"it is a TIFF that Pillow cannot read exactly: {INSTALL}") from None
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # an error is raised, too
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        page = file.pages[0]
        kind = f"it is a TIFF of {page.samplesperpixel} channels of {page.bitspersample} bits"
        if page.dtype not in (np.uint8, np.uint16) or page.bitspersample not in (8, 16):
            raise Unreadable(f"{kind}: store unsigned integers of 8 or 16 bits")
        if page.photometric not in (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB):
            raise Unreadable(f"{kind} that are not red, green and blue: store RGB")
        yield page


def orientation_of(page: Any) -> int:
    """Returns the value of the tag Orientation, 1 ... 8."""
    tag = page.tags.get(_ORIENTATION)
    return int(tag.value) if tag is not None and tag.value in range(1, 9) else 1


def levels_of(page: Any) -> np.ndarray:
    """Returns the pixels of a page as they are stored, `[H, W, C]` uint8 or uint16."""
    levels = page.asarray()
    if page.axes.startswith("S"):  # the channels are stored one after the other
        levels = np.moveaxis(levels, 0, -1)
    if page.photometric == _WHITE_IS_ZERO:
        levels = np.iinfo(levels.dtype).max - levels
    return levels[..., None] if levels.ndim == 2 else levels
