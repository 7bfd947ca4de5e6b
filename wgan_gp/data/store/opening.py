"""The examples of slow files as a source: decoded once, and read from their store."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import tensorflow as tf
from absl import logging

from ...config import DataSettings, DeviceSettings
from ...run_directory.files import local_path
from ..feed import MAX_CACHE_BYTES, ExampleFormat, is_held, unreadable_stream
from ..pixels import Pixels
from ..source import Source
from ..sources.encoded import Encoded
from ..sources.labels import numbered_like
from ..spec import DataSpec, count_of
from .cache import cache_folder, cached, find_record, local_copy


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
    record = find_record(encoded, cache_folder(settings.data_cache)) if use_record else None
    own = (encoded.class_names if record is None else record.class_names) or None
    known = None if record is None else record.read

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
        return dataclasses.replace(
            source,
            count=functools.partial(_count, encoded, source, settings, known),
            decode=functools.partial(_decode, encoded, source, settings, known),
        )

    def held_out(like: DataSpec) -> Source | None:
        split = encoded.held_out_split  # known after it was prepared
        return None if split is None else slow(encoded.of_split(split), settings, like)

    return of(like)


def _count(
    encoded: Encoded,
    source: Source,
    settings: DataSettings,
    known: int | None,
    devices: DeviceSettings,
) -> int:
    """Returns the number of examples, with those that may turn out to be unreadable.

    If it is unknown, it is assumed to be the largest that the memory of a device holds.

    Raises:
      UserError: If a remote TPU cannot read the examples.
    """
    form = ExampleFormat.of(source, settings)
    if known is not None:
        count = known
    elif encoded.is_prepared:
        count = encoded.size
    else:
        count = MAX_CACHE_BYTES // form.tpu_bytes
        logging.warning(
            f"{encoded.origin} is not prepared, so its number of images is unknown: assuming "
            f"{count:,}, which the memory of a device still holds"
        )
    if devices.on_remote_tpu and not is_held(count * form.example_bytes, devices):
        folder = cache_folder(settings.data_cache)
        if folder is None or local_path(folder) is not None:
            remedy = "give --data_cache=gs://BUCKET/..."
            raise unreadable_stream(encoded.origin, devices, remedy)
    return count


def _decode(
    encoded: Encoded,
    source: Source,
    settings: DataSettings,
    known: int | None,
    devices: DeviceSettings,
) -> Source:
    """Returns the source of the decoded examples.

    Raises:
      UserError: If the data cannot be downloaded or read, there is not enough space for it, it has
        other classes than the run, or a remote TPU cannot read it.
    """
    encoded.prepare()
    count = _count(encoded, source, settings, known, devices)
    in_memory = is_held(count * ExampleFormat.of(source, settings).example_bytes, devices)
    with tf.device(None):  # pictures are read and decoded on this machine
        store = cached(encoded, cache_folder(settings.data_cache), in_memory=in_memory)
    labels: np.ndarray | None = None
    if store.class_names:
        names = source.spec.class_names or ()
        labels = numbered_like(names, store.labels, store.class_names, source.origin)
    is_read = not in_memory and not devices.on_remote_tpu
    if is_read and store.path is not None and local_path(store.path) is None:
        store = local_copy(store, cache_folder(None))
    left_out = store.record.unreadable
    return dataclasses.replace(
        source,
        size=len(store),
        read=lambda indices: store[indices][0],
        labels=labels,
        spans=store.files() if devices.on_remote_tpu and not in_memory else (),
        notes=(f"{count_of(left_out, 'example')} left out: unreadable",) if left_out else (),
    )
