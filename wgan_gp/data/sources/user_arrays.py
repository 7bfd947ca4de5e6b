"""Arrays and datasets of the user in one checked form."""

from __future__ import annotations

import functools
import hashlib
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...config import DataSettings
from ...errors import UserError, explaining, shorten
from ..feed.pipeline import without_autotune
from ..opened_data import MAX_CACHE_BYTES
from ..scaling.precision import in_words, warn_if_coarse

_BATCH_SIZE = 256  # examples per batch when a dataset is read into memory
_RETURN = "give an array, a pair of arrays (examples, labels), or a tf.data.Dataset of these"
_NUMBERS = "give numbers of shape [N, H, W, C] or [N, D]"
MAX_IMAGE = 1.001  # images are in [-1, 1], up to rounding
# A part of the error of a streamed dataset.
OUT_OF_RANGE = "it has an image outside [-1, 1], or a row with NaN or infinity"


class Arrays(NamedTuple):
    """Examples in memory.

    Attributes:
      examples: `[N, H, W, C]` uint8 or float32, or `[N, D]` float32.
      labels: `[N]` int64, or conditions `[N, K]` of any numeric dtype, or None.
    """

    examples: np.ndarray
    labels: np.ndarray | None


def convert(value: Any, settings: DataSettings, flag: str) -> Arrays | tf.data.Dataset:
    """Returns what the user's function returned as checked arrays or as a dataset of tuples.

    Args:
      value: What it returned.
      settings: --cache decides whether a dataset is read into memory.
      flag: The flag that names the function or the file, for messages.

    Raises:
      UserError: If the value is not usable.
    """
    if isinstance(value, tf.data.Dataset):
        dataset = _as_tuples(value, flag)
        arrays = _load(dataset, settings, flag)
        if arrays is None:
            return _streamed(dataset, flag)
    else:
        if isinstance(value, tuple) and len(value) != 2:
            raise UserError(f"{flag} gives a tuple of {len(value)} values", _RETURN)
        examples, labels = value if isinstance(value, tuple) else (value, None)
        arrays = Arrays(
            _as_array(examples, flag), None if labels is None else _as_array(labels, flag)
        )
    return _check(arrays, flag)


def _as_array(value: Any, flag: str) -> np.ndarray:
    """Returns an array of one or more axes.

    Raises:
      UserError: If the value cannot be converted without a loss.
    """
    if np.ma.is_masked(value):
        raise UserError(f"{flag} gives an array with masked elements", "fill or remove them")
    with explaining(flag):
        try:
            array = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise UserError(f"{flag} gives {shorten(str(error))}", _RETURN) from None
    if not array.ndim:
        raise UserError(f"{flag} gives an object of type {type(value).__name__}", _RETURN)
    return array


def _as_tuples(dataset: tf.data.Dataset, flag: str) -> tf.data.Dataset:
    """Returns a dataset of examples, or of examples and labels, as a dataset of tuples."""
    spec = dataset.element_spec
    if isinstance(spec, dict) and "image" in spec:  # as in tensorflow-datasets
        keys = [key for key in ("image", "label") if key in spec]
        dataset = dataset.map(lambda element: tuple(element[key] for key in keys))
    elif isinstance(spec, tf.TensorSpec):
        dataset = dataset.map(lambda example: (example,))
    spec = dataset.element_spec
    is_tuple = isinstance(spec, tuple) and len(spec) in (1, 2)
    if not is_tuple or not all(isinstance(each, tf.TensorSpec) for each in spec):
        raise UserError(f"{flag} gives a dataset of {shorten(str(spec))}", _RETURN)
    for what, each in zip(("examples", "labels"), spec, strict=False):
        if not (each.dtype.is_floating or each.dtype.is_integer or each.dtype == tf.bool):
            raise UserError(f"{flag} gives a dataset of {what} of {each.dtype.name}", _NUMBERS)
    shape = spec[0].shape
    if not shape.is_fully_defined() or shape.rank not in (1, 2, 3) or not shape.num_elements():
        raise UserError(
            f"{flag} gives a dataset of examples of shape {shape}",
            "give each example the same shape, [H, W, C] or [D], without batching the dataset",
        )
    if len(spec) == 2 and not (spec[1].shape.is_fully_defined() and spec[1].shape.rank < 2):
        raise UserError(
            f"{flag} gives a dataset of labels of shape {spec[1].shape}",
            "give each example one integer from 0, or a condition of K numbers",
        )
    return dataset


def _streamed(dataset: tf.data.Dataset, flag: str) -> tf.data.Dataset:
    """Returns a dataset that is not read into memory, whose examples are checked when read.

    Raises:
      UserError: If it has no examples or the first one cannot be read.
    """
    dataset = dataset.map(lambda *parts: (_as_example(parts[0]), *parts[1:]))
    with explaining(flag):
        is_empty = next(dataset.take(1).as_numpy_iterator(), None) is None
    if is_empty:
        raise UserError(f"{flag} gives a dataset without examples", "correct it")
    return dataset


def _load(dataset: tf.data.Dataset, settings: DataSettings, flag: str) -> Arrays | None:
    """Reads a dataset into memory, or returns None if --cache or its size forbid it."""
    spec = dataset.element_spec[0]
    limit = MAX_CACHE_BYTES if settings.cache == "auto" else 2**62
    count = int(dataset.cardinality())
    size = int(np.prod(spec.shape)) * spec.dtype.size
    if settings.cache == "off" or count == tf.data.INFINITE_CARDINALITY or count * size > limit:
        return None
    parts: list[tuple] = []
    read = 0
    with explaining(flag):
        for batch in without_autotune(dataset.batch(_BATCH_SIZE)).as_numpy_iterator():
            parts.append(batch)
            read += batch[0].nbytes
            if read > limit:
                return None
    if not parts:
        return Arrays(np.empty([0, *spec.shape], np.float32), None)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Arrays(columns[0], columns[1] if len(columns) > 1 else None)


def _as_example(example: tf.Tensor) -> tf.Tensor:
    """Returns a streamed example in the shape and dtype of `Arrays`, checked as they are."""
    if example.shape.rank == 2:
        example = example[..., None]
    if example.shape.rank == 3 and example.dtype == tf.uint8:
        return example
    example = tf.cast(example, tf.float32)
    limit = MAX_IMAGE if example.shape.rank == 3 else tf.float32.max
    is_valid = tf.reduce_all(tf.abs(example) <= limit)  # NaN is not
    with tf.control_dependencies([tf.debugging.Assert(is_valid, [OUT_OF_RANGE])]):
        return tf.identity(example)


def _check(arrays: Arrays, flag: str) -> Arrays:
    """Returns the arrays with their documented shapes and dtypes.

    Raises:
      UserError: If that is impossible.
    """
    examples, labels = arrays
    if examples.ndim == 3:  # images without a dimension for channels
        examples = examples[..., None]
    if not examples.size or examples.ndim not in (2, 4) or examples.dtype.kind not in "fiub":
        raise UserError(
            f"{flag} gives examples of shape {examples.shape} and dtype {examples.dtype}",
            _NUMBERS,
        )
    if not (examples.ndim == 4 and examples.dtype == np.uint8):
        if not np.isfinite(examples).all():
            bad = int((~np.isfinite(examples)).reshape(len(examples), -1).any(1).sum())
            raise UserError(
                f"{flag} gives NaN or infinity in {bad} of {len(examples)} examples",
                "leave them out",
            )
        examples = _to_float32(examples, flag)
        if examples.ndim == 4 and np.abs(examples).max() > MAX_IMAGE:
            raise UserError(
                f"{flag} gives images from {examples.min():g} to {examples.max():g}",
                "scale them to [-1, 1], or give uint8",
            )
    return Arrays(examples, _check_labels(labels, len(examples), flag))


def _to_float32(examples: np.ndarray, flag: str) -> np.ndarray:
    """Returns finite examples in the dtype of `Arrays`, and warns if it is too coarse for them.

    Raises:
      UserError: If they overflow.
    """
    low, high = (each.astype(np.float64) for each in (examples.min(axis=0), examples.max(axis=0)))
    if (largest := max(-low.min(), high.max())) > np.finfo(np.float32).max:
        raise UserError(
            f"{flag} gives examples of up to {largest:.3g} in size, which float32 cannot hold",
            "scale them to values near 1",
        )
    if examples.ndim == 2:  # pixels may be almost constant
        dtype = examples.dtype
        if dtype.itemsize > 2 and (dtype.kind == "f" or largest > 2**24):
            dtype = np.dtype(np.float32)
        warn_if_coarse(flag, functools.partial(in_words, "feature"), low, high, dtype)
    return examples.astype(np.float32)


def _check_labels(labels: np.ndarray | None, count: int, flag: str) -> np.ndarray | None:
    if labels is None:
        return None
    if labels.dtype.kind == "f" or (labels.ndim == 2 and labels.shape[1] > 1):
        return check_conditions(labels, count, flag)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (count,) or labels.dtype.kind not in "iu" or labels.min() < 0:
        raise UserError(
            f"{flag} gives labels of shape {labels.shape} and dtype {labels.dtype} for {count} "
            "examples",
            "give one integer from 0 for each example, or conditions [N, K] of numbers",
        )
    if labels.max() >= 1_000_000:
        raise UserError(f"{flag} gives the label {labels.max()}", "number the classes from 0")
    return labels.astype(np.int64)


def check_conditions(conditions: np.ndarray, count: int, flag: str) -> np.ndarray:
    """Returns conditions `[N]` or `[N, K]` of N examples as `[N, K]` of the same dtype.

    Raises:
      UserError: If they have another shape or dtype, or contain NaN or infinity.
    """
    shape = conditions.shape
    conditions = conditions[:, None] if conditions.ndim == 1 else conditions
    if conditions.ndim != 2 or not conditions.size or len(conditions) != count:
        raise UserError(
            f"{flag} gives conditions of shape {shape} for {count} examples",
            "give one number, or K numbers, for each example: [N] or [N, K]",
        )
    if conditions.dtype.kind not in "fiub":
        raise UserError(f"{flag} gives conditions of {conditions.dtype}", "give numbers")
    if bad := int((~np.isfinite(conditions)).any(axis=1).sum()):
        raise UserError(
            f"{flag} gives NaN or infinity in the conditions of {bad} of {count} examples",
            "leave these examples out",
        )
    return conditions


def fingerprint(arrays: Arrays) -> dict[str, Any]:
    """Returns the fingerprint of the arrays, as stored in data.json."""
    content = hashlib.sha256(np.ascontiguousarray(arrays.examples).data)
    if arrays.labels is not None:
        content.update(arrays.labels.tobytes())
    return {"examples": len(arrays.examples), "content": content.hexdigest()}
