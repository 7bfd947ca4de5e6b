"""Real examples to compare samples with, each once, and what was found of them kept on disk."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import posixpath
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from ..config import Config
from ..data import registry
from ..data.pipeline import distributed_batches
from ..errors import UserError, reason
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
_FORMAT = 1  # of what is kept
_PLACES_SHOWN = 5  # of rows that are not finite

Arrays = dict[str, np.ndarray]


class Examples:
    """The examples of a run's dataset, as they are: without noise, and none mirrored.

    Args:
      config: of the run.
      strategy: whose replicas read them.
    """

    def __init__(self, config: Config, strategy: tf.distribute.Strategy):
        self._config = dataclasses.replace(config, dequantization="off", random_flips="off")
        self._strategy = strategy

    def key(self, *more: Any) -> str:
        """A hash of the dataset, and of what else a result depends on."""
        settings = [getattr(self._config, name) for name in _OF_THE_DATA]
        content = json.dumps([_FORMAT, ORDER, *settings, *more])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def batches(self, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The first `count` of the epoch, or all if there are fewer; the last batch may be short.

        Yields:
          Examples `[B, *example_shape]` float32 and labels `[B]` int32.

        Raises:
          UserError: the dataset cannot be read.
        """
        source = registry.open_source(self._config)
        count = count if source.size is None else min(count, source.size)
        size = self._config.batch_size
        batches = distributed_batches(source, self._strategy, 0, batch_size=size)
        for first in progress(range(0, count, size), "real examples"):
            both = (self._strategy.gather(part, axis=0).numpy() for part in next(batches))
            examples, labels = (part[: count - first] for part in both)
            yield examples, labels

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

    def get(self, name: str, compute: Callable[[], Arrays]) -> Arrays:
        """What is kept under `name`; where that is nothing, or not whole, it is computed anew.

        That it cannot be written is said on stderr, and stops nothing.
        """
        if self._folder is None:
            return compute()
        path = posixpath.join(self._folder, f"{name}.npz")
        found = _load(path)
        if found is None:
            found = compute()
            try:
                _save(path, found)
            except (tf.errors.OpError, OSError) as error:
                print(f"warning: {path} cannot be written ({reason(error)})", file=sys.stderr)
        return found


def _load(path: str) -> Arrays | None:
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = io.BytesIO(file.read())
        with np.load(content, allow_pickle=False) as arrays:
            return dict(arrays)
    except tf.errors.NotFoundError:
        return None
    # Damage shows as any of these; a zip file knows the checksum of each of its parts.
    except (tf.errors.OpError, OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        print(f"warning: {path} is damaged, and made anew", file=sys.stderr)
        return None


def _save(path: str, arrays: Arrays) -> None:
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]  # of allow_pickle, no array
    tf.io.gfile.makedirs(posixpath.dirname(path))
    aside = f"{path}.new"
    with tf.io.gfile.GFile(aside, "wb") as file:
        file.write(content.getvalue())
    tf.io.gfile.rename(aside, path, overwrite=True)
