"""Runs a sweep (--mode=sweep): trains trials from rung to rung, and stops the worst settings."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from ...errors import UserError, printable
from ...run_directory.directory import RunDirectory
from ...run_directory.files import write_atomic
from ...run_directory.json_files import read_object, write_object
from ...run_directory.lock import RunLock
from ...run_directory.schema import integer, mapping_of, object_of, optional, text
from . import halving, sweep_results
from .halving import Outcome
from .sweep_plan import Sweep, Trial
from .trial_processes import Job

Row = Mapping[str, Any]
# What a sweep that continues reads in sweep.json.
_RECORD = object_of(
    {
        "failures": optional(mapping_of(object_of({"iterations": integer(), "error": text}))),
        "file": optional(mapping_of(lambda value: True)),
        "flags": optional(mapping_of(lambda value: True)),
    }
)
RunJobs = Callable[[Sequence[Job], Callable[[str, str], None]], int | None]


class SweepRun:
    """A sweep in its folder.

    Its results follow from the run directories of the trials, so an interrupted sweep that is
    continued ends like an uninterrupted one. A failure leaves no result; sweep.json records it.

    Args:
      sweep: The sweep.
      path: The folder of the sweep, which contains a run directory for each trial.
      run_jobs: Trains trials; see `TrialProcesses.run`.
    """

    def __init__(self, sweep: Sweep, path: str, run_jobs: RunJobs):
        self._sweep = sweep
        self._folder = RunDirectory(path)
        self._lock = RunLock(self._folder.owner)
        self._run_jobs = run_jobs
        self._record = posixpath.join(path, "sweep.json")
        self._table = posixpath.join(path, "sweep.txt")
        self._rungs = (*sweep.rungs, None)  # None: the end of training
        self._failures: dict[str, dict[str, Any]] = {}  # by the name of the trial
        self._remaining = list(sweep.settings)
        self._rows: list[Row] = []  # of the remaining settings at the last rung, best first
        self._stopped: list[Row] = []  # best first

    def run(self) -> int | None:
        """Runs or continues the sweep, and writes sweep.json and sweep.txt after each rung.

        Returns:
          The number of the signal that stopped the sweep, or None.

        Raises:
          UserError: If the folder contains another sweep or a run, if another process has taken it
            over, or if all trials failed at the first rung.
        """
        with self._folder.convert_file_errors("written"):
            self._check_folder()
            tf.io.gfile.makedirs(self._folder.path)
            self._lock.acquire()
            self._failures = self._read_record().get("failures") or {}
        try:
            if not tf.io.gfile.exists(self._record):
                self._write()
            for trial in self._sweep.trials:
                wait_for_process(trial.config.run_directory)
            for rung in self._rungs:
                if (stopped_by := self._train(rung)) is not None:
                    return stopped_by
                self._judge(rung)
                if not self._remaining:  # all that reached the rung have failed
                    break
            return None
        finally:
            self._lock.release()

    @property
    def table(self) -> str:
        """The table of the results so far."""
        with tf.io.gfile.GFile(self._table) as file:
            return file.read().rstrip("\n")

    def _check_folder(self) -> None:
        """Raises UserError if the folder contains a run, another sweep or runs of one."""
        path = self._folder.path
        if tf.io.gfile.exists(self._folder.config):
            raise UserError(
                f"--model_dir={path} contains a run, not a sweep", "give another --model_dir"
            )
        saved = self._read_record()
        if changes := self._sweep.changes(saved):
            raise UserError(
                f"--model_dir={path} contains a different sweep ({'; '.join(changes)})",
                "restore these values to continue it, or give another --model_dir",
            )
        for trial in self._sweep.trials:
            sweep_results.check_run(trial)

    def _read_record(self) -> dict[str, Any]:
        """Returns the content of sweep.json, which is empty if there is no such file."""
        return read_object(self._record, _RECORD) or {}

    def _train(self, rung: int | None) -> int | None:
        """Trains the remaining trials to a rung; returns the signal that stopped them, or None."""
        jobs, stops = list[Job](), dict[str, int]()
        for trial in self._remaining_trials():
            stop = stops[trial.name] = _stop_of(trial, rung)
            if self._failure(trial, stop) is None and not sweep_results.is_reached(trial, stop):
                jobs.append(Job(trial.name, trial.arguments(stop)))

        def record(name: str, error: str) -> None:
            self._failures[name] = {"iterations": stops[name], "error": error}
            self._write()

        return self._run_jobs(jobs, record)

    def _judge(self, rung: int | None) -> None:
        """Stops settings at a rung, and writes the results so far."""
        sweep = self._sweep
        outcomes = {
            name: [self._outcome(trial, rung) for trial in sweep.trials_of(name)]
            for name in self._remaining
        }
        if rung == self._rungs[0]:
            self._check_any_succeeded(outcomes)
        reasons: Mapping[str, str] = {}
        if rung is not None:
            reasons = halving.stopped(outcomes, maximize=sweep.maximize, keep=sweep.keep)
        ranked = halving.ranking(outcomes, maximize=sweep.maximize)
        rows = {name: self._row(name, outcomes[name], rung, reasons.get(name)) for name in ranked}
        self._stopped = [rows[name] for name in reasons] + self._stopped
        self._remaining = [name for name in ranked if name not in reasons]
        for name in reasons:
            logging.info(f"{name}: {rows[name]['status']}")
        self._rows = [rows[name] for name in self._remaining]
        self._write(finished=rung is None or not self._remaining)

    def _check_any_succeeded(self, outcomes: Mapping[str, Sequence[Outcome]]) -> None:
        """Raises UserError if all trials failed, which probably have the same cause.

        sweep.json is deleted, so that the next start repeats them, perhaps with other settings.
        """
        if any(halving.figures(each) for each in outcomes.values()):
            return
        with self._folder.convert_file_errors("written"):
            self._lock.check()
            for path in (self._record, self._table):
                tf.io.gfile.remove(path)
        name = next(iter(outcomes))
        raise UserError(
            f"all trials failed, the first with: {outcomes[name][0].error}",
            "correct the cause and start again",
        )

    def _row(
        self, name: str, outcomes: Sequence[Outcome], rung: int | None, reason: str | None
    ) -> Row:
        trials = self._sweep.trials_of(name)
        iterations = _stop_of(trials[0], rung)
        failed = sum(each.error is not None for each in outcomes)
        if failed == len(outcomes):
            status = f"failed: {outcomes[0].error}"
        elif reason is not None:
            status = f"stopped: {reason}"
        else:
            status = "finished" if rung is None else "goes on"
        if 0 < failed < len(outcomes):
            status += f"; {failed} of {len(outcomes)} seeds failed"
        return sweep_results.make_row(name, trials, outcomes, iterations, status)

    def _outcome(self, trial: Trial, rung: int | None) -> Outcome:
        stop = _stop_of(trial, rung)
        if (error := self._failure(trial, stop)) is not None:
            return Outcome(None, error=error)
        return sweep_results.read_outcome(trial, stop, self._sweep.rank_by)

    def _failure(self, trial: Trial, stop: int) -> str | None:
        """Returns the error of a trial that failed before an iteration, or None."""
        failure = self._failures.get(trial.name)
        return printable(failure["error"]) if failure and failure["iterations"] <= stop else None

    def _remaining_trials(self) -> list[Trial]:
        return [trial for name in self._remaining for trial in self._sweep.trials_of(name)]

    def _write(self, *, finished: bool = False) -> None:
        """Writes sweep.json and sweep.txt; settings whose trials all failed come last."""
        rows = sorted([*self._rows, *self._stopped], key=lambda row: row["mean"] is None)
        with self._folder.convert_file_errors("written"):
            self._lock.check()
            write_atomic(self._table, sweep_results.table(rows, self._sweep.rank_by) + "\n")
            write_object(
                self._record,
                {
                    **self._sweep.description,
                    "failures": self._failures,
                    "results": rows,
                    "finished": finished,
                },
            )


def wait_for_process(path: str, seconds: float = 1.0) -> None:
    """Waits until no other process of this machine writes to a run directory.

    A sweep that was killed leaves its children, which train to their rung.

    Args:
      path: The run directory.
      seconds: The time between two checks.
    """
    lock = RunLock(RunDirectory(path).owner)
    last = None
    while (process := lock.other_process()) is not None:
        if process != last:
            logging.info(f"waiting for process {process}, which writes to {path}")
        last = process
        time.sleep(seconds)


def _stop_of(trial: Trial, rung: int | None) -> int:
    """Returns the iteration at which a trial stops at a rung, or ends."""
    return rung or trial.config.train_steps
