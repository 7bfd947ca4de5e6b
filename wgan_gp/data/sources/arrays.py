"""Arrays as a source: features, signals, images and volumes of numbers in any units."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from ...config import DataSettings
from ...errors import UserError, shorten
from ..conditions import Conditions
from ..frames import is_table
from ..scaling import MAX_VALUES, Covariance, Scaling, Statistics, is_byte, warn_if_coarse
from ..source import Source, is_held_out
from ..spec import DataSpec, count_of
from . import table
from .array_files import ArrayData, open_arrays
from .labels import numbered_like
from .listing import check_path
from .npy import Rows, chunks

_LARGE = 2**30  # bytes, which take several seconds to read
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


def find_source(settings: DataSettings, flag: str, like: DataSpec | None = None) -> Source:
    """Finds the arrays or the table of `flag`, --data_dir or --test_data_dir; see `source_of`."""
    path = settings.data_dir
    if path is None:
        raise UserError(
            "--dataset=array needs --data_dir",
            "give a .npy, .npz, .h5, .mat or .csv file, or a folder",
        )
    origin = f"{flag}={path}"
    check_path(origin, path)
    if is_table(path):
        return table.find_source(path, origin, settings, like)
    table.refuse_columns(origin, settings)
    return source_of(open_arrays(path, origin), settings, origin, like)


def source_of(
    data: ArrayData, settings: DataSettings, origin: str, like: DataSpec | None = None
) -> Source:
    """Returns the source of arrays, all of which are read once.

    Args:
      data: The arrays.
      settings: The settings of the data.
      origin: The name of the data for messages.
      like: The training data, in whose units the examples are; None for those of this data.

    Raises:
      UserError: If the arrays cannot be trained on, or are not like the training data.
    """
    _, *shape = data.examples.shape
    if settings.scaling == "whiten" and (len(shape) >= 3 or math.prod(shape) > MAX_VALUES):
        raise UserError(
            f"--scaling=whiten, but the examples of {origin} have shape {shape}",
            f"use --scaling=standard: whiten is for features and signals of up to {MAX_VALUES} "
            "values",
        )
    found = _examine(data, settings, origin, None if like is None else "none")
    _warn_of_precision(origin, data, found.statistics, settings.scaling)
    _warn_of_axes(origin, data.examples.shape)
    return _source_of(data, found, settings, origin, like)


class _Examined(NamedTuple):
    """The result of `_examine`.

    Attributes:
      statistics: The range and the moments of those that are trained on.
      valid: Which have no NaN and no infinity, `[N]` bool.
      content: A hash.
      covariance: That of all values of an example, for whitening; else None.
    """

    statistics: Statistics
    valid: np.ndarray
    content: str
    covariance: Covariance | None


def _source_of(
    data: ArrayData, found: _Examined, settings: DataSettings, origin: str, like: DataSpec | None
) -> Source:
    rows, valid, statistics = data.examples, found.valid, found.statistics
    scaling = None if like is None else like.scaling
    if like is None or scaling is None:
        scaling = _own_scaling(data, found, settings, origin)
    else:
        _check_like(data, statistics, origin, like, scaling)
        if scaling.dequantized and not statistics.are_integers:
            scaling = scaling.of_reals()
    example_shape = (*rows.shape[1:-1], len(scaling.used))
    if like is None:
        check_flags(origin, example_shape, settings)
    names = None if data.class_names is None else tuple(data.class_names)
    labels, conditions = data.labels, None
    if labels is not None and like is not None and like.classes:
        labels = numbered_like(like.class_names or (), labels, names or (), origin)
        names = like.class_names
    labels = None if labels is None else labels[valid]
    if data.conditions is not None:
        values = data.conditions[valid]
        conditions = Conditions.of(values[~is_held_out(len(values), settings.holdout)], origin)
        if like is not None and like.conditions is not None:
            conditions = conditions.scaled_like(like.conditions, origin)
        labels = conditions.standardize(values)
    used, is_whole = np.flatnonzero(valid), bool(valid.all())

    def read(indices: Any) -> np.ndarray:
        return scaling.to_stored(np.asarray(rows[indices if is_whole else used[indices]]))

    left_out = len(valid) - len(used)
    fingerprint = {"examples": len(valid), "content": found.content}
    return Source(
        origin,
        DataSpec(
            example_shape, len(names or ()), scaling.bounded, conditions, names, scaling=scaling
        ),
        np.uint8 if scaling.dequantized and is_byte(rows.dtype) else np.float32,
        len(used),
        read,
        labels,
        identity=lambda: fingerprint,
        notes=(f"{count_of(left_out, 'example')} left out: NaN or infinity",) if left_out else (),
        like=functools.partial(_source_of, data, found, settings, origin),
    )


def _examine(
    data: ArrayData, settings: DataSettings, origin: str, method: str | None = None
) -> _Examined:
    """Reads all examples once."""
    rows = data.examples
    statistics = Statistics(rows.shape[-1])
    is_trained_on = _is_trained_on(rows, settings.holdout)
    is_whitened = (method or settings.scaling) == "whiten"
    covariance = Covariance(rows.shape[1:]) if is_whitened else None
    content = hashlib.sha256()
    valid = []
    if (size := math.prod(rows.shape) * rows.dtype.itemsize) >= _LARGE:
        logging.info(f"note: reading {size / 2**30:.1f} GiB of {origin} for their range")
    with np.errstate(over="ignore", invalid="ignore"):  # see `_check_range`
        for first, part in chunks(rows):
            content.update(np.ascontiguousarray(part).data)
            used = is_trained_on[first : first + len(part)]
            valid.append(statistics.add(part, used))
            if covariance is not None:
                covariance.add(part[valid[-1] & used])
    for values in (data.labels, data.conditions):
        if values is not None:
            content.update(np.ascontiguousarray(values).data)
    is_valid = np.concatenate(valid)
    if not is_valid.all():
        what = (
            f"{origin} contains NaN or infinity in {(~is_valid).sum()} of {len(is_valid)} "
            f"examples, in {data.names_of(statistics.invalid > 0)}"
        )
        if settings.invalid == "refuse":
            raise UserError(what, "correct them, or leave them out with --invalid=drop")
        if not is_valid.any():
            raise UserError(what, "give data with valid examples")
        logging.warning(f"{what}; these examples are left out")
    return _Examined(statistics, is_valid, content.hexdigest(), covariance)


def _is_trained_on(rows: Rows, share: float | None) -> np.ndarray:
    """Returns the examples that determine the scaling, `[N]` bool: not those that are held out."""
    used = np.ones([rows.shape[0]], bool)
    if share:
        for first, part in chunks(rows):
            used[first : first + len(part)] = np.isfinite(part).reshape(len(part), -1).all(axis=1)
        used[used] = ~is_held_out(np.count_nonzero(used), share)
    return used


def _own_scaling(data: ArrayData, found: _Examined, settings: DataSettings, origin: str) -> Scaling:
    """Returns the scaling of training data.

    Raises:
      UserError: If it cannot be scaled, or is constant.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scaling = found.statistics.scaling(
            settings.scaling,
            dtype=data.examples.dtype,
            dequantize=settings.dequantization,
            names=data.names,
        )
    _check_range(origin, data, scaling)
    if found.covariance is not None and scaling.used:
        whitening = found.covariance.whitening(scaling.offset, scaling.scale, scaling.used)
        scaling = dataclasses.replace(scaling, whitening=whitening)
    _check_constant(origin, data, scaling, settings)
    largest = max(map(abs, (*scaling.minimum, *scaling.maximum)))
    if settings.scaling == "none" and not _UNSCALED[0] <= largest <= _UNSCALED[1]:
        raise UserError(
            f"{origin} contains values of up to {largest:.3g} in size, which networks cannot learn "
            "with --scaling=none",
            "use --scaling=minmax or standard",
        )
    return scaling


def _selected(scaling: Scaling, of_used: Any) -> np.ndarray:
    """Returns for all features `[F]` what is given for those that are used; False for others."""
    selected = np.zeros([len(scaling.constants)], bool)
    selected[list(scaling.used)] = of_used
    return selected


def _check_constant(origin: str, data: ArrayData, scaling: Scaling, settings: DataSettings) -> None:
    """Raises UserError if features are constant and --invalid does not leave them out."""
    is_constant = ~_selected(scaling, True)
    if not is_constant.any():
        return
    what = f"{origin} is constant in {data.names_of(is_constant)}"
    if is_constant.all():
        raise UserError(what, "give data that vary")
    if settings.invalid == "refuse":
        raise UserError(
            what,
            "leave these out with --invalid=drop (samples then contain the constants), or use "
            "--scaling=none",
        )
    logging.warning(f"{what}; the networks do not see it, and samples contain the constants")


def _check_range(origin: str, data: ArrayData, scaling: Scaling) -> None:
    """Raises UserError if the moments of features cannot be computed in float64."""
    largest = np.maximum(np.abs(scaling.minimum), np.abs(scaling.maximum))
    is_bad = _selected(scaling, (largest > _SCALED[1]) | ~(np.array(scaling.scale) >= _SCALED[0]))
    if scaling.method != "none" and is_bad.any():
        raise UserError(
            f"{origin} has values in {data.names_of(is_bad)} that are too large, or too close to "
            "each other, to be scaled in float64",
            "multiply them by a constant",
        )


def _check_like(
    data: ArrayData, statistics: Statistics, origin: str, like: DataSpec, scaling: Scaling
) -> None:
    """Raises UserError if arrays have another shape or other columns than the training data.

    Also if the scaling of the training data leaves values that networks cannot compute.
    """
    check_shape(origin, data.examples.shape, like)
    if None not in (data.names, scaling.names) and data.names != scaling.names:
        raise UserError(
            f"{origin} has other fields than the training data",
            f"give the fields {shorten(', '.join(scaling.names or ()), 300)}",
        )
    size = 0 if data.conditions is None else data.conditions.shape[1]
    if like.conditions is not None and size not in (0, like.conditions.size):
        raise UserError(
            f"{origin} has conditions of {size} numbers, but those of the training data have "
            f"{like.conditions.size}",
            "give data with the same conditions",
        )
    extremes = np.stack([statistics.minimum, statistics.maximum])[:, scaling.used]
    if scaling.method != "none":
        with np.errstate(over="ignore"):
            extremes = (extremes - scaling.offset) / scaling.scale
    is_bad = _selected(scaling, np.abs(extremes).max(axis=0) > _MOST_NORMALIZED)
    if is_bad.any():
        raise UserError(
            f"{origin} has values in {data.names_of(is_bad)} that are too far from the training "
            "data of the run",
            "give data in the units of the training data",
        )
    _warn_of_range(origin, statistics, scaling)


def _warn_of_range(origin: str, statistics: Statistics, scaling: Scaling) -> None:
    """Warns of values in another unit, such as pixels in [0, 1] for training with [0, 255]."""
    used = list(scaling.used)
    here = statistics.minimum[used].min(), statistics.maximum[used].max()
    before = min(scaling.minimum), max(scaling.maximum)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratio = np.divide(here[1] - here[0], before[1] - before[0])
    if not 1 / _MOST_RATIO < ratio < _MOST_RATIO:
        logging.warning(
            f"{origin} has values from {here[0]:g} to {here[1]:g}, but the training data has "
            f"values from {before[0]:g} to {before[1]:g}: are they in the same unit?"
        )


def _warn_of_precision(origin: str, data: ArrayData, statistics: Statistics, scaling: str) -> None:
    """Warns of features that are rounded: in the file or, with --scaling=none, in the networks."""
    dtype = data.examples.dtype
    if scaling == "none" and dtype.kind == "f" and dtype.itemsize > 4:
        dtype = np.dtype(np.float32)
    warn_if_coarse(origin, data.names_of, statistics.minimum, statistics.maximum, dtype)


def check_shape(origin: str, shape: tuple[int, ...], spec: DataSpec) -> None:
    """Raises UserError unless arrays of a shape `[N, ...]` are examples like those of a spec."""
    expected = spec.example_shape
    if spec.scaling is not None:  # features may be left out
        expected = (*expected[:-1], len(spec.scaling.constants))
    if shape[1:] != expected:
        raise UserError(
            f"{origin} contains examples of shape {shape[1:]}, but the run was trained on "
            f"{expected}",
            "give examples of the shape of the training data",
        )


def looks_like_pictures(shape: tuple[int, ...]) -> bool:
    """Returns True if an array `[N, T, C]` of signals may be gray images `[N, H, W]`."""
    sides = shape[1:]
    return len(sides) == 2 and min(sides) >= _FEWEST_PIXELS and max(sides) <= 2 * min(sides)


def _warn_of_axes(origin: str, shape: tuple[int, ...]) -> None:
    """Names what axes may mean instead: channels first, as in PyTorch, or gray images."""
    if looks_like_pictures(shape):
        logging.info(
            f"note: {origin} contains signals of {shape[1]} steps and {shape[2]} channels; if they "
            "are gray images [N, H, W], give examples[..., None]"
        )
    if len(shape) >= 4 and shape[1] <= 4 < min(shape[2:]):
        _, *sides, channels = shape
        what, axes = ("images", "H, W") if len(sides) == 2 else ("volumes", "D, H, W")
        logging.warning(
            f"{origin} contains {what} of {'x'.join(map(str, sides))} "
            f"{'pixels' if what == 'images' else 'voxels'} and {channels} channels; if they are "
            f"[N, C, {axes}] as in PyTorch, give np.moveaxis(examples, 1, -1)"
        )


def check_flags(origin: str, example_shape: tuple[int, ...], settings: DataSettings) -> None:
    """Raises UserError if a flag of images does not fit examples that are not resized."""
    height, width, channels = example_shape if len(example_shape) == 3 else (0, 0, 0)
    sizes = {f"{height}x{width}", *([str(height)] if height == width else [])}
    for name, fitting in (("image_size", sizes), ("image_channels", {str(channels)})):
        value = getattr(settings, name)
        if value is not None and str(value) not in fitting:
            raise UserError(
                f"--{name}={value}, but the examples of {origin} have shape {list(example_shape)}",
                "omit it: arrays are not resized",
            )
