"""How long an iteration takes here, and as WGAN-GP is usually written; needs `make setup-bench`.

  python -m benchmarks.step_time

An iteration is five critic steps and a generator step. Each way to train is a process of its own
(contenders/), from the same weights. Before anything is timed, each trains two iterations on the
same examples and noise, and must find the same losses. Then they take turns; figures are medians,
and ratios are medians of the ratios of a round. The ResNet is at a fourth of its width. With --avx2
a CPU with AVX-512 imitates one without.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
from typing import Any

import numpy as np

from . import outcome
from .contenders.process import NAMES, OURS, contenders, parse
from .contenders.work import BOTH, Work

# What keeps oneDNN, PyTorch and MKL from using AVX-512.
AVX2 = {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
TOLERANCE = 1e-3  # of a loss; sums in another order, after an update by Adam


def check_same(
    name: str, ours: list[tuple[float, float]], theirs: list[tuple[float, float]]
) -> None:
    """Raises a RuntimeError unless two ways to train found the same losses in each iteration."""
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True), start=1):
        if not np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE):
            raise RuntimeError(f"{name} does other work: {other}, not {one}, in iteration {number}")


def compare(work: Work, names: list[str], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """A row for each way to train.

    Raises:
      RuntimeError: one computes other losses.
    """
    with contenders(names, work) as runs:
        losses = {run.name: run.replay() for run in runs}
        for name, theirs in losses.items():
            check_same(name, losses[OURS], theirs)
        counts = {}
        for run in runs:  # the first call may trace and compile
            run.seconds(1)
            counts[run.name] = max(1, round(seconds / run.seconds(1)))
        times: dict[str, list[float]] = {run.name: [] for run in runs}
        for _ in range(rounds):
            for run in runs:
                times[run.name].append(run.seconds(counts[run.name]) / counts[run.name])
    images = work.n_critic * work.batch_size
    rows: list[dict[str, Any]] = [
        {
            work.title: NAMES[name],
            "ms an iteration": 1e3 * statistics.median(values),
            "images/s": images / statistics.median(values),
            "time of ours": outcome.ratio(values, times[OURS]),
            "critic loss, 2nd iteration": f"{losses[name][1][0]:.5f}",
        }
        for name, values in times.items()
    ]
    return rows


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each in a round; default: 3")
    parser.add_argument("--avx2", action="store_true", help="leave AVX-512 unused")
    given, names = parse(parser)
    if given.avx2:
        os.environ.update(AVX2)  # for the processes started below
    results = []
    for work in BOTH:
        rows = compare(work, names, given.rounds, given.seconds)
        print(outcome.table(rows), flush=True)
        results.append({"work": dataclasses.asdict(work), "rows": rows})
    outcome.save("step_time_avx2" if given.avx2 else "step_time", results)


if __name__ == "__main__":
    main()
