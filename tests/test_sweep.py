"""Sweeps: their file, their decisions, their processes, and sweeps that were interrupted."""

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
import tensorflow as tf
from absl import flags as absl_flags
from conftest import TINY, call_main
from tensorboard.plugins.hparams import plugin_data_pb2
from test_verdict import HEALTHY

import flags
import models
from wgan_gp.app import halving, program, sweep_file, sweep_plan, sweep_results, trial_processes
from wgan_gp.app.halving import Outcome
from wgan_gp.app.sweep import SweepRun, wait_for_process
from wgan_gp.app.trial_processes import Ended, Job, TrialProcesses
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.evaluation import results
from wgan_gp.run_directory.json_files import write_object
from wgan_gp.run_directory.lock import RunLock
from wgan_gp.training.health import HealthMonitor

ROOT = pathlib.Path(__file__).parent.parent
TINY_FLAGS = {**TINY, "train_steps": 40, "summary_interval": 5, "evaluate_samples": 50}
GRID = {
    "flags": TINY_FLAGS,
    "settings": {"penalty_weight": [1, 10], "beta_2": [0.9, 0.99]},
    "seeds": [0, 1],
    "rank_by": "wasserstein",
    "rungs": [10, 20],
}


def write(tmp_path, content):
    path = tmp_path / "sweep.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def parse(*arguments):
    values = absl_flags.FlagValues()
    flags.define(values)
    config = flags.parse(["train.py", "--mode=sweep", *arguments], values)
    return config, flags.given(values)


def read(tmp_path, content, *arguments, model_dir=None):
    """Returns the plan of a sweep file with this content."""
    path = write(tmp_path, content)
    model_dir = model_dir or tmp_path / "sweep"
    config, given = parse(f"--sweep={path}", f"--model_dir={model_dir}", *arguments)
    return sweep_plan.read(config, given, models)


# The file.


def test_a_grid_has_a_trial_for_each_setting_and_seed(tmp_path):
    sweep = read(tmp_path, GRID, "--n_critic=3")
    names = ("penalty_weight=1,beta_2=0.9", "penalty_weight=1,beta_2=0.99")
    names += ("penalty_weight=10,beta_2=0.9", "penalty_weight=10,beta_2=0.99")
    assert sweep.settings == names
    assert [trial.name for trial in sweep.trials_of(names[1])] == [
        "penalty_weight=1,beta_2=0.99,seed=0",
        "penalty_weight=1,beta_2=0.99,seed=1",
    ]
    trial = sweep.trials_of(names[1])[1]
    assert trial.config.run_directory == f"{tmp_path}/sweep/{trial.name}"
    values = (trial.config.penalty_weight, trial.config.beta_2, trial.config.seed)
    assert values == (1.0, 0.99, 1)
    assert (trial.config.n_critic, trial.config.dataset) == (3, "swiss_roll")
    assert (sweep.rungs, sweep.keep, sweep.maximize) == ((10, 20), 0.5, False)


def test_the_command_line_of_a_trial_is_its_configuration(tmp_path):
    content = {
        "flags": {"random_flips": True, "evaluate_samples": 50},
        "settings": [{"generator_ema_half_life": None}, {"generator_ema_half_life": 500}],
        "rank_by": "fid",
    }
    sweep = read(tmp_path, content, "--seed=4", "--compare=latent_size")
    assert [trial.name for trial in sweep.trials] == [
        "generator_ema_half_life=default,seed=4",
        "generator_ema_half_life=500,seed=4",
    ]
    for trial in sweep.trials:
        values = absl_flags.FlagValues()
        flags.define(values)
        config = flags.parse(["train.py", *trial.arguments(50)], values)
        expected = dataclasses.replace(trial.config, stop_step=50, evaluate_interval=7500)
        assert config == expected
        assert config.compared == ("latent_size", "generator_ema_half_life", "evaluation/fid")


def test_flags_of_the_command_line_precede_those_of_the_file(tmp_path):
    sweep = read(tmp_path, GRID, "--train_steps=30", "--evaluate_interval=5")
    assert {trial.config.train_steps for trial in sweep.trials} == {30}
    assert "--evaluate_interval=5" in sweep.trials[0].arguments(10)


BASE = {"settings": {"penalty_weight": [1]}, "rank_by": "fid"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "it is not JSON (Expecting property name"),
        ("[1]", "it is not a JSON object — give an object with flags, settings"),
        ('{"rungs": [], "rungs": []}', '"rungs" appears twice — give it once'),
        ({**BASE, "seed": [1]}, '"seed" is unknown — use flags, settings, seeds, rank_by'),
        ({"rank_by": "fid"}, '"settings" is missing or is not a grid'),
        ({**BASE, "settings": [{}]}, '"settings" is missing or is not a grid'),
        ({**BASE, "settings": {"n_critic": 5}}, '"settings" has no list of values of n_critic'),
        ({**BASE, "settings": {"n_critc": [5]}}, '"settings" contains "n_critc", which is not a'),
        ({**BASE, "settings": {"mode": ["train"]}}, "contains mode, which the sweep itself sets"),
        ({**BASE, "settings": {"seed": [1]}}, 'contains seed — give "seeds": [0, 1]'),
        ({**BASE, "settings": {"dataset": ["digits"]}}, "contains dataset, which changes the data"),
        ({**BASE, "settings": {"cpu_replicas": [1]}}, "cpu_replicas, on which the result of train"),
        (
            {**BASE, "settings": {"n_critic": [5, 0]}},
            "trial n_critic=0,seed=0: --n_critic=0 is too small — give at least 1",
        ),
        ({**BASE, "settings": {"penalty_weight": ["x"]}}, "--penalty_weight='x' is not a number"),
        (
            {**BASE, "settings": {"model": ["mlp", "resnet"]}},
            "trial model=resnet,seed=0: --model=resnet does not support",
        ),
        ({**BASE, "settings": {"beta_2": [0.9, 0.9]}}, '"settings" contains beta_2=0.9 twice'),
        (
            {**BASE, "settings": [{"model": "a/b.py"}, {"model": "a-b.py"}]},
            "the settings model=a/b.py and model=a-b.py would have the same folder",
        ),
        ({**BASE, "settings": [{"model": "x" * 300}]}, "the name of the setting model=xxx"),
        ({**BASE, "settings": {"batch_size": [*range(1, 1003)]}}, "it has more than 1000 trials"),
        ({**BASE, "flags": [1]}, '"flags" is not an object'),
        ({**BASE, "flags": {"n_critic": [5]}}, '"flags" has several values of n_critic'),
        ({**BASE, "flags": {"nonsense": 5}}, '"flags" contains "nonsense", which is not a flag'),
        ({**BASE, "flags": {"penalty_weight": 5}}, "--penalty_weight=5 is fixed, but"),
        ({**BASE, "flags": {"n_critic": "5"}}, "--n_critic='5' is not a whole number"),
        ({**BASE, "seeds": 3}, '"seeds" is 3 — give a list of different whole numbers'),
        ({**BASE, "seeds": []}, '"seeds" is []'),
        ({**BASE, "seeds": [1, 1]}, '"seeds" is [1, 1]'),
        ({**BASE, "seeds": [-1]}, "trial penalty_weight=1,seed=-1: --seed=-1 is too small"),
        ({**BASE, "seeds": [1], "flags": {"seed": 2}}, '"flags" contains seed'),
        ({**BASE, "rank_by": None}, '"rank_by" is missing or is not the name of a figure — give'),
        ({**BASE, "rank_by": "density"}, 'of "rank_by": "density" is not known — add "goal"'),
        ({**BASE, "goal": "up"}, '"goal" is "up" — use minimize or maximize'),
        ({**BASE, "keep": 1}, '"keep" is 1 — give a number above 0 and below 1'),
        ({**BASE, "rungs": 500}, '"rungs" is 500 — give an ascending list of iterations'),
        ({**BASE, "rungs": [500, 500]}, '"rungs" is [500, 500]'),
        ({**BASE, "rungs": [7500]}, "the rung 7500 is not below --train_steps=7500"),
        ({**BASE, "rungs": [120]}, "the rung 120 is not a multiple of --steps_per_loop=50 — use 1"),
        ({**BASE, "rungs": [20]}, "the rung 20 is not a multiple of --steps_per_loop=50 — use 50"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_a_mistake_in_the_file_is_one_line(tmp_path, capsys, content, message):
    path = write(tmp_path, content)
    status = call_main("--mode=sweep", f"--sweep={path}", f"--model_dir={tmp_path}/sweep")
    (line,) = capsys.readouterr().err.splitlines()
    assert status == 2 and line.startswith(f"error: --sweep={path}: ") and " — " in line
    assert message in line
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode=sweep"], "--mode=sweep needs a file — add --sweep=FILE.json"),
        (["--sweep=a.json"], "--sweep=a.json applies only to --mode=sweep — add --mode=sweep"),
        (
            ["--mode=sweep", "--sweep=none.json"],
            "--sweep=none.json: it cannot be read (No such file or directory) — give a JSON file",
        ),
        (
            ["--mode=sweep", "--sweep=sweep_penalty.json", "--penalty_weight=3"],
            '--penalty_weight=3 is fixed, but "settings" varies it — omit it',
        ),
        (
            ["--mode=sweep", "--sweep=sweep_penalty.json", "--seed=3"],
            '--seed and "seeds" contradict each other — omit one of them',
        ),
        (
            ["--mode=sweep", "--sweep=x", "--sweep_parallel=2", "--tpu=local"],
            "--sweep_parallel=2 with --tpu=local: only one process at a time can use a TPU",
        ),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(tmp_path, capsys, arguments, message):
    assert call_main(f"--model_dir={tmp_path}/sweep", *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_mistake_is_reported_before_tensorflow_is_imported(tmp_path):
    path = write(tmp_path, {**BASE, "settings": {"model": ["mlp", "resnet"]}})
    code = (
        "import sys, train\n"
        f"status = train.main(['train.py', '--mode=sweep', '--sweep={path}'])\n"
        "assert status == 2 and 'tensorflow' not in sys.modules and 'numpy' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "--model=resnet does not support" in done.stderr


def test_the_experiment_is_found_by_its_name_and_has_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config, given = parse("--sweep=configs/sweep_penalty.json")
    assert config.run_directory == "runs/sweep_penalty"
    sweep = sweep_plan.read(config, given, models)
    assert len(sweep.settings) == 4 and len(sweep.trials) == 8 and sweep.rank_by == "fid"


def test_the_best_value_of_figures_is_known():
    """The best value of others is neither small nor large, or they do not rank samples."""
    known = {*sweep_file.MINIMIZED, *sweep_file.MAXIMIZED}
    others = {"density", "largest_class", "classifier_accuracy", "two_sample_accuracy"}
    others |= {"closest_distance_ratio", "closer_than_real"}
    others |= {name for name in results._EXPLANATIONS if name.endswith(("_floor", "_deviation"))}
    others |= {name for name in results._EXPLANATIONS if name.startswith("real_trained")}
    assert known | others == set(results._EXPLANATIONS) and not known & others


# The decisions.


def outcomes(**figures):
    """Returns the outcomes of settings with a figure for each seed, where None is a failure."""
    return {
        name: [Outcome(each, "healthy", error=None if each else "NaN") for each in values]
        for name, values in figures.items()
    }


def bad(*figures):
    return [Outcome(each, "critic too weak", stays_bad=True) for each in figures]


def test_settings_are_ranked_by_the_mean_and_after_failures():
    found = outcomes(a=[3, 5], b=[1, 6], c=[None, 1], d=[None, None], e=[2, 9])
    assert halving.ranking(found, maximize=False) == ["b", "a", "e", "c", "d"]
    assert halving.ranking(found, maximize=True) == ["e", "a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("count", "keep", "kept"),
    [
        (8, 0.5, 4),
        (5, 0.5, 3),
        (2, 0.5, 1),
        (1, 0.5, 1),
        (9, 1 / 3, 3),
        (100, 0.07, 7),
        (3, 0.9, 3),
    ],
)
def test_the_best_share_is_kept_rounded_up(count, keep, kept):
    found = outcomes(**{f"s{figure}": [figure] for figure in range(1, count + 1)})
    stopped = halving.stopped(found, maximize=False, keep=keep)
    assert stopped == {f"s{i}": f"rank {i} of {count}" for i in range(kept + 1, count + 1)}


def test_a_setting_whose_diagnosis_stays_bad_stops_whatever_its_rank():
    found = {"bad": bad(0.1, 0.2), **outcomes(a=[1, 1], b=[2, 2], c=[3, 3])}
    assert halving.stopped(found, maximize=False, keep=0.5) == {
        "c": "rank 3 of 4",
        "bad": "its diagnosis stays bad: critic too weak",
    }
    found["bad"][1] = Outcome(0.2, "healthy")  # one healthy seed is enough
    assert list(halving.stopped(found, maximize=False, keep=0.5)) == ["b", "c"]
    only_bad = {"x": bad(2), "y": bad(1), "z": outcomes(z=[None])["z"]}
    assert halving.stopped(only_bad, maximize=False, keep=0.3) == {
        "x": "rank 2 of 3",
        "z": "all its trials failed",
    }


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("hhhhhbbbbb", True),
        ("bbbbbbbbbb", True),
        ("bbbbbbbbbh", False),
        ("bbbbbhbbbb", False),
        ("hhhhhhhhhh", False),
        ("bbbbbbbbb", False),  # too few in the second half
        ("", False),
    ],
)
def test_a_diagnosis_stays_bad_in_the_second_half(names, expected):
    kinds = {"h": "healthy", "b": "generator collapsed"}
    diagnoses = [(step, kinds[name]) for step, name in enumerate(names, 1)]
    # A later diagnosis, of a run that went on, does not count.
    assert halving.stays_bad([*diagnoses, (11, "healthy")], 10) is expected


def test_a_run_is_diagnosed_from_its_summaries():
    lines = [{"step": step, **HEALTHY} for step in range(1, 11)]
    for line in lines[5:]:
        line["probe/diversity"] = 0.01
    found = sweep_results.diagnose(HealthMonitor.of_run(Config()), lines, 9)
    assert [step for step, _ in found] == [5, 6, 7, 8, 9]
    assert [found[0][1], found[-1][1]] == ["healthy", "generator collapsed"]


# Sweeps of trials that are only simulated, in memory.


class FakeTrials:
    """Trains trials by writing what the program leaves in a run directory.

    Args:
      figure: (setting, seed, iteration) -> the figure. An exception is a failure of the trial.
      limit: The number of jobs after which a signal stops the sweep.
      at_worst: Whether that signal comes after the evaluation and before the checkpoint.
    """

    def __init__(self, figure, limit=math.inf, at_worst=False):
        self._figure, self._limit, self._at_worst = figure, limit, at_worst
        self.jobs = []

    def run(self, jobs):
        errors = {}
        for job in jobs:
            if len(self.jobs) >= self._limit:
                if self._at_worst:
                    with contextlib.suppress(ValueError):
                        self._train(job, checkpoint=False)
                return Ended(errors, signal.SIGTERM)
            self.jobs.append(job.name)
            try:
                self._train(job)
            except ValueError as error:
                errors[job.name] = str(error)
        return Ended(errors)

    def _train(self, job, *, checkpoint=True):
        values = absl_flags.FlagValues()
        flags.define(values)
        config = flags.parse(["train.py", *job.arguments], values)
        path, stop = config.model_dir, config.stop_step
        tf.io.gfile.makedirs(f"{path}/checkpoints")
        done = [int(name[5:-5]) for name in tf.io.gfile.listdir(f"{path}/checkpoints")]
        first, name = max(done, default=0), job.name.rpartition(",")[0]
        for file in ("metrics", "evaluation"):  # as a resumed run does
            self._rewrite(f"{path}/{file}.jsonl", first)
        for step in range(first + 5, stop + 1, 5):
            self._append(f"{path}/metrics.jsonl", {"step": step, **HEALTHY})
        resolved = dataclasses.replace(config, image_size=8, model="mlp")
        write_object(f"{path}/config.json", resolved.to_dict())
        figure = self._figure(name, config.seed, stop)
        line = {"step": stop, "samples": 50, "evaluation/wasserstein": figure}
        self._append(f"{path}/evaluation.jsonl", line)
        if checkpoint:
            save(path, stop)

    def _rewrite(self, path, first):
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                lines = [line for line in file if json.loads(line)["step"] <= first]
            with tf.io.gfile.GFile(path, "w") as file:
                file.write("".join(lines))

    def _append(self, path, line):
        with tf.io.gfile.GFile(path, "a") as file:
            file.write(json.dumps(line) + "\n")


def save(path, step):
    with tf.io.gfile.GFile(f"{path}/checkpoints/ckpt-{step}.json", "w") as file:
        file.write("{}")


def by_weight(setting, seed, iteration):
    """Returns a figure that prefers a large weight and a small beta_2 and improves over time."""
    weight, beta_2 = (float(part.partition("=")[2]) for part in setting.split(","))
    return 10 / weight + beta_2 + 0.01 * seed + 1 / iteration


def results_of(path):
    """Returns sweep.json and sweep.txt."""
    with tf.io.gfile.GFile(f"{path}/sweep.json") as file:
        content = json.load(file)
    del content["checksum"]
    with tf.io.gfile.GFile(f"{path}/sweep.txt") as file:
        return content, file.read()


def test_a_sweep_trains_the_remaining_settings_from_rung_to_rung(tmp_path):
    path = f"ram:/{tmp_path}/sweep"
    fake = FakeTrials(by_weight)
    sweep = read(tmp_path, GRID, model_dir=path)
    assert SweepRun(sweep, path, fake.run).run() is None
    best, second = "penalty_weight=10,beta_2=0.9", "penalty_weight=10,beta_2=0.99"
    both = [f"{name},seed={seed}" for name in (best, second) for seed in (0, 1)]
    assert fake.jobs == [*[trial.name for trial in sweep.trials], *both, *both[:2]]
    content, table = results_of(path)
    assert content["finished"] and content["failures"] == {}
    rows = {row["setting"]: row for row in content["results"]}
    assert list(rows) == [best, second, *sweep.settings[:2]]
    assert rows[best]["mean"] == pytest.approx(1 + 0.9 + 0.005 + 1 / 40)
    assert rows[best]["deviation"] == pytest.approx(0.01 / math.sqrt(2))
    assert [row["iterations"] for row in rows.values()] == [40, 20, 10, 10]
    assert [row["status"] for row in rows.values()] == [
        "finished",
        "stopped: rank 2 of 2",
        "stopped: rank 3 of 4",
        "stopped: rank 4 of 4",
    ]
    head, first, *_ = table.splitlines()
    assert re.split(" {2,}", head) == [
        *("setting", "seeds", "iterations", "wasserstein", "deviation", "diagnosis", "status")
    ]
    assert re.split(" {2,}", first) == [best, "2", "40", "1.93", "0.007071", "healthy", "finished"]
    # A finished sweep only prints its table again.
    again = FakeTrials(by_weight)
    assert SweepRun(sweep, path, again.run).run() is None and again.jobs == []
    assert results_of(path) == (content, table)


def fails(setting, seed, iteration):
    """Fails for one trial at the first rung, and for another one at the second."""
    if (setting, seed, iteration) in (
        ("penalty_weight=1,beta_2=0.9", 0, 10),
        ("penalty_weight=10,beta_2=0.9", 1, 20),
    ):
        raise ValueError("iteration 7: the critic's loss or gradient is not finite")
    return by_weight(setting, seed, iteration)


@pytest.mark.parametrize("figure", [by_weight, fails])
@pytest.mark.parametrize("at_worst", [False, True])
def test_an_interrupted_sweep_ends_like_an_uninterrupted_one(tmp_path, figure, at_worst):
    """It is interrupted after every number of trials, and several times."""

    def run(path, limits):
        sweep = read(tmp_path, GRID, model_dir=path)
        for limit in limits:
            fake = FakeTrials(figure, limit, at_worst)
            if SweepRun(sweep, path, fake.run).run() is None:
                return results_of(path)
        raise AssertionError

    whole = run(f"ram:/{tmp_path}/whole", [math.inf])
    if figure is fails:
        assert set(whole[0]["failures"]) == {
            "penalty_weight=1,beta_2=0.9,seed=0",
            "penalty_weight=10,beta_2=0.9,seed=1",
        }
        assert "stopped: rank 2 of 2; 1 of 2 seeds failed" in whole[1]
    for limit in range(15):
        assert run(f"ram:/{tmp_path}/{limit}", [limit, math.inf]) == whole
    assert run(f"ram:/{tmp_path}/often", itertools.repeat(3, 30)) == whole


def test_a_setting_whose_trials_all_fail_is_last(tmp_path):
    path = f"ram:/{tmp_path}/sweep"
    sweep = read(tmp_path, {**GRID, "rungs": []}, model_dir=path)
    lost = sweep.settings[2]

    def figure(setting, seed, iteration):
        if setting == lost:
            raise ValueError("no memory")
        return by_weight(setting, seed, iteration)

    assert SweepRun(sweep, path, FakeTrials(figure).run).run() is None
    content, table = results_of(path)
    assert [row["status"] for row in content["results"]] == ["finished"] * 3 + ["failed: no memory"]
    cells = re.split(" {2,}", table.splitlines()[-1])
    assert cells == [lost, "2", "-", "-", "-", "-", "failed: no memory"]


def test_if_all_trials_fail_nothing_is_recorded(tmp_path):
    path = f"ram:/{tmp_path}/sweep"
    sweep = read(tmp_path, GRID, model_dir=path)

    def fail(*_):
        raise ValueError("--data_dir=nowhere does not exist — give a folder")

    with pytest.raises(UserError, match="all trials failed, the first with: --data_dir=nowhere"):
        SweepRun(sweep, path, FakeTrials(fail).run).run()
    assert SweepRun(sweep, path, FakeTrials(by_weight).run).run() is None
    assert results_of(path)[0]["failures"] == {}


def test_an_evaluation_of_the_user_does_not_replace_that_of_the_trial(tmp_path):
    path = f"ram:/{tmp_path}/sweep"
    sweep = read(tmp_path, GRID, model_dir=path)
    assert SweepRun(sweep, path, FakeTrials(by_weight).run).run() is None
    whole = results_of(path)
    for trial in sweep.trials:  # --mode=evaluate with fewer samples
        with tf.io.gfile.GFile(f"{path}/{trial.name}/evaluation.jsonl", "a") as file:
            file.write('{"step": 10, "samples": 5, "evaluation/wasserstein": 0.0}\n')
    assert SweepRun(sweep, path, FakeTrials(by_weight).run).run() is None
    assert results_of(path) == whole


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({"rungs": [10]}, [], "rungs: [10, 20] -> [10]"),
        ({"seeds": [0, 1, 2]}, [], "seeds: [0, 1] -> [0, 1, 2]"),
        ({}, ["--batch_size=32"], "batch_size: 16 -> 32"),
        ({}, ["--evaluate_samples=60"], "evaluate_samples: 50 -> 60"),
        ({}, ["--train_steps=50"], "train_steps: 40 -> 50"),
    ],
)
def test_a_changed_sweep_is_refused_with_the_difference(tmp_path, change, arguments, message):
    path = f"ram:/{tmp_path}/sweep"
    first = read(tmp_path, GRID, model_dir=path)
    assert SweepRun(first, path, FakeTrials(by_weight).run).run() is None
    before = results_of(path)
    sweep = read(tmp_path, {**GRID, **change}, *arguments, model_dir=path)
    with pytest.raises(UserError) as caught:
        SweepRun(sweep, path, FakeTrials(by_weight).run).run()
    assert f"contains a different sweep ({message})" in caught.value.what
    assert "or give another --model_dir" in caught.value.remedy
    assert results_of(path) == before
    # What does not change the figures may change.
    sweep = read(tmp_path, GRID, "--sweep_parallel=3", "--keep_checkpoints=2", model_dir=path)
    assert SweepRun(sweep, path, FakeTrials(by_weight).run).run() is None


def test_a_sweep_without_sweep_json_uses_only_trials_of_its_configuration(tmp_path):
    path = f"ram:/{tmp_path}/sweep"
    sweep = read(tmp_path, GRID, model_dir=path)
    assert SweepRun(sweep, path, FakeTrials(fails).run).run() is None
    tf.io.gfile.remove(f"{path}/sweep.json")
    changed = read(tmp_path, GRID, "--batch_size=32", model_dir=path)
    with pytest.raises(UserError, match=r"a different configuration \(--batch_size: 16 -> 32\)"):
        SweepRun(changed, path, FakeTrials(by_weight).run).run()
    # Failed trials are repeated; the results of the others are used.
    fake = FakeTrials(by_weight)
    assert SweepRun(sweep, path, fake.run).run() is None
    assert fake.jobs[0] == "penalty_weight=1,beta_2=0.9,seed=0" and len(fake.jobs) == 4
    assert results_of(path)[0]["failures"] == {}


def test_the_folder_of_a_run_or_of_a_running_sweep_is_refused(tmp_path):
    sweep = read(tmp_path, GRID)
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match="contains a run, not a sweep — give another --model_dir"):
        SweepRun(sweep, str(folder), FakeTrials(by_weight).run).run()
    (folder / "config.json").unlink()
    with subprocess.Popen(["sleep", "600"]) as other:
        hold(folder, other.pid)
        with pytest.raises(UserError, match=f"process {other.pid} on this machine is writing"):
            SweepRun(sweep, str(folder), FakeTrials(by_weight).run).run()
        other.kill()


def hold(folder, pid):
    """Writes the lock file of another process."""
    lock = RunLock(f"{folder}/owner.json")
    lock.acquire()
    holder = json.loads((folder / "owner.json").read_text())
    started = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    (folder / "owner.json").write_text(json.dumps({**holder, "pid": pid, "started": started}))


def test_a_trial_that_a_killed_sweep_left_is_waited_for(tmp_path):
    with subprocess.Popen(["sleep", "600"]) as other:
        hold(tmp_path, other.pid)
        ends = threading.Timer(0.3, lambda: (other.kill(), other.wait()))
        ends.start()
        begin = time.monotonic()
        wait_for_process(str(tmp_path), seconds=0.05)
        ends.join()
        assert other.poll() is not None and time.monotonic() - begin >= 0.25


@pytest.mark.parametrize(("value", "message"), [(math.nan, "is not finite"), (None, "lacks")])
def test_a_figure_that_is_missing_or_not_finite_is_a_failure(tmp_path, value, message):
    path = f"ram:/{tmp_path}/sweep"
    sweep = read(tmp_path, GRID, model_dir=path)
    figure = lambda *key: value if key[:2] == (sweep.settings[3], 1) else by_weight(*key)  # noqa: E731
    fake = FakeTrials(figure)
    if value is None:
        fake = FakeTrials(by_weight)
        missing = f"{path}/{sweep.trials_of(sweep.settings[3])[1].name}"
        tf.io.gfile.makedirs(f"{missing}/checkpoints")
        save(missing, 40)
    assert SweepRun(sweep, path, fake.run).run() is None
    row = next(row for row in results_of(path)[0]["results"] if row["setting"] == sweep.settings[3])
    assert message in row["trials"][f"{sweep.settings[3]},seed=1"]
    assert row["status"].endswith("1 of 2 seeds failed")


def test_a_figure_that_the_data_does_not_have_ends_the_sweep(tmp_path):
    path = f"ram:/{tmp_path}/sweep"
    sweep = read(tmp_path, {**GRID, "rank_by": "fid"}, model_dir=path)
    with pytest.raises(UserError, match=r'have no "fid" — delete sweep.json, .* use wasserstein'):
        SweepRun(sweep, path, FakeTrials(by_weight).run).run()


# Processes.

CHILD = """
import pathlib, signal, sys, time
name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
starts = len(list(folder.glob(f"{name}-*")))
(folder / f"{name}-{starts}").touch()
print("begins")
if name == "fails":
    print("error: --n_critic=0 is too small - give at least 1", file=sys.stderr)
    print("a later line")
    sys.exit(2)
if name == "crashes":
    raise RuntimeError("no reason")
if name == "killed" or (name == "killed_once" and not starts):
    signal.raise_signal(signal.SIGKILL)
if name == "saved" and not starts:
    sys.exit(143)
if name.startswith("waits"):
    def save(*_):
        with open(folder / "told", "a") as file:
            file.write("x")
        sys.exit(143)
    signal.signal(signal.SIGTERM, save)
    (folder / f"{name}-ready").touch()
    time.sleep(60)
if name.startswith("meets"):  # both run at the same time
    while len(list(folder.glob("meets*"))) < 2:
        time.sleep(0.01)
"""


@pytest.fixture
def run_children(tmp_path):
    def run(*names, parallel=1):
        folder = tmp_path / "children"
        folder.mkdir()
        child = [sys.executable, "-c", CHILD]
        processes = TrialProcesses(parallel, {**os.environ, "MARK": "1"}, child)
        return processes.run([Job(name, [name, str(folder)]) for name in names]), folder

    return run


def test_children_run_one_after_the_other_and_failures_do_not_end_the_others(run_children, capfd):
    ended, folder = run_children("fails", "crashes", "killed", "killed_once", "saved", "good")
    assert ended.stopped_by is None
    assert ended.errors == {
        "fails": "--n_critic=0 is too small - give at least 1",
        "crashes": "RuntimeError: no reason",
        "killed": "signal 9 ended it",
    }
    starts = [path.name.rpartition("-")[0] for path in sorted(folder.iterdir())]
    assert starts == [
        *("crashes", "fails", "good", "killed", "killed", "killed"),  # three times
        *("killed_once", "killed_once", "saved", "saved"),
    ]
    lines = capfd.readouterr().err.splitlines()
    assert "good: begins" in lines and "fails: a later line" in lines


def test_children_run_side_by_side(run_children):
    assert run_children("meets_a", "meets_b", parallel=2)[0] == Ended({})


def test_a_signal_is_passed_on_once_and_no_further_child_starts(run_children, tmp_path):
    def tell():
        while len(list(tmp_path.glob("children/waits*-ready"))) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=tell)
    thread.start()
    ended, folder = run_children("waits_a", "waits_b", "good", parallel=2)
    thread.join()
    assert ended == Ended({}, signal.SIGINT)
    assert (folder / "told").read_text() == "xx" and not (folder / "good-0").exists()


def test_a_child_is_the_same_program(monkeypatch):
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.setattr(main, "__file__", "/some/train.py", raising=False)
    assert trial_processes.own_program() == [sys.executable, "/some/train.py"]
    spec = type("Spec", (), {"name": "wgan_gp.__main__"})
    monkeypatch.setattr(main, "__spec__", spec)
    assert trial_processes.own_program() == [sys.executable, "-m", "wgan_gp"]


def test_the_sweep_itself_leaves_the_tpu_to_its_children(tmp_path, monkeypatch, capsys):
    """This process prepares its environment without a TPU, and children get the original one."""
    given = {}

    class Processes:
        def __init__(self, parallel, environment):
            given.update(parallel=parallel, environment=environment)

        run = FakeTrials(by_weight).run

    def prepare(tpu):
        given["tpu"] = tpu
        monkeypatch.setenv("TPU_LOAD_LIBRARY", "0")

    monkeypatch.delenv("TPU_LOAD_LIBRARY", raising=False)
    monkeypatch.setattr(trial_processes, "TrialProcesses", Processes)
    monkeypatch.setattr(program, "prepare_environment", prepare)
    path = write(tmp_path, GRID)
    arguments = [f"--sweep={path}", f"--model_dir={tmp_path}/sweep", "--tpu=local"]
    assert call_main("--mode=sweep", *arguments) == 0
    assert given["tpu"] is None and given["parallel"] == 1
    assert "TPU_LOAD_LIBRARY" not in given["environment"]
    table = (tmp_path / "sweep" / "sweep.txt").read_text()
    assert capsys.readouterr().out.startswith(table)
    monkeypatch.setattr(Processes, "run", FakeTrials(by_weight, 0).run)
    arguments[1] = f"--model_dir={tmp_path}/other"
    assert call_main("--mode=sweep", *arguments) == 128 + signal.SIGTERM
    assert "the same command continues the sweep" in capsys.readouterr().err
    assert "TF_FORCE_GPU_ALLOW_GROWTH" not in given["environment"]
    arguments[2] = "--sweep_parallel=2"
    assert call_main("--mode=sweep", *arguments) == 128 + signal.SIGTERM
    assert given["environment"]["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert call_main("--mode=sweep", *arguments) == 2


# Real runs.


def run_in_process(jobs):
    for job in jobs:
        assert call_main(*job.arguments) == 0
    return Ended({})


def hparams_of(folder):
    """Returns the experiment and the session of TensorBoard's HParams, and all tags of scalars."""
    found, tags = {}, set()
    for path in sorted((folder / "train").glob("events.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                tags.add(value.tag)
                if value.tag.startswith("_hparams_"):
                    content = value.metadata.plugin_data.content
                    found[value.tag] = plugin_data_pb2.HParamsPluginData.FromString(content)
    experiment = found["_hparams_/experiment"].experiment
    return experiment, found["_hparams_/session_start_info"].session_start_info, tags


def test_a_planted_bad_setting_is_stopped_at_the_first_rung(tmp_path):
    """Its rank could not stop it, because "keep" keeps both settings."""
    rates = {"critic_learning_rate": 5e-3, "generator_learning_rate": 5e-3}
    tiny = TINY_FLAGS | {
        "dataset": "gaussians_8",
        "model_width": 16,
        "model_depth": 3,
        "batch_size": 64,
        "sample_interval": 0,
    }
    del tiny["n_critic"], tiny["latent_size"]
    content = {
        "flags": {**tiny, **rates, "train_steps": 65},
        "settings": [
            {"n_critic": 1, "penalty_weight": 0.01},
            {"n_critic": 5, "penalty_weight": 10, "beta_1": 0.0, "latent_size": 8},
        ],
        "rank_by": "wasserstein",
        "rungs": [60],
        "keep": 0.9,
    }
    sweep = read(tmp_path, content)
    folder = tmp_path / "sweep"
    assert SweepRun(sweep, str(folder), run_in_process).run() is None
    good, planted = results_of(folder)[0]["results"]
    assert good["status"] == "finished" and good["iterations"] == 65
    assert planted["setting"] == "n_critic=1,penalty_weight=0.01" and planted["iterations"] == 60
    assert re.match("stopped: its diagnosis stays bad: (constraint|critic)", planted["status"])
    # TensorBoard's HParams has the varied settings and the figure.
    for trial in sweep.trials:
        experiment, session, tags = hparams_of(folder / trial.name)
        names = {each.name for each in experiment.hparam_infos}
        assert names >= {"n_critic", "penalty_weight", "beta_1", "latent_size", "seed"}
        metrics = {each.name.tag for each in experiment.metric_infos}
        assert "evaluation/wasserstein" in metrics <= tags
        assert session.hparams["n_critic"].number_value == trial.config.n_critic
        assert session.hparams["latent_size"].number_value == trial.config.latent_size


@pytest.mark.slow
def test_the_program_continues_a_sweep_whose_processes_were_killed(tmp_path):
    """A child is killed, the program is told to stop, and killed; the table is that of a whole."""
    content = {**GRID, "flags": {**TINY_FLAGS, "sample_interval": 0, "train_steps": 300}}
    content |= {"settings": {"penalty_weight": [1, 10]}, "seeds": [0], "rungs": [150]}
    path = write(tmp_path, {**content, "keep": 0.9})
    start = functools.partial(start_sweep, path)
    with start(tmp_path / "whole") as whole:
        assert whole.wait(timeout=300) == 0
        (table,) = re.findall(r"(setting[\s\S]*?)\nthe table", whole.stdout.read())

    folder = tmp_path / "killed"
    with start(folder) as program:
        child = wait_for_trial(folder, "penalty_weight=1,seed=0", program)
        os.kill(child, signal.SIGKILL)
        wait_for_trial(folder, "penalty_weight=1,seed=0", program, other_than=child)
        program.send_signal(signal.SIGTERM)
        assert program.wait(timeout=120) == 143
    with start(folder, "--sweep_parallel=2") as program:
        wait_for_trial(folder, "penalty_weight=10,seed=0", program)
        program.kill()
    with start(folder, "--sweep_parallel=2") as program:
        assert program.wait(timeout=300) == 0
        assert table in program.stdout.read()
    assert results_of(folder) == results_of(tmp_path / "whole")


def start_sweep(path, folder, *arguments):
    command = [sys.executable, "train.py", "--mode=sweep", f"--sweep={path}"]
    command += [f"--model_dir={folder}", *arguments]
    with open(os.devnull, "w") as null:
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=null, text=True)


def wait_for_trial(folder, name, program, other_than=None):
    """Returns the process of a trial, once it has written a summary."""
    deadline = time.monotonic() + 120
    while True:
        try:
            pid = json.loads((folder / name / "owner.json").read_text())["pid"]
            if pid != other_than and (folder / name / "metrics.jsonl").read_text():
                return pid
        except (OSError, ValueError):
            pass
        assert time.monotonic() < deadline and program.poll() is None
        time.sleep(0.02)
