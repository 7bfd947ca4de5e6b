"""The sizes of the images of a run, and how pictures of other sizes are cropped to them.

Errors of flags must not wait for NumPy, so it is not imported.
"""

from __future__ import annotations

from ...config import DataSettings, sides_of

MAX_DEFAULT_SIDE = 64  # pixels, the largest side unless --image_size is set


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


def default_rectangle(size: tuple[int, int], limit: int = MAX_DEFAULT_SIDE) -> tuple[int, int]:
    """Returns the default size for images of one size, reduced to sides of at most `limit` pixels.

    A square has the size of `default_square`.
    """
    longer = max(size)
    if longer <= limit:
        return size
    height, width = (max(1, round(side * limit / longer)) for side in size)
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
