"""Encoded images, opened in memory or as a stream that is decoded as needed."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm
from absl import logging

from ...config import DataSettings, DeviceSettings
from ...errors import UserError
from ..feed.pipeline import without_autotune
from ..feed.pipeline_errors import check, raising_user_errors
from ..opened_data import (
    MAX_CACHE_BYTES,
    ExampleFormat,
    InMemoryData,
    StoredData,
    StreamedData,
    UnreadData,
)
from . import pixels, substitution
from .decoding import (
    EncodedImages,
    blank_element,
    check_cropping,
    decode_element,
    decode_readable,
    no_readable_image,
    warn_of_unreadable,
)
from .headers import ImageForm

# The largest tensor that can be sent to the machines of a remote TPU. For larger tensors, gRPC
# aborts the process.
_MAX_SENT_BYTES = 2**31 - 2**20
_MAX_MISSING = 1000
_BATCH_SIZE = 64  # decoded images per batch
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
# The number of images decoded in parallel. With one per core, as tf.data chooses, a core that has
# finished waits for the images before its own, which reduced the rate by a sixth. This counts the
# cores of this machine, also for a remote TPU.
_PARALLEL_DECODES = 8 * _CORES


def open_images(
    images: EncodedImages,
    form: ImageForm,
    settings: DataSettings,
    devices: DeviceSettings,
) -> InMemoryData | StreamedData:
    """Opens images in memory or as a stream; see `unread_images` for the arguments.

    Raises:
      UserError: If no image can be read, a label is out of range, or the images are too large to
        be sent to a remote TPU.
    """
    unread = unread_images(images.origin, images.size, form, settings, devices)
    if unread.in_memory:
        return StoredData(settings.seed, unread.format, *load(images, form))
    check_readable(images, form)
    # With a remote TPU, other machines decode the images, and they cannot call Python functions.
    return StreamedImages(images, unread.format, form, warn=not devices.on_remote_tpu)


def unread_images(
    origin: str,
    count: int | None,
    form: ImageForm,
    settings: DataSettings,
    devices: DeviceSettings,
) -> UnreadData:
    """Returns the properties of images, which are held in memory as set by --cache.

    `auto` holds up to 1 GiB in memory.

    Args:
      origin: The flag for messages, such as "--data_dir=photos".
      count: The number of images. None if it is unknown, which is assumed to be the largest that
        `auto` holds in the memory of a device.
      form: The form into which they are decoded.
      settings: The settings of the data.
      devices: The devices that receive the data.

    Raises:
      UserError: If the images are too large to be sent to a remote TPU, or are TIFF files, which
        its machines cannot decode.
    """
    normalize = functools.partial(pixels.normalize, settings, bits=form.bits)
    stored = ExampleFormat(form.shape, pixels.dtype_of(form), normalize)
    if count is None:
        count = MAX_CACHE_BYTES // stored.tpu_bytes
        if settings.cache in ("auto", "device"):
            logging.warning(
                f"{origin} is not prepared, so its number of images is unknown: assuming "
                f"{count:,}, which --cache=auto still holds in the memory of a device"
            )
    size = count * stored.example_bytes
    in_memory = settings.cache in ("on", "device")
    if in_memory and devices.on_remote_tpu and size > _MAX_SENT_BYTES:
        raise UserError(
            f"--cache={settings.cache}: {origin} has {size / 2**30:.1f} GiB of images, "
            f"which is more than can be sent to --tpu={devices.tpu}",
            "use --cache=off, or --tpu=local on a TPU VM",
        )
    in_memory = in_memory or (settings.cache == "auto" and size <= MAX_CACHE_BYTES)
    if form.has_tiff and devices.on_remote_tpu and not in_memory:
        raise UserError(
            f"{origin} has TIFF files, which the machines of --tpu={devices.tpu} cannot decode",
            "use --cache=on, or convert the files to PNG",
        )
    return UnreadData(stored, count, in_memory)


def load(images: EncodedImages, form: ImageForm) -> tuple[np.ndarray, np.ndarray]:
    """Reads all images in order: `[N, H, W, C]` uint8 or uint16 and labels `[N]` int32.

    Unreadable images are left out and named on stderr.

    Raises:
      UserError: If no image can be read, a label is out of range, or --crop=none does not permit to
        crop an image.
    """
    levels = np.empty([images.size, *form.shape], pixels.dtype_of(form).as_numpy_dtype)
    labels = np.empty([images.size], np.int64)
    is_unreadable = np.ones([images.size], bool)
    end = 0
    with (
        raising_user_errors(),
        tqdm.tqdm(
            total=images.size,
            desc=f"reading {images.origin}",
            unit=" images",
            disable=not sys.stderr.isatty(),
            leave=False,
        ) as bar,
    ):
        decoded = decode_readable(images, form, _PARALLEL_DECODES)
        batches = without_autotune(decoded.batch(_BATCH_SIZE).prefetch(2))
        for indices, batch, batch_labels in batches.as_numpy_iterator():
            begin, end = end, end + len(batch)
            levels[begin:end], labels[begin:end] = batch, batch_labels
            is_unreadable[indices] = False
            bar.update(len(batch))
    if not end:
        raise no_readable_image(images)
    if is_unreadable.any():
        warn_of_unreadable(images, np.flatnonzero(is_unreadable), "left out")
    labels = labels[:end]
    if images.classes and not (labels.min() >= 0 and labels.max() < images.classes):
        raise _label_error(images, labels.min(), labels.max())
    return levels[:end], labels.astype(np.int32)


def _label_error(images: EncodedImages, smallest: int, largest: int) -> UserError:
    return UserError(
        f"{images.origin} has labels {smallest} ... {largest}, but its classes are "
        f"0 ... {images.classes - 1}",
        "set --num_classes to the number of classes of the data, or prepare the dataset again",
    )


class StreamedImages(StreamedData):
    """Images that are read and decoded as needed.

    The next readable image replaces an unreadable one, so the positions of all other images stay
    the same.

    Args:
      images: The images.
      format: The form of the examples.
      form: The form into which the images are decoded.
      warn: Whether to name unreadable images on stderr.
    """

    def __init__(
        self, images: EncodedImages, format: ExampleFormat, form: ImageForm, *, warn: bool
    ):
        self._images = images
        self._form = form
        self._warn = warn
        self._named: set[int] = set()
        self.format = format
        self.size: int = images.size

    def encoded(self, first: int, count: int) -> tf.data.Dataset:
        return self._images.shuffled(first, count)

    def decode(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        decoded = (
            substitution.mark(batches.map(lambda indices, payloads: (indices, (indices, payloads))))
            .prefetch(2)  # reads ahead in a thread while images are decoded
            .unbatch()
            .map(self._decode_marked, num_parallel_calls=_PARALLEL_DECODES, deterministic=True)
            .ignore_errors()
        )
        checked = check_cropping(decoded, self._images, self._form)
        filled = substitution.fill(
            checked.batch(_BATCH_SIZE),
            self._images.origin,
            max_missing=min(2 * self.size, _MAX_MISSING),
            on_missing=self._warn_of_missing if self._warn else None,
        )
        if self._images.classes:
            filled = filled.map(self._check_labels)
        return filled.map(lambda images, labels: (images, tf.cast(labels, tf.int32)))

    def _decode_marked(
        self, mark: substitution.Mark, element: tuple[tf.Tensor, Any]
    ) -> tuple[Any, ...]:
        _, _, is_image = mark
        image, *rest = tf.cond(
            is_image,
            lambda: decode_element(self._images, *element, self._form),
            lambda: blank_element(self._form, self.format.dtype),
        )
        return mark, tf.ensure_shape(image, self._form.shape), *rest

    def _check_labels(self, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        smallest, largest = tf.reduce_min(labels), tf.reduce_max(labels)
        is_valid = tf.logical_and(smallest >= 0, largest < self._images.classes)
        error_of = functools.partial(_label_error, self._images)
        with tf.control_dependencies([check(is_valid, error_of, smallest, largest)]):
            return images, tf.identity(labels)

    def _warn_of_missing(self, indices: np.ndarray) -> None:
        new = set(indices.tolist()) - self._named
        self._named.update(new)
        if new:
            total = len(self._named)
            warn_of_unreadable(self._images, sorted(new), f"replaced by others ({total} in total)")


def check_readable(images: EncodedImages, form: ImageForm) -> None:
    """Raises UserError if no image can be read."""
    with raising_user_errors():
        if not any(True for _ in decode_readable(images, form, 1).take(1)):
            raise no_readable_image(images)
