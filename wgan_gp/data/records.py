"""Encoded images and labels from TFRecord files of tf.train.Example."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import tensorflow as tf

from ..config import Config
from ..errors import UserError
from ..randomness import RngStream, bits
from ..shuffling import shuffled
from .collection import Collection
from .shards import SHARDS_AT_ONCE, Segment, Shards, records, survey

_SHUFFLE_BYTES = 2**28  # encoded images in the shuffle buffer of a streamed epoch


def collection(config: Config, shards: Shards) -> Collection:
    """Returns all undamaged records as a collection, in the order of the files.

    Every file is read once to find them. Damage is reported on stderr.

    Raises:
      UserError: If there is no undamaged record.
    """
    segments = survey(shards)
    size = sum(segment.count for segment in segments)
    if not size:
        raise UserError(f"{shards.origin} holds no whole record", "write the files again")
    files = tf.constant([segment.file for segment in segments])
    offsets, counts, firsts = (
        tf.constant(list(values), tf.int64)
        for values in (
            (segment.offset for segment in segments),
            (segment.count for segment in segments),
            itertools.accumulate((segment.count for segment in segments[:-1]), initial=0),
        )
    )
    mean_bytes = sum(segment.bytes for segment in segments) / size
    buffer = max(1, min(size, int(_SHUFFLE_BYTES / mean_bytes)))

    def elements(place: tf.Tensor) -> tf.data.Dataset:
        good = records(files[place], offsets[place]).take(counts[place])
        return good.enumerate(firsts[place])

    def epoch(number: tf.Tensor) -> tf.data.Dataset:
        """Returns an epoch: files in random order, interleaved, then a shuffle buffer."""
        first = number * len(segments) + tf.range(len(segments), dtype=tf.int64)
        order = shuffled(config.seed, first, len(segments))
        words = bits(config.seed, RngStream.SHUFFLE, step=1, first=number, count=1, size=2)
        files_at_once = tf.data.Dataset.from_tensor_slices(order).interleave(
            elements,
            cycle_length=min(SHARDS_AT_ONCE, len(segments)),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        return _drawn_from(files_at_once, buffer, tf.cast(words[0], tf.int64))

    def from_position(first: int, count: int) -> tf.data.Dataset:
        epochs = tf.data.Dataset.range(first // size, np.iinfo(np.int64).max).flat_map(epoch)
        if first % size:
            print(
                f"{shards.origin} is streamed: reading past {first % size:,} records, to where "
                "training stood",
                file=sys.stderr,
            )
        return epochs.skip(first % size).batch(count, drop_remainder=True)

    return Collection(
        origin=shards.origin,
        size=size,
        in_order=lambda: tf.data.Dataset.range(len(segments)).flat_map(elements),
        shuffled=from_position,
        encoded=lambda payload: _parse(shards, payload),
        name=lambda index: _place(segments, index),
        classes=shards.classes,
    )


def _drawn_from(elements: tf.data.Dataset, buffer: int, seeds: tf.Tensor) -> tf.data.Dataset:
    """Shuffles with a buffer; Dataset.shuffle does not support seeds computed in a graph."""
    spec = elements.element_spec
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(elements),
        buffer_size=buffer,
        seed=seeds[0],
        seed2=seeds[1],
        output_types=[part.dtype for part in tf.nest.flatten(spec)],
        output_shapes=[part.shape for part in tf.nest.flatten(spec)],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(variant, spec)


def _parse(shards: Shards, record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    features = {shards.image_key: tf.io.FixedLenFeature([], tf.string)}
    if shards.label_key is not None:
        # Without a default, a missing label of a conditional run is an error.
        default = None if shards.classes else 0
        features[shards.label_key] = tf.io.FixedLenFeature([], tf.int64, default)
    example = tf.io.parse_single_example(record, features)
    label = example[shards.label_key] if shards.label_key else tf.constant(0, tf.int64)
    return example[shards.image_key], label


def _place(segments: list[Segment], index: int) -> str:
    """Returns a record's name, such as "record 7 of a.tfrecord".

    Records are counted from 0, without the damaged records of the file.
    """
    for segment in segments:
        if index < segment.count:
            before = sum(
                other.count
                for other in segments
                if other.file == segment.file and other.offset < segment.offset
            )
            return f"record {before + index} of {segment.file}"
        index -= segment.count
    raise IndexError(index)
