"""The report of --mode=compile: estimates, memory, most expensive operations and advice.

All times and rates are estimates: the compiler's estimated cycles, divided by the clock rate.
docs/compile.md explains their limits.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ..training.accumulation import MICRO_BATCHES
from ..training.loop import CRITIC_STEPS, ITERATIONS
from . import hlo
from .compile_errors import format_gibibytes
from .layers import LayerNames, find_pass, flatten_layers, output_channels
from .topologies import Core, Topology

if TYPE_CHECKING:  # these import jax, which a run that is warned of padding may not have
    from .compiler import Executable
    from .loop_program import LoopProgram, LoweredLoop

LISTED_OPERATIONS = 10
_SUBLANES = 8  # batch sizes and channel counts are padded to multiples of it
_FEW_CHANNELS = 8  # the cost of layers with fewer outputs, such as linear heads, is negligible

# (condition on the figures, advice)
_ADVICE = (
    (
        lambda of: of["memory_share"] > 0.9,
        "the loop uses {memory_share:.0%} of a core's memory, and the runtime needs memory, too: "
        "reduce the batch",
    ),
    (
        lambda of: of["all_reduces"] > 1,
        "a step sums its gradients in {all_reduces} all-reduces, each with the latency of the "
        "slice",
    ),
    (
        lambda of: of["launch_us"] < 1000,
        "a launch takes {launch_us:.0f} us, and waits for the host: increase --steps_per_loop",
    ),
    (
        lambda of: of["loops"] > 0,
        "a step has {loops} loops whose bodies are counted once: its estimates are too low",
    ),
    (
        lambda of: of["batch"] % _SUBLANES > 0,
        "--batch_size gives each replica {batch} examples, which are padded to a multiple of 8",
    ),
    (
        lambda of: of["generator_batch"] % _SUBLANES > 0 and of["generator_batch"] != of["batch"],
        "--generator_batch_size gives each replica {generator_batch} examples, which are padded to "
        "a multiple of 8",
    ),
    (lambda of: of["padded"], "channel counts are padded to multiples of 8: {padded}"),
    (
        lambda of: of["idle"],
        "channel counts that are not multiples of {lanes} leave part of the matrix units idle: "
        "{idle}",
    ),
)
# The figures of a program that was not compiled, about which only the last four say something.
_NOT_COMPILED = {"memory_share": 0.0, "all_reduces": 0, "launch_us": math.inf, "loops": 0}


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
    core, replicas, optimization = topology.core, topology.replicas, program.step.optimization
    batch, generator_batch = (
        program.batch_size // replicas,
        program.generator_batch_size // replicas,
    )
    compiled = hlo.Program(executable.hlo)
    programs = _describe_steps(program, compiled, penalty_interval, batch, generator_batch, core)
    # The rest of a launch is divided by its iterations.
    launch = loop.iterations_per_launch
    once = compiled.part(hlo.ENTRY, without=compiled.loop_body(ITERATIONS)).operations()
    cycles = (
        program.n_critic * programs["critic_step"]["estimated_cycles"]
        + programs["generator_step"]["estimated_cycles"]
        + round(sum(operation.cycles for operation in once) / launch)
    )
    seconds = cycles / core.clock
    images = program.n_critic * program.batch_size / seconds
    memory_bytes = executable.memory_bytes + loop.prefetched_bytes
    advice = advise(
        [program.step.state.critic, program.step.state.generator],
        core.lanes,
        batch=batch,
        generator_batch=generator_batch,
        memory_share=memory_bytes / core.memory_bytes,
        all_reduces=max(each["gradient_all_reduce_count"] for each in programs.values()),
        launch_us=1e6 * launch * seconds,
        loops=max(each["loops"] for each in programs.values()),
    )
    return {
        "topology": topology.name,
        "replicas": replicas,
        "chips": topology.chips,
        "per_replica_batch": batch,
        "per_replica_generator_batch": generator_batch,
        "memory_per_core_bytes": core.memory_bytes,
        "iteration": {
            "estimated_cycles": cycles,
            "estimated_seconds": seconds,
            "iterations_per_launch": launch,
            "launches_per_loop": loop.launches_per_loop,
            "bytes_from_host": math.ceil(replicas * loop.launch_bytes / launch),
            "bytes_to_host": math.ceil(replicas * loop.result_bytes / launch),
        },
        "loop": {  # of one core
            "replica_count": compiled.replica_count,
            "resident_bytes": program.resident_bytes if program.resident else 0,
            "argument_bytes": executable.argument_bytes,
            "output_bytes": executable.output_bytes,
            "temp_bytes": executable.temp_bytes,
            "code_bytes": executable.code_bytes,
            "prefetched_bytes": loop.prefetched_bytes,
            "memory_bytes": memory_bytes,
            "memory_share": memory_bytes / core.memory_bytes,
        },
        "programs": programs,
        "estimated_iteration_seconds": seconds,
        "estimated_images_per_second": images,
        "estimated_images_per_second_per_chip": images / topology.chips,
        "estimated_hours": optimization.train_steps * seconds / 3600,
        "train_steps": optimization.train_steps,
        "versions": dict(versions),
        "advice": advice,
    }


def _describe_steps(
    program: LoopProgram,
    compiled: hlo.Program,
    penalty_interval: int,
    batch: int,
    generator_batch: int,
    core: Core,
) -> dict[str, dict[str, Any]]:
    """Returns the figures of the critic step and the generator step, the bodies of two loops."""
    from .compiler import count_costs  # noqa: PLC0415

    state = program.step.state
    lengths = {MICRO_BATCHES: program.step.optimization.accumulate}
    iteration, critic_step = map(compiled.loop_body, (ITERATIONS, CRITIC_STEPS))
    inner, outer = compiled.part(critic_step), compiled.part(iteration, without=critic_step)
    inner_costs = count_costs(inner.text)
    outer_costs = count_costs(compiled.part(iteration).text) - inner_costs
    # The only conditional is the penalty, which is computed in every k-th critic step.
    steps = {
        "critic_step": (inner, inner_costs, state.critic, batch, 1 / penalty_interval),
        "generator_step": (outer, outer_costs, state.generator, generator_batch, 1.0),
    }
    optimizers = {state.critic_optimizer.name, state.generator_optimizer.name}
    found = {}
    for step, (part, costs, trained, examples, share) in steps.items():
        counted = costs.copy()
        for name, body in part.loop_bodies():
            if (more := lengths.get(name, 1) - 1) > 0:
                counted += more * count_costs(compiled.part(body).text)
        flops, bytes_accessed = map(int, counted)
        operations = part.operations(costlier_share=share, lengths=lengths)
        cycles = sum(operation.cycles for operation in operations)
        names = LayerNames([state.critic, state.generator], part.op_names())
        by_layer: collections.Counter[str] = collections.Counter()
        for operation in operations:
            by_layer[names.find_layer(operation.name)] += operation.cycles
        found[step] = {
            "flops": flops,
            "bytes_accessed": bytes_accessed,
            "estimated_cycles": cycles,
            "cycles_per_example": cycles / examples,
            "loops": sum(name not in lengths for name, _ in part.loop_bodies()),
            "estimated_seconds": cycles / core.clock,
            "matrix_unit_utilization": flops / (cycles * core.flops_per_cycle),
            **_describe_all_reduces(
                part, names, trained, {state.critic.name, state.generator.name}
            ),
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
    return found


def _describe_all_reduces(
    part: hlo.Part, names: LayerNames, trained: tf.keras.Model, networks: set[str]
) -> dict[str, Any]:
    all_reduces = [(names.find_layer(each.name), each.bytes) for each in part.all_reduces()]
    gradient_bytes = sum(
        math.prod(weight.shape) * tf.as_dtype(weight.dtype).size
        for weight in trained.trainable_variables
    )
    # All-reduces inside a network sum the moments of batch normalization, not gradients.
    others = [size for layer, size in all_reduces if layer.partition("/")[0] not in networks]
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
    before = itertools.accumulate(sorted(sizes, reverse=True), initial=0)
    return sum(total < gradient_bytes for total in itertools.islice(before, len(sizes)))


def advise(networks: Iterable[tf.keras.Model], lanes: int, **figures: float) -> list[str]:
    """Returns advice, one line per entry.

    Args:
      networks: The critic and the generator.
      lanes: The side of a core's matrix unit.
      **figures: `batch` and `generator_batch`, the batch sizes per replica, which suffice for
        advice about padding, and those of a compiled program; see `_NOT_COMPILED`.
    """
    channels = {
        f"{network.name}/{layer.name}": count
        for network in networks
        for layer in flatten_layers(network)
        if (count := output_channels(layer)) >= _FEW_CHANNELS
    }
    padded = [name for name, count in channels.items() if count % _SUBLANES]
    idle = [name for name, count in channels.items() if count % lanes and name not in padded]
    of: dict[str, Any] = {**_NOT_COMPILED, **figures, "lanes": lanes}
    for key, names in (("padded", padded), ("idle", idle)):
        of[key] = ", ".join(f"{name} ({channels[name]})" for name in names)
    return [line.format(**of) for holds, line in _ADVICE if holds(of)]


def _duration(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.1f} hours"
    return f"{60 * hours:.1f} minutes" if hours >= 1 / 60 else f"{3600 * hours:.1f} s"


def _mega(value: float) -> str:
    return f"{value / 1e6:,.1f} M"


_ROWS = (  # (title, key of a step, format)
    ("operations (flops)", "flops", _mega),
    ("bytes accessed", "bytes_accessed", _mega),
    ("estimated cycles", "estimated_cycles", "{:,}".format),
    ("cycles per example", "cycles_per_example", "{:,.0f}".format),
    ("estimated time", "estimated_seconds", lambda value: f"{1e6 * value:,.1f} us"),
    ("matrix unit utilization", "matrix_unit_utilization", "{:.1%}".format),
    ("all-reduces", "all_reduce_count", str),
    ("all-reduced bytes", "all_reduce_bytes", "{:,}".format),
)


def format_compile_report(report: Mapping[str, Any]) -> str:
    """Returns the report as text for a terminal."""
    programs, iteration, loop = report["programs"], report["iteration"], report["loop"]
    rows = [("", *programs)]
    rows += [
        (title, *(show(each[key]) for each in programs.values())) for title, key, show in _ROWS
    ]
    dataset = (
        f"{format_gibibytes(loop['resident_bytes'])} of it for the dataset"
        if loop["resident_bytes"]
        else "the dataset is sent by the host"
    )
    lines = [
        f"{report['topology']}: {report['replicas']} replicas with {report['per_replica_batch']} "
        f"real examples each ({report['per_replica_generator_batch']} samples in a generator step)",
        "",
        *(f"  {title:<26}{first:>16}{second:>16}" for title, first, second in rows),
        "",
        f"  iteration: {iteration['estimated_cycles']:,} cycles, "
        f"{iteration['bytes_from_host']:,} bytes from the host, "
        f"{iteration['bytes_to_host']:,} bytes to the host (all cores)",
        f"  launches of a loop: {iteration['launches_per_loop']:,}, each of "
        f"{iteration['iterations_per_launch']:,} iterations",
        f"  memory per core: {format_gibibytes(loop['memory_bytes'])} "
        f"({loop['memory_share']:.1%} of a core), {dataset}",
        "",
        f"  estimated: {1e3 * report['estimated_iteration_seconds']:.3f} ms per iteration, "
        f"{report['estimated_images_per_second']:,.0f} images/s "
        f"({report['estimated_images_per_second_per_chip']:,.0f} per chip), "
        f"{_duration(report['estimated_hours'])} for {report['train_steps']:,} iterations",
    ]
    for name, program in programs.items():
        lines += ["", f"  most expensive operations of {name}:"]
        lines += [
            f"    {row['share']:6.1%}  {row['layer'] or '(no layer)':<34} {row['operation']}"
            + ("" if row["pass"] == "update" else f" ({row['pass']})")
            for row in program["costliest"]
        ]
    lines += ["", "  advice:", *(f"    - {line}" for line in report["advice"] or ["none"])]
    return "\n".join(lines)
