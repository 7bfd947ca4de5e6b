"""The input of a loop that runs on the device: the examples of many critic steps at once.

An element is the part of one replica, for one launch of the loop. If the dataset is held in the
memory of the device, an element contains only indices. Otherwise it contains stored examples,
which have a quarter of the size of normalized ones if they are images.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from .feed import (
    MAX_CACHE_BYTES,
    ExampleFormat,
    Examples,
    distribute,
    own_places,
    stored_batches,
    without_autotune,
)

# The largest element of one replica, unless a single iteration needs more. The host and the device
# each hold at most three elements for each replica: one in use and two that are prefetched.
MAX_ELEMENT_BYTES = 2**25
_NUMBER_BYTES = 4  # of an index, a label or a number of a condition
# (index of a critic step within the element, position of the replica's first example)
#     -> examples [B, *example_shape] float32, labels [B] int32, or conditions [B, K]
ReadExamples = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class LoopInput(abc.ABC):
    """The examples of `steps` critic steps of one replica.

    Args:
      format: The form of the stored examples.
      steps: The number of critic steps in an element.
      count: The number of examples of one replica in a critic step.

    Attributes:
      format, steps, count: As above.
    """

    def __init__(self, format: ExampleFormat, *, steps: int, count: int):
        self.format = format
        self.steps = steps
        self.count = count

    @property
    def resident(self) -> tuple[tf.Variable, ...]:
        """The variables that hold the examples in the memory of each device."""
        return ()

    @property
    @abc.abstractmethod
    def element_spec(self) -> Any:
        """The specs of the tensors of an element, which are a single tensor or a tuple."""

    @property
    @abc.abstractmethod
    def resident_bytes(self) -> int:
        """The size of the examples and labels in the memory of each device, without padding."""

    @abc.abstractmethod
    def reader(self, element: Any) -> ReadExamples:
        """Returns a function that reads the examples of a critic step from an element.

        It is called in a replica context.
        """

    @abc.abstractmethod
    def dataset(
        self,
        data: Examples,
        context: tf.distribute.InputContext,
        first_step: int,
    ) -> tf.data.Dataset:
        """Returns one host's endless dataset of elements: one for each of its replicas in turn.

        Args:
          data: The opened dataset.
          context: The index of this host and the number of hosts and replicas.
          first_step: The critic step to start with.
        """

    @property
    def element_bytes(self) -> int:
        """The size of an element in bytes."""
        return sum(
            spec.shape.num_elements() * spec.dtype.size
            for spec in tf.nest.flatten(self.element_spec)
        )

    def distributed_elements(
        self,
        data: Examples,
        strategy: tf.distribute.Strategy,
        first_step: int,
    ) -> Iterator:
        """Returns an endless iterator over elements, one for each replica at a time."""
        return distribute(
            strategy,
            lambda context: without_autotune(self.dataset(data, context, first_step).prefetch(2)),
        )


class ResidentExamples(LoopInput):
    """Examples in the memory of each device; an element is indices `[steps, count]` int32.

    Args:
      strategy: Places a copy on each device.
      examples: `[N, *format.shape]` of `format.dtype`.
      labels: `[N]` int32, or conditions `[N, K]` float32.
      format, steps, count: See `LoopInput`.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        examples: tf.Tensor,
        labels: tf.Tensor,
        format: ExampleFormat,
        *,
        steps: int,
        count: int,
    ):
        super().__init__(format, steps=steps, count=count)
        with strategy.scope():
            # As rows, because a TPU pads the last two dimensions of a tensor.
            self._rows = tf.Variable(format.to_rows(examples), trainable=False)
            # As float32, because TensorFlow keeps int32 variables in the memory of the host, and
            # float32 represents every label: there are at most a million classes.
            self._labels = tf.Variable(tf.cast(labels, tf.float32), trainable=False)

    @property
    def resident(self) -> tuple[tf.Variable, ...]:
        return self._rows, self._labels

    @property
    def element_spec(self) -> tf.TensorSpec:
        return tf.TensorSpec([self.steps, self.count], tf.int32)

    @property
    def resident_bytes(self) -> int:
        return _bytes_of(self._rows) + _bytes_of(self._labels)

    def reader(self, element: tf.Tensor) -> ReadExamples:
        # Read outside the loop, where XLA would otherwise carry the variables along.
        rows, labels = (tf.convert_to_tensor(each) for each in (self._rows, self._labels))

        def read(step: tf.Tensor, first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            indices = tf.gather(element, step)
            stored = self.format.from_rows(tf.gather(rows, indices))
            examples = self.format.normalize(stored, first)
            return examples, tf.cast(tf.gather(labels, indices), self.format.label_spec().dtype)

        return read

    def dataset(
        self,
        data: Examples,
        context: tf.distribute.InputContext,
        first_step: int,
    ) -> tf.data.Dataset:
        assert data.held
        steps = own_places(data, context, self.count, first_step)
        by_step = steps.batch(self.steps, drop_remainder=True)
        return by_step.map(
            lambda indices: tf.cast(tf.transpose(indices, [1, 0, 2]), tf.int32)
        ).unbatch()


class StackedExamples(LoopInput):
    """Examples that the host sends: `[steps, count, D]`, rows of examples, and labels int32."""

    resident_bytes = 0

    @property
    def element_spec(self) -> tuple[tf.TensorSpec, tf.TensorSpec]:
        row = self.format.row_spec
        return (
            tf.TensorSpec([self.steps, self.count, *row.shape], row.dtype),
            self.format.label_spec(self.steps, self.count),
        )

    def reader(self, element: tuple[tf.Tensor, tf.Tensor]) -> ReadExamples:
        rows, labels = element

        def read(step: tf.Tensor, first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            stored = self.format.from_rows(tf.gather(rows, step))
            return self.format.normalize(stored, first), tf.gather(labels, step)

        return read

    def dataset(
        self,
        data: Examples,
        context: tf.distribute.InputContext,
        first_step: int,
    ) -> tf.data.Dataset:
        local = context.num_replicas_in_sync // context.num_input_pipelines
        specs = self.element_spec

        @tf.autograph.experimental.do_not_convert
        def split(*parts: tf.Tensor) -> tuple[tf.Tensor, ...]:
            """Splits the batches of `steps` critic steps over the replicas of this host."""
            elements = []
            for part, spec in zip(parts, specs, strict=True):
                by_step = tf.reshape(part, [self.steps, local, *spec.shape[1:]])
                elements.append(tf.stack(tf.unstack(by_step, axis=1)))
            return tuple(elements)

        batches = stored_batches(data, context, self.count, first_step)
        return batches.batch(self.steps * local, drop_remainder=True).map(split).unbatch()


def is_resident(data: Examples) -> bool:
    """Returns True if the device loop should hold a dataset in the memory of each device.

    MAX_CACHE_BYTES is an eighth of the smallest memory of a TPU core.

    Args:
      data: The dataset, which need not have been read.
    """
    return data.held and (data.size or 0) * data.format.tpu_bytes <= MAX_CACHE_BYTES


def open_loop_input(
    data: Examples,
    strategy: tf.distribute.Strategy,
    *,
    batch_size: int,
    n_critic: int,
    steps_per_loop: int,
    resident: bool,
) -> LoopInput:
    """Returns the input of the device loop, and copies the dataset to the devices if configured.

    An element holds as many iterations as MAX_ELEMENT_BYTES allow, but at least one. Their number
    divides `steps_per_loop`, so that each loop starts with a new element.

    Args:
      data: The dataset. If it has not been read, the input can be compiled but not used.
      strategy: The strategy of the run.
      batch_size: The global batch size.
      n_critic: The number of critic steps in an iteration.
      steps_per_loop: The number of iterations in a loop.
      resident: Whether to hold the dataset in the memory of each device; see `is_resident`.
    """
    count = batch_size // strategy.num_replicas_in_sync
    example_bytes = _NUMBER_BYTES
    if not resident:
        example_bytes = (
            _NUMBER_BYTES * max(1, data.format.condition_size) + data.format.example_bytes
        )
    most = max(1, MAX_ELEMENT_BYTES // (n_critic * count * example_bytes))
    iterations = max(
        divisor
        for divisor in range(1, min(most, steps_per_loop) + 1)
        if steps_per_loop % divisor == 0
    )
    sizes = {"steps": iterations * n_critic, "count": count}
    if resident:
        return ResidentExamples(strategy, *data.stored, data.format, **sizes)
    return StackedExamples(data.format, **sizes)


def _bytes_of(tensor: tf.TensorSpec | tf.Variable) -> int:
    return tensor.shape.num_elements() * tensor.dtype.size
