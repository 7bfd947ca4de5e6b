"""The TPU's own compiler, from libtpu, without a TPU.

Part of what is used here is jaxlib's private interface: jax and libtpu are pinned exactly,
and a change of theirs shows in tests/test_compile.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
from collections.abc import Iterator
from typing import Any

# Read when libtpu is loaded: without them it asks a metadata server, which only Google's
# machines have, what machine this is. No device of this machine is wanted.
os.environ.update(
    TPU_SKIP_MDS_QUERY="1",
    TPU_ACCELERATOR_TYPE="v5e-8",
    TPU_WORKER_HOSTNAMES="localhost",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # there is no TPU that two processes could both want
    JAX_PLATFORMS="cpu",
)

import numpy as np
import tensorflow as tf
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import _jax, xla_client
from jax.experimental import topologies
from jaxlib.mlir import ir

from . import REQUIRED
from .layers import KERAS_3
from .topologies import Topology


class CompileError(Exception):
    """The compiler refused the program, or it does not fit; its text says why."""


@dataclasses.dataclass(frozen=True)
class Executable:
    """What the compiler tells of a program it made.

    Attributes:
      hlo: the optimised program, as text.
      flops, bytes_accessed: of its cost analysis, for one device.
      argument_bytes, output_bytes, alias_bytes, temp_bytes, code_bytes: device memory.
        Outputs that overwrite arguments are counted in alias_bytes as well.
    """

    hlo: str
    flops: int
    bytes_accessed: int
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    code_bytes: int

    @property
    def memory_bytes(self) -> int:
        """All of them at once."""
        return (
            self.argument_bytes
            + self.output_bytes
            - self.alias_bytes
            + self.temp_bytes
            + self.code_bytes
        )


def versions() -> dict[str, str]:
    """Of what the figures depend on."""
    return {
        "tensorflow": tf.__version__,
        "keras": importlib.metadata.version("keras" if KERAS_3 else "tf_keras"),
        **{package: importlib.metadata.version(package) for package in REQUIRED},
    }


def slice_devices(topology: Topology) -> list[Any]:
    """The slice's devices, which can be compiled for and nothing else.

    Raises:
      CompileError: libtpu knows no such slice.
    """
    try:
        return topologies.get_topology_desc(topology.libtpu_name, platform="tpu").devices
    except _jax.JaxRuntimeError as error:
        raise CompileError(str(error)) from error


def compile_hlo(hlo: bytes, devices: list[Any]) -> Executable:
    """Compiles a replica's program for all of the devices, one replica on each.

    Args:
      hlo: a serialized HloModule, as lowering.to_hlo makes it.
      devices: of `slice_devices`.

    Raises:
      CompileError: the compiler refuses the program, or it does not fit into memory.
    """
    try:
        with stablehlo(hlo) as module:
            made = devices[0].client.compile(
                module, _jax.DeviceList(tuple(devices)), compile_options(len(devices))
            )
    except (_jax.JaxRuntimeError, ir.MLIRError, ValueError) as error:
        raise CompileError(str(error)) from error
    costs, memory = made.cost_analysis(), made.get_compiled_memory_stats()
    costs = costs[0] if isinstance(costs, list) else costs
    return Executable(
        hlo=made.hlo_modules()[0].to_string(),
        flops=round(costs.get("flops", 0)),  # absent where there are none
        bytes_accessed=round(costs.get("bytes accessed", 0)),
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        alias_bytes=memory.alias_size_in_bytes,
        temp_bytes=memory.temp_size_in_bytes,
        code_bytes=memory.generated_code_size_in_bytes,
    )


def hlo_text(hlo: bytes) -> str:
    """A program as text, with the names of the operations it comes from."""
    return xla_client.XlaComputation(hlo).get_hlo_module().to_string()


@contextlib.contextmanager
def stablehlo(hlo: bytes) -> Iterator[ir.Module]:
    """The program in the compilers' language; lives as long as the context."""
    bytecode = xla_client._xla.mlir.hlo_to_stablehlo(hlo)
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(bytecode)
        copies = []

        def collect(operation: Any) -> ir.WalkResult:
            if operation.operation.name == "mhlo.copy":
                copies.append(operation.operation)
            return ir.WalkResult.ADVANCE

        module.operation.walk(collect)
        for copy in copies:  # means nothing, and the next stage does not know it
            copy.results[0].replace_all_uses_with(copy.operands[0])
            copy.erase()
        yield module


def compile_options(replicas: int) -> Any:
    """One partition, `replicas` replicas."""
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = replicas, 1
    options.executable_build_options.num_replicas = replicas
    options.device_assignment = xla_client.DeviceAssignment.create(
        np.arange(replicas).reshape(replicas, 1)
    )
    return options
