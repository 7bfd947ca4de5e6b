"""Feeds each replica its slice of every global batch, from a source in a fixed order.

Position p is place p % N of epoch p // N, where N is the number of examples. Each epoch has a new
random order, which is a function of (seed, epoch), so that a position always holds the same
example, on every machine. The position is a function of the iteration, so checkpoints contain no
reader state.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..config import DataSettings, DeviceSettings
from ..errors import UserError
from ..runtime.tensorflow_patches import no_autotune_of_copies
from .pipeline_errors import reporting
from .pixels import flip
from .source import Source
from .spec import DataSpec

# The largest dataset that is held in memory. It does not depend on this machine's
# memory, because a run must read the same order on every machine.
MAX_CACHE_BYTES = 2**30
# The largest tensor that can be sent to the machines of a remote TPU. For larger tensors, gRPC
# aborts the process.
MAX_SENT_BYTES = 2**31 - 2**20
_LANES = 128
_LOADED_BYTES = 2**24  # of the examples that are read into memory at a time
_PARALLEL_SPANS = 64  # single examples in a bucket, where each waits for an answer
_SPAN_BATCH = 64
# One call of Python reads several batches, because it opens the files, and waits for Python's lock.
_CHUNK_BYTES = 2**23
_CHUNK_BATCHES = 64
_PARALLEL_CHUNKS = 4
# The dtypes that the infeed of a TPU supports.
_INFEED_DTYPES = (tf.float32, tf.int32, tf.bfloat16, tf.bool)


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

    @classmethod
    def of(cls, source: Source, settings: DataSettings) -> ExampleFormat:
        """Returns the form of the examples of a source.

        Args:
          source: The source.
          settings: The seed, --dequantization and --random_flips.
        """
        spec = source.spec
        size = 0 if spec.conditions is None else spec.conditions.size
        return cls(spec.example_shape, tf.as_dtype(source.dtype), _normalizer(spec, settings), size)

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


def _normalizer(
    spec: DataSpec, settings: DataSettings
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    if spec.units is not None:
        return functools.partial(spec.units.normalize_stored, settings)
    if len(spec.example_shape) >= 3:
        return functools.partial(flip, settings)
    return lambda examples, _: examples


def is_held(size: int, devices: DeviceSettings) -> bool:
    """Returns True if the examples of a dataset, of a size in bytes, are held in memory.

    For a remote TPU, it is everything that can be sent to it, because its machines cannot read the
    files of this one.
    """
    return size <= (MAX_SENT_BYTES if devices.on_remote_tpu else MAX_CACHE_BYTES)


class Examples:
    """Examples of a source, addressed by their positions.

    Args:
      source: The source, whose examples are decoded.
      settings: The seed of the order, --dequantization and --random_flips.
      devices: The devices that receive the examples.
      chosen: The indices of the examples that are used, some even repeatedly; None for all.
      labels: The labels of these; None for those of the source.
      unread: Whether only the properties of the examples are needed, to compile a program.

    Attributes:
      source, chosen: As above.
      format: The form of the stored examples.
      size: The number of examples in an epoch. None if they are endless.
      held: Whether all examples are held in memory.
      labels: `[size]` labels or standardized conditions `[size, K]`; None if they are endless.

    Raises:
      UserError: If the examples cannot be read, or not by the machines of a remote TPU.
    """

    def __init__(
        self,
        source: Source,
        settings: DataSettings,
        *,
        devices: DeviceSettings | None = None,
        chosen: np.ndarray | None = None,
        labels: np.ndarray | None = None,
        unread: bool = False,
    ):
        devices = devices or DeviceSettings()
        self.source, self.chosen = source, chosen
        self.format = ExampleFormat.of(source, settings)
        self.size = source.size if chosen is None else len(chosen)
        self._seed, self._is_remote = settings.seed, devices.on_remote_tpu
        size = (source.size or 0) * self.format.example_bytes
        self.held = source.is_numbered and is_held(size, devices)
        # `Source.count` checked where pictures will be; rows of a table are always on this machine.
        is_later = unread and source.read is None and source.spec.table is None
        if devices.on_remote_tpu and not (self.held or source.spans or source.draw or is_later):
            raise unreadable_stream(source.origin, devices)
        self.labels = self._labels(labels) if source.is_numbered and not unread else None
        self._stored: tuple[tf.Tensor, tf.Tensor] | None = None
        if self.held and not unread:
            stored, spec = _load(source), self.format.label_spec()
            stored = stored if chosen is None else stored[chosen]
            self._stored = (
                tf.constant(stored, self.format.dtype),
                tf.constant(self.labels, spec.dtype),
            )

    def _labels(self, given: np.ndarray | None) -> np.ndarray:
        if given is not None:
            return given
        if self.source.labels is None:
            return np.zeros(self.format.label_spec(self.size).shape, np.int32)
        return self.source.labels if self.chosen is None else self.source.labels[self.chosen]

    @property
    def stored(self) -> tuple[tf.Tensor, tf.Tensor]:
        """All examples `[size, *shape]` and their labels, if they are held in memory.

        Those of unread examples are undefined, and take no memory.
        """
        if self._stored is None:
            spec = self.format.label_spec(self.size)
            examples = tf.raw_ops.Empty(
                shape=[self.size, *self.format.shape], dtype=self.format.dtype
            )
            return examples, tf.raw_ops.Empty(shape=spec.shape.as_list(), dtype=spec.dtype)
        return self._stored

    def available(self, count: int) -> int:
        """Returns the number of different examples, or `count` if there are more."""
        stream = self.source.stream
        if stream is not None and stream.cardinality() == tf.data.UNKNOWN_CARDINALITY:
            # The length of a generator is only known at its end.
            return int(stream.take(count).reduce(np.int64(0), lambda number, *_: number + 1))
        return count if self.size is None else min(count, self.size)

    def read(self, count: int, first: int = 0) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns normalized examples at `count` positions from `first` on, and their labels."""
        batches = self.fetch(self.places(first, count)).rebatch(count, drop_remainder=True)
        examples, labels = next(iter(without_autotune(batches)))
        return self.format.normalize(examples, tf.constant(first, tf.int64)), labels

    def places(self, first: int, count: int) -> tf.data.Dataset:
        """Returns what `fetch` needs for all positions from `first` on, in batches of `count`.

        It is cheap: the indices of examples, `[count]` int64, or the elements of a stream. This is
        the only definition of which example stands at which position.
        """
        if self.source.stream is not None:
            return self.source.stream.repeat().skip(first).batch(count, drop_remainder=True)
        if self.size is None:
            begins = tf.data.Dataset.range(first, tf.int64.max, count)
            return begins.map(lambda begin: begin + tf.range(count, dtype=tf.int64))
        order = shuffled(self._seed, self.size, first, count)
        if self.chosen is None or self.held:
            return order
        indices = tf.constant(self.chosen, tf.int64)
        return order.map(lambda places: tf.gather(indices, places))

    def fetch(self, places: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the stored examples and the labels of batches of `places`.

        Returns:
          A dataset of batches of any size: `[B, *shape]` of `format.dtype`, and labels `[B]` int32
          or conditions `[B, K]` float32.
        """
        if self.source.stream is not None:
            return places
        if self.held:
            examples, labels = self.stored
            return places.map(
                lambda indices: (tf.gather(examples, indices), tf.gather(labels, indices))
            )
        draw = self.source.draw
        if draw is not None:
            return places.map(lambda positions: draw(positions[0], positions.shape[0]))
        return self._fetch_spans(places) if self._is_remote else self._fetch_rows(places)

    def _fetch_rows(self, places: tf.data.Dataset) -> tf.data.Dataset:
        """Reads examples in Python, on this machine."""
        label_spec = self.format.label_spec(None)
        dtype, labels = label_spec.dtype.as_numpy_dtype, self.source.labels
        read_examples = self.source.read
        assert read_examples is not None

        @reporting
        def read(indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            found = np.zeros(indices.shape, dtype) if labels is None else labels[indices]
            return read_examples(indices), found.astype(dtype)

        def read_batch(indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            examples, labels = tf.numpy_function(
                read, [indices], [self.format.dtype, label_spec.dtype], stateful=False
            )
            examples = tf.ensure_shape(examples, [None, *self.format.shape])
            return examples, tf.ensure_shape(labels, label_spec.shape)

        count = places.element_spec.shape[0]
        group = min(_CHUNK_BATCHES, _CHUNK_BYTES // max(1, count * self.format.example_bytes))
        chunks = places.rebatch(group * count) if group > 1 else places
        return chunks.map(read_batch, num_parallel_calls=_PARALLEL_CHUNKS, deterministic=True)

    def _fetch_spans(self, places: tf.data.Dataset) -> tf.data.Dataset:
        """Reads examples in TensorFlow, also on machines that run no Python: a remote TPU's."""
        size, spans = self.format.example_bytes, self.source.spans
        paths = tf.constant([span.path for span in spans])
        begins = tf.constant([span.begin for span in spans], tf.int64)
        counts = tf.constant([span.size for span in spans], tf.int64)
        ends = tf.cumsum(counts)
        spec = self.format.label_spec(self.source.size)
        known = np.zeros(spec.shape) if self.source.labels is None else self.source.labels
        labels = tf.constant(known, spec.dtype)

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

        contents = places.unbatch().interleave(
            content_of,
            cycle_length=_PARALLEL_SPANS,
            block_length=1,
            num_parallel_calls=_PARALLEL_SPANS,
            deterministic=True,
        )
        return contents.batch(_SPAN_BATCH).map(parse)


def unreadable_stream(
    origin: str, devices: DeviceSettings, remedy: str = "give fewer examples"
) -> UserError:
    """Returns the error of examples that a remote TPU would have to read from this machine."""
    return UserError(
        f"{origin} is read during training because of its size, and the machines of "
        f"--tpu={devices.tpu} cannot read it on this machine",
        f"{remedy}, or run on the TPU VM with --tpu=local",
    )


def _load(source: Source) -> np.ndarray:
    """Returns all stored examples of a source, which are read in order."""
    assert source.read is not None and source.size is not None
    shape = source.spec.example_shape
    examples = np.empty([source.size, *shape], source.dtype)
    step = max(1, _LOADED_BYTES // max(1, examples[:1].nbytes))
    for first in range(0, source.size, step):
        examples[first : first + step] = source.read(slice(first, first + step))
    return examples


def epoch_order(seed: int, epoch: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the examples of an epoch in their order: `[size]` int64, a permutation.

    Call it inside tf.data, whose operations run on a CPU: TensorFlow promises one result for all
    CPUs, but not for all devices.

    Args:
      seed: The seed in [0, 2^31).
      epoch: The number of the epoch, scalar int64.
      size: The number of examples, >= 1.
    """
    key = tf.stack([tf.constant(seed, tf.int64), epoch])
    examples = tf.range(size, dtype=tf.int64)
    return tf.random.experimental.stateless_shuffle(examples, key, alg="philox")


def shuffled(seed: int, size: int, first: int, count: int) -> tf.data.Dataset:
    """Returns the examples at all positions from `first` on, in batches of `count`.

    At most two epochs are in memory: that which is read and the next one. An epoch of 1.28 million
    examples takes half a second and 10 MB.

    Args:
      seed: The seed, see `epoch_order`.
      size: The number of examples.
      first: The first position.
      count: The number of positions in a batch, which may span epochs.

    Returns:
      An endless dataset of indices `[count]` int64, in [0, size).
    """
    begin, place = divmod(first, size)

    def rest_of(epoch: tf.Tensor) -> tf.Tensor:
        skipped = tf.where(epoch == begin, tf.constant(place, tf.int64), 0)
        return epoch_order(seed, epoch, size)[skipped:]

    epochs = tf.data.Dataset.range(begin, tf.int64.max)
    return epochs.map(rest_of).prefetch(1).rebatch(count, drop_remainder=True)


def distributed_batches(
    data: Examples, strategy: tf.distribute.Strategy, first_step: int, *, batch_size: int
) -> Iterator:
    """Returns an endless iterator over global batches and their labels, split over the replicas.

    It yields one batch for each critic step.

    Args:
      data: The examples.
      strategy: The strategy whose replicas are fed.
      first_step: The critic step to start with.
      batch_size: The global batch size; must be divisible by the number of replicas.
    """
    return distribute(
        strategy,
        lambda context: replica_batches(
            data, context, batch_size=batch_size, first_step=first_step
        ),
    )


def distribute(
    strategy: tf.distribute.Strategy,
    make_dataset: Callable[[tf.distribute.InputContext], tf.data.Dataset],
) -> Iterator:
    """Returns an iterator over each host's dataset, with one element for each replica at a time."""
    with no_autotune_of_copies():
        return iter(strategy.distribute_datasets_from_function(make_dataset))


def replica_batches(
    data: Examples, context: tf.distribute.InputContext, *, batch_size: int, first_step: int
) -> tf.data.Dataset:
    """Returns one host's endless dataset of batches for its replicas.

    Critic step s reads the positions s * batch_size ... (s + 1) * batch_size - 1, and
    replica r reads the r-th slice of them, for any number of replicas and hosts.

    Args:
      data: The examples.
      context: The index of this host and the number of hosts and replicas.
      batch_size: The global batch size; must be divisible by the number of replicas.
      first_step: The critic step to start with.

    Returns:
      A dataset of pairs of static shape, `[batch_size / replicas, *example_shape]` float32 and
      labels int32, or conditions `[batch_size / replicas, K]` float32. For each step in turn, it
      has one batch for each replica of this host.

    Raises:
      UserError: If the dtype or the shape of the batches is not supported by a TPU.
    """
    count = context.get_per_replica_batch_size(batch_size)
    batches = _batches(data, context, count, first_step, data.format.normalize)
    check_elements(batches.element_spec)
    return without_autotune(batches.prefetch(tf.data.AUTOTUNE))


def stored_batches(
    data: Examples, context: tf.distribute.InputContext, count: int, first_step: int
) -> tf.data.Dataset:
    """Returns one host's endless dataset of rows of examples, `[count, D]`, and labels int32.

    See `replica_batches` for the order and the arguments.
    """
    return _batches(data, context, count, first_step, lambda stored, _: data.format.to_rows(stored))


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset without autotuning, which would delay the end of an iterator.

    An iterator ends only after the tuner's next iteration, and the intervals between these double
    up to a minute. The slow operations of this package are parallel without the tuner.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def _batches(
    data: Examples,
    context: tf.distribute.InputContext,
    count: int,
    first_step: int,
    normalize: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
) -> tf.data.Dataset:
    """Returns batches of `count` examples for the replicas of this host."""
    labels_shape = data.format.label_spec(count).shape

    @tf.autograph.experimental.do_not_convert  # it has no control flow, and conversion is slow
    def batch(index: tf.Tensor, content: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        examples, labels = content
        first = slice_index(context, first_step, index) * count
        examples = tf.ensure_shape(examples, [count, *data.format.shape])
        return normalize(examples, first), tf.ensure_shape(labels, labels_shape)

    fetched = data.fetch(own_places(data, context, count, first_step).unbatch())
    if tf.nest.flatten(fetched.element_spec)[0].shape[0] != count:
        fetched = fetched.rebatch(count, drop_remainder=True)
    batches = fetched.enumerate().map(
        batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    if context.num_input_pipelines == 1:
        return batches
    # TensorFlow cannot derive it. Several machines would otherwise agree before every batch whether
    # it is the last, smaller one, and batches would have no static shape.
    return batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))


def own_places(
    data: Examples, context: tf.distribute.InputContext, count: int, first_step: int
) -> tf.data.Dataset:
    """Returns the places of each critic step for the replicas of this host.

    Returns:
      A dataset of `places` of a shape that begins with `[replicas of this host, count]`, one
      element for each step.
    """
    replicas = context.num_replicas_in_sync
    local = replicas // context.num_input_pipelines
    begin = context.input_pipeline_id * local
    batch_size = replicas * count

    def own(places: tf.Tensor) -> tf.Tensor:
        return tf.reshape(places, [replicas, count, *places.shape[1:]])[begin : begin + local]

    places = data.places(first_step * batch_size, batch_size)
    return places.map(
        lambda *parts: tf.nest.map_structure(own, parts if len(parts) > 1 else parts[0])
    )


def slice_index(
    context: tf.distribute.InputContext, first_step: int | tf.Tensor, index: tf.Tensor
) -> tf.Tensor:
    """Returns the index of this host's `index`-th slice among all slices of all steps."""
    replicas = context.num_replicas_in_sync
    local = replicas // context.num_input_pipelines
    step = first_step + index // local
    return step * replicas + context.input_pipeline_id * local + index % local


def check_elements(spec: Any) -> None:
    """Raises UserError unless a TPU supports the dtypes and shapes of the elements of a dataset.

    TensorFlow would raise an error about the compiled program, minutes later.
    """
    for part in tf.nest.flatten(spec):
        if part.dtype not in _INFEED_DTYPES:
            raise UserError(
                f"the dataset yields {part.dtype.name}, which a TPU does not support: {part}",
                "cast it to float32 or int32 in wgan_gp/data/",
            )
        if not part.shape.is_fully_defined():
            raise UserError(
                f"the dataset yields batches without a fixed shape: {part}",
                "resize its images and drop incomplete batches, in wgan_gp/data/",
            )
