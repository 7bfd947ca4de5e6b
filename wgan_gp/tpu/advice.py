"""Advice about programs on a TPU, as tables of conditions on figures and of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from .layers import channel_counts, flatten_layers
from .topologies import Core

_SUBLANES = 8  # batch sizes and channel counts are padded to multiples of it
_FEW_CHANNELS = 8  # the cost of layers with fewer outputs, such as linear heads, is negligible

_Table = tuple[tuple[Callable[[Mapping[str, Any]], bool], str], ...]

_PADDING: _Table = (
    (
        lambda of: of["batch"] % _SUBLANES > 0,
        "--batch_size gives each replica {batch} examples, which are padded to a multiple of 8",
    ),
    (
        lambda of: of["generator_batch"] % _SUBLANES > 0 and of["generator_batch"] != of["batch"],
        "--generator_batch_size gives each replica {generator_batch} examples, which are padded to "
        "a multiple of 8",
    ),
    (
        lambda of: bool(of["odd"]),
        "channel counts are padded to multiples of 8: {odd}",
    ),
    (
        lambda of: bool(of["narrow"]),
        "channel counts that are not multiples of {lanes} leave part of the matrix units idle: "
        "{narrow}",
    ),
)
_COMPILED: _Table = (
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
)


def advise(report: Mapping[str, Any], networks: Iterable[tf.keras.Model], core: Core) -> list[str]:
    """Returns advice for the programs of a report, one line per entry.

    Args:
      report: The report; see `compile_report.build_compile_report`.
      networks: The critic and the generator.
      core: The properties of a device of the slice.
    """
    programs, iteration = report["programs"].values(), report["iteration"]
    figures = {
        "memory_share": report["loop"]["memory_share"],
        "all_reduces": max(program["gradient_all_reduce_count"] for program in programs),
        "launch_us": 1e6 * iteration["iterations_per_launch"] * iteration["estimated_seconds"],
        "loops": max(program["loops"] for program in programs),
    }
    batches = report["per_replica_batch"], report["per_replica_generator_batch"]
    return [*_lines(_COMPILED, figures), *advise_on_padding(*batches, networks, core.lanes)]


def advise_on_padding(
    batch: int, generator_batch: int, networks: Iterable[tf.keras.Model], lanes: int
) -> list[str]:
    """Returns advice about padding, which follows from the shapes alone, one line per entry.

    Args:
      batch: The batch size of a critic step per replica.
      generator_batch: The batch size of a generator step per replica.
      networks: The critic and the generator.
      lanes: The side of a core's matrix unit.
    """
    channels = dict(_output_channels(networks))
    padded = [name for name, count in channels.items() if count % _SUBLANES]
    idle = [name for name, count in channels.items() if count % lanes and name not in padded]
    odd, narrow = (
        ", ".join(f"{name} ({channels[name]})" for name in names) for names in (padded, idle)
    )
    figures = {"batch": batch, "generator_batch": generator_batch, "lanes": lanes}
    return [*_lines(_PADDING, {**figures, "odd": odd, "narrow": narrow})]


def _lines(table: _Table, figures: Mapping[str, Any]) -> Iterator[str]:
    return (line.format(**figures) for holds, line in table if holds(figures))


def _output_channels(networks: Iterable[tf.keras.Model]) -> Iterator[tuple[str, int]]:
    """Yields the linear layers and their output channels, without layers of few channels."""
    for network in networks:
        for layer in flatten_layers(network):
            channels = channel_counts(layer)
            if channels is not None and channels[1] >= _FEW_CHANNELS:
                yield f"{network.name}/{layer.name}", channels[1]
