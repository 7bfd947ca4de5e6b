"""Examples that are read from files by their positions, in the order of `StoredData`."""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
import tensorflow as tf

from .feed.pipeline_errors import reporting
from .feed.shuffling import shuffled
from .opened_data import ExampleFormat, StreamedData

_PARALLEL_READS = 64  # of single examples in a bucket, where each waits for an answer
_BATCH_SIZE = 64
# One call of Python reads several batches, because it opens the files, and waits for Python's lock.
_CHUNK_BYTES = 2**23
_CHUNK_BATCHES = 64
_PARALLEL_CHUNKS = 4


class _Shuffled(StreamedData):
    """Examples in a new random order in each epoch, which are read by their indices.

    Args:
      seed: The seed of the order.
      format: The form of the examples.
      labels: `[N]` labels, or standardized conditions `[N, K]`.
    """

    def __init__(self, seed: int, format: ExampleFormat, labels: np.ndarray):
        self.format = format
        self.size = len(labels)
        self._labels = labels
        self._seed = seed

    @property
    def labels(self) -> np.ndarray:
        """The labels of the examples of this part."""
        return self._labels if self.kept is None else self._labels[self.kept]

    def part(self, chosen: np.ndarray) -> Self:
        part = copy.copy(self)
        part.kept = np.flatnonzero(chosen)
        part.size = len(part.kept)
        return part

    def encoded(self, first: int, count: int) -> tf.data.Dataset:
        """Returns batches of the indices of examples; see `StreamedData.encoded`."""
        places = shuffled(self._seed, self.size, first, count)
        if self.kept is None:
            return places
        indices = tf.constant(self.kept, tf.int64)
        return places.map(lambda places: tf.gather(indices, places))

    @abc.abstractmethod
    def decode(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        """Reads the examples of batches of indices; see `StreamedData.decode`."""


class StreamedRows(_Shuffled):
    """Examples that Python reads on this machine.

    Args:
      seed, format, labels: As above.
      read: Returns the stored examples `[B, *format.shape]` at indices `[B]`. Its UserErrors are
        reported.
    """

    def __init__(
        self,
        seed: int,
        format: ExampleFormat,
        labels: np.ndarray,
        read: Callable[[np.ndarray], np.ndarray],
    ):
        super().__init__(seed, format, labels)
        self._read = read

    def decode(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        label_spec = self.format.label_spec(None)
        dtype = label_spec.dtype.as_numpy_dtype

        @reporting
        def read(indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return self._read(indices), self._labels[indices].astype(dtype)

        def read_batch(indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            examples, labels = tf.numpy_function(
                read, [indices], [self.format.dtype, label_spec.dtype], stateful=False
            )
            examples = tf.ensure_shape(examples, [None, *self.format.shape])
            return examples, tf.ensure_shape(labels, label_spec.shape)

        count = batches.element_spec.shape[0]
        group = min(_CHUNK_BATCHES, _CHUNK_BYTES // max(1, count * self.format.example_bytes))
        chunks = batches.rebatch(group * count) if group > 1 else batches
        return chunks.map(read_batch, num_parallel_calls=_PARALLEL_CHUNKS, deterministic=True)


class RecordFile(NamedTuple):
    """A file of examples of equal size, one after the other.

    Attributes:
      path: The file.
      begin: The place of the first example, in bytes.
      size: The number of examples, which end with the file.
    """

    path: str
    begin: int
    size: int


class StreamedRecords(_Shuffled):
    """Examples that TensorFlow reads, also on machines that run no Python: a remote TPU's.

    Args:
      seed, format, labels: As above.
      files: The files of the examples.
    """

    def __init__(
        self,
        seed: int,
        format: ExampleFormat,
        labels: np.ndarray,
        files: Sequence[RecordFile],
    ):
        super().__init__(seed, format, labels)
        self._files = files

    def decode(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        size = self.format.example_bytes
        paths = tf.constant([file.path for file in self._files])
        begins = tf.constant([file.begin for file in self._files], tf.int64)
        counts = tf.constant([file.size for file in self._files], tf.int64)
        ends = tf.cumsum(counts)
        labels = tf.constant(self._labels, self.format.label_spec().dtype)

        def content_of(index: tf.Tensor) -> tf.data.Dataset:
            """Returns the bytes of an example: a file without the examples before and after it."""
            file = tf.searchsorted(ends, index[None], side="right")[0]
            after = ends[file] - index  # this example and those after it
            content = tf.data.FixedLengthRecordDataset(
                paths[file],
                size,
                header_bytes=begins[file] + (counts[file] - after) * size,
                footer_bytes=(after - 1) * size,
                buffer_size=size,
            )
            return content.map(lambda record: (record, index))

        def parse(contents: tf.Tensor, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            examples = tf.io.decode_raw(contents, self.format.dtype)
            examples = tf.reshape(examples, [-1, *self.format.shape])
            return examples, tf.gather(labels, indices)

        contents = batches.unbatch().interleave(
            content_of,
            cycle_length=_PARALLEL_READS,
            block_length=1,
            num_parallel_calls=_PARALLEL_READS,
            deterministic=True,
        )
        return contents.batch(_BATCH_SIZE).map(parse)
