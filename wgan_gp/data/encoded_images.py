"""Encoded images, opened in memory or as a stream that is decoded as needed."""

from __future__ import annotations

import abc
import functools
import os
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm
from absl import logging

from ..config import DataSettings, DeviceSettings
from ..errors import UserError, printable
from . import pixels, substitution
from .pipeline import without_autotune
from .source import (
    MAX_CACHE_BYTES,
    ExampleFormat,
    InMemoryData,
    StoredData,
    StreamedData,
    UnreadData,
)

# The largest tensor that can be sent to the machines of a remote TPU. For larger tensors, gRPC
# aborts the process.
_MAX_SENT_BYTES = 2**31 - 2**20
LABEL_OUT_OF_RANGE = "a label is out of range"
_MAX_MISSING = 1000
_BATCH_SIZE = 64  # decoded images per batch
_MAX_NAMED = 20  # unreadable images named in a warning; the others are only counted
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
# The number of images decoded in parallel. With one per core, as tf.data chooses, a core that has
# finished waits for the images before its own, which reduced the rate by a sixth. This counts the
# cores of this machine, also for a remote TPU.
_PARALLEL_DECODES = 8 * _CORES


class EncodedImages(abc.ABC):
    """A dataset of encoded images.

    An element is a pair (index, payload). A payload is a nest of tensors from which `read` gets the
    image.

    Attributes:
      origin: The flag for messages, such as "--data_dir=photos".
      size: The number of images.
      classes: The number of classes; labels must be 0 ... classes - 1. 0 allows all labels.
    """

    origin: str
    size: int
    classes: int

    @abc.abstractmethod
    def in_order(self) -> tf.data.Dataset:
        """Returns a dataset of all elements, once each."""

    @abc.abstractmethod
    def shuffled(self, first: int, count: int) -> tf.data.Dataset:
        """Returns an endless dataset of batches of `count` elements, from a position on.

        The order is a function of (seed, epoch).
        """

    @abc.abstractmethod
    def read(self, payload: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the content of an image file, scalar string, and the label, scalar integer."""

    @abc.abstractmethod
    def name(self, index: int) -> str:
        """Returns the name of an image for messages."""


def open_images(
    images: EncodedImages,
    example_shape: tuple[int, ...],
    settings: DataSettings,
    devices: DeviceSettings,
) -> InMemoryData | StreamedData:
    """Opens images in memory or as a stream; see `unread_images` for the arguments.

    Raises:
      UserError: If no image can be read, a label is out of range, or the images are too large to
        be sent to a remote TPU.
    """
    unread = unread_images(images.origin, images.size, example_shape, settings, devices)
    if unread.in_memory:
        return StoredData(settings.seed, unread.format, *load(images, example_shape))
    check_readable(images, example_shape)
    # With a remote TPU, other machines decode the images, and they cannot call Python functions.
    return StreamedImages(images, unread.format, warn=not devices.on_remote_tpu)


def unread_images(
    origin: str,
    count: int | None,
    example_shape: tuple[int, ...],
    settings: DataSettings,
    devices: DeviceSettings,
) -> UnreadData:
    """Returns the properties of images, which are held in memory as set by --cache.

    `auto` holds up to 1 GiB in memory.

    Args:
      origin: The flag for messages, such as "--data_dir=photos".
      count: The number of images. None if it is unknown, which is assumed to be the largest that
        `auto` holds in the memory of a device.
      example_shape: `(S, S, C)`, to which they are cropped and resized.
      settings: The settings of the data.
      devices: The devices that receive the data.

    Raises:
      UserError: If the images are too large to be sent to a remote TPU.
    """
    stored = ExampleFormat(example_shape, tf.uint8, functools.partial(pixels.normalize, settings))
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
    return UnreadData(stored, count, in_memory)


def load(images: EncodedImages, example_shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Reads all images in order: `[N, H, W, C]` uint8 and labels `[N]` int32.

    Unreadable images are left out and named on stderr.

    Raises:
      UserError: If no image can be read, or a label is out of range.
    """
    uint8_images = np.empty([images.size, *example_shape], np.uint8)
    labels = np.empty([images.size], np.int64)
    is_unreadable = np.ones([images.size], bool)
    end = 0
    with tqdm.tqdm(
        total=images.size,
        desc=f"reading {images.origin}",
        unit=" images",
        disable=not sys.stderr.isatty(),
        leave=False,
    ) as bar:
        decoded = decode_readable(images, example_shape, _PARALLEL_DECODES)
        batches = without_autotune(decoded.batch(_BATCH_SIZE).prefetch(2))
        for indices, batch, batch_labels in batches.as_numpy_iterator():
            begin, end = end, end + len(batch)
            uint8_images[begin:end], labels[begin:end] = batch, batch_labels
            is_unreadable[indices] = False
            bar.update(len(batch))
    if not end:
        raise _no_readable_image(images)
    if is_unreadable.any():
        warn_of_unreadable(images, np.flatnonzero(is_unreadable), "left out")
    labels = labels[:end]
    if images.classes and not (labels.min() >= 0 and labels.max() < images.classes):
        raise UserError(
            f"{images.origin} has labels {labels.min()} ... {labels.max()}, but "
            f"--num_classes={images.classes} allows 0 ... {images.classes - 1}",
            "set --num_classes to the number of classes of the data",
        )
    return uint8_images[:end], labels.astype(np.int32)


class StreamedImages(StreamedData):
    """Images that are read and decoded as needed.

    The next readable image replaces an unreadable one, so the positions of all other images stay
    the same.

    Args:
      images: The images.
      format: The form of decoded images; they are cropped and resized to its shape.
      warn: Whether to name unreadable images on stderr.
    """

    def __init__(self, images: EncodedImages, format: ExampleFormat, *, warn: bool):
        self._images = images
        self._warn = warn
        self._named: set[int] = set()
        self.format = format
        self.size: int = images.size

    def encoded(self, first: int, count: int) -> tf.data.Dataset:
        return self._images.shuffled(first, count)

    def decode(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        decoded = (
            substitution.mark(batches)
            .prefetch(2)  # reads ahead in a thread while images are decoded
            .unbatch()
            .map(self._decode_marked, num_parallel_calls=_PARALLEL_DECODES, deterministic=True)
            .ignore_errors()
            .batch(_BATCH_SIZE)
        )
        filled = substitution.fill(
            decoded,
            self._images.origin,
            max_missing=min(2 * self.size, _MAX_MISSING),
            on_missing=self._warn_of_missing if self._warn else None,
        )
        if self._images.classes:
            filled = filled.map(self._check_labels)
        return filled.map(lambda images, labels: (images, tf.cast(labels, tf.int32)))

    def _decode_marked(
        self, mark: substitution.Mark, payload: Any
    ) -> tuple[substitution.Mark, tf.Tensor, tf.Tensor]:
        _, _, is_image = mark
        blank = tf.zeros(self.example_shape, tf.uint8), tf.constant(0, tf.int64)
        image, label = tf.cond(
            is_image, lambda: _decode(self._images, payload, self.example_shape), lambda: blank
        )
        return mark, tf.ensure_shape(image, self.example_shape), label

    def _check_labels(self, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        classes = tf.constant(self._images.classes, tf.int64)
        message = f"{self._images.origin}: {LABEL_OUT_OF_RANGE}"
        checks = [
            tf.debugging.assert_non_negative(labels, message),
            tf.debugging.assert_less(labels, classes, message),
        ]
        with tf.control_dependencies(checks):
            return images, tf.identity(labels)

    def _warn_of_missing(self, indices: np.ndarray) -> None:
        new = set(indices.tolist()) - self._named
        self._named.update(new)
        if new:
            total = len(self._named)
            warn_of_unreadable(self._images, sorted(new), f"replaced by others ({total} in total)")


def check_readable(images: EncodedImages, example_shape: tuple[int, ...]) -> None:
    """Raises UserError if no image can be read."""
    if not any(True for _ in decode_readable(images, example_shape, 1).take(1)):
        raise _no_readable_image(images)


def _no_readable_image(images: EncodedImages) -> UserError:
    return UserError(
        f"{images.origin} contains no image that can be read",
        "give JPEG, PNG or GIF files",
    )


def warn_of_unreadable(images: EncodedImages, indices: Iterable[int], outcome: str) -> None:
    """Names unreadable images on stderr, with what happens to them."""
    names = [printable(images.name(int(index))) for index in indices]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    logging.warning(
        f"{images.origin}: {len(names)} of {images.size} images cannot be read and "
        f"{'is' if len(names) == 1 else 'are'} {outcome}: {', '.join(names[:_MAX_NAMED])}{more}"
    )


def decode_readable(
    images: EncodedImages, example_shape: tuple[int, ...], parallel: int
) -> tf.data.Dataset:
    """Returns the readable images in order, as (index, uint8 image, label)."""
    return (
        images.in_order()
        .map(
            lambda index, payload: (index, *_decode(images, payload, example_shape)),
            num_parallel_calls=parallel,
            deterministic=True,
        )
        .ignore_errors()
    )


def _decode(
    images: EncodedImages, payload: Any, example_shape: tuple[int, ...]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a uint8 image and its label as int64; as int32, a label of 2**40 would become 0."""
    file, label = images.read(payload)
    return pixels.decode(file, example_shape), tf.cast(label, tf.int64)
