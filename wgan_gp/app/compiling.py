"""Compiles the loop of a run for a TPU slice, without a TPU (--mode=compile)."""

from __future__ import annotations

from absl import logging

from ..config import Config
from ..data.datasets import Dataset
from ..data.loop_input import is_resident
from ..pjrt.slice_strategy import SliceStrategy
from ..run_directory.directory import RunDirectory
from ..runtime.cluster import SINGLE_PROCESS
from ..runtime.devices import Devices
from ..tpu import aot, topologies
from ..tpu.loop_program import LoopProgram
from ..tpu.report import format_compile_report
from .build import make_state, make_step
from .library import Library
from .start_checks import check_user_code


def compile_for_slice(config: Config, dataset: Dataset, library: Library) -> None:
    """Compiles the loop of a run, and prints and writes a report.

    Args:
      config: The resolved configuration.
      dataset: The dataset of the configuration.
      library: The networks, and the parts of the user.

    Raises:
      UserError: If the dataset cannot be accessed, or the run does not fit the slice.
    """
    topology = topologies.find(config.compile_topology)
    program = make_program(config, dataset, library, topology)
    directory = RunDirectory(config.run_directory)
    with directory.convert_file_errors("written"):
        result = aot.compile_slice(
            program,
            topology,
            penalty_interval=config.penalty_interval,
            directory=directory.compile,
            log=logging.info,
        )
    print(format_compile_report(result))


def make_program(
    config: Config, dataset: Dataset, library: Library, topology: topologies.Topology
) -> LoopProgram:
    """Returns the loop that training runs on each replica of a slice."""
    data = dataset.open_unread(batch_size=config.batch_size)
    devices = Devices(SliceStrategy(topology.replicas), SINGLE_PROCESS, "TPU")
    check_user_code(config, devices, dataset.spec, library)
    state = make_state(config, devices, dataset.spec, library.models)
    return LoopProgram(
        make_step(config, state, dataset.spec, library),
        devices.strategy,
        data,
        steps_per_loop=config.steps_per_loop,
        resident=is_resident(data),
    )
