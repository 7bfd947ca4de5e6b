"""Checks of a run before it trains: settings, critic, code of the user, and padding on a TPU."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging

from .. import losses
from ..config import GRADIENT_PENALTIES, PYTHON, Config, as_text, unmet
from ..data.feed import Examples
from ..data.spec import KINDS, DataSpec
from ..errors import UserError
from ..runtime.devices import Devices
from ..tpu import topologies
from ..tpu.report import advise
from ..training.networks import bind_labels
from .build import make_objective, network_builder
from .library import Library, Registry
from .user_code.network_checks import (
    batch_norm_layers,
    check_user_network,
    find_user_networks,
)
from .user_code.user_objective import check_objective

if typing.TYPE_CHECKING:
    from .run import Run

_EXAMPLES = 16  # real examples for which networks are checked


def warn_of_unused_settings(config: Config, spec: DataSpec, models: Registry) -> None:
    """Warns of settings that have no effect on a run.

    They are no errors, because one flagfile or script may serve several experiments.

    Args:
      config: The resolved configuration.
      spec: The data.
      models: The networks.
    """
    networks = {str(name) for name in (config.model, config.generator_model)}
    names = [PYTHON if models[name].of_user else name for name in networks]
    data = KINDS[len(spec.example_shape)]
    for name, value, other, found, _ in unmet(
        "applies", config, {"model": ",".join(names), "data": data}
    ):
        if config.objective is not None and other in ("penalty", "learning_rate_schedule"):
            continue  # an objective of the user may have parameters of the same names
        reason = f"on {data}" if other == "data" else f"with --{other}={found}"
        logging.warning(f"--{name}={as_text(value)} has no effect {reason}")


def check_critic(run: Run) -> None:
    """Checks a critic of this project on a few real examples, called as in training.

    Findings that do not prevent training are printed as warnings on stderr.

    Raises:
      UserError: If the critic violates an assumption of the penalty.
    """
    if "critic" not in find_user_networks(run.config, run.library.models):
        examples, labels = _first_examples(run.config, run.data)
        # The comparison with finite differences takes seconds for a deep network, and the tests do
        # it for those of `models`.
        _check_critic(
            run.state.critic, run.config, run.library, examples, labels, finite_differences=False
        )


def check_user_code(
    config: Config,
    devices: Devices,
    spec: DataSpec,
    library: Library,
    data: Examples | None = None,
) -> None:
    """Checks the networks and the objective of the user, on networks that are not trained.

    Findings that do not prevent training are printed as warnings on stderr, such as weights that
    the losses do not depend on.

    Args:
      config: The resolved configuration.
      devices: The devices on which the networks will be trained.
      spec: The shape and the number of classes of the data.
      library: The networks and losses.
      data: The training data. Without it, the scores and the terms of the losses are not checked.

    Raises:
      UserError: If the networks cannot be trained by the objective.
    """
    user = find_user_networks(config, library.models)
    if not user and (library.objective is None or data is None):
        return
    generator, critic = network_builder(config, devices, spec, library.models)()
    examples, labels = (None, None) if data is None else _first_examples(config, data)
    for network in (generator, critic):
        if networks := user.get(network.name):
            flag = networks.flag
            check_user_network(network, flag, config, spec, devices.replicas)
    if examples is None:
        return
    if "critic" in user:
        _check_critic(critic, config, library, examples, labels, finite_differences=True)
    latent_size = spec.latent_size(config.latent_size)
    latents = tf.random.stateless_normal([len(examples), latent_size], seed=[0, 0])
    is_conditional = spec.classes or spec.condition_size
    check_objective(
        make_objective(config, library),
        [generator, critic],
        lambda: bind_labels(generator, labels if is_conditional else None, training=True)(latents),
        _score(critic, config, labels),
        examples,
        labels,
        {role: f"{networks.flag}: {role}" for role, networks in user.items()},
    )


def warn_of_padding(run: Run) -> None:
    """Warns about dimensions of the batch and the networks that a TPU would pad."""
    replicas = run.devices.replicas
    for line in advise(
        [run.state.critic, run.state.generator],
        lanes=min(core.lanes for core in topologies.CORES.values()),
        batch=run.config.batch_size // replicas,
        generator_batch=run.config.generator_batch // replicas,
    ):
        logging.warning(line)


def _check_critic(
    network: Any,
    config: Config,
    library: Library,
    examples: tf.Tensor,
    labels: tf.Tensor,
    *,
    finite_differences: bool,
) -> None:
    outputs = _score(network, config, labels)
    if not tf.reduce_any(examples != examples[:1]):
        # Equal examples, such as empty images, show nothing about a critic; random ones do.
        examples += tf.random.stateless_normal(examples.shape, seed=[0, 0])

    def critic(images: tf.Tensor) -> tf.Tensor:
        scores = outputs(images)
        return scores[0] if isinstance(scores, (tuple, list)) else scores

    # Without a gradient penalty, nothing is differentiated twice.
    is_penalized = config.penalty.partition(",")[0] in GRADIENT_PENALTIES
    is_of_user = "critic" in find_user_networks(config, library.models)
    for finding in losses.check_critic(
        critic,
        examples,
        group_size=config.group_size,
        finite_differences=finite_differences and is_penalized,
    ):
        if finding.name == "random_scores" and config.critic_normalization == "spectral":
            continue  # spectral normalization refines its estimate with every call
        if finding.name == "constant_gradient" and library.models[str(config.model)].starts_linear:
            continue
        if finding.fatal and (is_penalized or finding.name != "no_second_derivative"):
            coupled = is_of_user and finding.name == "coupled_examples"
            layers = batch_norm_layers(network) if coupled else []
            where = f" ({', '.join(layers)})" if layers else ""
            raise UserError(
                f"--model={config.model} has a critic that --penalty={config.penalty} "
                f"cannot train: {finding}{where}",
                "correct this network" if is_of_user else "fix it in models/",
            )
        logging.warning(f"--model={config.model}, its critic: {finding}")


def _score(critic: Any, config: Config, labels: tf.Tensor) -> Callable[[tf.Tensor], Any]:
    """Returns the critic as a function of examples, called as in training."""
    return bind_labels(critic, labels if config.critic_takes_labels else None, training=True)


def _first_examples(config: Config, data: Examples) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns examples, whole groups of --minibatch_stddev, and their labels."""
    group = config.group_size
    return data.read(max(min(_EXAMPLES, config.batch_size) // group, 2) * group)
