"""Arrays and datasets of the user in one checked form."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from ....errors import UserError, explaining, shorten
from ...feed.pipeline import without_autotune
from ...opened_data import MAX_CACHE_BYTES
from ...scaling.precision import in_words, warn_if_coarse
from ...spec import KINDS
from ..arrays.array_files import check_conditions
from ..labels import are_integers, is_one_hot, number_labels

_BATCH_SIZE = 256  # examples per batch when a dataset is read into memory
_PROBED = 16_384  # examples of a stream, for the kind of its labels and the moments of conditions
_RETURN = (
    "give an array, a pair of arrays (examples, labels), a dictionary of examples and labels or "
    "conditions, or a tf.data.Dataset of these"
)
_NUMBERS = "give numbers of shape [N, D], [N, H, W, C] or [N, D, H, W, C]"
MAX_IMAGE = 1.001  # images are in [-1, 1], up to rounding
# A part of the error of a streamed dataset.
OUT_OF_RANGE = "it has an image outside [-1, 1], or a row with NaN or infinity"
# The keys of dictionaries. "image" and "label" are those of tensorflow-datasets.
_EXAMPLE_KEYS, _TARGET_KEYS = ("examples", "image"), ("labels", "label", "conditions")


class Arrays(NamedTuple):
    """Examples in memory.

    Attributes:
      examples: `[N, H, W, C]` uint8 or float32, or `[N, D]` float32.
      labels: `[N]` int64, the numbers of classes, or None.
      class_names: The names of the classes; None without labels.
      conditions: `[N, K]` of any numeric dtype, or None.
    """

    examples: np.ndarray
    labels: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None
    conditions: np.ndarray | None = None


class Stream(NamedTuple):
    """Examples that are not held in memory.

    Attributes:
      dataset: A dataset of tuples: an example and, if there is one, its label or condition.
      classes: The number of classes if its labels say it (one-hot), else None.
      conditions: `[M, K]`, the conditions of the first examples; None without conditions.
    """

    dataset: tf.data.Dataset
    classes: int | None = None
    conditions: np.ndarray | None = None

    @property
    def has_labels(self) -> bool:
        """Is True if the second elements are numbers of classes."""
        return len(self.dataset.element_spec) > 1 and self.conditions is None


def convert(value: Any, flag: str) -> Arrays | Stream:
    """Returns what the user's function returned as checked arrays or as a stream.

    A dictionary says what its arrays are. The second part of a pair are labels; it is conditions
    only if it cannot be labels, see `_are_conditions`.

    Args:
      value: What it returned.
      flag: The flag that names the function or the file, for messages.

    Raises:
      UserError: If the value is not usable.
    """
    kind: str | None = None
    parts: Sequence[Any] | None
    if isinstance(value, tf.data.Dataset):
        dataset, kind = _as_tuples(value, flag)
        parts = _load(dataset, flag)
        if parts is None:
            return _streamed(dataset, kind, flag)
    elif isinstance(value, dict):
        example, kind = _keys(value, flag)
        parts = [value[key] for key in (example, kind) if key is not None]
    else:
        parts = value if isinstance(value, tuple) else [value]
        if isinstance(value, tuple) and len(value) != 2:
            raise UserError(f"{flag} gives a tuple of {len(value)} values", _RETURN)
    return as_arrays(*parts, kind=kind, flag=flag)


def as_arrays(examples: Any, targets: Any = None, *, kind: str | None = None, flag: str) -> Arrays:
    """Returns examples and their labels or conditions as checked arrays.

    Args:
      examples: Images or rows.
      targets: Labels or conditions, or None.
      kind: "conditions" or another word if it is known what they are; None as in `convert`.
      flag: The flag that names them, for messages.

    Raises:
      UserError: If they are not usable.
    """
    labels = None if targets is None else _as_array(targets, flag)
    return _check(_as_array(examples, flag), labels, kind, flag)


def _keys(value: dict, flag: str) -> tuple[str, str | None]:
    """Returns the keys of the examples and of the labels or conditions of a dictionary."""
    examples = [key for key in _EXAMPLE_KEYS if key in value]
    targets = [key for key in _TARGET_KEYS if key in value]
    if len(examples) != 1 or len(targets) > 1:
        raise UserError(
            f"{flag} gives a dictionary of {shorten(', '.join(map(str, value)))}", _RETURN
        )
    return examples[0], targets[0] if targets else None


def _are_conditions(values: np.ndarray) -> bool:
    """Returns True for numbers that cannot be labels.

    They are real numbers of which one is no integer, or rows `[N, K]` that are not one-hot.
    """
    if values.dtype.kind not in "fiub":
        return False
    if values.ndim == 2 and values.shape[1] > 1:
        return not is_one_hot(values)
    return values.dtype.kind == "f" and not bool(are_integers(values).all())


def _as_array(value: Any, flag: str) -> np.ndarray:
    """Returns an array of one or more axes.

    Raises:
      UserError: If the value cannot be converted without a loss.
    """
    if np.ma.is_masked(value):
        rows = np.ma.getmaskarray(value).reshape(len(value), -1).any(axis=1)
        raise UserError(
            f"{flag} gives an array with missing (masked) elements in {rows.sum()} of {len(rows)} "
            "rows",
            "fill them, or leave these examples out",
        )
    with explaining(flag):
        try:
            array = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise UserError(f"{flag} gives {shorten(str(error))}", _RETURN) from None
    if not array.ndim:
        raise UserError(f"{flag} gives an object of type {type(value).__name__}", _RETURN)
    return array


def _as_tuples(dataset: tf.data.Dataset, flag: str) -> tuple[tf.data.Dataset, str | None]:
    """Returns a dataset as one of tuples, and the key of their second parts if they have one."""
    spec, kind = dataset.element_spec, None
    if isinstance(spec, dict):
        example, kind = _keys(spec, flag)
        keys = [example] if kind is None else [example, kind]
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
    if not shape.is_fully_defined() or shape.rank not in (1, 2, 3, 4) or not shape.num_elements():
        raise UserError(
            f"{flag} gives a dataset of examples of shape {shape}",
            "give each example the same shape, [D], [H, W, C] or [D, H, W, C], without batching",
        )
    if len(spec) == 2 and not (spec[1].shape.is_fully_defined() and spec[1].shape.rank < 2):
        raise UserError(
            f"{flag} gives a dataset of labels of shape {spec[1].shape}",
            "give each example one label, or a condition of K numbers",
        )
    return dataset, kind


def _streamed(dataset: tf.data.Dataset, kind: str | None, flag: str) -> Stream:
    """Returns a dataset that is not read into memory, whose examples are checked when read.

    Raises:
      UserError: If it has no examples or the first ones cannot be read.
    """
    dataset = dataset.map(lambda *parts: (_as_example(parts[0]), *parts[1:]))
    with explaining(flag):
        is_empty = next(dataset.take(1).as_numpy_iterator(), None) is None
    if is_empty:
        raise UserError(f"{flag} gives a dataset without examples", "correct it")
    if len(dataset.element_spec) < 2:
        return Stream(dataset)
    spec = dataset.element_spec[1]
    is_vector = spec.shape.rank == 1 and spec.shape[0] != 1
    if kind != "conditions" and not is_vector and not spec.dtype.is_floating:
        return Stream(dataset.map(lambda example, label: (example, tf.reshape(label, []))))
    with explaining(flag):
        second = dataset.map(lambda _, target: target).take(_PROBED)
        values = np.stack(list(second.as_numpy_iterator()))
    if kind == "conditions" or (kind is None and _are_conditions(values)):
        return Stream(dataset, None, check_conditions(values, flag))
    number_labels(values, flag)  # checks the first ones
    if not is_vector:
        return Stream(
            dataset.map(lambda example, label: (example, tf.cast(tf.reshape(label, []), tf.int32)))
        )
    numbered = dataset.map(lambda example, label: (example, tf.argmax(label, output_type=tf.int32)))
    return Stream(numbered, spec.shape[0])


def _load(dataset: tf.data.Dataset, flag: str) -> list[np.ndarray] | None:
    """Reads a dataset into memory, or returns None if it is larger than MAX_CACHE_BYTES."""
    spec = dataset.element_spec[0]
    count = int(dataset.cardinality())
    size = int(np.prod(spec.shape)) * spec.dtype.size
    if count == tf.data.INFINITE_CARDINALITY or count * size > MAX_CACHE_BYTES:
        return None
    parts: list[tuple] = []
    read = 0
    with explaining(flag):
        for batch in without_autotune(dataset.batch(_BATCH_SIZE)).as_numpy_iterator():
            parts.append(batch)
            read += batch[0].nbytes
            if read > MAX_CACHE_BYTES:
                return None
    if not parts:
        return [np.empty([0, *spec.shape], np.float32)]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _as_example(example: tf.Tensor) -> tf.Tensor:
    """Returns a streamed example in the shape and dtype of `Arrays`, checked as they are."""
    if example.shape.rank == 2:
        example = example[..., None]
    if example.shape.rank >= 3 and example.dtype == tf.uint8:
        return example
    example = tf.cast(example, tf.float32)
    limit = MAX_IMAGE if example.shape.rank >= 3 else tf.float32.max
    is_valid = tf.reduce_all(tf.abs(example) <= limit)  # NaN is not
    with tf.control_dependencies([tf.debugging.Assert(is_valid, [OUT_OF_RANGE])]):
        return tf.identity(example)


def _check(examples: np.ndarray, targets: np.ndarray | None, kind: str | None, flag: str) -> Arrays:
    """Returns arrays with their documented shapes and dtypes.

    Args:
      examples: The examples.
      targets: Labels or conditions.
      kind: The key that says which, or None.
      flag: The flag that names them, for messages.

    Raises:
      UserError: If that is impossible.
    """
    if examples.ndim == 3:  # images without a dimension for channels
        examples = examples[..., None]
    if not examples.size or examples.ndim not in (2, 4, 5) or examples.dtype.kind not in "fiub":
        raise UserError(
            f"{flag} gives examples of shape {examples.shape} and dtype {examples.dtype}",
            _NUMBERS,
        )
    if not (examples.ndim >= 4 and examples.dtype == np.uint8):
        if not np.isfinite(examples).all():
            bad = int((~np.isfinite(examples)).reshape(len(examples), -1).any(1).sum())
            raise UserError(
                f"{flag} gives NaN or infinity in {bad} of {len(examples)} examples",
                "leave them out",
            )
        examples = _to_float32(examples, flag)
        if examples.ndim >= 4 and np.abs(examples).max() > MAX_IMAGE:
            raise UserError(
                f"{flag} gives {KINDS[examples.ndim - 1]} from {examples.min():g} to "
                f"{examples.max():g}",
                "scale them to [-1, 1], or give uint8; or save them as a file for --dataset=array, "
                "which scales them, and whose samples are in their units",
            )
    _warn_if_equal(examples, flag)
    if targets is None:
        return Arrays(examples)
    if not targets.ndim or len(targets) != len(examples):
        raise UserError(
            f"{flag} gives {kind or 'labels'} of shape {targets.shape} for {len(examples)} "
            "examples",
            "give one to each example",
        )
    if kind == "conditions" or (kind is None and _are_conditions(targets)):
        return Arrays(examples, conditions=check_conditions(targets, flag))
    if kind is None and targets.size == len(targets) and targets.dtype.kind == "f":
        logging.warning(
            f"{flag}: the real numbers of the second array are integers, so they are classes; a "
            "dictionary of examples and conditions makes them conditions"
        )
    return Arrays(examples, *number_labels(targets, flag))


def _warn_if_equal(examples: np.ndarray, flag: str) -> None:
    """Warns of examples from which networks learn nothing, because all are the same."""
    parts = (examples[:_BATCH_SIZE], examples)  # the first part decides for most data
    if len(examples) > 1 and all((part == examples[:1]).all() for part in parts):
        logging.warning(f"{flag} gives {len(examples)} examples that are all equal")


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


def fingerprint(arrays: Arrays) -> dict[str, Any]:
    """Returns the fingerprint of the arrays, as stored in data.json."""
    content = hashlib.sha256(np.ascontiguousarray(arrays.examples).data)
    for values in (arrays.labels, arrays.conditions):
        if values is not None:
            content.update(values.tobytes())
    if arrays.class_names is not None:
        content.update("\n".join(arrays.class_names).encode())
    return {"examples": len(arrays.examples), "content": content.hexdigest()}
