"""Samples, evaluates and exports trained runs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from . import checkpointing, export, faults, sample_files, workers
from .config import Config
from .data import registry
from .data.registry import Kind
from .errors import UserError, reason
from .run_directory import RunDirectory
from .sampling import Sampler, make_sampler
from .state import TrainState
from .strategy import connect

MakeState = Callable[[Config, tf.distribute.Strategy, Kind], TrainState]


def use(mode: str, path: str, given: Mapping[str, Any], make_state: MakeState) -> None:
    """Samples, exports or evaluates a run.

    Args:
      mode: A member of SAVED_RUN_MODES.
      path: The run directory.
      given: The settings of the command line; see `find_run`.
      make_state: (configuration, strategy, kind of data) -> newly initialized state.

    Raises:
      UserError: If the run or its checkpoint does not exist, or the settings do not fit the run.
    """
    uses = {"sample": _sample, "export": _export, "evaluate": _evaluate}
    config, kind = find_run(path, given)
    try:
        uses[mode](config, kind, make_state)
    except tf.errors.OpError as error:
        if explained := faults.explain_error(error, config, workers.find_cluster(config)):
            raise explained from error
        raise


def find_run(path: str, given: Mapping[str, Any]) -> tuple[Config, Kind]:
    """Returns the configuration of a run and the kind of its data, without reading the data.

    Args:
      path: The run directory.
      given: The settings of the command line. They override settings of the run that may change
        when it is used.

    Raises:
      UserError: If the run does not exist, or `given` contradicts its configuration.
    """
    saved, data = RunDirectory(path).find_run()
    # The devices and the starting point of training do not apply here.
    elsewhere = {"tpu": None, "cpu_replicas": 1, "restore_from": None}
    config = Config.from_dict(
        {**saved, **elsewhere, "model_dir": path, **given}, origin=RunDirectory(path).config
    )
    if differences := config.differences(saved):
        raise UserError(
            f"--model_dir={path} holds a run of another configuration ({'; '.join(differences)})",
            "omit these",
        )
    return config, Kind(data.example_shape, data.classes)


@dataclasses.dataclass(frozen=True)
class SavedRun:
    """A restored run.

    Attributes:
      strategy: The strategy of the networks.
      state: The restored state.
      sampler: Draws samples from `state.sampling_generator`.
      iteration: The number of iterations of training done.
    """

    strategy: tf.distribute.Strategy
    state: TrainState
    sampler: Sampler
    iteration: int


def open_saved_run(
    config: Config,
    kind: Kind,
    make_state: MakeState,
    strategy: tf.distribute.Strategy | None = None,
) -> SavedRun:
    """Restores the newest checkpoint of a run, or the one that --restore_from names.

    Args:
      config: The configuration of the run.
      kind: The shape and the number of classes of its data.
      make_state: See `use`.
      strategy: The strategy to use. Defaults to the strategy for the configuration.

    Raises:
      UserError: If there is no checkpoint, or the devices are unavailable.
    """
    directory = RunDirectory(config.run_directory)
    with directory.convert_file_errors("read"):
        path = (
            checkpointing.latest_checkpoint(directory.checkpoints)
            if config.restore_from is None
            else checkpointing.resolve_restore_path(config.restore_from)
        )
    if path is None:
        raise UserError(f"--model_dir={directory.path} has no checkpoint yet", "let it train on")
    strategy = strategy or connect(config).strategy
    state = make_state(config, strategy, kind)
    iteration = checkpointing.Checkpoints(state, directory.checkpoints, writes=False).restore(path)
    print(f"{path}: {iteration} iterations", file=sys.stderr)
    sampler = make_sampler(config, strategy, state.sampling_generator, kind)
    return SavedRun(strategy, state, sampler, iteration)


def _sample(config: Config, kind: Kind, make_state: MakeState) -> None:
    """Writes samples in the format of --sample_format and prints their path."""
    sample_files.check(config, kind)
    run = open_saved_run(config, kind, make_state)
    print(sample_files.write(config, kind, run.sampler, run.iteration))


def _export(config: Config, kind: Kind, make_state: MakeState) -> None:
    """Writes the generator as a SavedModel and a Keras file, and prints their path.

    The export uses one device of this machine, regardless of the devices of training.
    """
    export.check(config)
    run = open_saved_run(config, kind, make_state, tf.distribute.get_strategy())
    print(export.write(config, kind, run.state.sampling_generator))


def _evaluate(config: Config, kind: Kind, make_state: MakeState) -> None:
    """Evaluates samples, prints a table and records the metrics in the run directory."""
    # These import SciPy and scikit-learn, for which the other modes should not wait.
    from .evaluation import report  # noqa: PLC0415
    from .evaluation.evaluator import open_evaluator  # noqa: PLC0415

    directory = RunDirectory(config.run_directory)
    run = open_saved_run(config, kind, make_state)
    evaluator = open_evaluator(config, run.strategy, run.sampler, kind)
    is_chief = workers.find_cluster(config).is_chief
    if is_chief:
        directory.warn_of_other_data(registry.fingerprint(config))
    values = evaluator.evaluate()
    if is_chief:
        print(report.table(run.iteration, values, evaluator.about), flush=True)
        try:  # a run in a read-only directory can be evaluated, too
            report.record(directory, run.iteration, values, evaluator.about)
        except (tf.errors.OpError, OSError) as error:
            print(
                f"warning: --model_dir={directory.path} cannot be written ({reason(error)}), so "
                "these figures are not recorded there",
                file=sys.stderr,
            )
