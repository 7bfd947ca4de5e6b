"""Data of the user: arrays, or a tf.data.Dataset of examples with or without labels."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ...config import DataSettings, DeviceSettings, sides_of
from ...errors import UserError, explaining
from ...run_directory.json_files import digest
from ..opened_data import ExampleFormat, InMemoryData, OpenedData, StoredData, StreamedData
from ..scaling.conditions import Conditions
from . import pixels
from .user_arrays import Arrays, check_conditions, convert, fingerprint

_READ_CONDITIONS = 16_384  # examples of a streamed dataset, for the moments of its conditions


class UserReader:
    """Reads data of the user; see `datasets.DatasetReader`.

    Args:
      settings: The settings of the data.
      function: Maps a split, a text, to arrays, a tf.data.Dataset, or None if there is no such
        split. Those of data_dir, image_size and seed that it has as parameters are passed, too.
      flag: The flag that names it, for messages.

    Raises:
      UserError: If it does not return data that can be trained on.
    """

    resizable = False  # see `Dataset.resizable`

    def __init__(self, settings: DataSettings, function: Callable[..., Any], flag: str):
        self._function = function
        self._flag = flag
        with explaining(flag):
            self._has_splits = _accepts(function, "split")
        self._splits: dict[str, Arrays | tf.data.Dataset | None] = {}
        data = self._read(settings, settings.split)
        if data is None:
            raise UserError(
                f"{flag} returns nothing for --split={settings.split}", "give another split"
            )
        self.example_shape = _example_shape(data)
        if isinstance(data, Arrays):
            has_classes = data.labels is not None and data.labels.ndim == 1
            self.label_count = int(data.labels.max()) + 1 if has_classes else 0  # type: ignore[union-attr]
        else:
            has_classes = len(data.element_spec) > 1 and not has_conditions(data)
            self.label_count = (settings.num_classes or 0) if has_classes else 0
        self.conditions = _find_conditions(data, flag)
        if settings.num_classes is not None:
            self._check_classes(settings.num_classes)
        self._check_flags(settings)

    def open(
        self, settings: DataSettings, *, classes: int, devices: DeviceSettings
    ) -> InMemoryData | StreamedData:
        data = self._read(settings, settings.split)
        assert data is not None
        self._check_split(data, settings.split, classes)
        if isinstance(data, Arrays):
            examples, labels = data
            if labels is None:
                labels = np.zeros([len(examples)], np.int32)
            elif labels.ndim == 2:
                labels = self._conditions_of(labels)
            size = labels.shape[1] if labels.ndim == 2 else 0
            stored_as = dataclasses.replace(_format(settings, examples), condition_size=size)
            return StoredData(settings.seed, stored_as, examples, labels)
        return StreamedExamples(data, settings, self.conditions)

    def _check_split(self, data: Arrays | tf.data.Dataset, split: str, classes: int) -> None:
        """Raises UserError if the examples or labels of a split are not those of training."""
        shape, remedy = _example_shape(data), "return the same kind of examples in all splits"
        if shape != self.example_shape:
            raise UserError(
                f"{self._flag} returns examples of shape {shape} for the split {split}, but of "
                f"shape {self.example_shape} for training",
                remedy,
            )
        if not isinstance(data, Arrays):
            return
        axes = 0 if data.labels is None else data.labels.ndim
        for what, missing in (
            ("labels", classes and axes != 1),
            ("conditions", self.conditions is not None and axes != 2),
        ):
            if missing:
                raise UserError(f"{self._flag} returns no {what} for the split {split}", remedy)
        if classes and data.labels is not None and data.labels.max() >= classes:
            raise UserError(
                f"{self._flag} returns the label {data.labels.max()} for the split {split}, but "
                f"training has {classes} classes",
                "give --num_classes",
            )

    def _conditions_of(self, values: np.ndarray) -> np.ndarray:
        """Returns the standardized conditions of a split."""
        if self.conditions is None or values.shape[1] != self.conditions.size:
            raise UserError(
                f"{self._flag} returns conditions of {values.shape[1]} numbers in one split, but "
                "not in the training split",
                "return the same conditions in both",
            )
        return self.conditions.standardize(values)

    def open_unread(self, settings: DataSettings, *, devices: DeviceSettings) -> OpenedData:
        return self.open(settings, classes=0, devices=devices)

    def fingerprint(self, settings: DataSettings) -> dict[str, Any]:
        data = self._read(settings, settings.split)
        if isinstance(data, Arrays):
            return fingerprint(data)
        spec = None if data is None else str(data.element_spec)
        return {"examples": None, "content": digest(spec)}

    def held_out_split(self, settings: DataSettings) -> str | None:
        """Returns "test" or "validation" if the function returns other data for it, else None."""
        if not self._has_splits:
            return None
        for split in ("test", "validation"):
            if split == settings.split:
                continue
            data = self._read(settings, split)
            if data is not None and not self._is_same(data, settings):
                return split
        return None

    def _is_same(self, data: Arrays | tf.data.Dataset, settings: DataSettings) -> bool:
        """Returns True if data is that of training: the function ignores the split."""
        training = self._read(settings, settings.split)
        if not (isinstance(data, Arrays) and isinstance(training, Arrays)):
            return data is training
        return fingerprint(data) == fingerprint(training)

    def _read(self, settings: DataSettings, split: str) -> Arrays | tf.data.Dataset | None:
        """Returns the examples of a split in one of two forms, or None; calls the function once."""
        if split not in self._splits:
            value = call(self._function, settings, split, self._flag)
            self._splits[split] = None if value is None else convert(value, settings, self._flag)
        return self._splits[split]

    def _check_classes(self, classes: int) -> None:
        if self.label_count > classes:
            raise UserError(
                f"{self._flag} has {self.label_count} classes, but --num_classes={classes}",
                "set --num_classes to the number of classes of the data",
            )
        self.label_count = classes

    def _check_flags(self, settings: DataSettings) -> None:
        size, channels = settings.image_size, settings.image_channels
        shape = self.example_shape
        if size is not None and (len(shape) != 3 or sides_of(size) != shape[:2]):
            raise UserError(
                f"--image_size={size}, but the examples of {self._flag} have shape {shape}",
                "omit it, and resize them there",
            )
        if channels is not None and (len(shape) != 3 or channels != shape[2]):
            raise UserError(
                f"--image_channels={channels}, but the examples of {self._flag} have shape {shape}",
                "omit it",
            )


class StreamedExamples(StreamedData):
    """A tf.data.Dataset of the user that is not held in memory, in its own order.

    The dataset is repeated. A resumed run skips the examples that were read before, so the
    dataset must return the same examples in the same order each time.

    Args:
      dataset: A dataset of tuples: an example, and a label if there are labels.
      settings: The settings of the data.
      conditions: Standardizes the conditions, if the dataset has any in the place of labels.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        settings: DataSettings,
        conditions: Conditions | None = None,
    ):
        self._conditions = conditions if has_conditions(dataset) else None
        count = int(dataset.cardinality())
        self.size = count if count > 0 else None  # type: ignore[assignment]
        self._dataset = dataset
        spec = dataset.element_spec[0]
        self.format = dataclasses.replace(
            _format(settings, np.empty([0, *spec.shape], spec.dtype.as_numpy_dtype)),
            condition_size=self._conditions.size if self._conditions else 0,
        )

    def encoded(self, first: int, count: int) -> tf.data.Dataset:
        return self._dataset.repeat().skip(first).batch(count, drop_remainder=True)

    def decode(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        def with_labels(examples: tf.Tensor, *labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            zeros = tf.zeros(tf.shape(examples)[:1], tf.int32)
            if known := self._conditions:
                values = tf.reshape(labels[0], [-1, known.size])
                return examples, known.standardize_tensor(values)
            return examples, tf.cast(labels[0], tf.int32) if labels else zeros

        return batches.map(with_labels)


def call(function: Callable[..., Any], settings: DataSettings, split: str, flag: str) -> Any:
    """Returns what the user's function returns for a split; see `UserReader`."""
    offered = {
        "split": split,
        "data_dir": settings.data_dir,
        "image_size": _offered_size(settings),
        "seed": settings.seed,
    }
    with explaining(flag):
        return function(
            **{name: each for name, each in offered.items() if _accepts(function, name)}
        )


def called_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function with the same parameters that calls `function` once for each split."""
    values: dict[str, Any] = {}

    @functools.wraps(function)
    def remembered(**arguments: Any) -> Any:
        key = arguments.get("split", "")
        if key not in values:
            values[key] = function(**arguments)
        return values[key]

    return remembered


def _example_shape(data: Arrays | tf.data.Dataset) -> tuple[int, ...]:
    if isinstance(data, Arrays):
        return data.examples.shape[1:]
    return tuple(data.element_spec[0].shape)


def _offered_size(settings: DataSettings) -> int | tuple[int, int] | None:
    """Returns --image_size for a function of the user: an int, or (H, W) for a rectangle."""
    size = settings.image_size
    return sides_of(size) if isinstance(size, str) else size


def has_conditions(dataset: tf.data.Dataset) -> bool:
    """Returns True if a dataset of tuples has conditions, not class labels, as second element."""
    if len(dataset.element_spec) < 2:
        return False
    spec = dataset.element_spec[1]
    return spec.dtype.is_floating or (spec.shape.rank == 1 and spec.shape[0] != 1)


def _find_conditions(data: Arrays | tf.data.Dataset, flag: str) -> Conditions | None:
    """Returns the distribution of the conditions of the data, or None if it has none.

    A streamed dataset is read up to _READ_CONDITIONS examples.
    """
    if isinstance(data, Arrays):
        values = data.labels
    elif has_conditions(data):
        conditions = data.map(lambda _, condition: condition).take(_READ_CONDITIONS)
        values = np.stack(list(conditions.as_numpy_iterator()))
        values = check_conditions(values, len(values), flag)
    else:
        return None
    return None if values is None or values.ndim == 1 else Conditions.of(values, flag)


def _accepts(function: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(each.name == name or each.kind == each.VAR_KEYWORD for each in parameters)


def _format(settings: DataSettings, examples: np.ndarray) -> ExampleFormat:
    shape = examples.shape[1:]
    if len(shape) == 1:
        return ExampleFormat(shape, tf.float32, lambda points, _: points)
    if examples.dtype == np.uint8:
        return ExampleFormat(shape, tf.uint8, functools.partial(pixels.normalize, settings))
    return ExampleFormat(shape, tf.float32, functools.partial(pixels.flip, settings))
