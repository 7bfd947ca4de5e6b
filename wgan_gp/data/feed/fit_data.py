"""The forms of data that Keras's fit takes, as arrays or as datasets of batches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import UserError, shorten

_PAIRS = "yield examples [B, ...], or pairs of examples and labels"


def as_array(value: Any, name: str) -> np.ndarray:
    """Returns an array, a tensor, a table or nested lists of numbers as an array.

    Raises:
      UserError: If the value has another form.
    """
    several = is_list_of_arrays(value)
    if value is None or isinstance(value, (dict, str)) or several:
        form = "a list of arrays" if several else shorten(type(value).__name__)
        raise UserError(f"{name} is {form}", "pass one array [N, ...]")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise UserError(f"{name} is no array ({shorten(str(error))})", "pass one") from None
    if not array.ndim or array.dtype.kind not in "fiubV" or array.dtype.names:
        raise UserError(
            f"{name} is {shorten(type(value).__name__)} of shape {array.shape} and dtype "
            f"{array.dtype}",
            "pass one array [N, ...] of numbers",
        )
    return array


def is_list_of_arrays(value: Any) -> bool:
    """Returns True for a list or tuple of arrays, and False for one of numbers."""
    is_list = isinstance(value, (list, tuple))
    return is_list and any(getattr(each, "shape", ()) for each in value)


def yields_batches(value: Any) -> bool:
    """Returns True for what yields batches, and False for what is an array or a mistake."""
    if isinstance(value, tf.data.Dataset) or _is_indexed(value):
        return True
    is_other = isinstance(value, (list, tuple, dict, str)) or hasattr(value, "__array__")
    return hasattr(value, "__iter__") and not is_other


def as_dataset(value: Any) -> tf.data.Dataset | None:
    """Returns a dataset of batches, or of pairs of examples and labels, or None for an array.

    Raises:
      UserError: If the batches have another form.
    """
    if not yields_batches(value):
        return None
    dataset = value if isinstance(value, tf.data.Dataset) else _from_python(value)
    spec = dataset.element_spec
    parts = spec if isinstance(spec, tuple) else (spec,)
    if len(parts) == 3:
        raise UserError("x yields weights of examples", _PAIRS)
    if len(parts) not in (1, 2) or not all(isinstance(part, tf.TensorSpec) for part in parts):
        raise UserError(f"x yields {shorten(str(spec))}", _PAIRS)
    return dataset.map(lambda *pair: pair if len(pair) > 1 else pair[0])


def check_examples(
    name: str,
    dtype: tf.DType,
    given: tf.TensorShape | tuple[int, ...],
    expected: tuple[int, ...],
    *,
    rank: int | None = None,
) -> None:
    """Checks the dtype and the shape of examples.

    Args:
      name: The name of the examples, for messages.
      dtype: Their dtype.
      given: The shape of an example, of which dimensions may be unknown.
      expected: The shape of a sample of the generator.
      rank: The rank of a batch of a dataset; None for an array.

    Raises:
      UserError: If they are no floating-point numbers of the shape.
    """
    if rank == len(expected):
        raise UserError(
            f"{name} yields single examples, or has no dimension for the channels",
            "call batch(...) on the dataset, or reshape the examples",
        )
    if not dtype.is_floating:
        scale = " / 127.5 - 1" if dtype == tf.uint8 else ""
        code = (
            'x.astype("float32")'
            if rank is None
            else "dataset.map(lambda x: tf.cast(x, tf.float32)"
        )
        scaled = f"{code}{scale}" + ("" if rank is None else ")")
        raise UserError(
            f"{name} has examples of dtype {dtype.name}, which fit does not scale",
            f"pass {scaled}: wgan_gp.train scales uint8 images to [-1, 1]",
        )
    if not tf.TensorShape(given).is_compatible_with(expected):
        raise UserError(
            f"{name} has examples of shape {tuple(given)}, but the generator's samples have shape "
            f"{expected}",
            "let them agree",
        )


def class_labels(labels: np.ndarray, classes: int) -> np.ndarray:
    """Returns labels `[N]` or `[N, 1]` as `[N]` int32.

    Raises:
      UserError: If they are no integers from 0 to `classes` - 1.
    """
    flat = labels.reshape(-1)
    valid = len(flat) == len(labels) and labels.dtype.kind in "fiub"
    if not valid or not ((flat >= 0) & (flat < classes) & (flat == np.floor(flat))).all():
        raise UserError(
            f"y has labels of shape {labels.shape} from {labels.min()} to {labels.max()}",
            f"give an integer from 0 to {classes - 1} for each example",
        )
    return flat.astype(np.int32)


def split(x: Any, y: Any, part: float) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Returns the arrays of training and, of the last `part`, those of validation.

    Raises:
      UserError: If x yields batches, or if there is no such part.
    """
    if yields_batches(x):
        raise UserError("validation_split divides arrays only", "pass validation_data")
    if not 0 < part < 1:
        raise UserError(f"validation_split={part}", "give a number between 0 and 1")
    arrays = [None if each is None else as_array(each, name) for each, name in ((x, "x"), (y, "y"))]
    first = math.floor(len(arrays[0]) * (1 - part))  # type: ignore[arg-type]
    train, held_out = (
        tuple(None if each is None else each[rows] for each in arrays)
        for rows in (slice(first), slice(first, None))
    )
    return train, held_out  # type: ignore[return-value]


def _is_indexed(value: Any) -> bool:
    return isinstance(value, tf.keras.utils.PyDataset)


def _from_python(batches: Any) -> tf.data.Dataset:
    """Returns a dataset of the batches of a PyDataset or an iterable, which it reads in each epoch.

    An iterator, such as a Python generator, has one epoch.
    """

    def open_epoch() -> Iterator:
        return _indexed_epoch(batches) if _is_indexed(batches) else iter(batches)

    first = next(open_epoch(), None)
    if first is None:
        raise UserError("x yields no batch", _PAIRS)
    read_before = [first] if hasattr(batches, "__next__") else []

    def epoch() -> Iterator:
        while read_before:
            yield _as_arrays(read_before.pop())
        yield from map(_as_arrays, open_epoch())

    signature = tf.nest.map_structure(
        lambda part: tf.TensorSpec([None, *part.shape[1:]], part.dtype), _as_arrays(first)
    )
    return tf.data.Dataset.from_generator(epoch, output_signature=signature)


def _indexed_epoch(batches: Any) -> Iterator:
    try:
        indices = range(len(batches))
    except (TypeError, NotImplementedError):
        indices = itertools.count()  # type: ignore[assignment]
    for index in indices:
        yield batches[index]
    batches.on_epoch_end()


def _as_arrays(batch: Any) -> Any:
    """Returns a batch, or a tuple or list of its parts, as arrays."""
    if isinstance(batch, tuple) or is_list_of_arrays(batch):
        parts = tuple(np.asarray(part) for part in batch if part is not None)
        return parts[0] if len(parts) == 1 else parts
    return as_array(batch, "a batch of x")
