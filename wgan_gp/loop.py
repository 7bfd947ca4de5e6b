"""The device loop: many iterations in one call from Python."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from .step import ReplicaStep

# (distributed iterator over real batches, scalar int64: iterations)
#     -> mean of each term; seconds spent waiting for data; first iteration not finite
TrainLoop = Callable[
    [Iterator, tf.Tensor], tuple[dict[str, tf.Tensor], tf.Tensor, dict[str, tf.Tensor]]
]


def replica_programs(step: ReplicaStep, *, jit_compile: bool) -> tuple[Callable, Callable]:
    """The two programs that run on every replica, here and, by --mode=compile, on a TPU.

    Returns:
      critic_step: (real, labels, critic steps done, rollbacks) -> this replica's share of each
        critic term, stacked as in the objective's `critic_term_names`.
      generator_step: (generator steps done, rollbacks) -> likewise.
    """
    traced = functools.partial(
        tf.function,
        jit_compile=True if jit_compile else None,  # None: as TensorFlow sees fit
        autograph=False,  # no Python control flow to convert, which would take seconds
    )

    @traced
    def critic_step(
        real: tf.Tensor, labels: tf.Tensor, done: tf.Tensor, rollbacks: tf.Tensor
    ) -> tf.Tensor:
        terms = step.critic_step(real, labels, done, rollbacks)
        return tf.stack([terms[name] for name in step.objective.critic_term_names])

    @traced
    def generator_step(done: tf.Tensor, rollbacks: tf.Tensor) -> tf.Tensor:
        terms = step.generator_step(done, rollbacks)
        return tf.stack([terms[name] for name in step.objective.generator_term_names])

    return critic_step, generator_step


def make_train_loop(
    step: ReplicaStep, strategy: tf.distribute.Strategy, *, n_critic: int, jit_compile: bool
) -> TrainLoop:
    """A tf.function that runs a number of iterations.

    An iteration is n_critic critic steps, each on a fresh real batch and fresh noise, then
    one generator step. The loops stand around `strategy.run`, not inside it: on mirrored
    devices an optimizer's update forbids control flow inside a replica.

    Args:
      step: the two updates of one replica.
      strategy: runs them on every replica.
      n_critic: critic steps an iteration.
      jit_compile: ask XLA to compile each update; see strategy.use_jit.

    Returns:
      A function of an iterator over distributed real batches and of a scalar int64 tensor,
      the number of iterations. It advances the state and returns the global mean of every
      term, averaged over the steps it ran, as "critic/<term>" and "generator/<term>"; the
      seconds between the end of a step and the arrival of its successor's batch, float64; and,
      for "critic" and "generator", the first iteration, counted from 0, in which a term was not
      finite, so that no weight took it on; -1: none; int64.
    """
    critic_names = [f"critic/{name}" for name in step.objective.critic_term_names]
    generator_names = [f"generator/{name}" for name in step.objective.generator_term_names]
    critic_step, generator_step = replica_programs(step, jit_compile=jit_compile)

    def on_all_replicas(replica_step: Callable, *args) -> tf.Tensor:
        shares = strategy.run(replica_step, args=args)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, shares, axis=None)

    @tf.function
    def train_loop(
        real_batches: Iterator, iterations: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor, dict[str, tf.Tensor]]:
        waited, idle_since = tf.constant(0.0, tf.float64), tf.timestamp()
        critic_sum = tf.zeros([len(critic_names)])
        generator_sum = tf.zeros([len(generator_names)])
        critic_bad = generator_bad = tf.constant(-1, tf.int64)
        rollbacks = step.state.rollbacks.read_value()
        for _ in tf.range(iterations):
            done = step.state.iteration.read_value()
            for update in tf.range(tf.constant(n_critic, tf.int64)):
                real, labels = next(real_batches)
                # The clock looks on: no step waits for it.
                waited += tf.maximum(time_of(strategy, labels) - idle_since, 0.0)
                critic_sum += on_all_replicas(
                    critic_step, real, labels, done * n_critic + update, rollbacks
                )
                idle_since = time_of(strategy, critic_sum)
            generator_sum += on_all_replicas(generator_step, done, rollbacks)
            idle_since = time_of(strategy, generator_sum)
            critic_bad = first_not_finite(critic_bad, critic_sum, done)
            generator_bad = first_not_finite(generator_bad, generator_sum, done)
            step.state.iteration.assign_add(1)
        iterations = tf.cast(iterations, tf.float32)
        means = tf.concat([critic_sum / (iterations * n_critic), generator_sum / iterations], 0)
        terms = dict(zip(critic_names + generator_names, tf.unstack(means), strict=True))
        return terms, waited, {"critic": critic_bad, "generator": generator_bad}

    return train_loop


def first_not_finite(former: tf.Tensor, sums: tf.Tensor, iteration: tf.Tensor) -> tf.Tensor:
    """`former`, or the iteration, if it is the first after which the sums are not finite."""
    finite = tf.reduce_all(tf.math.is_finite(sums))
    return tf.where((former < 0) & ~finite, iteration, former)


def time_of(strategy: tf.distribute.Strategy, value: Any) -> tf.Tensor:
    """When a value, or that of every replica here, was there: seconds, scalar float64."""
    with tf.control_dependencies(strategy.experimental_local_results(value)):
        return tf.timestamp()
