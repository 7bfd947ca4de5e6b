"""Losses that the layers of a network add: regularizers and Keras's `add_loss`.

A layer adds two kinds of losses. A regularizer of a weight depends on the weight alone. An
activity regularizer, or `add_loss` in `call`, depends on the examples of a call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ..errors import UserError
from .networks import UserNetwork
from .objective import ChangedObjective, Objective, Terms

TERM = "regularization"


@dataclasses.dataclass(frozen=True)
class RegularizedObjective(ChangedObjective):
    """An objective with a further term in the loss of a network: the losses of its layers.

    The term is the same number for each example, so that its mean over the examples of all replicas
    and micro-batches contains a regularizer of a weight once, and the mean of the losses of calls.

    The losses of a call are those of the first call of the critic, with which the losses of this
    project score real examples and samples together, and of the call of the generator that draws
    the samples of its step. Calls in a gradient penalty add nothing.

    Attributes:
      objective: The objective without the term.
      generator, critic: The networks whose layers add losses; None for a network without any.
    """

    generator: Any = None
    critic: Any = None

    @property
    def critic_term_names(self) -> tuple[str, ...]:
        return (*self.objective.critic_term_names, *([TERM] if self.critic else []))

    @property
    def generator_term_names(self) -> tuple[str, ...]:
        return (*self.objective.generator_term_names, *([TERM] if self.generator else []))

    def critic_terms(
        self, critic: Callable, real: tf.Tensor, fake: tf.Tensor, **inputs: Any
    ) -> Terms:
        """Returns the terms of the objective, with the losses of the critic's layers."""
        graph = tf.compat.v1.get_default_graph()
        of_call: list[tf.Tensor] = []

        def score(examples: tf.Tensor) -> Any:
            output = critic(examples)
            # A loss of a call in a branch, such as a lazy penalty, is unknown outside the branch.
            if not of_call and tf.compat.v1.get_default_graph() is graph:
                of_call.append(_sum_of_call(self.critic))
            return output

        if self.critic is None:
            return self.objective.critic_terms(critic, real, fake, **inputs)
        terms = self.objective.critic_terms(score, real, fake, **inputs)
        return _with_term(terms, [*of_call, _sum_of_weights(self.critic)])

    def generator_terms(self, critic: Callable, fake: tf.Tensor, **inputs: Any) -> Terms:
        """Returns the terms of the objective, with the losses of the generator's layers."""
        if self.generator is None:
            return self.objective.generator_terms(critic, fake, **inputs)
        # The last call of the generator is the one that has drawn the samples.
        losses = [_sum_of_call(self.generator), _sum_of_weights(self.generator)]
        return _with_term(self.objective.generator_terms(critic, fake, **inputs), losses)


def with_regularization(objective: Objective, generator: Any, critic: Any) -> Objective:
    """Returns the objective, with a term for each network whose layers add losses.

    Raises:
      UserError: If the objective has another term of this name.
    """
    with_losses = RegularizedObjective(
        objective, *(each if _adds_losses(each) else None for each in (generator, critic))
    )
    if with_losses.generator is None and with_losses.critic is None:
        return objective
    if TERM in (*objective.critic_term_names, *objective.generator_term_names):
        raise UserError(
            f'the objective has a term "{TERM}", which is the name of the losses of layers',
            "give it another name",
        )
    return with_losses


def _with_term(terms: Terms, losses: Sequence[tf.Tensor]) -> Terms:
    total = tf.zeros_like(terms["loss"]) + tf.cast(tf.add_n(losses), terms["loss"].dtype)
    return {**terms, "loss": terms["loss"] + total, TERM: total}


def _adds_losses(network: Any) -> bool:
    """Returns True if the layers of a network add losses in training."""
    if not isinstance(network, UserNetwork):
        return bool(_regularized_weights(network))
    # A layer may add losses in training only. The trace is not run.
    traced = tf.function(lambda inputs: network(inputs, training=True), autograph=False)
    traced.get_concrete_function(network.inputs)
    return bool(network.layer_losses.take() or _regularized_weights(network))


def _sum_of_call(network: Any) -> tf.Tensor:
    losses = network.layer_losses.take() if isinstance(network, UserNetwork) else []
    return tf.add_n([tf.zeros([]), *(tf.reduce_mean(tf.cast(loss, tf.float32)) for loss in losses)])


def _sum_of_weights(network: Any) -> tf.Tensor:
    losses = [weight.regularizer(weight) for weight in _regularized_weights(network)]
    return tf.add_n([tf.zeros([]), *(tf.cast(loss, tf.float32) for loss in losses)])


def _regularized_weights(network: Any) -> list[Any]:
    weights = network.trainable_variables
    return [each for each in weights if getattr(each, "regularizer", None) is not None]
