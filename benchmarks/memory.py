"""Compares the memory of training with that of usual implementations of WGAN-GP.

  python -m benchmarks.memory

Needs `make setup-bench`. The figure is the peak resident memory of a process that trains ten
iterations. Ratios are medians of the ratios within rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from typing import Any

from . import outcome
from .baselines.process import NAMES, OURS, parse, start_processes
from .baselines.work import BOTH, Work

ITERATIONS = 10


def peaks(work: Work, names: list[str], rounds: int) -> list[dict[str, Any]]:
    """Returns a row for each implementation."""
    peak_bytes: dict[str, list[int]] = {name: [] for name in names}
    for _ in range(rounds):
        with start_processes(names, work) as processes:
            for process in processes:
                process.seconds(ITERATIONS)
                peak_bytes[process.name].append(process.peak_bytes())
    rows: list[dict[str, Any]] = [
        {
            work.title: NAMES[name],
            "peak, MB": statistics.median(values) / 1e6,
            "relative to ours": outcome.ratio(values, peak_bytes[OURS]),
        }
        for name, values in peak_bytes.items()
    ]
    return rows


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="processes per implementation; default: 5"
    )
    arguments, names = parse(parser)
    results = []
    for work in BOTH:
        rows = peaks(work, names, arguments.rounds)
        print(outcome.table(rows), flush=True)
        results.append({"work": dataclasses.asdict(work), "rows": rows})
    outcome.save("memory", results)


if __name__ == "__main__":
    main()
