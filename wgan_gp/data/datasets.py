"""Finds the data of a run by name, and opens its examples.

The built-in datasets are found without importing TensorFlow, so flags that do not fit the model are
rejected at once. The other datasets are found without starting the TensorFlow runtime, because it
must not start before the devices are configured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import typing
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

from ..config import COLUMN_SETTINGS, PYTHON, DataSettings, DeviceSettings, image_size_of
from ..errors import UserError, shorten
from .source import NO_LABEL, Source, balanced_size, is_held_out
from .sources import built_in
from .sources.built_in import BUILT_IN
from .spec import DataSpec, count_of

if typing.TYPE_CHECKING:
    import numpy as np

    from .feed import Examples

# The kinds of files, each with the module whose `find_source` finds them, and settings that only
# some kinds have.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "image_folder": (".sources.folder", ("label_column",)),
    "tfrecord": (".sources.records", ()),
    "array": (".sources.arrays", ("scaling", "invalid", *COLUMN_SETTINGS)),
}
_OTHERS = ".sources.tfds"  # the datasets of tensorflow-datasets
FILE_DATASETS = tuple(KINDS)
DATASETS = (*BUILT_IN, *FILE_DATASETS)  # the names that this project defines
_LOCAL_DEVICES = DeviceSettings()
_DATA_DIR, _TEST_DATA_DIR = "--data_dir", "--test_data_dir"
_LABEL_REMEDIES = {
    "tfrecord": "give one integer or text in each example as the feature label",
    "array": "give a file with labels or conditions, or a table with a column of categories or "
    "--condition_columns, or add --conditioning=none",
    "image_folder": "put the images of each class into a subfolder, and no images elsewhere",
}


class Dataset:
    """The data of a run: a source, and the settings with which its examples are opened.

    Args:
      source: The source.
      settings: The settings of the data.
      conditioning: The value of --conditioning.
      devices: The devices that receive the data.

    Attributes:
      source, settings: As above.

    Raises:
      UserError: If the run is conditional but the data has no labels.
    """

    def __init__(
        self, source: Source, settings: DataSettings, conditioning: str, devices: DeviceSettings
    ):
        self.source, self.settings = source, settings
        self._conditioning, self._devices = conditioning, devices
        self._examples: Source | None = None  # the source with decoded examples
        self._recorded: DataSpec | None = None  # see `use_recorded`
        self._held_out_count = 0
        self._unused_classes: list[str] = []  # without any example to train on
        if conditioning != "none":
            self._check_conditioning()

    def _check_conditioning(self) -> None:
        given, spec = f"--conditioning={self._conditioning}", self.source.spec
        dataset = f"--dataset={self.settings.dataset}"
        if spec.table is not None and not spec.class_names and spec.conditions is None:
            raise UserError(
                f"{given} needs columns of categories, but {dataset} has none", "omit it"
            )
        if not spec.class_names and spec.conditions is None:
            raise UserError(
                f"{given} needs labels, but {dataset} has none",
                _LABEL_REMEDIES.get(
                    self.settings.dataset,
                    "omit it, or use data with labels, which are one-hot rows in a stream",
                ),
            )
        if spec.classes and spec.table is not None and self._conditioning != "concatenation":
            raise UserError(
                f"{given} does not apply to all categories of a table",
                "use --conditioning=concatenation, or name columns with --condition_columns",
            )
        if spec.conditions is not None:
            spec.conditions.warn(self.source.origin)

    @property
    def spec(self) -> DataSpec:
        """The properties of the data for this run, without classes that it does not use."""
        spec = self.source.spec
        if self._conditioning != "none":
            return spec
        return dataclasses.replace(spec, classes=0, conditions=None)

    @property
    def label_count(self) -> int:
        """The number of classes of the data, also for an unconditional run; 0 without labels."""
        return len(self.source.spec.class_names or ())

    def count(self, data: Examples) -> int | None:
        """Returns the number of different examples in opened data.

        They are fewer than its size only for a conditional run on a table, which draws many rows
        twice.
        """
        size = data.source.size
        return None if size is None else size - self._held_out_count

    def describe(self, data: Examples) -> str:
        """Returns what was understood of the data, in one line; see `DataSpec.describe`."""
        settings, source = self.settings, self._examples or self.source
        notes = list(source.notes)
        if self._held_out_count:
            held_out = count_of(self._held_out_count, "example")
            notes.append(f"{held_out} held out (--holdout={settings.holdout:g})")
        if self._unused_classes:
            notes.append(f"no example of {shorten(', '.join(self._unused_classes))} to train on")
        return f"{source.origin}: {'; '.join([self.spec.describe(self.count(data)), *notes])}"

    @property
    def takes_record(self) -> bool:
        """Is True if `use_recorded` has an effect."""
        return self.source.like is not None

    def use_recorded(self, spec: DataSpec) -> None:
        """Scales examples and conditions, and numbers classes, as at the beginning of the run."""
        own = self.source.spec
        is_alike = (spec.scaling is None, spec.table is None) == (
            own.scaling is None,
            own.table is None,
        )
        if self.source.like is not None and is_alike:
            self.source = self.source.like(spec)
            self._recorded, self._examples = spec, None

    def open(self, *, batch_size: int, plain: bool = False) -> Examples:
        """Opens the training data.

        Args:
          batch_size: The global batch size of the run.
          plain: Whether to read each example, without dequantization and random flips.

        Raises:
          UserError: If the data cannot be read or has fewer examples than a batch.
        """
        import numpy as np  # noqa: PLC0415

        source = self._decoded()
        chosen = self._training_part(source.size)
        if source.balanced is None or plain or not self.spec.classes:
            data = self._open(source, chosen, plain=plain)
            self._check_batch_size(batch_size, data.size)
        else:
            assert source.size is not None and source.read is not None
            part = np.arange(source.size) if chosen is None else chosen
            self._check_batch_size(batch_size, len(part))
            drawn, labels = source.balanced(source.read(part), self.settings.seed)
            data = self._open(source, part[drawn], labels)
        if self.spec.classes and data.labels is not None:
            used = set(np.unique(data.labels).tolist())
            names = enumerate(self.spec.class_names or ())
            self._unused_classes = [name for number, name in names if number not in used]
        return data

    def open_unread(self, *, batch_size: int) -> Examples:
        """Returns the properties of the training data, which suffice to compile a run.

        No example is decoded, but TFRecord files without a store are read to count their records.
        See `open` for the argument and the error.
        """
        import numpy as np  # noqa: PLC0415

        from .feed import Examples  # noqa: PLC0415

        if self.source.count is None:
            source = self._decoded()
        else:
            with reporting(_DATA_DIR, self.settings):
                count = self.source.count(self._devices)
            source = dataclasses.replace(self.source, size=count)
        chosen = self._training_part(source.size)
        size = source.size if chosen is None else len(chosen)
        self._check_batch_size(batch_size, size)
        if self.spec.classes and source.balanced is not None:
            chosen = np.zeros([balanced_size(size or 0)], np.int64)
        return Examples(
            source, self.settings, devices=self._devices, chosen=chosen, unread=source.is_numbered
        )

    @property
    def has_held_out(self) -> bool:
        """Is True if there is held-out data; see `open_held_out`."""
        settings = self.settings
        return bool(settings.test_data_dir or settings.holdout or self._held_out() is not None)

    def open_held_out(self, *, plain: bool = False) -> Examples | None:
        """Opens the held-out data, or returns None if there is none.

        The held-out data is --test_data_dir, the share --holdout of the examples, or the split
        "test" or "validation".

        Args:
          plain: See `open`.

        Raises:
          UserError: If the held-out data cannot be read, or --test_data_dir does not apply to the
            dataset.
        """
        import numpy as np  # noqa: PLC0415

        settings = self.settings
        if settings.test_data_dir is not None:
            return self._open_test_data_dir(settings.test_data_dir, plain=plain)
        if settings.holdout:
            source = self._decoded()
            held_out = is_held_out(source.size or 0, settings.holdout)
            return self._open(source, np.flatnonzero(held_out), plain=plain)
        if (other := self._held_out()) is None:
            return None
        return self._open(self._decode(other, settings, _DATA_DIR), None, plain=plain)

    def _held_out(self) -> Source | None:
        """Returns the split "test" or "validation", or None.

        A conditional run is evaluated with a dataset without conditioning. If the held-out data has
        labels or conditions, they are those of the run.
        """
        if self.source.held_out is None:
            return None
        with reporting(_DATA_DIR, self.settings):
            return self.source.held_out(self._recorded or self.spec)

    def fingerprint(self) -> dict[str, Any] | None:
        """Returns the fingerprint of the data, or None for a dataset without files.

        Raises:
          UserError: If the dataset is not prepared or cannot be reached.
        """
        with reporting(_DATA_DIR, self.settings):
            return self.source.identity()

    def _decoded(self) -> Source:
        """Returns the source with its decoded examples, which are decoded once."""
        if self._examples is None:
            self._examples = self._decode(self.source, self.settings, _DATA_DIR)
        return self._examples

    def _decode(self, source: Source, settings: DataSettings, flag: str) -> Source:
        if source.decode is None:
            return source
        with reporting(flag, settings):
            return source.decode(self._devices)

    def _open(
        self,
        source: Source,
        chosen: np.ndarray | None,
        labels: np.ndarray | None = None,
        *,
        plain: bool = False,
        flag: str = _DATA_DIR,
    ) -> Examples:
        from .feed import Examples  # noqa: PLC0415

        settings = self.settings
        if plain:
            settings = dataclasses.replace(settings, dequantization=False, random_flips=False)
        self._check_labels(source)
        with reporting(flag, settings):
            return Examples(source, settings, devices=self._devices, chosen=chosen, labels=labels)

    def _check_labels(self, source: Source) -> None:
        """Raises UserError if examples lack labels that the run needs."""
        spec = self.spec
        if spec.conditions is not None and source.spec.conditions is None:
            raise UserError(
                f"{source.origin} has no conditions, which the run needs",
                "give data with conditions",
            )
        if not spec.classes or not source.is_numbered:
            return
        if source.labels is None:
            raise UserError(
                f"{source.origin} has no labels, which the run needs", "give data with labels"
            )
        unknown = int((source.labels == NO_LABEL).sum())
        if unknown:
            raise UserError(
                f"{source.origin}: {unknown:,} of {len(source.labels):,} examples have no label, "
                "which the run needs",
                "use another --split, or --conditioning=none",
            )

    def _training_part(self, size: int | None) -> np.ndarray | None:
        """Returns the examples that --holdout does not set aside; None for all."""
        import numpy as np  # noqa: PLC0415

        share = self.settings.holdout
        if not share:
            return None
        if size is None:
            raise UserError(
                "--holdout, which --augment=ada sets, applies only to data of a fixed number of "
                "examples",
                "give --holdout=0, and use --augment=diffaugment",
            )
        held_out = is_held_out(size, share)
        self._held_out_count = int(held_out.sum())
        return np.flatnonzero(~held_out)

    def _check_batch_size(self, batch_size: int, size: int | None) -> None:
        if size is not None and batch_size > size:
            raise UserError(
                f"--batch_size={batch_size} is larger than --dataset={self.settings.dataset}, "
                f"which has {size} example{'s' if size > 1 else ''}",
                f"use at most {size}",
            )

    def _open_test_data_dir(self, path: str, *, plain: bool) -> Examples:
        if self.settings.dataset not in FILE_DATASETS:
            raise UserError(
                f"--test_data_dir={path} applies only to image_folder, tfrecord and array",
                "omit it",
            )
        settings = dataclasses.replace(self.settings, data_dir=path, holdout=0.0)
        if self.spec.pixels is not None:  # made to have the shape of the training data
            height, width, channels = self.spec.example_shape
            settings = dataclasses.replace(
                settings, image_size=image_size_of(height, width), image_channels=channels
            )
        other = _find_source(settings, _TEST_DATA_DIR, self._recorded or self.spec)
        source = self._decode(other, settings, _TEST_DATA_DIR)
        return self._open(source, None, plain=plain, flag=_TEST_DATA_DIR)


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
      function: Returns the data of a split, for a dataset of the user; see `sources.python`.

    Raises:
      UserError: If the dataset does not exist or cannot be read, the flags of the data contradict
        each other, or the run is conditional but the dataset has no labels.
    """
    if function is None:
        source = _find_source(settings)
    else:
        from .sources import python  # noqa: PLC0415

        flag = "data" if settings.dataset == PYTHON else f"--dataset={settings.dataset}"
        source = python.find_source(settings, function, flag)
    return Dataset(source, settings, conditioning, devices)


def _find_source(
    settings: DataSettings, flag: str = _DATA_DIR, like: DataSpec | None = None
) -> Source:
    """Finds the data whose files `flag` names, in the units of other data; see `Source.like`."""
    _check_flags(settings)
    if settings.dataset in BUILT_IN:
        return built_in.find_source(settings)
    name, _ = KINDS.get(settings.dataset, (_OTHERS, ()))
    module = importlib.import_module(name, __package__)
    with reporting(flag, settings):
        return module.find_source(settings, flag, like)


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
    _, own = KINDS.get(settings.dataset, (_OTHERS, ()))
    for name in dict.fromkeys(name for _, known in KINDS.values() for name in known):
        value = getattr(settings, name)
        if name not in own and value != getattr(DataSettings, name):
            kinds = " or ".join(kind for kind, (_, known) in KINDS.items() if name in known)
            raise UserError(f"--{name}={value} applies only to --dataset={kinds}", "omit it")


@contextlib.contextmanager
def reporting(flag: str, settings: DataSettings) -> Iterator[None]:
    """Turns file errors into a UserError that names the flag of the files."""
    from .sources.listing import reading  # noqa: PLC0415
    from .store.opening import find_store  # noqa: PLC0415

    find = functools.partial(find_store, settings.data_cache)
    with reading(f"{flag}={settings.data_dir}", find):
        yield
