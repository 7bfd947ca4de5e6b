"""Compiles the programs of a run for a TPU slice and writes a report (--mode=compile)."""

from __future__ import annotations

import dataclasses
import json
import posixpath
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..config import Config
from ..errors import UserError
from ..files import list_prefix, write_atomic
from ..loop import replica_programs
from ..step import ReplicaStep
from . import compiler, faults, lowering, report
from .topologies import Core, Topology


@dataclasses.dataclass(frozen=True)
class Program:
    """One of the two programs of a run.

    Attributes:
      name: "critic_step" or "generator_step".
      batch_flag: The name of the flag that sets the batch size.
      batch: The global batch size.
      trace: global batch size -> unoptimized HLO.
    """

    name: str
    batch_flag: str
    batch: int
    trace: Callable[[int], bytes]


def compile_slice(
    config: Config,
    step: ReplicaStep,
    strategy: tf.distribute.Strategy,
    topology: Topology,
    *,
    example_shape: tuple[int, ...],
    directory: str,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Compiles both steps, writes the report `directory`/<topology>.json and returns it.

    The optimized programs are written to the same directory, and the compiler's message if it
    rejects a program.

    Args:
      config: The configuration of the run.
      step: The replica step of training, created under `strategy`.
      strategy: The `SliceStrategy` of the slice.
      topology: The slice.
      example_shape: The example shape of the dataset.
      directory: The directory of the report.
      say: Prints the progress.

    Raises:
      UserError: If a program cannot run on the slice or does not fit into its memory.
    """
    try:
        devices = compiler.slice_devices(topology)
    except compiler.CompileError as error:
        raise UserError(
            f"--compile_topology={topology.name} is refused by libtpu: {error}",
            "use one of the names that --help lists",
        ) from None
    tf.io.gfile.makedirs(directory)
    base = posixpath.join(directory, topology.file_name)
    for old in list_prefix(f"{base}."):  # removes the files of an earlier compilation
        tf.io.gfile.remove(old)
    compiled, networks = {}, [step.state.critic, step.state.generator]
    for program in _programs(step, strategy, example_shape):
        began = time.perf_counter()
        say(f"{program.name}: compiling for {topology.replicas} x {topology.name}")
        executable = compile_program(program, networks, devices, topology.core, base)
        write_atomic(f"{base}.{program.name}.hlo.txt", executable.hlo)
        say(f"{program.name}: compiled in {time.perf_counter() - began:.0f} s")
        compiled[program.name] = executable
    result = report.build(config, topology, step, compiled, compiler.versions())
    write_atomic(f"{base}.json", json.dumps(result, indent=2) + "\n")
    return result


def _programs(
    step: ReplicaStep, strategy: tf.distribute.Strategy, example_shape: tuple[int, ...]
) -> list[Program]:
    counters = 2 * [tf.TensorSpec([], tf.int64)]  # steps done, rollbacks

    def critic_step(batch: int) -> bytes:
        program, _ = replica_programs(
            dataclasses.replace(step, batch_size=batch), jit_compile=False
        )
        share = batch // strategy.num_replicas_in_sync
        real, labels = tf.TensorSpec([share, *example_shape]), tf.TensorSpec([share], tf.int32)
        return lowering.to_hlo(lowering.as_program(program, strategy), real, labels, *counters)

    def generator_step(batch: int) -> bytes:
        resized = dataclasses.replace(step, generator_batch_size=batch)
        _, program = replica_programs(resized, jit_compile=False)
        return lowering.to_hlo(lowering.as_program(program, strategy), *counters)

    return [
        Program("critic_step", "batch_size", step.batch_size, critic_step),
        Program(
            "generator_step", "generator_batch_size", step.generator_batch_size, generator_step
        ),
    ]


def compile_program(
    program: Program,
    networks: list[tf.keras.Model],
    devices: list[Any],
    core: Core,
    base: str,
) -> compiler.Executable:
    """Compiles one program for all devices.

    The message for a rejected program is written to `base`.<name>.error.txt.

    Raises:
      UserError: If the program is rejected, with the name of the layer or of the flag.
    """
    refusal = f"{base}.{program.name}.error.txt"
    try:
        hlo = program.trace(program.batch)
    except Exception as error:  # a user's model can make TensorFlow raise any exception
        write_atomic(refusal, str(error))
        raise faults.of_tracing(str(error), networks, refusal) from None
    text = compiler.hlo_text(hlo)
    fault = faults.in_program(text, networks)
    if fault is not None:
        raise fault
    try:
        return _fitting(hlo, devices, core)
    except compiler.CompileError as error:
        write_atomic(refusal, str(error))
        raise faults.of_compiler(str(error), program.name, refusal) from None
    except _TooLargeError as error:
        write_atomic(refusal, error.text)
        fits = _batch_that_fits(program, devices, core, error.memory.available / error.memory.total)
        raise faults.too_large(
            program.name, program.batch_flag, program.batch, error.memory, fits
        ) from None


class _TooLargeError(Exception):
    def __init__(self, memory: faults.Memory, text: str):
        self.memory, self.text = memory, text


def _fitting(hlo: bytes, devices: list[Any], core: Core) -> compiler.Executable:
    """Compiles a program and checks that it fits into the memory of a core.

    The check is needed because the compiler itself considers its temporary buffers only.

    Raises:
      _TooLargeError: If the program does not fit.
      compiler.CompileError: If the compiler rejects the program for another reason.
    """
    try:
        executable = compiler.compile_hlo(hlo, devices)
    except compiler.CompileError as error:
        memory = faults.memory_needed(str(error))
        if memory is None:
            raise
        raise _TooLargeError(memory, str(error)) from None
    if executable.memory_bytes > core.memory_bytes:
        memory = faults.Memory(executable.memory_bytes, core.memory_bytes)
        raise _TooLargeError(memory, f"It compiles, but takes {executable.memory_bytes} bytes.\n")
    return executable


def _batch_that_fits(program: Program, devices: list[Any], core: Core, share: float) -> int | None:
    """Returns a smaller global batch size that compiles and fits, or None.

    The batch size per replica is a power of two.

    Args:
      program: The program, which is too large at its batch size.
      devices: The devices of the slice.
      core: A device of the slice.
      share: Available memory / required memory.
    """
    per_replica = int(program.batch / len(devices) * share)
    while per_replica >= 1:
        per_replica = 2 ** (per_replica.bit_length() - 1)
        try:
            _fitting(program.trace(per_replica * len(devices)), devices, core)
        except _TooLargeError:
            per_replica //= 2
        except compiler.CompileError:
            return None
        else:
            return per_replica * len(devices)
    return None
