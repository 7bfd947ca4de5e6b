"""The output of benchmarks: a table for the terminal and a JSON file with the same rows."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

FOLDER = pathlib.Path("build/benchmarks")


def machine() -> dict[str, Any]:
    """Returns the processor, the number of cores and the versions of the relevant packages."""
    versions = {}
    for package in ("tensorflow", "keras", "torch", "jax", "libtpu"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": versions,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor()


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Formats rows as a table; the keys are the column titles, and values are right-aligned."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [columns, *([_format(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    lines = [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    return "\n".join(lines)


def _format(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def save(name: str, rows: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """Writes build/benchmarks/<name>.json and prints its path."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **more, "rows": list(rows)}, indent=2) + "\n")
    print(f"written: {path}")


def ratio(values: Sequence[float], to: Sequence[float]) -> float:
    """Returns the median of the ratios within rounds; other load affects a whole round alike."""
    return statistics.median(a / b for a, b in zip(values, to, strict=True))
