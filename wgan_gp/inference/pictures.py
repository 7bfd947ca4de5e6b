"""Pictures of samples and of real examples of any shape."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ..data.feed import Examples
from ..data.pixels import Pixels
from ..data.scaling import Scaling
from ..data.table import Table
from .images import channel_grids, image_grid, middle_slices, rescale
from .sampling import Sampler, interpolations

# Images; see also `grid_columns`.
GRID_SIDE = 8
SIGNAL_ROWS = 4  # rows of signals and volumes, which are larger than images
PLOT_POINTS = 2500
MAX_PLOT_VALUES = 2**24  # numbers in the real examples behind a plot


def overview(
    examples: np.ndarray,
    columns: int,
    *,
    real: np.ndarray | None = None,
    units: Scaling | Table | Pixels | None = None,
) -> np.ndarray:
    """Draws examples as one picture, which depends on their shape.

    | shape | picture |
    |---|---|
    | `[N, 2]` | a plot of points |
    | `[N, D]` | histograms of the features, and their correlations |
    | typed table | histograms of the columns, and their associations |
    | `[N, T, C]` | a grid of line plots |
    | `[N, H, W, 1]`, `[N, H, W, 3]` | a grid of gray images, or of color images |
    | `[N, H, W, C]` | a grid of gray images for each channel |
    | `[N, D, H, W, C]` | likewise, with the three middle slices of each volume next to each other |

    Args:
      examples: Normalized examples, usually samples.
      columns: The number of signals or images in a row.
      real: Normalized examples of the dataset, `[M, ...]`, which set the scales and are shown in
        gray by plots of points and of features. Without them, `examples` set the scales.
      units: See `DataSpec.units`. They give the units and the names of plots, and the levels of
        gray and color images.

    Returns:
      uint8 `[H', W', 1 or 3]`.
    """
    if isinstance(units, Table):
        return _table_plot(units, examples, real)
    if _is_gray_or_color(examples.shape[1:]):
        images = examples if units is None else units.quantize(examples)
        return image_grid(_flat(images if _is_bounded(units) else rescale(images, real)), columns)
    samples = _in_units(examples, units)
    real = None if real is None else _in_units(real, units)
    size, kind = samples.shape[-1], "feature" if samples.ndim == 2 else "channel"
    names = [f"{kind} {index}" for index in range(size)]
    if isinstance(units, Scaling) and units.names is not None:
        names = list(units.names)
    if samples.ndim >= 4:
        return channel_grids(_flat(samples), samples if real is None else real, names, columns)
    from . import plots  # noqa: PLC0415  (imports Matplotlib, which images do not need)

    if samples.ndim == 3:
        return plots.render(plots.plot_signals, samples, real, names, columns)
    return plots.render(plots.plot_points if size == 2 else plots.plot_table, samples, real, names)


def _table_plot(table: Table, samples: np.ndarray, real: np.ndarray | None) -> np.ndarray:
    from . import plots  # noqa: PLC0415

    sets = [samples] if real is None else [samples, real]
    heatmaps = [table.associations(each) for each in sets]
    numbers = [table.numbers(each) for each in sets]
    return plots.render(
        plots.plot_table,
        numbers[0],
        None if real is None else numbers[1],
        list(table.names),
        ranges=table.describe_ranges(numbers[-1]),
        heatmaps=heatmaps,
        title="associations",
    )


def _is_bounded(units: Scaling | Table | Pixels | None) -> bool:
    """Returns False for examples that may be outside [-1, 1], so that others set their scale."""
    return not isinstance(units, Scaling) or units.bounded


def _is_gray_or_color(example_shape: Sequence[int]) -> bool:
    """Returns True for images and volumes that are shown in gray or in color."""
    return len(example_shape) >= 3 and example_shape[-1] in (1, 3)


def _flat(examples: np.ndarray) -> np.ndarray:
    """Returns images as they are, and the middle slices of volumes as images; see `overview`."""
    return examples if examples.ndim == 4 else middle_slices(examples)


def _in_units(examples: np.ndarray, units: Scaling | Pixels | None) -> np.ndarray:
    """Returns normalized examples in the units of the data, float64."""
    return np.asarray(examples if units is None else units.restore(examples), np.float64)


def grid_columns(in_turn: int, side: int = GRID_SIDE) -> int:
    """Returns the number of columns of a grid.

    Args:
      in_turn: The number of classes or conditions that samples have in turn. Each has a column if
        there are 2 to 2 * GRID_SIDE.
      side: The number of columns otherwise.
    """
    return in_turn if 1 < in_turn <= 2 * GRID_SIDE else side


def column_conditions(sampler: Sampler, columns: int) -> np.ndarray | None:
    """Returns a condition for each column of a grid, or None if the generator takes none."""
    return None if sampler.conditions is None else sampler.conditions.spread(columns)


def make_sample_images(
    sampler: Sampler,
    data: Examples,
    units: Scaling | Table | Pixels | None = None,
) -> Callable[[], dict[str, np.ndarray]]:
    """Returns a function that draws samples from fixed noise: () -> uint8 images, by tag.

    Args:
      sampler: Draws the samples.
      data: The training data, which sets the scales of plots.
      units: See `overview`.
    """
    rank = len(data.format.shape)
    needs_no_scale = _is_bounded(units) and _is_gray_or_color(data.format.shape)
    real = None if needs_no_scale else _first_for_plots(data)
    draw = functools.partial(overview, real=real, units=units)

    def draw_images() -> dict[str, np.ndarray]:
        images = {"samples": sample_sheet(sampler, rank, draw)}
        if rank > 1:
            between = interpolations(sampler, _rows(rank), GRID_SIDE)
            images["interpolation"] = draw(between, GRID_SIDE)
        return images

    return draw_images


def sample_sheet(
    sampler: Sampler, rank: int, draw: Callable[[np.ndarray, int], np.ndarray]
) -> np.ndarray:
    """Returns one picture of the first samples, uint8 `[H, W, C]`.

    Args:
      sampler: Draws the samples.
      rank: The number of axes of an example.
      draw: Draws samples with a number of them in a row; see `overview`.
    """
    if rank == 1:
        return draw(sampler.sample(PLOT_POINTS), GRID_SIDE)
    columns = grid_columns(sampler.classes, _rows(rank))
    conditions = column_conditions(sampler, columns)
    return draw(sampler.sample(_rows(rank) * columns, conditions=conditions), columns)


def _rows(rank: int) -> int:
    """Returns the number of rows of a grid of images, signals or volumes."""
    return GRID_SIDE if rank == 3 else SIGNAL_ROWS


def real_images(
    data: Examples, units: Scaling | Table | Pixels | None = None
) -> dict[str, np.ndarray]:
    """Returns a grid of the first real images or signals, by tag, or nothing for points and tables.

    Real points and features are plotted together with the samples instead.

    Args:
      data: The training data.
      units: See `overview`.
    """
    rank = len(data.format.shape)
    if rank == 1:
        return {}
    rows = _rows(rank)
    examples = data.read(rows**2)[0].numpy()
    return {"real": overview(examples, rows, units=units)}


def _first_for_plots(data: Examples) -> np.ndarray:
    """Returns the first examples of training: each at most once, unless there are few points."""
    shape = data.format.shape
    count = max(GRID_SIDE**2, min(PLOT_POINTS, MAX_PLOT_VALUES // math.prod(shape)))
    if shape != (2,):
        count = data.available(count)
    return data.read(count)[0].numpy()
