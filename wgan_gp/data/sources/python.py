"""Data of Python as a source: arrays, DataFrames, or a tf.data.Dataset of examples.

They are read by the rules of the same data in files, and samples have their units. A dataset that
is larger than the memory for data, or has no end, is a stream: its examples are not numbered.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from absl import logging

from ...config import DataSettings, sides_of
from ...errors import UserError, explaining, shorten
from ...run_directory.json_files import digest
from ..conditions import Conditions
from ..feed import MAX_CACHE_BYTES, without_autotune
from ..frames import plain_frame
from ..pipeline_errors import checked_labels
from ..pixels import Pixels
from ..source import Source
from ..spec import DataSpec, names_of_numbers
from . import table
from .array_files import ArrayData, check_conditions, checked
from .arrays import check_flags, looks_like_pictures, source_of
from .labels import LABEL_NAMES, are_integers, is_one_hot, number_labels

if TYPE_CHECKING:
    import pandas as pd

_BATCH_SIZE = 256  # examples per batch when a dataset is read into memory
_PROBED = 16_384  # examples of a stream, for the kind of its labels and the moments of conditions
_RETURN = (
    "give an array, a pair of arrays (examples, labels), a dictionary of examples and labels or "
    "conditions, a DataFrame, or a tf.data.Dataset"
)
_NUMBERS = "give numbers of shape [N, D], [N, H, W, C] or [N, D, H, W, C]"
_MAX_IMAGE = 1.001  # images of streams are in [-1, 1], up to rounding
# A part of the error of a stream.
OUT_OF_RANGE = "it has an image outside [-1, 1], or a row with NaN or infinity"
# The keys of dictionaries. "image" and "label" are those of tensorflow-datasets.
_EXAMPLE_KEYS, _TARGET_KEYS = ("examples", "image"), ("labels", "label", "conditions")


def find_source(settings: DataSettings, function: Callable[..., Any], flag: str) -> Source:
    """Finds data of the user.

    Args:
      settings: The settings of the data.
      function: Maps a split, a text, to data, or to None if there is no such split. Those of
        data_dir, image_size and seed that it has as parameters are passed, too. It is called once
        for each split.
      flag: The name of the data, for messages.

    Raises:
      UserError: If it does not return data that can be trained on.
    """
    with explaining(flag):
        has_splits = _accepts(function, "split")
    call = functools.cache(functools.partial(_call, function, settings, flag))
    value = call(settings.split)
    if value is None:
        raise UserError(
            f"{flag} returns nothing for --split={settings.split}", "give another split"
        )
    source = _source_of(value, settings, flag)
    identity = source.identity()

    def held_out(like: DataSpec) -> Source | None:
        for split in ("test", "validation") if has_splits else ():
            other = None if split == settings.split else call(split)
            if other is None or other is value:  # the function ignores the split
                continue
            found = _source_of(other, settings, f"{flag} of the split {split}", like)
            if found.stream is not None or found.identity() != identity:
                return found
        return None

    def with_held_out(source: Source) -> Source:
        like = source.like
        assert like is not None
        return dataclasses.replace(
            source, held_out=held_out, like=lambda spec: with_held_out(like(spec))
        )

    return with_held_out(source)


def _call(function: Callable[..., Any], settings: DataSettings, flag: str, split: str) -> Any:
    """Returns what the user's function returns for a split; see `find_source`."""
    size = settings.image_size
    offered = {
        "split": split,
        "data_dir": settings.data_dir,
        "image_size": sides_of(size) if isinstance(size, str) else size,
        "seed": settings.seed,
    }
    with explaining(flag), tf.device(None):  # its files and its Python are on this machine
        return function(
            **{name: each for name, each in offered.items() if _accepts(function, name)}
        )


def _accepts(function: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(each.name == name or each.kind == each.VAR_KEYWORD for each in parameters)


def _source_of(
    value: Any, settings: DataSettings, flag: str, like: DataSpec | None = None
) -> Source:
    """Returns the source of what the user's function returned.

    A dictionary says what its arrays are. The second part of a pair are labels; it is conditions
    only if it cannot be labels, see `_are_conditions`.

    Args:
      value: What it returned.
      settings: The settings of the data.
      flag: The name of the data, for messages.
      like: The training data, in whose units the examples are; None for those of this data.

    Raises:
      UserError: If the value is not usable.
    """
    if is_frame(value):
        frame = plain_frame(_with_labels(value, flag))
        return table.source_of(frame, settings, flag, like=like)
    table.refuse_columns(flag, settings)
    kind: str | None = None
    parts: Sequence[Any] | None
    with tf.device(None):
        if isinstance(value, tf.data.Dataset):
            dataset, kind = _as_tuples(value, flag)
            parts = _load(dataset, flag)
            if parts is None:
                return _streamed(dataset, kind, settings, flag, like)
        elif isinstance(value, dict):
            example, kind = _keys(value, flag)
            parts = [value[key] for key in (example, kind) if key is not None]
        else:
            parts = value if isinstance(value, tuple) else [value]
            if isinstance(value, tuple) and len(value) != 2:
                raise UserError(f"{flag} gives a tuple of {len(value)} values", _RETURN)
    return source_of(_arrays(*parts, kind=kind, flag=flag), settings, flag, like)


def is_frame(value: Any) -> bool:
    """Returns True for a DataFrame, or a pair of a DataFrame and labels."""
    pandas = sys.modules.get("pandas")  # without it there is no DataFrame
    first = value[0] if isinstance(value, tuple) and len(value) == 2 else value
    return pandas is not None and isinstance(first, pandas.DataFrame)


def _with_labels(value: Any, flag: str) -> pd.DataFrame:
    """Returns a DataFrame, or a DataFrame and its labels as one with a column of labels.

    Raises:
      UserError: If there is not one label for each row.
    """
    frame, given = value if isinstance(value, tuple) else (value, None)
    if given is None:
        return frame
    labels = np.asarray(given)
    if labels.shape not in ((len(frame),), (len(frame), 1)):
        raise UserError(
            f"{flag} gives labels of shape {labels.shape} for {len(frame)} examples",
            "give one label to each row",
        )
    name = str(getattr(given, "name", ""))
    name = name if name.lower() in LABEL_NAMES else "label"
    return frame.assign(**{name: labels.reshape(-1)})


def _arrays(examples: Any, targets: Any = None, *, kind: str | None, flag: str) -> ArrayData:
    """Returns examples and their labels or conditions as checked arrays.

    Args:
      examples: Examples of any kind; `[N, H, W]` are gray images if they look like some.
      targets: Labels or conditions, or None.
      kind: "conditions" or another word if it is known what they are; None as in `_source_of`.
      flag: The name of the data, for messages.
    """
    array = as_array(examples, flag)
    if array.ndim == 3 and looks_like_pictures(array.shape):
        array = array[..., None]
    if targets is None:
        return checked(flag, ArrayData(array))
    values = as_array(targets, flag)
    if kind == "conditions" or (kind is None and _are_conditions(values)):
        return checked(flag, ArrayData(array, conditions=values))
    found = checked(flag, ArrayData(array, np.zeros([len(values)])))  # its length
    if kind is None and values.size == len(values) and values.dtype.kind == "f":
        logging.warning(
            f"{flag}: the real numbers of the second array are integers, so they are classes; a "
            "dictionary of examples and conditions makes them conditions"
        )
    numbers, names = number_labels(values, flag)
    return found._replace(labels=numbers, class_names=names)


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


def as_array(value: Any, flag: str) -> np.ndarray:
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


def _streamed(
    dataset: tf.data.Dataset,
    kind: str | None,
    settings: DataSettings,
    flag: str,
    like: DataSpec | None,
) -> Source:
    """Returns a dataset that is not read into memory, whose examples are checked when read.

    It is repeated. A resumed run skips the examples that were read before, so the dataset must
    return the same examples in the same order each time.

    Raises:
      UserError: If it has no examples or the first ones cannot be read.
    """
    dataset = dataset.map(lambda *parts: (_as_example(parts[0]), *parts[1:]))
    with explaining(flag):
        is_empty = next(dataset.take(1).as_numpy_iterator(), None) is None
    if is_empty:
        raise UserError(f"{flag} gives a dataset without examples", "correct it")
    example, shape = dataset.element_spec[0], tuple(dataset.element_spec[0].shape)
    check_flags(flag, shape, settings)
    stream, classes, conditions = _with_targets(dataset, kind, flag)
    if conditions is not None and like is not None and like.conditions is not None:
        conditions = conditions.scaled_like(like.conditions, flag)
    if (scale := conditions) is not None:
        stream = stream.map(lambda x, y: (x, scale.standardize_tensor(y[None])[0]))
    names = names_of_numbers(classes) or None
    has_levels = example.dtype == tf.uint8
    pixels = Pixels(8, settings.dequantization) if has_levels else None
    spec = DataSpec(shape, classes, len(shape) >= 3, conditions, names, pixels=pixels)
    if like is not None and shape != like.example_shape:
        raise UserError(
            f"{flag} has examples of shape {shape}, but the training data {like.example_shape}",
            "return the same kind of examples in all splits",
        )
    count = int(dataset.cardinality())
    fingerprint = {"examples": None, "content": digest(str(dataset.element_spec))}
    return Source(
        flag,
        spec,
        np.uint8 if has_levels else np.float32,
        count if count > 0 else None,
        stream=stream,
        identity=lambda: fingerprint,
        like=lambda like: _streamed(dataset, kind, settings, flag, like),
    )


def _with_targets(
    dataset: tf.data.Dataset, kind: str | None, flag: str
) -> tuple[tf.data.Dataset, int, Conditions | None]:
    """Returns pairs of examples and labels or conditions, and what these are.

    One-hot rows say the number of classes. Other labels can be judged, but not trained on.
    """
    if len(dataset.element_spec) < 2:
        return dataset.map(lambda example: (example, tf.constant(0))), 0, None
    spec = dataset.element_spec[1]
    is_vector = spec.shape.rank == 1 and spec.shape[0] != 1
    is_known = kind != "conditions" and not is_vector and not spec.dtype.is_floating
    if not is_known:
        with explaining(flag):
            second = dataset.map(lambda _, target: target).take(_PROBED)
            values = np.stack(list(second.as_numpy_iterator()))
        if kind == "conditions" or (kind is None and _are_conditions(values)):
            conditions = Conditions.of(check_conditions(values, flag), flag)
            size = conditions.size
            return dataset.map(lambda x, y: (x, tf.reshape(y, [size]))), 0, conditions
        number_labels(values, flag)  # checks the first ones
    if not is_vector:
        return dataset.map(lambda x, y: (x, tf.cast(tf.reshape(y, []), tf.int32))), 0, None
    classes = spec.shape[0]
    remedy = "give one-hot rows of other classes, too"

    def numbered(example: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        number = tf.argmax(label, output_type=tf.int32)
        return example, checked_labels(number, classes, f"{flag} gives", remedy)

    return dataset.map(numbered), classes, None


def _as_example(example: tf.Tensor) -> tf.Tensor:
    """Returns a streamed example: images uint8 or in [-1, 1], others float32."""
    if example.shape.rank == 2:
        example = example[..., None]
    if example.shape.rank >= 3 and example.dtype == tf.uint8:
        return example
    example = tf.cast(example, tf.float32)
    limit = _MAX_IMAGE if example.shape.rank >= 3 else tf.float32.max
    is_valid = tf.reduce_all(tf.abs(example) <= limit)  # NaN is not
    with tf.control_dependencies([tf.debugging.Assert(is_valid, [OUT_OF_RANGE])]):
        return tf.identity(example)
