"""Scaling of arrays: from the units of the data to the range of the networks, and back.

With the dequantization of integers, which get noise so that a critic cannot detect their levels;
the whitening of features and signals, which gives all directions the same variance; and warnings of
numbers whose spread is small in comparison with their size.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ..config import DataSettings
from .pixels import flip, random_integers

METHODS = ("minmax", "standard", "whiten", "none")
_FLOATS = ("float16", "float32", "float64", "longdouble", "float128", "bfloat16")
_INTEGERS = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
MOST_LEVELS = 2**16  # of integers that get noise: 8 of the 24 bits of float32 are left for it
MAX_VALUES = 1024  # of an example; data.json has a matrix with the square of this number
# Directions of less variance, as a share of the largest one, are not enlarged to variance 1: there
# the data are constant up to rounding, and samples would have to be so, too.
_SMALLEST_VARIANCE = 1e-6
_FEWEST_STEPS = 1000  # between the smallest and the largest number, or a warning is printed


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Maps each feature or channel, the last axis of an example, by (x - offset) / scale.

    Integers that are dequantized get noise u from [0, 1) first: (x + u - offset) / scale.

    Attributes:
      method: "minmax", "standard", "whiten" or "none".
      offset: `[F]`, of the features that are used.
      scale: `[F]`, likewise.
      minimum: `[F]`, of the training data, in its own units.
      maximum: `[F]`, likewise.
      used: `[F]`, the indices of the features that are used.
      constants: The values of all features of the data; those of used features have no meaning.
      dequantized: Whether the data are integers that get noise.
      dtype: The name of the data's dtype.
      names: The names of all features, or None.
      whitening: Applied after the scales if the method is "whiten", else None.
    """

    method: str
    offset: tuple[float, ...]
    scale: tuple[float, ...]
    minimum: tuple[float, ...]
    maximum: tuple[float, ...]
    used: tuple[int, ...]
    constants: tuple[float, ...]
    dequantized: bool
    dtype: str
    names: tuple[str, ...] | None = None
    whitening: Whitening | None = None

    @property
    def bounded(self) -> bool:
        """Is True if all normalized training examples are in [-1, 1]."""
        if self.method == "none":
            return min(self.minimum) >= -1 and max(self.maximum) <= 1
        return self.method == "minmax"

    @property
    def signature_dtype(self) -> tf.DType:
        """The dtype of examples in the units of the data: float64 if float32 is too coarse."""
        is_integer = np.dtype(self.dtype).kind in "iu"
        exact = [self.constants[place] for place in self.unused] if is_integer else []
        if self.dequantized:
            exact += [*self.minimum, *self.maximum]
        is_wide = max(map(abs, exact), default=0) > 2**24 or (
            not self.dequantized and needs_float64(self.minimum, self.maximum, self.dtype)
        )
        return tf.float64 if is_wide else tf.float32

    @property
    def unused(self) -> np.ndarray:
        """The indices of the features that are not used."""
        return np.setdiff1d(np.arange(len(self.constants)), self.used)

    def check(self, example_shape: tuple[int, ...]) -> None:
        """Raises ValueError unless this may be the scaling of normalized examples of a shape."""
        count, whitening = len(self.constants), self.whitening
        lists = (self.offset, self.scale, self.minimum, self.maximum, self.used)
        if self.method not in METHODS or self.dtype not in (*_FLOATS, *_INTEGERS):
            raise ValueError("the scaling has another method or dtype")
        if set(map(len, lists)) != {example_shape[-1]} or len(self.names or "." * count) != count:
            raise ValueError("the scaling has lists of other lengths")
        if not all(0 <= index < count for index in self.used):
            raise ValueError("the scaling uses features that the data lacks")
        if (self.method == "whiten") != (whitening is not None) or (
            whitening is not None and whitening.size != math.prod(example_shape)
        ):
            raise ValueError("the whitening does not fit the scaling")
        if not (self._has_range() and self._has_integers()):
            raise ValueError("the numbers of the scaling do not fit each other")

    def _has_range(self) -> bool:
        """Returns whether a distribution in the range has the offset and the scale."""
        low, high, offset, scale = (
            np.array(each) for each in (self.minimum, self.maximum, self.offset, self.scale)
        )
        if (low > high).any() or (np.array(self.constants)[list(self.used)] != low).any():
            return False
        width = 1.0 if self.dequantized else 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            middle, half = (low + high + width) / 2, (high - low + width) / 2
            if self.method == "none":
                return bool(((offset == middle) & (scale == half)).all())
            if self.method == "minmax":
                return bool(((offset == middle) & (scale == half) & (scale > 0)).all())
            # No distribution in a range has a larger deviation than half of it, up to rounding.
            slack = 1e-6 * half + 1e-12 * np.maximum(np.abs(low), np.abs(high))
            is_inside = (np.abs(offset - middle) <= half + slack) & (scale <= half + slack)
        return bool((is_inside & (scale > 0)).all())

    def _has_integers(self) -> bool:
        """Returns whether the data's dtype has the numbers, if it is one of integers."""
        if self.dtype not in _INTEGERS:
            return not self.dequantized
        dtype = np.dtype(self.dtype)
        limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        numbers = np.array([*self.constants, *self.maximum])
        is_inside = (numbers >= limits[0]) & (numbers <= limits[1])
        return bool((is_inside & (numbers == np.floor(numbers))).all())

    def of_reals(self) -> Scaling:
        """Returns the scaling for real numbers in the place of integers, which get no noise."""
        offset = tuple(each - 0.5 for each in self.offset)  # the mean of the noise
        return dataclasses.replace(self, offset=offset, dequantized=False)

    def to_stored(self, examples: np.ndarray) -> np.ndarray:
        """Returns examples of the data as they are stored: uint8 or float32.

        Integers that are dequantized are not normalized, because the noise is new at each use. All
        others are.

        Args:
          examples: `[N, ..., all features]`, of any numeric dtype.
        """
        examples = examples[..., self.used]
        if self.dequantized:
            if is_byte(examples.dtype):
                return examples.astype(np.uint8)
            # float32 has the distances of the data to the integer nearest to the offset.
            return (examples.astype(np.float64) - np.round(self.offset)).astype(np.float32)
        return self._normalize(examples.astype(np.float64)).astype(np.float32)

    def normalize(self, examples: tf.Tensor) -> tf.Tensor:
        """Returns examples of the data as the networks see them, float32.

        Integers that are dequantized get the mean of the noise.

        Args:
          examples: `[..., all features]`, of any numeric dtype.
        """
        values = tf.cast(tf.gather(examples, self.used, axis=-1), tf.float64)
        return tf.cast(self._normalize(values + 0.5 * self.dequantized), tf.float32)

    def _normalize(self, values: Any) -> Any:
        """Scales an array or a tensor of float64."""
        if self.method == "none":
            return values
        values = (values - self.offset) / self.scale
        return values if self.whitening is None else self.whitening.apply(values)

    def normalize_stored(
        self, settings: DataSettings, stored: tf.Tensor, first: tf.Tensor
    ) -> tf.Tensor:
        """Normalizes stored examples, with dequantization and random flips if configured.

        With 256 levels from 0 to 255, the result is that of `Pixels`.

        Args:
          settings: The seed, --dequantization and --random_flips.
          stored: `[B, ...]` as in `to_stored`.
          first: The position of the first example, scalar int64.

        Returns:
          `[B, ...]` float32.
        """
        if self.dequantized:
            stored = self._with_noise(settings, stored, first)
        return flip(settings, stored, first) if stored.shape.rank >= 4 else stored

    def _with_noise(self, settings: DataSettings, levels: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
        """Returns (x + u - offset) / scale for each integer x, with noise u from [0, 1), float32.

        For training data, floor(result * scale + offset) is x. Without --dequantization, u is 0.5.
        """
        offset, scale = np.array(self.offset), np.array(self.scale)
        middle = np.round(offset)
        values = tf.cast(levels, tf.float32)
        if levels.dtype == tf.uint8:
            values -= np.float32(middle)
        noise: tf.Tensor | float = 0.5
        if settings.dequantization:
            # Three roundings by 2^-24 must not move a value to another level. None is rounded if
            # the sum has at most 24 bits and the scale is a power of two.
            largest = np.ceil(np.maximum(offset - self.minimum, 1 - (offset - self.maximum)))
            is_exact = (largest <= 2**8) & (np.frexp(scale)[0] == 0.5)
            margin = np.where(is_exact, 0, largest * 2.0**-22).astype(np.float32)
            noise = random_integers(settings, levels.shape, first, 16) * 2.0**-16
            noise = tf.clip_by_value(noise, margin, 1 - margin)
        # The offset is subtracted before the noise is added, because the sum of a large integer
        # and the noise would be rounded.
        return (values + (noise + np.float32(middle - offset))) * np.float32(1 / scale)

    def restore_tensor(self, samples: tf.Tensor) -> tf.Tensor:
        """Returns samples in the units of the data, with all its features, in `signature_dtype`.

        Samples of data that were dequantized are integers in the range of the data.

        Args:
          samples: `[..., F]` float32, an output of the generator.
        """
        return tf.cast(self._restore(samples), self.signature_dtype)

    def _restore(self, samples: tf.Tensor) -> tf.Tensor:
        values = tf.cast(samples, tf.float64)
        if self.whitening is not None:
            values = self.whitening.invert(values)
        if self.dequantized:  # the integer part is added last, which is exact
            middle = np.round(self.offset)
            levels = tf.floor(values * self.scale + (self.offset - middle)) + middle
            values = tf.clip_by_value(levels, self.minimum, self.maximum)
        elif self.method != "none":
            values = values * self.scale + self.offset
        if len(unused := self.unused):
            constants = tf.constant(np.array(self.constants)[unused], tf.float64)
            shape = tf.concat([tf.shape(values)[:-1], [len(unused)]], axis=0)
            values = tf.concat([values, tf.broadcast_to(constants, shape)], axis=-1)
            places = np.argsort(np.concatenate([self.used, unused]))
            values = tf.gather(values, places, axis=-1)
        return values

    def restore(self, samples: np.ndarray) -> np.ndarray:
        """Returns samples as `restore_tensor` does, in a dtype that has the data's precision.

        It is the dtype of the data if that was dequantized, float64 for other data of 32 bits or
        more that are not float32, and otherwise float32.
        """
        values = self._restore(tf.constant(samples)).numpy()
        if self.dequantized:
            return values.astype(self.dtype)
        is_wide = np.dtype(self.dtype).itemsize >= 4 and self.dtype != "float32"
        return values.astype(np.float64 if is_wide else np.float32)

    def quantize(self, samples: np.ndarray) -> np.ndarray:
        """Returns normalized examples, float32, those of dequantized data with its mean noise."""
        if not self.dequantized:
            return samples
        return self.normalize(self._restore(tf.constant(samples))).numpy()


class Statistics:
    """The range and the moments of features, gathered in one pass over chunks of examples.

    The moments are merged as in Chan et al. 1983, which is stable, in float64.

    Args:
      features: The number of features or channels.

    Attributes:
      count: The number of values of each feature.
      minimum, maximum, mean: `[features]` float64.
      invalid: `[features]`, the number of examples in which a feature is NaN or infinite.
      are_integers: Whether all values are integers, of any dtype.
    """

    def __init__(self, features: int):
        self.count = 0
        self.minimum = np.full(features, np.inf)
        self.maximum = np.full(features, -np.inf)
        self.mean = np.zeros(features)
        self.invalid = np.zeros(features, int)
        self.are_integers = True
        self._squares = np.zeros(features)

    def add(self, examples: np.ndarray, used: np.ndarray | bool = True) -> np.ndarray:
        """Adds the used examples, and returns which examples have no NaN or infinity.

        Args:
          examples: `[B, ..., features]`.
          used: `[B]` bool, or True for all. Examples with NaN or infinity are never added.

        Returns:
          `[B]` bool.
        """
        features = examples.shape[-1]
        values = examples.reshape(len(examples), -1, features).astype(np.float64)
        bad = np.logical_not(np.isfinite(values)).any(axis=1)
        self.invalid += bad.sum(axis=0)
        valid = np.logical_not(bad.any(axis=1))
        if (valid & used).any():
            values = values[valid & used].reshape(-1, features)
            self.are_integers &= bool((values == np.floor(values)).all())
            self._merge(values)
        return valid

    def _merge(self, values: np.ndarray) -> None:
        self.minimum = np.minimum(self.minimum, values.min(axis=0))
        self.maximum = np.maximum(self.maximum, values.max(axis=0))
        mean, total = values.mean(axis=0), self.count + len(values)
        difference = mean - self.mean
        self._squares += ((values - mean) ** 2).sum(axis=0)
        self._squares += difference**2 * self.count * len(values) / total
        self.mean = self.mean + difference * len(values) / total
        self.count = total

    @property
    def variance(self) -> np.ndarray:
        """The variance of each feature, `[features]` float64."""
        return self._squares / self.count

    def scaling(
        self, method: str, *, dtype: np.dtype, dequantize: bool, names: Sequence[str] | None
    ) -> Scaling:
        """Returns the scaling of the features that are not constant.

        With the method "none", constant features are used, too.

        Args:
          method: "minmax", "standard", "none", or "whiten", for which the caller adds a whitening.
          dtype: The dtype of the data.
          dequantize: Whether integers of up to 2^16 levels get noise under "minmax" and "standard".
          names: The names of the features, or None.
        """
        largest = max(np.abs(self.minimum).max(), np.abs(self.maximum).max())
        levels = (self.maximum - self.minimum).max() + 1
        is_integer = dtype.kind in "iub" and levels <= MOST_LEVELS and largest < 2**53
        dequantized = dequantize and method in ("minmax", "standard") and is_integer
        used: np.ndarray = np.arange(len(self.mean))
        if method != "none":
            used = used[self.minimum < self.maximum]
        low, high = self.minimum[used], self.maximum[used]
        width = 1.0 if dequantized else 0.0  # of a level
        if method in ("standard", "whiten"):
            offset = self.mean[used] + width / 2
            scale = np.sqrt(self.variance[used] + width / 12)
        else:
            offset, scale = (low + high + width) / 2, (high - low + width) / 2
        return Scaling(
            method,
            offset=_floats(offset),
            scale=_floats(scale),
            minimum=_floats(low),
            maximum=_floats(high),
            used=tuple(map(int, used)),
            constants=_floats(self.minimum),
            dequantized=bool(dequantized),
            dtype=dtype.name,
            names=None if names is None else tuple(names),
        )


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(map(float, values))


# Dequantization


def is_byte(dtype: np.dtype) -> bool:
    """Returns True for the dtypes that are stored as uint8 if they are dequantized."""
    return dtype in (np.uint8, np.bool_)


# Whitening


@dataclasses.dataclass(frozen=True)
class Whitening:
    """Maps the values x of an example to root^-1 (x - mean), where root^2 is their covariance.

    The symmetric root keeps each value as close as possible to the original one, so neighbors of a
    signal stay neighbors (ZCA, Bell and Sejnowski 1997, doi:10.1016/S0042-6989(97)00121-1).

    Attributes:
      mean: `[D]` float64, encoded by `_encode`.
      root: `[D, D]` float64, likewise.
    """

    mean: str
    root: str

    @classmethod
    def of(cls, mean: np.ndarray, covariance: np.ndarray) -> Whitening:
        """Returns the whitening of examples with this mean `[D]` and covariance `[D, D]`."""
        variances, directions = np.linalg.eigh(covariance)
        roots = np.sqrt(np.maximum(variances, _SMALLEST_VARIANCE * variances[-1]))
        return cls(_encode(mean), _encode((directions * roots) @ directions.T))

    def __post_init__(self) -> None:
        try:
            is_usable = all(np.isfinite(each).all() for each in self._arrays)
        except (np.linalg.LinAlgError, ValueError):
            is_usable = False
        if not is_usable:
            raise ValueError("it is not a mean and a finite matrix that has an inverse")

    @property
    def size(self) -> int:
        """The number D of values of an example."""
        return len(self._arrays[0])

    def apply(self, examples: Any) -> Any:
        """Returns whitened examples; an array or a tensor `[N, *shape]` of float64, D values."""
        mean, _, inverse = self._arrays
        return _on_rows(lambda rows: (rows - mean) @ inverse, examples, len(mean))

    def invert(self, examples: Any) -> Any:
        """Returns the examples that `apply` maps to the given ones."""
        mean, root, _ = self._arrays
        return _on_rows(lambda rows: rows @ root + mean, examples, len(mean))

    @functools.cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The mean, the root, and its inverse."""
        mean = _decode(self.mean)
        root = _decode(self.root).reshape(len(mean), len(mean))
        return mean, root, np.linalg.inv(root)


class Covariance:
    """The mean and the covariance of all values of an example, gathered in one pass.

    Args:
      shape: The shape of an example.
    """

    def __init__(self, shape: Sequence[int]):
        self._shape = tuple(shape)
        size = math.prod(shape)
        self._count = 0
        self._mean = np.zeros(size)
        self._products = np.zeros([size, size])

    def add(self, examples: np.ndarray) -> None:
        """Adds finite examples `[N, *shape]`; merged as in `Statistics`."""
        if not len(examples):
            return
        rows = examples.reshape(len(examples), -1).astype(np.float64)
        mean, total = rows.mean(axis=0), self._count + len(rows)
        difference = mean - self._mean
        self._products += (rows - mean).T @ (rows - mean)
        self._products += np.outer(difference, difference) * (self._count * len(rows) / total)
        self._mean += difference * (len(rows) / total)
        self._count = total

    def whitening(
        self, offset: Sequence[float], scale: Sequence[float], used: Sequence[int]
    ) -> Whitening:
        """Returns the whitening of standardized examples (x - offset) / scale.

        Args:
          offset: `[F]`, of the features or channels that are used.
          scale: `[F]`, likewise.
          used: `[F]`, their indices.
        """
        places = np.arange(math.prod(self._shape)).reshape(self._shape)[..., used]
        wide = np.broadcast_to(scale, places.shape).reshape(-1)
        mean = (self._mean[places] - offset).reshape(-1) / wide
        places = places.reshape(-1)
        covariance = self._products[np.ix_(places, places)] / self._count
        return Whitening.of(mean, covariance / np.outer(wide, wide))


def _on_rows(function: Any, examples: Any, size: int) -> Any:
    library: Any = tf if tf.is_tensor(examples) else np
    rows = function(library.reshape(examples, [-1, size]))
    return library.reshape(rows, [-1, *examples.shape[1:]])


def _encode(values: np.ndarray) -> str:
    return base64.b64encode(values.astype("<f8").tobytes()).decode("ascii")


def _decode(encoded: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(encoded, validate=True), "<f8")


# Precision


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
