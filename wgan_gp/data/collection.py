"""Encoded images, wherever they lie: held in memory, or read as they are needed."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf
import tqdm

from ..config import Config
from ..errors import UserError
from ..randomness import shuffled
from . import pixels
from .source import Source, Stream

# Up to here a dataset is held in memory, by --cache=auto. Not a share of this machine's
# memory: a run must read the same order on every machine.
CACHE_BYTES = 2**30
# No larger tensor can be sent to the machines of a remote TPU: gRPC aborts the process.
_SENT_BYTES = 2**31 - 2**20
WRONG_LABEL = "a label is none of --num_classes"
_TOGETHER = 64  # images decoded by one call
_NAMED = 20  # of those that cannot be read; of the rest, their number


@dataclasses.dataclass(frozen=True)
class Collection:
    """A dataset of encoded images. An element is a pair (index, payload).

    Attributes:
      origin: where it lies, as an error names it: "--data_dir=photos".
      size: how many.
      in_order: () -> a dataset of all elements, once each.
      shuffled: (position, count) -> an endless dataset of batches of `count` elements from there
        on, in an order that is a function of (seed, epoch).
      encoded: payload -> (the picture's file, scalar string; its label, scalar integer).
      name: index -> what to call it when it cannot be read.
      classes: labels must be 0 ... classes - 1; 0: any may be.
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
    """The collection as --cache says; `auto` holds in memory what takes up to 1 GiB.

    Raises:
      UserError: not one image can be read; or memory cannot hold them all.
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
    """Images held in memory: `[N, H, W, C]` uint8, and labels `[N]` int32."""
    images, classes = tf.constant(levels), tf.constant(labels)
    size, *shape = levels.shape

    def read(first: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
        chosen = shuffled(config.seed, first + tf.range(count, dtype=tf.int64), size)
        return pixels.finish(config, tf.gather(images, chosen), first), tf.gather(classes, chosen)

    return Source(tuple(shape), read, size)


def load(collection: Collection, example_shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """All that can be read: levels `[N, H, W, C]` uint8 and labels `[N]` int32, in order.

    Those that cannot are left out, and named on stderr.

    Raises:
      UserError: not one can.
    """
    levels = np.empty([collection.size, *example_shape], np.uint8)
    labels = np.empty([collection.size], np.int32)
    batches = (
        collection.in_order()
        .batch(_TOGETHER)
        .map(
            functools.partial(_decode, collection.encoded, example_shape),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        .prefetch(tf.data.AUTOTUNE)
    )
    good, unread = 0, []
    with tqdm.tqdm(
        total=collection.size,
        desc=f"reading {collection.origin}",
        unit=" images",
        disable=not sys.stderr.isatty(),
        leave=False,
    ) as bar:
        for some, their_labels, places, indices in batches.as_numpy_iterator():
            count = len(some)
            levels[good : good + count], labels[good : good + count] = some, their_labels
            good += count
            unread += list(np.delete(indices, places))
            bar.update(len(indices))
    if unread:
        _complain(collection, unread, "left out")
    if not good:
        raise UserError(
            f"{collection.origin} holds no image that can be read",
            "give JPEG, PNG, BMP or GIF files",
        )
    labels = labels[:good]
    if collection.classes and not (labels.min() >= 0 and labels.max() < collection.classes):
        raise UserError(
            f"{collection.origin} has labels {labels.min()} ... {labels.max()}, but "
            f"--num_classes={collection.classes} means 0 ... {collection.classes - 1}",
            "give as many classes as there are",
        )
    return levels[:good], labels


def _complain(collection: Collection, indices: Iterable[int], fate: str) -> None:
    names = [collection.name(int(index)) for index in indices]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    print(
        f"warning: {collection.origin}: {len(names)} of {collection.size} images cannot be read "
        f"and {'is' if len(names) == 1 else 'are'} {fate}: {', '.join(names[:_NAMED])}{more}",
        file=sys.stderr,
    )


def _stream(config: Config, collection: Collection, example_shape: tuple[int, ...]) -> Stream:
    """Decoded as needed. What cannot be read is replaced by its neighbour: places stay fixed."""
    known: set[int] = set()

    def notice(missing: np.ndarray) -> np.int64:
        fresh = [index for index in missing.tolist() if index not in known]
        known.update(fresh)
        if fresh:
            _complain(collection, fresh, f"replaced by others ({len(known)} in all)")
        return np.int64(0)

    def decode(elements: tuple) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        levels, labels, places, indices = _decode(collection.encoded, example_shape, *elements)
        if collection.classes:
            tf.debugging.assert_non_negative(labels, WRONG_LABEL)
            tf.debugging.assert_less(labels, collection.classes, WRONG_LABEL)
        if config.on_remote_tpu:
            return levels, labels, places  # decoded on machines that this Python is not on
        missing = tf.sets.difference(
            tf.range(tf.size(indices, tf.int64))[None], places[None]
        ).values
        # Python is asked only where something is wrong.
        noticed = tf.cond(
            tf.size(missing) > 0,
            lambda: tf.numpy_function(notice, [tf.gather(indices, missing)], tf.int64),
            lambda: tf.constant(0, tf.int64),
        )
        with tf.control_dependencies([noticed]):
            return levels, labels, tf.identity(places)

    return Stream(
        example_shape,
        collection.size,
        encoded=collection.shuffled,
        decode=decode,
        finish=functools.partial(pixels.finish, config),
    )


def _decode(
    encoded: Callable, example_shape: tuple[int, ...], indices: tf.Tensor, payloads: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Levels, labels and places of those of a batch that can be read; and all its indices.

    tf.data can pass over an element that fails, and nothing else in TensorFlow can: so each
    batch is a small dataset of its own.
    """

    def decode_one(place: tf.Tensor, payload: tf.Tensor) -> tuple[tf.Tensor, ...]:
        file, label = encoded(payload)
        return pixels.decode(file, example_shape), tf.cast(label, tf.int32), place

    count = tf.size(indices, tf.int64)
    readable = (
        tf.data.Dataset.from_tensor_slices((tf.range(count), payloads))
        .map(decode_one)
        .ignore_errors()
        .batch(tf.int64.max)
    )
    # An empty batch, where not one can be read.
    nothing = tf.data.Dataset.from_tensors(
        (
            tf.zeros([0, *example_shape], tf.uint8),
            tf.zeros([0], tf.int32),
            tf.zeros([0], tf.int64),
        )
    )
    levels, labels, places = readable.concatenate(nothing).take(1).get_single_element()
    return levels, labels, places, indices
