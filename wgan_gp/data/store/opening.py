"""Opens the examples of a source: in memory, or read by their positions from its store."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from absl import logging

from ...config import DataSettings, DeviceSettings
from ...errors import UserError
from ...run_directory.files import local_path
from ..opened_data import (
    MAX_CACHE_BYTES,
    ExampleFormat,
    StoredData,
    UnreadData,
    is_held,
    unreadable_stream,
)
from ..scaling import pixels
from ..sources.encoded import NO_LABEL, Encoded
from ..sources.labels import numbered_like
from ..spec import DataSpec, count_of
from ..streamed_rows import StreamedRecords, StreamedRows
from .cache import OFF, cache_folder, cached, find_record, local_copy
from .store import Record


class SourceReader:
    """Reads a dataset of pictures from its source; see datasets.DatasetReader.

    Args:
      source: The source.
      split: The split whose examples it has.
      data_cache: The value of --data_cache. If the source has a complete store there, the size and
        the classes are those of the store, for which some sources would read all of their files.
    """

    def __init__(self, source: Encoded, split: str = "train", data_cache: str | None = OFF):
        self._source = source
        self._split = split
        self._data_cache = data_cache
        self._recorded: tuple[str, ...] | None = None
        self.notes: list[str] = []  # what was understood of the data, for people
        self.example_shape = source.shape

    @functools.cached_property
    def _stored(self) -> Record | None:
        return find_record(self._source, cache_folder(self._data_cache))

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes in the order of their numbers; None without labels."""
        if self._recorded is not None:
            return self._recorded
        return self._source.class_names if self._stored is None else self._stored.class_names

    @property
    def bits(self) -> int:
        """The number of bits of a level of the pictures."""
        return 8 * self._source.dtype.itemsize

    @property
    def square_side(self) -> int | None:
        """The side of the default square, for networks that do not support rectangles."""
        return self._source.square_side

    def use_spec(self, spec: DataSpec) -> None:
        """Gives classes the numbers that they had at the beginning of the run."""
        if spec.classes and self.class_names:
            self._recorded = spec.class_names

    def open(
        self, settings: DataSettings, *, classes: int, devices: DeviceSettings
    ) -> StoredData | StreamedRows | StreamedRecords:
        """Opens the examples, which are decoded once and kept in --data_cache.

        Raises:
          UserError: If the data cannot be downloaded or read, there is not enough space for it, it
            lacks labels or has other classes than the run, or a remote TPU cannot read it.
        """
        source = self._source
        if settings.split != self._split:
            source = source.of_split(settings.split)
        source.prepare()
        unread = self._unread(source, settings, devices)
        folder = cache_folder(settings.data_cache)
        with tf.device(None):  # pictures are read and decoded on this machine
            store = cached(source, folder, in_memory=unread.in_memory)
        labels = store.labels
        if classes and not store.class_names:
            raise UserError(
                f"{source.origin} has no labels, which the run needs", "give data with labels"
            )
        if classes and (labels == NO_LABEL).any():
            raise UserError(
                f"{source.origin}: {(labels == NO_LABEL).sum():,} of {len(labels):,} examples have "
                "no label, which the run needs",
                "use another --split, or --conditioning=none",
            )
        if store.class_names:
            assert self.class_names is not None
            labels = numbered_like(self.class_names, labels, store.class_names, source.origin)
        is_streamed = not unread.in_memory and not devices.on_remote_tpu
        if is_streamed and store.path is not None and local_path(store.path) is None:
            store = local_copy(store, cache_folder(None))
        if source is self._source:
            left_out = store.record.unreadable
            self.notes = (
                [f"{count_of(left_out, 'example')} left out: unreadable"] if left_out else []
            )
        if unread.in_memory:
            return StoredData(settings.seed, unread.format, store.load(), labels)
        if devices.on_remote_tpu:
            return StreamedRecords(settings.seed, unread.format, labels, store.files())
        return StreamedRows(settings.seed, unread.format, labels, lambda indices: store[indices][0])

    def open_unread(self, settings: DataSettings, *, devices: DeviceSettings) -> UnreadData:
        """Returns the properties of the data, and whether it is held in memory."""
        return self._unread(self._source, settings, devices)

    def with_settings(self, settings: DataSettings) -> SourceReader:
        """Returns a reader of the same pictures with other settings."""
        return SourceReader(self._source.resized(settings), self._split, self._data_cache)

    def fingerprint(self, settings: DataSettings) -> dict[str, Any]:
        """Returns the fingerprint of the files."""
        return self._source.fingerprint()

    def held_out_split(self, settings: DataSettings) -> str | None:
        """Returns the name of a split that is not used for training, or None."""
        return self._source.held_out_split

    def _unread(
        self, source: Encoded, settings: DataSettings, devices: DeviceSettings
    ) -> UnreadData:
        size = None
        if source is self._source and self._stored is not None:
            size = self._stored.read
        return _unread(source, size, settings, devices)


def _unread(
    source: Encoded, size: int | None, settings: DataSettings, devices: DeviceSettings
) -> UnreadData:
    """Returns the properties of a source, and whether it is held in memory.

    A source of unknown size is assumed to be the largest that the memory of a device holds.

    Raises:
      UserError: If a remote TPU cannot read the examples.
    """
    form = _format_of(source, settings)
    if size is not None:
        count = size
    elif source.is_prepared:
        count = source.size
    else:
        count = MAX_CACHE_BYTES // form.tpu_bytes
        logging.warning(
            f"{source.origin} is not prepared, so its number of images is unknown: assuming "
            f"{count:,}, which the memory of a device still holds"
        )
    in_memory = is_held(count * form.example_bytes, devices)
    if devices.on_remote_tpu and not in_memory:
        folder = cache_folder(settings.data_cache)
        if folder is None or local_path(folder) is not None:
            raise unreadable_stream(source.origin, devices, "give --data_cache=gs://BUCKET/...")
    return UnreadData(form, count, in_memory)


def _format_of(source: Encoded, settings: DataSettings) -> ExampleFormat:
    bits = 8 * source.dtype.itemsize
    normalize = functools.partial(pixels.normalize, settings, bits=bits)
    return ExampleFormat(tuple(source.shape), tf.as_dtype(source.dtype), normalize)
