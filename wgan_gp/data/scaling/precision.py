"""The precision of numbers whose spread is small in comparison with their size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from absl import logging

_FEWEST_STEPS = 1000  # between the smallest and the largest number, or a warning is printed
_STEPS_IN_FLOAT32 = 2**16  # or the signatures of an export have float64


def needs_float64(low: Any, high: Any, dtype: Any) -> bool:
    """Returns True if float32 is too coarse for numbers that are stored more precisely.

    Args:
      low, high: `[F]` float64, the range of each feature.
      dtype: The type in which the numbers are stored.
    """
    if np.can_cast(dtype, np.float32):  # float32 and smaller types
        return False
    return bool(_is_coarse(low, high, np.float32, _STEPS_IN_FLOAT32).any())


def warn_if_coarse(
    origin: str, names_of: Callable[[np.ndarray], str], low: Any, high: Any, dtype: Any
) -> None:
    """Warns of features of which a type holds fewer than 1,000 different values.

    Args:
      origin: The flag that names the data.
      names_of: Returns the names of the selected features `[F]` bool, in words.
      low, high: `[F]` float64, the range of each feature.
      dtype: The type in which the numbers are stored. Integers are read as float64.
    """
    is_coarse = _is_coarse(low, high, dtype, _FEWEST_STEPS)
    if not is_coarse.any():
        return
    kind = _float_type(dtype)
    first = np.flatnonzero(is_coarse)[0]
    largest = max(low[first], high[first], key=abs)
    more_precise = "" if kind == np.float64 else ", or store them as float64"
    logging.warning(
        f"{origin} is rounded in {names_of(is_coarse)}: the values span "
        f"{high[first] - low[first]:.3g} near {largest:.6g}, where {kind.name} numbers are "
        f"{_spacing(abs(largest), kind):.3g} apart — subtract a constant before you store them"
        f"{more_precise}"
    )


def in_words(kind: str, selected: np.ndarray) -> str:
    """Returns the places of the selected features `[F]` bool, after the name of their kind."""
    places = np.flatnonzero(selected)
    more = f" and {len(places) - 5} more" if len(places) > 5 else ""
    return ", ".join(f"{kind} {place}" for place in places[:5]) + more


def _is_coarse(low: Any, high: Any, dtype: Any, steps: int) -> np.ndarray:
    """Returns which features `[F]` have fewer than `steps` steps between different extremes."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    size = np.maximum(np.abs(low), np.abs(high))
    with np.errstate(over="ignore"):
        return (low < high) & (high - low < steps * _spacing(size, _float_type(dtype)))


def _spacing(size: Any, dtype: np.dtype) -> np.ndarray:
    """Returns the distance of neighboring numbers of a size; infinity if the size overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        stored = np.asarray(size, dtype)
        steps = np.where(np.isfinite(stored), np.spacing(stored).astype(np.float64), np.inf)
    return np.maximum(steps, np.spacing(size))  # all numbers are read as float64


def _float_type(dtype: Any) -> np.dtype:
    dtype = np.dtype(dtype)
    return dtype if dtype.kind == "f" else np.dtype(np.float64)
