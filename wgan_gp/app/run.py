"""The parts of a run, opened once and passed on."""

from __future__ import annotations

import dataclasses
import typing

from ..config import Config
from ..data.datasets import Dataset
from ..data.feed import Examples
from ..inference.sampling import Sampler
from ..run_directory.directory import RunDirectory
from ..runtime.devices import Devices
from ..training.checkpointing import Checkpoints, Origin
from ..training.state import TrainState
from .build import make_sampler, make_state
from .connection import connect
from .library import Library
from .start_checks import check_user_code

if typing.TYPE_CHECKING:
    from ..evaluation.evaluator import Evaluator


@dataclasses.dataclass(frozen=True)
class Run:
    """The devices, the data, the networks and the checkpoints of a run.

    Attributes:
      config: The resolved configuration.
      directory: The run directory.
      library: The networks, and the parts of the user.
      devices: The devices.
      dataset: The dataset; `dataset.spec` has the shape and the number of classes of the data.
      data: The training data.
      state: The networks and the optimizers.
      checkpoints: Saves and restores `state`.
      sampler: Draws samples from `state.sampling_generator`.
    """

    config: Config
    directory: RunDirectory
    library: Library
    devices: Devices
    dataset: Dataset
    data: Examples
    state: TrainState
    checkpoints: Checkpoints
    sampler: Sampler

    def open_evaluator(self) -> Evaluator:
        """Returns the evaluator of the run's samples.

        Raises:
          UserError: If the data has no labels and no --feature_extractor is set that suits it.
        """
        # These import SciPy and scikit-learn, for which other runs should not wait.
        from ..evaluation.evaluator import open_evaluator  # noqa: PLC0415
        from ..evaluation.examples import Examples  # noqa: PLC0415

        examples = Examples(self.dataset, self.devices.strategy, self.config.batch_size)
        return open_evaluator(self.config, self.devices, self.sampler, examples, self.directory)


def open_run(
    config: Config,
    dataset: Dataset,
    library: Library,
    directory: RunDirectory | None = None,
    devices: Devices | None = None,
) -> Run:
    """Connects to the devices, opens the data and creates newly initialized networks.

    No file of the run directory is read or written.

    Args:
      config: The resolved configuration; see `resolve.resolve`.
      dataset: The dataset of the configuration.
      library: The networks, and the parts of the user.
      directory: The run directory. Defaults to that of the configuration.
      devices: The devices, if they are already connected.

    Raises:
      UserError: If the devices or the dataset are unavailable.
    """
    directory = directory or RunDirectory(config.run_directory)
    devices = devices or connect(config)
    data = dataset.open(batch_size=config.batch_size)
    check_user_code(config, devices, dataset.spec, library, data)
    state = make_state(config, devices, dataset.spec, library.models, library.optimizers)
    return Run(
        config=config,
        directory=directory,
        library=library,
        devices=devices,
        dataset=dataset,
        data=data,
        state=state,
        checkpoints=Checkpoints(
            state,
            directory.checkpoints,
            writes=devices.cluster.is_chief,
            keep=config.keep_checkpoints,
            origin=None
            if config.restore_from is None
            else Origin(config.restore_from, config.checkpoint, config.restore),
        ),
        sampler=make_sampler(config, devices, state.sampling_generator, dataset.spec),
    )
