"""The loop of a run on the devices of jax, in whose memory the state of training stays."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import tensorflow as tf
from absl import logging
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from ..data.feed import Examples, without_autotune
from ..data.loop_input import LoopInput
from ..errors import UserError, reason
from ..training.loop import DeviceStateLoop, LoopOutput, Totals, finish, initial_totals
from ..training.step import ReplicaStep
from . import client, lowering, processes

_REPORT_SECONDS = 30
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
      devices: The devices of jax, one for each replica; those of the first process are first.
    """

    profiler = _Profiler

    def __init__(
        self, step: ReplicaStep, loop_input: LoopInput, devices: Sequence[jax.Device]
    ) -> None:
        self._step = step
        self._input = loop_input
        self._replicas = len(devices)
        self._local_replicas = self._replicas // jax.process_count()
        self._iterations_per_launch = loop_input.steps // step.optimization.n_critic
        with (
            _announcing(f"compiling the loop for {self._replicas} x {devices[0].device_kind}"),
            _explaining("XLA cannot compile the loop"),
        ):
            self._loop = lowering.lower_loop(step, loop_input, self._replicas)
            self._program = client.Program(self._loop.hlo, devices)
        mesh = jax.sharding.Mesh(np.array(devices), "replica")
        self._of_each = NamedSharding(mesh, PartitionSpec("replica"))
        self._same = NamedSharding(mesh, PartitionSpec())
        self._state: list[jax.Array] | None = None
        self._data: dict[int, jax.Array] | None = None  # resident examples, which do not change
        self._was_compared = False

    def batches(self, data: Examples, first_step: int) -> Iterator:
        """Returns an endless iterator over the input from a critic step on.

        The next loop starts with the values of the variables of TensorFlow.
        """
        self._state = None
        context = tf.distribute.InputContext(
            num_input_pipelines=jax.process_count(),
            input_pipeline_id=jax.process_index(),
            num_replicas_in_sync=self._replicas,
        )
        elements = self._input.dataset(data, context, first_step)
        batches = elements.batch(self._local_replicas, drop_remainder=True).prefetch(_PREFETCHED)
        return iter(without_autotune(batches).as_numpy_iterator())

    def __call__(self, elements: Iterator, iterations: tf.Tensor) -> LoopOutput:
        with _explaining("the devices cannot run the loop"):
            return self._run(elements, iterations)

    def _run(self, elements: Iterator, iterations: tf.Tensor) -> LoopOutput:
        """Launches the program as often as the iterations require."""
        first = int(self._step.state.iteration.numpy())
        rollbacks = int(self._step.state.rollbacks.numpy())
        state = self._push() if self._state is None else self._state
        results: list[list[list[jax.Array]]] = []
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
            count_of_results, replaced = self._loop.results, self._loop.replaced
            assert len(outputs) == count_of_results + len(replaced), "an update would be lost"
            results.append(outputs[:count_of_results])
            for result, place in replaced.items():
                state[place] = jax.make_array_from_single_device_arrays(
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
        for place in self._loop.replaced.values():
            value = self._state[place].addressable_shards[0].data
            self._loop.captured[place].assign(np.asarray(value))
        self._state = None

    def _warn_of_differences(self) -> None:
        """Warns if a variable is not the same on all devices, as the first device's is saved."""
        assert self._state is not None
        for place in self._loop.replaced.values():
            first, *others = (
                np.asarray(shard.data) for shard in self._state[place].addressable_shards
            )
            if not all(np.array_equal(first, other, equal_nan=True) for other in others):
                logging.warning(
                    f"{self._loop.captured[place].name} is not the same on all devices, and only "
                    "that of the first is kept: with batch normalization, set synchronized=True"
                )

    def _push(self) -> list[jax.Array]:
        """Returns the values of the variables, on every device."""
        captured = self._loop.captured
        if self._data is None:
            resident = set(map(id, self._input.resident))
            places = [place for place, each in enumerate(captured) if id(each) in resident]
            data = self._put([captured[place].numpy() for place in places])
            self._data = dict(zip(places, data, strict=True))
        state = {
            place: np.asarray(tf.convert_to_tensor(each))
            for place, each in enumerate(captured)
            if place not in self._data
        }
        arrays = self._data | dict(zip(state, self._put(list(state.values())), strict=True))
        return [arrays[place] for place in range(len(captured))]

    def _put(self, values: Sequence[Any]) -> list[jax.Array]:
        """Copies values to every device."""
        with jax.enable_x64(True):  # iterations are counted in 64 bits
            return [_put(self._same, each, each.shape) for each in values]

    def _put_element(self, element: Any) -> list[jax.Array]:
        """Copies the parts `[replicas, ...]` of an element to their devices."""
        with jax.enable_x64(True):
            return [
                _put(
                    self._of_each,
                    part.reshape(-1, *part.shape[2:]),
                    (self._replicas * part.shape[1], *part.shape[2:]),
                )
                for part in tf.nest.flatten(element)
            ]

    def _sum(self, results: list[list[list[jax.Array]]]) -> Totals:
        """Returns the totals over all replicas, given what each launch returned."""
        totals = [each.numpy() for each in tf.nest.flatten(initial_totals(self._step))]
        launches = [
            [np.stack(list(map(np.asarray, shards))) for shards in each] for each in results
        ]
        if jax.process_count() > 1:
            with jax.enable_x64(True):
                launches = multihost_utils.process_allgather(launches, tiled=True)
        for launch in launches:
            for index, values in enumerate(launch):
                totals[index] = (
                    np.minimum(totals[index], values.min(axis=0))
                    if totals[index].dtype == np.int64
                    else totals[index] + values.sum(axis=0, dtype=np.float32)
                )
        return Totals(*map(tf.constant, totals))


def _put(sharding: NamedSharding, values: Any, shape: tuple[int, ...]) -> jax.Array:
    """Returns an array of all processes, given the part of this one."""
    return jax.make_array_from_process_local_data(sharding, values, shape)


@contextlib.contextmanager
def _announcing(what: str) -> Iterator[None]:
    """Logs the start and the end of an activity, and how long it has taken from time to time."""
    began, has_ended = time.perf_counter(), threading.Event()

    def seconds() -> str:
        return f"{time.perf_counter() - began:.0f} s"

    def report() -> None:
        while not has_ended.wait(_REPORT_SECONDS):
            logging.info(f"still {what} after {seconds()}")

    logging.info(what)
    reporting = threading.Thread(target=report, daemon=True)
    reporting.start()
    try:
        yield
    finally:
        has_ended.set()
        reporting.join()
    logging.info(f"ready after {seconds()}")


@contextlib.contextmanager
def _explaining(what: str) -> Iterator[None]:
    """Raises a UserError in place of an error of the compiler or of a device."""
    try:
        yield
    except client.RuntimeFailure as error:
        peers, is_short = processes.peers(), "RESOURCE_EXHAUSTED" in str(error)
        if peers is not None and not is_short:
            raise peers.explain(error) from error
        raise UserError(
            f"{what} ({reason(error)})",
            "if it is short of memory, use a smaller --batch_size or --model_width",
        ) from error
