"""What more replicas cost, on this machine's CPU, and what they send each other on a TPU.

  python -m benchmarks.scale

The replicas are logical devices of one CPU (--cpu_replicas), so that nothing gets faster by them:
at a fixed global batch the ratio is what the same work costs in parts, and at a fixed batch for
each replica, what an image does. Ratios are to one replica, medians of the ratios of a round.

What is sent is counted in the programs that the TPU's compiler makes, for which it takes
`make setup-compile`. The least that data parallelism can send is each gradient once.
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
from .contenders.process import OURS, contenders
from .contenders.work import BOTH, DCGAN, Work

REPLICAS = (1, 2, 4, 8)


def times(title: str, works: list[Work], rounds: int) -> list[dict[str, Any]]:
    """A row for each number of replicas."""
    seconds: dict[int, list[float]] = {work.cpu_replicas: [] for work in works}
    with contextlib.ExitStack() as stack:
        runs = {
            work.cpu_replicas: stack.enter_context(contenders([OURS], work))[0] for work in works
        }
        for run in runs.values():
            run.seconds(1)
        for _ in range(rounds):
            for work in works:
                images = 2 * work.n_critic * work.batch_size
                replicas = work.cpu_replicas
                seconds[replicas].append(runs[replicas].seconds(2) / images)
    rows: list[dict[str, Any]] = [
        {
            title: f"{work.cpu_replicas} replicas of {work.batch_size // work.cpu_replicas}",
            "images/s": 1 / statistics.median(seconds[work.cpu_replicas]),
            "time of one replica's": outcome.ratio(seconds[work.cpu_replicas], seconds[1]),
        }
        for work in works
    ]
    return rows


def sent(work: Work, topology: topologies.Topology) -> list[dict[str, Any]]:
    """A row for each of the two updates."""
    from .tpu_cycles import report_of  # noqa: PLC0415

    config = dataclasses.replace(work.config, mode="compile")
    programs = report_of(config, topology, usual=False)["programs"]
    rows = []
    for name, program in programs.items():
        moments = program["all_reduce_bytes"] - program["gradient_bytes"]
        rows.append(
            {
                f"on {topology.name}": f"{work.model}, {name}",
                "all-reduces of gradients": program["gradient_all_reduce_count"],
                "of batch-norm's moments": program["all_reduce_count"]
                - program["gradient_all_reduce_count"],
                "bytes of gradients": program["gradient_bytes"],
                "bytes beside": moments,
            }
        )
    return rows


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--topology", default="v5e-8")
    given = parser.parse_args()
    tpu.check_installed()

    def shared_by(replicas: int, batch: int) -> Work:
        return dataclasses.replace(
            DCGAN, cpu_replicas=replicas, batch_size=batch, generator_batch_size=batch
        )

    fixed = times("64 images in all", [shared_by(each, 64) for each in REPLICAS], given.rounds)
    print(outcome.table(fixed), flush=True)
    each = times("16 images each", [shared_by(each, 16 * each) for each in REPLICAS], given.rounds)
    print(outcome.table(each), flush=True)
    topology = topologies.find(given.topology)
    all_reduces = [row for work in BOTH for row in sent(work, topology)]
    print(outcome.table(all_reduces))
    outcome.save("scale", fixed + each + all_reduces)


if __name__ == "__main__":
    main()
