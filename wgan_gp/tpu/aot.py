"""Compiles the loop of a run for a TPU slice and writes a report (--mode=compile)."""

from __future__ import annotations

import json
import posixpath
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..errors import UserError, reason
from ..pjrt import client
from ..run_directory.files import list_prefix, write_atomic
from . import compile_errors, compiler
from .loop_program import LoopProgram, LoweredLoop
from .report import build_compile_report
from .topologies import Topology


def compile_slice(
    program: LoopProgram,
    topology: Topology,
    *,
    penalty_interval: int,
    directory: str,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Compiles the loop, writes the report `directory`/<topology>.json and returns it.

    The optimized program is written to the same directory, or the error message if it is rejected.

    Args:
      program: The loop of training, under the `SliceStrategy` of the slice.
      topology: The slice.
      penalty_interval: The number of critic steps per computation of the penalty.
      directory: The directory of the report.
      log: Receives one line per event, to report progress.

    Raises:
      UserError: If the program cannot run on the slice or does not fit into its memory.
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
    began = time.perf_counter()
    log(f"compiling for {topology.replicas} x {topology.name}")
    loop, executable = compile_program(program, devices, topology, base)
    write_atomic(f"{base}.hlo.txt", executable.hlo)
    log(f"compiled in {time.perf_counter() - began:.0f} s")
    result = build_compile_report(
        program,
        loop,
        executable,
        topology,
        compiler.versions(),
        penalty_interval=penalty_interval,
    )
    write_atomic(f"{base}.json", json.dumps(result, indent=2) + "\n")
    return result


def compile_program(
    program: LoopProgram,
    devices: list[Any],
    topology: Topology,
    base: str,
) -> tuple[LoweredLoop, compiler.Executable]:
    """Compiles a loop for all devices.

    If the loop is rejected, the message is written to `base`.error.txt.

    Raises:
      UserError: If the loop is rejected. It names the layer or the flag at fault.
    """
    available = topology.core.memory_bytes
    networks = [program.step.state.critic, program.step.state.generator]
    error_path = f"{base}.error.txt"
    try:
        loop = program.lower()
    except Exception as error:  # TensorFlow raises exceptions of any type for a user's model
        write_atomic(error_path, str(error))
        raise compile_errors.tracing_error(str(error), networks, error_path) from None
    unsupported = compile_errors.unsupported_operation_error(client.hlo_text(loop.hlo), networks)
    if unsupported is not None:
        raise unsupported
    try:
        executable = compiler.compile_hlo(loop.hlo, devices)
    except compiler.CompileError as error:
        write_atomic(error_path, str(error))
        required = compile_errors.parse_memory_error(str(error))
        if required is None:
            raise UserError(
                f"the compiler rejects the program: {reason(str(error))}", f"see {error_path}"
            ) from None
    else:
        # The compiler itself considers only its temporary buffers, not arguments and results.
        required = executable.memory_bytes + loop.prefetched_bytes
        if required <= available:
            return loop, executable
        write_atomic(error_path, f"It compiles, but requires {required} bytes.\n")
    raise compile_errors.out_of_memory_error(program.batch_size, required, available)
