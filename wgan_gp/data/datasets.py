"""Finds the dataset of a run by name.

The built-in datasets are found without importing TensorFlow, so flags that do not fit the model are
rejected at once. The other datasets are found without starting the TensorFlow runtime, because it
must not start before the devices are configured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import typing
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ..config import DataSettings, DeviceSettings
from ..config.code import PYTHON
from ..errors import UserError
from .shapes import image_shape
from .spec import DataSpec

if typing.TYPE_CHECKING:
    from .conditions import Conditions
    from .source import InMemoryData, OpenedData, StreamedData

FILE_DATASETS = ("image_folder", "tfrecord")
_LOCAL_DEVICES = DeviceSettings()
_LABEL_REMEDIES = {
    "tfrecord": "add --num_classes=N, for labels 0 ... N - 1",
    "image_folder": "put the images of each class into a subfolder, and no images elsewhere",
}


@dataclasses.dataclass(frozen=True)
class BuiltIn:
    """A dataset without files.

    Attributes:
      module: The module of this package whose `open_data` opens the dataset.
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      classes: The number of classes of its labels; 0 without labels.
    """

    module: str
    example_shape: tuple[int, ...]
    classes: int = 0


BUILT_IN = {
    "digits": BuiltIn("digits", (8, 8, 1), classes=10),
    "gaussians_8": BuiltIn("toys", (2,), classes=8),
    "gaussians_25": BuiltIn("toys", (2,), classes=25),
    "swiss_roll": BuiltIn("toys", (2,)),
}


class DatasetReader(Protocol):
    """Reads a dataset from one kind of storage; see `Dataset.spec` for the attributes."""

    example_shape: tuple[int, ...]
    label_count: int

    def open(
        self, settings: DataSettings, *, classes: int, devices: DeviceSettings
    ) -> InMemoryData | StreamedData:
        """Opens the dataset; labels must be 0 ... classes - 1, and 0 allows all labels."""

    def open_unread(self, settings: DataSettings, *, devices: DeviceSettings) -> OpenedData:
        """Returns the properties of the dataset without reading all of its examples."""

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
      spec: The shape of the examples and the number of classes of the run.
      conditions: The distribution of the conditions of the dataset, also for an unconditional run;
        None without conditions.
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
        self.label_count = reader.label_count
        self.conditions: Conditions | None = getattr(reader, "conditions", None)
        if conditioning == "acgan" and self.conditions:
            raise UserError(
                "--conditioning=acgan classifies, but the data has conditions that are not classes",
                "use --conditioning=projection or concatenation",
            )
        if conditioning != "none" and not (self.label_count or self.conditions):
            raise UserError(
                f"--conditioning={conditioning} needs labels, but --dataset={settings.dataset} has "
                "none",
                _LABEL_REMEDIES.get(settings.dataset, "omit it, or use another --dataset"),
            )
        classes = 0 if conditioning == "none" else self.label_count
        used = None if conditioning == "none" else self.conditions
        size = used.size if used else 0
        self.spec = DataSpec(reader.example_shape, classes, size, used)
        self.settings = settings
        self._reader: Any = reader
        self._devices = devices

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
        data = self._open(self._reader, settings)
        self._check_batch_size(batch_size, data)
        return data

    def open_unread(self, *, batch_size: int) -> OpenedData:
        """Returns the properties of the dataset, which suffice to compile a run.

        No example is decoded, but TFRecord files are read to count their records. See `open` for
        the argument and the error.
        """
        with _reporting(self.settings):
            data = self._reader.open_unread(self.settings, devices=self._devices)
        self._check_batch_size(batch_size, data)
        return data

    def open_held_out(self) -> InMemoryData | StreamedData | None:
        """Opens the held-out data, or returns None if there is none.

        The held-out data is --test_data_dir or, for a dataset of tensorflow-datasets, the split
        "test" or "validation". It is not cached in memory.

        Raises:
          UserError: If the held-out data cannot be read, or --test_data_dir does not apply to the
            dataset.
        """
        settings = self.settings
        if settings.test_data_dir is not None:
            return self._open_test_data_dir(settings.test_data_dir)
        if not hasattr(self._reader, "held_out_split"):
            return None
        split = self._reader.held_out_split(settings)
        if split is None:
            return None
        return self._open(self._reader, dataclasses.replace(settings, split=split, cache="off"))

    def fingerprint(self) -> dict[str, Any] | None:
        """Returns the fingerprint of the dataset's files, or None for a dataset without files.

        Raises:
          UserError: If the dataset is not prepared or cannot be reached.
        """
        with _reporting(self.settings):
            return self._reader.fingerprint(self.settings)

    def _check_batch_size(self, batch_size: int, data: OpenedData) -> None:
        if data.size is not None and batch_size > data.size:
            raise UserError(
                f"--batch_size={batch_size} is larger than --dataset={self.settings.dataset}, "
                f"which has {data.size} image{'s' if data.size > 1 else ''}",
                f"use at most {data.size}",
            )

    def _open(self, reader: DatasetReader, settings: DataSettings) -> InMemoryData | StreamedData:
        with _reporting(settings):
            return reader.open(settings, classes=self.spec.classes, devices=self._devices)

    def _open_test_data_dir(self, path: str) -> InMemoryData | StreamedData:
        if self.settings.dataset not in FILE_DATASETS:
            raise UserError(
                f"--test_data_dir={path} applies only to image_folder and tfrecord", "omit it"
            )
        settings = dataclasses.replace(self.settings, data_dir=path, cache="off")
        try:
            return self._open(_find_reader(settings), settings)
        except UserError as error:
            what, remedy = (
                text.replace("--data_dir", "--test_data_dir") for text in (error.what, error.remedy)
            )
            raise UserError(what, remedy) from error


def find_dataset(
    settings: DataSettings,
    *,
    conditioning: str = "none",
    devices: DeviceSettings = _LOCAL_DEVICES,
    function: Callable[..., Any] | None = None,
    conditions: Conditions | None = None,
) -> Dataset:
    """Finds the dataset of a run without opening it.

    Args:
      settings: The settings of the data.
      conditioning: The value of --conditioning. All values except "none" require labels.
      devices: The devices that receive the data. A remote TPU limits the size of the data.
      function: Returns the data of a split, for a dataset of the user; see `UserReader`.
      conditions: Standardizes conditions as in the run that recorded it. Default: by the data.

    Raises:
      UserError: If the dataset does not exist or cannot be read, the flags of the data contradict
        each other, or the run is conditional but the dataset has no labels.
    """
    if function is None:
        return Dataset(settings, _find_reader(settings), conditioning, devices)
    from .user_data import UserReader  # noqa: PLC0415

    flag = "data" if settings.dataset == PYTHON else f"--dataset={settings.dataset}"
    reader = UserReader(settings, function, flag, conditions)
    return Dataset(settings, reader, conditioning, devices)


def _find_reader(settings: DataSettings) -> DatasetReader:
    if settings.num_classes is not None and settings.dataset != "tfrecord":
        raise UserError(
            f"--num_classes={settings.num_classes} applies only to --dataset=tfrecord", "omit it"
        )
    if settings.dataset in BUILT_IN:
        return _BuiltInReader(settings)
    from . import folder, prepared, records  # noqa: PLC0415

    finders: dict[str, Callable[[DataSettings], DatasetReader]] = {
        "image_folder": folder.find_reader,
        "tfrecord": records.find_reader,
    }
    with _reporting(settings):
        return finders.get(settings.dataset, prepared.find_reader)(settings)


class _BuiltInReader:
    """Reads a built-in dataset; see DatasetReader."""

    def __init__(self, settings: DataSettings):
        entry = BUILT_IN[settings.dataset]
        self._module = f".{entry.module}"
        self.label_count = entry.classes
        if len(entry.example_shape) == 3:
            side, _, channels = entry.example_shape
            self.example_shape: tuple[int, ...] = image_shape(settings, side, channels)
        else:
            _refuse_image_flags(settings)
            self.example_shape = entry.example_shape

    def open(
        self, settings: DataSettings, *, classes: int, devices: DeviceSettings
    ) -> InMemoryData:
        module = importlib.import_module(self._module, __package__)
        return module.open_data(settings, self.example_shape)

    def open_unread(self, settings: DataSettings, *, devices: DeviceSettings) -> InMemoryData:
        return self.open(settings, classes=0, devices=devices)

    def fingerprint(self, settings: DataSettings) -> None:
        return None


def _refuse_image_flags(settings: DataSettings) -> None:
    for name in ("image_size", "image_channels"):
        if (value := getattr(settings, name)) is not None:
            raise UserError(
                f"--{name}={value} applies only to images, but --dataset={settings.dataset} "
                "contains points",
                "omit it",
            )


@contextlib.contextmanager
def _reporting(settings: DataSettings) -> Iterator[None]:
    """Turns file errors into a UserError that names --data_dir."""
    from .listing import reading  # noqa: PLC0415

    with reading(f"--data_dir={settings.data_dir}"):
        yield
