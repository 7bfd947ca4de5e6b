"""Text, axes and colors of plots, drawn with Pillow."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from PIL import ImageDraw, ImageFont

MAX_SIDE = 2000  # pixels of a plot
BLACK, GRAY, LIGHT = (0, 0, 0), (190, 190, 190), (228, 228, 228)
BLUE = (31, 90, 200)
# Distinguishable colors of channels: blue, orange, green, red, purple, brown, pink, olive.
COLORS = (
    BLUE,
    (230, 120, 20),
    (40, 150, 60),
    (200, 40, 50),
    (130, 90, 190),
    (130, 80, 60),
    (220, 110, 190),
    (150, 150, 30),
)
FONT_PIXELS = 12
LINE_PIXELS = FONT_PIXELS + 4  # height of a line of text

Restore = Callable[[np.ndarray], np.ndarray]
Draw = ImageDraw.ImageDraw


@functools.cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(FONT_PIXELS)


def text_width(text: str) -> int:
    """Returns the width of a text in pixels."""
    return math.ceil(_font().getlength(text))


def draw_text(draw: Draw, place: tuple[float, float], text: str, anchor: str = "la") -> None:
    """Draws a text in black; see Pillow's text anchors."""
    draw.text(place, text, fill=BLACK, font=_font(), anchor=anchor)


def shorten_to(text: str, pixels: int) -> str:
    """Returns a text without its end if it is wider than `pixels`."""
    text = " ".join(text.split())
    if text_width(text) <= pixels:
        return text
    while text and text_width(f"{text}...") > pixels:
        text = text[:-1]
    return f"{text}..." if text else ""


def name_of(names: Sequence[str] | None, index: int, count: int, kind: str) -> str:
    """Returns the name of a feature or channel: its own, if there are `count` names, or a number.

    Args:
      names: The names, or None.
      index: The index of the feature or channel.
      count: The number of features or channels.
      kind: "feature" or "channel".
    """
    return str(names[index]) if names is not None and len(names) == count else f"{kind} {index}"


def value_range(values: np.ndarray) -> tuple[float, float]:
    """Returns the smallest and the largest finite value, with a distance between them.

    Without finite values, the range is -1 to 1.
    """
    finite = values[np.isfinite(values)].astype(np.float64)
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


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Returns up to `count` + 1 round numbers in a range, at distances of 1, 2 or 5 x 10^k."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]
