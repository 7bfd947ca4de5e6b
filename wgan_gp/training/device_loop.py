"""The loop that is a part of the program of each replica, which runs without the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ..data.loop_input import LoopInput
from .accumulation import replica_part
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


def make_device_loop(
    step: ReplicaStep,
    strategy: tf.distribute.Strategy,
    loop_input: LoopInput,
    *,
    jit_compile: bool,
    reduce_over_replicas: ReduceOverReplicas,
) -> TrainLoop:
    """Returns a loop that runs on every replica, with one launch for each element of its input.

    Args:
      step: The updates of one replica.
      strategy: Runs the program on every replica.
      loop_input: The input of the loop.
      jit_compile: Whether XLA compiles the program; see `Devices.use_jit`.
      reduce_over_replicas: (strategy, each replica's shares) -> global means, the counterpart of
        `step.global_mean`. It is applied to the sums of each launch.

    Returns:
      A tf.function. Its iterator yields the elements of `loop_input`. `LoopOutput.waited` is the
      time from the end of each launch to the arrival of the next element.
    """
    program = replica_loop(step, loop_input, jit_compile=jit_compile)
    iterations_per_launch = loop_input.steps // step.optimization.n_critic

    @tf.function(autograph=False)
    def train_loop(elements: Iterator, iterations: tf.Tensor) -> LoopOutput:
        first = step.state.iteration.read_value()
        rollbacks = step.state.rollbacks.read_value()

        def launch(
            done: tf.Tensor, totals: Totals, waited: tf.Tensor
        ) -> tuple[tf.Tensor, Totals, tf.Tensor]:
            element, seconds = receive(strategy, elements, (totals.critic, totals.generator))
            count = tf.minimum(tf.cast(iterations_per_launch, tf.int64), iterations - done)
            shares = strategy.run(program, args=(element, first + done, count, rollbacks))
            critic, generator = reduce_over_replicas(strategy, (shares.critic, shares.generator))
            totals = Totals(
                totals.critic + critic,
                totals.generator + generator,
                tf.minimum(totals.critic_bad, _minimum(strategy, shares.critic_bad)),
                tf.minimum(totals.generator_bad, _minimum(strategy, shares.generator_bad)),
            )
            return done + count, totals, waited + seconds

        _, totals, waited = tf.while_loop(
            lambda done, *_: done < iterations,
            launch,
            (tf.constant(0, tf.int64), initial_totals(step), tf.constant(0.0, tf.float64)),
        )
        return finish(step, totals, waited=waited, iterations=iterations)

    return train_loop


def replica_loop(step: ReplicaStep, loop_input: LoopInput, *, jit_compile: bool) -> Callable:
    """Returns the loop of one replica as a tf.function.

    Training runs it on every replica; --mode=compile compiles it for a TPU.

    Args:
      step: The updates of one replica.
      loop_input: Reads the examples of a critic step from an element.
      jit_compile: Whether XLA compiles the function.

    Returns:
      A function (element, iterations done, number of iterations, rollbacks) -> the sums over these
      iterations of this replica's share of each critic term and of each generator term, in the
      order of the objective's names, and the first bad iterations; see `Totals`.
    """

    @traced(jit_compile=jit_compile)
    def loop(element: Any, first: tf.Tensor, count: tf.Tensor, rollbacks: tf.Tensor) -> Totals:
        read = loop_input.reader(element)
        batch_size, n_critic = step.optimization.batch_size, step.optimization.n_critic

        def read_batch(critic_update: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            position = critic_update * batch_size + replica_part(batch_size)["first"]
            return read(critic_update - first * n_critic, position)

        def critic_step(update: tf.Tensor, _: Totals) -> tuple[tf.Tensor, None]:
            terms = step.critic_step(*read_batch(update), update, rollbacks)
            return stack(terms, step.objective.critic_term_names), None

        def generator_step(update: tf.Tensor, _: None) -> tf.Tensor:
            # Reading the batch of the last critic step again keeps every critic step in the loop.
            last = update * n_critic + n_critic - 1
            batch = read_batch(last) if step.generator_needs_real else None
            terms = step.generator_step(update, rollbacks, batch)
            return stack(terms, step.objective.generator_term_names)

        return run_iterations(
            first,
            count,
            n_critic=n_critic,
            critic_step=critic_step,
            generator_step=generator_step,
            totals=initial_totals(step),
        )

    return loop


def _minimum(strategy: tf.distribute.Strategy, value: Any) -> tf.Tensor:
    """Returns the smallest of the scalars of all replicas."""
    return tf.reduce_min(tf.stack(strategy.experimental_local_results(value)))
