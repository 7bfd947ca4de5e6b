"""Grids of samples, interpolations and real examples."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..data.pipeline import first_examples
from ..data.source import InMemoryData, StreamedData
from .canvas import Restore
from .pictures import overview
from .sampling import Sampler

# Images; a grid of samples for classes has a column for each of up to 2 * GRID_SIDE classes.
GRID_SIDE = 8
SIGNAL_ROWS = 4  # rows of plots of signals, which are larger than images
PLOT_POINTS = 2500
MAX_PLOT_VALUES = 2**24  # numbers in the real examples behind a plot


def interpolations(
    sampler: Sampler,
    rows: int,
    columns: int,
    label: int | None = None,
    *,
    conditions: Any = None,
) -> np.ndarray:
    """Interpolates between pairs of latent vectors, `[rows * columns, *example_shape]`.

    Row r starts with sample r and ends with the latents of sample `rows` + r. All samples of the
    row have the class or the condition of the first.

    Args:
      sampler: Draws the samples.
      rows: The number of pairs of latents.
      columns: The number of samples in a row, including both ends.
      label: The class of the samples, as in `Sampler.sample`.
      conditions: The conditions of the rows, in turn, as in `Sampler.sample`. Default: spread over
        those of the data.
    """
    if conditions is None and sampler.conditions is not None:
        conditions = sampler.conditions.spread(rows)
    latents, labels = sampler.noise(2 * rows, label, conditions=conditions)
    begins, ends = latents[:rows, None], latents[rows:, None]
    # The path is an arc: for independent z0 and z1 from N(0, I), cos(t) z0 + sin(t) z1 is also
    # from N(0, I), because cos^2 + sin^2 = 1. The generator was trained on this distribution.
    # Halfway along a straight line, the variance would be 1/2.
    t = np.linspace(0, np.pi / 2, columns)[:, None]
    between = (np.cos(t) * begins + np.sin(t) * ends).astype(np.float32)
    return sampler.generate(
        between.reshape(rows * columns, -1), labels[:rows].repeat(columns, axis=0)
    )


def transitions(sampler: Sampler, rows: int, columns: int, conditions: np.ndarray) -> np.ndarray:
    """Interpolates between conditions, `[rows * columns, *example_shape]`.

    Row r has the latents of sample r. Its conditions move along straight lines from the first given
    condition to the last.

    Args:
      sampler: Draws the samples.
      rows, columns: The numbers of latents, and of samples for each of them.
      conditions: `[M, K]` in the units of the data, M >= 2.
    """
    stops = np.linspace(0, len(conditions) - 1, columns)
    between = [np.interp(stops, np.arange(len(conditions)), column) for column in conditions.T]
    latents, labels = sampler.noise(rows * columns, conditions=np.stack(between, axis=1))
    return sampler.generate(latents[:rows].repeat(columns, axis=0), labels)


def grid_columns(classes: int, side: int = GRID_SIDE) -> int:
    """Returns the number of columns of a grid: one per class, or `side` for too many classes."""
    return classes if 1 < classes <= 2 * GRID_SIDE else side


def column_conditions(sampler: Sampler, columns: int) -> np.ndarray | None:
    """Returns a condition for each column of a grid, or None if the generator takes none."""
    return None if sampler.conditions is None else sampler.conditions.spread(columns)


def make_sample_images(
    sampler: Sampler,
    data: InMemoryData | StreamedData,
    *,
    restore: Restore | None = None,
    names: Sequence[str] | None = None,
    bounded: bool = True,
) -> Callable[[], dict[str, np.ndarray]]:
    """Returns a function that draws samples from fixed noise: () -> uint8 images, by tag.

    Args:
      sampler: Draws the samples.
      data: The training data, which sets the scales of plots.
      restore, names, bounded: See `pictures.overview`.
    """
    rank = len(data.example_shape)
    needs_no_scale = bounded and data.example_shape[2:] in ((1,), (3,))
    real = None if needs_no_scale else _first_for_plots(data)
    draw = functools.partial(overview, real=real, restore=restore, names=names, bounded=bounded)
    if rank == 1:
        return lambda: {"samples": draw(sampler.sample(PLOT_POINTS), GRID_SIDE)}
    rows = GRID_SIDE if rank == 3 else SIGNAL_ROWS
    return functools.partial(_sample_grids, sampler, rows, draw)


def _sample_grids(
    sampler: Sampler, rows: int, draw: Callable[[np.ndarray, int], np.ndarray]
) -> dict[str, np.ndarray]:
    columns = grid_columns(sampler.classes, rows)
    between = interpolations(sampler, rows, GRID_SIDE)
    samples = sampler.sample(rows * columns, conditions=column_conditions(sampler, columns))
    return {
        "samples": draw(samples, columns),
        "interpolation": draw(between, GRID_SIDE),
    }


def real_images(
    data: InMemoryData | StreamedData,
    *,
    restore: Restore | None = None,
    names: Sequence[str] | None = None,
    bounded: bool = True,
) -> dict[str, np.ndarray]:
    """Returns a grid of the first real images or signals, by tag, or nothing for points and tables.

    Real points and features are plotted together with the samples instead.

    Args:
      data: The training data.
      restore, names, bounded: See `pictures.overview`.
    """
    rank = len(data.example_shape)
    if rank == 1:
        return {}
    rows = GRID_SIDE if rank == 3 else SIGNAL_ROWS
    examples = first_examples(data, rows**2)[0].numpy()
    picture = overview(examples, rows, restore=restore, names=names, bounded=bounded)
    return {"real": picture}


def _first_for_plots(data: InMemoryData | StreamedData) -> np.ndarray:
    """Returns the first examples of training: each at most once, unless there are few points."""
    shape = data.example_shape
    count = max(GRID_SIDE**2, min(PLOT_POINTS, MAX_PLOT_VALUES // math.prod(shape)))
    if shape != (2,) and data.size is not None:
        count = min(count, data.size)
    return first_examples(data, count)[0].numpy()
