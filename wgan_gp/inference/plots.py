"""Plots of points, signals and tables, drawn by Matplotlib, as arrays.

Importing this module imports Matplotlib. A function for each kind of plot returns a figure, and
`render` returns its pixels.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from .images import MAX_SIDE, range_text, value_range

POINT_PIXELS = 512  # side of a plot of points
MAX_PANELS = 64  # features with a histogram
MAX_CORRELATED = 400  # features in a heatmap
BINS = 30
BLUE, GRAY, LIGHT = "#1f5ac8", "#bebebe", "#e4e4e4"
_COLORS = matplotlib.color_sequences["tab20"]
COLORS = (*_COLORS[::2], *_COLORS[1::2])  # of channels

_DPI = 72  # so a point, the unit of fonts and lines, is a pixel
_FONT, _LINE = 11, 15  # pixels: the size of texts, and the height of a line of text
# All settings of Matplotlib, so that no matplotlibrc changes a picture. Names of features and
# channels are not formulas, whatever dollar signs they contain.
_STYLE = {
    name: value
    for name, value in matplotlib.rcParamsDefault.items()
    if not name.startswith(("backend", "webagg"))
}
_STYLE |= {
    "axes.edgecolor": GRAY,
    "axes.titlesize": _FONT,
    "axes.titlepad": 3,
    "font.size": _FONT,
    "lines.linewidth": 1.3,
    "text.parse_math": False,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
}
_lock = threading.Lock()  # the settings of Matplotlib are global


def render(plot: Callable[..., Figure], *arguments: Any, **options: Any) -> np.ndarray:
    """Returns the pixels of a plot, uint8 `[H, W, 3]`.

    Args:
      plot: A function of this module.
      *arguments, **options: Its arguments.
    """
    with _lock, matplotlib.rc_context(_STYLE):
        canvas = FigureCanvasAgg(plot(*arguments, **options))
        canvas.draw()
        return np.array(canvas.buffer_rgba())[..., :3]


def plot_points(samples: np.ndarray, real: np.ndarray | None, names: Sequence[str]) -> Figure:
    """Plots 2-D samples in blue over real points in gray.

    Args:
      samples: `[N, 2]`. Points outside the plot are not drawn.
      real: Points of the dataset, `[M, 2]`, which set the scale. Without them, the samples do.
      names: The names of the two features.
    """
    figure = _figure(POINT_PIXELS, POINT_PIXELS)
    wide, tall = POINT_PIXELS - 84, POINT_PIXELS - 66
    axes = _add_axes(figure, (70, 24, wide, tall))
    axes.set_title(_describe_colors(real), loc="right", y=1)  # an exponent may be on the left
    ranges = [value_range(column) for column in (samples if real is None else real).T]
    low, high = np.transpose([(a - 0.1 * (b - a), b + 0.1 * (b - a)) for a, b in ranges])
    for points, color in ((real, GRAY), (samples, BLUE)):
        if points is not None:
            inside = points[((points > low) & (points < high)).all(axis=1)]  # False for NaN
            axes.plot(*inside.T, "o", color=color, markersize=2.5, markeredgewidth=0)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.set(xlabel=_fit(names[0], wide), ylabel=_fit(names[1], tall))
    axes.yaxis.labelpad = 0
    return figure


_LEFT, _BOTTOM = 58, 22  # margins for numbers around panels, in pixels
_PANEL_WIDTH, _PANEL_HEIGHT, _GAP = 320, 130, 8  # the largest panels of signals


def plot_signals(
    signals: np.ndarray, real: np.ndarray | None, names: Sequence[str], columns: int
) -> Figure:
    """Plots signals in panels, row by row, with one color per channel.

    All panels have one scale. Values outside are drawn at the edge, and lines are interrupted at
    NaN and infinite values. Signals that do not fit in a plot of MAX_SIDE pixels are left out.

    Args:
      signals: `[N, T, C]`.
      real: Signals of the dataset, `[M, T, C]`, which set the scale. Without them, `signals` do.
      names: The names of the channels.
      columns: The number of panels in a row.
    """
    columns = max(1, min(columns, (MAX_SIDE - _LEFT) // 40))
    rows = min(math.ceil(len(signals) / columns), (MAX_SIDE - 2 * _LINE - _BOTTOM) // _PANEL_HEIGHT)
    wide = min(_PANEL_WIDTH, (MAX_SIDE - _LEFT) // columns)
    figure = _figure(_LEFT + columns * wide, 2 * _LINE + rows * _PANEL_HEIGHT + _BOTTOM)
    low, high = value_range(signals if real is None else real)
    limits = (low - 0.05 * (high - low), high + 0.05 * (high - low))
    numbers = np.array(MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low, high))
    numbers = numbers[(numbers >= limits[0]) & (numbers <= limits[1])]
    end = signals.shape[1] - 1
    for index, signal in enumerate(signals[: rows * columns]):
        row, column = divmod(index, columns)
        place = (_LEFT + column * wide, 2 * _LINE + row * _PANEL_HEIGHT)
        axes = _add_axes(figure, (*place, wide - _GAP, _PANEL_HEIGHT - _GAP))
        axes.set(xlim=(0, max(1, end)), ylim=limits)
        axes.hlines(numbers, 0, max(1, end), color=LIGHT, linewidth=1, zorder=0)
        _draw_lines(axes, signal, limits)
        axes.yaxis.set_visible(column == 0)
        axes.set_yticks(numbers)
        axes.xaxis.set_visible(index + columns >= min(len(signals), rows * columns))
        axes.xaxis.set_major_locator(MaxNLocator(max(1, wide // 70), integer=True))
    if len(names) > 1 or names[0] != "channel 0":
        _draw_legend(figure, names)
    return figure


def _draw_lines(axes: Axes, signal: np.ndarray, limits: tuple[float, float]) -> None:
    """Draws a signal `[T, C]`, and a dot for a value between two that are not finite."""
    for channel, values in enumerate(signal.T):
        is_finite = np.isfinite(values)
        shown = np.where(is_finite, np.clip(values, *limits), np.nan)
        around = np.pad(is_finite, 1)
        is_alone = is_finite & ~around[:-2] & ~around[2:]
        color = COLORS[channel % len(COLORS)]
        axes.plot(shown, ".-", color=color, markersize=4, markevery=is_alone.nonzero()[0].tolist())


def _draw_legend(figure: Figure, names: Sequence[str]) -> None:
    """Draws the names of the channels in their colors, as many as fit."""
    labels = [_fit(name, 200) for name in names]
    ends = np.cumsum([_width(label) + 34 for label in labels])
    place = figure.bbox.width - _LEFT
    shown = len(names) if ends[-1] < place else max(1, int((ends < place - 80).sum()))
    handles = [Line2D([], [], color=color, linewidth=3) for color in COLORS * (shown // 20 + 1)]
    handles = handles[:shown]
    labels = labels[:shown]
    if shown < len(names):
        handles.append(Line2D([], [], alpha=0))
        labels.append(f"and {len(names) - shown} more")
    legend = figure.legend(
        handles,
        [""] * len(handles),
        loc="upper left",
        bbox_to_anchor=(_LEFT / figure.bbox.width, 1),
        borderaxespad=0,
        borderpad=0.2,
        columnspacing=1,
        frameon=False,
        handlelength=1,
        handletextpad=0.5,
        ncols=len(handles),
    )
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)  # a label that is given to a legend must not begin with "_"


_HISTOGRAM_WIDTH, _HISTOGRAM_HEIGHT = 172, 104  # with the name, the range and a gap
_MIN_HEATMAP, _MAX_HEATMAP = 180, 560  # sides in pixels


def plot_table(
    samples: np.ndarray,
    real: np.ndarray | None,
    names: Sequence[str],
    *,
    ranges: Sequence[str] | None = None,
    heatmaps: Sequence[np.ndarray] | None = None,
    title: str = "correlations",
) -> Figure:
    """Plots the distribution of each feature and the correlations of all features.

    A histogram shows the shares of real examples in gray behind those of the samples in blue, over
    the range of the real examples, which is written above it. Samples outside are counted at the
    edge. To the right are the correlations of the samples and of the real examples. The first
    MAX_PANELS features have a histogram.

    Args:
      samples: `[N, D]`. Values that are not finite are left out.
      real: Examples of the dataset, `[M, D]`. Without them, the samples set the ranges.
      names: The names of the features.
      ranges: The text above each histogram, in the place of the range of the numbers.
      heatmaps: Matrices `[D, D]` from -1 to 1 in the place of the correlations, of the samples and
        of the real examples.
      title: What the heatmaps show.
    """
    tables = [each for each in (samples, real) if each is not None]
    shown = min(len(names), MAX_PANELS)
    columns = math.ceil(math.sqrt(shown))
    rows = math.ceil(shown / columns)
    heatmap = 4 * _LINE  # the heights of a title and of a color scale
    side = max(_MIN_HEATMAP, min(_MAX_HEATMAP, rows * _HISTOGRAM_HEIGHT // 2 - heatmap))
    wide = columns * _HISTOGRAM_WIDTH
    height = 2 * _LINE + max(rows * _HISTOGRAM_HEIGHT, len(tables) * (side + heatmap))
    figure = _figure(wide + side + 40, height)
    more = f", the first {shown} of {len(names)} features" if shown < len(names) else ""
    figure.text(10 / figure.bbox.width, 1 - 3 / height, _describe_colors(real) + more, va="top")
    for index in range(shown):
        row, column = divmod(index, columns)
        place = (column * _HISTOGRAM_WIDTH + 10, row * _HISTOGRAM_HEIGHT + 4 * _LINE)
        size = (_HISTOGRAM_WIDTH - 14, _HISTOGRAM_HEIGHT - 2 * _LINE - 10)
        axes = _add_axes(figure, (*place, *size))
        values = [each[:, index] for each in tables]
        given = range_text(*value_range(values[-1])) if ranges is None else ranges[index]
        _draw_histogram(axes, _fit(names[index], size[0]), values, _fit(given, size[0]))
    heatmaps = heatmaps or [correlations(table[:, :MAX_CORRELATED]) for table in tables]
    for number, matrix in enumerate(heatmaps):
        top = 2 * _LINE + number * (side + heatmap)
        axes = _add_axes(figure, (wide + 20, top, side, side))
        scale = _add_axes(figure, (wide + 40, top + side + 6, side - 40, 8))
        more = f" (first {MAX_CORRELATED})" if len(names) > MAX_CORRELATED else ""
        text = f"{title}: {('samples', 'real')[number]}{more}"
        axes.set_title(_fit(text, side), loc="left", y=1)
        image = axes.imshow(
            matrix[:MAX_CORRELATED, :MAX_CORRELATED],
            "RdBu_r",
            aspect="auto",
            interpolation="nearest",
            vmin=-1,
            vmax=1,
        )
        axes.set(xticks=[], yticks=[])
        figure.colorbar(image, scale, orientation="horizontal", ticks=[-1, 0, 1])
    return figure


def _draw_histogram(axes: Axes, name: str, tables: Sequence[np.ndarray], given: str) -> None:
    """Draws the histogram of the samples and, behind it, of the real examples, if any.

    Args:
      axes: The axes of the panel.
      name: The name of the feature.
      tables: The values of the samples, `[N]`, and of real examples, `[M]`, if there are any.
      given: The range of the values, as a text.
    """
    low, high = value_range(tables[-1])
    edges = np.linspace(0, 1, BINS + 1)  # whatever the range, which is written above
    if len(tables) > 1:
        axes.stairs(shares(tables[1], low, high), edges, color=GRAY, fill=True)
    axes.stairs(shares(tables[0], low, high), edges, color=BLUE)
    axes.set(xlim=(0, 1), ylim=(0, None), xticks=[], yticks=[])
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.set_title(f"{name}\n{given}", loc="left", y=1, linespacing=1.1)


def shares(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Returns the share of values in each bin, `[BINS]`; those outside count at the edge."""
    inside = np.clip(values[~np.isnan(values)], low, high)
    return np.histogram(inside, BINS, (low, high))[0] / max(1, len(values))


def correlations(table: np.ndarray) -> np.ndarray:
    """Returns the correlations of a table `[N, D]` without rows that are not finite, `[D, D]`.

    Those of a constant feature are 0.
    """
    rows = table[np.isfinite(table).all(axis=1)]
    if not len(rows):
        return np.zeros([table.shape[1]] * 2)
    # The largest value of each feature is 1, so that no square is too large or too small.
    rows = rows / np.maximum(np.abs(rows).max(axis=0), np.finfo(float).tiny)
    centered = rows - rows.mean(axis=0)
    norms = np.sqrt((centered**2).sum(axis=0))
    centered /= np.where(norms > 0, norms, 1)
    return centered.T @ centered


def _figure(width: int, height: int) -> Figure:
    """Returns an empty figure of a size in pixels."""
    return Figure((width / _DPI, height / _DPI), _DPI)


def _add_axes(figure: Figure, box: tuple[int, int, int, int]) -> Axes:
    """Adds axes with this left, top, width and height, in pixels from the top left corner."""
    left, top, width, height = box
    wide, tall = figure.bbox.size
    return figure.add_axes((left / wide, 1 - (top + height) / tall, width / wide, height / tall))


def _describe_colors(real: np.ndarray | None) -> str:
    return f"{'real (gray) and ' if real is not None else ''}samples (blue)"


def _fit(text: str, pixels: int) -> str:
    """Returns a text that the font can draw, without its end if it is wider than `pixels`."""
    known = _font().get_charmap()
    text = "".join(char if ord(char) in known else "\ufffd" for char in " ".join(text.split()))
    if _width(text) <= pixels:
        return text
    while text and _width(f"{text}...") > pixels:
        text = text[:-1]
    return f"{text}..."


def _width(text: str) -> float:
    """Returns the width of a text in pixels."""
    font = _font()
    font.set_size(_FONT, _DPI)
    font.set_text(text)
    return font.get_width_height()[0] / 64


def _font() -> Any:
    return get_font(findfont(FontProperties(size=_FONT)))
