"""What a run is good for once it is saved: samples, their evaluation, an export."""

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
from .strategy import create_strategy

MakeState = Callable[[Config, tf.distribute.Strategy, Kind], TrainState]


def use(mode: str, path: str, given: Mapping[str, Any], make_state: MakeState) -> None:
    """Samples, exports or evaluates a run.

    Args:
      mode: a member of OF_A_SAVED_RUN.
      path: the run directory.
      given: settings of the command line; see `find_run`.
      make_state: fresh networks and optimizers of a configuration, for a kind of data.

    Raises:
      UserError: there is no such run, or no checkpoint of it, or it cannot be used so.
    """
    uses = {"sample": _sample, "export": _export, "evaluate": _evaluate}
    config, kind = find_run(path, given)
    try:
        uses[mode](config, kind, make_state)
    except tf.errors.OpError as error:
        if explained := faults.explain(error, config, workers.find(config)):
            raise explained from error
        raise


def find_run(path: str, given: Mapping[str, Any]) -> tuple[Config, Kind]:
    """What the run in a directory was trained as, to be used here; needs no data.

    Args:
      path: the run directory.
      given: settings of the command line. Where and how to use the run may be set anew.

    Raises:
      UserError: there is no run, or it was trained otherwise than `given` says.
    """
    saved, data = RunDirectory(path).find_run()
    # Not on the machine it was trained on, nor from what it began with.
    elsewhere = {"tpu": None, "cpu_replicas": 1, "restore_from": None}
    config = Config.from_dict({**saved, **elsewhere, "model_dir": path, **given})
    if differences := config.differences(saved):
        raise UserError(
            f"--model_dir={path} holds a run of another configuration ({'; '.join(differences)})",
            "leave these out",
        )
    return config, Kind(data.example_shape, data.classes)


@dataclasses.dataclass(frozen=True)
class SavedRun:
    """A run as it was saved, ready to be used; its data need not be there.

    Attributes:
      iteration: iterations of training done.
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
    """The newest checkpoint of a run, or the one that --restore_from names.

    Args:
      config, kind: of the run.
      make_state: see `use`.
      strategy: where to use it; None: as the configuration says.

    Raises:
      UserError: there is none, or the devices are not to be had.
    """
    directory = RunDirectory(config.run_directory)
    with directory.reporting("read"):
        path = (
            checkpointing.newest_whole(directory.checkpoints)
            if config.restore_from is None
            else checkpointing.find(config.restore_from)
        )
    if path is None:
        raise UserError(f"--model_dir={directory.path} has no checkpoint yet", "let it train on")
    strategy = strategy or create_strategy(config)
    state = make_state(config, strategy, kind)
    iteration = checkpointing.Checkpoints(state, directory.checkpoints, writes=False).restore(path)
    print(f"{path}: {iteration} iterations", file=sys.stderr)
    sampler = make_sampler(config, strategy, state.sampling_generator, kind)
    return SavedRun(strategy, state, sampler, iteration)


def _sample(config: Config, kind: Kind, make_state: MakeState) -> None:
    """Draws samples, as --sample_format says; prints where they are."""
    sample_files.check(config, kind)
    run = open_saved_run(config, kind, make_state)
    print(sample_files.write(config, kind, run.sampler, run.iteration))


def _export(config: Config, kind: Kind, make_state: MakeState) -> None:
    """Writes the generator as a SavedModel and a Keras file; prints where.

    On one device of this machine, whatever the run was trained on: there is nothing to share out.
    """
    export.check(config)
    run = open_saved_run(config, kind, make_state, tf.distribute.get_strategy())
    print(export.write(config, kind, run.state.sampling_generator))


def _evaluate(config: Config, kind: Kind, make_state: MakeState) -> None:
    """Judges samples against the data: prints a table, and adds to the run's curves."""
    # With them come SciPy and scikit-learn, which the other modes need not wait for.
    from .evaluation import report  # noqa: PLC0415
    from .evaluation.evaluator import open_evaluator  # noqa: PLC0415

    directory = RunDirectory(config.run_directory)
    run = open_saved_run(config, kind, make_state)
    evaluator = open_evaluator(config, run.strategy, run.sampler, kind)
    directory.warn_of_other_data(registry.fingerprint(config))
    values = evaluator.evaluate()
    if workers.find(config).is_chief:
        print(report.table(run.iteration, values, evaluator.about), flush=True)
        try:  # a run that may only be read is worth judging, too
            report.record(directory, run.iteration, values, evaluator.about)
        except (tf.errors.OpError, OSError) as error:
            print(
                f"warning: --model_dir={directory.path} cannot be written ({reason(error)}), so "
                "these figures are not recorded",
                file=sys.stderr,
            )
