"""Trains a run (--mode=train)."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from .. import losses
from ..config import Config, settings_with
from ..config.ranking import MINIMIZED
from ..data.data_record import DataRecord, check_data, use_record
from ..data.datasets import Dataset
from ..data.feed import Examples, distributed_batches
from ..errors import UserError
from ..run_directory.directory import RunDirectory
from ..runtime import cluster
from ..runtime.devices import Devices
from ..runtime.signals import in_notebook
from ..training import ada, checkpoint_files
from ..training.ada import AdaHook
from ..training.checkpointing import Checkpoints
from ..training.hooks import Hook
from ..training.improvement import EarlyStopHook, KeepBestHook
from ..training.loop import DeviceStateLoop
from ..training.networks import summary_text
from ..training.probe import CriticProbe
from ..training.step import ReplicaStep
from ..training.trainer import Trainer
from ..writers.console import ConsoleWriter
from ..writers.files import EvaluationFileWriter, ImageFileWriter, JsonlWriter
from ..writers.notebook import NotebookWriter
from ..writers.tensorboard import TensorBoardWriter
from ..writers.writer import Writer, Writers
from .build import make_loop, make_objective, make_step
from .library import Library
from .resolve import kinds_of_metrics
from .result import Result
from .run import Run, open_run
from .run_errors import explaining_errors
from .run_hooks import (
    CheckpointHook,
    EvaluationHook,
    ProfileHook,
    SampleHook,
    SummaryHook,
)
from .saved_run import check_resume
from .start_checks import check_critic, warn_of_padding, warn_of_unused_settings
from .user_code import extensions, loading


def train(
    config: Config,
    dataset: Dataset,
    library: Library,
    *,
    devices: Devices | None = None,
    writers: Sequence[Writer] = (),
    hooks: Sequence[Hook] = (),
) -> Result:
    """Starts or resumes a run and trains it.

    Args:
      config: The resolved configuration; see `resolve.resolve`.
      dataset: The dataset of the configuration.
      library: The networks, and the parts of the user.
      devices: The devices, if they are already connected.
      writers, hooks: See `make_trainer`.

    Raises:
      UserError: If the run cannot be started or continued, or an error of TensorFlow during
        training has a known cause.
    """
    directory = RunDirectory(config.run_directory)
    # This fails early, before the minutes that connecting to a TPU takes.
    if saved := check_resume(directory, config):
        loading.warn_of_changes(saved, config)
    use_record(dataset, directory)
    warn_of_unused_settings(config, dataset.spec, library.models)
    if config.restore_from is not None:
        with directory.convert_file_errors("read"):
            is_new = checkpoint_files.is_empty(directory.checkpoints)
        if is_new:
            checkpoint_files.resolve_restore_path(config.restore_from, config.checkpoint)
    is_chief = cluster.find_cluster(config).is_chief
    named = extensions.load_writers(config) if is_chief else ()
    hooks = [*extensions.load_hooks(config), *hooks]
    with explaining_errors(config):
        run = open_run(config, dataset, library, directory, devices)
        trainer = make_trainer(run, writers=writers, named=named, hooks=hooks)
        logging.info(f"note: {run.dataset.describe(run.data)}")
        if (table := run.dataset.spec.table) is not None:
            logging.info(table.describe())
        logging.info(f"training on {run.devices.describe()}")
        if run.devices.platform == "TPU":
            warn_of_padding(run)
        stopped_by = trainer.run()
    return Result(run, run.checkpoints.iteration, stopped_by)


def make_trainer(
    run: Run,
    *,
    writers: Sequence[Writer] = (),
    named: Sequence[Callable[[RunDirectory], Writer]] = (),
    hooks: Sequence[Hook] = (),
) -> Trainer:
    """Returns the trainer of a run, which restores the newest checkpoint, if there is one.

    Args:
      run: The run.
      writers: Further writers. They receive what is written to the run directory, also in
        processes that do not write to it.
      named: Open the writers of --writers, which only the chief does.
      hooks: Further actions between loops, after those of the run.

    Raises:
      UserError: If the run directory cannot be written or holds another run, if a checkpoint
        cannot be restored, or if the critic cannot be trained with the penalty.
    """
    config, is_chief, peers = run.config, run.devices.cluster.is_chief, run.devices.peers
    check_critic(run)
    record = DataRecord.of(run.dataset, run.dataset.count(run.data))
    if is_chief:
        if run.directory.checked != config:  # `train` does it before it connects to the devices
            check_resume(run.directory, config)
        check_data(run.directory, record)
    newest = run.checkpoints.newest
    run.checkpoints.restore_latest()
    step = make_step(config, run.state, run.dataset.spec, run.library)
    critic_terms = step.critic_term_names
    probe = make_probe(run, step)
    if config.augment == "ada":
        ada.check_measured(probe.has_held_out, critic_terms)

    def check_peers(iteration: int) -> None:
        if peers is not None:
            cluster.check_same_run(
                peers, run.data.size, record.fingerprint, probe.has_held_out, iteration
            )

    check_peers(run.checkpoints.iteration)
    evaluator = run.open_evaluator() if config.evaluate_interval else None
    train_loop, batches = make_loop(
        config, run.devices, run.data, step, losses.reduce_over_replicas
    )
    # Files of the run are written from here on, after everything that may refuse it, and only by
    # the chief. The other processes compute the same values and write nothing.
    passed = [extensions.report_errors(each, "writer") for each in writers]
    writer = Writers(*passed)
    if is_chief:
        _claim(run, record, newest)
        writer = Writers(
            make_writer(run, critic_terms, evaluator.metadata if evaluator else {}),
            *[open_writer(run.directory) for open_writer in named],
            *passed,
        )
    actions: list[Hook] = []
    if run.state.augment_probability is not None:
        # Before the checkpoint, which contains the probability.
        images = config.n_critic * config.batch_size
        actions.append(AdaHook(run.state.augment_probability, probe, images))
    if config.profile:
        profiler = train_loop.profiler if isinstance(train_loop, DeviceStateLoop) else None
        actions.append(ProfileHook(config.last_step, run.directory.events, profiler))
    summaries = SummaryHook(run, writer, probe)
    actions += [summaries, SampleHook(run, writer)]
    if evaluator is not None:
        actions.append(EvaluationHook(run, writer, evaluator, actions))
        actions += improvement_hooks(run)
    actions += [CheckpointHook(run), *[extensions.report_errors(each, "hook") for each in hooks]]
    return Trainer(
        config,
        train_loop=train_loop,
        batches=batches,
        checkpoints=run.checkpoints,
        directory=run.directory,
        writer=writer,
        hooks=actions,
        peers=peers,
        check_peers=check_peers,
        diagnosis=lambda: summaries.last_diagnosis,
    )


def improvement_hooks(run: Run) -> Iterator[Hook]:
    """Yields the hooks of --keep_best and --stop_early."""
    config, checkpoints, writes = run.config, run.checkpoints, run.devices.cluster.is_chief
    if config.keep_best is not None:
        best = Checkpoints(run.state, run.directory.best, writes=writes, keep=1)
        yield KeepBestHook(config.keep_best, checkpoints, best, writes=writes)
    if config.patience is not None:
        yield EarlyStopHook(*config.patience, checkpoints)


def _claim(run: Run, record: DataRecord, newest: int) -> None:
    """Locks the run directory, and restores what another process has saved since `newest`."""
    run.directory.claim(run.config, record)
    if run.checkpoints.newest != newest:  # the former owner was not done yet
        if run.devices.cluster.has_peers:
            run.directory.release_lock()
            raise UserError(
                f"another process has just saved a checkpoint in {run.directory.path}",
                "start all processes again",
            )
        run.checkpoints.restore_latest()


def make_probe(run: Run, step: ReplicaStep) -> CriticProbe:
    """Returns the probe of the critic on the training data and the held-out data, if any."""

    def from_the_beginning(data: Examples) -> Callable[[], Iterator]:
        return functools.partial(
            distributed_batches, data, run.devices.strategy, 0, batch_size=run.config.batch_size
        )

    held_out = run.dataset.open_held_out()
    objective = make_objective(run.config, run.library, every_step=True)
    return CriticProbe(
        dataclasses.replace(step, objective=objective),
        run.devices.strategy,
        batches=from_the_beginning(run.data),
        held_out=None if held_out is None else from_the_beginning(held_out),
    )


def compared_settings(config: Config) -> dict[str, str | float]:
    """Returns the settings in which HParams compares a run with others, by name.

    A setting that is None has the value "default".
    """
    values = {name: getattr(config, name) for name in settings_with("compared", config)}
    return {name: "default" if value is None else value for name, value in values.items()}


def compared_metrics(run: Run) -> list[str]:
    """Returns the tags of further metrics in which HParams compares a run with others."""
    config = run.config
    if not config.evaluate_interval:
        return []
    kind, *_ = kinds_of_metrics(config, run.dataset.spec)
    named = [config.keep_best, config.patience and config.patience[0], *MINIMIZED[kind][:2]]
    return [f"evaluation/{name}" for name in dict.fromkeys(named) if name]


def make_writer(run: Run, critic_terms: Sequence[str], metadata: Mapping[str, Any]) -> Writer:
    """Returns the writer of a run to its directory and the terminal or the notebook.

    Args:
      run: The run.
      critic_terms: The names of the critic's terms.
      metadata: The entries of evaluation.jsonl that describe the evaluator.
    """
    config, directory = run.config, run.directory
    in_directory = Writers(
        TensorBoardWriter(
            directory.events,
            settings=compared_settings(config),
            metrics=compared_metrics(run),
            texts={
                "config": json.dumps(config.to_dict(), indent=2),
                "generator": summary_text(run.state.generator),
                "critic": summary_text(run.state.critic),
            },
            critic_terms=critic_terms,
        ),
        JsonlWriter(directory.metrics),
        ImageFileWriter(directory.samples),
        EvaluationFileWriter(directory.evaluation, metadata),
        reporting=functools.partial(directory.convert_file_errors, "written"),
    )
    show = NotebookWriter if in_notebook() else ConsoleWriter
    return Writers(in_directory, show(config.train_steps))
