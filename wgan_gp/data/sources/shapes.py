"""The shapes of pictures after preparation, and the form into which a dataset is decoded.

Processes that only decode import this module, so it does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import logging

from ...config import LARGEST_SIDE, DataSettings, image_size_of, sides_of
from ...errors import UserError, printable

if TYPE_CHECKING:
    import numpy as np

MAX_DEFAULT_SIDE = 64  # pixels, the largest side unless --image_size is set
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
        import numpy as np  # noqa: PLC0415

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


def image_shape(
    settings: DataSettings, size: tuple[int, int], channels: int
) -> tuple[int, int, int]:
    """Returns the shape `(H, W, C)` of the images of a run.

    Args:
      settings: --image_size and --image_channels override the other arguments.
      size: The height and the width without --image_size, in pixels.
      channels: The number of channels without --image_channels.
    """
    if settings.image_size is not None:
        size = sides_of(settings.image_size)
    return *size, settings.image_channels or channels


def default_square(size: tuple[int, int] | None) -> tuple[int, int]:
    """Returns the default size for images of different sizes, of which the first has `size`.

    Args:
      size: Height and width of the first image, or None if they are unknown.
    """
    side = MAX_DEFAULT_SIDE if size is None else min(*size, MAX_DEFAULT_SIDE)
    return side, side


def default_rectangle(size: tuple[int, int]) -> tuple[int, int]:
    """Returns the default size for images of one size, reduced to sides of at most 64 pixels.

    A square has the size of `default_square`.
    """
    longer = max(size)
    if longer <= MAX_DEFAULT_SIDE:
        return size
    height, width = (max(1, round(side * MAX_DEFAULT_SIDE / longer)) for side in size)
    return height, width


def central_window(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    """Returns height and width of the largest part of an image that has the target's aspect ratio.

    They are whole numbers, so that up to half a pixel of a side may be missing or left over.

    Args:
      size: Height and width of the image.
      target: Height and width of another image.
    """
    (height, width), (tall, wide) = size, target
    if height * wide >= width * tall:  # the image is taller than the target, or has its ratio
        return max(1, min(height, (2 * width * tall + wide) // (2 * wide))), width
    return height, max(1, min(width, (2 * height * wide + tall) // (2 * tall)))


def is_cropped(size: tuple[int, int], target: tuple[int, int]) -> bool:
    """Returns True if the central window of an image leaves out a pixel of the result or more.

    A smaller part is left out if the ratio of two whole numbers cannot be more exact.

    Args:
      size, target: As in `central_window`.
    """
    window = central_window(size, target)
    return any(
        (whole - kept) * side >= kept
        for whole, kept, side in zip(size, window, target, strict=True)
    )


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
