"""The TPU compiler of libtpu, which works without a TPU.

It is called through a private interface of jaxlib. The versions of jax and libtpu are therefore
pinned exactly, and tests/tpu/test_compile.py detects changes of the interface.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

# libtpu reads these variables when it is loaded. Without them, it queries a metadata server that
# exists only on Google Cloud machines.
os.environ.update(
    TPU_SKIP_MDS_QUERY="1",
    TPU_ACCELERATOR_TYPE="v5e-8",
    TPU_WORKER_HOSTNAMES="localhost",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # processes do not compete for a TPU here
    JAX_PLATFORMS="cpu",
)

import jax
import numpy as np
import tensorflow as tf
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import _jax, xla_client
from jax._src.lib import hlo as _hlo
from jax.experimental import topologies
from jaxlib.mlir import ir

from . import REQUIRED
from .topologies import Topology


class CompileError(Exception):
    """The compiler rejected a program or a topology; the message is the compiler's."""


@dataclasses.dataclass(frozen=True)
class Executable:
    """A compiled program and the compiler's statistics for one device.

    Attributes:
      hlo: The optimized program, as text.
      argument_bytes: The memory of the arguments.
      output_bytes: The memory of the outputs.
      alias_bytes: The memory of outputs that overwrite arguments, which `argument_bytes` and
        `output_bytes` both include.
      temp_bytes: The memory of temporary buffers.
      code_bytes: The memory of the code.
    """

    hlo: str
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    code_bytes: int

    @property
    def memory_bytes(self) -> int:
        """The total memory that the program needs."""
        return (
            self.argument_bytes
            + self.output_bytes
            - self.alias_bytes
            + self.temp_bytes
            + self.code_bytes
        )


# On a TPU7x, the compiler would move all-reduces to the SparseCores, as asynchronous operations
# that jaxlib cannot read. It does not do this for other generations.
_TPU_OPTIONS = {"xla_tpu_enable_sparse_core_collective_offload_all_reduce": "false"}


def versions() -> dict[str, str]:
    """Returns the versions of the packages on which the estimates depend."""
    return {
        "tensorflow": tf.__version__,
        "keras": importlib.metadata.version("keras"),
        **{package: importlib.metadata.version(package) for package in REQUIRED},
    }


def slice_devices(topology: Topology) -> list[Any]:
    """Returns the devices of a slice, which are usable for compilation only.

    Raises:
      CompileError: If libtpu does not support the slice.
    """
    try:
        return topologies.get_topology_desc(topology.libtpu_name, platform="tpu").devices
    except _jax.JaxRuntimeError as error:
        raise CompileError(str(error)) from error


def compile_hlo(hlo: bytes, devices: list[Any]) -> Executable:
    """Compiles a replica's program for all devices, with one replica on each.

    Args:
      hlo: A serialized HloModule; see `lowering.lower_to_hlo`.
      devices: The devices; see `slice_devices`.

    Raises:
      CompileError: If the compiler rejects the program, for example for too little memory.
    """
    options = compile_options(len(devices))
    options.env_option_overrides = list(_TPU_OPTIONS.items())
    try:
        with stablehlo(hlo) as module:
            executable = devices[0].client.compile(module, _jax.DeviceList(tuple(devices)), options)
    except (_jax.JaxRuntimeError, ir.MLIRError, ValueError) as error:
        raise CompileError(str(error)) from error
    memory = executable.get_compiled_memory_stats()
    return Executable(
        hlo=executable.hlo_modules()[0].to_string(),
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        alias_bytes=memory.alias_size_in_bytes,
        temp_bytes=memory.temp_size_in_bytes,
        code_bytes=memory.generated_code_size_in_bytes,
    )


class Costs(NamedTuple):
    """The compiler's counts for a program, in which the body of a loop counts once.

    Attributes:
      flops: The number of floating-point operations.
      bytes_accessed: The number of bytes that the operations read and write, without padding.
    """

    flops: int
    bytes_accessed: int


def count_costs(text: str) -> Costs:
    """Returns the counts for an optimized program, as text."""
    client = jax.local_devices(backend="cpu")[0].client
    costs = _jax.hlo_module_cost_analysis(client, _hlo.hlo_module_from_text(text))
    # A count of 0 is absent.
    return Costs(round(costs.get("flops", 0)), round(costs.get("bytes accessed", 0)))


def hlo_text(hlo: bytes) -> str:
    """Returns a serialized program as text, with the names of the TensorFlow operations."""
    return xla_client.XlaComputation(hlo).get_hlo_module().to_string()


@contextlib.contextmanager
def stablehlo(hlo: bytes) -> Iterator[ir.Module]:
    """Yields the program as a StableHLO module, which is valid inside the context only."""
    bytecode = xla_client._xla.mlir.hlo_to_stablehlo(hlo)
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(bytecode)
        copies = []

        def collect(operation: Any) -> ir.WalkResult:
            name, attributes = operation.operation.name, operation.operation.attributes
            if name == "mhlo.copy":
                copies.append(operation.operation)
            if name == "stablehlo.all_reduce" and "channel_handle" in attributes:
                # TensorFlow numbers the all-reduces of each loop from the same number on, but
                # channels must be distinct. TPUStrategy's all-reduces have none.
                del attributes["channel_handle"]
            return ir.WalkResult.ADVANCE

        module.operation.walk(collect)
        for copy in copies:  # they have no effect, and the compiler does not support them
            copy.results[0].replace_all_uses_with(copy.operands[0])
            copy.erase()
        yield module


def compile_options(replicas: int) -> Any:
    """Returns compile options for `replicas` replicas and one partition."""
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = replicas, 1
    options.executable_build_options.num_replicas = replicas
    options.device_assignment = xla_client.DeviceAssignment.create(
        np.arange(replicas).reshape(replicas, 1)
    )
    return options
