"""Compiles the programs of a run for a TPU slice and writes a report (--mode=compile)."""

from __future__ import annotations

import dataclasses
import json
import posixpath
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..errors import UserError
from ..run_directory.files import list_prefix, write_atomic
from ..training.host_loop import replica_programs
from ..training.step import ReplicaStep
from . import compiler, error_messages, lowering
from .compile_report import build_compile_report
from .topologies import Core, Topology


@dataclasses.dataclass(frozen=True)
class Program:
    """One of the two programs of a run.

    Attributes:
      name: "critic_step" or "generator_step".
      batch_flag: The name of the flag that sets the batch size.
      batch_size: The global batch size.
      lower: Maps a global batch size to the unoptimized program, see `lowering.lower_to_hlo`.
    """

    name: str
    batch_flag: str
    batch_size: int
    lower: Callable[[int], bytes]


def compile_slice(
    step: ReplicaStep,
    strategy: tf.distribute.Strategy,
    topology: Topology,
    *,
    example_shape: tuple[int, ...],
    penalty_interval: int,
    directory: str,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Compiles both steps, writes the report `directory`/<topology>.json and returns it.

    The optimized programs are written to the same directory, or the error message for a program
    that is rejected.

    Args:
      step: The replica step of training, created under `strategy`.
      strategy: The `SliceStrategy` of the slice.
      topology: The slice.
      example_shape: The example shape of the dataset.
      penalty_interval: The number of critic steps per computation of the penalty.
      directory: The directory of the report.
      log: Receives one line per event, to report progress.

    Raises:
      UserError: If a program cannot run on the slice or does not fit into its memory.
    """
    try:
        devices = compiler.slice_devices(topology)
    except compiler.CompileError as error:
        raise UserError(
            f"libtpu does not support --compile_topology={topology.name}: {error}",
            "use one of the names that --help lists",
        ) from None
    tf.io.gfile.makedirs(directory)
    base = posixpath.join(directory, topology.file_name)
    for old in list_prefix(f"{base}."):  # removes the files of an earlier compilation
        tf.io.gfile.remove(old)
    compiled, networks = {}, [step.state.critic, step.state.generator]
    for program in _programs(step, strategy, example_shape):
        began = time.perf_counter()
        log(f"{program.name}: compiling for {topology.replicas} x {topology.name}")
        executable = compile_program(program, networks, devices, topology.core, base)
        write_atomic(f"{base}.{program.name}.hlo.txt", executable.hlo)
        log(f"{program.name}: compiled in {time.perf_counter() - began:.0f} s")
        compiled[program.name] = executable
    result = build_compile_report(
        step.optimization,
        topology,
        step,
        compiled,
        compiler.versions(),
        penalty_interval=penalty_interval,
    )
    write_atomic(f"{base}.json", json.dumps(result, indent=2) + "\n")
    return result


def _programs(
    step: ReplicaStep, strategy: tf.distribute.Strategy, example_shape: tuple[int, ...]
) -> list[Program]:
    counters = 2 * [tf.TensorSpec([], tf.int64)]  # completed steps, rollbacks

    def critic_step(batch_size: int) -> bytes:
        resized = _with_batch(step, batch_size=batch_size)
        program, _ = replica_programs(resized, jit_compile=False)
        per_replica = batch_size // strategy.num_replicas_in_sync
        real, labels = (
            tf.TensorSpec([per_replica, *example_shape]),
            tf.TensorSpec([per_replica], tf.int32),
        )
        return lowering.lower_to_hlo(
            lowering.make_program(program, strategy), real, labels, *counters
        )

    def generator_step(batch_size: int) -> bytes:
        resized = _with_batch(step, generator_batch_size=batch_size)
        _, program = replica_programs(resized, jit_compile=False)
        return lowering.lower_to_hlo(lowering.make_program(program, strategy), *counters)

    return [
        Program("critic_step", "batch_size", step.optimization.batch_size, critic_step),
        Program(
            "generator_step",
            "generator_batch_size",
            step.optimization.generator_batch,
            generator_step,
        ),
    ]


def _with_batch(step: ReplicaStep, **sizes: Any) -> ReplicaStep:
    """Returns a replica step with other global batch sizes."""
    return dataclasses.replace(step, optimization=dataclasses.replace(step.optimization, **sizes))


def compile_program(
    program: Program,
    networks: list[tf.keras.Model],
    devices: list[Any],
    core: Core,
    base: str,
) -> compiler.Executable:
    """Compiles one program for all devices.

    If the program is rejected, the message is written to `base`.<name>.error.txt.

    Raises:
      UserError: If the program is rejected. It names the layer or the flag at fault.
    """
    error_path = f"{base}.{program.name}.error.txt"
    try:
        hlo = program.lower(program.batch_size)
    except Exception as error:  # TensorFlow raises exceptions of any type for a user's model
        write_atomic(error_path, str(error))
        raise error_messages.tracing_error(str(error), networks, error_path) from None
    text = compiler.hlo_text(hlo)
    unsupported = error_messages.unsupported_operation_error(text, networks)
    if unsupported is not None:
        raise unsupported
    try:
        return _compile_within_memory(hlo, devices, core)
    except compiler.CompileError as error:
        write_atomic(error_path, str(error))
        raise error_messages.compiler_error(str(error), program.name, error_path) from None
    except _OutOfMemoryError as error:
        write_atomic(error_path, str(error))
        available_share = error.memory.available / error.memory.required
        smaller = _smaller_batch_size(program, devices, core, available_share)
        raise error_messages.out_of_memory_error(
            program.name, program.batch_flag, program.batch_size, error.memory, smaller
        ) from None


class _OutOfMemoryError(Exception):
    """A program that requires more memory than a core has."""

    def __init__(self, memory: error_messages.Memory, message: str):
        super().__init__(message)
        self.memory = memory


def _compile_within_memory(hlo: bytes, devices: list[Any], core: Core) -> compiler.Executable:
    """Compiles a program and checks that it fits into the memory of a core.

    The compiler itself considers only its temporary buffers, not arguments and results.

    Raises:
      _OutOfMemoryError: If the program does not fit.
      compiler.CompileError: If the compiler rejects the program for another reason.
    """
    try:
        executable = compiler.compile_hlo(hlo, devices)
    except compiler.CompileError as error:
        memory = error_messages.parse_memory_error(str(error))
        if memory is None:
            raise
        raise _OutOfMemoryError(memory, str(error)) from None
    if executable.memory_bytes > core.memory_bytes:
        memory = error_messages.Memory(executable.memory_bytes, core.memory_bytes)
        raise _OutOfMemoryError(
            memory, f"It compiles, but requires {executable.memory_bytes} bytes.\n"
        )
    return executable


def _smaller_batch_size(
    program: Program, devices: list[Any], core: Core, available_share: float
) -> int | None:
    """Returns a smaller global batch size with which the program fits, or None.

    The batch size per replica is a power of two.

    Args:
      program: A program that does not fit with its batch size.
      devices: The devices of the slice.
      core: The properties of a device.
      available_share: Available memory / required memory.
    """
    per_replica = int(program.batch_size / len(devices) * available_share)
    while per_replica >= 1:
        per_replica = 2 ** (per_replica.bit_length() - 1)
        try:
            _compile_within_memory(program.lower(per_replica * len(devices)), devices, core)
        except _OutOfMemoryError:
            per_replica //= 2
        except compiler.CompileError:
            return None
        else:
            return per_replica * len(devices)
    return None
