"""The compiler and the devices of jax, for programs that TensorFlow lowers to HLO.

This is the only file that uses private names of jax and jaxlib. The versions of both are therefore
pinned exactly, and tests/pjrt/test_client.py names what another version lacks.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import clusters, compiler, distributed
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import _jax, xla_client
from jax._src.lib import hlo as _hlo
from jaxlib.mlir import ir

# Everything private that is used below, so that another version of jax fails when this is imported.
_USED = (
    _hlo.hlo_module_from_text,
    _jax.get_distributed_runtime_client,
    _jax.get_distributed_runtime_service,
    _jax.DeviceList,
    _jax.hlo_module_cost_analysis,
    clusters.ClusterEnv.auto_detect_unset_distributed_params,
    compiler.compile_or_get_cached,
    compiler.get_compile_options,
    distributed.global_state.num_processes,
    jax_mlir.make_ir_context,
    xla_client.CompileOptions,
    xla_client.DeviceAssignment.create,
    xla_client.XlaComputation,
    xla_client._xla.mlir.hlo_to_stablehlo,
)
# What the compiler raises for a program that it rejects.
REJECTIONS = (_jax.JaxRuntimeError, ir.MLIRError, ValueError)
RuntimeFailure = _jax.JaxRuntimeError  # what a device raises


def hlo_text(hlo: bytes) -> str:
    """Returns a serialized program as text, with the names of the TensorFlow operations."""
    return xla_client.XlaComputation(hlo).get_hlo_module().to_string()


def overwritten_parameters(hlo: bytes) -> dict[int, int]:
    """Returns the index of the parameter that a result overwrites, for each such result."""
    header = hlo_text(hlo).partition("\n")[0]
    pairs = re.findall(r"\{(\d+)\}: \((\d+), ", header)
    return {int(result): int(parameter) for result, parameter in pairs}


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


def compile_only(hlo: bytes, devices: Sequence[Any], options: dict[str, str]) -> Any:
    """Compiles a replica's program for devices that need not exist, one replica on each.

    Args:
      hlo: A serialized HloModule; see `lowering.lower_to_hlo`.
      devices: The devices of a topology.
      options: Options of the compiler.

    Raises:
      *REJECTIONS: If the compiler rejects the program.
    """
    compile_options = xla_client.CompileOptions()
    compile_options.num_replicas, compile_options.num_partitions = len(devices), 1
    compile_options.executable_build_options.num_replicas = len(devices)
    compile_options.device_assignment = xla_client.DeviceAssignment.create(
        np.arange(len(devices)).reshape(-1, 1)
    )
    compile_options.env_option_overrides = list(options.items())
    with stablehlo(hlo) as module:
        return devices[0].client.compile(module, _jax.DeviceList(tuple(devices)), compile_options)


def count_costs(text: str) -> dict[str, float]:
    """Returns the compiler's counts for an optimized program, as text."""
    client = jax.local_devices(backend="cpu")[0].client
    return _jax.hlo_module_cost_analysis(client, _hlo.hlo_module_from_text(text))


class Program:
    """A replica's program, loaded on devices with one replica on each.

    It is compiled, or read from jax's compilation cache if that is on.

    Args:
      hlo: A serialized HloModule; see `lowering.lower_to_hlo`.
      devices: The devices of all processes, one for each replica.

    Raises:
      *REJECTIONS: If the compiler rejects the program.
    """

    def __init__(self, hlo: bytes, devices: Sequence[jax.Device]):
        assigned = np.array(devices)
        with stablehlo(hlo) as module:
            # TensorFlow numbers its functions, and the cache has the name in its key.
            module.operation.attributes["sym_name"] = ir.StringAttr.get("loop")
            self._executable = compiler.compile_or_get_cached(
                assigned[0].client,
                module,
                assigned,
                compiler.get_compile_options(len(devices), 1, assigned, backend=assigned[0].client),
                [],
                _jax.DeviceList(tuple(devices)),
            )

    def run(self, arguments: list[jax.Array]) -> list[list[jax.Array]]:
        """Returns each result as its arrays on the devices of this process.

        The execution may not be done yet. Parameters that a result overwrites are gone after it.

        Args:
          arguments: The parameters: arrays whose shards are the parameters of the replicas.
        """
        results = self._executable.execute_sharded(arguments)
        return results.disassemble_into_single_device_arrays()

    @property
    def hlo(self) -> str:
        """The optimized program, as text."""
        return self._executable.hlo_modules()[0].to_string()


def find_tpu_processes(seconds: int) -> tuple[str, int, int]:
    """Returns the address of the first process of a TPU, their number and the own index.

    On machines that do not know a TPU slice, this is one process without an address.

    Args:
      seconds: The time limit.
    """
    address, processes, index, _ = clusters.ClusterEnv.auto_detect_unset_distributed_params(
        None, None, None, None, None, seconds
    )
    return (address, processes, index) if address is not None else ("", 1, 0)


def connect_processes(address: str, processes: int, index: int, *, seconds: int) -> Any:
    """Makes the devices of all processes the devices of jax, and returns the connection.

    `jax.distributed.initialize` also handles SIGTERM, which this program does itself, and at the
    end of a process that failed, it waits for minutes.

    Args:
      address: HOST:PORT of the first process.
      processes: The number of processes.
      index: The index of this process.
      seconds: The time limit.
    """
    state = distributed.global_state
    if index == 0:
        state.service = _jax.get_distributed_runtime_service(
            f"[::]:{address.rpartition(':')[2]}", processes
        )
    connection = _jax.get_distributed_runtime_client(
        address,
        index,
        init_timeout=seconds,
        use_compression=True,
        shutdown_on_destruction=False,
    )
    connection.connect()
    state.coordinator_address, state.process_id = address, index
    state.client, state.num_processes = connection, processes
    return connection
