"""The examples that --mode=score scores, in their own order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from ..config import DataSettings, image_size_of
from ..errors import UserError
from .datasets import Dataset
from .feed.pipeline import first_examples
from .feed.shuffling import shuffled
from .scaling import pixels
from .scaling.scaling import Scaling
from .sources.arrays.array_checks import check_names, check_shape, names_of
from .sources.arrays.array_data import ArrayData
from .sources.arrays.array_files import ARRAYS, array_data, open_arrays, open_file
from .sources.arrays.npy_files import chunks
from .sources.labels import numbered_like
from .sources.pictures.folder import find_source
from .sources.python.user_arrays import as_arrays
from .sources.tables.columns import distinct_names
from .sources.tables.tables import column_names, is_table, open_frame
from .spec import DataSpec, names_of_numbers
from .store.reading import Reading
from .store.store import Record
from .tables.table import Table


@dataclasses.dataclass(frozen=True)
class ExampleBatch:
    """A batch of examples.

    Attributes:
      examples: `[B, *example_shape]` float32, as in training.
      indices: `[B]` int64, the index of each example in its dataset, file or folder.
      labels: `[B]` int32, standardized conditions `[B, K]` float32, or None.
      files: The path of each image relative to its folder, or None.
    """

    examples: np.ndarray
    indices: np.ndarray
    labels: np.ndarray | None = None
    files: list[str] | None = None


def check_path(path: str, *, is_array: bool) -> None:
    """Raises UserError unless the value of --score_data exists and has a supported format.

    Args:
      path: The value of --score_data.
      is_array: Whether the run was trained on an array.
    """
    if not tf.io.gfile.exists(path):
        raise UserError(f"--score_data={path} does not exist", "give a folder or a file")
    if is_array:
        return  # open_arrays checks the rest
    if not tf.io.gfile.isdir(path) and not path.lower().endswith(ARRAYS):
        raise UserError(
            f"--score_data={path} is not a folder and ends in none of {', '.join(ARRAYS)}",
            "give a folder of images, or a file of arrays",
        )


def read_dataset(dataset: Dataset, count: int, batch_size: int) -> Iterator[ExampleBatch]:
    """Yields the first `count` examples of the first epoch of a dataset, or all if it has fewer.

    Args:
      dataset: The dataset of a run. It is read without dequantization and random flips.
      count: The number of examples.
      batch_size: The number of examples per batch.
    """
    data = dataset.open(batch_size=1, plain=True)
    total = data.available(count)
    examples, labels = (part.numpy() for part in first_examples(data, total))
    indices = np.arange(total)
    if data.size is not None and not data.in_own_order:
        indices = next(iter(shuffled(dataset.settings.seed, data.size, 0, total))).numpy()
    if data.kept is not None:
        indices = data.kept[indices]
    if (rows := dataset.rows) is not None:
        indices = rows[indices]
    order = np.argsort(indices)
    examples, known = examples[order], None
    if dataset.table is not None:
        examples, known = _rows_of_table(dataset.table, examples, dataset.spec)
    elif dataset.label_count or dataset.conditions is not None:
        known = labels[order]
    yield from _split(examples, known, batch_size, indices[order])


def read_path(
    path: str,
    spec: DataSpec,
    batch_size: int,
    settings: DataSettings | None = None,
) -> Iterator[ExampleBatch]:
    """Yields all examples of a folder or a file of arrays, see `check_path`.

    Args:
      path: The value of --score_data.
      spec: The data of the run. Images of a folder are cropped and resized to its shape; arrays
        must have it, and examples for a run on an array are in its units.
      batch_size: The maximum number of examples per batch.
      settings: The settings of the run's data, which name columns of a table.

    Raises:
      UserError: If the examples cannot be read or do not fit the run.
    """
    flag = f"--score_data={path}"
    if spec.table is not None:
        if not is_table(path):
            raise UserError(
                f"{flag} is no table", "give a CSV or Parquet file like the training data"
            )
        frame = open_frame(path, flag, spec.table.texts)[0]
        frame = frame.set_axis(distinct_names(column_names(frame)), axis=1)
        examples = spec.table.encode(frame, flag)
        spec.table.warn_of_range(frame, flag)
        examples, labels = _rows_of_table(spec.table, examples, spec)
        return _split(examples, labels, batch_size, np.arange(len(examples)))
    if spec.scaling is not None:
        data = open_arrays(path, flag, settings, required=False)
        return _read_scaled(data, flag, spec, batch_size, spec.scaling)
    if tf.io.gfile.isdir(path):
        return _read_folder(path, spec, batch_size)
    return _read_arrays(path, spec, batch_size)


def require_labels(
    batches: Iterator[ExampleBatch], spec: DataSpec, model_dir: str
) -> Iterator[ExampleBatch]:
    """Yields batches that have the labels or conditions that a conditional run needs.

    Args:
      batches: The batches.
      spec: The data of the run.
      model_dir: The run directory, for messages.

    Raises:
      UserError: If a batch has no labels of the run's classes, or no conditions.
    """
    classes, conditions = spec.classes, spec.conditions
    for batch in batches:
        if classes and (batch.labels is None or not np.all(batch.labels < classes)):
            raise UserError(
                f"--mode=score needs a label of one of {classes} classes for each example, because "
                f"--model_dir={model_dir} is a conditional run",
                "give --score_data a .npz file of examples and labels",
            )
        if conditions is not None and (batch.labels is None or batch.labels.ndim != 2):
            raise UserError(
                f"--mode=score needs {conditions.size} number{'s' if conditions.size > 1 else ''} "
                f"as the condition of each example, because --model_dir={model_dir} is a run with "
                "conditions",
                "give --score_data a .npz file of examples and conditions",
            )
        yield batch


def _rows_of_table(
    table: Table, examples: np.ndarray, spec: DataSpec
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns rows so that equal ones have equal scores, and the labels of a conditional run."""
    return table.canonical(examples), table.main_labels(examples) if spec.classes else None


def _read_folder(path: str, spec: DataSpec, batch_size: int) -> Iterator[ExampleBatch]:
    if len(spec.example_shape) != 3:
        raise UserError(
            f"--score_data={path} is a folder of images, but the examples of the run have shape "
            f"{list(spec.example_shape)}",
            "give a .npy file of such examples",
        )
    height, width, channels = spec.example_shape
    settings = DataSettings(
        data_dir=path,
        dequantization=False,
        image_size=image_size_of(height, width),
        image_channels=channels,
    )
    source = find_source(settings, "--score_data")
    names = source.class_names if spec.classes else None
    bits = 8 * source.dtype.itemsize
    levels = np.empty([batch_size, *source.shape], source.dtype)
    labels = np.empty([batch_size], np.int64)
    with Reading(source, Record.of(source)) as reading:
        while count := len(indices := reading.read_into(levels, labels)):
            yield ExampleBatch(
                pixels.normalize(
                    settings, tf.constant(levels[:count]), tf.constant(0, tf.int64), bits=bits
                ).numpy(),
                indices,
                None if names is None else _numbered(labels[:count], names, spec, source.origin),
                [source.name(index) for index in indices],
            )
    reading.warn()


def _read_arrays(path: str, spec: DataSpec, batch_size: int) -> Iterator[ExampleBatch]:
    flag = f"--score_data={path}"
    settings = DataSettings(dequantization=False)
    found = open_file(path, flag)
    examples = as_arrays(found.examples[:], flag=flag).examples
    check_shape(flag, examples.shape, spec)
    if examples.dtype == np.uint8:
        first = tf.constant(0, tf.int64)
        examples = pixels.normalize(settings, tf.constant(examples), first).numpy()
    labels = None
    if spec.classes or spec.conditions is not None:
        labels = _labels(array_data(flag, **found._asdict()), spec, flag)
    yield from _split(examples, labels, batch_size, np.arange(len(examples)))


def _read_scaled(
    data: ArrayData, flag: str, spec: DataSpec, batch_size: int, scaling: Scaling
) -> Iterator[ExampleBatch]:
    """Yields the examples of a file of arrays, in the units of the data of the run."""
    check_shape(flag, data.examples.shape, spec)
    check_names(flag, data, scaling)
    all_labels = _labels(data, spec, flag)
    for begin, part in chunks(data.examples):
        is_bad = np.logical_not(np.isfinite(part)).reshape(-1, part.shape[-1])
        if is_bad.any():
            names = data._replace(names=data.names or scaling.names)
            raise UserError(
                f"{flag} contains NaN or infinity in {names_of(names, is_bad.any(axis=0))}",
                "leave these examples out",
            )
        examples = scaling.normalize(tf.constant(part, tf.float64)).numpy()
        if not np.isfinite(examples).all():
            raise UserError(
                f"{flag} contains values of up to {np.abs(part).max():.3g} in size, which are too "
                "far from the training data of the run",
                "give examples in the units of the training data",
            )
        places = begin + np.arange(len(part))
        labels = None if all_labels is None else all_labels[places]
        rows = places if data.rows is None else data.rows[places]
        yield from _split(examples, labels, batch_size, rows)


def _labels(data: ArrayData, spec: DataSpec, flag: str) -> np.ndarray | None:
    """Returns the labels or conditions of a file as the networks of a run get them, or None."""
    if spec.conditions is not None and data.conditions is not None:
        return spec.conditions.standardize(spec.conditions.checked(data.conditions, flag))
    if not spec.classes or data.labels is None:
        return None
    return _numbered(data.labels, data.class_names or (), spec, flag)


def _numbered(labels: np.ndarray, names: Sequence[str], spec: DataSpec, flag: str) -> np.ndarray:
    """Returns labels with the numbers of the classes of a run."""
    known = spec.class_names or names_of_numbers(spec.classes)
    return numbered_like(known, labels, names, flag).astype(np.int32)


def _split(
    examples: np.ndarray, labels: np.ndarray | None, batch_size: int, indices: np.ndarray
) -> Iterator[ExampleBatch]:
    for first in range(0, len(examples), batch_size):
        part = slice(first, first + batch_size)
        yield ExampleBatch(examples[part], indices[part], None if labels is None else labels[part])
