"""Checks of a run before it trains: its critic, and the padding on a TPU."""

from __future__ import annotations

import tensorflow as tf
from absl import logging

from ..data.pipeline import first_examples
from ..errors import UserError
from ..tpu import topologies
from ..tpu.advice import advise_on_padding
from ..training.networks import bind_labels
from .build import make_objective, network_builder
from .run import Run
from .user_code.network_checks import batch_norm_layers, custom_networks
from .user_code.user_objective import check_objective

_EXAMPLES = 16  # real examples for which the critic is checked


def check_critic(run: Run) -> None:
    """Checks the critic on a few real examples, called as in training.

    Findings that do not prevent training are printed as warnings on stderr.

    Raises:
      UserError: If the critic violates an assumption of the penalty.
    """
    config, (models, losses) = run.config, (run.library.models, run.library.losses)
    group = max(1, config.minibatch_stddev)
    count = max(min(_EXAMPLES, config.batch_size) // group, 2) * group
    examples, labels = first_examples(run.data, count)
    if not tf.reduce_any(examples != examples[:1]):
        # Equal examples, such as empty images, show nothing about a critic; random ones do.
        examples += tf.random.stateless_normal(examples.shape, seed=[0, 0])
    custom = "critic" in custom_networks(config, models)
    takes_labels = config.conditioning in models.LABELED_CRITICS
    outputs = bind_labels(run.state.critic, labels if takes_labels else None, training=True)

    def critic(images: tf.Tensor) -> tf.Tensor:
        scores = outputs(images)
        return scores[0] if isinstance(scores, (tuple, list)) else scores

    # Without a gradient penalty, nothing is differentiated twice.
    first = config.penalty.split(",")[0]  # only one that is alone has no function
    has_penalty = losses.PENALTIES[first].function is not None
    harmless = () if has_penalty else ("no_second_derivative",)
    findings = losses.check_critic(
        critic,
        examples,
        group_size=group,
        # It takes seconds for a deep network, and the tests do it for those of `models`.
        finite_differences=custom and has_penalty,
    )
    for finding in findings:
        if finding.name == "random_scores" and config.critic_normalization == "spectral":
            continue  # spectral normalization refines its estimate with every call
        if finding.name == "constant_gradient" and config.model == "r3gan":
            continue  # its residual branches are initially zero, so that it starts as linear
        if finding.fatal and finding.name not in harmless:
            coupled = custom and finding.name == "coupled_examples"
            layers = batch_norm_layers(run.state.critic) if coupled else []
            where = f" ({', '.join(layers)})" if layers else ""
            raise UserError(
                f"--model={config.model} has a critic that --penalty={config.penalty} "
                f"cannot train: {finding}{where}",
                "correct this network" if custom else "fix it in models/",
            )
        logging.warning(f"--model={config.model}, its critic: {finding}")


def check_terms(run: Run) -> None:
    """Checks the terms of the objective on new networks, if a part of them is of the user.

    Weights that the losses do not depend on are named in a warning on stderr.

    Raises:
      UserError: If a loss cannot be computed or cannot train its network.
    """
    config, library, spec = run.config, run.library, run.dataset.spec
    custom = custom_networks(config, library.models)
    if not custom and library.objective is None:
        return
    examples, labels = first_examples(run.data, 2 * max(2, config.minibatch_stddev))
    generator, critic = network_builder(config, run.devices, spec, library.models)()
    takes_labels = config.conditioning in library.models.LABELED_CRITICS
    latents = tf.random.stateless_normal([len(examples), config.latent_size], seed=[0, 0])
    is_conditional = spec.classes or spec.condition_size
    check_objective(
        make_objective(config, library),
        [generator, critic],
        lambda: bind_labels(generator, labels if is_conditional else None, training=True)(latents),
        bind_labels(critic, labels if takes_labels else None, training=True),
        examples,
        labels,
        {role: f"{networks.flag}: {role}" for role, networks in custom.items()},
    )


def warn_of_padding(run: Run) -> None:
    """Warns about dimensions of the batch and the networks that a TPU would pad."""
    replicas = run.devices.strategy.num_replicas_in_sync
    for line in advise_on_padding(
        run.config.batch_size // replicas,
        run.config.generator_batch // replicas,
        replicas,
        [run.state.critic, run.state.generator],
        lanes=min(core.lanes for core in topologies.CORES.values()),
    ):
        logging.warning(line)
