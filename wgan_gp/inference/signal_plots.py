"""Grids of line plots of signals, as arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from . import canvas
from .canvas import MAX_SIDE, Restore

_LEFT, _BOTTOM, _LINES = 56, 20, canvas.LINE_PIXELS  # margins for numbers and the legend, in pixels
_PANEL_HEIGHT, _PANEL_WIDTH = 130, 320  # the largest panels
_GAP = 8  # between panels
_SCALE = 2  # lines are drawn this much larger, and averaged


def signal_grid(
    signals: np.ndarray,
    columns: int,
    *,
    real: np.ndarray | None = None,
    restore: Restore | None = None,
    names: Sequence[str] | None = None,
) -> np.ndarray:
    """Plots signals in panels, row by row, with one color per channel.

    All panels have one scale. Values outside are drawn at the edge, and lines are interrupted at
    NaN and infinite values. Signals that do not fit in a plot of MAX_SIDE pixels are left out.

    Args:
      signals: `[N, T, C]`, normalized.
      columns: The number of panels in a row.
      real: Signals of the dataset, `[M, T, C]`, which set the scale. Without them, `signals` do.
      restore: Converts normalized signals to the units of the data.
      names: The names of the channels.

    Returns:
      uint8 `[H, W, 3]`.
    """
    restored = [
        each if restore is None else restore(each)
        for each in (signals, signals if real is None else real)
    ]
    values, scale = (np.asarray(each, np.float64) for each in restored)
    low, high = canvas.value_range(scale)
    margin = 0.05 * (high - low)
    grid = _Grid(len(values), columns, values.shape[1], (low - margin, high + margin))
    picture = Image.new("RGB", (grid.width * _SCALE, grid.height * _SCALE), "white")
    draw = ImageDraw.Draw(picture)
    for index in range(grid.count):
        grid.draw_panel(draw, index)
        for channel in range(values.shape[2]):
            color = canvas.COLORS[channel % len(canvas.COLORS)]
            for line in grid.lines(index, values[index, :, channel]):
                draw.line(line, fill=color, width=_SCALE + 1)
    picture = picture.reduce(_SCALE)
    draw = ImageDraw.Draw(picture)
    grid.draw_numbers(draw)
    _draw_legend(draw, values.shape[2], names, grid.width)
    return np.asarray(picture)


class _Grid:
    """The places of the panels of a grid and of their contents, in pixels.

    Args:
      count: The number of signals.
      columns: The number of panels in a row.
      length: The length of a signal.
      limits: The lower and the upper end of the scale.
    """

    def __init__(self, count: int, columns: int, length: int, limits: tuple[float, float]):
        columns = max(1, min(columns, (MAX_SIDE - _LEFT) // 40))
        rows = min(math.ceil(count / columns), (MAX_SIDE - _LINES - _BOTTOM) // _PANEL_HEIGHT)
        self.count = min(count, rows * columns)
        self._columns, self._rows, self._length = columns, rows, length
        self._low, self._high = limits
        self._panel_width = min(_PANEL_WIDTH, (MAX_SIDE - _LEFT) // columns)
        self.width = _LEFT + columns * self._panel_width
        self.height = _LINES + rows * _PANEL_HEIGHT + _BOTTOM

    def _box(self, index: int) -> tuple[int, int, int, int]:
        """Returns left, top, right and bottom of a panel."""
        row, column = divmod(index, self._columns)
        left, top = _LEFT + column * self._panel_width, _LINES + row * _PANEL_HEIGHT
        return left, top, left + self._panel_width - _GAP, top + _PANEL_HEIGHT - _GAP

    def _x(self, index: int, times: np.ndarray) -> np.ndarray:
        left, _, right, _ = self._box(index)
        return left + times * ((right - left) / max(1, self._length - 1))

    def _y(self, index: int, values: np.ndarray) -> np.ndarray:
        _, top, _, bottom = self._box(index)
        shares = (np.clip(values, self._low, self._high) - self._low) / (self._high - self._low)
        return bottom - shares * (bottom - top)

    def draw_panel(self, draw: canvas.Draw, index: int) -> None:
        """Draws the frame of a panel and a line at each number of the vertical axis."""
        left, top, right, bottom = (_SCALE * each for each in self._box(index))
        for tick in canvas.ticks(self._low, self._high):
            y = _SCALE * float(self._y(index, np.array(tick)))
            draw.line([(left, y), (right, y)], fill=canvas.LIGHT, width=_SCALE)
        draw.rectangle([left, top, right, bottom], outline=canvas.GRAY, width=_SCALE)

    def lines(self, index: int, signal: np.ndarray) -> list[list[tuple[float, float]]]:
        """Returns the pieces of a signal `[T]` as lists of points `(x, y)`."""
        times, signal = _thinned(signal, 2 * self._panel_width)
        x, y = _SCALE * self._x(index, times), _SCALE * self._y(index, signal)
        points = zip(np.isfinite(signal), zip(x.tolist(), y.tolist(), strict=True), strict=True)
        pieces = [
            [point for _, point in piece]
            for finite, piece in itertools.groupby(points, key=lambda each: bool(each[0]))
            if finite
        ]
        # A single point would be an invisible line.
        return [
            piece if len(piece) > 1 else [piece[0], (piece[0][0] + _SCALE, piece[0][1])]
            for piece in pieces
        ]

    def draw_numbers(self, draw: canvas.Draw) -> None:
        """Draws the numbers of the vertical axes on the left, and of the times at the bottom."""
        vertical = canvas.ticks(self._low, self._high)
        for index in range(0, self.count, self._columns):
            for tick in vertical:
                y = float(self._y(index, np.array(tick)))
                canvas.draw_text(draw, (_LEFT - 5, y), f"{tick:.4g}", "rm")
        for index in range(max(0, self.count - self._columns), self.count):
            right, bottom = self._box(index)[2:]
            end = float("-inf")
            for tick in canvas.ticks(0, max(1, self._length - 1)):
                if tick != int(tick) or tick > self._length - 1:
                    continue
                x, text = float(self._x(index, np.array(tick))), f"{int(tick)}"
                half = canvas.text_width(text) / 2
                x = min(x, right - half)
                if x - half > end + 4:  # narrow panels have room for few numbers
                    canvas.draw_text(draw, (x, bottom + 3), text, "ma")
                    end = x + half


def _thinned(signal: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns times and values of a signal `[T]`; of a long one, the extremes of each part.

    Args:
      signal: The values.
      points: The largest number of points of the result.
    """
    times = np.arange(len(signal))
    if len(signal) <= points:
        return times, signal
    parts = np.array_split(times, points // 2)
    # An infinite placeholder sorts NaN behind the other values of its part.
    least, most = (np.where(np.isfinite(signal), signal, end) for end in (np.inf, -np.inf))
    chosen = np.unique(
        [part[places.argmin()] for part in parts for places in (least[part], -most[part])]
    )
    return chosen, signal[chosen]


def _draw_legend(draw: canvas.Draw, channels: int, names: Sequence[str] | None, width: int) -> None:
    """Draws the names of the channels in their colors; a single channel without a name has none."""
    if channels == 1 and not names:
        return
    x = _LEFT
    for channel in range(channels):
        name = canvas.shorten_to(canvas.name_of(names, channel, channels, "channel"), 200)
        if x + canvas.text_width(name) + 60 > width and channel < channels - 1:
            canvas.draw_text(draw, (x, 1), f"and {channels - channel} more")
            return
        color = canvas.COLORS[channel % len(canvas.COLORS)]
        draw.rectangle([x, 5, x + 12, 8], fill=color)
        canvas.draw_text(draw, (x + 17, 1), name)
        x += canvas.text_width(name) + 32
