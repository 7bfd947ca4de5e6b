"""Compiles the steps of a run for a TPU slice, without a TPU (--mode=compile)."""

from __future__ import annotations

from absl import logging

from ..config import Config
from ..data.datasets import DataSpec
from ..run_directory.directory import RunDirectory
from ..runtime.cluster import SINGLE_PROCESS
from ..runtime.devices import Devices
from ..tpu import aot, topologies
from ..tpu.compile_report import format_compile_report
from ..tpu.slice_strategy import SliceStrategy
from .build import make_state, make_step
from .library import Library


def compile_for_slice(config: Config, spec: DataSpec, library: Library) -> None:
    """Compiles both steps of a run, and prints and writes a report.

    Args:
      config: The resolved configuration.
      spec: The shape and the number of classes of the data.
      library: The packages of networks and losses.

    Raises:
      UserError: If the run does not fit the slice.
    """
    topology = topologies.find(config.compile_topology)
    devices = Devices(SliceStrategy(topology.replicas), SINGLE_PROCESS, "TPU")
    step = make_step(config, make_state(config, devices, spec, library.models), spec, library)
    directory = RunDirectory(config.run_directory)
    with directory.convert_file_errors("written"):
        result = aot.compile_slice(
            step,
            devices.strategy,
            topology,
            example_shape=spec.example_shape,
            penalty_interval=config.penalty_interval,
            directory=directory.compile,
            log=logging.info,
        )
    print(format_compile_report(result))
