"""Histograms of features and heatmaps of their correlations, as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from . import canvas
from .canvas import Restore

MAX_PANELS = 64  # features with a histogram
MAX_CORRELATED = 400  # features in a heatmap
BINS = 30
_PANEL_WIDTH, _PANEL_HEIGHT = 150, 104
_GAP = 10
_LINES = 2 * canvas.LINE_PIXELS  # the title of a panel: name and range
_MIN_HEATMAP, _MAX_HEATMAP = 180, 560  # sides in pixels


def table_plot(
    samples: np.ndarray,
    real: np.ndarray | None = None,
    *,
    restore: Restore | None = None,
    names: Sequence[str] | None = None,
) -> np.ndarray:
    """Plots the distribution of each feature and the correlations of all features.

    A histogram shows the shares of real examples in gray behind those of the samples in blue, over
    the range of the real examples, which is written above it. Samples outside are counted at the
    edge. To the right are the correlations of the real examples and of the samples, from -1 (blue)
    to 1 (red). The first MAX_PANELS features have a histogram.

    Args:
      samples: `[N, D]`, normalized. Values that are not finite are left out.
      real: Examples of the dataset, `[M, D]`. Without them, the samples set the ranges.
      restore: Converts normalized examples to the units of the data.
      names: The names of the features.

    Returns:
      uint8 `[H, W, 3]`.
    """
    sets = [
        (each if restore is None else restore(each)) for each in (samples, real) if each is not None
    ]
    tables = [np.asarray(each, np.float64) for each in sets]
    scale = tables[-1]
    size = scale.shape[1]
    shown = min(size, MAX_PANELS)
    columns = math.ceil(math.sqrt(shown))
    rows = math.ceil(shown / columns)
    side, wide = _heatmap_side(rows), columns * _PANEL_WIDTH
    height = max(rows * _PANEL_HEIGHT, len(tables) * (side + 2 * _LINES)) + canvas.LINE_PIXELS
    picture = Image.new("RGB", (wide + side + 3 * _GAP, height), "white")
    draw = ImageDraw.Draw(picture)
    title = f"{'real (gray) and ' if real is not None else ''}samples (blue)"
    more = f", the first {shown} of {size} features" if shown < size else ""
    canvas.draw_text(draw, (_GAP, 1), canvas.shorten_to(title + more, wide))
    for index in range(shown):
        row, column = divmod(index, columns)
        place = (column * _PANEL_WIDTH + _GAP, row * _PANEL_HEIGHT + canvas.LINE_PIXELS)
        name = canvas.name_of(names, index, size, "feature")
        _draw_histogram(draw, place, name, [each[:, index] for each in tables])
    top = canvas.LINE_PIXELS
    for title, table in zip(("samples", "real"), tables, strict=False):
        _draw_correlations(picture, (wide + 2 * _GAP, top), side, f"correlations: {title}", table)
        top += side + 2 * _LINES
    return np.asarray(picture)


def _heatmap_side(rows: int) -> int:
    """Returns the side of a heatmap, so that two of them are as high as the histograms."""
    side = rows * _PANEL_HEIGHT // 2 - 2 * _LINES
    return min(max(side, _MIN_HEATMAP), _MAX_HEATMAP)


def _draw_histogram(
    draw: canvas.Draw, place: tuple[int, int], name: str, tables: Sequence[np.ndarray]
) -> None:
    """Draws a panel: the histogram of the samples and, behind it, of the real examples, if any.

    Args:
      draw: Draws on the plot.
      place: The left and the top of the panel, in pixels.
      name: The name of the feature.
      tables: The values of the samples, `[N]`, and of real examples, `[M]`, if there are any.
    """
    left, top = place
    width, height = _PANEL_WIDTH - _GAP, _PANEL_HEIGHT - _LINES - _GAP
    low, high = canvas.value_range(tables[-1])
    canvas.draw_text(draw, (left, top), canvas.shorten_to(name, width))
    text = canvas.range_text(low, high)
    canvas.draw_text(draw, (left, top + canvas.LINE_PIXELS), canvas.shorten_to(text, width))
    bottom = top + _LINES + height
    shares = [_shares(values, low, high) for values in tables]
    tallest = max(float(each.max()) for each in shares) or 1.0
    edges = left + np.arange(BINS + 1) * width / BINS
    if len(shares) > 1:
        for index, share in enumerate(shares[1]):
            y = bottom - share / tallest * height
            if share:
                draw.rectangle([edges[index], y, edges[index + 1], bottom], fill=canvas.GRAY)
    outline = [(left, bottom)]
    for index, share in enumerate(shares[0]):
        y = bottom - share / tallest * height
        outline += [(edges[index], y), (edges[index + 1], y)]
    draw.line([*outline, (left + width, bottom)], fill=canvas.BLUE, width=1)
    draw.line([(left, bottom), (left + width, bottom)], fill=canvas.BLACK, width=1)


def _shares(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Returns the share of values in each bin, `[BINS]`; those outside count at the edge."""
    inside = np.clip(values[~np.isnan(values)], low, high)
    return np.histogram(inside, BINS, (low, high))[0] / max(1, len(values))


def _draw_correlations(
    picture: Image.Image, place: tuple[int, int], side: int, title: str, table: np.ndarray
) -> None:
    """Draws the correlations of a table `[N, D]` as a square of colors."""
    left, top = place
    draw = ImageDraw.Draw(picture)
    more = f" (first {MAX_CORRELATED})" if table.shape[1] > MAX_CORRELATED else ""
    canvas.draw_text(draw, (left, top), canvas.shorten_to(title + more, side))
    colors = _diverging(_correlations(table[:, :MAX_CORRELATED]))
    heatmap = Image.fromarray(colors).resize((side, side), Image.Resampling.NEAREST)
    top += canvas.LINE_PIXELS
    picture.paste(heatmap, (left, top))
    draw.rectangle([left, top, left + side, top + side], outline=canvas.GRAY)
    scale = Image.fromarray(_diverging(np.linspace(-1, 1, side - 40)[None])).resize((side - 40, 8))
    top += side + 6
    picture.paste(scale, (left + 20, top))
    canvas.draw_text(draw, (left, top - 3), "-1")
    canvas.draw_text(draw, (left + side, top - 3), "1", "ra")


def _correlations(table: np.ndarray) -> np.ndarray:
    """Returns the correlations of a table `[N, D]` without rows that are not finite, `[D, D]`."""
    rows = table[np.isfinite(table).all(axis=1)]
    if not len(rows):
        return np.zeros([table.shape[1]] * 2)
    centered = rows - rows.mean(axis=0)
    norms = np.sqrt((centered**2).sum(axis=0))
    centered /= np.where(norms > 0, norms, 1)
    return centered.T @ centered


def _diverging(values: np.ndarray) -> np.ndarray:
    """Returns colors of values in [-1, 1], uint8 `[..., 3]`: blue, white at 0, red."""
    strength = np.abs(np.clip(np.nan_to_num(values), -1, 1))[..., None]
    ends = np.where((values < 0)[..., None], (30, 80, 190), (190, 30, 40))
    return np.rint(255 + strength * (ends - 255)).astype(np.uint8)
