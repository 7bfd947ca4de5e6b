"""Real examples for comparison with samples, and a cache of arrays computed from them."""

from __future__ import annotations

import hashlib
import io
import posixpath
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm
from absl import logging

from ..config import DataSettings, image_size_of, settings_with
from ..data import feed
from ..data.datasets import Dataset
from ..errors import UserError, reason
from ..run_directory.files import read_file, write_atomic
from ..run_directory.json_files import digest
from ..runtime.streams import is_terminal

# The settings that determine the examples and their order. The seed is one of them, because only
# the first examples of an epoch of a large dataset are read.
_DATA_SETTINGS = (
    *(name for name, what in settings_with("kind", DataSettings).items() if what == "data"),
    "seed",
)
_CHECKSUM, _CONTENT_HASH = "checksum", "content"  # entries in addition to the arrays
_MOST_CACHED_BYTES = 2**34  # features of 1,000,000 images have 8 GB
_MOST_STREAMED = 1_000_000  # examples in place of all
_POSITIONS_SHOWN = 5  # in a message about rows that are NaN or infinite

Arrays = dict[str, np.ndarray]


class Examples:
    """The examples of a run's dataset, without dequantization and random flips.

    Args:
      dataset: The dataset; also an attribute.
      strategy: The strategy whose replicas read the examples.
      batch_size: The global batch size of the run, divisible by the number of replicas; also an
        attribute.
    """

    def __init__(self, dataset: Dataset, strategy: tf.distribute.Strategy, batch_size: int):
        self.dataset = dataset
        self.batch_size = batch_size
        self._strategy = strategy
        self._content_hashes: dict[int, str] = {}

    def key(self, *more: Any) -> str:
        """Returns a hash of the dataset's settings and of `more`, as a key for cached results."""
        settings = {name: getattr(self.dataset.settings, name) for name in _DATA_SETTINGS}
        shape = self.dataset.spec.example_shape
        # Also if it is a default.
        settings["image_size"] = image_size_of(shape[0], shape[1]) if len(shape) == 3 else None
        return digest([*settings.values(), *more])[:16]

    def content_hash(self, count: int) -> str:
        """Returns a hash of the examples and labels that `batches` yields.

        Raises:
          UserError: See `batches`.
        """
        if count not in self._content_hashes:
            for _ in self.batches(count):
                pass
        return self._content_hashes[count]

    def batches(self, count: int | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Reads the first `count` examples of the first epoch, or all if there are fewer.

        None stands for all, or the first 1,000,000 of a stream.

        Yields:
          Examples `[B, *example_shape]` float32 and labels `[B]` int32. The last batch may be
          smaller.

        Raises:
          UserError: If the dataset cannot be read.
        """
        data = self.dataset.open(batch_size=self.batch_size, plain=True)
        content = hashlib.sha256()
        for examples, labels in self._batches_of(data, count, "real examples"):
            content.update(examples.tobytes())
            content.update(labels.tobytes())
            yield examples, labels
        if count is not None:
            self._content_hashes[count] = content.hexdigest()

    def _batches_of(
        self, data: feed.Examples, count: int | None, title: str
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the first `count` examples and labels of opened data; see `batches`."""
        size = self.batch_size
        total = data.available(count or data.size or _MOST_STREAMED)
        batches = feed.distributed_batches(data, self._strategy, 0, batch_size=size)
        for first in with_progress_bar(range(0, total, size), title):
            gathered = (self._strategy.gather(part, axis=0).numpy() for part in next(batches))
            examples, labels = (part[: total - first] for part in gathered)
            yield examples, labels

    def read(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the examples and labels of `batches` as two arrays, which must fit in memory."""
        examples, labels = zip(*self.batches(count), strict=True)
        return np.concatenate(examples), np.concatenate(labels)

    def read_held_out(self, count: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns up to `count` held-out examples and their labels, or None if there are none.

        Raises:
          UserError: If the held-out data cannot be read.
        """
        data = self.dataset.open_held_out(plain=True)
        if data is None:
            return None
        examples, labels = zip(*self._batches_of(data, count, "held-out examples"), strict=True)
        return np.concatenate(examples), np.concatenate(labels)


def split_into_batches(samples: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Yields batches of `size` rows of an array `[N, ...]`; the last one may be smaller."""
    for first in with_progress_bar(range(0, len(samples), size), "samples"):
        yield samples[first : first + size]


def check_samples(samples: np.ndarray) -> None:
    """Raises UserError unless all samples `[N, ...]` are finite."""
    remedy = "select an earlier checkpoint with --restore_from"
    check_finite(samples, "the generator produces NaN or infinite values in", "samples", remedy)


def check_finite(values: np.ndarray, cause: str, kind: str, remedy: str) -> None:
    """Raises UserError unless all values are finite.

    Args:
      values: `[N, ...]`, one row per image or point.
      cause: The beginning of the message, before the number of bad rows.
      kind: The name of the rows in the message, in the plural.
      remedy: See `UserError`.
    """
    (bad_rows,) = np.nonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    if len(bad_rows):
        positions = ", ".join(map(str, bad_rows[:_POSITIONS_SHOWN]))
        more = ", ..." if len(bad_rows) > _POSITIONS_SHOWN else ""
        raise UserError(
            f"{cause} {len(bad_rows)} of {len(values)} {kind} (at positions {positions}{more})",
            remedy,
        )


def with_progress_bar(items: Iterable, title: str) -> Iterable:
    """Returns the items with a progress bar if stderr is a terminal."""
    return tqdm.tqdm(items, desc=title, disable=not is_terminal(sys.stderr), leave=False)


class ArrayCache:
    """A cache of arrays on disk.

    Args:
      folder: The folder of the cache, any path that tf.io.gfile can open. None disables caching.
    """

    def __init__(self, folder: str | None):
        self._folder = folder
        self._unwritten: dict[str, bytes] = {}

    def get_or_compute(
        self, name: str, compute: Callable[[], Arrays], content_hash: Callable[[], str]
    ) -> Arrays:
        """Returns the cached arrays, or computes them if missing or outdated; see `write`.

        Args:
          name: The name of the arrays.
          compute: () -> the arrays.
          content_hash: () -> a hash of the examples from which the arrays are computed.
        """
        if self._folder is None:
            return compute()
        path = posixpath.join(self._folder, f"{name}.npz")
        arrays = _load(path)
        if arrays is not None:
            if str(arrays.pop(_CONTENT_HASH)) == content_hash():
                return arrays
            logging.warning(f"{path} was computed from other examples; it will be computed again")
        arrays = compute()
        self._unwritten[path] = _archive({**arrays, _CONTENT_HASH: np.array(content_hash())})
        return arrays

    def write(self) -> None:
        """Writes newly computed arrays; prints a warning on stderr if they cannot be written.

        Nothing is written earlier, because an evaluation that is refused must not change the run
        directory.
        """
        for path, archive in self._unwritten.items():
            try:
                tf.io.gfile.makedirs(posixpath.dirname(path))
                write_atomic(path, archive)
            except (tf.errors.OpError, OSError) as error:
                logging.warning(f"{path} cannot be written ({reason(error)})")
        self._unwritten.clear()


def _load(path: str) -> Arrays | None:
    """Returns the arrays of a file, or None if it is missing or damaged.

    A damaged file causes a warning on stderr.
    """
    try:
        content = io.BytesIO(read_file(path, _MOST_CACHED_BYTES))
        with zipfile.ZipFile(content) as archive:  # NumPy would inflate any number of bytes
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("it is compressed")
        with np.load(content, allow_pickle=False) as arrays_of_file:
            arrays = dict(arrays_of_file)
        if str(arrays.pop(_CHECKSUM)) != _checksum(arrays) or _CONTENT_HASH not in arrays:
            raise ValueError("its checksum differs")
        return arrays
    except tf.errors.NotFoundError:
        return None
    # For damaged files, NumPy and zipfile raise exceptions of many types.
    except Exception:
        logging.warning(f"{path} is damaged; it will be computed again")
        return None


def _archive(arrays: Arrays) -> bytes:
    content = io.BytesIO()
    # The ignore is needed because mypy takes the arrays for the argument allow_pickle.
    np.savez(content, **arrays, **{_CHECKSUM: np.array(_checksum(arrays))})  # type: ignore[arg-type]
    return content.getvalue()


def _checksum(arrays: Arrays) -> str:
    checksum = hashlib.sha256()
    for name in sorted(arrays):
        checksum.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        checksum.update(arrays[name].tobytes())
    return checksum.hexdigest()
