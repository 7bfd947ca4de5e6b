"""Sweeps: their decisions, their processes, and sweeps that were interrupted."""

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
from tensorboard.plugins.hparams import plugin_data_pb2

import flags
from tests.app.test_sweep_file import GRID, ROOT, TINY_FLAGS, read, write
from tests.helpers.runs import call_main
from tests.training.test_diagnosis import HEALTHY
from wgan_gp.app import program
from wgan_gp.app.sweep import halving, sweep_results, trial_processes
from wgan_gp.app.sweep.halving import Outcome
from wgan_gp.app.sweep.sweep import SweepRun, wait_for_process
from wgan_gp.app.sweep.trial_processes import Job, TrialProcesses
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.run_directory.json_files import write_object
from wgan_gp.run_directory.lock import RunLock
from wgan_gp.training.diagnosis import DiagnosisMonitor

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
    found = sweep_results.diagnose(DiagnosisMonitor.of_run(Config()), lines, 9)
    assert [step for step, _ in found] == [5, 6, 7, 8, 9]
    assert [found[0][1], found[-1][1]] == ["healthy", "generator collapsed"]


@pytest.mark.parametrize("tag", [tag for tag in HEALTHY if tag != "critic/wasserstein"])
@pytest.mark.parametrize("damaged", [None, "1.0"])
def test_a_damaged_summary_has_no_diagnosis(tag, damaged):
    lines = [{"step": step, **HEALTHY} for step in range(1, 11)]
    lines[7][tag] = damaged
    found = sweep_results.diagnose(DiagnosisMonitor.of_run(Config()), lines, 10)
    assert found == [(step, "healthy") for step in (5, 6, 7, 9, 10)]


@pytest.mark.parametrize("tag", HEALTHY)
def test_a_summary_without_a_value_is_skipped_or_its_rule_does_not_apply(tag):
    lines = [{"step": step, **HEALTHY} for step in range(1, 11)]
    del lines[7][tag]
    found = sweep_results.diagnose(DiagnosisMonitor.of_run(Config()), lines, 10)
    assert {name for _, name in found} == {"healthy"}


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

    def run(self, jobs, on_failure):
        for job in jobs:
            if len(self.jobs) >= self._limit:
                if self._at_worst:
                    with contextlib.suppress(ValueError):
                        self._train(job, checkpoint=False)
                return signal.SIGTERM
            self.jobs.append(job.name)
            try:
                self._train(job)
            except ValueError as error:
                on_failure(job.name, str(error))
        return None

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


def test_if_all_trials_fail_they_are_repeated(tmp_path):
    path = f"ram:/{tmp_path}/sweep"
    sweep = read(tmp_path, GRID, model_dir=path)

    def fail(*_):
        raise ValueError("--data_dir=nowhere does not exist — give a folder")

    with pytest.raises(UserError, match="all trials failed, the first with: --data_dir=nowhere"):
        SweepRun(sweep, path, FakeTrials(fail).run).run()
    fake = FakeTrials(by_weight)
    corrected = read(tmp_path, {**GRID, "rungs": [10]}, model_dir=path)
    assert SweepRun(corrected, path, fake.run).run() is None
    assert len(fake.jobs) == 8 + 4 and results_of(path)[0]["failures"] == {}


def test_failures_of_all_trials_are_forgotten_although_the_sweep_was_interrupted(tmp_path):
    path = f"ram:/{tmp_path}/sweep"
    sweep = read(tmp_path, GRID, model_dir=path)

    def fail(*_):
        raise ValueError("no memory")

    assert SweepRun(sweep, path, FakeTrials(fail, limit=3).run).run() == signal.SIGTERM
    assert len(results_of(path)[0]["failures"]) == 3
    again = FakeTrials(fail)
    with pytest.raises(UserError, match="all trials failed, the first with: no memory"):
        SweepRun(sweep, path, again.run).run()
    assert len(again.jobs) == 5 and not tf.io.gfile.exists(f"{path}/sweep.json")


def test_a_failure_is_recorded_as_soon_as_it_happens(tmp_path):
    """The next start does not repeat it, whatever interrupts the sweep afterwards."""
    path = f"ram:/{tmp_path}/sweep"
    sweep = read(tmp_path, GRID, model_dir=path)

    def figure(*key):
        if key == (sweep.settings[0], 1, 10):
            raise ValueError("no memory")
        if key == (sweep.settings[1], 0, 10):
            raise RuntimeError("a power failure")
        return by_weight(*key)

    with pytest.raises(RuntimeError, match="a power failure"):
        SweepRun(sweep, path, FakeTrials(figure).run).run()
    again = FakeTrials(by_weight)
    assert SweepRun(sweep, path, again.run).run() is None
    assert f"{sweep.settings[0]},seed=1" not in again.jobs
    assert results_of(path)[0]["failures"][f"{sweep.settings[0]},seed=1"]["error"] == "no memory"


@pytest.mark.parametrize("rung", [20, 40])
def test_settings_that_all_fail_after_the_first_rung_are_listed(tmp_path, rung):
    path = f"ram:/{tmp_path}/sweep"
    sweep = read(tmp_path, GRID, model_dir=path)

    def figure(setting, seed, iteration):
        if iteration == rung:
            raise ValueError("no memory")
        return by_weight(setting, seed, iteration)

    fake = FakeTrials(figure)
    assert SweepRun(sweep, path, fake.run).run() is None
    content, _ = results_of(path)
    assert content["finished"]
    failed = [row["status"].startswith("failed: no memory") for row in content["results"]]
    assert failed == ([False, False, True, True] if rung == 20 else [False, False, False, True])
    again = FakeTrials(by_weight)
    assert SweepRun(sweep, path, again.run).run() is None and again.jobs == []
    assert results_of(path)[0] == content


def test_a_sweep_that_lost_its_folder_writes_nothing_more(tmp_path):
    sweep = read(tmp_path, GRID)
    folder = tmp_path / "sweep"
    before = []

    def figure(*key):
        if key == (sweep.settings[1], 1, 10):
            RunLock(f"{folder}/owner.json").acquire()  # a process on another machine
            before.append((folder / "sweep.json").read_bytes())
            raise ValueError("no memory")
        return by_weight(*key)

    with pytest.raises(UserError, match=r"no longer holds the lock .*owner\.json"):
        SweepRun(sweep, str(folder), FakeTrials(figure).run).run()
    assert [(folder / "sweep.json").read_bytes()] == before


def test_an_evaluation_that_is_missing_ends_the_sweep(tmp_path):
    path = f"ram:/{tmp_path}/sweep"
    sweep = read(tmp_path, GRID, model_dir=path)
    assert SweepRun(sweep, path, FakeTrials(by_weight).run).run() is None
    whole = results_of(path)
    lost = f"{path}/{sweep.trials[3].name}"
    tf.io.gfile.remove(f"{lost}/evaluation.jsonl")
    with pytest.raises(UserError) as caught:
        SweepRun(sweep, path, FakeTrials(by_weight).run).run()
    assert "has done 10 iterations, but" in caught.value.what
    assert "evaluation.jsonl has no evaluation of that iteration" in caught.value.what
    assert f"or delete {lost} to train the trial again" in caught.value.remedy
    tf.io.gfile.rmtree(lost)
    again = FakeTrials(by_weight)
    assert SweepRun(sweep, path, again.run).run() is None
    assert again.jobs == [sweep.trials[3].name] and results_of(path) == whole


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
        ({}, ["--batch_size=32"], "--batch_size: 16 -> 32"),
        ({}, ["--evaluate_samples=60"], "--evaluate_samples: 50 -> 60"),
        ({}, ["--train_steps=50"], "--train_steps: 40 -> 50"),
        (
            {},
            ["--restore_from=runs/a", "--restore=both"],
            "--restore_from: None -> runs/a; --restore: None -> both",
        ),
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
    arguments = ["--sweep_parallel=3", "--keep_checkpoints=2", "--compare=latent_size"]
    sweep = read(tmp_path, GRID, *arguments, model_dir=path)
    assert SweepRun(sweep, path, FakeTrials(by_weight).run).run() is None


def test_a_sweep_of_a_version_without_a_flag_had_its_default(tmp_path):
    path = f"ram:/{tmp_path}/sweep"
    sweep = read(tmp_path, GRID, model_dir=path)
    assert SweepRun(sweep, path, FakeTrials(by_weight).run).run() is None
    content, _ = results_of(path)
    del content["flags"]["minibatch_stddev"], content["flags"]["restore"], content["file"]["goal"]
    write_object(f"{path}/sweep.json", content)
    assert SweepRun(sweep, path, FakeTrials(by_weight).run).run() is None
    changed = read(tmp_path, GRID, "--minibatch_stddev=4", model_dir=path)
    with pytest.raises(UserError, match=r"different sweep \(--minibatch_stddev: 0 -> 4\)"):
        SweepRun(changed, path, FakeTrials(by_weight).run).run()


@pytest.mark.parametrize(
    "content",
    [
        {"failures": 5},
        {"failures": {"a": 5}},
        {"failures": {"a": {"iterations": "5", "error": "x"}}},
        {"file": 5},
        {"flags": [1]},
    ],
)
def test_a_record_with_values_of_other_types_is_a_one_line_error(tmp_path, content):
    path = f"ram:/{tmp_path}/sweep"
    tf.io.gfile.makedirs(path)
    write_object(f"{path}/sweep.json", content)
    with pytest.raises(UserError, match=r"sweep.json is damaged or was edited: it has other"):
        SweepRun(read(tmp_path, GRID, model_dir=path), path, FakeTrials(by_weight).run).run()


def test_a_run_with_other_initial_weights_is_not_a_trial(tmp_path):
    path = f"ram:/{tmp_path}/sweep"
    arguments = ["--restore_from=runs/a", "--restore=both"]
    first = read(tmp_path, GRID, *arguments, model_dir=path)
    assert SweepRun(first, path, FakeTrials(by_weight).run).run() is None
    tf.io.gfile.remove(f"{path}/sweep.json")
    with pytest.raises(UserError, match=r"--restore_from: runs/a -> None; --restore: both -> None"):
        SweepRun(read(tmp_path, GRID, model_dir=path), path, FakeTrials(by_weight).run).run()


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
        wait_for_process(str(tmp_path), seconds=0.05)
        has_ended = other.poll() is not None
        ends.join()
    assert has_ended


def test_a_figure_that_is_not_finite_is_a_failure(tmp_path):
    path = f"ram:/{tmp_path}/sweep"
    sweep = read(tmp_path, GRID, model_dir=path)

    def figure(*key):
        return math.nan if key[:2] == (sweep.settings[3], 1) else by_weight(*key)

    assert SweepRun(sweep, path, FakeTrials(figure).run).run() is None
    row = next(row for row in results_of(path)[0]["results"] if row["setting"] == sweep.settings[3])
    assert "is not finite" in row["trials"][f"{sweep.settings[3]},seed=1"]
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
if name == "fails_later":
    while not (folder / "waits-ready").exists():
        time.sleep(0.01)
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
        errors = {}
        jobs = [Job(name, [name, str(folder)]) for name in names]
        return processes.run(jobs, errors.__setitem__), errors, folder

    return run


def test_children_run_one_after_the_other_and_failures_do_not_end_the_others(run_children, capfd):
    names = ("fails", "crashes", "killed", "killed_once", "saved", "good")
    stopped_by, errors, folder = run_children(*names)
    assert stopped_by is None
    assert errors == {
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
    assert run_children("meets_a", "meets_b", parallel=2)[:2] == (None, {})


def test_a_signal_is_passed_on_once_and_no_further_child_starts(run_children, tmp_path):
    def tell():
        while len(list(tmp_path.glob("children/waits*-ready"))) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=tell)
    thread.start()
    stopped_by, errors, folder = run_children("waits_a", "waits_b", "good", parallel=2)
    thread.join()
    assert (stopped_by, errors) == (signal.SIGINT, {})
    assert (folder / "told").read_text() == "xx" and not (folder / "good-0").exists()


def test_an_error_of_the_sweep_stops_its_children(tmp_path):
    def lose(*_):
        raise UserError("this process no longer holds the lock", "give another --model_dir")

    jobs = [Job(name, [name, str(tmp_path)]) for name in ("waits", "fails_later")]
    processes = TrialProcesses(2, os.environ, [sys.executable, "-c", CHILD])
    with pytest.raises(UserError, match="no longer holds"):
        processes.run(jobs, lose)
    deadline = time.monotonic() + 60
    while not (tmp_path / "told").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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


def run_in_process(jobs, on_failure):
    for job in jobs:
        assert call_main(*job.arguments) == 0


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
    content |= {"settings": {"penalty_weight": [1, 10]}, "seeds": [0], "rungs": [150], "keep": 0.9}
    path = write(tmp_path, content)
    start = functools.partial(start_sweep, path)
    whole = SweepRun(
        read(tmp_path, content, model_dir=tmp_path / "whole"),
        str(tmp_path / "whole"),
        run_in_process,
    )
    assert whole.run() is None

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
        assert whole.table in program.stdout.read()
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
