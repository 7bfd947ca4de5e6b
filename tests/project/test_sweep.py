"""examples/sweep.py: trials, seeds, pruning, and a sweep whose processes are killed."""

import json
import pathlib
import re
import signal
import subprocess
import sys
import types

import optuna
import pytest
from optuna.trial import TrialState

from examples import sweep
from wgan_gp.errors import NotFiniteError

ROOT = pathlib.Path(__file__).parents[2]
# Trains until the numbered call of wgan_gp.train, and then receives a signal; 0: until the end.
PROGRAM = """
import os, sys
import wgan_gp
from examples import sweep
from tests.helpers.runs import TINY

folder, calls, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
train = wgan_gp.train

class Signal(wgan_gp.Hook):
    def after_loop(self, loop):
        os.kill(os.getpid(), number)

def counted(config, hooks):
    global calls
    calls -= 1
    return train(config, hooks=[*hooks, *([Signal()] if calls == 0 else [])])

wgan_gp.train = counted
settings = {**TINY, "steps_per_loop": 2, "summary_interval": 2, "evaluate_samples": 40}
sweep.BASE = wgan_gp.Config(**settings, sample_interval=0)
sweep.RUNGS, sweep.METRIC, sweep.HEARTBEAT = (4, 8), "evaluation/wasserstein", 1
sweep.main([f"--folder={folder}", "--trials=2"])
"""


@pytest.fixture(autouse=True)
def short_heartbeat(monkeypatch):
    monkeypatch.setattr(sweep, "HEARTBEAT", 1)


def run(folder, monkeypatch, metric, trials=4):
    """Runs a sweep whose runs are simulated: metric(weight, seed, iteration)."""
    trained = []

    def train(config, hooks):
        weight, seed, stop = config.penalty_weight, config.seed, config.stop_step
        trained.append((config.model_dir.rpartition("/")[2], stop))
        value = metric(weight, seed, stop)
        if isinstance(value, int):
            return types.SimpleNamespace(stopped_by=value)
        hooks[0].after_evaluation(stop, {"evaluation/fid": value})
        return types.SimpleNamespace(stopped_by=None)

    monkeypatch.setattr(sweep.wgan_gp, "train", train)
    sweep.main([f"--folder={folder}", f"--trials={trials}"])
    return optuna.load_study(study_name=None, storage=f"sqlite:///{folder}/sweep.db"), trained


def test_the_value_of_a_trial_is_the_mean_over_its_seeds_at_each_rung(tmp_path, monkeypatch):
    """The mean of seeds 0 and 1 is 0.5 above their common part."""
    study, trained = run(
        tmp_path, monkeypatch, lambda weight, seed, stop: 10.0 + seed - stop / 1000, trials=1
    )
    (trial,) = study.trials
    assert trial.intermediate_values == {500: 10.0, 1000: 9.5, 2000: 8.5}
    assert trial.state == TrialState.COMPLETE and trial.value == 8.5
    assert trial.params == {"penalty_weight": 10.0}
    assert trained == [
        (f"trial-0-seed-{seed}", stop) for stop in (500, 1000, 2000) for seed in (0, 1)
    ]


def test_worse_trials_are_pruned_and_so_are_those_that_are_not_finite(tmp_path, monkeypatch):
    seen = []

    def metric(weight, seed, stop):
        seen.extend({weight} - set(seen))
        index = seen.index(weight)
        if index == 2:
            raise NotFiniteError("iteration 3: the loss is not finite", "lower it")
        return float("nan") if index == 3 else 1.0 + index

    study, trained = run(tmp_path, monkeypatch, metric)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] + 3 * [
        TrialState.PRUNED
    ]
    assert [stop for name, stop in trained if name == "trial-1-seed-1"] == [500]
    assert [name for name, _ in trained if name.startswith("trial-2")] == ["trial-2-seed-0"]
    again, trained = run(tmp_path, monkeypatch, metric)
    assert trained == [] and len(again.trials) == 4  # a sweep that is complete trains nothing


def test_a_trial_that_a_signal_stopped_is_continued_and_not_counted(tmp_path, monkeypatch):
    def stopped(weight, seed, stop):
        return int(signal.SIGTERM) if (seed, stop) == (1, 1000) else 2.0

    with pytest.raises(SystemExit) as caught:
        run(tmp_path, monkeypatch, stopped, trials=1)
    assert caught.value.code == 128 + signal.SIGTERM
    # The process that continues it has only the values that the first one stored.
    study, trained = run(tmp_path, monkeypatch, lambda weight, seed, stop: 2.0, trials=1)
    first, second = study.trials
    assert first.state == TrialState.FAIL and second.state == TrialState.COMPLETE
    assert first.params == second.params and second.value == 2.0
    assert {name for name, _ in trained} == {"trial-0-seed-0", "trial-0-seed-1"}


@pytest.mark.slow
def test_a_sweep_whose_processes_are_killed_continues(tmp_path, capfd):
    """Two trials with two seeds; the first process is killed, the second one is stopped."""

    def start(calls, number):
        command = [sys.executable, "-c", PROGRAM, tmp_path, str(calls), str(int(number))]
        return subprocess.run(command, cwd=ROOT, timeout=300).returncode

    assert start(2, signal.SIGKILL) == -signal.SIGKILL  # in seed 1, before it is saved
    assert start(3, signal.SIGTERM) == 128 + signal.SIGTERM  # in seed 0, before the second rung
    assert start(0, 0) == 0
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path}/sweep.db")
    *_, failed = [trial for trial in study.trials if trial.state == TrialState.FAIL]
    ended = [trial for trial in study.trials if trial.state != TrialState.FAIL]
    assert len(study.trials) == 4 and len(ended) == 2
    assert {trial.state for trial in ended} <= {TrialState.COMPLETE, TrialState.PRUNED}
    (continued,) = [trial for trial in ended if trial.user_attrs["name"] == "trial-0"]
    assert continued.state == TrialState.COMPLETE and continued.params == failed.params
    assert len(list(tmp_path.glob("trial-*-seed-*"))) == 4
    last = []
    for seed in sweep.SEEDS:
        lines = (tmp_path / f"trial-0-seed-{seed}" / "evaluation.jsonl").read_text().splitlines()
        evaluations = [json.loads(line) for line in lines]
        assert [each["step"] for each in evaluations] == [4, 8]  # no run began again
        last.append(evaluations[-1]["evaluation/wasserstein"])
        config = json.loads((tmp_path / f"trial-0-seed-{seed}" / "config.json").read_text())
        assert config["seed"] == seed
    assert continued.value == pytest.approx(sum(last) / 2)
    assert re.search(r"^trial-0 .* complete 8 ", capfd.readouterr().out, re.MULTILINE)
