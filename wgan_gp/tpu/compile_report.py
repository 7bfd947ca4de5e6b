"""The report of --mode=compile: estimates, memory, most expensive operations and advice.

All times and rates are estimates: the compiler's estimated cycles, divided by the clock rate.
docs/compile.md explains their limits.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from ..training.accumulation import MICRO_BATCHES
from ..training.loop import CRITIC_STEPS, ITERATIONS
from . import hlo
from .advice import advise
from .compiler import Costs, Executable, count_costs
from .layers import LayerNames, find_pass
from .loop_program import LoopProgram, LoweredLoop
from .topologies import Core, Topology

LISTED_OPERATIONS = 10


@dataclasses.dataclass(frozen=True)
class _Step:
    """The part of the program that is one critic step or one generator step.

    Attributes:
      part: The optimized operations.
      costs: The compiler's counts for them.
      trained: The network that the step updates.
      batch_size: The number of examples per replica.
      costlier_share: See `hlo.Part.operations`.
      lengths: See `hlo.Part.operations`.
    """

    part: hlo.Part
    costs: Costs
    trained: tf.keras.Model
    batch_size: int
    lengths: Mapping[str, int]
    costlier_share: float = 1.0

    @functools.cached_property
    def operations(self) -> list[hlo.Operation]:
        return self.part.operations(costlier_share=self.costlier_share, lengths=self.lengths)

    @property
    def cycles(self) -> int:
        return sum(operation.cycles for operation in self.operations)


def build_compile_report(
    program: LoopProgram,
    loop: LoweredLoop,
    executable: Executable,
    topology: Topology,
    versions: Mapping[str, str],
    *,
    penalty_interval: int,
) -> dict[str, Any]:
    """Returns the report as a JSON object; docs/compile.md explains its keys.

    Args:
      program: The loop.
      loop: The loop, converted to HLO.
      executable: The compiled loop.
      topology: The slice.
      versions: The versions of the packages; see `compiler.versions`.
      penalty_interval: The penalty is computed in every `penalty_interval`-th critic step.
    """
    optimization = program.step.optimization
    networks = [program.step.state.critic, program.step.state.generator]
    compiled = hlo.Program(executable.hlo)
    steps = _split(program, compiled, penalty_interval)
    state = program.step.state
    optimizers = {state.critic_optimizer.name, state.generator_optimizer.name}
    programs = {
        name: _describe_step(step, topology.core, networks, optimizers)
        for name, step in steps.items()
    }
    iteration = _describe_iteration(program, loop, compiled, programs, topology)
    seconds = iteration["estimated_seconds"]
    images = program.n_critic * program.batch_size / seconds
    report = {
        "topology": topology.name,
        "replicas": topology.replicas,
        "chips": topology.chips,
        "per_replica_batch": program.batch_size // topology.replicas,
        "per_replica_generator_batch": program.generator_batch_size // topology.replicas,
        "memory_per_core_bytes": topology.core.memory_bytes,
        "iteration": iteration,
        "loop": _describe_loop(program, loop, executable, topology.core),
        "programs": programs,
        "estimated_iteration_seconds": seconds,
        "estimated_images_per_second": images,
        "estimated_images_per_second_per_chip": images / topology.chips,
        "estimated_hours": optimization.train_steps * seconds / 3600,
        "train_steps": optimization.train_steps,
        "versions": dict(versions),
    }
    return {**report, "advice": advise(report, networks, topology.core)}


def _sum_cycles(
    program: LoopProgram, loop: LoweredLoop, compiled: hlo.Program, steps: Mapping[str, int]
) -> int:
    """Returns the cycles of an iteration, given those of each step."""
    once = compiled.part(hlo.ENTRY, without=compiled.loop_body(ITERATIONS)).operations()
    return (
        program.n_critic * steps["critic_step"]
        + steps["generator_step"]
        + round(sum(operation.cycles for operation in once) / loop.iterations_per_launch)
    )


def _split(program: LoopProgram, compiled: hlo.Program, penalty_interval: int) -> dict[str, _Step]:
    """Returns the critic step and the generator step, which are the bodies of the two loops."""
    iteration, critic_step = map(compiled.loop_body, (ITERATIONS, CRITIC_STEPS))
    inner = compiled.part(critic_step)
    outer = compiled.part(iteration, without=critic_step)
    inner_costs, all_costs = count_costs(inner.text), count_costs(compiled.part(iteration).text)
    outer_costs = Costs(*(both - one for both, one in zip(all_costs, inner_costs, strict=True)))
    state, replicas = program.step.state, program.strategy.num_replicas_in_sync
    lengths = {MICRO_BATCHES: program.step.optimization.accumulate}
    return {
        "critic_step": _Step(
            inner,
            _costs_with_lengths(compiled, inner, inner_costs, lengths),
            state.critic,
            program.batch_size // replicas,
            lengths,
            # The only conditional is the penalty, which is computed in every k-th step.
            costlier_share=1 / penalty_interval,
        ),
        "generator_step": _Step(
            outer,
            _costs_with_lengths(compiled, outer, outer_costs, lengths),
            state.generator,
            program.generator_batch_size // replicas,
            lengths,
        ),
    }


def _costs_with_lengths(
    compiled: hlo.Program, part: hlo.Part, costs: Costs, lengths: Mapping[str, int]
) -> Costs:
    """Returns the costs of a part, given those in which every loop has one iteration."""
    total = list(costs)
    for name, body in part.loop_bodies():
        more = lengths.get(name, 1) - 1
        if more:
            body_costs = count_costs(compiled.part(body).text)
            total = [each + more * one for each, one in zip(total, body_costs, strict=True)]
    return Costs(*total)


def _describe_iteration(
    program: LoopProgram,
    loop: LoweredLoop,
    compiled: hlo.Program,
    programs: Mapping[str, Mapping[str, Any]],
    topology: Topology,
) -> dict[str, Any]:
    """Returns the figures of one iteration; those of a launch are divided by its iterations."""
    cycles = _sum_cycles(
        program, loop, compiled, {name: each["estimated_cycles"] for name, each in programs.items()}
    )

    def per_iteration(launch_bytes: int) -> int:
        return math.ceil(topology.replicas * launch_bytes / loop.iterations_per_launch)

    return {
        "estimated_cycles": cycles,
        "estimated_seconds": cycles / topology.core.clock,
        "iterations_per_launch": loop.iterations_per_launch,
        "launches_per_loop": loop.launches_per_loop,
        "bytes_from_host": per_iteration(loop.launch_bytes),
        "bytes_to_host": per_iteration(loop.result_bytes),
    }


def _describe_loop(
    program: LoopProgram, loop: LoweredLoop, executable: Executable, core: Core
) -> dict[str, Any]:
    """Returns the figures of the whole program, which are those of one core."""
    memory_bytes = executable.memory_bytes + loop.prefetched_bytes
    return {
        "replica_count": hlo.Program(executable.hlo).replica_count,
        "resident_bytes": program.resident_bytes if program.resident else 0,
        "argument_bytes": executable.argument_bytes,
        "output_bytes": executable.output_bytes,
        "temp_bytes": executable.temp_bytes,
        "code_bytes": executable.code_bytes,
        "prefetched_bytes": loop.prefetched_bytes,
        "memory_bytes": memory_bytes,
        "memory_share": memory_bytes / core.memory_bytes,
    }


def _describe_step(
    step: _Step, core: Core, networks: Iterable[tf.keras.Model], optimizers: set[str]
) -> dict[str, Any]:
    names = LayerNames(networks, step.part.op_names())
    operations, cycles = step.operations, step.cycles
    by_layer: collections.Counter[str] = collections.Counter()
    for operation in operations:
        by_layer[names.find_layer(operation.name)] += operation.cycles
    return {
        "flops": step.costs.flops,
        "bytes_accessed": step.costs.bytes_accessed,
        "estimated_cycles": cycles,
        "cycles_per_example": cycles / step.batch_size,
        "loops": sum(name not in step.lengths for name, _ in step.part.loop_bodies()),
        "estimated_seconds": cycles / core.clock,
        "matrix_unit_utilisation": step.costs.flops / (cycles * core.flops_per_cycle),
        **_describe_all_reduces(step, names, networks),
        "costliest": [
            {
                "layer": (layer := names.find_layer(operation.name)),
                # The update of a weight is one operation, with the name of its last part.
                "operation": "update of weights"
                if layer in optimizers
                else operation.name.rpartition("/")[2] or operation.kind,
                "pass": "update" if layer in optimizers else find_pass(operation.name),
                "cycles": operation.cycles,
                "share": operation.cycles / cycles,
            }
            for operation in operations[:LISTED_OPERATIONS]
        ],
        "cycles_by_layer": dict(by_layer.most_common()),
    }


def _describe_all_reduces(
    step: _Step, names: LayerNames, networks: Iterable[tf.keras.Model]
) -> dict[str, Any]:
    all_reduces = [(names.find_layer(each.name), each.bytes) for each in step.part.all_reduces()]
    gradient_bytes = sum(
        math.prod(weight.shape) * tf.as_dtype(weight.dtype).size
        for weight in step.trained.trainable_variables
    )
    network_names = {network.name for network in networks}
    # All-reduces inside a network sum the moments of batch normalization, not gradients.
    others = [size for layer, size in all_reduces if layer.partition("/")[0] not in network_names]
    return {
        "all_reduce_count": len(all_reduces),
        "all_reduce_bytes": sum(size for _, size in all_reduces),
        "all_reduces": [{"layer": layer, "bytes": size} for layer, size in all_reduces],
        "gradient_all_reduce_count": count_gradient_all_reduces(gradient_bytes, others),
        "gradient_bytes": gradient_bytes,
    }


def count_gradient_all_reduces(gradient_bytes: int, sizes: list[int]) -> int:
    """Returns the smallest number of all-reduces that can contain all gradients.

    Args:
      gradient_bytes: The size of all gradients.
      sizes: The sizes of the all-reduces that may contain gradients. If their sum is smaller than
        `gradient_bytes`, the result is their number.
    """
    remaining = gradient_bytes
    for count, size in enumerate(sorted(sizes, reverse=True)):
        if remaining <= 0:
            return count
        remaining -= size
    return len(sizes)
