"""Runs a sweep (--mode=sweep) as a study of Optuna, and writes the table of its results."""

from __future__ import annotations

import contextlib
import json
import math
import os
import posixpath
import statistics
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any
from urllib.parse import quote

import optuna
import tensorflow as tf
from absl import logging
from optuna.trial import TrialState

from ...errors import UserError, reason
from ...run_directory.directory import RunDirectory
from ...run_directory.files import write_atomic
from ...run_directory.json_files import read_log, read_object, write_object
from ...run_directory.lock import RunLock
from ...run_directory.schema import mapping_of, object_of
from ...runtime.signals import StopRequest
from ...training.diagnosis import HEALTHY, DiagnosisMonitor, is_summary
from .processes import Processes, StoppedError
from .sweep_file import Candidate, SeedRun, Sweep

MIN_DIAGNOSES = 5  # that must all be bad; many runs are bad for a moment early on
_RECORD = object_of({"sweep": mapping_of(lambda value: True)})  # what a sweep that continues reads


class SweepStudy:
    """A sweep in its folder: a study of Optuna, with a trial for each candidate.

    sweep.db contains the study. Trial n is that of candidate n; all trials wait in the study from
    the start, so that no sampler draws candidates. At each rung, a trial reports the mean of the
    metric over the seeds, and the pruner decides. A trial that was interrupted continues at its
    last rung, from the checkpoints of its runs.

    Args:
      sweep: The sweep.
      path: Its folder, which contains a run directory for each candidate and seed.
      processes: Trains the runs.

    Attributes:
      table: The table of the results so far.
    """

    table: str

    def __init__(self, sweep: Sweep, path: str, processes: Processes):
        self._sweep = sweep
        self._folder = RunDirectory(path)
        self._owner = RunLock(self._folder.owner)
        self._processes = processes
        self._database = posixpath.join(path, "sweep.db")
        self._record = posixpath.join(path, "sweep.json")
        self._table = posixpath.join(path, "sweep.txt")
        self._mutex = threading.Lock()
        self._choices = dict[str, list[Any]]()  # the values of each setting
        for candidate in sweep.candidates:
            for name, value in candidate.values.items():
                choices = self._choices.setdefault(name, [])
                if value not in choices:
                    choices.append(value)

    def run(self) -> int | None:
        """Runs or continues the sweep, and writes its results after each rung of a candidate.

        Returns:
          The number of the signal that stopped the sweep, or None.

        Raises:
          UserError: If the folder contains another sweep or a run, if another process uses it, if
            a file is damaged or cannot be written, or if all candidates failed.
        """
        with self._folder.convert_file_errors("written"):
            self._check_folder()
            tf.io.gfile.makedirs(self._folder.path)
            self._owner.acquire()
        try:
            with self._database_errors(Exception):
                self._study = self._open_study()
            with self._database_errors(optuna.exceptions.OptunaError):
                self._write()
                stopped_by = self._train_all()
                if stopped_by is None:
                    self._check_any_succeeded()
                return stopped_by
        finally:
            self._owner.release()

    def _check_folder(self) -> None:
        """Raises UserError if the folder contains a run, another sweep or runs of one."""
        path = self._folder.path
        if tf.io.gfile.exists(self._folder.config):
            raise UserError(
                f"--model_dir={path} contains a run, not a sweep", "give another --model_dir"
            )
        runs = [run.config.run_directory for each in self._sweep.candidates for run in each.runs]
        runs = [run for run in runs if tf.io.gfile.exists(run)]
        trained = [run for run in runs if RunDirectory(run).has_checkpoints()]
        saved = read_object(self._record, _RECORD)
        if saved is None:
            if trained:
                raise UserError(
                    f"{trained[0]} contains a run, but {self._record} is missing",
                    "restore the file, or give another --model_dir",
                )
            if tf.io.gfile.exists(self._database):  # a first start was killed at once
                tf.io.gfile.remove(self._database)
            return
        if changes := self._sweep.changes(saved["sweep"]):
            if trained or tf.io.gfile.exists(self._database):
                raise UserError(
                    f"--model_dir={path} contains a different sweep ({'; '.join(changes)})",
                    "restore these values to continue it, or give another --model_dir",
                )
            for run in runs:  # all candidates failed; training would refuse another configuration
                tf.io.gfile.rmtree(run)

    @contextlib.contextmanager
    def _database_errors(self, *kinds: type[Exception]) -> Iterator[None]:
        try:
            yield
        except kinds as error:
            raise UserError(
                f"{self._database} cannot be used ({reason(error)})",
                "free disk space or restore the file; or delete it, and start again: the sweep "
                "continues from the checkpoints of its runs",
            ) from error

    def _open_study(self) -> optuna.Study:
        """Opens or creates the study, in which all trials that are not finished wait."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        path = quote(os.path.abspath(self._database))
        storage = optuna.storages.RDBStorage(f"sqlite:///file:{path}?uri=true")
        rungs = self._sweep.rungs
        study = optuna.create_study(
            storage=storage,
            study_name="sweep",
            load_if_exists=True,
            direction="maximize" if self._sweep.maximize else "minimize",
            sampler=optuna.samplers.RandomSampler(),  # draws nothing: all values are given
            pruner=optuna.pruners.SuccessiveHalvingPruner(
                min_resource=rungs[0], reduction_factor=self._sweep.reduction_factor
            )
            if rungs
            else optuna.pruners.NopPruner(),
        )
        found = study.get_trials(deepcopy=False)
        for trial in found:
            if trial.state == TrialState.RUNNING:
                storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)
        for candidate in self._sweep.candidates[len(found) :]:
            study.enqueue_trial(dict(candidate.values))
        return study

    def _train_all(self) -> int | None:
        """Trains the candidates that wait; returns the signal that stopped them, or None."""
        processes = self._processes
        with StopRequest() as stop, ThreadPoolExecutor(processes.parallel) as pool:
            futures = [pool.submit(self._train_waiting) for _ in range(processes.parallel)]
            try:
                pending = set(futures)
                while pending:
                    done, pending = wait(pending, timeout=0.1, return_when=FIRST_EXCEPTION)
                    if stop.signal is not None or any(each.exception() for each in done):
                        processes.stop()
            finally:
                processes.stop()
            for future in futures:
                if not isinstance(error := future.exception(), StoppedError | None):
                    raise error
            return stop.signal

    def _train_waiting(self) -> None:
        """Trains one candidate after the other, until none waits."""
        while True:
            with self._mutex:  # Optuna draws a candidate if none waits
                if not self._study.get_trials(deepcopy=False, states=[TrialState.WAITING]):
                    return
                trial = self._study.ask()
            self._train(trial, self._sweep.candidates[trial.number])
            self._write()

    def _train(self, trial: optuna.Trial, candidate: Candidate) -> None:
        """Trains the runs of a candidate from rung to rung, until it ends, is pruned or fails."""
        for name in candidate.values:
            trial.suggest_categorical(name, self._choices[name])
        end = candidate.runs[0].config.train_steps
        for stop in (*self._sweep.rungs, end):
            if stop <= trial.user_attrs.get("passed", 0):
                continue
            results = self._train_runs(candidate, stop)
            diagnoses = [diagnose(run, stop) for run in candidate.runs]
            trial.set_user_attr("iterations", stop)
            trial.set_user_attr("results", results)
            trial.set_user_attr("diagnosis", " or ".join(dict.fromkeys(d for d, _ in diagnoses)))
            state, status, mean = TrialState.PRUNED, "", None
            if errors := [each for each in results if isinstance(each, str)]:
                state, status = TrialState.FAIL, f"failed: {errors[0]}"
            elif stop == end:
                state, status, mean = TrialState.COMPLETE, "finished", statistics.fmean(results)
            else:
                if stop not in self._study.trials[trial.number].intermediate_values:
                    trial.report(statistics.fmean(results), stop)
                if all(stays_bad for _, stays_bad in diagnoses):
                    status = "pruned: its diagnosis stays bad"
                elif trial.should_prune():
                    status = "pruned: others are better"
            if status:
                trial.set_user_attr("status", status)
                self._study.tell(trial, mean, state)
                logging.info(f"{candidate.name}: {status}")
                return
            trial.set_user_attr("passed", stop)
            self._write()

    def _train_runs(self, candidate: Candidate, stop: int) -> list[Any]:
        """Trains the runs of a candidate; returns the metric or the error of each."""
        with ThreadPoolExecutor(len(candidate.runs)) as pool:
            errors = pool.map(lambda run: self._train_run(run, stop), candidate.runs)
        return [
            error or read_metric(run, stop, self._sweep.rank_by)
            for run, error in zip(candidate.runs, errors, strict=True)
        ]

    def _train_run(self, run: SeedRun, stop: int) -> str | None:
        """Trains a run to an iteration; returns its error, or None if it succeeds."""
        lock, last = RunLock(RunDirectory(run.config.run_directory).owner), None
        # A sweep that was killed leaves its processes, which train to their rung.
        while (process := lock.other_process()) is not None:
            if process != last:
                logging.info(f"waiting for process {process}, which trains {run.name}")
            last = process
            if self._processes.stopping.wait(1):
                break
        try:
            return self._processes.train(run.name, run.arguments(stop))
        except UserError:
            self._processes.stop()
            raise

    def _check_any_succeeded(self) -> None:
        """Raises UserError if all candidates failed, which probably have the same cause.

        The study is deleted, so that the next start repeats them, perhaps with other settings.
        """
        trials = self._study.get_trials(deepcopy=False)
        if all(trial.state == TrialState.FAIL for trial in trials):
            for path in (self._database, self._table):
                tf.io.gfile.remove(path)
            error = trials[0].user_attrs["status"].removeprefix("failed: ")
            raise UserError(
                f"all candidates failed, the first with: {error}",
                "correct the cause and start again",
            )

    def _write(self) -> None:
        """Writes sweep.json and sweep.txt."""
        sign = -1 if self._sweep.maximize else 1

        def order(row: Mapping[str, Any]) -> tuple[float, ...]:
            return (0, -row["iterations"], sign * row["mean"]) if "mean" in row else (1,)

        with self._mutex, self._folder.convert_file_errors("written"):
            trials = self._study.get_trials(deepcopy=False)
            pairs = zip(self._sweep.candidates, trials, strict=True)
            rows = sorted((make_row(each, trial.user_attrs) for each, trial in pairs), key=order)
            record = {
                "sweep": self._sweep.description,
                "results": rows,
                "finished": all(trial.state.is_finished() for trial in trials),
            }
            self.table = make_table(rows, self._sweep.rank_by)
            self._owner.check()
            write_atomic(self._table, self.table + "\n")
            write_object(self._record, record)


def read_metric(run: SeedRun, iterations: int, name: str) -> float | str:
    """Returns a metric of a run after a number of iterations, or an error if it is not finite.

    Raises:
      UserError: If the run was not evaluated then, or its evaluations do not contain the metric.
    """
    directory = RunDirectory(run.config.run_directory)
    with directory.convert_file_errors("read"):
        lines = [
            json.loads(line) for _, line in read_log(directory.evaluation, ascending=False).lines
        ]
    # A later line of the same iteration is from --mode=evaluate, perhaps with other settings.
    found = next((line for line in lines if line["step"] == iterations), None)
    if found is None:
        raise UserError(
            f"{directory.evaluation} has no evaluation after {iterations} iterations",
            f"restore the file, or delete {directory.path} to train the run again",
        )
    value = found.get(f"evaluation/{name}")
    if value is None:
        names = [tag.removeprefix("evaluation/") for tag in found if "/" in tag]
        raise UserError(
            f'"rank_by" of --sweep: the evaluations of {run.name} have no "{name}"',
            f"use {' or '.join(names)}, and another --model_dir",
        )
    if not math.isfinite(value):
        return f"{name} is not finite after {iterations} iterations"
    return float(value)


def diagnose(run: SeedRun, iterations: int) -> tuple[str, bool]:
    """Returns the diagnosis of a run after a number of iterations, and whether it stays bad.

    It stays bad if all diagnoses in the second half of the iterations, at least MIN_DIAGNOSES, are
    other than "healthy". A summary that lacks a value, because its line is damaged, is skipped.
    """
    monitor = DiagnosisMonitor.of_run(run.config)
    directory, found = RunDirectory(run.config.run_directory), []
    with directory.convert_file_errors("read"):
        for step, line in read_log(directory.metrics).lines:
            values = json.loads(line)
            if step <= iterations and is_summary(values):
                diagnosis = monitor.update(values)
                if diagnosis is not None:
                    found.append((step, diagnosis.name))
    late = [name for step, name in found if step > iterations / 2]
    return found[-1][1] if found else "none yet", len(late) >= MIN_DIAGNOSES and HEALTHY not in late


def make_row(candidate: Candidate, found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the results of a candidate, as sweep.json contains them.

    Args:
      candidate: The candidate.
      found: The attributes of its trial.
    """
    row = {"candidate": candidate.name, "seeds": len(candidate.runs), "status": "not finished"}
    results = found.get("results", [])
    if results and not any(isinstance(each, str) for each in results):
        row["mean"] = statistics.fmean(results)
        if len(results) > 1:
            row["deviation"] = statistics.stdev(results)
    row |= {name: found[name] for name in ("iterations", "diagnosis", "status") if name in found}
    return {**row, "runs": dict(zip([run.name for run in candidate.runs], results, strict=False))}


def make_table(rows: Sequence[Mapping[str, Any]], rank_by: str) -> str:
    """Returns rows as a text table, in their order; `rank_by` is the name of the metric."""
    columns = ("candidate", "seeds", "iterations", "mean", "deviation", "diagnosis", "status")
    lines = [[rank_by if name == "mean" else name for name in columns]]
    for row in rows:
        cells = [row.get(name, "-") for name in columns]
        lines.append([f"{each:.4g}" if isinstance(each, float) else str(each) for each in cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
