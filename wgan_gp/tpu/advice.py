"""Performance advice for programs on a TPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from .layers import features, flat_layers
from .topologies import Core

_ROWS = 8  # of a register; batch sizes and feature counts are padded to multiples of it
_FEW_CHANNELS = 8
_LAUNCH_SECONDS = 1e-3  # a much shorter program waits for its host


def advise(report: Mapping[str, Any], networks: Iterable[tf.keras.Model], core: Core) -> list[str]:
    """Returns sentences of performance advice for the programs of a report.

    Args:
      report: The report; see `report.build`.
      networks: The critic and the generator.
      core: A device of the slice.
    """
    networks = list(networks)
    return [
        *_on_memory(report),
        *on_padding(
            report["per_replica_batch"],
            report["per_replica_generator_batch"],
            report["replicas"],
            networks,
            core.lanes,
        ),
        *_on_all_reduces(report),
        *_on_few_channels(report, networks),
        *_on_launches(report),
        *_on_loops(report),
    ]


def on_padding(
    batch: int, generator_batch: int, replicas: int, networks: Iterable[tf.keras.Model], lanes: int
) -> list[str]:
    """Returns sentences about the padding of batches and layers on a TPU.

    Nothing has to be compiled for them.

    Args:
      batch: The batch size of a critic step per replica.
      generator_batch: The batch size of a generator step per replica.
      replicas: The number of replicas.
      networks: The critic and the generator.
      lanes: The side of a core's matrix unit.
    """
    batches = {"batch_size": batch}
    if generator_batch != batch:
        batches["generator_batch_size"] = generator_batch
    return [*_on_batch(batches, replicas), *_on_features(networks, lanes)]


def _on_memory(report: Mapping[str, Any]) -> Iterator[str]:
    for name, program in report["programs"].items():
        if program["memory_share"] > 0.9:
            yield (
                f"{name} takes {program['memory_share']:.0%} of a core's memory, and the runtime "
                "needs some: a smaller batch is safer"
            )


def _on_batch(batches: Mapping[str, int], replicas: int) -> Iterator[str]:
    for flag, count in batches.items():
        if count % _ROWS:
            padded = -(-count // _ROWS) * _ROWS
            yield (
                f"--{flag} gives each replica {count} examples, which are padded to {padded}: "
                f"{padded * replicas} would cost about the same"
            )


def _on_all_reduces(report: Mapping[str, Any]) -> Iterator[str]:
    for name, program in report["programs"].items():
        count = program["gradient_all_reduce_count"]
        if count > 1:
            yield (
                f"{name} sums its gradients in {count} all-reduces, which did not fuse: each costs "
                "a round over the slice"
            )


def _on_features(networks: Iterable[tf.keras.Model], lanes: int) -> Iterator[str]:
    for network in networks:
        odd, narrow = [], []
        for layer in flat_layers(network):
            channels = features(layer)
            if channels is None or channels[1] < _FEW_CHANNELS:
                continue
            if channels[1] % _ROWS:
                odd.append(f"{layer.name} ({channels[1]})")
            elif channels[1] % lanes:
                narrow.append(f"{layer.name} ({channels[1]})")
        if odd:
            yield (
                f"{network.name}: features that are no multiples of {_ROWS} are padded: "
                f"{', '.join(odd)}"
            )
        if narrow:
            yield (
                f"{network.name}: features that are no multiples of {lanes} leave part of "
                f"the matrix units, {lanes} wide, idle: {', '.join(narrow)}"
            )


def _on_few_channels(
    report: Mapping[str, Any], networks: Iterable[tf.keras.Model]
) -> Iterator[str]:
    for network in networks:
        for layer in flat_layers(network):
            channels = features(layer)
            # Linear heads have few outputs, too, but their cost is negligible.
            if channels is None or min(channels) >= _FEW_CHANNELS or len(layer.kernel.shape) < 4:
                continue
            name = f"{network.name}/{layer.name}"
            share = max(
                program["cycles_by_layer"].get(name, 0) / program["estimated_cycles"]
                for program in report["programs"].values()
            )
            yield (
                f"{name} has {channels[0]} channels in and {channels[1]} out: few for a matrix "
                f"unit; it takes up to {share:.0%} of a program's cycles"
            )


def _on_launches(report: Mapping[str, Any]) -> Iterator[str]:
    short = [
        name
        for name, program in report["programs"].items()
        if program["estimated_seconds"] < _LAUNCH_SECONDS / 10
    ]
    if short:
        yield (
            f"{' and '.join(short)} would be done in under {1e6 * _LAUNCH_SECONDS / 10:.0f} us: "
            "launching them will take longer than running them, so a larger batch costs little"
        )


def _on_loops(report: Mapping[str, Any]) -> Iterator[str]:
    for name, program in report["programs"].items():
        if program["loops"]:
            yield (
                f"{name} has {program['loops']} loops, whose bodies are counted once: its figures "
                "are too low"
            )
