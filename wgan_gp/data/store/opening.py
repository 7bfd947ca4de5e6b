"""The examples of slow files as a source: decoded once, and read from their store.

The folder of --data_cache has one store for each source.
"""

from __future__ import annotations

import dataclasses
import os
import posixpath
import re
import tempfile
from collections.abc import Callable

import tensorflow as tf
from absl import logging

from ...config import DataSettings, DeviceSettings
from ...errors import UserError
from ...run_directory.files import local_path
from ..feed import MAX_CACHE_BYTES, ExampleFormat, is_held, unreadable_stream
from ..pixels import Pixels
from ..source import Source
from ..sources.encoded import Encoded
from ..sources.labels import numbered_like
from ..spec import DataSpec, count_of
from .building import UnwritableError, build, complete_record, copy, load
from .store import Record, Store, key_of

OFF = "off"
_KEY_LENGTH = 20


def cache_folder(data_cache: str | None) -> str | None:
    """Returns the folder that --data_cache names; None for off, or if the user has no folder."""
    if data_cache is not None:
        return None if data_cache == OFF else data_cache
    root = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(root):
        root = posixpath.join(os.path.expanduser("~"), ".cache")
    return posixpath.join(root, "wgan_gp") if os.path.isabs(root) else None


def store_path(folder: str, key: str) -> str:
    """Returns the folder of a store among the stores of a cache."""
    return posixpath.join(folder, key[:_KEY_LENGTH])


def find_store(data_cache: str | None, text: str) -> str | None:
    """Returns the store of --data_cache that the text of an error names, or None."""
    folder = cache_folder(data_cache)
    if folder is None:
        return None
    inside = re.escape(posixpath.join(local_path(folder) or folder, ""))
    found = re.search(rf"{inside}[0-9a-f]{{{_KEY_LENGTH}}}", text)
    return None if found is None else found[0]


def cached(source: Encoded, folder: str | None, *, in_memory: bool = False) -> Store:
    """Returns the store of a source, which is built at the first call.

    If there is no folder, or it cannot be written, the source is decoded at this start only.

    Args:
      source: The source.
      folder: The folder of the stores, local or in a bucket; see `cache_folder`.
      in_memory: Whether to decode into memory without a folder, and not into a temporary folder.

    Raises:
      UserError: If no example can be read, or there is not enough space.
    """
    if folder is not None:
        try:
            return build(source, store_path(folder, key_of(source)))
        except UnwritableError as error:
            logging.warning(f"{error.what}: {source.origin} is decoded at this start only")
    return load(source) if in_memory else _kept_for_now(lambda path: build(source, path))


def local_copy(store: Store, folder: str | None) -> Store:
    """Returns a store on a local disk for one in a bucket, whose examples are slow to fetch singly.

    Args:
      store: The store.
      folder: The local folder of the stores. None uses a temporary folder.

    Raises:
      UserError: If there is not enough space.
    """
    if folder is not None:
        try:
            return copy(store, store_path(folder, store.record.key))
        except UnwritableError as error:
            logging.warning(f"{error.what}: {store.path} is copied for this start only")
    return _kept_for_now(lambda path: copy(store, path))


def _kept_for_now(write: Callable[[str], Store]) -> Store:
    """Returns a store in a temporary folder, which is deleted with it."""
    folder = tempfile.TemporaryDirectory(prefix="wgan_gp-")
    return dataclasses.replace(write(posixpath.join(folder.name, "store")), keep=folder)


def find_record(source: Encoded, folder: str | None) -> Record | None:
    """Returns the record of the complete store of a source, or None if there is none."""
    if folder is None:
        return None
    key = key_of(source)
    try:
        return complete_record(store_path(folder, key), key)
    except (UserError, tf.errors.OpError, OSError):
        return None  # `cached` says so


def slow(
    encoded: Encoded,
    settings: DataSettings,
    like: DataSpec | None = None,
    *,
    use_record: bool = False,
) -> Source:
    """Returns the source of examples that are decoded once and kept in --data_cache.

    Args:
      encoded: How they are read and decoded.
      settings: The settings of the data.
      like: See `Source.like`.
      use_record: Whether the size and the classes are those of the store, if there is a complete
        one, because all files would be read to find them.
    """
    folder = cache_folder(settings.data_cache)
    record = find_record(encoded, folder) if use_record else None
    own = (encoded.class_names if record is None else record.class_names) or None

    def of(like: DataSpec | None) -> Source:
        names = like.class_names if like is not None and like.classes and own else own
        spec = DataSpec(
            tuple(encoded.shape),
            len(names or ()),
            class_names=names,
            pixels=Pixels(16 if encoded.dtype.itemsize > 1 else 8, settings.dequantization),
        )
        source = Source(
            encoded.origin,
            spec,
            encoded.dtype,
            identity=encoded.fingerprint,
            like=of,
            held_out=held_out,
            resizable=True,
            square_side=encoded.square_side,
        )
        form = ExampleFormat.of(source, settings)

        def count(devices: DeviceSettings) -> int:
            """Returns the number of examples, with those that may turn out to be unreadable.

            If it is unknown, it is assumed to be the largest that the memory of a device holds.
            """
            if record is not None:
                size = record.read
            elif encoded.is_prepared:
                size = encoded.size
            else:
                size = MAX_CACHE_BYTES // form.tpu_bytes
                logging.warning(
                    f"{encoded.origin} is not prepared, so its number of images is unknown: "
                    f"assuming {size:,}, which the memory of a device still holds"
                )
            is_local = folder is None or local_path(folder) is not None
            is_read = devices.on_remote_tpu and not is_held(size * form.example_bytes, devices)
            if is_read and is_local:
                remedy = "give --data_cache=gs://BUCKET/..."
                raise unreadable_stream(encoded.origin, devices, remedy)
            return size

        def decode(devices: DeviceSettings) -> Source:
            encoded.prepare()
            in_memory = is_held(count(devices) * form.example_bytes, devices)
            with tf.device(None):  # pictures are read and decoded on this machine
                store = cached(encoded, folder, in_memory=in_memory)
            is_read = not in_memory and not devices.on_remote_tpu
            if is_read and store.path is not None and local_path(store.path) is None:
                store = local_copy(store, cache_folder(None))
            labels, found, left_out = None, store.record.class_names, store.record.unreadable
            if found:
                labels = numbered_like(names or (), store.labels, found, source.origin)
            return dataclasses.replace(
                source,
                size=len(store),
                read=lambda indices: store[indices][0],
                labels=labels,
                spans=store.files() if devices.on_remote_tpu and not in_memory else (),
                notes=(f"{count_of(left_out, 'example')} left out: unreadable",)
                if left_out
                else (),
            )

        return dataclasses.replace(source, count=count, decode=decode)

    def held_out(like: DataSpec) -> Source | None:
        split = encoded.held_out_split  # known after it was prepared
        return None if split is None else slow(encoded.of_split(split), settings, like)

    return of(like)
