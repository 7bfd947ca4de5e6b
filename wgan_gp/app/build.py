"""Builds the networks, the objective and the replica step of a run from its configuration."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from .. import losses
from ..config import Config, ObjectiveSettings
from ..data.feed import Examples, distributed_batches
from ..data.loop_input import LoopInput, is_resident, open_loop_input
from ..data.spec import DataSpec
from ..data.table import Table
from ..errors import UserError
from ..inference.sampling import Sampler
from ..runtime.devices import Devices
from ..runtime.tpu_machine import installed_versions
from ..training.augmentation import Augmentation
from ..training.loop import ReduceOverReplicas, TrainLoop, make_device_loop, make_host_loop
from ..training.networks import UserNetwork
from ..training.objective import Objective, generator_needs_real
from ..training.schedules import penalty_weight_end
from ..training.state import TrainState, create_state, missing_optimizers
from ..training.step import ReplicaStep
from .library import Library, Registry
from .resolve import check_networks
from .user_code.user_objective import create_objective

_SMALL = 1_000_000  # weights of both networks
_LONG = 1000  # iterations


def make_state(
    config: Config,
    devices: Devices,
    spec: DataSpec,
    models: Registry,
    optimizers: tuple[Any, Any] | None = None,
) -> TrainState:
    """Returns newly initialized networks and optimizers, placed by the strategy.

    Args:
      config: The resolved configuration.
      devices: The devices on which the networks are trained.
      spec: The shape and the number of classes of the data.
      models: The networks.
      optimizers: See `create_state`.

    Raises:
      UserError: If the models do not fit the data or each other.
    """
    check_networks(config, spec, models)  # a saved run has not been checked yet
    return create_state(
        network_builder(config, devices, spec, models),
        generator_builder(config, devices, spec, models),
        config,
        devices.strategy,
        adaptive_augmentation=config.augment == "ada",
        optimizers=optimizers,
    )


def network_builder(
    config: Config, devices: Devices, spec: DataSpec, models: Registry
) -> Callable[[], tuple[Any, Any]]:
    """Returns a function that returns a new generator and a new critic.

    The arguments are those of `make_state`.
    """
    return lambda: models.build(**_design(config, devices, spec))


def generator_builder(
    config: Config, devices: Devices, spec: DataSpec, models: Registry
) -> Callable[[], Any]:
    """Returns a function that returns a new generator; see `make_state`."""
    check_networks(config, spec, models)
    return lambda: models.build_generator(**_design(config, devices, spec))


def _design(config: Config, devices: Devices, spec: DataSpec) -> dict[str, Any]:
    """Returns the arguments with which a registry builds the networks of a run."""
    # The networks have channels last, also if the user's keras.json says otherwise.
    tf.keras.config.set_image_data_format("channels_last")
    table = spec.table
    return {
        "example_shape": spec.example_shape,
        "classes": spec.classes,
        "bounded": spec.bounded,
        "condition_size": spec.condition_size,
        "fused_resampling": devices.fuses_resampling,
        **config.design,
        "latent_size": spec.latent_size(config.latent_size),
        **({} if table is None else _columns(table)),
    }


def _columns(table: Table) -> dict[str, Any]:
    """Returns the attributes of a design for the columns of a typed table."""
    return {
        "one_hot": table.one_hot,
        "masked": table.masked,
        "label_features": table.label_features,
    }


def make_sampler(config: Config, devices: Devices, generator: Any, spec: DataSpec) -> Sampler:
    """Returns the sampler of a generator."""
    labels = spec.draw_labels(is_balanced=False)
    return Sampler(
        generator,
        devices.strategy,
        latent_size=spec.latent_size(config.latent_size),
        seed=config.seed,
        classes=spec.classes,
        conditions=spec.conditions if labels is None else labels,
    )


def make_objective(config: Config, library: Library, *, every_step: bool = False) -> Objective:
    """Returns the training objective that the configuration describes.

    An objective of the user gets those settings that are parameters of it.

    Args:
      config: The configuration.
      library: The objective of the user, if there is one.
      every_step: Whether the penalty is computed in every critic step, whatever its interval is.
        A lazy penalty counts k times in every k-th step, which diagnostics of a step must not see.

    Raises:
      UserError: If an objective of the user cannot be created or lacks a part of the interface.
    """
    fields = dataclasses.fields(ObjectiveSettings)
    settings = {field.name: getattr(config, field.name) for field in fields}
    defaults = {field.name: field.default for field in fields}
    given = {
        name: f"--{name}={value}" for name, value in settings.items() if value != defaults[name]
    }
    if flag := given.pop("class_weight", None):
        given |= dict.fromkeys(_class_weights(1.0), flag)
    settings["penalty_weight"] = config.penalty_weights
    settings["penalty_weight_end"] = penalty_weight_end(config)
    settings["penalty_decay_steps"] = config.schedule_length * config.n_critic
    weight = settings.pop("class_weight")
    # Without acgan, the critic does not classify.
    settings |= _class_weights(weight if config.conditioning == "acgan" else 0.0)
    if every_step:
        settings["penalty_interval"] = 1
    if library.objective is None:
        return typing.cast(Objective, losses.GanObjective(**settings))
    flag = f"--objective={config.objective}"
    objective = create_objective(library.objective, flag, settings, given)
    return objective.without_lazy_penalty() if every_step else objective


def _class_weights(weight: float) -> dict[str, float]:
    """Returns the parameters of an objective that follow from --class_weight."""
    return {"critic_class_weight": weight, "generator_class_weight": 0.1 * weight}


def make_loop(
    config: Config,
    devices: Devices,
    data: Examples,
    step: ReplicaStep,
    reduce_over_replicas: ReduceOverReplicas,
) -> tuple[TrainLoop, Callable[[int], Iterator]]:
    """Returns the training loop, and a function that opens its input at a critic step.

    Args:
      config: The resolved configuration.
      devices: The devices that run the loop.
      data: The training data.
      step: The updates of one replica.
      reduce_over_replicas: See `make_host_loop`.
    """
    if devices.chips:
        return _make_pjrt_loop(config, devices, data, step)
    strategy = devices.strategy
    jit_compile = devices.use_jit(
        config.jit_compile, is_faster_on_cpu=is_faster_with_xla(config, step.state)
    )
    if not devices.use_device_loop(jit_compile=jit_compile):
        batches = functools.partial(
            distributed_batches, data, strategy, batch_size=config.batch_size
        )
        host_loop = make_host_loop(
            step, strategy, jit_compile=jit_compile, reduce_over_replicas=reduce_over_replicas
        )
        return host_loop, batches
    loop_input = open_input(config, data, strategy)
    elements = functools.partial(loop_input.distributed_elements, data, strategy)
    device_loop = make_device_loop(
        step,
        strategy,
        loop_input,
        jit_compile=jit_compile,
        reduce_over_replicas=reduce_over_replicas,
    )
    return device_loop, elements


def is_faster_with_xla(config: Config, state: TrainState) -> bool:
    """Returns True if XLA trains the networks faster on a CPU, by measurement.

    It fuses the many small operations of a small network of dense layers. oneDNN is faster with
    large matrices, and with convolutions 14 to 20 times as fast; docs/performance.md has the table.
    The gain must be worth the seconds that the compilation takes. Networks and objectives of the
    user may contain operations that XLA lacks.

    Args:
      config: The resolved configuration.
      state: The networks.
    """
    networks = (state.generator, state.critic)
    weights = [weight for network in networks for weight in network.trainable_variables]
    return (
        not any(isinstance(network, UserNetwork) for network in networks)
        and {config.model, config.generator_model, config.objective} <= {"mlp", None}
        and sum(weight.shape.num_elements() for weight in weights) <= _SMALL
        and config.train_steps >= _LONG
        and not installed_versions(["tensorflow-tpu"])  # it lacks XLA's compiler for CPUs
    )


def _make_pjrt_loop(
    config: Config, devices: Devices, data: Examples, step: ReplicaStep
) -> tuple[TrainLoop, Callable[[int], Iterator]]:
    from ..pjrt.loop import PjrtLoop  # noqa: PLC0415
    from ..pjrt.slice_strategy import SliceStrategy  # noqa: PLC0415

    loop_input = open_input(config, data, SliceStrategy(devices.replicas))
    loop = PjrtLoop(step, loop_input, devices.chips)
    return loop, functools.partial(loop.batches, data)


def open_input(config: Config, data: Examples, strategy: tf.distribute.Strategy) -> LoopInput:
    """Returns the input of a loop that runs on the devices; see `open_loop_input`."""
    return open_loop_input(
        data,
        strategy,
        batch_size=config.batch_size,
        n_critic=config.n_critic,
        steps_per_loop=config.steps_per_loop,
        resident=is_resident(data),
    )


def make_step(
    config: Config,
    state: TrainState,
    spec: DataSpec,
    library: Library,
    *,
    every_step: bool = False,
) -> ReplicaStep:
    """Returns the updates of one replica, to be run or to be compiled for a TPU.

    Args:
      config: The resolved configuration.
      state: The networks and the optimizers.
      spec: The shape and the conditions of the data.
      library: The networks, and the parts of the user.
      every_step: See `make_objective`.

    Raises:
      UserError: If the optimizers of the run were objects of Python, and are not given.
    """
    if state.critic_optimizer is None:
        raise missing_optimizers()
    objective = make_objective(config, library, every_step=every_step)
    _check_pairs(objective, config, spec)
    augmentation = None
    if config.augment != "none":
        augmentation = Augmentation(config.transformations, state.augment_probability)
    conditions = spec.draw_labels(is_balanced=True)
    if spec.conditions is not None:
        conditions = spec.conditions.table
    return ReplicaStep(
        state=state,
        objective=objective,
        global_mean=losses.global_mean,
        regularization_share=losses.regularization_share,
        optimization=config,
        latent_size=spec.latent_size(config.latent_size),
        classes=spec.classes,
        critic_takes_labels=config.critic_takes_labels,
        conditions=conditions,
        augmentation=augmentation,
    )


def _check_pairs(objective: Objective, config: Config, spec: DataSpec) -> None:
    """Raises UserError if samples and real examples, which share inputs, are not as many."""
    in_pairs = spec.classes or spec.conditions is not None or config.augment != "none"
    has_other_size = config.generator_batch != config.batch_size
    if in_pairs and has_other_size and generator_needs_real(objective):
        raise UserError(
            f"--generator_batch_size={config.generator_batch} is not --batch_size="
            f"{config.batch_size}, but the objective needs the real examples, and samples have "
            "their labels and transformations",
            "omit --generator_batch_size",
        )
