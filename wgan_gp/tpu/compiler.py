"""The TPU compiler of libtpu, which works without a TPU.

Its estimates depend on the version of libtpu, which is therefore pinned exactly.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
from typing import Any

import jax
import numpy as np
import tensorflow as tf
from jax.experimental import topologies

from ..pjrt import client
from . import REQUIRED
from .topologies import Topology

# libtpu reads these variables when it is loaded. Without them, it queries a metadata server that
# exists only on Google Cloud machines.
_WITHOUT_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5e-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # processes do not compete for a TPU here
}


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
    os.environ.update(_WITHOUT_TPU)
    jax.config.update("jax_platforms", "cpu")  # a TPU of this machine is left to other processes
    try:
        return topologies.get_topology_desc(topology.libtpu_name, platform="tpu").devices
    except client.RuntimeFailure as error:
        raise CompileError(str(error)) from error


def compile_hlo(hlo: bytes, devices: list[Any]) -> Executable:
    """Compiles a replica's program for all devices, with one replica on each.

    Args:
      hlo: A serialized HloModule; see `lowering.lower_to_hlo`.
      devices: The devices; see `slice_devices`.

    Raises:
      CompileError: If the compiler rejects the program, for example for too little memory.
    """
    try:
        executable = client.compile_only(hlo, devices, _TPU_OPTIONS)
    except client.REJECTIONS as error:
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


def count_costs(text: str) -> np.ndarray:
    """Returns the numbers of flops and of bytes accessed, in which a loop's body counts once.

    Args:
      text: The optimized program.
    """
    costs = client.count_costs(text)
    # A count of 0 is absent. Padding is not counted.
    return np.array([round(costs.get(name, 0)) for name in ("flops", "bytes accessed")])
