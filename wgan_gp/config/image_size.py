"""The size of images, --image_size: one number for a square, or HxW for a rectangle."""

from __future__ import annotations

import re
from typing import Any

from ..errors import UserError, printable, shorten

LARGEST_SIDE = 4096  # pixels
EXAMPLES = "a number of pixels, such as 64, or HxW, such as 48x24"


def parse_image_size(name: str, value: Any) -> int | str:
    """Returns an image size in its only form in a configuration: 32, or "48x24".

    Args:
      name: The name of the setting, for messages.
      value: An integer, or a text such as "32", "32x32" or "48x24" (height and width).

    Raises:
      UserError: If it is not a size, or a side is not in 1 ... LARGEST_SIDE.
    """
    is_number = isinstance(value, int) and not isinstance(value, bool)
    flag = f"--{name}={printable(shorten(str(value)))}"
    match = re.fullmatch(r"(-?[0-9]{1,999})(?:x([0-9]{1,999}))?", str(value), re.ASCII)
    if not (is_number or isinstance(value, str)) or match is None:
        raise UserError(f"{flag} is not a size of images", f"give {EXAMPLES}")
    height, width = int(match[1]), int(match[2] or match[1])
    for side in (height, width):
        if side < 1:
            raise UserError(f"{flag} is too small", "give at least 1")
        if side > LARGEST_SIDE:
            raise UserError(f"{flag} is too large", f"give at most {LARGEST_SIDE}")
    return image_size_of(height, width)


def image_size_of(height: int, width: int) -> int | str:
    """Returns the image size of a height and a width: an integer if they are equal."""
    return height if height == width else f"{height}x{width}"


def sides_of(image_size: int | str) -> tuple[int, int]:
    """Returns the height and the width of a valid image size."""
    height, _, width = str(image_size).partition("x")
    return int(height), int(width or height)
