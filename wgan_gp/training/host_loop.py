"""The loop in which the host launches every critic step and every generator step.

With mirrored devices, an optimizer's update cannot be inside the control flow of a replica, so the
loops are around `strategy.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from .loop import (
    LoopOutput,
    ReduceOverReplicas,
    Totals,
    TrainLoop,
    finish,
    initial_totals,
    receive,
    run_iterations,
    stack,
    traced,
)
from .step import ReplicaStep


def make_host_loop(
    step: ReplicaStep,
    strategy: tf.distribute.Strategy,
    *,
    jit_compile: bool,
    reduce_over_replicas: ReduceOverReplicas,
) -> TrainLoop:
    """Returns a loop that launches each step on every replica.

    Args:
      step: The updates of one replica.
      strategy: Runs them on every replica.
      jit_compile: Whether XLA compiles each update; see `Devices.use_jit`.
      reduce_over_replicas: (strategy, each replica's shares) -> global means, the counterpart of
        `step.global_mean`.

    Returns:
      A tf.function. Its iterator yields distributed batches of real examples and labels, one for
      each critic step. `LoopOutput.waited` is the time from the end of each step to the arrival of
      the next batch.
    """
    critic_program, generator_program = replica_programs(step, jit_compile=jit_compile)

    def on_all_replicas(program: Callable, *args) -> tf.Tensor:
        return reduce_over_replicas(strategy, strategy.run(program, args=args))

    @tf.function(autograph=False)
    def train_loop(real_batches: Iterator, iterations: tf.Tensor) -> LoopOutput:
        rollbacks = step.state.rollbacks.read_value()

        def critic_step(update: tf.Tensor, totals: Totals) -> tuple[Any, Any]:
            batch, waited = receive(strategy, real_batches, (totals.critic, totals.generator))
            real, labels = batch
            # Nor does the generation of fakes begin while the clock counts as waiting.
            with tf.control_dependencies([waited]):
                update = tf.identity(update)
            terms = on_all_replicas(critic_program, real, labels, update, rollbacks)
            return (terms, waited), batch

        def generator_step(update: tf.Tensor, batch: Any) -> tf.Tensor:
            return on_all_replicas(generator_program, update, rollbacks, batch)

        totals = initial_totals(step)
        totals = run_iterations(
            step.state.iteration.read_value(),
            iterations,
            n_critic=step.optimization.n_critic,
            critic_step=critic_step,
            generator_step=generator_step,
            totals=totals._replace(critic=(totals.critic, tf.constant(0.0, tf.float64))),
            generator_needs_real=step.generator_needs_real,
        )
        terms, waited = totals.critic
        return finish(
            step,
            totals._replace(critic=terms),
            waited=waited,
            iterations=iterations,
        )

    return train_loop


def replica_programs(step: ReplicaStep, *, jit_compile: bool) -> tuple[Callable, Callable]:
    """Returns the critic step and the generator step as tf.functions for one replica.

    Args:
      step: The updates of one replica.
      jit_compile: Whether XLA compiles each function.

    Returns:
      critic_step: (real, labels, critic steps done, rollbacks) -> this replica's share of each
        critic term, stacked in the order of the objective's `critic_term_names`.
      generator_step: (generator steps done, rollbacks, real batch if `generator_needs_real`) ->
        this replica's share of each generator term, stacked in the order of `generator_term_names`.
    """
    trace = traced(jit_compile=jit_compile)

    @trace
    def critic_step(
        real: tf.Tensor, labels: tf.Tensor, done: tf.Tensor, rollbacks: tf.Tensor
    ) -> tf.Tensor:
        return stack(
            step.critic_step(real, labels, done, rollbacks), step.objective.critic_term_names
        )

    @trace
    def generator_step(done: tf.Tensor, rollbacks: tf.Tensor, batch: Any = None) -> tf.Tensor:
        terms = step.generator_step(done, rollbacks, batch)
        return stack(terms, step.objective.generator_term_names)

    return critic_step, generator_step
