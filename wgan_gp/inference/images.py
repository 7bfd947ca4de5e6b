"""Grids of images and plots of points, as arrays."""

import math

import numpy as np

TILE_PIXELS = 32  # smaller samples are enlarged in a grid
GAP_PIXELS = 2  # to the right of and below each sample
GAP_GRAY = 96
PLOT_PIXELS = 512  # side of a plot


def to_pixels(images: np.ndarray) -> np.ndarray:
    """Converts images in [-1, 1] to uint8 of the same shape."""
    return np.clip(np.rint((images + 1) * 127.5), 0, 255).astype(np.uint8)


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
    reach = 1.2 * np.abs(scale).max()
    for cloud, color in ((real, (190, 190, 190)), (points, (31, 90, 200))):
        pixels = np.rint((cloud / reach + 1) / 2 * (PLOT_PIXELS - 1))
        inside = ((pixels > 0) & (pixels < PLOT_PIXELS)).all(axis=1)  # False for NaN
        pixels = pixels[inside].astype(int)
        for right, down in ((0, 0), (0, 1), (1, 0), (1, 1)):  # dots of 2x2 pixels
            plot[PLOT_PIXELS - 1 - pixels[:, 1] + down, pixels[:, 0] - 1 + right] = color
    return plot
