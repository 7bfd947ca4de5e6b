"""The report of --mode=compile: estimates, memory, most expensive operations and advice.

All times and rates are estimates: the compiler's estimated cycles, divided by the clock rate.
docs/compile.md explains their limits.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from ..config import OptimizationSettings
from ..training.step import ReplicaStep
from . import hlo
from .advice import advise
from .compiler import Executable
from .error_messages import format_gibibytes
from .layers import LayerNames, find_pass
from .topologies import Topology

LISTED_OPERATIONS = 10


def build_compile_report(
    optimization: OptimizationSettings,
    topology: Topology,
    step: ReplicaStep,
    compiled: Mapping[str, Executable],
    versions: Mapping[str, str],
    *,
    penalty_interval: int,
) -> dict[str, Any]:
    """Returns the report as a JSON object; docs/compile.md explains its keys.

    Args:
      optimization: The settings of the training steps.
      topology: The slice.
      step: The replica step, with the networks.
      compiled: The compiled "critic_step" and "generator_step".
      versions: The versions of the packages; see `compiler.versions`.
      penalty_interval: The penalty is computed in every `penalty_interval`-th critic step.
    """
    critic, generator = step.state.critic, step.state.generator
    programs = {
        name: _describe_program(compiled[name], topology, [critic, generator], trained, share)
        for name, trained, share in (
            # The only conditional is the penalty, which is computed in every k-th step.
            ("critic_step", critic, 1 / penalty_interval),
            ("generator_step", generator, 1.0),
        )
    }
    seconds = (
        optimization.n_critic * programs["critic_step"]["estimated_seconds"]
        + programs["generator_step"]["estimated_seconds"]
    )
    images = optimization.n_critic * optimization.batch_size / seconds
    report = {
        "topology": topology.name,
        "replicas": topology.replicas,
        "chips": topology.chips,
        "per_replica_batch": optimization.batch_size // topology.replicas,
        "per_replica_generator_batch": optimization.generator_batch // topology.replicas,
        "memory_per_core_bytes": topology.core.memory_bytes,
        "programs": programs,
        "estimated_iteration_seconds": seconds,
        "estimated_images_per_second": images,
        "estimated_images_per_second_per_chip": images / topology.chips,
        "estimated_hours": optimization.train_steps * seconds / 3600,
        "train_steps": optimization.train_steps,
        "versions": dict(versions),
    }
    return {**report, "advice": advise(report, [critic, generator], topology.core)}


def format_compile_report(report: Mapping[str, Any]) -> str:
    """Returns the report as text for a terminal."""
    programs = report["programs"]
    rows = [
        ("", *programs),
        *(
            (title, *(show(program[key]) for program in programs.values()))
            for title, key, show in _ROWS
        ),
    ]
    lines = [
        f"{report['topology']}: {report['replicas']} replicas with {report['per_replica_batch']} "
        f"real examples each ({report['per_replica_generator_batch']} samples in a generator step)",
        "",
        *(f"  {title:<26}{first:>16}{second:>16}" for title, first, second in rows),
        "",
        f"  estimated: {1e3 * report['estimated_iteration_seconds']:.3f} ms per iteration, "
        f"{report['estimated_images_per_second']:,.0f} images/s "
        f"({report['estimated_images_per_second_per_chip']:,.0f} per chip), "
        f"{_duration(report['estimated_hours'])} for {report['train_steps']:,} iterations",
    ]
    for name, program in programs.items():
        lines += ["", f"  most expensive operations of {name}:"]
        for row in program["costliest"]:
            layer = row["layer"] or "(no layer)"
            lines.append(f"    {row['share']:6.1%}  {layer:<34} {row['operation']} ({row['pass']})")
    lines += ["", "  advice:"] + [f"    - {line}" for line in report["advice"] or ["none"]]
    return "\n".join(lines)


def _duration(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.1f} hours"
    return f"{60 * hours:.1f} minutes" if hours >= 1 / 60 else f"{3600 * hours:.1f} s"


def _mega(value: float) -> str:
    return f"{value / 1e6:,.1f} M"


_ROWS = (
    ("operations (flops)", "flops", _mega),
    ("bytes accessed", "bytes_accessed", _mega),
    ("estimated cycles", "estimated_cycles", "{:,}".format),
    ("estimated time", "estimated_seconds", lambda value: f"{1e6 * value:,.1f} us"),
    ("matrix unit utilization", "matrix_unit_utilisation", "{:.1%}".format),
    ("memory per core", "memory_bytes", format_gibibytes),
    ("share of core memory", "memory_share", "{:.1%}".format),
    ("all-reduces", "all_reduce_count", str),
    ("all-reduced bytes", "all_reduce_bytes", "{:,}".format),
)


def _describe_program(
    executable: Executable,
    topology: Topology,
    networks: Iterable[tf.keras.Model],
    trained: tf.keras.Model,
    costlier_share: float,
) -> dict[str, Any]:
    names = LayerNames(networks, hlo.parse_op_names(executable.hlo))
    operations = hlo.parse_operations(executable.hlo, costlier_share=costlier_share)
    cycles = sum(operation.cycles for operation in operations)
    by_layer: collections.Counter[str] = collections.Counter()
    for operation in operations:
        by_layer[names.find_layer(operation.name)] += operation.cycles
    return {
        "replica_count": hlo.parse_replica_count(executable.hlo),
        "flops": executable.flops,
        "bytes_accessed": executable.bytes_accessed,
        "estimated_cycles": cycles,
        "loops": hlo.count_loops(executable.hlo),
        "estimated_seconds": cycles / topology.core.clock,
        "matrix_unit_utilisation": executable.flops / (cycles * topology.core.flops_per_cycle),
        "argument_bytes": executable.argument_bytes,
        "output_bytes": executable.output_bytes,
        "temp_bytes": executable.temp_bytes,
        "code_bytes": executable.code_bytes,
        "memory_bytes": executable.memory_bytes,
        "memory_share": executable.memory_bytes / topology.core.memory_bytes,
        **_describe_all_reduces(executable, names, networks, trained),
        "costliest": [
            {
                "layer": names.find_layer(operation.name),
                "operation": operation.name.rpartition("/")[2] or operation.kind,
                "pass": find_pass(operation.name),
                "cycles": operation.cycles,
                "share": operation.cycles / cycles,
            }
            for operation in operations[:LISTED_OPERATIONS]
        ],
        "cycles_by_layer": dict(by_layer.most_common()),
    }


def _describe_all_reduces(
    executable: Executable,
    names: LayerNames,
    networks: Iterable[tf.keras.Model],
    trained: tf.keras.Model,
) -> dict[str, Any]:
    all_reduces = [
        (names.find_layer(each.name), each.bytes) for each in hlo.parse_all_reduces(executable.hlo)
    ]
    gradient_bytes = sum(
        math.prod(weight.shape) * tf.as_dtype(weight.dtype).size
        for weight in trained.trainable_variables
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
