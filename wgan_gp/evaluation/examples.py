"""Real examples for comparison with samples, and a cache of arrays computed from them."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import posixpath
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from ..config import Config
from ..data import registry
from ..data.pipeline import distributed_batches
from ..errors import UserError, reason
from ..files import write_atomic
from ..json_files import digest
from ..shuffling import ORDER

# The settings that determine the examples and their order. The seed is one of them, because only
# the first examples of an epoch of a large dataset are read.
_OF_THE_DATA = (
    "dataset",
    "data_dir",
    "split",
    "num_classes",
    "image_size",
    "image_channels",
    "seed",
)
_FORMAT = 2  # the version of the cache's format
_CHECKSUM, _CONTENT = "checksum", "content"  # stored in addition to the arrays
_PLACES_SHOWN = 5  # positions of rows that are not finite in a message

Arrays = dict[str, np.ndarray]


class Examples:
    """The examples of a run's dataset, without dequantization and random flips.

    Args:
      config: The configuration of the run.
      strategy: The strategy whose replicas read the examples.
    """

    def __init__(self, config: Config, strategy: tf.distribute.Strategy):
        self._config = dataclasses.replace(config, dequantization=False, random_flips=False)
        self._strategy = strategy
        self._contents: dict[int, str] = {}

    def key(self, *more: Any) -> str:
        """Returns a hash of the dataset's settings and of `more`, a key for cached results."""
        settings = [getattr(self._config, name) for name in _OF_THE_DATA]
        return digest([_FORMAT, ORDER, *settings, *more])[:16]

    def content(self, count: int) -> str:
        """Returns a hash of the examples and labels that `batches` yields.

        Raises:
          UserError: See `batches`.
        """
        if count not in self._contents:
            for _ in self.batches(count):
                pass
        return self._contents[count]

    def batches(self, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Reads the first `count` examples of the first epoch, or all if there are fewer.

        Yields:
          Examples `[B, *example_shape]` float32 and labels `[B]` int32. The last batch may be
          smaller.

        Raises:
          UserError: If the dataset cannot be read.
        """
        source = registry.open_source(self._config)
        there = count if source.size is None else min(count, source.size)
        size = self._config.batch_size
        batches = distributed_batches(source, self._strategy, 0, batch_size=size)
        content = hashlib.sha256()
        for first in progress(range(0, there, size), "real examples"):
            both = (self._strategy.gather(part, axis=0).numpy() for part in next(batches))
            examples, labels = (part[: there - first] for part in both)
            content.update(examples.tobytes())
            content.update(labels.tobytes())
            yield examples, labels
        self._contents[count] = content.hexdigest()

    def read(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the examples and labels of `batches` as two arrays, which must fit in memory."""
        examples, labels = zip(*self.batches(count), strict=True)
        return np.concatenate(examples), np.concatenate(labels)


def slices(samples: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Yields slices of `size` rows of an array `[N, ...]`; the last one may be smaller."""
    for first in progress(range(0, len(samples), size), "samples"):
        yield samples[first : first + size]


def check_samples(samples: np.ndarray) -> None:
    """Raises UserError unless all samples `[N, ...]` are finite."""
    remedy = "use an earlier checkpoint: --restore_from"
    check_finite(samples, "the generator makes NaN or infinite values in", "samples", remedy)


def check_finite(values: np.ndarray, cause: str, kind: str, remedy: str) -> None:
    """Raises UserError unless all values are finite.

    Args:
      values: `[N, ...]`, one row per image or point.
      cause: The beginning of the message, before the number of bad rows.
      kind: The name of the rows in the message, in the plural.
      remedy: See `UserError`.
    """
    (bad,) = np.nonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    if len(bad):
        places = ", ".join(map(str, bad[:_PLACES_SHOWN]))
        more = ", ..." if len(bad) > _PLACES_SHOWN else ""
        raise UserError(
            f"{cause} {len(bad)} of {len(values)} {kind} (at positions {places}{more})", remedy
        )


def progress(items: Iterable, title: str) -> Iterable:
    """Returns the items with a progress bar if stderr is a terminal."""
    return tqdm.tqdm(items, desc=title, disable=not sys.stderr.isatty(), leave=False)


class Kept:
    """A cache of arrays on disk.

    Args:
      folder: The folder of the cache, any path that tf.io.gfile can open. None disables caching.
    """

    def __init__(self, folder: str | None):
        self._folder = folder
        self._unwritten: dict[str, bytes] = {}

    def get(self, name: str, compute: Callable[[], Arrays], content: Callable[[], str]) -> Arrays:
        """Returns the cached arrays, or computes them if missing or outdated; see `write`.

        Args:
          name: The name of the arrays.
          compute: () -> the arrays.
          content: () -> a hash of the examples from which the arrays are computed.
        """
        if self._folder is None:
            return compute()
        path = posixpath.join(self._folder, f"{name}.npz")
        found = _load(path)
        if found is not None:
            if str(found.pop(_CONTENT)) == content():
                return found
            print(
                f"warning: {path} is of examples that have changed since, and is computed again",
                file=sys.stderr,
            )
        found = compute()
        self._unwritten[path] = _archive({**found, _CONTENT: np.array(content())})
        return found

    def write(self) -> None:
        """Writes what was computed; prints a warning on stderr if it cannot be written.

        Until then, nothing in the run directory has changed: the run may still be refused.
        """
        for path, archive in self._unwritten.items():
            try:
                tf.io.gfile.makedirs(posixpath.dirname(path))
                write_atomic(path, archive)
            except (tf.errors.OpError, OSError) as error:
                print(f"warning: {path} cannot be written ({reason(error)})", file=sys.stderr)
        self._unwritten.clear()


def _load(path: str) -> Arrays | None:
    """Returns the arrays of a file, or None if it is missing or damaged.

    A damaged file causes a warning on stderr.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = io.BytesIO(file.read())
        with np.load(content, allow_pickle=False) as archive:
            arrays = dict(archive)
        if str(arrays.pop(_CHECKSUM)) != _checksum(arrays) or _CONTENT not in arrays:
            raise ValueError("its checksum differs")
        return arrays
    except tf.errors.NotFoundError:
        return None
    # For damaged files, NumPy and zipfile raise exceptions of many types.
    except Exception:
        print(f"warning: {path} is damaged, and made anew", file=sys.stderr)
        return None


def _archive(arrays: Arrays) -> bytes:
    content = io.BytesIO()
    # The ignore is needed because mypy takes the arrays for the argument allow_pickle.
    np.savez(content, **arrays, **{_CHECKSUM: np.array(_checksum(arrays))})  # type: ignore[arg-type]
    return content.getvalue()


def _checksum(arrays: Arrays) -> str:
    parts = hashlib.sha256()
    for name in sorted(arrays):
        parts.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        parts.update(arrays[name].tobytes())
    return parts.hexdigest()
