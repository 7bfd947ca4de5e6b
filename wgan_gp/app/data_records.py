"""Records what a run knows of its data, and restores it when the run continues."""

from __future__ import annotations

from ..data.conditions import Conditions
from ..data.datasets import Dataset
from ..data.scaling import Scaling
from ..data.spec import DataSpec, is_normalized
from ..run_directory.data_record import DataRecord
from ..run_directory.directory import RunDirectory
from .run import Run


def data_record(run: Run) -> DataRecord:
    """Returns the content of data.json for a run."""
    dataset = run.dataset
    conditions, names = dataset.spec.conditions, dataset.spec.class_names
    return DataRecord(
        dataset.spec.example_shape,
        dataset.spec.classes,
        fingerprint=dataset.fingerprint(),
        scaling=None if dataset.scaling is None else dataset.scaling.to_dict(),
        conditions=None if conditions is None else conditions.recorded().to_dict(),
        class_names=None if names is None else list(names),
    )


def recorded_scaling(record: DataRecord, path: str) -> Scaling | None:
    """Returns the scaling of an array that a run was trained on, None for other data.

    Args:
      record: The content of data.json.
      path: The path of data.json, for messages.
    """
    return None if record.scaling is None else Scaling.from_dict(record.scaling, path)


def recorded_spec(record: DataRecord, scaling: Scaling | None) -> DataSpec:
    """Returns what the networks of a run depend on, of the data that it was trained on."""
    bounded = is_normalized(record.example_shape) if scaling is None else scaling.bounded
    conditions = None if record.conditions is None else Conditions.from_dict(record.conditions)
    names = None if record.class_names is None else tuple(record.class_names)
    return DataSpec(record.example_shape, record.classes, bounded, conditions, names)


def use_record(dataset: Dataset, directory: RunDirectory) -> None:
    """Scales the data of a run that continues as at its beginning, even if the data changed."""
    if dataset.scaling is None and dataset.conditions is None:
        return
    with directory.convert_file_errors("read"):
        record = directory.saved_data() if directory.has_checkpoints() else None
    if record is not None:
        scaling = recorded_scaling(record, directory.data)
        dataset.use_recorded(scaling, recorded_spec(record, scaling))
