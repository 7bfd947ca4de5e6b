"""Compares the host loop with the device loop of a TPU: launches, bytes and estimated cycles.

  python -m benchmarks.tpu_loop
  python -m benchmarks.tpu_loop --flagfile=configs/cifar10_resnet.flags --batch_size=512

The arguments are the flags of a run, with --compile_topology. The host loop launches each critic
step and each generator step, and sends batches of normalized examples. TPUs use the device loop.
Bytes are those of all cores together; cycles are the compiler's estimate for one core. Needs `make
setup-compile`; docs/compile.md explains the estimates.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import flags

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from absl.flags import FlagValues

from wgan_gp.app.compiling import make_program
from wgan_gp.app.library import Library
from wgan_gp.app.resolve import resolve
from wgan_gp.errors import UserError
from wgan_gp.pjrt import lowering
from wgan_gp.tpu import aot, compiler, hlo, topologies
from wgan_gp.tpu.loop_program import LoopProgram
from wgan_gp.training.loop import replica_programs

from . import outcome


def compile_host_loop(program: LoopProgram, topology: topologies.Topology) -> dict[str, Any]:
    """Returns the row of the loop in which the host launches every step."""
    devices = compiler.slice_devices(topology)
    batch = program.batch_size // topology.replicas
    counter = tf.TensorSpec([], tf.int64)
    real = tf.TensorSpec([batch, *program.data.format.shape])
    labels = tf.TensorSpec([batch], tf.int32)

    def measure(step: Callable, *specs: tf.TensorSpec) -> tuple[int, int, int]:
        """Returns the bytes from the host, the bytes to the host and the cycles of a launch."""
        traced = lowering.make_program(step, program.strategy)
        executable = compiler.compile_hlo(lowering.lower_to_hlo(traced, *specs), devices)
        operations = hlo.Program(executable.hlo).part(hlo.ENTRY).operations()
        cycles = sum(operation.cycles for operation in operations)
        return (*lowering.transferred_bytes(traced, *specs), cycles)

    critic_step, generator_step = replica_programs(program.step, jit_compile=False)
    critic = measure(critic_step, real, labels, counter, counter)
    generator = measure(generator_step, counter, counter)
    sent, returned, cycles = (
        program.n_critic * one + other for one, other in zip(critic, generator, strict=True)
    )
    return make_row(
        "host loop",
        launches=program.n_critic + 1,
        sent=topology.replicas * sent,
        returned=topology.replicas * returned,
        cycles=cycles,
    )


def compile_device_loop(program: LoopProgram, topology: topologies.Topology) -> dict[str, Any]:
    """Returns the row of the loop that runs on the device."""
    with tempfile.TemporaryDirectory() as directory:
        report = aot.compile_slice(
            program, topology, penalty_interval=1, directory=directory, log=lambda line: None
        )
    iteration = report["iteration"]
    return make_row(
        "device loop",
        launches=1 / iteration["iterations_per_launch"],
        sent=iteration["bytes_from_host"],
        returned=iteration["bytes_to_host"],
        cycles=iteration["estimated_cycles"],
    )


def make_row(
    title: str, *, launches: float, sent: int, returned: int, cycles: int
) -> dict[str, Any]:
    """Returns a row of the table; all figures are those of one iteration."""
    return {
        "": title,
        "launches": f"{launches:g}",
        "bytes from the host": math.ceil(sent),
        "bytes to the host": math.ceil(returned),
        "estimated cycles": cycles,
    }


def main() -> None:
    """Prints the table."""
    values = FlagValues()
    flags.define(values)
    config = flags.parse(["tpu_loop", "--mode=compile", *sys.argv[1:]], values)
    library = Library()
    config, dataset = resolve(config, library.models)
    topology = topologies.find(config.compile_topology)
    program = make_program(config, dataset, library, topology)
    rows = [compile_host_loop(program, topology), compile_device_loop(program, topology)]
    print(outcome.table(rows))
    outcome.save("tpu_loop", rows)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
