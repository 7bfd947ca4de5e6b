"""Opens the directory of a trained run and restores its networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from ..config import CODE_SETTINGS, Config
from ..data.data_record import find_record
from ..data.datasets import Dataset, find_dataset
from ..data.spec import DataSpec
from ..errors import UserError
from ..inference.sampling import Sampler
from ..run_directory.directory import RunDirectory
from ..run_directory.files import is_inside
from ..runtime.devices import Devices
from ..training import checkpointing
from ..training.checkpoint_files import resolve_restore_path, restore_found, select_checkpoint
from ..training.state import TrainState
from .build import make_sampler, make_state
from .library import Library
from .saved_config import check_use, find_config, merge, needed_settings
from .user_code import loading


@dataclasses.dataclass(frozen=True)
class SavedRun:
    """A run in its directory, not yet restored.

    Attributes:
      config: The configuration.
      directory: The run directory.
      spec: The properties of the data that it was trained on.
      library: The networks, and the parts of the user.
      size: The number of examples that it was trained on; None if unknown.
      dataset_function: Returns the data of a split, for a dataset of the user; else None.
    """

    config: Config
    directory: RunDirectory
    spec: DataSpec
    library: Library
    size: int | None = None
    dataset_function: Callable[..., Any] | None = None

    def find_dataset(self, conditioning: str = "none") -> Dataset:
        """Finds the dataset of the run.

        Args:
          conditioning: What the labels are used for. Default: nothing.
        """
        dataset = find_dataset(
            self.config,
            conditioning=conditioning,
            devices=self.config,
            function=self.dataset_function,
        )
        dataset.use_recorded(self.spec)
        return dataset


def find_run(
    path: str,
    given: Mapping[str, Any],
    library: Library,
    mode: str = "sample",
) -> SavedRun:
    """Returns a run, without reading its data.

    Args:
      path: The run directory.
      given: The settings of the command line; see `saved_config.merge`. Code and paths that
        they do not name are never imported or read.
      library: The networks, and the parts of the user.
      mode: The mode that uses the run.

    Raises:
      UserError: If the run does not exist, `given` contradicts its configuration, or code that the
        mode needs is not named or cannot be imported.
    """
    directory = RunDirectory(path)
    saved = find_config(directory)
    record = find_record(directory)
    config = merge(directory, saved, given, mode, library.models)
    code = tuple(name for name in needed_settings(mode) if name in CODE_SETTINGS)
    user_code = loading.load(config, library.models, code)
    config = user_code.record(config)
    loading.warn_of_changes(saved, config)
    check_use(directory, saved, given, config)
    library = user_code.add_to(library)
    return SavedRun(config, directory, record.spec, library, record.size, user_code.dataset)


@dataclasses.dataclass(frozen=True)
class RestoredRun:
    """The networks of a run, restored from a checkpoint.

    Attributes:
      state: The restored state.
      sampler: Draws samples from `state.sampling_generator`.
      iteration: The number of iterations of training done.
    """

    state: TrainState
    sampler: Sampler
    iteration: int


def restore(saved: SavedRun, checkpoint: str, devices: Devices) -> RestoredRun:
    """Restores a checkpoint of a run, or another one if it has been deleted.

    The run may be training, which deletes old checkpoints; see `restore_found`.

    Args:
      saved: The run.
      checkpoint: The path of the checkpoint; see `find_checkpoint`.
      devices: The devices of the networks.

    Raises:
      UserError: See `find_checkpoint` and `Checkpoints.restore`.
    """
    config, directory = saved.config, saved.directory
    state = make_state(config, devices, saved.spec, saved.library.models)
    checkpoints = checkpointing.Checkpoints(state, directory.checkpoints, writes=False)

    def restore_one(path: str) -> int:
        iteration = checkpoints.restore(path)
        logging.info(f"{path}: {iteration} iterations")
        return iteration

    found = iter([checkpoint])
    iteration = restore_found(lambda: next(found, None) or find_checkpoint(saved), restore_one)
    sampler = make_sampler(config, devices, state.sampling_generator, saved.spec)
    return RestoredRun(state, sampler, iteration)


def find_checkpoint(saved: SavedRun) -> str:
    """Returns the path of the checkpoint of --checkpoint, or of the one that --restore_from names.

    Raises:
      UserError: If there is no checkpoint.
    """
    restore_from, which = saved.config.restore_from, saved.config.checkpoint
    origin = f"--model_dir={saved.directory.path}"
    with saved.directory.convert_file_errors("read"):
        path = (
            select_checkpoint(saved.directory.checkpoints, which, origin)
            if restore_from is None
            else resolve_restore_path(restore_from, which)
        )
    if path is None:
        raise UserError(f"{origin} has no checkpoint yet", "train it longer")
    if not is_inside(saved.directory.checkpoints, path):
        raise UserError(
            f"--restore_from={restore_from} is not a checkpoint of {origin}",
            "give its run as --model_dir",
        )
    return path
