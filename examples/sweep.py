"""Compares settings over several seeds with Optuna, and stops the worse candidates early.

  python -m examples.sweep --folder=runs/sweep

Edit BASE and `settings_of` for a question of your own; docs/sweep.md explains the rest. Several
processes share a sweep if they have the same folder, and several machines if they also have the
same --storage. A trial is a candidate: all its seeds train to the first of RUNGS, then to the next.
"""

import argparse
import collections
import dataclasses
import logging
import math
import os
import statistics
import time
import warnings

import optuna
from optuna.trial import TrialState

import wgan_gp
from wgan_gp.errors import NotFiniteError

BASE = wgan_gp.Config(dataset="digits", summary_interval=100, evaluate_samples=5000)
SEEDS = (0, 1)
RUNGS = (500, 1000, 2000)  # iterations; bad trials end at them, and the last one is the length
METRIC, DIRECTION = "evaluation/fid", "minimize"
FIRST = {"penalty_weight": 10.0}  # the first trial, with which the others are compared
HEARTBEAT = 20  # seconds; a trial without one for twice this time is continued by another process


def settings_of(trial):
    """Returns the settings of a trial."""
    return {"penalty_weight": trial.suggest_float("penalty_weight", 0.1, 100, log=True)}


class ReportHook(wgan_gp.Hook):
    """Reports the mean of the metric over the seeds to the trial, once all seeds have it.

    The values are attributes of the trial, because a process that continues it needs them.
    """

    def __init__(self, trial, seed):
        self._trial, self._seed = trial, seed

    def after_evaluation(self, iteration, metrics):
        self._trial.set_user_attr(f"{iteration}/{self._seed}", float(metrics[METRIC]))
        if self._seed == SEEDS[-1]:
            self._trial.report(mean_of(self._trial, iteration), iteration)


def mean_of(trial, iteration):
    """Returns the mean of the metric over the seeds after a number of iterations."""
    return statistics.fmean(trial.user_attrs[f"{iteration}/{seed}"] for seed in SEEDS)


def train(trial, folder):
    """Trains all seeds of a trial from rung to rung, and returns its value."""
    settings = settings_of(trial)
    name = trial.user_attrs.get("name", f"trial-{trial.number}")  # of the trial that it continues
    trial.set_user_attr("name", name)
    for rung in RUNGS:
        for seed in SEEDS:
            config = dataclasses.replace(
                BASE,
                model_dir=f"{folder}/{name}-seed-{seed}",
                seed=seed,
                train_steps=RUNGS[-1],
                stop_step=rung,
                evaluate_interval=math.gcd(*RUNGS),
                **settings,
            )
            try:
                result = wgan_gp.train(config, hooks=[ReportHook(trial, seed)])
            except NotFiniteError as error:
                raise optuna.TrialPruned(str(error)) from error
            if result.stopped_by is not None:  # the trial has no end, as after a kill
                raise SystemExit(128 + result.stopped_by)
        value = mean_of(trial, rung)
        if not math.isfinite(value) or (rung != RUNGS[-1] and trial.should_prune()):
            raise optuna.TrialPruned(f"{METRIC} is {value:.4g} after {rung} iterations")
    return value


def open_study(folder, storage):
    """Opens or creates the study, in which the trial of a killed process waits to be continued."""
    retry = optuna.storages.RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True)
    study = optuna.create_study(
        storage=optuna.storages.RDBStorage(
            storage, heartbeat_interval=HEARTBEAT, heartbeat_stale_trial_callback=retry
        ),
        study_name=os.path.basename(folder),
        load_if_exists=True,
        direction=DIRECTION,
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=RUNGS[0], reduction_factor=2),
    )
    study.enqueue_trial(FIRST, skip_if_exists=True)
    return study


def main(arguments=None):
    """Trains trials until the study has as many as requested, and prints them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", default="runs/sweep", help="contains the runs, and sweep.db")
    parser.add_argument("--trials", type=int, default=4, help="their number, of all processes")
    parser.add_argument("--storage", help="URL of Optuna's storage (default: sweep.db in FOLDER)")
    options = parser.parse_args(arguments)
    folder = options.folder.rstrip("/")
    os.makedirs(folder, exist_ok=True)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    logging.getLogger("tensorflow").setLevel("ERROR")  # each run traces its functions again
    study = open_study(folder, options.storage or f"sqlite:///{folder}/sweep.db")
    while True:
        optuna.storages.fail_stale_trials(study)
        states = collections.Counter(trial.state for trial in study.get_trials(deepcopy=False))
        if states[TrialState.WAITING] or states.total() - states[TrialState.FAIL] < options.trials:
            study.optimize(lambda trial: train(trial, folder), n_trials=1)
        elif states[TrialState.RUNNING]:
            time.sleep(HEARTBEAT)  # another process trains it, or was killed
        else:
            break
    for trial in sorted(study.get_trials(), key=lambda trial: -(trial.last_step or 0)):
        if trial.state != TrialState.FAIL:  # another trial continued it
            state = trial.state.name.lower()
            print(trial.user_attrs["name"], trial.params, state, trial.last_step, trial.value)


if __name__ == "__main__":
    main()
