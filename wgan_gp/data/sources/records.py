"""Encoded images and labels from TFRecord files of tf.train.Example."""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf
from absl import logging

from ...errors import UserError
from ...runtime.randomness import RngStream, bits
from ..feed.shuffling import epoch_order
from .decoding import EncodedImages
from .shards import PARALLEL_SHARDS, Segment, Shards, read_records, scan_shards

_SHUFFLE_BYTES = 2**28  # encoded images in the shuffle buffer of a streamed epoch


class RecordImages(EncodedImages):
    """All undamaged records, in the order of the files; a payload is a record.

    The constructor reads every file once to find the records, and reports damage on stderr.

    Raises:
      UserError: If there are no undamaged records.
    """

    def __init__(self, shards: Shards, seed: int):
        self._shards = shards
        self._seed = seed
        self._segments = scan_shards(shards)
        counts = [segment.count for segment in self._segments]
        self.origin = shards.origin
        self.size = sum(counts)
        self.classes = shards.classes
        if not self.size:
            raise UserError(f"{self.origin} contains no complete record", "write the files again")
        self._files = tf.constant([segment.file for segment in self._segments])
        self._offsets = tf.constant([segment.offset for segment in self._segments], tf.int64)
        self._counts = tf.constant(counts, tf.int64)
        self._starts = tf.constant(list(itertools.accumulate(counts[:-1], initial=0)), tf.int64)
        mean_bytes = sum(segment.bytes for segment in self._segments) / self.size
        self._buffer_size = max(1, min(self.size, int(_SHUFFLE_BYTES / mean_bytes)))

    def in_order(self) -> tf.data.Dataset:
        return tf.data.Dataset.range(len(self._segments)).flat_map(self._records)

    def shuffled(self, first: int, count: int) -> tf.data.Dataset:
        skipped = first % self.size
        epochs = tf.data.Dataset.range(first // self.size, np.iinfo(np.int64).max)
        if skipped:
            logging.info(
                f"{self.origin} is streamed: skipping {skipped:,} records to the position at which "
                "training stopped"
            )
        return epochs.flat_map(self._epoch).skip(skipped).batch(count, drop_remainder=True)

    def read(self, payload: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        shards = self._shards
        features = {shards.image_key: tf.io.FixedLenFeature([], tf.string)}
        if shards.label_key is not None:
            # Without a default, a missing label of a conditional run is an error.
            default = None if shards.classes else 0
            features[shards.label_key] = tf.io.FixedLenFeature([], tf.int64, default)
        example = tf.io.parse_single_example(payload, features)
        label = example[shards.label_key] if shards.label_key else tf.constant(0, tf.int64)
        return example[shards.image_key], label

    def name(self, index: int) -> str:
        return record_name(self._segments, index)

    def _records(self, segment: tf.Tensor) -> tf.data.Dataset:
        """Returns the records of a segment with their indices."""
        undamaged = read_records(self._files[segment], self._offsets[segment])
        return undamaged.take(self._counts[segment]).enumerate(self._starts[segment])

    def _epoch(self, number: tf.Tensor) -> tf.data.Dataset:
        """Returns an epoch: segments in random order, interleaved, then a shuffle buffer."""
        count = len(self._segments)
        order = epoch_order(self._seed, number, count)
        words = bits(self._seed, RngStream.SHUFFLE, step=1, first=number, count=1, size=2)
        interleaved = tf.data.Dataset.from_tensor_slices(order).interleave(
            self._records,
            cycle_length=min(PARALLEL_SHARDS, count),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        return _shuffle_with_buffer(interleaved, self._buffer_size, tf.cast(words[0], tf.int64))


def _shuffle_with_buffer(
    elements: tf.data.Dataset, buffer_size: int, seeds: tf.Tensor
) -> tf.data.Dataset:
    """Shuffles with a buffer; Dataset.shuffle does not support seeds computed in a graph."""
    spec = elements.element_spec
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(elements),
        buffer_size=buffer_size,
        seed=seeds[0],
        seed2=seeds[1],
        output_types=[part.dtype for part in tf.nest.flatten(spec)],
        output_shapes=[part.shape for part in tf.nest.flatten(spec)],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(variant, spec)


def record_name(segments: list[Segment], index: int) -> str:
    """Returns a record's name, such as "record 7 of a.tfrecord".

    Records are counted from 0; damaged records of the file are not counted.
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
