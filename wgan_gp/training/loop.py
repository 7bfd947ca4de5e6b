"""The iterations of training, and the two loops that run them, one for each kind of strategy.

Where the strategy permits it, the loop is a part of the program of each replica, which runs without
the host (`make_device_loop`). Otherwise the host launches every step (`make_host_loop`): with
mirrored devices, an optimizer's update cannot be inside the control flow of a replica, so the loops
are around `strategy.run`.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from ..data.loop_input import LoopInput
from .objective import Terms, critic_term_intervals, tags_of
from .step import ReplicaStep, replica_part


class LoopOutput(NamedTuple):
    """The results of a loop.

    Attributes:
      terms: The global mean of each term over the steps of the loop that computed it, as
        "critic/<term>" and "generator/<term>". NaN if there was no such step.
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


class DeviceStateLoop(abc.ABC):
    """A `TrainLoop` that keeps the state of training elsewhere than in TensorFlow's variables.

    Attributes:
      profiler: Has `start(directory)` and `stop()`, which profile the devices of the loop.
    """

    profiler: Any

    @abc.abstractmethod
    def __call__(self, elements: Iterator, iterations: tf.Tensor) -> LoopOutput:
        """Runs a loop; it begins with the variables if the state was copied to them."""

    @abc.abstractmethod
    def pull(self) -> None:
        """Copies the state to the variables, which a hook may read and change."""


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
        def update(index: tf.Tensor, totals: Totals) -> tuple[tf.Tensor, Totals]:
            values, _ = critic_step(done * n_critic + index, totals)
            return index + 1, totals._replace(critic=_add(totals.critic, values))

        # A batch cannot leave a while loop, so its critic step is after the loop.
        looped, batch = n_critic - 1 if generator_needs_real else n_critic, None
        if looped:
            _, totals = tf.while_loop(
                lambda index, _: index < looped,
                update,
                (tf.constant(0, tf.int64), totals),
                name=CRITIC_STEPS,
            )
        if generator_needs_real:
            values, batch = critic_step(done * n_critic + looped, totals)
            totals = totals._replace(critic=_add(totals.critic, values))
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

    @tf.function(autograph=False)
    def train_loop(real_batches: Iterator, iterations: tf.Tensor) -> LoopOutput:
        rollbacks = step.state.rollbacks.read_value()

        def critic_step(update: tf.Tensor, totals: Totals) -> tuple[Any, Any]:
            batch, waited = receive(strategy, real_batches, (totals.critic, totals.generator))
            real, labels = batch
            # Nor does the generation of fakes begin while the clock counts as waiting.
            with tf.control_dependencies([waited]):
                update = tf.identity(update)
            shares = strategy.run(critic_program, args=(real, labels, update, rollbacks))
            return (reduce_over_replicas(strategy, shares), waited), batch

        def generator_step(update: tf.Tensor, batch: Any) -> tf.Tensor:
            shares = strategy.run(generator_program, args=(update, rollbacks, batch))
            return reduce_over_replicas(strategy, shares)

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
        critic term, stacked in the order of the step's `critic_term_names`.
      generator_step: (generator steps done, rollbacks, real batch if `generator_needs_real`) ->
        this replica's share of each generator term, stacked in the order of `generator_term_names`.
    """
    trace = traced(jit_compile=jit_compile)

    @trace
    def critic_step(
        real: tf.Tensor, labels: tf.Tensor, done: tf.Tensor, rollbacks: tf.Tensor
    ) -> tf.Tensor:
        return stack(step.critic_step(real, labels, done, rollbacks), step.critic_term_names)

    @trace
    def generator_step(done: tf.Tensor, rollbacks: tf.Tensor, batch: Any = None) -> tf.Tensor:
        terms = step.generator_step(done, rollbacks, batch)
        return stack(terms, step.generator_term_names)

    return critic_step, generator_step


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
      order of the step's names, and the first bad iterations; see `Totals`.
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
            return stack(terms, step.critic_term_names), None

        def generator_step(update: tf.Tensor, _: None) -> tf.Tensor:
            # Reading the batch of the last critic step again keeps every critic step in the loop.
            last = update * n_critic + n_critic - 1
            batch = read_batch(last) if step.generator_needs_real else None
            terms = step.generator_step(update, rollbacks, batch)
            return stack(terms, step.generator_term_names)

        return run_iterations(
            first,
            count,
            n_critic=n_critic,
            critic_step=critic_step,
            generator_step=generator_step,
            totals=initial_totals(step),
        )

    return loop


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
    never = tf.constant(_NEVER, tf.int64)
    critic = tf.zeros([len(step.critic_term_names)])
    return Totals(critic, tf.zeros([len(step.generator_term_names)]), never, never)


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
    n_critic = step.optimization.n_critic
    first = step.state.iteration.read_value()
    step.state.iteration.assign_add(iterations)
    named = critic_term_intervals(step.objective)
    intervals = tf.constant([named.get(name, 1) for name in step.critic_term_names], tf.int64)

    def multiples_before(iteration: tf.Tensor) -> tf.Tensor:
        return -(-iteration * n_critic // intervals)

    computed = multiples_before(first + iterations) - multiples_before(first)
    # A term that every k-th step computes is k times its value there.
    critic = totals.critic / tf.cast(computed * intervals, tf.float32)
    means = tf.concat([critic, totals.generator / tf.cast(iterations, tf.float32)], 0)
    bad = {"critic": totals.critic_bad, "generator": totals.generator_bad}
    return LoopOutput(
        dict(zip(tags_of(step), tf.unstack(means), strict=True)),
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


def _minimum(strategy: tf.distribute.Strategy, value: Any) -> tf.Tensor:
    """Returns the smallest of the scalars of all replicas."""
    return tf.reduce_min(tf.stack(strategy.experimental_local_results(value)))
