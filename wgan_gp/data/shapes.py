"""The shapes of images after preparation; this module does not import TensorFlow."""

from __future__ import annotations

from ..config import DataSettings

MAX_DEFAULT_SIDE = 64  # pixels, the largest side unless --image_size is set


def image_shape(settings: DataSettings, side: int | None, channels: int) -> tuple[int, int, int]:
    """Returns the shape `(S, S, C)` of the images of a run.

    Args:
      settings: --image_size and --image_channels override the other arguments.
      side: The side without --image_size, in pixels. None selects MAX_DEFAULT_SIDE.
      channels: The number of channels without --image_channels.
    """
    side = settings.image_size or side or MAX_DEFAULT_SIDE
    return side, side, settings.image_channels or channels


def limit_side(side: int | None) -> int:
    """Returns the default side for images whose shorter side is `side`, None if unknown."""
    return min(side or MAX_DEFAULT_SIDE, MAX_DEFAULT_SIDE)
