"""Grids of images and plots of points, as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from . import canvas

TILE_PIXELS = 32  # smaller samples are enlarged in a grid
GAP_PIXELS = 2  # to the right of and below each sample
GAP_GRAY = 96
PLOT_PIXELS = 512  # side of a plot


def to_pixels(images: np.ndarray) -> np.ndarray:
    """Converts images in [-1, 1] to uint8 of the same shape; NaN becomes 0."""
    levels = np.clip(np.rint((images + 1) * 127.5), 0, 255)
    return np.nan_to_num(levels, copy=False).astype(np.uint8)


def image_grid(images: np.ndarray, columns: int) -> np.ndarray:
    """Arranges images in a grid, row by row.

    Args:
      images: `[N, H, W, C]` in [-1, 1].
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
        to_pixels(images).repeat(factor, 1).repeat(factor, 2)
    )
    grid = tiles.reshape(rows, columns, tall, wide, channels).swapaxes(1, 2)
    return grid.reshape(rows * tall, columns * wide, channels)


def channel_grids(
    images: np.ndarray,
    columns: int,
    *,
    real: np.ndarray | None = None,
    restore: canvas.Restore | None = None,
    names: Sequence[str] | None = None,
) -> np.ndarray:
    """Arranges each channel of images in a gray grid of its own, with its name and its range.

    Black is the smallest and white the largest value of the channel in the real images. Grids are
    reduced so that the result has at most about canvas.MAX_SIDE pixels a side.

    Args:
      images: `[N, H, W, C]`, normalized, with any number of channels.
      columns: The number of images in a row of a grid.
      real: Images of the dataset, `[M, H, W, C]`, which set the ranges. Without them, `images` do.
      restore: Converts normalized images to the units of the data, in which ranges are written.
      names: The names of the channels.

    Returns:
      uint8 `[H', W', 3]`.
    """
    values, scale = (
        np.asarray(each if restore is None else restore(each), np.float64)
        for each in (images, images if real is None else real)
    )
    channels = values.shape[3]
    across = math.ceil(math.sqrt(channels))
    side = canvas.MAX_SIDE // across - canvas.LINE_PIXELS - GAP_PIXELS
    tiles = []
    for channel in range(channels):
        low, high = canvas.value_range(scale[..., channel])
        gray = (values[..., channel : channel + 1] - low) / (high - low) * 2 - 1
        grid = Image.fromarray(image_grid(gray, columns)[..., 0])
        grid = grid.reduce(max(1, math.ceil(max(grid.size) / side)))
        name = canvas.name_of(names, channel, channels, "channel")
        tiles.append((f"{name}: {canvas.range_text(low, high)}", grid))
    wide = max(tiles[0][1].width, 90) + 3 * GAP_PIXELS
    tall = tiles[0][1].height + canvas.LINE_PIXELS + GAP_PIXELS
    down = math.ceil(channels / across)
    picture = Image.new("RGB", (across * wide, down * tall), "white")
    draw = ImageDraw.Draw(picture)
    for index, (title, grid) in enumerate(tiles):
        row, column = divmod(index, across)
        left, top = column * wide, row * tall
        canvas.draw_text(draw, (left, top), canvas.shorten_to(title, wide))
        picture.paste(grid, (left, top + canvas.LINE_PIXELS))
    return np.asarray(picture)


def rescale(images: np.ndarray, real: np.ndarray | None = None) -> np.ndarray:
    """Scales images of any range to [-1, 1], the range of real images or of the images."""
    low, high = canvas.value_range(images if real is None else real)
    return (images - low) / (high - low) * 2 - 1


def point_plot(points: np.ndarray, real: np.ndarray | None = None) -> np.ndarray:
    """Plots 2-D samples in blue over real points in gray, on a white background.

    Args:
      points: The samples, `[N, 2]`. Points outside the plot are not drawn.
      real: Points of the dataset, `[M, 2]`, which set the scale. Without them, the samples set
        the scale.

    Returns:
      uint8 `[PLOT_PIXELS, PLOT_PIXELS, 3]`, with the y axis upward.
    """
    plot = np.full((PLOT_PIXELS, PLOT_PIXELS, 3), 255, np.uint8)
    real, scale = (points[:0], points) if real is None else (real, real)
    reach = 1.2 * (np.abs(scale[np.isfinite(scale)]).max(initial=0) or 1)
    for cloud, color in ((real, (190, 190, 190)), (points, (31, 90, 200))):
        pixels = np.rint((cloud / reach + 1) / 2 * (PLOT_PIXELS - 1))
        inside = ((pixels > 0) & (pixels < PLOT_PIXELS)).all(axis=1)  # False for NaN
        pixels = pixels[inside].astype(int)
        for right, down in ((0, 0), (0, 1), (1, 0), (1, 1)):  # dots of 2x2 pixels
            plot[PLOT_PIXELS - 1 - pixels[:, 1] + down, pixels[:, 0] - 1 + right] = color
    return plot
