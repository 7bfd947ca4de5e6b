"""Builds the report of --mode=compile: estimates, memory, costliest operations and advice.

Every time and rate is an estimate: the compiler's estimated cycles, divided by the clock rate.
docs/compile.md explains its limits.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from ..config import Config
from ..step import ReplicaStep
from . import hlo
from .advice import advise
from .compiler import Executable
from .faults import gibibytes
from .layers import LayerNames, derivative
from .topologies import Topology

COSTLIEST = 10


def build(
    config: Config,
    topology: Topology,
    step: ReplicaStep,
    compiled: Mapping[str, Executable],
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """Returns the report as a JSON object; docs/compile.md explains its keys.

    Args:
      config: The configuration of the run.
      topology: The slice.
      step: The replica step, with the networks.
      compiled: The compiled "critic_step" and "generator_step".
      versions: The versions of the packages; see `compiler.versions`.
    """
    critic, generator = step.state.critic, step.state.generator
    programs = {
        name: _figures(compiled[name], topology, [critic, generator], trained, share)
        for name, trained, share in (
            # The one conditional is the penalty, which is computed in every k-th step.
            ("critic_step", critic, 1 / config.penalty_interval),
            ("generator_step", generator, 1.0),
        )
    }
    seconds = (
        config.n_critic * programs["critic_step"]["estimated_seconds"]
        + programs["generator_step"]["estimated_seconds"]
    )
    images = config.n_critic * config.batch_size / seconds
    report = {
        "topology": topology.name,
        "replicas": topology.replicas,
        "chips": topology.chips,
        "per_replica_batch": config.batch_size // topology.replicas,
        "per_replica_generator_batch": config.generator_batch // topology.replicas,
        "memory_per_core_bytes": topology.core.memory_bytes,
        "programs": programs,
        "estimated_iteration_seconds": seconds,
        "estimated_images_per_second": images,
        "estimated_images_per_second_per_chip": images / topology.chips,
        "estimated_hours": config.train_steps * seconds / 3600,
        "train_steps": config.train_steps,
        "versions": dict(versions),
    }
    return {**report, "advice": advise(report, [critic, generator], topology.core)}


def table(report: Mapping[str, Any]) -> str:
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
        f"{report['topology']}: {report['replicas']} replicas, {report['per_replica_batch']} real "
        f"images each ({report['per_replica_generator_batch']} samples in a generator step)",
        "",
        *(f"  {title:<26}{first:>16}{second:>16}" for title, first, second in rows),
        "",
        f"  estimated: {1e3 * report['estimated_iteration_seconds']:.3f} ms an iteration, "
        f"{report['estimated_images_per_second']:,.0f} images/s "
        f"({report['estimated_images_per_second_per_chip']:,.0f} a chip), "
        f"{_duration(report['estimated_hours'])} for {report['train_steps']:,} iterations",
    ]
    for name, program in programs.items():
        lines += ["", f"  costliest operations of {name}:"]
        for row in program["costliest"]:
            where = row["layer"] or "(no layer)"
            lines.append(f"    {row['share']:6.1%}  {where:<34} {row['operation']} ({row['pass']})")
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
    ("matrix units busy, est.", "matrix_unit_utilisation", "{:.1%}".format),
    ("memory a core", "memory_bytes", gibibytes),
    ("of what there is", "memory_share", "{:.1%}".format),
    ("all-reduces", "all_reduce_count", str),
    ("bytes all-reduced", "all_reduce_bytes", "{:,}".format),
)


def _figures(
    executable: Executable,
    topology: Topology,
    networks: Iterable[tf.keras.Model],
    trained: tf.keras.Model,
    costlier_share: float,
) -> dict[str, Any]:
    names = LayerNames(networks, hlo.op_names(executable.hlo))
    operations = hlo.operations(executable.hlo, costlier_share=costlier_share)
    cycles = sum(operation.cycles for operation in operations)
    by_layer: collections.Counter[str] = collections.Counter()
    for operation in operations:
        by_layer[names.layer(operation.name)] += operation.cycles
    return {
        "replica_count": hlo.replica_count(executable.hlo),
        "flops": executable.flops,
        "bytes_accessed": executable.bytes_accessed,
        "estimated_cycles": cycles,
        "loops": hlo.loops(executable.hlo),
        "estimated_seconds": cycles / topology.core.clock,
        "matrix_unit_utilisation": executable.flops / (cycles * topology.core.flops_per_cycle),
        "argument_bytes": executable.argument_bytes,
        "output_bytes": executable.output_bytes,
        "temp_bytes": executable.temp_bytes,
        "code_bytes": executable.code_bytes,
        "memory_bytes": executable.memory_bytes,
        "memory_share": executable.memory_bytes / topology.core.memory_bytes,
        **_all_reduces(executable, names, networks, trained),
        "costliest": [
            {
                "layer": names.layer(operation.name),
                "operation": operation.name.rpartition("/")[2] or operation.kind,
                "pass": derivative(operation.name),
                "cycles": operation.cycles,
                "share": operation.cycles / cycles,
            }
            for operation in operations[:COSTLIEST]
        ],
        "cycles_by_layer": dict(by_layer.most_common()),
    }


def _all_reduces(
    executable: Executable,
    names: LayerNames,
    networks: Iterable[tf.keras.Model],
    trained: tf.keras.Model,
) -> dict[str, Any]:
    places = [(names.layer(each.name), each.bytes) for each in hlo.all_reduces(executable.hlo)]
    gradient_bytes = sum(
        math.prod(weight.shape) * tf.as_dtype(weight.dtype).size
        for weight in trained.trainable_variables
    )
    own = {network.name for network in networks}
    # All-reduces in a layer are for the moments of batch-norm, not for gradients.
    others = [size for layer, size in places if layer.partition("/")[0] not in own]
    return {
        "all_reduce_count": len(places),
        "all_reduce_bytes": sum(size for _, size in places),
        "all_reduces": [{"layer": layer, "bytes": size} for layer, size in places],
        "gradient_all_reduce_count": covering(gradient_bytes, others),
        "gradient_bytes": gradient_bytes,
    }


def covering(total: int, sizes: list[int]) -> int:
    """Returns the smallest number of sizes that sum to at least `total`.

    If all sizes together are smaller, their number is returned.
    """
    for count, size in enumerate(sorted(sizes, reverse=True)):
        if total <= 0:
            return count
        total -= size
    return len(sizes)
