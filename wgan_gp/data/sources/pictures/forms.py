"""The form into which the pictures of a dataset are decoded."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence

import numpy as np
from absl import logging

from ....config import LARGEST_SIDE, DataSettings, image_size_of
from ....errors import UserError, printable
from ..shapes import (
    MAX_DEFAULT_SIDE,
    central_window,
    default_rectangle,
    default_square,
    image_shape,
    is_cropped,
)

if typing.TYPE_CHECKING:
    from .decoding import Header

MAX_COLOR_CHANNELS = 4  # red, green, blue and alpha


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
    first = headers[0] if headers else None
    if first is None:
        size = default_square(None)
    elif all(header.size == first.size for header in headers):
        size = default_rectangle(first.size)
    else:
        size = default_square(first.size)
    own = first.channels if first else 3
    return make_form(
        origin,
        settings,
        size=size,
        channels=own if own > MAX_COLOR_CHANNELS else 3,
        bits=first.bits if first else 8,
        sizes=[(header.name, header.size) for header in headers],
    )


def make_form(
    origin: str,
    settings: DataSettings,
    *,
    size: tuple[int, int],
    channels: int,
    bits: int,
    sizes: Sequence[tuple[str, tuple[int, int]]],
) -> Form:
    """Returns the form of pictures, and announces cropping; see `choose_form`.

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
    shape = image_shape(settings, size, channels)
    _report_cropping(origin, sizes, shape[:2], settings)
    return Form(shape, bits, settings.crop)


def check_cropping(size: tuple[int, int], form: Form) -> None:
    """Raises UserError if a picture of this height and width must not be cropped or resized."""
    if form.exact and size != form.shape[:2]:
        raise UserError(
            f"it has {_text(size)}, but the first one {_text(form.shape[:2])}",
            "give the size at which they are compared, such as --image_size=64",
        )
    if form.crop == "none" and is_cropped(size, form.shape[:2]):
        raise _cropping_error(f"it has {_text(size)}", uncropped_size(size, form.shape[:2]))


def uncropped_size(size: tuple[int, int], target: tuple[int, int]) -> int | str:
    """Returns a value of --image_size that does not crop a picture.

    Args:
      size: Height and width of the picture.
      target: The sides that crop it. The result is not much larger.
    """
    limit = max(*target, MAX_DEFAULT_SIDE)
    if max(size) <= limit:
        return image_size_of(*size)
    scale = min(min(target) / min(size), LARGEST_SIDE / max(size))
    height, width = (max(1, round(side * scale)) for side in size)
    return image_size_of(height, width)


def _report_cropping(
    origin: str,
    sizes: Sequence[tuple[str, tuple[int, int]]],
    target: tuple[int, int],
    settings: DataSettings,
) -> None:
    """Prints that pictures are cropped, once for a dataset, or refuses them under --crop=none."""
    cropped = next(((name, size) for name, size in sizes if is_cropped(size, target)), None)
    if cropped is None:
        return
    name, size = printable(cropped[0]), cropped[1]
    whole = uncropped_size(size, target)
    if settings.crop == "none":
        raise _cropping_error(f"{origin}: {name} has {_text(size)}", whole)
    window = central_window(size, target)
    # A size that keeps one of several shapes whole crops the others even more.
    shapes = {uncropped_size(each, target) for _, each in sizes}
    advice = f"--image_size={whole} keeps it whole" if len(shapes) == 1 else "their shapes differ"
    logging.info(
        f"note: {origin}: images such as {name} of {_text(size)} are cropped to their central "
        f"{_text(window)}; {advice}"
    )


def _cropping_error(what: str, whole: int | str) -> UserError:
    return UserError(
        f"{what}, and --crop=none does not permit cropping it to the aspect ratio of --image_size",
        f"use --image_size={whole}, or --crop=center",
    )


def _text(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]} pixels"
