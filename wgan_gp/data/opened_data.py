"""The classes of opened datasets: in memory, generated, or decoded as needed."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ..config import DeviceSettings
from ..errors import UserError
from .feed.shuffling import shuffled

# The largest dataset that is held in memory. It does not depend on this machine's
# memory, because a run must read the same order on every machine.
MAX_CACHE_BYTES = 2**30
# The largest tensor that can be sent to the machines of a remote TPU. For larger tensors, gRPC
# aborts the process.
MAX_SENT_BYTES = 2**31 - 2**20
_LANES = 128


@dataclasses.dataclass(frozen=True)
class ExampleFormat:
    """The form in which the examples of a dataset are stored, and their normalization.

    Attributes:
      shape: The example shape: `(H, W, C)` for images, `(D,)` for points.
      dtype: tf.uint8 for images of 256 levels, tf.uint16 for 65536 levels, else tf.float32.
      normalize: (stored examples `[B, *shape]`, position of the first, scalar int64) -> float32
        examples of the same shape, images in [-1, 1]. It runs on the host or inside the program of
        an accelerator, with the same result.
      condition_size: The length K of the conditions in the place of labels; 0 for labels.
    """

    shape: tuple[int, ...]
    dtype: tf.DType
    normalize: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    condition_size: int = 0

    def label_spec(self, *batch: int | None) -> tf.TensorSpec:
        """Returns the spec of labels `[*batch]` int32 or conditions `[*batch, K]` float32."""
        if self.condition_size:
            return tf.TensorSpec([*batch, self.condition_size], tf.float32)
        return tf.TensorSpec(batch, tf.int32)

    @property
    def example_bytes(self) -> int:
        """The size of a stored example in bytes."""
        return int(np.prod(self.shape)) * self.dtype.size

    @property
    def tpu_bytes(self) -> int:
        """The size of a stored example in the memory of a TPU, in bytes.

        A TPU pads the last dimension of a tensor to a multiple of 128. Conditions are included.
        """

        def padded(size: int) -> int:
            return -(-size // _LANES) * _LANES

        conditions = padded(self.condition_size) * tf.float32.size
        return padded(int(np.prod(self.shape))) * self.dtype.size + conditions

    @property
    def row_spec(self) -> tf.TensorSpec:
        """The spec of a stored example as a row `[D]` in the memory of a device; see `to_rows`."""
        dtype = tf.uint8 if self.dtype == tf.uint16 else self.dtype
        return tf.TensorSpec([self.example_bytes // dtype.size], dtype)

    def to_rows(self, stored: tf.Tensor) -> tf.Tensor:
        """Returns stored examples `[B, *shape]` as rows `[B, D]` for the program of a device.

        uint16 becomes pairs of bytes, because not every device has variables of uint16.
        """
        rows = tf.reshape(stored, [stored.shape[0], -1])
        if self.dtype != tf.uint16:
            return rows
        return tf.reshape(tf.bitcast(rows, tf.uint8), [stored.shape[0], -1])

    def from_rows(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns rows of `to_rows` as examples `[B, *shape]`; uint16 becomes float32."""
        shape = [rows.shape[0], *self.shape]
        if self.dtype != tf.uint16:
            return tf.reshape(rows, shape)
        low, high = tf.unstack(tf.cast(tf.reshape(rows, [*shape, 2]), tf.float32), axis=-1)
        return low + 256.0 * high  # hosts are little-endian


def is_held(size: int, devices: DeviceSettings) -> bool:
    """Returns True if the examples of a dataset, of a size in bytes, are held in memory.

    For a remote TPU, it is everything that can be sent to it, because its machines cannot read the
    files of this one.
    """
    return size <= (MAX_SENT_BYTES if devices.on_remote_tpu else MAX_CACHE_BYTES)


def check_sent(origin: str, size: int, devices: DeviceSettings) -> None:
    """Raises UserError if examples in memory are more than can be sent to a remote TPU."""
    if devices.on_remote_tpu and size > MAX_SENT_BYTES:
        raise UserError(
            f"{origin} has {size / 2**30:.1f} GiB of examples in memory, which is more than can be "
            f"sent to --tpu={devices.tpu}",
            "give fewer, or run on the TPU VM with --tpu=local",
        )


def unreadable_stream(origin: str, devices: DeviceSettings, remedy: str) -> UserError:
    """Returns the error of examples that a remote TPU would have to read from this machine."""
    return UserError(
        f"{origin} is read during training because of its size, and the machines of "
        f"--tpu={devices.tpu} cannot read it on this machine",
        f"{remedy}, or run on the TPU VM with --tpu=local",
    )


class OpenedData(abc.ABC):
    """An endless sequence of shuffled examples, addressed by position.

    A position always holds the same example, and the position is a function of the iteration.
    Checkpoints therefore contain no reader state.

    Attributes:
      format: The form of the stored examples.
      size: The number of examples in an epoch. None if the examples are generated.
      kept: `[size]`, the indices of the examples in the whole dataset; None if they are all.
    """

    format: ExampleFormat
    size: int | None
    kept: np.ndarray | None = None

    @property
    def example_shape(self) -> tuple[int, ...]:
        """`(H, W, C)` for images, `(D,)` for points."""
        return self.format.shape

    def available(self, count: int) -> int:
        """Returns the number of different examples, or `count` if there are more."""
        return count if self.size is None else min(count, self.size)

    def part(self, chosen: np.ndarray) -> OpenedData:
        """Returns the data of the chosen examples `[size]` bool only.

        Raises:
          UserError: If the examples are not numbered.
        """
        raise UserError(
            "--holdout, which --augment=ada sets, applies only to data of a fixed number of "
            "examples",
            "give --holdout=0, and use --augment=diffaugment",
        )


@dataclasses.dataclass(frozen=True)
class UnreadData(OpenedData):
    """A dataset of which no example was read: only its properties are known.

    Attributes:
      format, size: See `OpenedData`.
      in_memory: Whether it is opened as StoredData.
    """

    format: ExampleFormat
    size: int
    in_memory: bool

    def part(self, chosen: np.ndarray) -> UnreadData:
        return dataclasses.replace(self, size=int(np.count_nonzero(chosen)))

    @property
    def examples(self) -> tf.Tensor:
        """A tensor like `StoredData.examples`, with undefined values, which takes no memory."""
        return tf.raw_ops.Empty(shape=[self.size, *self.format.shape], dtype=self.format.dtype)

    @property
    def labels(self) -> tf.Tensor:
        """A tensor like `StoredData.labels`, with undefined values."""
        spec = self.format.label_spec(self.size)
        return tf.raw_ops.Empty(shape=spec.shape.as_list(), dtype=spec.dtype)


class InMemoryData(OpenedData):
    """Examples that are held in memory or generated."""

    @abc.abstractmethod
    def read_stored(self, first: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the stored examples and labels at the positions `first` to `first + count - 1`.

        Args:
          first: The first position, scalar int64.
          count: The number of examples.

        Returns:
          Examples `[count, *example_shape]` of `format.dtype`, and labels `[count]` int32. Without
          classes, all labels are 0. With conditions, these `[count, K]` float32 are the labels.
        """

    def read(self, first: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns normalized examples, float32, and labels; otherwise like `read_stored`."""
        stored, labels = self.read_stored(first, count)
        return self.format.normalize(stored, first), labels


class StoredData(InMemoryData):
    """Examples that are held in memory; each epoch contains all of them once.

    Args:
      seed: The seed of the order.
      format: The form of `examples`.
      examples: `[N, *format.shape]`.
      labels: `[N]`, integers, or standardized conditions `[N, format.condition_size]`.

    Attributes:
      examples: `[N, *format.shape]` of `format.dtype`.
      labels: `[N]` int32, or conditions `[N, K]` float32.
    """

    size: int

    def __init__(self, seed: int, format: ExampleFormat, examples: np.ndarray, labels: np.ndarray):
        self._seed = seed
        self.format = format
        self.examples = tf.constant(examples, format.dtype)
        self.labels = tf.constant(labels, format.label_spec().dtype)
        self.size = len(examples)

    def part(self, chosen: np.ndarray) -> StoredData:
        examples, labels = self.examples.numpy()[chosen], self.labels.numpy()[chosen]
        part = StoredData(self._seed, self.format, examples, labels)
        part.kept = np.flatnonzero(chosen)
        return part

    def read_stored(self, first: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
        return self.gather(next(iter(self.indices(int(first), count))))

    def indices(self, first: int, count: int) -> tf.data.Dataset:
        """Returns the indices of the examples at all positions from `first` on; see `shuffled`."""
        return shuffled(self._seed, self.size, first, count)

    def gather(self, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the examples and the labels of `indices`."""
        return tf.gather(self.examples, indices), tf.gather(self.labels, indices)


class StreamedData(OpenedData):
    """Images that are read and decoded as needed."""

    size: int

    @abc.abstractmethod
    def encoded(self, first: int, count: int) -> tf.data.Dataset:
        """Returns an endless dataset of batches of `count` encoded images, from a position on.

        Batches are cheap to skip: a host drops the batches that other hosts decode.
        """

    @abc.abstractmethod
    def decode(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        """Decodes batches of `encoded`.

        Returns:
          A dataset of batches of any size: images `[B, H, W, C]` of `format.dtype`, and labels
          `[B]` int32 or standardized conditions `[B, K]` float32.
          It holds one image for each encoded image.
        """
