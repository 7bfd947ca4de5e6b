"""Performance advice for programs on a TPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from .layers import channel_counts, flatten_layers
from .topologies import Core

_SUBLANES = 8  # batch sizes and channel counts are padded to multiples of it
_LANES = 128  # if batch sizes are multiples of it, multiples of _SUBLANES suffice for channels
_FEW_CHANNELS = 8
_WIDE = 512  # the width of a dense layer that keeps a matrix unit busy with a usual batch
_IDLE = 0.25  # utilization of the matrix unit
_LAUNCH_SECONDS = 1e-3  # a launch much shorter than this waits for the host


def advise(report: Mapping[str, Any], networks: Iterable[tf.keras.Model], core: Core) -> list[str]:
    """Returns performance advice for the programs of a report, one sentence per entry.

    Args:
      report: The report; see `report.build_compile_report`.
      networks: The critic and the generator.
      core: The properties of a device of the slice.
    """
    networks = list(networks)
    return [
        *_advise_on_memory(report),
        *advise_on_padding(
            report["per_replica_batch"],
            report["per_replica_generator_batch"],
            report["replicas"],
            networks,
            core.lanes,
        ),
        *_advise_on_all_reduces(report),
        *_advise_on_few_channels(report, networks),
        *_advise_on_dense_layers(report, networks),
        *_advise_on_launches(report),
        *_advise_on_loops(report),
    ]


def advise_on_padding(
    batch: int, generator_batch: int, replicas: int, networks: Iterable[tf.keras.Model], lanes: int
) -> list[str]:
    """Returns advice about the padding of batches and layers on a TPU, one sentence per entry.

    It follows from the shapes alone, without compilation.

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
    return [
        *_advise_on_batch_size(batches, replicas),
        *_advise_on_features(batches, networks, lanes),
    ]


def _advise_on_memory(report: Mapping[str, Any]) -> Iterator[str]:
    share = report["loop"]["memory_share"]
    if share > 0.9:
        yield (
            f"the loop uses {share:.0%} of a core's memory, and the runtime needs memory, too: a "
            "smaller batch is safer"
        )


def _advise_on_batch_size(batches: Mapping[str, int], replicas: int) -> Iterator[str]:
    for flag, count in batches.items():
        if count % _SUBLANES:
            padded = -(-count // _SUBLANES) * _SUBLANES
            yield (
                f"--{flag} gives each replica {count} examples, which are padded to {padded}: "
                f"--{flag}={padded * replicas} would cost about the same"
            )


def _advise_on_all_reduces(report: Mapping[str, Any]) -> Iterator[str]:
    for name, program in report["programs"].items():
        count = program["gradient_all_reduce_count"]
        if count > 1:
            yield (
                f"{name} sums its gradients in {count} all-reduces, because the compiler did not "
                "combine them into one: each adds the latency of the slice"
            )


def _advise_on_features(
    batches: Mapping[str, int], networks: Iterable[tf.keras.Model], lanes: int
) -> Iterator[str]:
    if all(count % _LANES == 0 for count in batches.values()):
        padding = ""
    else:
        padding = (
            f" (in memory they are padded, too, unless the examples per replica are a multiple of "
            f"{_LANES})"
        )
    for network in networks:
        odd, narrow = [], []
        for layer in flatten_layers(network):
            channels = channel_counts(layer)
            if channels is None or channels[1] < _FEW_CHANNELS:
                continue
            if channels[1] % _SUBLANES:
                odd.append(f"{layer.name} ({channels[1]})")
            elif channels[1] % lanes:
                narrow.append(f"{layer.name} ({channels[1]})")
        if odd:
            yield (
                f"{network.name}: channel counts are padded to multiples of {_SUBLANES}: "
                f"{', '.join(odd)}"
            )
        if narrow:
            yield (
                f"{network.name}: channel counts that are not multiples of {lanes} leave part of "
                f"the {lanes}-wide matrix units idle{padding}: {', '.join(narrow)}"
            )


def _advise_on_few_channels(
    report: Mapping[str, Any], networks: Iterable[tf.keras.Model]
) -> Iterator[str]:
    for network in networks:
        for layer in flatten_layers(network):
            channels = channel_counts(layer)
            # Linear heads also have few outputs, but their cost is negligible.
            if channels is None or min(channels) >= _FEW_CHANNELS or len(layer.kernel.shape) < 4:
                continue
            name = f"{network.name}/{layer.name}"
            share = max(
                program["cycles_by_layer"].get(name, 0) / program["estimated_cycles"]
                for program in report["programs"].values()
            )
            yield (
                f"{name} has {channels[0]} input and {channels[1]} output channels, which is few "
                f"for a matrix unit; it takes up to {share:.0%} of a program's cycles"
            )


def _advise_on_dense_layers(
    report: Mapping[str, Any], networks: Iterable[tf.keras.Model]
) -> Iterator[str]:
    """Yields advice for networks of small dense layers, which leave a matrix unit idle."""
    steps = zip(networks, report["programs"].values(), strict=False)  # the critic is first
    for network, program in steps:
        kernels = {
            layer.name: layer.kernel.shape
            for layer in flatten_layers(network)
            if channel_counts(layer) is not None
        }
        widths = [shape[1] for shape in kernels.values() if len(shape) == 2]
        hidden = [width for width in widths if width >= _FEW_CHANNELS]
        if len(widths) < len(kernels) or not hidden or max(hidden) >= _WIDE:
            continue
        utilization = program["matrix_unit_utilisation"]
        if utilization < _IDLE:
            yield (
                f"{network.name}: dense layers of {max(hidden)} use {utilization:.0%} of the "
                f"matrix units: layers of {_WIDE} and more cost little more, as does a larger batch"
            )


def _advise_on_launches(report: Mapping[str, Any]) -> Iterator[str]:
    iteration = report["iteration"]
    seconds = iteration["iterations_per_launch"] * iteration["estimated_seconds"]
    if seconds < _LAUNCH_SECONDS:
        yield (
            f"the estimated time of a launch is {1e6 * seconds:.0f} us, in which the host cannot "
            "prepare the next one: a larger --steps_per_loop or a larger batch costs little"
        )


def _advise_on_loops(report: Mapping[str, Any]) -> Iterator[str]:
    for name, program in report["programs"].items():
        if program["loops"]:
            yield (
                f"{name} has {program['loops']} loops, whose bodies are counted once: its "
                "estimates are too low"
            )
