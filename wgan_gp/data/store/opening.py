"""Opens the examples of a source: in memory, or read by their positions from its store."""

from __future__ import annotations

import functools

import tensorflow as tf

from ...config import DataSettings, DeviceSettings
from ...errors import UserError
from ...run_directory.files import local_path
from ..opened_data import MAX_CACHE_BYTES, ExampleFormat, StoredData, UnreadData
from ..sources import pixels
from ..sources.source import Source
from ..streamed_rows import StreamedRecords, StreamedRows
from .cache import cache_folder, cached, local_copy

# The largest tensor that can be sent to the machines of a remote TPU. For larger tensors, gRPC
# aborts the process.
_MAX_SENT_BYTES = 2**31 - 2**20


def open_source(
    source: Source, settings: DataSettings, devices: DeviceSettings
) -> StoredData | StreamedRows | StreamedRecords:
    """Opens the pictures of a source, which are decoded once and kept in --data_cache.

    Raises:
      UserError: If no picture can be read, there is not enough space for them, or a remote TPU
        cannot read them.
    """
    unread = unread_source(source, settings, devices)
    form, folder = unread.format, cache_folder(settings.data_cache)
    store = cached(source, folder, in_memory=unread.in_memory)
    if unread.in_memory:
        return StoredData(settings.seed, form, store.load(), store.labels)
    if devices.on_remote_tpu:
        return StreamedRecords(settings.seed, form, store.labels, store.files())
    if store.path is not None and local_path(store.path) is None:
        store = local_copy(store, cache_folder(None))
    return StreamedRows(settings.seed, form, store.labels, lambda indices: store[indices][0])


def unread_source(source: Source, settings: DataSettings, devices: DeviceSettings) -> UnreadData:
    """Returns the properties of a source, which is held in memory as set by --cache.

    `auto` holds up to 1 GiB in memory.

    Raises:
      UserError: If a remote TPU cannot read the pictures.
    """
    form = _format_of(source, settings)
    size = source.size * form.example_bytes
    in_memory = settings.cache in ("on", "device")
    in_memory = in_memory or (settings.cache == "auto" and size <= MAX_CACHE_BYTES)
    if devices.on_remote_tpu:
        _check_remote(source.origin, size, in_memory, settings, devices)
    return UnreadData(form, source.size, in_memory)


def _format_of(source: Source, settings: DataSettings) -> ExampleFormat:
    bits = 8 * source.dtype.itemsize
    normalize = functools.partial(pixels.normalize, settings, bits=bits)
    return ExampleFormat(tuple(source.shape), tf.as_dtype(source.dtype), normalize)


def _check_remote(
    origin: str, size: int, in_memory: bool, settings: DataSettings, devices: DeviceSettings
) -> None:
    folder = cache_folder(settings.data_cache)
    if in_memory and size > _MAX_SENT_BYTES:
        raise UserError(
            f"--cache={settings.cache}: {origin} has {size / 2**30:.1f} GiB of images, "
            f"which is more than can be sent to --tpu={devices.tpu}",
            "use --cache=off, or --tpu=local on a TPU VM",
        )
    if not in_memory and (folder is None or local_path(folder) is not None):
        raise UserError(
            f"{origin} is too large for the memory of the host, and the machines of "
            f"--tpu={devices.tpu} can read its decoded examples only in a bucket",
            "give --data_cache=gs://BUCKET/..., or run on the TPU VM with --tpu=local",
        )
