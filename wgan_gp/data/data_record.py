"""The content of data.json: what a run knows of its data; its comparison with the data of today."""

from __future__ import annotations

import dataclasses
from typing import Any

from absl import logging

from ..errors import UserError
from ..run_directory.directory import RunDirectory
from ..run_directory.json_files import read_object
from ..run_directory.schema import integer, list_of, object_of, optional, text
from .datasets import Dataset
from .scaling.conditions import Conditions
from .scaling.pixels import Pixels
from .scaling.scaling import Scaling
from .spec import DataSpec, is_normalized
from .tables.table import Table

_REMEDY = "start the run's training again, which writes the file"
# The entries of a fingerprint that are compared, and the descriptions of their differences.
_DESCRIPTIONS = {
    "names": "the file names differ",
    "classes": "the classes differ",
    "sizes": "the file sizes differ",
    "content": "the examples differ",
}
_count = optional(integer(0, 2**62))
_is_record = object_of(
    {
        "example_shape": list_of(integer(1), 1, 4),
        "classes": integer(),
        "fingerprint": optional(
            object_of(
                {
                    "files": _count,
                    "examples": _count,
                    **dict.fromkeys(_DESCRIPTIONS, optional(text)),
                }
            )
        ),
        "class_names": optional(list_of(text)),
        "size": _count,
    }
)


@dataclasses.dataclass(frozen=True)
class DataRecord:
    """The content of data.json: the properties of the data and its identity.

    Attributes:
      spec: The properties on which the networks depend. Of the conditions, it has only a part.
      fingerprint: The fingerprint of the data. None if unknown.
      size: The number of examples of training. None if unknown, or if the data is generated.
    """

    spec: DataSpec
    fingerprint: dict[str, Any] | None = None
    size: int | None = None

    @classmethod
    def of(cls, dataset: Dataset, size: int | None = None) -> DataRecord:
        """Returns the record of a dataset, of which `size` examples are trained on."""
        spec = dataset.spec
        if spec.conditions is not None:
            spec = dataclasses.replace(spec, conditions=spec.conditions.recorded())
        return cls(spec, dataset.fingerprint(), size)

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON object of data.json."""
        spec = self.spec
        return {
            "example_shape": list(spec.example_shape),
            "classes": spec.classes,
            "fingerprint": self.fingerprint,
            "scaling": None if spec.scaling is None else spec.scaling.to_dict(),
            "pixels": None if spec.pixels is None else spec.pixels.to_dict(),
            "table": None if spec.table is None else spec.table.to_dict(),
            "conditions": None if spec.conditions is None else spec.conditions.to_dict(),
            "class_names": None if spec.class_names is None else list(spec.class_names),
            "size": self.size,
        }

    @classmethod
    def from_dict(cls, saved: Any, path: str, remedy: str = _REMEDY) -> DataRecord:
        """Returns the record for the JSON object `saved`, which was read from `path`.

        Raises:
          UserError: If `saved` is not a valid record.
        """
        try:
            if not _is_record(saved):
                raise ValueError("the record has other entries")
            shape, classes = tuple(saved["example_shape"]), saved["classes"]
            names = saved.get("class_names")
            count = len(names or ())
            if classes not in (0, count) or len(set(names or ())) != count:
                raise ValueError("each class needs a name of its own")
            scaling, conditions = saved.get("scaling"), saved.get("conditions")
            table = None if saved.get("table") is None else Table.from_dict(saved["table"])
            if table is not None and (shape, scaling) != ((table.size,), None):
                raise ValueError("the table does not fit the shape")
            if scaling is not None:
                scaling = Scaling.from_dict(scaling)
                if not scaling.fits(shape):
                    raise ValueError("the scaling does not fit the shape")
            pixels = None if saved.get("pixels") is None else Pixels.from_dict(saved["pixels"])
            if pixels is not None and (len(shape) == 1 or (scaling, table) != (None, None)):
                raise ValueError("the data has other units than levels")
            if conditions is not None:
                conditions = Conditions.from_dict(conditions)
            spec = DataSpec(
                shape,
                classes,
                is_normalized(shape) if scaling is None else scaling.bounded,
                conditions,
                tuple(names) if names else None,
                scaling,
                table,
                pixels,
            )
            return cls(spec, saved.get("fingerprint"), saved.get("size"))
        except ValueError:
            raise UserError(f"{path} is missing or damaged", remedy) from None


def find_record(directory: RunDirectory) -> DataRecord:
    """Returns the content of data.json of a run.

    Raises:
      UserError: If the file is missing or damaged.
    """
    with directory.convert_file_errors("read"):
        return DataRecord.from_dict(read_object(directory.data), directory.data)


def _read(directory: RunDirectory) -> DataRecord | None:
    """Returns the content of data.json, or None if it is missing or, with a warning, damaged."""
    try:
        saved = read_object(directory.data)
        return None if saved is None else DataRecord.from_dict(saved, directory.data)
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
    for unit in ("files", "examples"):
        if unit in now and before.get(unit) != now[unit]:
            return f"{before.get(unit)} {unit} became {now[unit]}"
    # Remote files have no sizes.
    known = [name for name in _DESCRIPTIONS if None not in (before.get(name), now.get(name))]
    return ", ".join(_DESCRIPTIONS[name] for name in known if before[name] != now[name])
