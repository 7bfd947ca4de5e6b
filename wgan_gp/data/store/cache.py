"""The folder of --data_cache, with one store for each source."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import tempfile

import tensorflow as tf
from absl import logging

from ...errors import UserError
from ...run_directory.files import local_path
from ..sources.encoded import Encoded
from .building import NoSpaceError, UnwritableError, build, copy, is_built, load
from .store import Record, Store, delete_store, key_of, open_store, read_record

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


def cached(source: Encoded, folder: str | None, *, in_memory: bool = False) -> Store:
    """Returns the store of a source, which is built at the first call.

    If there is no folder, or it cannot be written, the source is decoded at this start only, and
    so are examples for the memory that the disk cannot hold.

    Args:
      source: The source.
      folder: The folder of the stores, local or in a bucket; see `cache_folder`.
      in_memory: Whether to decode into memory without a folder, and not into a temporary folder.

    Raises:
      UserError: If no example can be read, or there is not enough space.
    """
    if folder is None:
        return _decoded_once(source, in_memory)
    key = key_of(source)
    path = store_path(folder, key)
    try:
        if _is_usable(path, key):
            return open_store(path)
        return build(source, path)
    except (UnwritableError, NoSpaceError) as error:
        if isinstance(error, NoSpaceError) and not in_memory:
            raise
        logging.warning(f"{error.what}: {source.origin} is decoded at this start only")
        return _decoded_once(source, in_memory)


def local_copy(store: Store, folder: str | None) -> Store:
    """Returns a store on a local disk for one in a bucket, whose examples are slow to fetch singly.

    Args:
      store: The store.
      folder: The local folder of the stores. None uses a temporary folder.

    Raises:
      UserError: If there is not enough space.
    """
    if folder is not None:
        path = store_path(folder, store.record.key)
        try:
            _is_usable(path, store.record.key)
            return copy(store, path)
        except UnwritableError as error:
            logging.warning(f"{error.what}: {store.path} is copied for this start only")
    temporary = _Temporary()
    return temporary.keep(copy(store, temporary.path(store.record.key)))


def find_record(source: Encoded, folder: str | None) -> Record | None:
    """Returns the record of the complete store of a source, or None if there is none."""
    if folder is None:
        return None
    key = key_of(source)
    try:
        record = read_record(store_path(folder, key))
    except (UserError, tf.errors.OpError, OSError):
        return None  # `cached` says so
    return record if record is not None and record.complete and record.key == key else None


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


def _is_usable(path: str, key: str) -> bool:
    """Returns True if a store is complete. A damaged one is deleted."""
    try:
        return is_built(path, key)
    except UnwritableError:
        raise
    except UserError as error:
        logging.warning(f"{error.what}: it is built again")
        with contextlib.suppress(tf.errors.NotFoundError):  # another process deletes it, too
            delete_store(path)
    except (tf.errors.OpError, OSError):
        pass  # `build` says so
    return False


def _decoded_once(source: Encoded, in_memory: bool) -> Store:
    if in_memory:
        return load(source)
    temporary = _Temporary()
    return temporary.keep(build(source, temporary.path(key_of(source))))


class _Temporary:
    """A folder for a store that is deleted with it, at the latest when the process ends."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="wgan_gp-")

    def path(self, key: str) -> str:
        return store_path(self._folder.name, key)

    def keep(self, store: Store) -> Store:
        return Store(store.record, store.rows, store.labels, store.path, keep=self._folder)
