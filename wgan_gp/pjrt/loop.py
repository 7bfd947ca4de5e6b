"""The loop of a run on the devices of jax, in whose memory the state of training stays."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import tensorflow as tf
from absl import logging
from jax.sharding import NamedSharding, PartitionSpec

from ..data.feed.loop_input import LoopInput
from ..data.opened_data import InMemoryData, StreamedData
from ..errors import UserError, reason
from ..training.loop import DeviceStateLoop, LoopOutput, Totals, finish, initial_totals
from ..training.step import ReplicaStep
from . import client, lowering
from .slice_strategy import SliceStrategy

_PREFETCHED = 2  # elements that the host prepares while the devices compute


class _Profiler:
    """The profiler of jax, with the method names of TensorFlow's."""

    start = staticmethod(jax.profiler.start_trace)
    stop = staticmethod(jax.profiler.stop_trace)


class PjrtLoop(DeviceStateLoop):
    """A loop whose launches are executions of one compiled program.

    The state of training is in one place at a time: before the first loop and after `pull` in the
    variables of TensorFlow, and from the next loop on in the memory of the devices. Each launch
    overwrites it there.

    Args:
      step: The updates of one replica. Its variables are on the host.
      loop_input: The input of the loop, opened under a `SliceStrategy` of all replicas.
      devices: The devices of jax, one for each replica.
    """

    profiler = _Profiler

    def __init__(
        self, step: ReplicaStep, loop_input: LoopInput, devices: Sequence[jax.Device]
    ) -> None:
        self._step = step
        self._input = loop_input
        self._replicas = len(devices)
        self._iterations_per_launch = loop_input.steps // step.optimization.n_critic
        program, specs = lowering.make_replica_program(
            step, SliceStrategy(self._replicas), loop_input
        )
        began = time.perf_counter()
        logging.info(f"compiling the loop for {self._replicas} x {devices[0].device_kind}")
        hlo = _lower(program, specs)
        with _explaining("XLA cannot compile the loop"):
            self._program = client.Program(hlo, devices)
        logging.info(f"ready after {time.perf_counter() - began:.0f} s")
        self._captured = lowering.captured_values(program, *specs)
        self._count = len(program.get_concrete_function(*specs).outputs)
        self._overwritten = {
            result: parameter - len(specs)
            for result, parameter in client.overwritten_parameters(hlo).items()
        }
        mesh = jax.sharding.Mesh(np.array(devices), "replica")
        self._of_each = NamedSharding(mesh, PartitionSpec("replica"))
        self._same = NamedSharding(mesh, PartitionSpec())
        self._state: list[jax.Array] | None = None
        self._data: dict[int, jax.Array] = {}  # resident examples, which do not change
        self._was_compared = False

    def batches(self, data: InMemoryData | StreamedData, first_step: int) -> Iterator:
        """Returns an endless iterator over the input from a critic step on.

        The next loop starts with the values of the variables of TensorFlow.
        """
        self._state = None
        context = tf.distribute.InputContext(num_replicas_in_sync=self._replicas)
        elements = self._input.dataset(data, context, first_step)
        return iter(
            elements.batch(self._replicas, drop_remainder=True)
            .prefetch(_PREFETCHED)
            .as_numpy_iterator()
        )

    def __call__(self, elements: Iterator, iterations: tf.Tensor) -> LoopOutput:
        with _explaining("the devices cannot run the loop"):
            return self._run(elements, iterations)

    def _run(self, elements: Iterator, iterations: tf.Tensor) -> LoopOutput:
        """Launches the program as often as the iterations require."""
        first = int(self._step.state.iteration.numpy())
        rollbacks = int(self._step.state.rollbacks.numpy())
        state = self._push() if self._state is None else self._state
        results: list[list[jax.Array]] = []
        waited, done, count = 0.0, 0, int(iterations)
        while done < count:
            if results:  # tf.data prepares the next elements at the same time
                jax.block_until_ready(results[-1])
            began = time.perf_counter()
            element = next(elements)
            waited += time.perf_counter() - began
            launched = min(self._iterations_per_launch, count - done)
            arguments = [
                *self._put_element(element),
                *self._put([np.int64(each) for each in (first + done, launched, rollbacks)]),
            ]
            outputs = self._program.run([*arguments, *state])
            assert len(outputs) == self._count + len(self._overwritten), "an update would be lost"
            results.append([shard for shards in outputs[: self._count] for shard in shards])
            for result, parameter in self._overwritten.items():
                state[parameter] = jax.make_array_from_single_device_arrays(
                    outputs[result][0].shape, self._same, outputs[result]
                )
            done += launched
        self._state = state
        return finish(
            self._step,
            self._sum(results),
            waited=tf.constant(waited, tf.float64),
            iterations=iterations,
        )

    def pull(self) -> None:
        if self._state is None:
            return
        if not self._was_compared:
            self._was_compared = True
            self._warn_of_differences()
        for parameter in self._overwritten.values():
            value = self._state[parameter].addressable_shards[0].data
            self._captured[parameter].assign(np.asarray(value))
        self._state = None

    def _warn_of_differences(self) -> None:
        """Warns if a variable is not the same on all devices, as the first device's is saved."""
        assert self._state is not None
        for parameter in self._overwritten.values():
            first, *others = (
                np.asarray(shard.data) for shard in self._state[parameter].addressable_shards
            )
            if not all(np.array_equal(first, other, equal_nan=True) for other in others):
                logging.warning(
                    f"{self._captured[parameter].name} is not the same on all devices, and only "
                    "that of the first is kept: with batch normalization, set synchronized=True"
                )

    def _push(self) -> list[jax.Array]:
        """Returns the values of the variables, on every device."""
        for index, variable in enumerate(self._captured):
            if any(variable is each for each in self._input.resident) and index not in self._data:
                self._data[index] = self._put([variable.numpy()])[0]
        return [
            self._data[index]
            if index in self._data
            else self._put([np.asarray(tf.convert_to_tensor(each))])[0]
            for index, each in enumerate(self._captured)
        ]

    def _put(self, values: Sequence[Any]) -> list[jax.Array]:
        """Copies values to every device."""
        with jax.enable_x64(True):  # iterations are counted in 64 bits
            return [jax.device_put(each, self._same) for each in values]

    def _put_element(self, element: Any) -> list[jax.Array]:
        """Copies the parts `[replicas, ...]` of an element to their devices."""
        with jax.enable_x64(True):
            return [
                jax.device_put(part.reshape(-1, *part.shape[2:]), self._of_each)
                for part in tf.nest.flatten(element)
            ]

    def _sum(self, results: list[list[jax.Array]]) -> Totals:
        """Returns the totals over all replicas, given what each launch returned."""
        totals = [each.numpy() for each in tf.nest.flatten(initial_totals(self._step))]
        for shards in results:
            parts = np.array_split(np.arange(len(shards)), len(totals))
            for index, part in enumerate(parts):
                values = np.stack([np.asarray(shards[each]) for each in part])
                totals[index] = (
                    np.minimum(totals[index], values.min(axis=0))
                    if totals[index].dtype == np.int64
                    else totals[index] + values.sum(axis=0, dtype=np.float32)
                )
        return Totals(*map(tf.constant, totals))


def _lower(program: Any, specs: Sequence[tf.TensorSpec]) -> bytes:
    """Returns the HLO of the loop.

    Raises:
      UserError: If it contains an operation that XLA cannot compile.
    """
    try:
        return lowering.lower_to_hlo(program, *specs)
    except Exception as error:  # TensorFlow raises exceptions of many types
        raise UserError(
            f"XLA cannot compile the loop ({reason(error)})",
            "replace the operation, or give --runtime=tensorflow",
        ) from error


@contextlib.contextmanager
def _explaining(what: str) -> Iterator[None]:
    """Raises a UserError in place of an error of the compiler or of a device."""
    try:
        yield
    except client.RuntimeFailure as error:
        raise UserError(
            f"{what} ({reason(error)})",
            "if it is short of memory, use a smaller --batch_size or --model_width",
        ) from error
