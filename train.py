"""Trains a Wasserstein GAN with gradient penalty on a Cloud TPU, GPUs or a CPU.

python train.py                                          trains on digits, on the CPU
python train.py --tpu=NAME --model_dir=gs://BUCKET/RUN   trains on digits, on a TPU
python train.py --flagfile=configs/gaussians_25.flags    runs one of the experiments
"""

from __future__ import annotations

if __name__ == "__main__":
    # These come before the other imports, which take a while.
    from wgan_gp import signals, streams

    streams.ignore_output_errors()
    signals.exit_on_interrupt()

import dataclasses
import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import flags
import models
from wgan_gp import onednn, streams, tpu
from wgan_gp.config import PENALTIES_WITH_TARGET, SAVED_RUN_MODES, Config
from wgan_gp.data import registry as datasets
from wgan_gp.errors import UserError
from wgan_gp.tpu import topologies

if TYPE_CHECKING:
    import tensorflow as tf

    import losses
    from wgan_gp.checkpointing import Checkpoints
    from wgan_gp.data.source import Source, Stream
    from wgan_gp.monitoring import Writer
    from wgan_gp.probe import Probe
    from wgan_gp.run_directory import DataRecord, RunDirectory
    from wgan_gp.sampling import Sampler
    from wgan_gp.state import TrainState
    from wgan_gp.step import ReplicaStep
    from wgan_gp.strategy import Devices
    from wgan_gp.trainer import Trainer

# TensorFlow takes seconds to import, so modules that need it are imported inside functions,
# after the flags are validated. By default it also logs CUDA errors on every machine without a
# GPU; a user who sets TF_CPP_MIN_LOG_LEVEL still sees them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
onednn.enable()


def main(argv: list[str]) -> int:
    """Runs the program and returns its exit status."""
    flags.define()
    try:
        config = flags.parse(argv)
        if config.mode in SAVED_RUN_MODES:
            from wgan_gp import saved_run

            saved_run.use(config.mode, config.run_directory, flags.given(), make_state)
            return 2 if streams.stdout_failed() else 0  # the result is on stdout
        program = {"train": train, "compile": compile_for_slice}[config.mode]
        stopped_by = program(resolve(config))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # Ctrl-C before there was anything to save
        return 128 + signal.SIGINT
    return 0 if stopped_by is None else 128 + stopped_by


def resolve(config: Config) -> Config:
    """Returns the configuration with the defaults that depend on other settings filled in.

    config.json therefore records every value in use, and giving a default explicitly does not
    change it. This function does not import TensorFlow.

    Raises:
      UserError: If a path is invalid, if the dataset or the model does not exist, if they do not
        fit each other, or if the topology of --mode=compile does not fit the run.
    """
    config.check_paths(built_in=config.dataset in datasets.BUILT_IN)
    shape = datasets.example_shape(config)
    datasets.classes(config)
    model_name = config.model or models.default(shape)
    generator_name = config.generator_model or model_name
    model, generator = check_models(config, shape)
    width = config.model_width or model.width
    if config.mode == "compile":
        check_topology(config)
    return dataclasses.replace(
        config,
        model_dir=config.run_directory,
        image_size=shape[0] if len(shape) == 3 else None,
        model=model_name,
        generator_model=generator_name,
        model_width=width,
        generator_width=config.generator_width
        or (width if generator_name == model_name else generator.width),
        generator_batch_size=config.generator_batch,
    )


def check_models(
    config: Config, shape: tuple[int, ...]
) -> tuple[models.registry.Model, models.registry.Model]:
    """Returns the registry entries of the critic and the generator for an example shape.

    Raises:
      UserError: If a model does not exist, or the models do not fit the examples or each other.
    """
    try:
        return models.check(
            config.model or models.default(shape),
            shape,
            generator_name=config.generator_model,
            width=config.model_width,
            generator_width=config.generator_width,
            conditioning=config.conditioning,
            generator_normalization=config.generator_normalization,
            critic_normalization=config.critic_normalization,
            critic_pooling=config.critic_pooling,
        )
    except models.DesignError as error:
        raise UserError(
            models.spelled(error.problem, as_flag), models.spelled(error.remedy, as_flag)
        ) from None


def as_flag(choice: models.Choice) -> str:
    """Returns a choice of networks as the command line spells it."""
    flags_of = {"name": "model", "generator_name": "generator_model", "width": "model_width"}
    return f"--{flags_of.get(choice.name, choice.name)}={choice.value}"


def check_topology(config: Config) -> None:
    """Raises UserError unless the run can be compiled for the slice that its flags name."""
    for flag, given in (("tpu", config.tpu is not None), ("cpu_replicas", config.cpu_replicas > 1)):
        if given:
            raise UserError(
                f"--{flag} says where to train, but --mode=compile trains nowhere", "omit it"
            )
    config.check_replicas(topologies.find(config.compile_topology).replicas)


def train(config: Config) -> int | None:
    """Trains and returns the number of the signal that stopped training, or None.

    Raises:
      UserError: If the run cannot be started or continued, or an error of TensorFlow during
        training has a known cause.
    """
    import tensorflow as tf

    from wgan_gp import checkpointing, faults, workers
    from wgan_gp.run_directory import RunDirectory

    directory = RunDirectory(config.run_directory)
    directory.check(config)  # fails early, before the minutes that connecting to a TPU takes
    if config.restore_from is not None:
        with directory.convert_file_errors("read"):
            begins = checkpointing.is_empty(directory.checkpoints)
        if begins:
            checkpointing.resolve_restore_path(config.restore_from)
    try:
        run = open_run(config, directory)
        trainer = make_trainer(run)
        print(f"training on {run.devices.describe()}", file=sys.stderr)
        if config.tpu is not None:
            warn_of_padding(run)
        stopped_by = trainer.run()
    except tf.errors.OpError as error:
        if explained := faults.explain_error(error, config, workers.find_cluster(config)):
            raise explained from error
        raise
    print(f"samples, curves and checkpoints are in {config.run_directory}")
    return stopped_by


def compile_for_slice(config: Config) -> None:
    """Compiles the run's steps for a TPU slice, without a TPU, and prints and writes a report.

    Raises:
      UserError: If the compiler is not installed or the run does not fit the slice.
    """
    topology = topologies.find(config.compile_topology)
    tpu.check_installed()
    from wgan_gp.run_directory import RunDirectory
    from wgan_gp.tpu import aot, report
    from wgan_gp.tpu.slice_strategy import SliceStrategy

    strategy = SliceStrategy(topology.replicas)
    step = make_step(config, make_state(config, strategy))
    directory = RunDirectory(config.run_directory)
    with directory.convert_file_errors("written"):
        result = aot.compile_slice(
            config,
            step,
            strategy,
            topology,
            example_shape=datasets.example_shape(config),
            directory=directory.compile,
            say=functools.partial(print, file=sys.stderr, flush=True),
        )
    print(report.table(result))


@dataclasses.dataclass(frozen=True)
class Run:
    """A run's devices, data, networks and checkpoints.

    Attributes:
      config: The resolved configuration.
      directory: The run directory.
      devices: The devices.
      kind: The shape and the number of classes of the data.
      source: The training data.
      state: The networks and optimizers.
      checkpoints: Saves and restores `state`.
      sampler: Draws samples from `state.sampling_generator`.
    """

    config: Config
    directory: RunDirectory
    devices: Devices
    kind: datasets.Kind
    source: Source | Stream
    state: TrainState
    checkpoints: Checkpoints
    sampler: Sampler

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The distribution strategy of the devices."""
        return self.devices.strategy


def open_run(config: Config, directory: RunDirectory | None = None) -> Run:
    """Connects to the devices, opens the data and creates newly initialized networks.

    No file of the run directory is read or written.

    Args:
      config: The resolved configuration.
      directory: The run directory. Defaults to that of the configuration.

    Raises:
      UserError: If the devices or the dataset are unavailable.
    """
    from wgan_gp.checkpointing import Checkpoints
    from wgan_gp.run_directory import RunDirectory
    from wgan_gp.sampling import make_sampler
    from wgan_gp.strategy import connect

    directory = directory or RunDirectory(config.run_directory)
    devices = connect(config)
    source = datasets.open_source(config)
    kind = datasets.kind(config)
    state = make_state(config, devices.strategy, kind)
    return Run(
        config=config,
        directory=directory,
        devices=devices,
        kind=kind,
        source=source,
        state=state,
        checkpoints=Checkpoints(
            state,
            directory.checkpoints,
            writes=devices.cluster.is_chief,
            keep=config.keep_checkpoints,
            keep_interval=config.keep_checkpoint_interval,
            restore_from=config.restore_from,
        ),
        sampler=make_sampler(config, devices.strategy, state.sampling_generator, kind),
    )


def make_state(
    config: Config, strategy: tf.distribute.Strategy, kind: datasets.Kind | None = None
) -> TrainState:
    """Returns newly initialized networks and optimizers, placed by the strategy.

    Args:
      config: The resolved configuration.
      strategy: Places the variables.
      kind: The shape and the number of classes of the data. Defaults to those of
        `config.dataset`.

    Raises:
      UserError: If the models do not fit the data or each other.
    """
    from wgan_gp.state import create_state
    from wgan_gp.strategy import Devices, find_platform
    from wgan_gp.workers import find_cluster

    devices = Devices(strategy, find_cluster(config), find_platform(config))
    kind = kind or datasets.kind(config)
    check_models(config, kind.example_shape)  # a saved run has not been checked yet
    build_networks = functools.partial(
        models.build,
        config.model,
        kind.example_shape,
        config.latent_size,
        config.model_width,
        generator_name=config.generator_model,
        generator_width=config.generator_width,
        depth=config.model_depth,
        classes=kind.classes,
        conditioning=config.conditioning,
        activation=config.activation,
        generator_normalization=config.generator_normalization,
        generator_channels=config.generator_channels,
        critic_normalization=config.critic_normalization,
        critic_pooling=config.critic_pooling,
        batch_norm_momentum=config.batch_norm_momentum,
        sampling_statistics=config.sampling_statistics,
        fused_resampling=devices.use_fused_resampling(config.fused_resampling),
        strides_by_blocks=devices.use_strides_by_blocks,
        precision=config.precision,
    )
    return create_state(build_networks, config, strategy)


def make_objective(config: Config) -> losses.GanObjective:
    """Returns the training objective that the configuration describes."""
    import losses

    acgan = config.conditioning == "acgan"
    return losses.GanObjective(
        adversarial_loss=config.adversarial_loss,
        penalty=config.penalty,
        penalty_weight=config.penalty_weight,
        penalty_target=config.penalty_target,
        penalty_interval=config.penalty_interval,
        penalty_noise=config.penalty_noise,
        clip_value=config.clip_value,
        drift_weight=config.drift_weight,
        critic_class_weight=config.critic_class_weight if acgan else 0.0,
        generator_class_weight=config.generator_class_weight if acgan else 0.0,
    )


def make_step(config: Config, state: TrainState) -> ReplicaStep:
    """Returns the updates of one replica, to be run or to be compiled for a TPU."""
    import losses
    from wgan_gp.step import ReplicaStep

    return ReplicaStep(
        state=state,
        objective=make_objective(config),
        global_mean=losses.global_mean,
        latent_size=config.latent_size,
        batch_size=config.batch_size,
        generator_batch_size=config.generator_batch,
        seed=config.seed,
        classes=datasets.classes(config),
        critic_takes_labels=config.conditioning in models.LABELED_CRITICS,
        generator_ema_decay=config.generator_ema_decay,
    )


def check_critic(run: Run) -> None:
    """Checks the critic on a few real examples, called as in training.

    Findings that do not prevent training are printed as warnings on stderr.

    Raises:
      UserError: If the critic violates an assumption of the penalty.
    """
    import losses
    from wgan_gp.data.pipeline import first_examples
    from wgan_gp.networks import conditioned

    examples, labels = first_examples(run.source, min(16, run.config.batch_size))
    takes_labels = run.config.conditioning in models.LABELED_CRITICS
    outputs = conditioned(run.state.critic, labels if takes_labels else None, training=True)

    def critic(images: tf.Tensor) -> tf.Tensor:
        scores = outputs(images)
        return scores[0] if isinstance(scores, (tuple, list)) else scores

    # Without a gradient penalty, nothing is differentiated twice.
    asked = losses.PENALTIES[run.config.penalty].what is not None
    harmless = () if asked else ("no_second_derivative",)
    for finding in losses.check_critic(critic, examples):
        if finding.name == "random_scores" and run.config.critic_normalization == "spectral":
            continue  # spectral normalization refines its estimate with every call
        if finding.fatal and finding.name not in harmless:
            raise UserError(
                f"--model={run.config.model} has a critic that --penalty={run.config.penalty} "
                f"cannot train: {finding}",
                "mend it in models/",
            )
        print(f"warning: --model={run.config.model}, its critic: {finding}", file=sys.stderr)


def warn_of_padding(run: Run) -> None:
    """Warns on stderr about dimensions of the batch and the networks that a TPU would pad."""
    from wgan_gp.tpu.advice import on_padding

    replicas = run.strategy.num_replicas_in_sync
    for line in on_padding(
        run.config.batch_size // replicas,
        run.config.generator_batch // replicas,
        replicas,
        [run.state.critic, run.state.generator],
        lanes=min(core.lanes for core in topologies.CORES.values()),
    ):
        print(f"warning: {line}", file=sys.stderr)


def make_probe(run: Run, step: ReplicaStep) -> Probe:
    """Returns the probe of the critic on the training data and the held-out data, if any."""
    from wgan_gp.data.pipeline import distributed_batches
    from wgan_gp.probe import Probe

    def from_the_beginning(source: Source | Stream) -> Callable[[], Iterator]:
        return functools.partial(
            distributed_batches, source, run.strategy, 0, batch_size=run.config.batch_size
        )

    held_out = datasets.open_held_out(run.config)
    # A lazy penalty counts k times in every k-th step, but the probe evaluates a single step.
    every_step = make_objective(dataclasses.replace(run.config, penalty_interval=1))
    return Probe(
        dataclasses.replace(step, objective=every_step),
        run.strategy,
        batches=from_the_beginning(run.source),
        held_out=None if held_out is None else from_the_beginning(held_out),
    )


def make_writer(run: Run, critic_terms: Sequence[str], evaluated: Mapping[str, Any]) -> Writer:
    """What shows a run in its directory and on the terminal.

    Args:
      run: the run.
      critic_terms: the names of the critic's terms.
      evaluated: what is evaluated by what; see `EvaluationFileWriter`.
    """
    from wgan_gp import monitoring
    from wgan_gp.events import COMPARED, TensorBoardWriter
    from wgan_gp.networks import summary_of

    config, directory = run.config, run.directory
    in_directory = monitoring.Writers(
        TensorBoardWriter(
            directory.events,
            settings={name: getattr(config, name) for name in COMPARED},
            texts={
                "config": json.dumps(config.to_dict(), indent=2),
                "generator": summary_of(run.state.generator),
                "critic": summary_of(run.state.critic),
            },
            critic_terms=critic_terms,
        ),
        monitoring.JsonlWriter(directory.metrics),
        monitoring.ImageFileWriter(directory.samples),
        monitoring.EvaluationFileWriter(directory.evaluation, evaluated),
        reporting=functools.partial(directory.convert_file_errors, "written"),
    )
    return monitoring.Writers(in_directory, monitoring.ConsoleWriter(config.train_steps))


def data_record(run: Run) -> DataRecord:
    """Returns the content of data.json for a run."""
    from wgan_gp import shuffling
    from wgan_gp.run_directory import DataRecord

    return DataRecord(
        run.kind.example_shape,
        run.kind.classes,
        # A dataset that generates its examples has no order.
        order=None if run.source.size is None else shuffling.ORDER,
        fingerprint=datasets.fingerprint(run.config),
    )


def make_trainer(run: Run, *more_writers: Writer) -> Trainer:
    """Returns the trainer of a run, which writes to the run directory and to `more_writers`.

    Restores the newest checkpoint, if there is one.

    Raises:
      UserError: If the run directory cannot be written or holds another run, if a checkpoint
        cannot be restored, or if the critic cannot be trained with the penalty.
    """
    from wgan_gp import sampling, workers
    from wgan_gp.data.pipeline import distributed_batches
    from wgan_gp.loop import make_train_loop
    from wgan_gp.monitoring import Writers
    from wgan_gp.profiling import Profiler
    from wgan_gp.trainer import Trainer
    from wgan_gp.verdict import Judge

    config, directory = run.config, run.directory
    jit_compile = run.devices.use_jit(config.jit_compile)
    check_critic(run)
    cluster = run.devices.cluster
    together = cluster.has_peers
    owner, evaluator, writer = None, None, Writers(*more_writers)
    data = data_record(run)
    if cluster.is_chief:
        directory.check_data(config, data)
    newest = run.checkpoints.newest
    start = run.checkpoints.restore_latest()
    step = make_step(config, run.state)
    probe = make_probe(run, step)
    check_same_run = functools.partial(
        workers.check_same_run, run.strategy, run.source.size, data.fingerprint, probe.has_held_out
    )
    if together:
        check_same_run(start)
    if config.evaluate_interval:
        from wgan_gp.evaluation.evaluator import open_evaluator  # imports SciPy and scikit-learn

        evaluator = open_evaluator(config, run.strategy, run.sampler, run.kind)
    # Files of the run are written from here on, after all that may refuse it, and by the chief
    # only. The other processes compute the same values and write nothing.
    if cluster.is_chief:
        owner = directory.claim(config, data)
        if run.checkpoints.newest != newest:  # the former owner was not done yet
            if together:
                owner.release()
                raise UserError(
                    f"another process has just saved a checkpoint in {config.run_directory}",
                    "start all processes again",
                )
            start = run.checkpoints.restore_latest()
        about = evaluator.about if evaluator else {}
        writer = Writers(make_writer(run, step.objective.critic_term_names, about), *more_writers)
    return Trainer(
        config,
        start=start,
        train_loop=make_train_loop(
            step, run.strategy, n_critic=config.n_critic, jit_compile=jit_compile
        ),
        batches=functools.partial(
            distributed_batches, run.source, run.strategy, batch_size=config.batch_size
        ),
        probe=probe,
        judge=Judge(
            target=config.penalty_target if config.penalty in PENALTIES_WITH_TARGET else 0.0,
            one_sided=config.penalty == "one_sided",
        ),
        checkpoints=run.checkpoints,
        writer=writer,
        draw=sampling.make_draw(run.sampler, run.source),
        draw_real=functools.partial(sampling.draw_real, run.source),
        evaluate=evaluator.evaluate if evaluator else None,
        owner=owner,
        begin=check_same_run if together else None,
        agree=functools.partial(workers.agree_to_stop, run.strategy) if together else None,
        profiler=Profiler(config.profile_range, directory.events),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv))
