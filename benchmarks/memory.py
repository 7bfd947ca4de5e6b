"""How much memory training takes here, and as WGAN-GP is usually written; needs `make setup-bench`.

  python -m benchmarks.memory

The peak of the resident memory of a process that trains some iterations, for each way to train.
Ratios are medians of the ratios of a round.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from typing import Any

from . import outcome
from .contenders.process import NAMES, OURS, contenders, parse
from .contenders.work import BOTH, Work

ITERATIONS = 10


def peaks(work: Work, names: list[str], rounds: int) -> list[dict[str, Any]]:
    """A row for each way to train."""
    found: dict[str, list[int]] = {name: [] for name in names}
    for _ in range(rounds):
        with contenders(names, work) as runs:
            for run in runs:
                run.seconds(ITERATIONS)
                found[run.name].append(run.peak_bytes())
    rows: list[dict[str, Any]] = [
        {
            work.title: NAMES[name],
            "peak, MB": statistics.median(values) / 1e6,
            "of ours": outcome.ratio(values, found[OURS]),
        }
        for name, values in found.items()
    ]
    return rows


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="processes of each; default: 5")
    given, names = parse(parser)
    results = []
    for work in BOTH:
        rows = peaks(work, names, given.rounds)
        print(outcome.table(rows), flush=True)
        results.append({"work": dataclasses.asdict(work), "rows": rows})
    outcome.save("memory", results)


if __name__ == "__main__":
    main()
