"""Pictures of examples of any shape: images, signals, points and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.scaling import Scaling
from .canvas import Restore
from .images import channel_grids, image_grid, point_plot, rescale
from .signal_plots import signal_grid
from .table_plots import table_plot


def presentation(scaling: Scaling | None) -> dict[str, Any]:
    """Returns the arguments restore, names and bounded of `overview`.

    Args:
      scaling: The scaling of an array; None for other data.
    """
    if scaling is None:
        return {}
    return {
        "restore": scaling.restore,
        "names": scaling.names,
        "bounded": scaling.bounded,
    }


def overview(
    examples: np.ndarray,
    columns: int,
    *,
    real: np.ndarray | None = None,
    restore: Restore | None = None,
    names: Sequence[str] | None = None,
    bounded: bool = True,
) -> np.ndarray:
    """Draws examples as one picture, which depends on their shape.

    | shape | picture |
    |---|---|
    | `[N, 2]` | a plot of points |
    | `[N, D]` | histograms of the features, and their correlations |
    | `[N, T, C]` | a grid of line plots |
    | `[N, H, W, 1]`, `[N, H, W, 3]` | a grid of gray images, or of color images |
    | `[N, H, W, C]` | a grid of gray images for each channel |

    Args:
      examples: Normalized examples, usually samples.
      columns: The number of signals or images in a row.
      real: Examples of the dataset, `[M, ...]`, which set the scales and are shown in gray by plots
        of points and of features. Without them, `examples` set the scales.
      restore: Converts normalized examples to the units of the data.
      names: The names of the features or channels.
      bounded: Whether examples of the dataset lie in [-1, 1]. Gray and color images then keep
        their brightness.

    Returns:
      uint8 `[H', W', 1 or 3]`.
    """
    if examples.ndim == 2:
        if examples.shape[1] == 2:
            return point_plot(examples, real)
        return table_plot(examples, real, restore=restore, names=names)
    if examples.ndim == 3:
        return signal_grid(examples, columns, real=real, restore=restore, names=names)
    if examples.shape[3] not in (1, 3):
        return channel_grids(examples, columns, real=real, restore=restore, names=names)
    return image_grid(examples if bounded else rescale(examples, real), columns)
