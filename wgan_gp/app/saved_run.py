"""Samples, evaluates, scores examples with, and exports trained runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from ..config import CODE_SETTINGS, Config
from ..data.datasets import Dataset, find_dataset
from ..data.scaling import Scaling
from ..data.spec import DataSpec
from ..errors import UserError, reason
from ..inference import export, sample_files
from ..inference.sampling import Sampler
from ..run_directory.directory import RunDirectory
from ..run_directory.folders import check_inside
from ..runtime.cluster import SINGLE_PROCESS
from ..runtime.devices import Devices, connect, find_platform
from ..training import checkpointing
from ..training.checkpoint_files import latest_checkpoint, resolve_restore_path, restore_found
from ..training.state import TrainState
from .build import make_sampler, make_state
from .data_records import recorded_scaling, recorded_spec
from .library import Library
from .run_errors import explaining_errors
from .saved_config import SavedConfig, needed_settings
from .user_code import extensions


def use(mode: str, path: str, given: Mapping[str, Any], library: Library) -> None:
    """Runs a mode that uses a saved run: sample, score, export or evaluate.

    Args:
      mode: A member of SAVED_RUN_MODES.
      path: The run directory.
      given: The settings of the command line; see `find_run`.
      library: The packages of networks and losses.

    Raises:
      UserError: If the run or its checkpoint does not exist, or the settings do not fit the run.
    """
    modes = {"sample": _sample, "export": _export, "evaluate": _evaluate, "score": _score}
    saved = find_run(path, given, library, mode)
    with explaining_errors(saved.config):
        modes[mode](saved)


@dataclasses.dataclass(frozen=True)
class SavedRun:
    """A run in its directory, not yet restored.

    Attributes:
      config: The configuration.
      directory: The run directory.
      spec: The shape and the number of classes of the data.
      library: The packages of networks and losses.
      dataset_function: Returns the data of a split, for a dataset of the user; else None.
      scaling: The scaling of an array; None for other data.
    """

    config: Config
    directory: RunDirectory
    spec: DataSpec
    library: Library
    dataset_function: Callable[..., Any] | None = None
    scaling: Scaling | None = None

    def find_dataset(self) -> Dataset:
        """Finds the dataset of the run, whether or not the run uses its labels."""
        dataset = find_dataset(self.config, devices=self.config, function=self.dataset_function)
        dataset.use_recorded(self.scaling, self.spec)
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
      given: The settings of the command line; see `saved_config.SavedConfig`. Code and paths that
        they do not name are never imported or read.
      library: The packages of networks and losses.
      mode: The mode that uses the run.

    Raises:
      UserError: If the run does not exist, `given` contradicts its configuration, or code that the
        mode needs is not named or cannot be imported.
    """
    directory = RunDirectory(path)
    saved, record = directory.find_run()
    saved_config = SavedConfig(path, saved, directory.config, given, library.models)
    config = saved_config.merge(mode)
    code = tuple(name for name in needed_settings(mode, given) if name in CODE_SETTINGS)
    extended = extensions.load(config, library.models, code)
    config = extended.record(config)
    extensions.warn_of_changes(saved, config)
    saved_config.check(config)
    library = dataclasses.replace(library, models=extended.add_to(library.models))
    scaling = recorded_scaling(record, directory.data)
    spec = recorded_spec(record, scaling)
    return SavedRun(config, directory, spec, library, extended.dataset, scaling)


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
    sampler = make_sampler(config, devices, state, saved.spec)
    return RestoredRun(state, sampler, iteration)


def find_checkpoint(saved: SavedRun) -> str:
    """Returns the path of the newest checkpoint, or of the one that --restore_from names.

    Raises:
      UserError: If there is no checkpoint.
    """
    restore_from = saved.config.restore_from
    with saved.directory.convert_file_errors("read"):
        path = (
            latest_checkpoint(saved.directory.checkpoints)
            if restore_from is None
            else resolve_restore_path(restore_from)
        )
    if path is None:
        raise UserError(
            f"--model_dir={saved.directory.path} has no checkpoint yet", "train it longer"
        )
    return path


def _sample(saved: SavedRun) -> None:
    """Writes samples in the format of --sample_format and prints their path."""
    sample_files.check(saved.config, saved.spec, saved.directory)
    conditions = sample_files.read_conditions(saved.config, saved.spec)
    checkpoint = find_checkpoint(saved)
    run = restore(saved, checkpoint, connect(saved.config))
    path = sample_files.write(
        saved.config, saved.directory, run.sampler, run.iteration, saved.scaling, conditions
    )
    print(path)


def _export(saved: SavedRun) -> None:
    """Writes the generator as a SavedModel and a Keras file, and prints their path.

    The export uses one device of this machine, regardless of the devices of training.
    """
    output = saved.config.output
    folder = output or saved.directory.exported
    if output is None:
        check_inside(saved.directory.path, folder)
    export.check(folder, f"--output={output}" if output else folder)
    checkpoint = find_checkpoint(saved)
    platform = find_platform(saved.config)
    run = restore(
        saved, checkpoint, Devices(tf.distribute.get_strategy(), SINGLE_PROCESS, platform)
    )
    write_export(folder, saved.config, run.state, saved.spec, saved.library, saved.scaling)
    print(folder)


def write_export(
    folder: str,
    config: Config,
    state: TrainState,
    spec: DataSpec,
    library: Library,
    scaling: Scaling | None,
) -> None:
    """Writes both networks of a run; see `export.write`.

    Args:
      folder: The folder of the export.
      config: The configuration of the run.
      state: The networks, created under the default strategy.
      spec: The shape and the number of classes of the data.
      library: The packages of networks and losses.
      scaling: The scaling of an array; None for other data.
    """
    export.write(
        folder,
        state.sampling_generator,
        latent_size=config.latent_size,
        classes=spec.classes,
        critic=export.ExportedCritic(
            state.critic,
            library.losses.score,
            spec.example_shape,
            config.conditioning in library.models.LABELED_CRITICS,
            scaling,
            spec.conditions,
        ),
    )


def _score(saved: SavedRun) -> None:
    """Writes the scores of examples to a CSV file and prints its path."""
    from .scoring import score  # noqa: PLC0415  (it imports this module)

    score(saved)


def _evaluate(saved: SavedRun) -> None:
    """Evaluates samples, prints a table and records the metrics in the run directory."""
    # These import SciPy and scikit-learn, for which the other modes should not wait.
    from ..evaluation import results  # noqa: PLC0415
    from ..evaluation.evaluator import open_evaluator  # noqa: PLC0415
    from ..evaluation.examples import Examples  # noqa: PLC0415

    config, directory = saved.config, saved.directory
    for path in (directory.evaluations, directory.evaluation):
        check_inside(directory.path, path)
    checkpoint = find_checkpoint(saved)
    devices = connect(config)
    run = restore(saved, checkpoint, devices)
    # Without --conditioning: a conditional run may be compared with images that have no labels.
    dataset = saved.find_dataset()
    examples = Examples(dataset, devices.strategy, config.batch_size)
    evaluator = open_evaluator(config, devices, run.sampler, examples, directory)
    is_chief = devices.cluster.is_chief
    if is_chief:
        directory.warn_of_other_data(dataset.fingerprint())
    values = evaluator.evaluate()
    if is_chief:
        print(results.table(run.iteration, values, evaluator.metadata), flush=True)
        try:  # a run in a read-only directory can be evaluated, too
            results.record(directory, run.iteration, values, evaluator.metadata)
        except (tf.errors.OpError, OSError) as error:
            logging.warning(
                f"--model_dir={directory.path} cannot be written ({reason(error)}), so "
                "these figures are not recorded there"
            )
