"""The iterations of training, and what the two loops that run them have in common.

Where the strategy permits it, the loop is a part of the program of each replica, which runs without
the host (device_loop.py). Otherwise the host launches every step (host_loop.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from .interface import Terms, tags_of
from .step import ReplicaStep


class LoopOutput(NamedTuple):
    """The results of a loop.

    Attributes:
      terms: The global mean of each term over the steps of the loop, as "critic/<term>" and
        "generator/<term>".
      waited: The seconds for which the devices waited for data, scalar float64.
      bad: For "critic" and "generator", the first iteration, int64 and counted from 0, in which a
        term was not finite and the update was skipped, or -1.
    """

    terms: dict[str, tf.Tensor]
    waited: tf.Tensor
    bad: dict[str, tf.Tensor]


# (distributed iterator over the input, scalar int64: number of iterations) -> output; it updates
# the state.
TrainLoop = Callable[[Iterator, tf.Tensor], LoopOutput]
# (strategy, the shares of each replica) -> global means
ReduceOverReplicas = Callable[[tf.distribute.Strategy, Any], Any]
_NEVER = tf.int64.max
# The names of the two loops in a graph, by which --mode=compile and profiles show them.
ITERATIONS, CRITIC_STEPS = "iterations", "critic_steps"


class Totals(NamedTuple):
    """The results of several iterations.

    Attributes:
      critic: The sums of what the critic steps returned, a structure of float tensors.
      generator: The sums of what the generator steps returned, likewise.
      critic_bad, generator_bad: The first iteration, scalar int64, after which a sum was not
        finite, or the largest int64.
    """

    critic: Any
    generator: Any
    critic_bad: tf.Tensor
    generator_bad: tf.Tensor


def run_iterations(
    first: tf.Tensor,
    count: tf.Tensor,
    *,
    n_critic: int,
    critic_step: Callable[[tf.Tensor, Totals], tuple[Any, Any]],
    generator_step: Callable[[tf.Tensor, Any], Any],
    totals: Totals,
    generator_needs_real: bool = False,
) -> Totals:
    """Runs iterations of algorithm 1 of Gulrajani et al. 2017 (arXiv:1704.00028).

    An iteration is n_critic critic steps, each on a new real batch and new noise, followed by one
    generator step.

    Args:
      first: The number of iterations done before, scalar int64.
      count: The number of iterations to run, scalar int64.
      n_critic: The number of critic steps per iteration.
      critic_step: (critic steps done, totals so far) -> values to be added to `Totals.critic`, and
        the real batch or None.
      generator_step: (generator steps done, real batch of the last critic step or None) -> values
        to be added to `Totals.generator`.
      totals: The totals before these iterations.
      generator_needs_real: Whether `generator_step` gets the batch. The last critic step of an
        iteration is then outside the inner loop.

    Returns:
      The totals after these iterations.
    """

    def iteration(done: tf.Tensor, totals: Totals) -> tuple[tf.Tensor, Totals]:
        def update(index: tf.Tensor | int, totals: Totals) -> tuple[Totals, Any]:
            values, batch = critic_step(done * n_critic + index, totals)
            return totals._replace(critic=_add(totals.critic, values)), batch

        # A batch cannot leave a while loop, so its critic step is after the loop.
        looped, batch = n_critic - 1 if generator_needs_real else n_critic, None
        if looped:
            _, totals = tf.while_loop(
                lambda index, _: index < looped,
                lambda index, totals: (index + 1, update(index, totals)[0]),
                (tf.constant(0, tf.int64), totals),
                name=CRITIC_STEPS,
            )
        if generator_needs_real:
            totals, batch = update(looped, totals)
        generator = _add(totals.generator, generator_step(done, batch))
        return done + 1, Totals(
            totals.critic,
            generator,
            _first_not_finite(totals.critic_bad, totals.critic, done),
            _first_not_finite(totals.generator_bad, generator, done),
        )

    _, totals = tf.while_loop(
        lambda done, _: done < first + count, iteration, (first, totals), name=ITERATIONS
    )
    return totals


def traced(*, jit_compile: bool) -> Callable:
    """Returns a decorator that makes a tf.function of the program of one replica."""
    return functools.partial(
        tf.function,
        jit_compile=True if jit_compile else None,  # None: TensorFlow decides
        autograph=False,  # there is no control flow to convert, and trying would take seconds
    )


def stack(terms: Terms, names: tuple[str, ...]) -> tf.Tensor:
    """Returns the terms as a vector, in the order of `names`."""
    return tf.stack([terms[name] for name in names])


def initial_totals(step: ReplicaStep) -> Totals:
    """Returns the totals of the stacked terms before any iteration."""
    objective, never = step.objective, tf.constant(_NEVER, tf.int64)
    critic = tf.zeros([len(objective.critic_term_names)])
    return Totals(critic, tf.zeros([len(objective.generator_term_names)]), never, never)


def _add(total: Any, values: Any) -> Any:
    return tf.nest.map_structure(tf.add, total, values)


def _first_not_finite(former: tf.Tensor, sums: Any, iteration: tf.Tensor) -> tf.Tensor:
    """Returns `iteration` if it is the first with sums that are not finite, else `former`."""
    finite = [tf.reduce_all(tf.math.is_finite(each)) for each in tf.nest.flatten(sums)]
    return tf.where(tf.reduce_all(finite), former, tf.minimum(former, iteration))


def finish(
    step: ReplicaStep,
    totals: Totals,
    *,
    waited: tf.Tensor,
    iterations: tf.Tensor,
) -> LoopOutput:
    """Counts the iterations of a loop and returns its output.

    Args:
      step: The updates of one replica, which the loop ran.
      totals: The sums over all replicas of the stacked terms.
      waited: See `LoopOutput`.
      iterations: The number of iterations of the loop, scalar int64.
    """
    step.state.iteration.assign_add(iterations)
    count = tf.cast(iterations, tf.float32)
    means = tf.concat(
        [totals.critic / (count * step.optimization.n_critic), totals.generator / count], 0
    )
    bad = {"critic": totals.critic_bad, "generator": totals.generator_bad}
    return LoopOutput(
        dict(zip(tags_of(step.objective), tf.unstack(means), strict=True)),
        waited,
        {
            network: tf.where(first == _NEVER, tf.constant(-1, tf.int64), first)
            for network, first in bad.items()
        },
    )


def receive(
    strategy: tf.distribute.Strategy, elements: Iterator, totals: Any
) -> tuple[Any, tf.Tensor]:
    """Returns the next element of the input, and the seconds for which the devices waited for it.

    The element depends on the clock that is read when it arrives. Without this dependency, the
    clock could be read after the step that uses the element, which a single core does.

    Args:
      strategy: The strategy that distributes the elements.
      elements: The distributed iterator over the input.
      totals: The results of the steps before, after which the devices are idle.
    """
    idle_since = _time_of(strategy, totals)
    element = next(elements)
    arrived = _time_of(strategy, element)
    with tf.control_dependencies([arrived]):
        element = tf.nest.map_structure(tf.identity, element, expand_composites=True)
    return element, tf.maximum(arrived - idle_since, 0.0)


def _time_of(strategy: tf.distribute.Strategy, value: Any) -> tf.Tensor:
    """Returns the time at which a value is available on all local replicas.

    The time is in seconds since the epoch, scalar float64.
    """
    local = [strategy.experimental_local_results(each) for each in tf.nest.flatten(value)]
    with tf.control_dependencies([tensor for tensors in local for tensor in tensors]):
        return tf.timestamp()
