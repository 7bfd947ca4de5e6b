"""Grids of images as arrays, without Matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ..data.pixels import DEQUANTIZED, NEAREST, Pixels
from ..data.scaling import Scaling

TILE_PIXELS = 32  # smaller samples are enlarged in a grid
GAP_PIXELS = 2  # to the right of and below each sample
GAP_GRAY = 96
MAX_SIDE = 2000  # pixels of the grids of channels, and of a plot
_TITLE_PIXELS = 16  # the height of the title of a channel
_LARGEST = 1e300  # the distance of larger numbers can overflow


def to_pixels(images: np.ndarray, units: Pixels | Scaling | None = DEQUANTIZED) -> np.ndarray:
    """Converts images to 256 levels, uint8 of the same shape; NaN becomes 0.

    Args:
      images: Normalized images, in [-1, 1], or levels.
      units: See `DataSpec.units`. None rounds to the nearest level.
    """
    return NEAREST.restore(images if units is None else units.quantize(images))


def image_grid(images: np.ndarray, columns: int) -> np.ndarray:
    """Arranges images in a grid, row by row.

    Args:
      images: `[N, H, W, C]`, real numbers in [-1, 1] or levels, uint8.
      columns: The number of images in a row.

    Returns:
      uint8 `[H', W', C]`. Small images are enlarged by an integer factor.
    """
    count, height, width, channels = images.shape
    rows = math.ceil(count / columns)
    factor = max(1, TILE_PIXELS // max(height, width))
    tall, wide = height * factor + GAP_PIXELS, width * factor + GAP_PIXELS
    tiles = np.full((rows * columns, tall, wide, channels), GAP_GRAY, np.uint8)
    tiles[:count, :-GAP_PIXELS, :-GAP_PIXELS] = (
        NEAREST.restore(images).repeat(factor, 1).repeat(factor, 2)
    )
    grid = tiles.reshape(rows, columns, tall, wide, channels).swapaxes(1, 2)
    return grid.reshape(rows * tall, columns * wide, channels)


def middle_slices(volumes: np.ndarray) -> np.ndarray:
    """Returns the three middle slices of volumes as images, next to each other.

    From left to right, they are perpendicular to the axes D, H and W, with the first of their two
    axes downwards: HxW, DxW and DxH. What no slice covers is NaN, which is drawn in black.

    Args:
      volumes: `[N, D, H, W, C]`, floating point.

    Returns:
      `[N, f max(H, D), f (W + W + H) + 2, C]`; small slices are enlarged by an integer factor f.
    """
    _, *sides, _ = volumes.shape
    factor = max(1, TILE_PIXELS // max(sides))
    slices = [
        np.take(volumes, side // 2, axis=axis).repeat(factor, 1).repeat(factor, 2)
        for axis, side in enumerate(sides, start=1)
    ]
    tall = max(each.shape[1] for each in slices)
    padded = [
        np.pad(
            each,
            [(0, 0), (0, tall - each.shape[1]), (0, gap), (0, 0)],
            constant_values=np.nan,
        )
        for each, gap in zip(slices, (1, 1, 0), strict=True)
    ]
    return np.concatenate(padded, axis=2)


def channel_grids(
    images: np.ndarray, real: np.ndarray | None, names: Sequence[str], columns: int
) -> np.ndarray:
    """Arranges each channel of images in a gray grid of its own, with its name and its range.

    Black is the smallest and white the largest value of the channel in the real images. Grids are
    reduced so that the result has at most about MAX_SIDE pixels a side.

    Args:
      images: `[N, H, W, C]` with any number of channels, in the units of the data.
      real: Examples of the dataset, `[M, ..., C]`, which set the ranges. Without them, `images` do.
      names: The names of the channels.
      columns: The number of images in a row of a grid.

    Returns:
      uint8 `[H', W', 3]`.
    """
    channels = images.shape[3]
    across = math.ceil(math.sqrt(channels))
    side = MAX_SIDE // across - _TITLE_PIXELS - GAP_PIXELS
    tiles = []
    for channel, name in enumerate(names):
        low, high = value_range((images if real is None else real)[..., channel])
        gray = (images[..., channel : channel + 1] - low) / (high - low) * 2 - 1
        grid = Image.fromarray(image_grid(gray, columns)[..., 0])
        grid = grid.reduce(max(1, math.ceil(max(grid.size) / side)))
        tiles.append((f"{name}: {range_text(low, high)}", grid))
    wide = max(tiles[0][1].width, 90) + 3 * GAP_PIXELS
    tall = tiles[0][1].height + _TITLE_PIXELS + GAP_PIXELS
    picture = Image.new("RGB", (across * wide, math.ceil(channels / across) * tall), "white")
    font = ImageFont.load_default(12)
    for index, (title, grid) in enumerate(tiles):
        row, column = divmod(index, across)
        tile = Image.new("RGB", (wide, tall), "white")  # the title ends at its edge
        ImageDraw.Draw(tile).text((0, 0), " ".join(title.split()), "black", font)
        tile.paste(grid, (0, _TITLE_PIXELS))
        picture.paste(tile, (column * wide, row * tall))
    return np.asarray(picture)


def rescale(images: np.ndarray, real: np.ndarray | None = None) -> np.ndarray:
    """Scales images of any range to [-1, 1], the range of real images or of the images."""
    low, high = value_range(images if real is None else real)
    return (images - low) / (high - low) * 2 - 1


def value_range(values: np.ndarray) -> tuple[float, float]:
    """Returns the smallest and the largest finite value, with a distance between them.

    Without finite values, the range is -1 to 1.
    """
    values = np.asarray(values, np.float64)
    finite = values[np.abs(values) < _LARGEST]
    if not finite.size:
        return -1.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        margin = 0.5 * abs(low) or 0.5
        return low - margin, high + margin
    return low, high


def range_text(low: float, high: float) -> str:
    """Returns a range in four digits, such as "0 to 12.5"."""
    tiny = 1e-9 * (high - low)  # the error of a 0 that was normalized and restored
    return " to ".join(f"{0 if abs(end) < tiny else end:.4g}" for end in (low, high))
