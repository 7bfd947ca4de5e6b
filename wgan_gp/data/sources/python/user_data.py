"""Data of the user: arrays, or a tf.data.Dataset of examples with or without labels."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ....config import DataSettings, DeviceSettings, sides_of
from ....errors import UserError, explaining
from ....run_directory.json_files import digest
from ...feed.pipeline_errors import checked_labels
from ...holdout import is_held_out
from ...opened_data import (
    ExampleFormat,
    InMemoryData,
    OpenedData,
    StoredData,
    StreamedData,
    check_sent,
    unreadable_stream,
)
from ...scaling import pixels
from ...scaling.conditions import Conditions
from ...spec import DataSpec, names_of_numbers
from ..labels import numbered_like
from .user_arrays import Arrays, Stream, convert, fingerprint


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
        self._splits: dict[str, Arrays | Stream | None] = {}
        data = self._read(settings, settings.split)
        if data is None:
            raise UserError(
                f"{flag} returns nothing for --split={settings.split}", "give another split"
            )
        self.example_shape = _example_shape(data)
        has_levels = _dtype(data) == tf.uint8 and len(self.example_shape) > 1
        self.bits = 8 if has_levels else None  # of a level
        self.class_names = _class_names(data)
        self._numbered = False  # whether classes have the numbers of a run
        values = data.conditions
        self.conditions = None
        if values is not None:
            trained_on = values[~is_held_out(len(values), settings.holdout)]
            self.conditions = Conditions.of(trained_on, flag)
        self._check_flags(settings)

    def use_spec(self, spec: DataSpec) -> None:
        """Standardizes conditions and numbers classes as at the beginning of the run."""
        self._numbered = bool(spec.classes and self.class_names)
        if self._numbered:
            self.class_names = spec.class_names
        known, conditions = self.conditions, spec.conditions
        if known is not None and conditions is not None and known.size == conditions.size:
            self.conditions = known.scaled_like(conditions, self._flag)

    def open(
        self, settings: DataSettings, *, classes: int, devices: DeviceSettings
    ) -> InMemoryData | StreamedData:
        data = self._read(settings, settings.split)
        assert data is not None
        self._check_split(data, settings.split, classes)
        if isinstance(data, Stream):
            if devices.on_remote_tpu:
                raise unreadable_stream(self._flag, devices, "give a smaller dataset with an end")
            return StreamedExamples(data, settings, self.conditions, classes, self._flag)
        check_sent(self._flag, data.examples.nbytes, devices)
        size, labels = 0, np.zeros([len(data.examples)], np.int32)
        if data.conditions is not None and self.conditions is not None:
            size, labels = self.conditions.size, self.conditions.standardize(data.conditions)
        elif data.labels is not None and (classes or self._numbered):
            origin = f"{self._flag}, split {settings.split},"
            labels = numbered_like(
                self.class_names or (), data.labels, data.class_names or (), origin
            )
        elif data.labels is not None:
            labels = data.labels
        stored_as = dataclasses.replace(_format(settings, data.examples), condition_size=size)
        return StoredData(settings.seed, stored_as, data.examples, labels)

    def _check_split(self, data: Arrays | Stream, split: str, classes: int) -> None:
        """Raises UserError if the examples or labels of a split are not those of training."""
        shape, remedy = _example_shape(data), "return the same kind of examples in all splits"
        if shape != self.example_shape:
            raise UserError(
                f"{self._flag} returns examples of shape {shape} for the split {split}, but of "
                f"shape {self.example_shape} for training",
                remedy,
            )
        has_labels = data.has_labels if isinstance(data, Stream) else data.labels is not None
        size = 0 if self.conditions is None else self.conditions.size
        for what, missing in (
            ("labels", classes and not has_labels),
            ("conditions", size and data.conditions is None),
        ):
            if missing:
                raise UserError(f"{self._flag} returns no {what} for the split {split}", remedy)
        if data.conditions is not None and data.conditions.shape[1] != size:
            raise UserError(
                f"{self._flag} returns conditions of {data.conditions.shape[1]} numbers in one "
                "split, but not in the training split",
                "return the same conditions in both",
            )

    def open_unread(self, settings: DataSettings, *, devices: DeviceSettings) -> OpenedData:
        return self.open(settings, classes=0, devices=devices)

    def with_settings(self, settings: DataSettings) -> UserReader:
        return UserReader(settings, self._function, self._flag)

    def fingerprint(self, settings: DataSettings) -> dict[str, Any]:
        data = self._read(settings, settings.split)
        if isinstance(data, Arrays):
            return fingerprint(data)
        spec = None if data is None else str(data.dataset.element_spec)
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

    def _is_same(self, data: Arrays | Stream, settings: DataSettings) -> bool:
        """Returns True if data is that of training: the function ignores the split."""
        training = self._read(settings, settings.split)
        if not (isinstance(data, Arrays) and isinstance(training, Arrays)):
            return data is training
        return fingerprint(data) == fingerprint(training)

    def _read(self, settings: DataSettings, split: str) -> Arrays | Stream | None:
        """Returns the examples of a split in one of two forms, or None; calls the function once."""
        if split not in self._splits:
            value = call(self._function, settings, split, self._flag)
            with tf.device(None):
                data = None if value is None else convert(value, self._flag)
            self._splits[split] = data
        return self._splits[split]

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
      stream: The dataset.
      settings: The settings of the data.
      conditions: Standardizes the conditions, if the dataset has any in the place of labels.
      classes: The number of classes, in whose range labels must be; 0 allows all labels.
      flag: The flag that names the dataset, for messages.
    """

    def __init__(
        self,
        stream: Stream,
        settings: DataSettings,
        conditions: Conditions | None = None,
        classes: int = 0,
        flag: str = "data",
    ):
        dataset = stream.dataset
        self._conditions = None if stream.conditions is None else conditions
        self._classes = classes
        self._flag = flag
        count = int(dataset.cardinality())
        self.size = count if count > 0 else None  # type: ignore[assignment]
        self._dataset = dataset
        spec = dataset.element_spec[0]
        self.format = dataclasses.replace(
            _format(settings, np.empty([0, *spec.shape], spec.dtype.as_numpy_dtype)),
            condition_size=self._conditions.size if self._conditions else 0,
        )

    def available(self, count: int) -> int:
        if self.size is not None or self._dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            return super().available(count)
        # The length of a generator is only known at its end.
        return int(self._dataset.take(count).reduce(np.int64(0), lambda number, *_: number + 1))

    def encoded(self, first: int, count: int) -> tf.data.Dataset:
        return self._dataset.repeat().skip(first).batch(count, drop_remainder=True)

    def decode(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        def with_labels(examples: tf.Tensor, *labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            if known := self._conditions:
                values = tf.reshape(labels[0], [-1, known.size])
                return examples, known.standardize_tensor(values)
            if not labels:
                return examples, tf.zeros(tf.shape(examples)[:1], tf.int32)
            if not self._classes:
                return examples, tf.cast(labels[0], tf.int32)
            remedy = "give one-hot rows of other classes, too"
            checked = checked_labels(labels[0], self._classes, f"{self._flag} gives", remedy)
            return examples, tf.cast(checked, tf.int32)

        return batches.map(with_labels)


def call(function: Callable[..., Any], settings: DataSettings, split: str, flag: str) -> Any:
    """Returns what the user's function returns for a split; see `UserReader`."""
    offered = {
        "split": split,
        "data_dir": settings.data_dir,
        "image_size": _offered_size(settings),
        "seed": settings.seed,
    }
    with explaining(flag), tf.device(None):  # its files and its Python are on this machine
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


def _dtype(data: Arrays | Stream) -> tf.DType:
    if isinstance(data, Arrays):
        return tf.as_dtype(data.examples.dtype)
    return data.dataset.element_spec[0].dtype


def _example_shape(data: Arrays | Stream) -> tuple[int, ...]:
    if isinstance(data, Arrays):
        return data.examples.shape[1:]
    return tuple(data.dataset.element_spec[0].shape)


def _offered_size(settings: DataSettings) -> int | tuple[int, int] | None:
    """Returns --image_size for a function of the user: an int, or (H, W) for a rectangle."""
    size = settings.image_size
    return sides_of(size) if isinstance(size, str) else size


def _class_names(data: Arrays | Stream) -> tuple[str, ...] | None:
    """Returns the names of the classes: those of the labels, or numbers for one-hot streams."""
    if isinstance(data, Stream):
        return names_of_numbers(data.classes or 0) or None
    return data.class_names


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
