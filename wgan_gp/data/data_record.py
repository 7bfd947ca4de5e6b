"""The content of data.json: what a run knows of its data; its comparison with the data of today."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from absl import logging

from ..errors import UserError
from ..run_directory.directory import RunDirectory
from ..run_directory.json_files import read_dataclass
from .datasets import Dataset
from .frames import restore_types
from .spec import DataSpec
from .table import Table

_UNITS = ("files", "examples")  # whose numbers a fingerprint has
_REMEDY = "start the run's training again, which writes the file"
# The entries of a fingerprint that are compared, and the descriptions of their differences.
_DESCRIPTIONS = {
    "names": "the file names differ",
    "classes": "the classes differ",
    "sizes": "the file sizes differ",
    "content": "the examples differ",
}


@dataclasses.dataclass(frozen=True)
class DataRecord:
    """The content of data.json: the properties of the data and its identity.

    Attributes:
      spec: The properties on which the networks depend. Of the conditions, it has only a part.
      fingerprint: The fingerprint of the data. None if unknown.
      size: The number of examples of training. None if unknown, or if the data is generated.
    """

    spec: DataSpec
    fingerprint: dict[str, int | str | None] | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        spec, shape = self.spec, self.spec.example_shape
        names = spec.class_names or ()
        if not 1 <= len(shape) <= 4 or min(shape) < 1 or max(shape) >= 2**31:
            raise ValueError("spec.example_shape is not the shape of an example")
        if spec.classes not in (0, len(names)) or len(set(names)) != len(names):
            raise ValueError("spec.class_names does not have a name for each class")
        if (spec.table, spec.scaling, spec.pixels).count(None) < 2:
            raise ValueError("spec has several units")
        if spec.table is not None and shape != (spec.table.size,):
            raise ValueError("spec.table does not fit the shape")
        if spec.scaling is not None:
            spec.scaling.check(shape)
        if spec.pixels is not None and len(shape) == 1:
            raise ValueError("spec.pixels does not fit the shape")
        for table in (spec.table, None if spec.conditions is None else spec.conditions.columns):
            if spec.types and table is not None:
                _check_types(table, spec.types)
        counts = [(self.fingerprint or {}).get(unit) for unit in _UNITS]
        if not all(type(count) in (int, type(None)) for count in counts):
            raise ValueError("fingerprint has counts that are not numbers")

    @classmethod
    def of(cls, dataset: Dataset, size: int | None = None) -> DataRecord:
        """Returns the record of a dataset, of which `size` examples are trained on."""
        spec = dataset.spec
        if spec.conditions is not None:
            spec = dataclasses.replace(spec, conditions=spec.conditions.recorded())
        return cls(spec, dataset.fingerprint(), size)


def _check_types(table: Table, types: dict[str, str]) -> None:
    """Raises ValueError if a row of a table cannot have the types; see `restore_types`."""
    try:
        restore_types(table.restore(np.zeros([1, table.size], np.float32)), types)
    except ImportError:  # of pyarrow, which only those need who write rows
        pass
    except (AttributeError, TypeError, ValueError, ArithmeticError, NotImplementedError):
        raise ValueError("spec.types are not those of the columns") from None


def find_record(directory: RunDirectory) -> DataRecord:
    """Returns the content of data.json of a run.

    Raises:
      UserError: If the file is missing or damaged.
    """
    with directory.convert_file_errors("read"):
        record = read_dataclass(DataRecord, directory.data, _REMEDY)
    if record is None:
        raise UserError(f"{directory.data} is missing", _REMEDY)
    return record


def _read(directory: RunDirectory) -> DataRecord | None:
    """Returns the content of data.json, or None if it is missing or, with a warning, damaged."""
    try:
        return read_dataclass(DataRecord, directory.data)
    except UserError as error:
        logging.warning(f"{error.what}; training writes the file again")
        return None


def use_record(dataset: Dataset, directory: RunDirectory) -> None:
    """Scales and numbers the data of a run that continues as at its beginning."""
    if not dataset.takes_record:
        return
    with directory.convert_file_errors("read"):
        record = _read(directory) if directory.has_checkpoints() else None
    if record is not None:
        dataset.use_recorded(record.spec)


def check_data(directory: RunDirectory, now: DataRecord) -> None:
    """Compares the data with the data on which the run was trained.

    Changes that do not prevent training are printed as warnings on stderr.

    Args:
      directory: The run directory.
      now: The record of the data.

    Raises:
      UserError: If the shape or the number of classes of the data has changed.
    """
    with directory.convert_file_errors("read"):
        if not directory.has_checkpoints():
            directory.warn_of_new_start()
            return
        saved = _read(directory)
    if saved is None:
        return
    for name in ("example_shape", "classes", "condition_size"):
        before, after = getattr(saved.spec, name), getattr(now.spec, name)
        if before != after:
            raise UserError(
                f"--model_dir={directory.path} was trained on data with {name}={before}, but "
                f"--dataset has {name}={after}",
                "give the same data as before, or another --model_dir",
            )
    _warn_of_changes(directory, saved, now.fingerprint)


def warn_of_other_data(directory: RunDirectory, fingerprint: dict[str, Any] | None) -> None:
    """Warns on stderr if the run was trained on data with another fingerprint."""
    if saved := _read(directory):
        _warn_of_changes(directory, saved, fingerprint)


def _warn_of_changes(
    directory: RunDirectory, saved: DataRecord, fingerprint: dict[str, Any] | None
) -> None:
    if changes := describe_changes(saved.fingerprint, fingerprint):
        logging.warning(
            f"the data differs from the data of --model_dir={directory.path}: {changes}"
        )


def describe_changes(before: dict[str, Any] | None, now: dict[str, Any] | None) -> str:
    """Returns a description of the differences of two fingerprints, "" if none are known.

    Args:
      before: The recorded fingerprint, or None if none was recorded.
      now: The current fingerprint, or None for a dataset without files.
    """
    if before is None or now is None:
        return ""
    for unit in _UNITS:
        if unit in now and before.get(unit) != now[unit]:
            return f"{before.get(unit)} {unit} became {now[unit]}"
    # Remote files have no sizes.
    known = [name for name in _DESCRIPTIONS if None not in (before.get(name), now.get(name))]
    return ", ".join(_DESCRIPTIONS[name] for name in known if before[name] != now[name])
