"""The program of a run's loop for one replica of a TPU slice, before it is compiled."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from ..data.feed import Examples
from ..data.loop_input import LoopInput, open_loop_input
from ..pjrt import lowering
from ..training.step import ReplicaStep

_PREFETCHED = 2  # elements on the device, in addition to the one in use; see data/loop_input.py


@dataclasses.dataclass(frozen=True)
class LoopProgram:
    """A loop to be compiled.

    Attributes:
      step: The replica step of training, created under `strategy`.
      strategy: The `SliceStrategy` of the slice.
      data: The dataset, which need not have been read.
      steps_per_loop: The number of iterations of the loop.
      resident: Whether the dataset is in the memory of each device.
    """

    step: ReplicaStep
    strategy: tf.distribute.Strategy
    data: Examples
    steps_per_loop: int
    resident: bool

    @property
    def n_critic(self) -> int:
        return self.step.optimization.n_critic

    @property
    def batch_size(self) -> int:
        return self.step.optimization.batch_size

    @property
    def generator_batch_size(self) -> int:
        return self.step.optimization.generator_batch

    @property
    def resident_bytes(self) -> int:
        """The size of the examples of a dataset in the memory of a device."""
        return (self.data.size or 0) * self.data.format.tpu_bytes if self.data.held else 0

    def open_input(self) -> LoopInput:
        """Returns the input of the loop, whose examples need not have been read."""
        return open_loop_input(
            self.data,
            self.strategy,
            batch_size=self.batch_size,
            n_critic=self.n_critic,
            steps_per_loop=self.steps_per_loop,
            resident=self.resident,
        )

    def lower(self) -> LoweredLoop:
        """Converts the loop to HLO.

        Raises:
          Exception: If an operation cannot be compiled; TensorFlow raises exceptions of many types.
        """
        loop_input = self.open_input()
        program, specs = lowering.make_replica_program(self.step, self.strategy, loop_input)
        hlo = lowering.lower_to_hlo(program, *specs)
        launch_bytes, result_bytes = lowering.transferred_bytes(program, *specs)
        iterations = loop_input.steps // self.n_critic
        return LoweredLoop(
            hlo,
            iterations_per_launch=iterations,
            launches_per_loop=self.steps_per_loop // iterations,
            launch_bytes=launch_bytes,
            result_bytes=result_bytes,
            prefetched_bytes=_PREFETCHED * loop_input.element_bytes,
        )


@dataclasses.dataclass(frozen=True)
class LoweredLoop:
    """A loop that was converted to HLO.

    Attributes:
      hlo: The unoptimized program; see `lowering.lower_to_hlo`.
      iterations_per_launch: The number of iterations of a launch.
      launches_per_loop: The number of launches of a loop.
      launch_bytes: The number of bytes that the host sends to one replica for a launch.
      result_bytes: The number of bytes that one replica returns from a launch.
      prefetched_bytes: The size of the elements of the input that wait in the memory of a device.
    """

    hlo: bytes
    iterations_per_launch: int
    launches_per_loop: int
    launch_bytes: int
    result_bytes: int
    prefetched_bytes: int
