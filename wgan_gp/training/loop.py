"""The device loop, which runs many iterations in one call from Python."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from .step import ReplicaStep

# (distributed iterator over real batches, scalar int64: number of iterations)
#     -> mean of each term; seconds spent waiting for data; first iteration that was not finite
TrainLoop = Callable[
    [Iterator, tf.Tensor], tuple[dict[str, tf.Tensor], tf.Tensor, dict[str, tf.Tensor]]
]


def replica_programs(step: ReplicaStep, *, jit_compile: bool) -> tuple[Callable, Callable]:
    """Returns the critic step and the generator step as tf.functions for one replica.

    Training runs them on every replica; --mode=compile compiles them for a TPU.

    Args:
      step: The updates of one replica.
      jit_compile: Whether XLA compiles each function.

    Returns:
      critic_step: (real, labels, critic steps done, rollbacks) -> this replica's share of each
        critic term, stacked in the order of the objective's `critic_term_names`.
      generator_step: (generator steps done, rollbacks) -> this replica's share of each generator
        term, stacked in the order of `generator_term_names`.
    """
    traced = functools.partial(
        tf.function,
        jit_compile=True if jit_compile else None,  # None: TensorFlow decides
        autograph=False,  # there is no control flow to convert, and trying would take seconds
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
    step: ReplicaStep,
    strategy: tf.distribute.Strategy,
    *,
    n_critic: int,
    jit_compile: bool,
    reduce_over_replicas: Callable[[tf.distribute.Strategy, Any], Any],
) -> TrainLoop:
    """Returns a tf.function that runs a given number of iterations.

    An iteration is n_critic critic steps, each on a new real batch and new noise, followed by
    one generator step. The loops are around `strategy.run`, not inside it: with mirrored
    devices, an optimizer's update cannot be inside the control flow of a replica.

    Args:
      step: The updates of one replica.
      strategy: Runs them on every replica.
      n_critic: The number of critic steps per iteration.
      jit_compile: Whether XLA compiles each update; see `Devices.use_jit`.
      reduce_over_replicas: (strategy, each replica's shares) -> global means, the counterpart of
        `step.global_mean`.

    Returns:
      A function of an iterator over distributed real batches and a scalar int64 tensor, the
      number of iterations. It updates the state and returns:
        - the global mean of each term over the steps it ran, as "critic/<term>" and
          "generator/<term>";
        - the seconds spent waiting for data, float64: the time from the end of each step to the
          arrival of the next batch;
        - for "critic" and "generator", the first iteration, int64 and counted from 0, in which a
          term was not finite and the update was skipped, or -1.
    """
    critic_names = [f"critic/{name}" for name in step.objective.critic_term_names]
    generator_names = [f"generator/{name}" for name in step.objective.generator_term_names]
    critic_step, generator_step = replica_programs(step, jit_compile=jit_compile)

    def on_all_replicas(replica_step: Callable, *args) -> tf.Tensor:
        return reduce_over_replicas(strategy, strategy.run(replica_step, args=args))

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
                # The clock is only read alongside the steps; no step waits for it.
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
    """Returns `iteration` if it is the first with sums that are not finite, else `former`."""
    finite = tf.reduce_all(tf.math.is_finite(sums))
    return tf.where((former < 0) & ~finite, iteration, former)


def time_of(strategy: tf.distribute.Strategy, value: Any) -> tf.Tensor:
    """Returns the time at which a value is available on all local replicas.

    The time is in seconds since the epoch, scalar float64.
    """
    with tf.control_dependencies(strategy.experimental_local_results(value)):
        return tf.timestamp()
