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
from concurrent.futures import ThreadPoolExecutor, wait
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
_RESULTS = "results"  # the attribute of a trial that contains its row of the table
# The states of trials by the first word of the status in their row.
_STATES = {
    "failed": TrialState.FAIL,
    "finished": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
}


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
        trained = any(RunDirectory(run).has_checkpoints() for run in runs)
        saved = read_object(self._record, _RECORD)
        if saved is None:
            if trained:
                raise UserError(
                    f"--model_dir={path} contains runs, but {self._record} is missing",
                    "restore the file, or give another --model_dir",
                )
            if tf.io.gfile.exists(self._database):  # a first start was killed at once
                tf.io.gfile.remove(self._database)
        elif changes := self._sweep.changes(saved["sweep"]):
            if trained or tf.io.gfile.exists(self._database):
                raise UserError(
                    f"--model_dir={path} contains a different sweep ({'; '.join(changes)})",
                    "restore these values to continue it, or give another --model_dir",
                )
            # All candidates failed, and training would refuse another configuration.
            for run in filter(tf.io.gfile.exists, runs):
                tf.io.gfile.rmtree(run)

    @contextlib.contextmanager
    def _database_errors(self, kind: type[Exception]) -> Iterator[None]:
        try:
            yield
        except kind as error:
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
        study = optuna.create_study(
            storage=storage,
            study_name="sweep",
            load_if_exists=True,
            direction="maximize" if self._sweep.maximize else "minimize",
            sampler=optuna.samplers.RandomSampler(),  # draws nothing: all values are given
            pruner=optuna.pruners.SuccessiveHalvingPruner(
                min_resource=min(self._sweep.rungs, default=1),
                reduction_factor=self._sweep.reduction_factor,
            ),
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
        parallel = self._processes.parallel
        with StopRequest() as stop, ThreadPoolExecutor(parallel) as pool:
            futures = [pool.submit(self._train_waiting) for _ in range(parallel)]
            while wait(futures, timeout=0.1).not_done:
                if stop.signal is not None:
                    self._processes.stop()
            for future in futures:
                if not isinstance(error := future.exception(), StoppedError | None):
                    raise error
            return stop.signal

    def _train_waiting(self) -> None:
        """Trains one candidate after the other, until none waits."""
        try:
            while True:
                with self._mutex:  # Optuna draws a candidate if none waits
                    if not self._study.get_trials(deepcopy=False, states=[TrialState.WAITING]):
                        return
                    trial = self._study.ask()
                if not self._tell_earlier_end(trial):
                    self._train(trial, self._sweep.candidates[trial.number])
        except BaseException:
            self._processes.stop()
            raise

    def _train(self, trial: optuna.Trial, candidate: Candidate) -> None:
        """Trains the runs of a candidate from rung to rung, until it ends, is pruned or fails."""
        for name in candidate.values:
            trial.suggest_categorical(name, self._sweep.choices(name))
        passed = trial.user_attrs.get(_RESULTS, {}).get("iterations", 0)
        end = candidate.runs[0].config.train_steps
        for stop in (*self._sweep.rungs, end):
            if stop <= passed:
                continue
            results = self._train_runs(candidate, stop)
            diagnoses = [diagnose(run, stop) for run in candidate.runs]
            row = make_row(candidate, results, stop, [name for name, _ in diagnoses])
            state = None
            if row["mean"] is None:
                error = next(each for each in results if isinstance(each, str))
                state, row["status"] = TrialState.FAIL, f"failed: {error}"
            elif stop == end:
                state, row["status"] = TrialState.COMPLETE, "finished"
            else:
                trial.report(row["mean"], stop)
                if all(stays_bad for _, stays_bad in diagnoses):
                    state, row["status"] = TrialState.PRUNED, "pruned: its diagnosis stays bad"
                elif trial.should_prune():
                    state, row["status"] = TrialState.PRUNED, "pruned: others are better"
            trial.set_user_attr(_RESULTS, row)  # last: the rung counts as passed
            if state is not None:
                self._study.tell(trial, row["mean"] if stop == end else None, state)
                logging.info(f"{candidate.name}: {row['status']}")
            self._write()
            if state is not None:
                return

    def _tell_earlier_end(self, trial: optuna.Trial) -> bool:
        """Tells the study that a candidate has ended, if a sweep was killed before it did so."""
        row = trial.user_attrs.get(_RESULTS, {"status": ""})
        state = _STATES.get(row["status"].partition(":")[0])
        if state is None:
            return False
        self._study.tell(trial, row["mean"] if state == TrialState.COMPLETE else None, state)
        self._write()
        return True

    def _train_runs(self, candidate: Candidate, stop: int) -> list[float | str]:
        """Trains the runs of a candidate; returns the metric or the error of each."""
        with ThreadPoolExecutor(len(candidate.runs)) as pool:
            return list(pool.map(lambda run: self._train_run(run, stop), candidate.runs))

    def _train_run(self, run: SeedRun, stop: int) -> float | str:
        """Trains a run to an iteration; returns its metric, or its error."""
        lock = RunLock(RunDirectory(run.config.run_directory).owner)
        # A sweep that was killed leaves its processes, which train to their rung.
        if (process := lock.other_process()) is not None:
            logging.info(f"waiting for process {process}, which trains {run.name}")
        while lock.other_process() is not None and not self._processes.stopping.wait(1):
            pass
        error = self._processes.train(run.name, run.arguments(stop))
        return error or read_metric(run, stop, self._sweep.rank_by)

    def _check_any_succeeded(self) -> None:
        """Raises UserError if all candidates failed, which probably have the same cause.

        The study is deleted, so that the next start repeats them, perhaps with other settings.
        """
        trials = self._study.get_trials(deepcopy=False)
        if all(trial.state == TrialState.FAIL for trial in trials):
            for path in (self._database, self._table):
                tf.io.gfile.remove(path)
            error = trials[0].user_attrs[_RESULTS]["status"].removeprefix("failed: ")
            raise UserError(
                f"all candidates failed, the first with: {error}",
                "correct the cause and start again",
            )

    def _write(self) -> None:
        """Writes sweep.json and sweep.txt."""
        sign = -1 if self._sweep.maximize else 1

        def order(row: Mapping[str, Any]) -> tuple[float, ...]:
            return (1,) if row["mean"] is None else (0, -row["iterations"], sign * row["mean"])

        with self._mutex, self._folder.convert_file_errors("written"):
            pairs = zip(self._sweep.candidates, self._study.get_trials(deepcopy=False), strict=True)
            rows = [trial.user_attrs.get(_RESULTS) or make_row(each) for each, trial in pairs]
            rows.sort(key=order)
            self.table = make_table(rows, self._sweep.rank_by)
            self._owner.check()
            write_atomic(self._table, self.table + "\n")
            write_object(self._record, {"sweep": self._sweep.description, "results": rows})


def read_metric(run: SeedRun, iterations: int, name: str) -> float | str:
    """Returns a metric of a run after a number of iterations, or an error if it is not finite.

    Raises:
      UserError: If the run was not evaluated then, or its evaluations do not contain the metric.
    """
    directory = RunDirectory(run.config.run_directory)
    with directory.convert_file_errors("read"):
        lines = read_log(directory.evaluation, ascending=False).lines
    # A later line of the same iteration is from --mode=evaluate, perhaps with other settings.
    line = next((line for step, line in lines if step == iterations), None)
    if line is None:
        raise UserError(
            f"{directory.evaluation} has no evaluation after {iterations} iterations",
            f"restore the file, or delete {directory.path} to train the run again",
        )
    values = json.loads(line)
    if (value := values.get(f"evaluation/{name}")) is None:
        known = [tag.removeprefix("evaluation/") for tag in values if "/" in tag]
        raise UserError(
            f'"rank_by" of --sweep: the evaluations of {run.name} have no "{name}"',
            f"use {' or '.join(known)}, and another --model_dir",
        )
    return value if math.isfinite(value) else f"{name} is not finite after {iterations} iterations"


def diagnose(run: SeedRun, iterations: int) -> tuple[str, bool]:
    """Returns the diagnosis of a run after a number of iterations, and whether it stays bad.

    It stays bad if all diagnoses in the second half of the iterations, at least MIN_DIAGNOSES, are
    other than "healthy". A summary that lacks a value, because its line is damaged, is skipped.
    """
    monitor = DiagnosisMonitor.of_run(run.config, ())  # the shape changes only the reasons
    directory = RunDirectory(run.config.run_directory)
    with directory.convert_file_errors("read"):
        lines = read_log(directory.metrics, until=iterations).lines
    summaries = [(step, values) for step, line in lines if is_summary(values := json.loads(line))]
    found = [(step, monitor.update(values)) for step, values in summaries]
    names = [(step, diagnosis.name) for step, diagnosis in found if diagnosis is not None]
    late = [name for step, name in names if step > iterations / 2]
    return names[-1][1] if names else "none yet", len(late) >= MIN_DIAGNOSES and HEALTHY not in late


def make_row(
    candidate: Candidate,
    results: Sequence[float | str] = (),
    iterations: int | None = None,
    diagnoses: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns the results of a candidate, as sweep.json contains them.

    Args:
      candidate: The candidate.
      results: The metric or the error of each run; empty before the first rung.
      iterations: The iterations after which they were evaluated.
      diagnoses: The diagnosis of each run.
    """
    values = [each for each in results if not isinstance(each, str)]
    complete = len(values) == len(candidate.runs)
    return {
        "candidate": candidate.name,
        "seeds": len(candidate.runs),
        "iterations": iterations,
        "mean": statistics.fmean(values) if complete else None,
        "deviation": statistics.stdev(values) if complete and len(values) > 1 else None,
        "diagnosis": " or ".join(dict.fromkeys(diagnoses)) or None,
        "status": "not finished",
        "runs": dict(zip([run.name for run in candidate.runs], results, strict=False)),
    }


def make_table(rows: Sequence[Mapping[str, Any]], rank_by: str) -> str:
    """Returns rows as a text table, in their order; `rank_by` is the name of the metric."""
    names = ("candidate", "seeds", "iterations", "mean", "deviation", "diagnosis", "status")
    lines = [[rank_by if name == "mean" else name for name in names]]
    for row in rows:
        cells = ["-" if row[name] is None else row[name] for name in names]
        lines.append([f"{each:.4g}" if isinstance(each, float) else str(each) for each in cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [map(str.ljust, line, widths) for line in lines]
    return "\n".join("  ".join(cells).rstrip() for cells in padded)
