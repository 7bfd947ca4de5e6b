"""Compares the time of an iteration with that of usual implementations of WGAN-GP.

  python -m benchmarks.step_time

Needs `make setup-bench`. An iteration is five critic steps and a generator step. Each
implementation (baselines/) trains in a separate process from the same weights. Before they are
timed, all train two iterations on the same examples and noise and must compute the same losses.
Then they take turns; figures are medians, and ratios are medians of the ratios within rounds. The
ResNet has a fourth of its published width. With --avx2, no program uses AVX-512.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
from typing import Any

import numpy as np

from . import outcome
from .baselines.process import NAMES, OURS, parse, start_processes
from .baselines.work import BOTH, Work

# Environment variables that disable AVX-512 in oneDNN, PyTorch and MKL.
AVX2 = {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
TOLERANCE = 1e-3  # of losses: implementations sum in different orders, and update with Adam


def check_losses(
    name: str, ours: list[tuple[float, float]], theirs: list[tuple[float, float]]
) -> None:
    """Raises RuntimeError unless two implementations compute the same losses."""
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True), start=1):
        if not np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE):
            raise RuntimeError(
                f"{name} computes other losses in iteration {number}: {other} instead of {one}"
            )


def compare(work: Work, names: list[str], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Returns a row for each implementation.

    Raises:
      RuntimeError: If an implementation computes other losses.
    """
    with start_processes(names, work) as runs:
        losses = {run.name: run.replay() for run in runs}
        for name, theirs in losses.items():
            check_losses(name, losses[OURS], theirs)
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
            "ms per iteration": 1e3 * statistics.median(values),
            "images/s": images / statistics.median(values),
            "relative time": outcome.ratio(values, times[OURS]),
            "critic loss, 2nd iteration": f"{losses[name][1][0]:.5f}",
        }
        for name, values in times.items()
    ]
    return rows


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="duration of a measurement; default: 3"
    )
    parser.add_argument("--avx2", action="store_true", help="disable AVX-512")
    arguments, names = parse(parser)
    if arguments.avx2:
        os.environ.update(AVX2)  # for the processes that are started below
    results = []
    for work in BOTH:
        rows = compare(work, names, arguments.rounds, arguments.seconds)
        print(outcome.table(rows), flush=True)
        results.append({"work": dataclasses.asdict(work), "rows": rows})
    outcome.save("step_time_avx2" if arguments.avx2 else "step_time", results)


if __name__ == "__main__":
    main()
