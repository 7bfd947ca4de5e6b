"""Real examples to compare samples with, each once, and what was found of them kept on disk."""

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
from ..files import replace_bytes
from ..json_files import digest
from ..shuffling import ORDER

# What decides which examples come, and in which order. A seed does: of a large dataset the first
# of an epoch are read.
_OF_THE_DATA = (
    "dataset",
    "data_dir",
    "split",
    "num_classes",
    "image_size",
    "image_channels",
    "seed",
)
_FORMAT = 2  # of what is kept
_CHECKSUM, _CONTENT = "checksum", "content"  # kept beside the arrays
_PLACES_SHOWN = 5  # of rows that are not finite

Arrays = dict[str, np.ndarray]


class Examples:
    """The examples of a run's dataset, as they are: without noise, and none mirrored.

    Args:
      config: of the run.
      strategy: whose replicas read them.
    """

    def __init__(self, config: Config, strategy: tf.distribute.Strategy):
        self._config = dataclasses.replace(config, dequantization=False, random_flips=False)
        self._strategy = strategy
        self._contents: dict[int, str] = {}

    def key(self, *more: Any) -> str:
        """A hash of the dataset, and of what else a result depends on."""
        settings = [getattr(self._config, name) for name in _OF_THE_DATA]
        return digest([_FORMAT, ORDER, *settings, *more])[:16]

    def content(self, count: int) -> str:
        """Returns a hash of what `batches` yields. Raises UserError: see there."""
        if count not in self._contents:
            for _ in self.batches(count):
                pass
        return self._contents[count]

    def batches(self, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The first `count` of the epoch, or all if there are fewer; the last batch may be short.

        Yields:
          Examples `[B, *example_shape]` float32 and labels `[B]` int32.

        Raises:
          UserError: the dataset cannot be read.
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
        """The same in one piece. Points only, or small images: all are in memory."""
        examples, labels = zip(*self.batches(count), strict=True)
        return np.concatenate(examples), np.concatenate(labels)


def slices(samples: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Of `[N, ...]`, `size` at a time; the last may be short."""
    for first in progress(range(0, len(samples), size), "samples"):
        yield samples[first : first + size]


def check_samples(samples: np.ndarray) -> None:
    """Raises UserError unless all samples `[N, ...]` are finite."""
    remedy = "use an earlier checkpoint: --restore_from"
    check_finite(samples, "the generator makes NaN or infinite values in", "samples", remedy)


def check_finite(values: np.ndarray, cause: str, kind: str, remedy: str) -> None:
    """Raises UserError unless all values are finite.

    Args:
      values: `[N, ...]`, one row an image or point.
      cause: the beginning of the message; the number of bad rows follows.
      kind: what a row is of, in the plural.
      remedy: see UserError.
    """
    (bad,) = np.nonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    if len(bad):
        places = ", ".join(map(str, bad[:_PLACES_SHOWN]))
        more = ", ..." if len(bad) > _PLACES_SHOWN else ""
        raise UserError(
            f"{cause} {len(bad)} of {len(values)} {kind} (at positions {places}{more})", remedy
        )


def progress(items: Iterable, title: str) -> Iterable:
    """The same items, with a bar on a terminal."""
    return tqdm.tqdm(items, desc=title, disable=not sys.stderr.isatty(), leave=False)


class Kept:
    """Arrays that are computed once for a run directory.

    Args:
      folder: where they are kept, in any path tf.io.gfile can open; None: nowhere.
    """

    def __init__(self, folder: str | None):
        self._folder = folder

    def get(self, name: str, compute: Callable[[], Arrays], content: Callable[[], str]) -> Arrays:
        """Returns what is kept under `name`; computes it where that is nothing, or out of date.

        Args:
          name: of the arrays.
          compute: makes them.
          content: a hash of the examples that they are made of.

        That they cannot be written is said on stderr, and stops nothing.
        """
        if self._folder is None:
            return compute()
        path = posixpath.join(self._folder, f"{name}.npz")
        found = _load(path)
        if found is not None:
            if str(found.pop(_CONTENT)) == content():
                return found
            print(
                f"warning: {path} is of examples that have changed since, and is made anew",
                file=sys.stderr,
            )
        found = compute()
        try:
            tf.io.gfile.makedirs(self._folder)
            replace_bytes(path, _archive({**found, _CONTENT: np.array(content())}))
        except (tf.errors.OpError, OSError) as error:
            print(f"warning: {path} cannot be written ({reason(error)})", file=sys.stderr)
        return found


def _load(path: str) -> Arrays | None:
    """Returns the arrays of a file; None if there is none, or a damaged one, which a line says."""
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
    # Of damaged files NumPy and zipfile raise whatever their readers stumble over.
    except Exception:
        print(f"warning: {path} is damaged, and made anew", file=sys.stderr)
        return None


def _archive(arrays: Arrays) -> bytes:
    content = io.BytesIO()
    # mypy: an array might be meant for allow_pickle.
    np.savez(content, **arrays, **{_CHECKSUM: np.array(_checksum(arrays))})  # type: ignore[arg-type]
    return content.getvalue()


def _checksum(arrays: Arrays) -> str:
    parts = hashlib.sha256()
    for name in sorted(arrays):
        parts.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        parts.update(arrays[name].tobytes())
    return parts.hexdigest()
