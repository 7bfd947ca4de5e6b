"""Finds the dataset of a run by name.

The built-in datasets are found without importing TensorFlow, so flags that do not fit the model are
rejected at once. The other datasets are found without starting the TensorFlow runtime, because it
must not start before the devices are configured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import typing
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from absl import logging

from ..config import PYTHON, DataSettings, DeviceSettings, image_size_of
from ..errors import UserError, shorten
from .sources.built_in import BUILT_IN, BuiltInReader
from .spec import DataSpec, count_of, is_normalized

if typing.TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from .opened_data import InMemoryData, OpenedData, StreamedData
    from .scaling.conditions import Conditions
    from .scaling.pixels import Pixels
    from .scaling.scaling import Scaling
    from .tables.table import Table

FILE_DATASETS = ("image_folder", "tfrecord", "array")
DATASETS = (*BUILT_IN, *FILE_DATASETS)  # the names that this project defines
_LOCAL_DEVICES = DeviceSettings()
_DATA_DIR, _TEST_DATA_DIR = "--data_dir", "--test_data_dir"
_LABEL_REMEDIES = {
    "tfrecord": "give one integer or text in each example as the feature label",
    "array": "give a file with labels or conditions, or a table with a column named label or "
    "class (other names: --label_column, --condition_columns), or add --conditioning=none",
    "image_folder": "put the images of each class into a subfolder, and no images elsewhere",
}


class DatasetReader(Protocol):
    """Reads a dataset from one kind of storage; see `Dataset.spec` for the attributes."""

    example_shape: tuple[int, ...]

    @property
    def class_names(self) -> tuple[str, ...] | None: ...

    def open(
        self, settings: DataSettings, *, classes: int, devices: DeviceSettings
    ) -> InMemoryData | StreamedData:
        """Opens the dataset; labels must be 0 ... classes - 1, and 0 allows all labels."""

    def open_unread(self, settings: DataSettings, *, devices: DeviceSettings) -> OpenedData:
        """Returns the properties of the dataset without reading all of its examples."""

    def with_settings(self, settings: DataSettings) -> DatasetReader:
        """Returns a reader of the same data with another --image_size or --holdout."""

    def fingerprint(self, settings: DataSettings) -> dict[str, Any] | None:
        """Returns the fingerprint of the data, or None for a dataset without files."""


class Dataset:
    """A dataset that was found but not opened; see `find_dataset`.

    Args:
      settings: The settings of the data.
      reader: Reads the dataset.
      conditioning: The value of --conditioning.
      devices: The devices that receive the data.

    Attributes:
      settings: The settings of the data.
      label_count: The number of classes of the dataset, also for an unconditional run; 0 without
        labels.

    Raises:
      UserError: If the run is conditional but the dataset has no labels.
    """

    def __init__(
        self,
        settings: DataSettings,
        reader: DatasetReader,
        conditioning: str,
        devices: DeviceSettings,
    ):
        has_conditions = getattr(reader, "conditions", None) is not None
        is_typed = getattr(reader, "table", None) is not None
        if is_typed and conditioning != "none" and not reader.class_names:
            raise UserError(
                f"--conditioning={conditioning} needs columns of categories, but "
                f"--dataset={settings.dataset} has none",
                "omit it",
            )
        if conditioning != "none" and not (reader.class_names or has_conditions):
            raise UserError(
                f"--conditioning={conditioning} needs labels, but --dataset={settings.dataset} has "
                "none",
                _LABEL_REMEDIES.get(
                    settings.dataset,
                    "omit it, or use data with labels, which are one-hot rows in a stream",
                ),
            )
        if is_typed and conditioning not in ("none", "concatenation"):
            raise UserError(
                f"--conditioning={conditioning} does not apply to a table with --column_types",
                "use --conditioning=concatenation",
            )
        if conditioning != "none" and has_conditions:
            name = "data_dir" if settings.dataset == "array" else "dataset"
            flag = f"--{name}={getattr(settings, name)}"
            reader.conditions.warn(flag)  # type: ignore[attr-defined]
        self.settings = settings
        self._reader: Any = reader
        self._conditioning = conditioning
        self._devices = devices
        self._held_out_count = 0
        self._unused_classes: list[str] = []  # without any example to train on
        # The examples of --holdout of the data that was opened last, and its settings. To open them
        # again would decode the whole data again if there is no store.
        self._held_out: tuple[DataSettings, Any] | None = None
        self._recorded: DataSpec | None = None  # see `use_recorded`
        self._set_classes()

    @property
    def spec(self) -> DataSpec:
        """The shape of the examples and the number of classes of the run."""
        conditions = None if self._conditioning == "none" else self.conditions
        shape = self._reader.example_shape
        bounded = getattr(self._reader, "bounded", is_normalized(shape))
        names = self._reader.class_names or None
        units = self.scaling, self.table, self._pixels
        return DataSpec(shape, self._classes, bounded, conditions, names, *units)

    @property
    def _pixels(self) -> Pixels | None:
        """The levels of pictures; None for other data, and for pictures of real numbers."""
        bits = getattr(self._reader, "bits", None)
        if bits is None:
            return None
        from .scaling.pixels import Pixels  # noqa: PLC0415

        return Pixels(bits, self.settings.dequantization)

    @property
    def conditions(self) -> Conditions | None:
        """The conditions of the dataset, also for an unconditional run; None without conditions."""
        return getattr(self._reader, "conditions", None)

    @property
    def scaling(self) -> Scaling | None:
        """The scaling of an array, None for other datasets."""
        return getattr(self._reader, "scaling", None)

    @property
    def table(self) -> Table | None:
        """The columns of a typed table, None for other datasets."""
        return getattr(self._reader, "table", None)

    def as_given(
        self, samples: np.ndarray, labels: np.ndarray | None, conditions: np.ndarray | None
    ) -> Any:
        """Returns samples in the units of the data, as a DataFrame if the data is one.

        Args:
          samples: `[N, D]`, with all features.
          labels: `[N]`, the numbers of their classes, or None.
          conditions: `[N, K]`, or None.
        """
        if not hasattr(self._reader, "to_frame"):
            return samples
        return self._reader.to_frame(samples, labels, conditions)

    def with_given_columns(self, samples: pd.DataFrame) -> pd.DataFrame:
        """Returns samples of a typed table with the labels of columns that Python gave."""
        return self._reader.with_given_columns(samples)

    @property
    def resizable(self) -> bool:
        """Is True if --image_size can change the size of the images."""
        return getattr(self._reader, "resizable", True)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the features of an array, None if they have none."""
        return None if self.scaling is None else self.scaling.names

    def count(self, size: int | None) -> int | None:
        """Returns the number of different examples in opened data of a size.

        They are fewer only for a conditional run on a typed table, which draws many rows twice.
        """
        return getattr(self._reader, "rows", size)

    def describe(self, size: int | None) -> str:
        """Returns what was understood of the data, in one line; see `DataSpec.describe`."""
        settings, reader = self.settings, self._reader
        origin = f"--dataset={settings.dataset}"
        if settings.dataset in FILE_DATASETS:
            origin = f"{_DATA_DIR}={settings.data_dir}"
        notes = list(getattr(reader, "notes", ()))
        if self._held_out_count:
            held_out = count_of(self._held_out_count, "example")
            notes.append(f"{held_out} held out (--holdout={settings.holdout:g})")
        if self._unused_classes:
            notes.append(f"no example of {shorten(', '.join(self._unused_classes))} to train on")
        columns = getattr(reader, "label_column", None), getattr(reader, "condition_names", ())
        found = self.spec.describe(self.count(size), *columns)
        return f"{origin}: {'; '.join([found, *notes])}"

    @property
    def takes_record(self) -> bool:
        """Is True if `use_recorded` has an effect."""
        return hasattr(self._reader, "use_spec")

    def use_recorded(self, spec: DataSpec) -> None:
        """Scales examples and conditions, and numbers classes, as at the beginning of the run."""
        is_alike = (spec.scaling is None, spec.table is None) == (
            self.scaling is None,
            self.table is None,
        )
        if self.takes_record and is_alike:
            self._reader.use_spec(spec)
            self._recorded = spec
            self._held_out = None
            self._set_classes()

    def _set_classes(self) -> None:
        self.label_count = len(self._reader.class_names or ())
        self._classes = 0 if self._conditioning == "none" else self.label_count

    def open(self, *, batch_size: int, plain: bool = False) -> InMemoryData | StreamedData:
        """Opens the dataset.

        Args:
          batch_size: The global batch size of the run.
          plain: Whether to read the examples without dequantization and random flips.

        Raises:
          UserError: If the dataset cannot be read or has fewer examples than a batch.
        """
        settings = self.settings
        if plain:
            settings = dataclasses.replace(settings, dequantization=False, random_flips=False)
        whole: Any = self._open(self._reader, settings)
        data = self._training_part(whole)
        if settings.holdout:
            self._held_out = settings, whole.part(self.is_held_out(whole.size))
        self._check_batch_size(batch_size, data)
        if self._classes and not plain and hasattr(self._reader, "balanced"):
            data = self._reader.balanced(data)
        labels = getattr(data, "labels", None)  # streams do not know them
        if self._classes and labels is not None:
            import numpy as np  # noqa: PLC0415

            used = set(np.asarray(labels).tolist())
            names = enumerate(self.spec.class_names or ())
            self._unused_classes = [name for number, name in names if number not in used]
        return data

    def open_unread(self, *, batch_size: int) -> OpenedData:
        """Returns the properties of the dataset, which suffice to compile a run.

        No example is decoded, but TFRecord files without a store are read to count their records.
        See `open` for the argument and the error.
        """
        with _reporting(_DATA_DIR, self.settings):
            data = self._reader.open_unread(self.settings, devices=self._devices)
        data = self._training_part(data)
        self._check_batch_size(batch_size, data)
        if self._classes and hasattr(self._reader, "balanced_size"):
            data = dataclasses.replace(data, size=self._reader.balanced_size(data.size))
        return data

    @property
    def square_side(self) -> int | None:
        """The side of the default square of images that can be resized, else None."""
        return getattr(self._reader, "square_side", None)

    def with_settings(self, **changes: Any) -> Dataset:
        """Returns the same dataset with other values of --image_size or --holdout."""
        settings = dataclasses.replace(self.settings, **changes)
        with _reporting(_DATA_DIR, settings):
            reader = self._reader.with_settings(settings)
        return Dataset(settings, reader, self._conditioning, self._devices)

    @property
    def has_held_out(self) -> bool:
        """Is True if there is held-out data; see `open_held_out`."""
        settings = self.settings
        return bool(
            settings.test_data_dir or settings.holdout or self._held_out_split() is not None
        )

    def is_held_out(self, size: int) -> np.ndarray:
        """Returns which of `size` examples --holdout sets aside: `[size]` bool."""
        from .holdout import is_held_out  # noqa: PLC0415

        return is_held_out(size, self.settings.holdout)

    def open_held_out(self) -> InMemoryData | StreamedData | None:
        """Opens the held-out data, or returns None if there is none.

        The held-out data is --test_data_dir, the share --holdout of the examples, or the split
        "test" or "validation".

        Raises:
          UserError: If the held-out data cannot be read, or --test_data_dir does not apply to the
            dataset.
        """
        settings = self.settings
        if settings.test_data_dir is not None:
            return self._open_test_data_dir(settings.test_data_dir)
        if settings.holdout:
            if self._held_out is not None and self._held_out[0] == settings:
                return self._held_out[1]
            data: Any = self._open(self._reader, settings)
            return data.part(self.is_held_out(data.size))
        split = self._held_out_split()
        if split is None:
            return None
        return self._open(self._reader, dataclasses.replace(settings, split=split))

    def _held_out_split(self) -> str | None:
        if not hasattr(self._reader, "held_out_split"):
            return None
        return self._reader.held_out_split(self.settings)

    def _training_part(self, data: Any) -> Any:
        """Returns opened data without the examples that --holdout sets aside."""
        if not self.settings.holdout:
            return data
        is_held_out = self.is_held_out(data.size or 0)
        self._held_out_count = int(is_held_out.sum())
        return data.part(~is_held_out)

    def fingerprint(self) -> dict[str, Any] | None:
        """Returns the fingerprint of the dataset's files, or None for a dataset without files.

        Raises:
          UserError: If the dataset is not prepared or cannot be reached.
        """
        with _reporting(_DATA_DIR, self.settings):
            return self._reader.fingerprint(self.settings)

    def _check_batch_size(self, batch_size: int, data: OpenedData) -> None:
        if data.size is not None and batch_size > data.size:
            raise UserError(
                f"--batch_size={batch_size} is larger than --dataset={self.settings.dataset}, "
                f"which has {data.size} example{'s' if data.size > 1 else ''}",
                f"use at most {data.size}",
            )

    def _open(
        self, reader: DatasetReader, settings: DataSettings, flag: str = _DATA_DIR
    ) -> InMemoryData | StreamedData:
        with _reporting(flag, settings):
            return reader.open(settings, classes=self._classes, devices=self._devices)

    def _open_test_data_dir(self, path: str) -> InMemoryData | StreamedData:
        if self.settings.dataset not in FILE_DATASETS:
            raise UserError(
                f"--test_data_dir={path} applies only to image_folder, tfrecord and array",
                "omit it",
            )
        settings = dataclasses.replace(self.settings, data_dir=path)
        if (
            self.scaling is None and self.table is None
        ):  # pictures, which are made to have the shape of the training data
            height, width, channels = self.spec.example_shape
            settings = dataclasses.replace(
                settings, image_size=image_size_of(height, width), image_channels=channels
            )
        reader: Any = _find_reader(settings, _TEST_DATA_DIR)
        if hasattr(reader, "use_spec"):
            reader.use_spec(self._spec_of_held_out(reader))
        return self._open(reader, settings, _TEST_DATA_DIR)

    def _spec_of_held_out(self, reader: Any) -> DataSpec:
        """Returns what held-out data must have in common with the training data.

        A conditional run is evaluated with a dataset without conditioning, which may lack labels.
        If it has labels or conditions, they are those of the run.
        """
        spec, run = self.spec, self._recorded
        if run is None:
            return spec
        classes = run.classes if reader.class_names else spec.classes
        has_conditions = getattr(reader, "conditions", None) is not None
        conditions = run.conditions if has_conditions else spec.conditions
        return dataclasses.replace(spec, classes=classes, conditions=conditions)


def find_dataset(
    settings: DataSettings,
    *,
    conditioning: str = "none",
    devices: DeviceSettings = _LOCAL_DEVICES,
    function: Callable[..., Any] | None = None,
) -> Dataset:
    """Finds the dataset of a run without opening it.

    Args:
      settings: The settings of the data.
      conditioning: The value of --conditioning. All values except "none" require labels or
        conditions.
      devices: The devices that receive the data. A remote TPU limits the size of the data.
      function: Returns the data of a split, for a dataset of the user; see `UserReader`.

    Raises:
      UserError: If the dataset does not exist or cannot be read, the flags of the data contradict
        each other, or the run is conditional but the dataset has no labels.
    """
    if function is None:
        return Dataset(settings, _find_reader(settings), conditioning, devices)
    from .sources.python.frames import FrameReader, is_frame  # noqa: PLC0415
    from .sources.python.user_data import UserReader, call, called_once  # noqa: PLC0415
    from .sources.tables.tables import refuse_columns  # noqa: PLC0415

    flag = "data" if settings.dataset == PYTHON else f"--dataset={settings.dataset}"
    function = called_once(function)
    reader: Any
    if settings.column_types is not None:
        from .tables.reader import TypedFrameReader  # noqa: PLC0415

        reader = TypedFrameReader(
            settings, lambda split: call(function, settings, split, flag), flag
        )
    elif is_frame(call(function, settings, settings.split, flag)):
        reader = FrameReader(settings, function, flag)
    else:
        refuse_columns(flag, settings)
        reader = UserReader(settings, function, flag)
    return Dataset(settings, reader, conditioning, devices)


def _find_reader(settings: DataSettings, flag: str = _DATA_DIR) -> DatasetReader:
    """Finds the reader of a dataset whose files `flag` names."""
    _check_flags(settings)
    if settings.dataset in BUILT_IN:
        return BuiltInReader(settings)
    from .sources import folder, records, tfds  # noqa: PLC0415
    from .sources.arrays import arrays  # noqa: PLC0415
    from .store.opening import SourceReader  # noqa: PLC0415

    with _reporting(flag, settings):
        if settings.dataset == "image_folder":
            return SourceReader(folder.find_source(settings, flag), settings.split)
        if settings.dataset == "tfrecord":
            source = records.find_source(settings, flag)
            return SourceReader(source, settings.split, settings.data_cache)
        if settings.dataset == "array" and settings.column_types is not None:
            from .tables.reader import read_table  # noqa: PLC0415

            return typing.cast(DatasetReader, read_table(settings, flag))
        if settings.dataset == "array":
            held_out = flag == _TEST_DATA_DIR
            reader = arrays.ArrayReader(settings, flag, held_out=held_out)
            return typing.cast(DatasetReader, reader)
        return SourceReader(tfds.find_source(settings), settings.split)


def _check_flags(settings: DataSettings) -> None:
    """Raises UserError if a flag does not apply to the dataset."""
    is_built_in = settings.dataset in BUILT_IN
    if is_built_in and settings.data_dir is not None:
        # No error, because one command may train several experiments, some of which need no files.
        logging.warning(
            f"--data_dir={settings.data_dir} is not used: --dataset={settings.dataset} needs no "
            f"files; to train on them, add --dataset={', '.join(FILE_DATASETS)} or another name"
        )
    if settings.split != "train" and (is_built_in or settings.dataset == "array"):
        # A run that was started with it continues only with it.
        logging.warning(
            f"--split={settings.split} has no effect: --dataset={settings.dataset} has one split"
        )
    of_arrays: dict[str, Any] = {"scaling": "minmax", "invalid": "refuse"}
    of_arrays |= dict.fromkeys(["drop_columns", "condition_columns", "column_types"])
    if settings.dataset != "image_folder":
        of_arrays["label_column"] = None
    for name, default in of_arrays.items():
        if settings.dataset != "array" and (value := getattr(settings, name)) != default:
            raise UserError(f"--{name}={value} applies only to --dataset=array", "omit it")


@contextlib.contextmanager
def _reporting(flag: str, settings: DataSettings) -> Iterator[None]:
    """Turns file errors into a UserError that names the flag of the files."""
    from .sources.listing import reading  # noqa: PLC0415
    from .store.cache import find_store  # noqa: PLC0415

    find = functools.partial(find_store, settings.data_cache)
    with reading(f"{flag}={settings.data_dir}", find):
        yield
