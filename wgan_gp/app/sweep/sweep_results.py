"""The results of a sweep, read from the run directories of its trials; its table."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import UserError
from ...run_directory.directory import RunDirectory
from ...run_directory.json_files import read_log
from ...training.checkpoint_files import complete_checkpoints
from ...training.diagnosis import DiagnosisMonitor, is_summary
from . import halving
from .halving import Outcome
from .sweep_plan import Trial

_PREFIX = "evaluation/"


def is_reached(trial: Trial, iterations: int) -> bool:
    """Returns True if a trial has a checkpoint of an iteration or a later one.

    A sweep has then evaluated it at that iteration, because the checkpoint is written afterwards.
    """
    directory = RunDirectory(trial.config.run_directory)
    with directory.convert_file_errors("read"):
        return max(complete_checkpoints(directory.checkpoints), default=0) >= iterations


def check_run(trial: Trial) -> None:
    """Raises UserError if the folder of a trial contains a run of another configuration."""
    directory = RunDirectory(trial.config.run_directory)
    with directory.convert_file_errors("read"):
        saved = directory.saved_config()
    if saved is not None and (differences := trial.differences(saved)):
        raise UserError(
            f"--model_dir={directory.path} contains a run with a different configuration "
            f"({'; '.join(differences)})",
            "restore these values, or give the sweep another --model_dir",
        )


def read_outcome(trial: Trial, iterations: int, rank_by: str) -> Outcome:
    """Returns the outcome of a trial after a number of iterations that it has reached.

    Raises:
      UserError: If it was not evaluated then, or its evaluations do not contain the figure.
    """
    directory = RunDirectory(trial.config.run_directory)
    with directory.convert_file_errors("read"):
        evaluations = _read_lines(directory.evaluation, ascending=False)
        summaries = _read_lines(directory.metrics, ascending=True)
    # A later line of the same iteration is from --mode=evaluate, perhaps with other settings.
    found = next((line for line in evaluations if line["step"] == iterations), None)
    if found is None:
        raise UserError(
            f"the trial {trial.name} has done {iterations} iterations, but "
            f"{directory.evaluation} has no evaluation of that iteration",
            f"restore the file, or delete {directory.path} to train the trial again",
        )
    figure = found.get(f"{_PREFIX}{rank_by}")
    if figure is None:
        names = [tag.removeprefix(_PREFIX) for tag in found if tag.startswith(_PREFIX)]
        raise UserError(
            f'"rank_by" of --sweep: the evaluations of {trial.name} have no "{rank_by}"',
            f"delete sweep.json, which keeps the trials, and use {' or '.join(names)}",
        )
    if not math.isfinite(figure):
        return Outcome(None, error=f"{rank_by} is not finite after {iterations} iterations")
    diagnoses = diagnose(DiagnosisMonitor.of_run(trial.config), summaries, iterations)
    last = diagnoses[-1][1] if diagnoses else None
    return Outcome(figure, last, halving.stays_bad(diagnoses, iterations))


def diagnose(
    monitor: DiagnosisMonitor, summaries: Sequence[Mapping[str, Any]], iterations: int
) -> list[tuple[int, str]]:
    """Returns (iteration, diagnosis) of the summaries of a run up to an iteration.

    A summary that lacks a value, because its line is damaged, is skipped.
    """
    found = [
        (line["step"], monitor.update(line))
        for line in summaries
        if line["step"] <= iterations and is_summary(line)
    ]
    return [(step, each.name) for step, each in found if each is not None]


def _read_lines(path: str, *, ascending: bool) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in read_log(path, ascending=ascending).lines]


def make_row(
    setting: str, trials: Sequence[Trial], outcomes: Sequence[Outcome], iterations: int, status: str
) -> dict[str, Any]:
    """Returns the results of a setting as a row of the table, as sweep.json contains them."""
    values = halving.figures(outcomes)
    return {
        "setting": setting,
        "iterations": iterations if values else None,
        "mean": statistics.fmean(values) if values else None,
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
        "diagnosis": halving.diagnosis(outcomes),
        "status": status,
        "trials": {
            trial.name: outcome.figure if outcome.error is None else outcome.error
            for trial, outcome in zip(trials, outcomes, strict=True)
        },
    }


def table(rows: Sequence[Mapping[str, Any]], rank_by: str) -> str:
    """Returns the rows as a text table, in their order.

    Args:
      rows: See `make_row`.
      rank_by: The name of the figure.
    """
    head = ("setting", "seeds", "iterations", rank_by, "deviation", "diagnosis", "status")
    cells = [
        (
            row["setting"],
            str(len(row["trials"])),
            "-" if row["iterations"] is None else str(row["iterations"]),
            _number(row["mean"]),
            _number(row["deviation"]),
            row["diagnosis"] or "-",
            row["status"],
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    lines = []
    for line in (head, *cells):
        left = [each.ljust(width) for each, width in zip(line, widths, strict=True)]
        lines.append("  ".join(left).rstrip())
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
