"""Collections of encoded images, opened in memory or as a stream that is decoded as needed."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from ..config import Config
from ..errors import UserError, printable
from ..shuffling import shuffled
from . import gaps, pixels
from .pipeline import untuned
from .source import Source, Stream

# The largest dataset that --cache=auto holds in memory. It does not depend on this machine's
# memory, because a run must read the same order on every machine.
CACHE_BYTES = 2**30
# The largest tensor that can be sent to the machines of a remote TPU: beyond it, gRPC aborts.
_SENT_BYTES = 2**31 - 2**20
WRONG_LABEL = "a label is none of the classes"
_MOST_MISSING = 1000
_TOGETHER = 64  # decoded images per batch
_NAMED = 20  # unreadable images named in a warning; the others are only counted
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
# The number of images decoded in parallel. With one per core, as tf.data chooses, a core that is
# done waits for the images before its own, which reduced the rate by a sixth. This counts the
# cores of this machine, also for a remote TPU.
_DECODING = 8 * _CORES


@dataclasses.dataclass(frozen=True)
class Collection:
    """A dataset of encoded images. An element is a pair (index, payload).

    Attributes:
      origin: The flag for messages, such as "--data_dir=photos".
      size: The number of images.
      in_order: () -> a dataset of all elements, once each.
      shuffled: (position, count) -> an endless dataset of batches of `count` elements, starting
        at that position, in an order that is a function of (seed, epoch).
      encoded: payload -> (content of the image file, scalar string; label, scalar integer).
      name: index -> the name of the image in messages.
      classes: The number of classes; labels must be 0 ... classes - 1. 0 allows any label.
    """

    origin: str
    size: int
    in_order: Callable[[], tf.data.Dataset]
    shuffled: Callable[[int, int], tf.data.Dataset]
    encoded: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
    name: Callable[[int], str]
    classes: int = 0


def open_collection(
    config: Config, collection: Collection, example_shape: tuple[int, ...]
) -> Source | Stream:
    """Opens a collection in memory or as a stream, as set by --cache.

    `auto` holds up to 1 GiB in memory.

    Raises:
      UserError: If no image can be read, a label is out of range, or the images are too large to
        be sent to a remote TPU.
    """
    size = collection.size * int(np.prod(example_shape))
    if config.cache == "on" and config.on_remote_tpu and size > _SENT_BYTES:
        raise UserError(
            f"--cache=on: the {size / 2**30:.1f} GiB of {collection.origin} are more than can be "
            f"sent to --tpu={config.tpu}",
            "use --cache=off, or --tpu=local on a TPU VM",
        )
    if config.cache == "on" or (config.cache == "auto" and size <= CACHE_BYTES):
        return in_memory(config, *load(collection, example_shape))
    return _stream(config, collection, example_shape)


def in_memory(config: Config, levels: np.ndarray, labels: np.ndarray) -> Source:
    """Returns images `[N, H, W, C]` uint8 and labels `[N]` int32 as a source in memory."""
    images, classes = tf.constant(levels), tf.constant(labels)
    size, *shape = levels.shape

    def read(first: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
        chosen = shuffled(config.seed, first + tf.range(count, dtype=tf.int64), size)
        return pixels.finish(config, tf.gather(images, chosen), first), tf.gather(classes, chosen)

    return Source(tuple(shape), read, size)


def load(collection: Collection, example_shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Reads all images: levels `[N, H, W, C]` uint8 and labels `[N]` int32, in order.

    Unreadable images are left out and named on stderr.

    Raises:
      UserError: If no image can be read, or a label is out of range.
    """
    levels = np.empty([collection.size, *example_shape], np.uint8)
    labels = np.empty([collection.size], np.int64)
    is_bad = np.ones([collection.size], bool)
    good = 0
    with tqdm.tqdm(
        total=collection.size,
        desc=f"reading {collection.origin}",
        unit=" images",
        disable=not sys.stderr.isatty(),
        leave=False,
    ) as bar:
        images = _readable(collection, example_shape, _DECODING)
        batches = untuned(images.batch(_TOGETHER).prefetch(2))
        for index, some, their_labels in batches.as_numpy_iterator():
            count = len(some)
            levels[good : good + count], labels[good : good + count] = some, their_labels
            is_bad[index] = False
            good += count
            bar.update(count)
    if not good:
        raise _nothing_readable(collection)
    if is_bad.any():
        _complain(collection, np.flatnonzero(is_bad), "left out")
    labels = labels[:good]
    if collection.classes and not (labels.min() >= 0 and labels.max() < collection.classes):
        raise UserError(
            f"{collection.origin} has labels {labels.min()} ... {labels.max()}, but "
            f"--num_classes={collection.classes} means 0 ... {collection.classes - 1}",
            "give as many classes as there are",
        )
    return levels[:good], labels.astype(np.int32)


def _nothing_readable(collection: Collection) -> UserError:
    return UserError(
        f"{collection.origin} holds no image that can be read",
        "give JPEG, PNG, BMP or GIF files",
    )


def _complain(collection: Collection, indices: Iterable[int], fate: str) -> None:
    names = [printable(collection.name(int(index))) for index in indices]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    print(
        f"warning: {collection.origin}: {len(names)} of {collection.size} images cannot be read "
        f"and {'is' if len(names) == 1 else 'are'} {fate}: {', '.join(names[:_NAMED])}{more}",
        file=sys.stderr,
    )


def _stream(config: Config, collection: Collection, example_shape: tuple[int, ...]) -> Stream:
    """Returns a stream in which the next readable image replaces an unreadable one.

    The positions of all other images therefore stay the same.

    Raises:
      UserError: If no image can be read.
    """
    if not any(True for _ in _readable(collection, example_shape, at_once=1).take(1)):
        raise _nothing_readable(collection)
    most_missing = min(2 * collection.size, _MOST_MISSING)
    known: set[int] = set()

    def notice(missing: np.ndarray) -> None:
        fresh = set(missing.tolist()) - known
        known.update(fresh)
        if fresh:
            _complain(collection, sorted(fresh), f"replaced by others ({len(known)} in all)")

    def decode(mark: gaps.Mark, payload: Any) -> tuple[gaps.Mark, tf.Tensor, tf.Tensor]:
        _, _, is_image = mark
        nothing = tf.zeros(example_shape, tf.uint8), tf.constant(0, tf.int64)
        levels, label = tf.cond(
            is_image, lambda: _decode(collection, payload, example_shape), lambda: nothing
        )
        return mark, tf.ensure_shape(levels, example_shape), label

    def checked(levels: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        classes = tf.constant(collection.classes, tf.int64)
        wrong_label = f"{collection.origin}: {WRONG_LABEL}"
        checks = [
            tf.debugging.assert_non_negative(labels, wrong_label),
            tf.debugging.assert_less(labels, classes, wrong_label),
        ]
        with tf.control_dependencies(checks):
            return levels, tf.identity(labels)

    def decode_all(batches: tf.data.Dataset) -> tf.data.Dataset:
        images = (
            gaps.mark(batches)
            .prefetch(2)  # reads ahead in a thread while images are decoded
            .unbatch()
            .map(decode, num_parallel_calls=_DECODING, deterministic=True)
            .ignore_errors()
            .batch(_TOGETHER)
        )
        # With a remote TPU this runs on other machines, which cannot call this Python function.
        told = None if config.on_remote_tpu else notice
        filled = gaps.fill(images, collection.origin, most_missing, told)
        if collection.classes:
            filled = filled.map(checked)
        return filled.map(lambda levels, labels: (levels, tf.cast(labels, tf.int32)))

    return Stream(
        example_shape,
        collection.size,
        encoded=collection.shuffled,
        decode=decode_all,
        finish=functools.partial(pixels.finish, config),
    )


def _readable(
    collection: Collection, example_shape: tuple[int, ...], at_once: int
) -> tf.data.Dataset:
    """Returns the readable images in order, as (index, levels, label)."""
    return (
        collection.in_order()
        .map(
            lambda index, payload: (index, *_decode(collection, payload, example_shape)),
            num_parallel_calls=at_once,
            deterministic=True,
        )
        .ignore_errors()
    )


def _decode(
    collection: Collection, payload: Any, example_shape: tuple[int, ...]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns levels and the label as int64; int32 would turn a label of 2**40 into a valid 0."""
    file, label = collection.encoded(payload)
    return pixels.decode(file, example_shape), tf.cast(label, tf.int64)
