"""Arrays from files: features, signals and images of any number of channels."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ....config import DataSettings, DeviceSettings
from ....errors import UserError
from ...holdout import is_held_out
from ...opened_data import (
    ExampleFormat,
    InMemoryData,
    OpenedData,
    StoredData,
    StreamedData,
    UnreadData,
    is_held,
    unreadable_stream,
)
from ...scaling import pixels
from ...scaling.conditions import Conditions
from ...scaling.dequantization import is_byte
from ...scaling.scaling import Scaling, Statistics
from ...scaling.whitening import Covariance
from ...spec import DataSpec, count_of
from ...streamed_rows import StreamedRows
from ..labels import numbered_like
from . import array_checks
from .array_data import ArrayData
from .array_files import open_arrays
from .npy_files import Rows, chunks

_LARGE = 2**30  # bytes, which take several seconds to read


class ArrayReader:
    """Reads a file of arrays; see `datasets.DatasetReader`.

    Args:
      settings: The settings of the data.
      flag: The name of the flag of the file, for messages.
      data: The examples if they are not in a file, for which `flag` is their name in messages.
      held_out: Whether `use_spec` will give the scaling of other data, which they are judged by.

    Attributes:
      scaling: The scaling of the training data; see `use_spec`.
      class_names: The names of the classes; None without labels.
      conditions: The conditions of the training data, or None.

    Raises:
      UserError: If the file cannot be trained on.
    """

    resizable = False  # see `Dataset.resizable`

    def __init__(
        self,
        settings: DataSettings,
        flag: str = "--data_dir",
        data: ArrayData | None = None,
        *,
        held_out: bool = False,
    ):
        if data is not None:
            self._flag, self._data = flag, data
        elif settings.data_dir is None:
            raise UserError(
                "--dataset=array needs --data_dir",
                "give a .npy, .npz, .h5, .mat or .csv file, or a folder",
            )
        else:
            self._flag = f"{flag}={settings.data_dir}"
            self._data = open_arrays(settings.data_dir, self._flag, settings)
        array_checks.check_scaling(self._flag, self._data, settings)
        method = "none" if held_out else settings.scaling
        self.scaling, self._valid, self._content = self._examine(settings, method)
        if not held_out:
            array_checks.check_constant(self._flag, self._data, self.scaling, settings)
            array_checks.check_values(self._flag, self.scaling, settings)
        array_checks.warn_of_precision(self._flag, self._data, self._statistics, settings.scaling)
        array_checks.warn_of_channels(self._flag, self._data.examples.shape)
        self.class_names = self._data.class_names
        self._numbered = False  # whether classes have the numbers of a run
        self.conditions: Conditions | None = None
        if self._data.conditions is not None:
            self._values = self._data.conditions[self._valid]
            trained_on = self._values[~is_held_out(len(self._values), settings.holdout)]
            self.conditions = Conditions.of(trained_on, self._flag)
        if not held_out:
            array_checks.check_flags(self._flag, self.example_shape, settings)

    @property
    def label_column(self) -> str | None:
        """The name of the column of a table that contains the labels, or None."""
        return self._data.label_name

    @property
    def condition_names(self) -> tuple[str, ...]:
        """The names of the columns of a table that contain conditions."""
        return self._data.condition_names or ()

    @property
    def notes(self) -> list[str]:
        """The notes for people on what else was understood of the data."""
        rows = len(self._valid) - int(self._valid.sum()) + self._data.left_out
        left_out = [f"{count_of(rows, 'row')} left out: missing values"] if rows else []
        if not self._data.is_table and rows:
            left_out = [f"{count_of(rows, 'example')} left out: NaN or infinity"]
        return [*left_out, *self._data.notes]

    @property
    def example_shape(self) -> tuple[int, ...]:
        """The shape of an example, without features that are left out."""
        return (*self._data.examples.shape[1:-1], len(self.scaling.used))

    @property
    def bounded(self) -> bool:
        """Is True if all normalized examples are in [-1, 1]."""
        return self.scaling.bounded

    def use_spec(self, spec: DataSpec) -> None:
        """Scales examples, standardizes conditions and numbers classes as in the training data.

        Args:
          spec: The training data, or the data of a run at its beginning.

        Raises:
          UserError: If the data has another shape, or other conditions or classes that the
            networks get.
        """
        assert spec.scaling is not None, "the training data is an array"
        array_checks.check_shape(self._flag, self._data.examples.shape, spec)
        array_checks.check_names(self._flag, self._data, spec.scaling)
        array_checks.check_normalized(self._flag, self._data, self._statistics, spec.scaling)
        self.scaling = spec.scaling
        self._numbered = spec.classes > 0
        if spec.classes:
            self._use_classes(spec.class_names or ())
        if spec.conditions is not None:
            self._use_conditions(spec.conditions)

    def _use_classes(self, class_names: tuple[str, ...]) -> None:
        if self._data.labels is None:
            raise UserError(
                f"{self._flag} has no labels, but the training data has",
                "give data with labels",
            )
        labels = numbered_like(
            class_names, self._data.labels, self._data.class_names or (), self._flag
        )
        self._data = self._data._replace(labels=labels, class_names=class_names)
        self.class_names = class_names

    def _use_conditions(self, conditions: Conditions) -> None:
        size = 0 if self.conditions is None else self.conditions.size
        if size != conditions.size:
            raise UserError(
                f"{self._flag} has conditions of {size} numbers, but those of the training data "
                f"have {conditions.size}",
                "give data with the same conditions",
            )
        assert self.conditions is not None
        self.conditions = self.conditions.scaled_like(conditions, self._flag)

    def open(
        self, settings: DataSettings, *, classes: int, devices: DeviceSettings
    ) -> InMemoryData | StreamedData:
        form = self._format(settings)
        labels = self._labels()
        if not self._is_held(devices, form):
            if devices.on_remote_tpu:
                raise unreadable_stream(self._flag, devices, "give fewer examples")
            rows, used = self._data.examples, np.flatnonzero(self._valid)

            def read(indices: np.ndarray) -> np.ndarray:
                return self._to_stored(np.asarray(rows[used[indices]]))

            return StreamedRows(settings.seed, form, labels, read)
        parts = [
            self._to_stored(part[self._valid[first : first + len(part)]])
            for first, part in chunks(self._data.examples)
        ]
        return StoredData(settings.seed, form, np.concatenate(parts), labels)

    def open_unread(self, settings: DataSettings, *, devices: DeviceSettings) -> OpenedData:
        form = self._format(settings)
        return UnreadData(form, int(self._valid.sum()), self._is_held(devices, form))

    def with_settings(self, settings: DataSettings) -> ArrayReader:
        return ArrayReader(settings, self._flag, self._data)

    def fingerprint(self, settings: DataSettings) -> dict[str, Any]:
        return {"examples": self._data.examples.shape[0], "content": self._content}

    def _is_held(self, devices: DeviceSettings, form: ExampleFormat) -> bool:
        return is_held(int(self._valid.sum()) * form.example_bytes, devices)

    def _format(self, settings: DataSettings) -> ExampleFormat:
        scaling, has_width = self.scaling, len(self.example_shape) >= 3
        get_noise = self._get_noise

        def normalize(stored: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
            if get_noise:
                stored = scaling.normalize_stored(settings, stored, first)
            return pixels.flip(settings, stored, first) if has_width else stored

        return ExampleFormat(
            self.example_shape,
            tf.uint8 if get_noise and is_byte(self._data.examples.dtype) else tf.float32,
            normalize,
            0 if self.conditions is None else self.conditions.size,
        )

    @property
    def _get_noise(self) -> bool:
        """Is True if the examples are dequantized: integers, also of another dtype than trained on.

        Real numbers that are held out are only normalized.
        """
        return self.scaling.dequantized and self._statistics.are_integers

    def _to_stored(self, examples: np.ndarray) -> np.ndarray:
        return self.scaling.to_stored(examples, get_noise=self._get_noise)

    def _labels(self) -> np.ndarray:
        if self.conditions is not None:
            return self.conditions.standardize(self._values)
        if self._data.labels is None:
            return np.zeros([int(self._valid.sum())], np.int32)
        return self._data.labels[self._valid]

    def _examine(self, settings: DataSettings, method: str) -> tuple[Scaling, np.ndarray, str]:
        """Reads all examples once.

        Args:
          settings: The settings of the data.
          method: The method of the scaling.

        Returns:
          The scaling of the examples, which of them are valid `[N]` bool, and a hash.
        """
        rows = self._data.examples
        self._statistics = statistics = Statistics(rows.shape[-1])
        is_trained_on = _is_trained_on(rows, settings.holdout)
        covariance = Covariance(rows.shape[1:]) if method == "whiten" else None
        content = hashlib.sha256()
        valid = []
        if (size := math.prod(rows.shape) * rows.dtype.itemsize) >= _LARGE:
            logging.info(f"note: reading {size / 2**30:.1f} GiB of {self._flag} for their range")
        with np.errstate(over="ignore", invalid="ignore"):  # see array_checks.check_range
            for first, part in chunks(rows):
                content.update(np.ascontiguousarray(part).data)
                used = is_trained_on[first : first + len(part)]
                valid.append(statistics.add(part, used))
                if covariance is not None:
                    covariance.add(part[valid[-1] & used])
        for values in (self._data.labels, self._data.conditions):
            if values is not None:
                content.update(np.ascontiguousarray(values).data)
        is_valid = np.concatenate(valid)
        if not is_valid.all():
            what = (
                f"{self._flag} contains NaN or infinity in {(~is_valid).sum()} of {len(is_valid)} "
                f"examples, in {array_checks.names_of(self._data, statistics.invalid > 0)}"
            )
            if settings.invalid == "refuse":
                raise UserError(what, "correct them, or leave them out with --invalid=drop")
            if not is_valid.any():
                raise UserError(what, "give data with valid examples")
            logging.warning(f"{what}; these examples are left out")
        with np.errstate(over="ignore", invalid="ignore"):
            scaling = statistics.scaling(
                method,
                dtype=rows.dtype,
                dequantize=settings.dequantization,
                names=self._data.names,
            )
        array_checks.check_range(self._flag, self._data, scaling)
        if covariance is not None and scaling.used:
            whitening = covariance.whitening(scaling.offset, scaling.scale, scaling.used)
            scaling = dataclasses.replace(scaling, whitening=whitening)
        return scaling, is_valid, content.hexdigest()


def _is_trained_on(rows: Rows, share: float | None) -> np.ndarray:
    """Returns the examples that determine the scaling, `[N]` bool: not those that are held out."""
    used = np.ones([rows.shape[0]], bool)
    if share:
        for first, part in chunks(rows):
            used[first : first + len(part)] = np.isfinite(part).reshape(len(part), -1).all(axis=1)
        used[used] = ~is_held_out(np.count_nonzero(used), share)
    return used
