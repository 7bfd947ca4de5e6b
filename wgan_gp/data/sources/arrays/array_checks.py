"""Checks of arrays against the flags of a run."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from absl import logging

from ....config import DataSettings
from ....errors import UserError, shorten
from ...scaling.precision import warn_if_coarse
from ...scaling.scaling import Scaling, Statistics
from ...scaling.whitening import MAX_VALUES
from ...spec import DataSpec
from .array_data import ArrayData

# The sizes of values that networks can learn without scaling. Initial weights expect 1; the squares
# in a penalty and in Adam overflow long before the values do.
_UNSCALED = (1e-3, 1e6)
# The squares of larger and smaller numbers are no normal numbers of float64.
_SCALED = (1e-150, 1e150)
# The squares of larger normalized values overflow in float32.
_MOST_NORMALIZED = 1e18
# Data whose range differs by a larger factor from that of the training data is in another unit.
_MOST_RATIO = 30
# Signals of at least as many steps and channels, in similar numbers, may be gray images.
_FEWEST_PIXELS = 8


def check_scaling(flag: str, data: ArrayData, settings: DataSettings) -> None:
    """Raises UserError if --scaling=whiten does not support the shape of the examples."""
    _, *shape = data.examples.shape
    if settings.scaling == "whiten" and (len(shape) >= 3 or math.prod(shape) > MAX_VALUES):
        raise UserError(
            f"--scaling=whiten, but the examples of {flag} have shape {shape}",
            f"use --scaling=standard: whiten is for features and signals of up to {MAX_VALUES} "
            "values",
        )


def check_constant(flag: str, data: ArrayData, scaling: Scaling, settings: DataSettings) -> None:
    """Raises UserError if features are constant and --invalid does not leave them out.

    Args:
      flag: The flag that names the file, with its value.
      data: The file.
      scaling: The scaling of the examples.
      settings: The settings of the data.
    """
    is_constant = np.ones([len(scaling.constants)], bool)
    is_constant[list(scaling.used)] = False
    if not is_constant.any():
        return
    what = f"{flag} is constant in {names_of(data, is_constant)}"
    if is_constant.all():
        raise UserError(what, "give data that vary")
    if settings.invalid == "refuse":
        raise UserError(
            what,
            "leave these out with --invalid=drop (samples then contain the constants), or use "
            "--scaling=none",
        )
    logging.warning(f"{what}; the networks do not see it, and samples contain the constants")


def check_range(flag: str, data: ArrayData, scaling: Scaling) -> None:
    """Raises UserError if the moments of features cannot be computed in float64."""
    largest = np.maximum(np.abs(scaling.minimum), np.abs(scaling.maximum))
    is_bad = np.zeros([len(scaling.constants)], bool)
    is_bad[list(scaling.used)] = (largest > _SCALED[1]) | ~(np.array(scaling.scale) >= _SCALED[0])
    if scaling.method != "none" and is_bad.any():
        raise UserError(
            f"{flag} has values in {names_of(data, is_bad)} that are too large, or too close to "
            "each other, to be scaled in float64",
            "multiply them by a constant",
        )


def check_values(flag: str, scaling: Scaling, settings: DataSettings) -> None:
    """Raises UserError if --scaling=none leaves values that networks cannot learn."""
    largest = max(map(abs, (*scaling.minimum, *scaling.maximum)))
    if settings.scaling == "none" and not _UNSCALED[0] <= largest <= _UNSCALED[1]:
        raise UserError(
            f"{flag} contains values of up to {largest:.3g} in size, which networks cannot learn "
            "with --scaling=none",
            "use --scaling=minmax or standard",
        )


def check_normalized(flag: str, data: ArrayData, statistics: Statistics, scaling: Scaling) -> None:
    """Raises UserError if the scaling of other data leaves values that networks cannot compute."""
    extremes = np.stack([statistics.minimum, statistics.maximum])[:, scaling.used]
    if scaling.method != "none":
        with np.errstate(over="ignore"):
            extremes = (extremes - scaling.offset) / scaling.scale
    is_bad = np.zeros([len(scaling.constants)], bool)
    is_bad[list(scaling.used)] = np.abs(extremes).max(axis=0) > _MOST_NORMALIZED
    if is_bad.any():
        raise UserError(
            f"{flag} has values in {names_of(data, is_bad)} that are too far from the training "
            "data of the run",
            "give data in the units of the training data",
        )
    _warn_of_range(flag, statistics, scaling)


def _warn_of_range(flag: str, statistics: Statistics, scaling: Scaling) -> None:
    """Warns of values in another unit, such as pixels in [0, 1] for training with [0, 255]."""
    used = list(scaling.used)
    here, before = (
        (float(np.min(np.array(low)[used])), float(np.max(np.array(high)[used])))
        for low, high in (
            (statistics.minimum, statistics.maximum),
            (scaling.minimum, scaling.maximum),
        )
    )
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratio = np.divide(here[1] - here[0], before[1] - before[0])
    if not 1 / _MOST_RATIO < ratio < _MOST_RATIO:
        logging.warning(
            f"{flag} has values from {here[0]:g} to {here[1]:g}, but the training data has values "
            f"from {before[0]:g} to {before[1]:g}: are they in the same unit?"
        )


def check_names(flag: str, data: ArrayData, scaling: Scaling) -> None:
    """Raises UserError if a table has other columns than the training data, or another order."""
    if data.names is None or scaling.names is None or data.names == scaling.names:
        return
    lacking = [name for name in scaling.names if name not in data.names]
    added = [name for name in data.names if name not in scaling.names]
    what = [f"lacks {lacking[0]}"] * bool(lacking) + [f"has {added[0]}"] * bool(added)
    raise UserError(
        f"{flag} has other columns than the training data: it "
        f"{' and '.join(what) or 'has them in another order'}",
        f"give the columns {shorten(', '.join(scaling.names), 300)}",
    )


def warn_of_precision(flag: str, data: ArrayData, statistics: Statistics, scaling: str) -> None:
    """Warns of features that are rounded: in the file or, with --scaling=none, in the networks."""
    dtype = data.examples.dtype
    if scaling == "none" and dtype.kind == "f" and dtype.itemsize > 4:
        dtype = np.dtype(np.float32)
    names = functools.partial(names_of, data)
    warn_if_coarse(flag, names, statistics.minimum, statistics.maximum, dtype)


def check_shape(flag: str, shape: tuple[int, ...], spec: DataSpec) -> None:
    """Raises UserError unless arrays of a shape `[N, ...]` are examples like those of a spec."""
    expected = spec.example_shape
    if spec.scaling is not None:  # features may be left out
        expected = (*expected[:-1], len(spec.scaling.constants))
    if shape[1:] != expected:
        raise UserError(
            f"{flag} contains examples of shape {shape[1:]}, but the run was trained on {expected}",
            "give examples of the shape of the training data",
        )


def warn_of_channels(flag: str, shape: tuple[int, ...]) -> None:
    """Names what axes may mean instead: channels first, as in PyTorch, or gray images."""
    if (
        len(shape) == 3
        and min(shape[1:]) >= _FEWEST_PIXELS
        and max(shape[1:]) <= 2 * min(shape[1:])
    ):
        logging.info(
            f"note: {flag} contains signals of {shape[1]} steps and {shape[2]} channels; if they "
            "are gray images [N, H, W], save examples[..., None]"
        )
    if len(shape) >= 4 and shape[1] <= 4 < min(shape[2:]):
        _, *sides, channels = shape
        what, axes = ("images", "H, W") if len(sides) == 2 else ("volumes", "D, H, W")
        logging.warning(
            f"{flag} contains {what} of {'x'.join(map(str, sides))} "
            f"{'pixels' if what == 'images' else 'voxels'} and {channels} channels; if they are "
            f"[N, C, {axes}] as in PyTorch, save np.moveaxis(examples, 1, -1)"
        )


def check_flags(flag: str, example_shape: tuple[int, ...], settings: DataSettings) -> None:
    """Raises UserError if a flag of images does not fit the file."""
    for name in ("image_size", "image_channels"):
        if (value := getattr(settings, name)) is not None and not _has(example_shape, name, value):
            raise UserError(
                f"--{name}={value}, but the examples of {flag} have shape {list(example_shape)}",
                "omit it: arrays are not resized",
            )


def names_of(data: ArrayData, selected: np.ndarray) -> str:
    """Returns the names of the selected features `[F]` bool, in words."""
    kind = "feature" if len(data.examples.shape) == 2 else "channel"
    found = [data.names[i] if data.names else f"{kind} {i}" for i in np.flatnonzero(selected)]
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return ", ".join(found[:5]) + more


def _has(example_shape: tuple[int, ...], name: str, value: Any) -> bool:
    """Returns True if images of the shape have the given size or number of channels."""
    if len(example_shape) != 3:
        return False
    height, width, channels = example_shape
    sizes = {str(height)} if height == width else {f"{height}x{width}"}
    return str(value) in sizes if name == "image_size" else value == channels
