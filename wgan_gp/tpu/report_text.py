"""The report of --mode=compile as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .compile_errors import format_gibibytes


def format_compile_report(report: Mapping[str, Any]) -> str:
    """Returns the report as text for a terminal."""
    programs, iteration, loop = report["programs"], report["iteration"], report["loop"]
    rows = [
        ("", *programs),
        *(
            (title, *(show(program[key]) for program in programs.values()))
            for title, key, show in _ROWS
        ),
    ]
    dataset = (
        f"{format_gibibytes(loop['resident_bytes'])} of it for the dataset"
        if loop["resident_bytes"]
        else "the dataset is sent by the host"
    )
    lines = [
        f"{report['topology']}: {report['replicas']} replicas with {report['per_replica_batch']} "
        f"real examples each ({report['per_replica_generator_batch']} samples in a generator step)",
        "",
        *(f"  {title:<26}{first:>16}{second:>16}" for title, first, second in rows),
        "",
        f"  iteration: {iteration['estimated_cycles']:,} cycles, "
        f"{iteration['bytes_from_host']:,} bytes from the host, "
        f"{iteration['bytes_to_host']:,} bytes to the host (all cores)",
        f"  loop: {_count(iteration['launches_per_loop'], 'launch', 'launches')} of "
        f"{_count(iteration['iterations_per_launch'], 'iteration', 'iterations')}",
        f"  memory per core: {format_gibibytes(loop['memory_bytes'])} "
        f"({loop['memory_share']:.1%} of a core), {dataset}",
        "",
        f"  estimated: {1e3 * report['estimated_iteration_seconds']:.3f} ms per iteration, "
        f"{report['estimated_images_per_second']:,.0f} images/s "
        f"({report['estimated_images_per_second_per_chip']:,.0f} per chip), "
        f"{_duration(report['estimated_hours'])} for {report['train_steps']:,} iterations",
    ]
    for name, program in programs.items():
        lines += ["", f"  most expensive operations of {name}:"]
        for row in program["costliest"]:
            layer = row["layer"] or "(no layer)"
            of_pass = "" if row["pass"] == "update" else f" ({row['pass']})"
            lines.append(f"    {row['share']:6.1%}  {layer:<34} {row['operation']}{of_pass}")
    lines += ["", "  advice:"] + [f"    - {line}" for line in report["advice"] or ["none"]]
    return "\n".join(lines)


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _duration(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.1f} hours"
    return f"{60 * hours:.1f} minutes" if hours >= 1 / 60 else f"{3600 * hours:.1f} s"


def _mega(value: float) -> str:
    return f"{value / 1e6:,.1f} M"


_ROWS = (
    ("operations (flops)", "flops", _mega),
    ("bytes accessed", "bytes_accessed", _mega),
    ("estimated cycles", "estimated_cycles", "{:,}".format),
    ("cycles per example", "cycles_per_example", "{:,.0f}".format),
    ("estimated time", "estimated_seconds", lambda value: f"{1e6 * value:,.1f} us"),
    ("matrix unit utilization", "matrix_unit_utilisation", "{:.1%}".format),
    ("all-reduces", "all_reduce_count", str),
    ("all-reduced bytes", "all_reduce_bytes", "{:,}".format),
)
