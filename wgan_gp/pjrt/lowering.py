"""Conversion of a replica step to HLO, the input language of the XLA compilers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from ..data.loop_input import LoopInput
from ..errors import UserError, reason
from ..training.loop import replica_loop
from ..training.step import ReplicaStep
from . import client
from .slice_strategy import SliceStrategy


@dataclasses.dataclass(frozen=True)
class ReplicaLoop:
    """The loop of one replica as a program of XLA.

    Attributes:
      hlo: See `lower_to_hlo`.
      captured: The parameters after the arguments: variables, and tensors of the host.
      results: The number of results before the variables that the loop changes.
      replaced: For each result that is the new value of a variable, its index in `captured`.
    """

    hlo: bytes
    captured: list[Any]
    results: int
    replaced: dict[int, int]


def lower_loop(step: ReplicaStep, loop_input: LoopInput, replicas: int) -> ReplicaLoop:
    """Converts the loop of one of several replicas to a program for jax.

    Args:
      step: The updates of one replica.
      loop_input: The input of the loop, opened under a `SliceStrategy` of all replicas.
      replicas: The number of replicas.

    Raises:
      UserError: If the loop contains an operation that XLA cannot compile.
    """
    program, specs = make_replica_program(step, SliceStrategy(replicas), loop_input)
    try:
        hlo = lower_to_hlo(program, *specs)
    except Exception as error:  # TensorFlow raises exceptions of many types
        raise UserError(
            f"XLA cannot compile the loop ({reason(error)})",
            "replace the operation, or give --runtime=tensorflow",
        ) from error
    replaced = client.overwritten_parameters(hlo)
    return ReplicaLoop(
        hlo,
        captured_values(program, *specs),
        len(program.get_concrete_function(*specs).outputs),
        {result: parameter - len(specs) for result, parameter in replaced.items()},
    )


def make_replica_program(
    step: ReplicaStep, strategy: tf.distribute.Strategy, loop_input: LoopInput
) -> tuple[tf.types.experimental.PolymorphicFunction, list[tf.TensorSpec]]:
    """Returns the loop of one replica for `lower_to_hlo`, and the specs of its arguments.

    The arguments are the tensors of an element of `loop_input` and the three counters of
    `replica_loop`.
    """
    loop = replica_loop(step, loop_input, jit_compile=False)
    element, counter = loop_input.element_spec, tf.TensorSpec([], tf.int64)
    parts = tf.nest.flatten(element)

    def with_flat_arguments(*arguments: tf.Tensor) -> Any:
        packed = tf.nest.pack_sequence_as(element, arguments[: len(parts)])
        return loop(packed, *arguments[len(parts) :])

    program = make_program(with_flat_arguments, strategy)
    return program, [*parts, counter, counter, counter]


def make_program(
    replica_step: Callable, strategy: tf.distribute.Strategy
) -> tf.types.experimental.PolymorphicFunction:
    """Returns a tf.function for XLA that runs the step of one replica.

    Args:
      replica_step: The function to pass to `strategy.run`.
      strategy: The `SliceStrategy` of the slice.
    """

    @tf.function(jit_compile=True, autograph=False)
    def program(*arguments: tf.Tensor) -> tf.Tensor:
        return strategy.run(replica_step, args=arguments)

    return program


def lower_to_hlo(
    program: tf.types.experimental.PolymorphicFunction, *specs: tf.TensorSpec
) -> bytes:
    """Returns the unoptimized program as a serialized HloModule.

    Its parameters are the arguments, followed by all variables that the program uses. Its outputs
    are the results of the program, followed by all variables that it changes.

    Args:
      program: The result of `make_program`.
      *specs: The specs of the arguments, with static shapes.

    Raises:
      Exception: If an operation cannot be compiled; TensorFlow raises exceptions of many types.
    """
    # This lowers for the CPU, because TensorFlow without a TPU has only CPU kernels. At this stage,
    # the program is the same as for a TPU.
    return program.experimental_get_compiler_ir(*specs)(stage="hlo_serialized")


def captured_values(
    program: tf.types.experimental.PolymorphicFunction, *specs: tf.TensorSpec
) -> list[Any]:
    """Returns the parameters after the arguments: variables, and tensors of the host.

    Args:
      program, *specs: See `lower_to_hlo`.
    """
    traced = program.get_concrete_function(*specs)
    variables = {id(variable.handle): variable for variable in traced.graph.variables}
    return [variables.get(id(each), each) for each in traced.captured_inputs]


def transferred_bytes(
    program: tf.types.experimental.PolymorphicFunction, *specs: tf.TensorSpec
) -> tuple[int, int]:
    """Returns the numbers of bytes that one replica receives and returns in each launch.

    Variables are in the memory of the device. Everything else is sent: the arguments, and tensors
    of the host that the program captures.

    Args:
      program, *specs: See `lower_to_hlo`.
    """
    traced = program.get_concrete_function(*specs)
    return (
        _size(tensor for tensor in traced.inputs if tensor.dtype != tf.resource),
        _size(traced.outputs),
    )


def _size(tensors: Iterable[tf.Tensor]) -> int:
    return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors)
