"""Measures the cost of more replicas on a CPU, and their communication on a TPU.

  python -m benchmarks.scale

The replicas are logical devices of one CPU (--cpu_replicas), so more replicas do not make training
faster. The program measures the time per image at a fixed global batch and at a fixed batch per
replica, relative to one replica. Ratios are medians of the ratios within rounds.

The communication is counted in programs that the TPU's compiler generates; this needs `make
setup-compile`. Data parallelism must send each gradient at least once.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import statistics
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from wgan_gp import tpu
from wgan_gp.tpu import topologies

from . import outcome
from .baselines.process import OURS, start_processes
from .baselines.work import BOTH, DCGAN, Work

REPLICAS = (1, 2, 4, 8)


def measure(title: str, works: list[Work], rounds: int) -> list[dict[str, Any]]:
    """Returns a row for each number of replicas."""
    seconds: dict[int, list[float]] = {work.cpu_replicas: [] for work in works}
    with contextlib.ExitStack() as stack:
        processes = {
            work.cpu_replicas: stack.enter_context(start_processes([OURS], work))[0]
            for work in works
        }
        for process in processes.values():
            process.seconds(1)  # traces and compiles
        for _ in range(rounds):
            for work in works:
                images = 2 * work.n_critic * work.batch_size
                replicas = work.cpu_replicas
                seconds[replicas].append(processes[replicas].seconds(2) / images)
    rows: list[dict[str, Any]] = [
        {
            title: f"{work.cpu_replicas} replicas of {work.batch_size // work.cpu_replicas}",
            "images/s": 1 / statistics.median(seconds[work.cpu_replicas]),
            "relative time": outcome.ratio(seconds[work.cpu_replicas], seconds[1]),
        }
        for work in works
    ]
    return rows


def communication(work: Work, topology: topologies.Topology) -> list[dict[str, Any]]:
    """Returns a row for the critic step and one for the generator step."""
    from .tpu_cycles import compile_report  # noqa: PLC0415

    config = dataclasses.replace(work.config, mode="compile")
    programs = compile_report(config, topology, usual=False)["programs"]
    rows = []
    for name, program in programs.items():
        moments = program["all_reduce_bytes"] - program["gradient_bytes"]
        rows.append(
            {
                f"on {topology.name}": f"{work.model}, {name}",
                "all-reduces of gradients": program["gradient_all_reduce_count"],
                "all-reduces of moments": program["all_reduce_count"]
                - program["gradient_all_reduce_count"],
                "bytes of gradients": program["gradient_bytes"],
                "bytes of moments": moments,
            }
        )
    return rows


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--topology", default="v5e-8", help="TPU slice; default: v5e-8")
    arguments = parser.parse_args()
    tpu.check_installed()

    def shared_by(replicas: int, batch: int) -> Work:
        return dataclasses.replace(
            DCGAN, cpu_replicas=replicas, batch_size=batch, generator_batch_size=batch
        )

    fixed = measure(
        "64 images in all", [shared_by(each, 64) for each in REPLICAS], arguments.rounds
    )
    print(outcome.table(fixed), flush=True)
    each = measure(
        "16 images each", [shared_by(each, 16 * each) for each in REPLICAS], arguments.rounds
    )
    print(outcome.table(each), flush=True)
    topology = topologies.find(arguments.topology)
    all_reduces = [row for work in BOTH for row in communication(work, topology)]
    print(outcome.table(all_reduces))
    outcome.save("scale", fixed + each + all_reduces)


if __name__ == "__main__":
    main()
