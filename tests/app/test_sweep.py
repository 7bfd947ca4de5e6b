"""Sweeps: the study of candidates whose runs are simulated, the processes, and a real sweep."""

import contextlib
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import optuna
import psutil
import pytest
import tensorflow as tf
from absl import flags as absl_flags
from tensorboard.plugins.hparams import plugin_data_pb2

import flags
from tests.app.test_sweep_file import GRID, ROOT, TINY_FLAGS, read, write
from tests.helpers.runs import call_main, lean_path
from tests.training.test_diagnosis import HEALTHY
from wgan_gp.app import program
from wgan_gp.app.sweep import processes, sweep
from wgan_gp.app.sweep.processes import Processes, StoppedError
from wgan_gp.app.sweep.sweep import SweepStudy
from wgan_gp.errors import UserError
from wgan_gp.run_directory.json_files import write_object
from wgan_gp.run_directory.lock import RunLock

FIRST = "penalty_weight=10,beta_2=0.9"
SECOND = "penalty_weight=1,beta_2=0.9"
THIRD = "penalty_weight=100,beta_2=0.9"
LAST = "penalty_weight=0.1,beta_2=0.9"
WEIGHTS = {**GRID, "settings": {"penalty_weight": [10, 1, 100, 0.1], "beta_2": [0.9]}}


class FakeProcesses:
    """Trains runs by writing what the program leaves in a run directory.

    Args:
      metric: (candidate, seed, iteration) -> the metric, or the error of the run as text.
      limit: The number of runs after which a signal stops the sweep.
      at_worst: Whether that signal comes after the evaluation and before the checkpoint.
      summary: The values of each summary.
    """

    parallel = 1

    def __init__(self, metric, limit=math.inf, at_worst=False, summary=HEALTHY):
        self._metric, self._limit, self._at_worst = metric, limit, at_worst
        self._summary, self._slot = summary, threading.Lock()
        self.stopping, self.jobs = threading.Event(), []  # the jobs that trained

    def stop(self):
        self.stopping.set()

    def train(self, name, arguments):
        with self._slot:
            return self._train(name, arguments)

    def _train(self, name, arguments):
        if self.stopping.is_set():
            raise StoppedError
        values = absl_flags.FlagValues()
        flags.define(values)
        config = flags.parse(["train.py", *arguments], values)
        path, stop = pathlib.Path(config.model_dir), config.stop_step
        interrupted = len(self.jobs) >= self._limit
        (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        first = max((int(each.stem[5:]) for each in path.glob("checkpoints/*")), default=0)
        if first < stop and not (interrupted and not self._at_worst):
            for file in ("metrics", "evaluation"):  # as a resumed run does
                self._cut(path / f"{file}.jsonl", first)
            self.jobs.append((name, stop))
            metric = self._metric(name.rpartition(",")[0], config.seed, stop)
            if isinstance(metric, str):
                return metric
            lines = [{"step": each, **self._summary} for each in range(first + 1, stop + 1)]
            append(path / "metrics.jsonl", *lines)
            append(path / "evaluation.jsonl", {"step": stop, "evaluation/wasserstein": metric})
        if interrupted:
            os.kill(os.getpid(), signal.SIGTERM)
            assert self.stopping.wait(60)
            raise StoppedError
        (path / "checkpoints" / f"ckpt-{stop}.json").write_text("{}")
        return None

    @staticmethod
    def _cut(path, last):
        if path.exists():
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(each for each in lines if json.loads(each)["step"] <= last))


def append(path, *lines):
    with open(path, "a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def by_weight(candidate, seed, iteration):
    """Returns a metric that prefers a weight of 10 and improves over time."""
    weight = float(re.search("penalty_weight=([0-9.]+)", candidate)[1])
    return abs(math.log10(weight) - 1) + 0.01 * seed + 1 / iteration


def run(tmp_path, fake, content=WEIGHTS, *arguments, folder="sweep"):
    plan = read(tmp_path, content, *arguments, model_dir=tmp_path / folder)
    return SweepStudy(plan, str(tmp_path / folder), fake).run()


def results_of(folder):
    """Returns the rows of sweep.json by the name of the candidate, and sweep.txt."""
    content = json.loads((folder / "sweep.json").read_text())
    return {row["candidate"]: row for row in content["results"]}, (folder / "sweep.txt").read_text()


def states_of(folder):
    storage = f"sqlite:///{folder}/sweep.db"
    trials = optuna.load_study(study_name="sweep", storage=storage).trials
    return [(trial.params["penalty_weight"], trial.state.name) for trial in trials]


def test_candidates_are_trained_from_rung_to_rung_and_pruned(tmp_path):
    """Successive halving lets the better half of those pass that reached the rung so far."""
    fake = FakeProcesses(by_weight)
    assert run(tmp_path, fake) is None
    complete = [(f"{FIRST},seed={seed}", stop) for stop in (10, 20, 40) for seed in (0, 1)]
    others = [(f"{name},seed={seed}", 10) for name in (SECOND, THIRD, LAST) for seed in (0, 1)]
    assert sorted(fake.jobs[:6]) == sorted(complete) and sorted(fake.jobs[6:]) == sorted(others)
    rows, table = results_of(tmp_path / "sweep")
    assert list(rows) == [FIRST, SECOND, THIRD, LAST]
    assert rows[FIRST]["mean"] == pytest.approx(0.005 + 1 / 40)
    assert rows[FIRST]["deviation"] == pytest.approx(0.01 / math.sqrt(2))
    assert rows[SECOND]["mean"] == pytest.approx(1 + 0.005 + 1 / 10)
    assert [row["status"] for row in rows.values()] == [
        "finished",
        *["pruned: others are better"] * 3,
    ]
    head, first, *_ = table.splitlines()
    assert re.split(" {2,}", head) == [
        *("candidate", "seeds", "iterations", "wasserstein", "deviation", "diagnosis", "status")
    ]
    assert re.split(" {2,}", first) == [FIRST, "2", "40", "0.03", "0.007071", "healthy", "finished"]
    expected = [(10, "COMPLETE"), (1, "PRUNED"), (100, "PRUNED"), (0.1, "PRUNED")]
    assert states_of(tmp_path / "sweep") == expected
    again = FakeProcesses(by_weight)  # a finished sweep only prints its table again
    assert run(tmp_path, again) is None and again.jobs == []
    assert results_of(tmp_path / "sweep") == (rows, table)


def test_a_candidate_that_is_better_passes_also_if_a_larger_metric_is_better(tmp_path):
    content = {**WEIGHTS, "goal": "maximize", "seeds": [0], "rungs": [10]}
    fake = FakeProcesses(by_weight)
    assert run(tmp_path, fake, content, folder="a [b] {c} 50% ?#") is None
    expected = [(FIRST, 10), (FIRST, 40), (SECOND, 10), (SECOND, 40), (THIRD, 10), (THIRD, 40)]
    expected += [(LAST, 10), (LAST, 40)]  # 1 and 100 are equal, and the last one is the best
    assert fake.jobs == [(f"{name},seed=0", stop) for name, stop in expected]
    rows, _ = results_of(tmp_path / "a [b] {c} 50% ?#")
    assert next(iter(rows)) == LAST


@pytest.mark.parametrize("at_worst", [False, True])
def test_an_interrupted_sweep_ends_like_an_uninterrupted_one(tmp_path, at_worst):
    content = {**WEIGHTS, "settings": {"penalty_weight": [10, 1], "beta_2": [0.9]}}
    assert run(tmp_path, FakeProcesses(by_weight), content, folder="whole") is None
    statuses = []
    while None not in statuses:
        fake = FakeProcesses(by_weight, 3, at_worst)
        statuses.append(run(tmp_path, fake, content))
    assert statuses == [signal.SIGTERM, signal.SIGTERM, None]
    assert results_of(tmp_path / "sweep")[1] == results_of(tmp_path / "whole")[1]


def test_a_failed_candidate_does_not_end_the_others_and_is_not_repeated(tmp_path):
    def metric(candidate, seed, iteration):
        if (candidate, seed, iteration) == (FIRST, 1, 20):
            return "iteration 17: the critic's loss or gradient is not finite"
        if candidate == SECOND:
            return math.nan
        return by_weight(candidate, seed, iteration)

    assert run(tmp_path, FakeProcesses(metric)) is None
    rows, table = results_of(tmp_path / "sweep")
    assert list(rows) == [THIRD, LAST, FIRST, SECOND]
    assert rows[FIRST]["status"].startswith("failed: iteration 17: the critic's loss")
    assert rows[FIRST]["runs"][f"{FIRST},seed=0"] == pytest.approx(0.05)
    assert rows[SECOND]["status"] == "failed: wasserstein is not finite after 10 iterations"
    assert re.split(" {2,}", table.splitlines()[3])[2:5] == ["20", "-", "-"]
    again = FakeProcesses(by_weight)
    assert run(tmp_path, again) is None and again.jobs == []


def test_a_candidate_whose_diagnosis_stays_bad_is_pruned_whatever_its_rank(tmp_path):
    fake = FakeProcesses(by_weight, summary={**HEALTHY, "probe/diversity": 0.01})
    assert run(tmp_path, fake, {**WEIGHTS, "seeds": [0]}) is None
    rows, _ = results_of(tmp_path / "sweep")
    assert {row["status"] for row in rows.values()} == {"pruned: its diagnosis stays bad"}
    assert {row["diagnosis"] for row in rows.values()} == {"generator collapsed"}


@pytest.mark.parametrize(
    ("diversities", "expected"),
    [
        ([1.0] * 4 + [0.0] * 12, ("generator collapsed", True)),
        ([0.0] * 16, ("generator collapsed", True)),
        ([0.0] * 8 + [1.0] * 8, ("healthy", False)),
        ([0.0] * 8, ("generator collapsed", False)),  # four diagnoses, too few
        ([1.0] * 4, ("none yet", False)),
        ([0.0] * 8 + [None] + [0.0] * 8, ("generator collapsed", True)),  # a damaged line
    ],
)
def test_a_diagnosis_stays_bad_in_the_second_half(tmp_path, diversities, expected):
    seed_run = read(tmp_path, GRID).candidates[0].runs[0]
    folder = pathlib.Path(seed_run.config.run_directory)
    folder.mkdir(parents=True)
    lines = [{"step": i, **HEALTHY, "probe/diversity": x} for i, x in enumerate(diversities, 1)]
    # A later summary, of a run that went on, does not count.
    append(folder / "metrics.jsonl", *lines, {"step": 100, **HEALTHY})
    assert sweep.diagnose(seed_run, len(lines)) == expected


def test_if_all_candidates_fail_the_corrected_file_may_use_the_folder(tmp_path):
    fail = FakeProcesses(lambda *_: "--data_dir=nowhere does not exist — give a folder")
    with pytest.raises(UserError, match="all candidates failed, the first with: --data_dir=now"):
        run(tmp_path, fail)
    leftover = tmp_path / "sweep" / f"{FIRST},seed=0" / "config.json"
    leftover.write_text("{}")
    fake = FakeProcesses(by_weight)
    assert run(tmp_path, fake, {**WEIGHTS, "rungs": []}, "--batch_size=8") is None
    assert len(fake.jobs) == 8 and not leftover.exists()


def test_an_error_that_is_not_of_the_candidate_ends_the_sweep(tmp_path):
    """The candidate is not recorded as failed, and the same command continues it."""

    def metric(*key):
        if key[0] == SECOND:
            raise UserError("no space", "free it")
        return by_weight(*key)

    content = {**WEIGHTS, "seeds": [0], "rungs": []}
    fake = FakeProcesses(metric)
    with pytest.raises(UserError, match="no space"):
        run(tmp_path, fake, content)
    assert fake.stopping.is_set() and len(fake.jobs) == 2
    assert results_of(tmp_path / "sweep")[0][SECOND]["status"] == "not finished"
    again = FakeProcesses(by_weight)
    assert run(tmp_path, again, content) is None and len(again.jobs) == 3


def test_a_missing_evaluation_ends_the_sweep(tmp_path):
    content = {**WEIGHTS, "seeds": [0], "rungs": []}
    assert run(tmp_path, FakeProcesses(by_weight, 1), content) == signal.SIGTERM
    lost = tmp_path / "sweep" / f"{SECOND},seed=0"
    (lost / "checkpoints" / "ckpt-40.json").touch()
    append(lost / "evaluation.jsonl", {"step": 40, "evaluation/wasserstein": []})
    with pytest.raises(UserError, match=r"no evaluation after 40 .* or delete .* train the run ag"):
        run(tmp_path, FakeProcesses(by_weight), content)
    # A later line, from --mode=evaluate, does not replace that of the run.
    line = {"step": 40, "evaluation/wasserstein": 1.5}
    append(lost / "evaluation.jsonl", line, {**line, "evaluation/wasserstein": 0.0})
    assert run(tmp_path, FakeProcesses(by_weight), content) is None
    assert results_of(tmp_path / "sweep")[0][SECOND]["mean"] == 1.5


def test_a_metric_that_the_evaluations_lack_ends_the_sweep(tmp_path):
    content = {**WEIGHTS, "rank_by": "modes_covered"}
    with pytest.raises(UserError, match='have no "modes_covered" — use wasserstein, and another'):
        run(tmp_path, FakeProcesses(by_weight), content)


def test_a_changed_sweep_is_refused_with_the_difference(tmp_path):
    assert run(tmp_path, FakeProcesses(by_weight)) is None
    before = results_of(tmp_path / "sweep")
    changed = {**WEIGHTS, "rungs": [10], "seeds": [0, 1, 2]}
    for content, arguments, message in (
        (changed, [], "seeds: [0, 1] -> [0, 1, 2]; rungs: [10, 20] -> [10]"),
        (WEIGHTS, ["--batch_size=32"], "--batch_size: 16 -> 32"),
        (
            WEIGHTS,
            ["--evaluate_samples=60", "--restore_from=runs/a", "--restore=both"],
            "--restore_from: None -> runs/a; --restore: None -> both; --evaluate_samples: 50 -> 60",
        ),
    ):
        with pytest.raises(UserError) as caught:
            run(tmp_path, FakeProcesses(by_weight), content, *arguments)
        found = re.search(r"contains a different sweep \((.*)\)$", caught.value.what)[1]
        assert sorted(found.split("; ")) == sorted(message.split("; "))
    assert results_of(tmp_path / "sweep") == before
    # What does not change the metrics may change.
    arguments = ["--sweep_parallel=3", "--keep_checkpoints=2", "--compare=latent_size"]
    assert run(tmp_path, FakeProcesses(by_weight), WEIGHTS, *arguments) is None


def test_damaged_files_are_one_line(tmp_path):
    folder = tmp_path / "sweep"
    folder.mkdir()
    for content in ({"sweep": 5}, {}):
        write_object(str(folder / "sweep.json"), content)
        with pytest.raises(UserError, match=r"sweep.json is damaged or was edited"):
            run(tmp_path, FakeProcesses(by_weight))
    (folder / "sweep.json").unlink()
    (folder / "sweep.db").write_bytes(b"of a first start that was killed at once")
    assert run(tmp_path, FakeProcesses(by_weight, 1)) == signal.SIGTERM
    (folder / "sweep.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(UserError, match=r"sweep.db cannot be used \(.*file is not a database\) —"):
        run(tmp_path, FakeProcesses(by_weight))


@pytest.mark.slow
def test_without_its_database_a_sweep_continues_from_its_runs(tmp_path):
    assert run(tmp_path, FakeProcesses(by_weight)) is None
    before = results_of(tmp_path / "sweep")
    (tmp_path / "sweep" / "sweep.db").unlink()
    again = FakeProcesses(by_weight)
    assert run(tmp_path, again) is None and again.jobs == []
    assert results_of(tmp_path / "sweep") == before
    (tmp_path / "sweep" / "sweep.json").unlink()  # then it is not known what the runs are
    with pytest.raises(UserError, match=r"contains runs, but .*sweep.json is missing"):
        run(tmp_path, again)


def test_the_folder_of_a_run_or_of_a_running_sweep_is_refused(tmp_path):
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match="contains a run, not a sweep — give another --model_dir"):
        run(tmp_path, FakeProcesses(by_weight))
    (folder / "config.json").unlink()
    with sleeping() as other:
        hold(folder, other.pid)
        with pytest.raises(UserError, match=f"process {other.pid} on this machine is writing"):
            run(tmp_path, FakeProcesses(by_weight))


@contextlib.contextmanager
def sleeping():
    """A process that is killed at the end."""
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process
        finally:
            process.kill()


def hold(folder, pid):
    """Writes the lock file of another process."""
    lock = RunLock(f"{folder}/owner.json")
    lock.acquire()
    holder = json.loads((folder / "owner.json").read_text())
    started = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    (folder / "owner.json").write_text(json.dumps({**holder, "pid": pid, "started": started}))


def test_a_process_that_a_killed_sweep_left_is_waited_for(tmp_path):
    folder = tmp_path / "sweep" / f"{FIRST},seed=0"
    folder.mkdir(parents=True)
    ended = []

    def metric(*key):
        ended.append(psutil.Process(other.pid).status() == psutil.STATUS_ZOMBIE)
        return by_weight(*key)

    with sleeping() as other:
        hold(folder, other.pid)
        threading.Timer(0.5, other.kill).start()  # nothing waits for it
        content = {**WEIGHTS, "settings": [{"penalty_weight": 10, "beta_2": 0.9}], "rungs": []}
        assert run(tmp_path, FakeProcesses(metric), {**content, "seeds": [0]}) is None
    assert ended == [True]


def test_a_sweep_that_lost_its_folder_writes_nothing_more(tmp_path):
    before = []

    def metric(*key):
        if not before:
            RunLock(f"{tmp_path}/sweep/owner.json").acquire()  # a process on another machine
            before.append((tmp_path / "sweep" / "sweep.json").read_bytes())
        return by_weight(*key)

    with pytest.raises(UserError, match=r"no longer holds the lock .*owner\.json"):
        run(tmp_path, FakeProcesses(metric))
    assert [(tmp_path / "sweep" / "sweep.json").read_bytes()] == before


# Processes.

CHILD = """
import os, pathlib, signal, sys, time
name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
starts = len(list(folder.glob(f"{name}-*")))
(folder / f"{name}-{starts}").touch()
print("begins", os.environ["MARK"])
if name == "fails":
    print("error: --n_critic=0 is too small - give at least 1", file=sys.stderr)
    print("a later line")
    sys.exit(2)
if name == "disk":
    sys.exit("error: --model_dir=a cannot be written (a/b; No space left on device) — free it")
if name == "crashes":
    raise RuntimeError("no reason")
if name == "killed" or (name == "killed_once" and not starts):
    signal.raise_signal(signal.SIGKILL)
if name == "saved" and not starts:
    sys.exit(143)
if name.startswith("waits"):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    (folder / f"{name}-ready").touch()
    time.sleep(60)
"""


def children(parallel=1):
    return Processes(parallel, {**os.environ, "MARK": "1"}, [sys.executable, "-S", "-c", CHILD])


@pytest.mark.parametrize(
    ("name", "expected", "starts"),
    [
        ("good", None, 1),
        ("fails", "--n_critic=0 is too small - give at least 1", 1),
        ("crashes", "RuntimeError: no reason", 1),
        ("killed", "signal 9 ended it", 3),
        ("killed_once", None, 2),
        ("saved", None, 2),
    ],
)
def test_a_process_ends_with_its_error_or_is_started_again(tmp_path, capfd, name, expected, starts):
    assert children().train(name, [name, str(tmp_path)]) == expected
    assert len(list(tmp_path.iterdir())) == starts
    assert f"{name}: begins 1" in capfd.readouterr().err.splitlines()


def test_a_full_disk_is_not_an_error_of_the_run(tmp_path):
    with pytest.raises(
        UserError, match=r"the run disk has stopped: --model_.*No space left on device. — free"
    ):
        children().train("disk", ["disk", str(tmp_path)])


def test_processes_run_side_by_side_until_they_are_told_to_stop(tmp_path):
    both, found = children(2), []

    def train(name):
        with pytest.raises(StoppedError):
            both.train(name, [name, str(tmp_path)])
        found.append(name)

    threads = [threading.Thread(target=train, args=[name]) for name in ("waits_a", "waits_b")]
    for thread in threads:
        thread.start()
    while len(list(tmp_path.glob("*-ready"))) < 2:
        time.sleep(0.01)
    both.stop()
    for thread in threads:
        thread.join()
    train("good")  # no further process starts
    assert sorted(found) == ["good", "waits_a", "waits_b"]
    assert not (tmp_path / "good-0").exists()


def test_a_child_is_the_same_program(monkeypatch):
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.setattr(main, "__file__", "/some/train.py", raising=False)
    assert processes.own_program() == [sys.executable, "/some/train.py"]
    spec = type("Spec", (), {"name": "wgan_gp.__main__"})
    monkeypatch.setattr(main, "__spec__", spec)
    assert processes.own_program() == [sys.executable, "-m", "wgan_gp"]


def test_the_sweep_itself_leaves_the_tpu_to_its_children(tmp_path, monkeypatch, capsys):
    """This process prepares its environment without a TPU, and children get the original one."""
    given = {}

    def make_processes(parallel, environment):
        given.update(parallel=parallel, environment=environment)
        return FakeProcesses(by_weight, given.get("limit", math.inf))

    def prepare(tpu):
        given["tpu"] = tpu
        monkeypatch.setenv("TPU_LOAD_LIBRARY", "0")

    monkeypatch.delenv("TPU_LOAD_LIBRARY", raising=False)
    monkeypatch.setattr(processes, "Processes", make_processes)
    monkeypatch.setattr(program, "prepare_environment", prepare)
    arguments = [f"--sweep={write(tmp_path, WEIGHTS)}", f"--model_dir={tmp_path}/sweep"]
    assert call_main("--mode=sweep", *arguments, "--tpu=local") == 0
    assert given["tpu"] is None and given["parallel"] == 1
    assert "TPU_LOAD_LIBRARY" not in given["environment"]
    table = (tmp_path / "sweep" / "sweep.txt").read_text()
    assert capsys.readouterr().out.startswith(table)
    given["limit"], arguments[1] = 0, f"--model_dir={tmp_path}/other"
    assert call_main("--mode=sweep", *arguments, "--sweep_parallel=2") == 128 + signal.SIGTERM
    assert "the same command continues the sweep" in capsys.readouterr().err
    assert given["parallel"] == 2
    assert given["environment"]["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


# Real runs.


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


REAL = {
    "flags": {**TINY_FLAGS, "train_steps": 300, "sample_interval": 0},
    "settings": [{"penalty_weight": 10, "n_critic": 1}, {"penalty_weight": 1}],
    "rank_by": "wasserstein",
}
REAL["flags"].pop("n_critic")


class TrainedProcesses(FakeProcesses):
    """Trains runs by copying those of a folder; two candidates wait for each other.

    The program cannot train in the threads of a sweep, because only the main thread of a process
    can handle signals.
    """

    parallel = 2

    def __init__(self, trained):
        super().__init__(None)
        self._trained, self._both = trained, threading.Barrier(2)

    def train(self, name, arguments):
        self._both.wait(60)
        flags_of_run = dict(each.split("=", 1) for each in arguments)
        shutil.copytree(self._trained / name, flags_of_run["--model_dir"])


def start(path, folder, log):
    """Starts the program; all its processes compute with one thread and without jax."""
    command = [sys.executable, "train.py", "--mode=sweep", f"--sweep={path}"]
    single = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"), "1")
    return subprocess.Popen(
        [*command, f"--model_dir={folder}"],
        cwd=ROOT,
        env={**os.environ, **single, "PYTHONPATH": lean_path()},
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )


@pytest.fixture(scope="module")
def whole_sweep(tmp_path_factory):
    """Returns the folder of a sweep of real runs, which this process trains, and its file."""
    parent = tmp_path_factory.mktemp("real")
    plan = read(parent, REAL)
    for (seed_run,) in (candidate.runs for candidate in plan.candidates):
        arguments = seed_run.arguments(REAL["flags"]["train_steps"])
        assert call_main(*arguments, f"--model_dir={parent}/trained/{seed_run.name}") == 0
    trained = TrainedProcesses(parent / "trained")
    assert SweepStudy(plan, str(parent / "sweep"), trained).run() is None
    return parent / "sweep", parent / "sweep.json"


@pytest.mark.slow
def test_a_sweep_of_real_runs(whole_sweep):
    folder, _ = whole_sweep
    rows, _ = results_of(folder)
    assert {row["status"] for row in rows.values()} == {"finished"}
    # TensorBoard's HParams has the varied settings and the metric.
    experiment, session, tags = hparams_of(folder / "penalty_weight=10,n_critic=1,seed=0")
    assert {"n_critic", "penalty_weight"} <= {each.name for each in experiment.hparam_infos}
    assert "evaluation/wasserstein" in {each.name.tag for each in experiment.metric_infos} & tags
    assert session.hparams["penalty_weight"].number_value == 10


@pytest.mark.slow
def test_the_program_continues_a_sweep_whose_processes_were_killed(whole_sweep, tmp_path):
    """A child is killed, and later the program; the table is that of a whole sweep."""
    whole, path = whole_sweep
    folder, first, second = (
        tmp_path / "killed",
        "penalty_weight=10,n_critic=1",
        "penalty_weight=1",
    )
    with open(tmp_path / "log.txt", "w") as log:
        with start(path, folder, log) as sweeping:
            child = wait_for_run(folder / f"{first},seed=0", sweeping)
            os.kill(child, signal.SIGKILL)
            wait_for_run(folder / f"{first},seed=0", sweeping, other_than=child)
            wait_for_run(folder / f"{second},seed=0", sweeping)
            sweeping.kill()
        with start(path, folder, log) as sweeping:
            printed, _ = sweeping.communicate(timeout=300)
            assert sweeping.returncode == 0
    table = results_of(whole)[1]
    assert printed == f"{table}the table and the runs are in {folder}\n"
    log = (tmp_path / "log.txt").read_text()
    assert "finished" in log and "optuna" not in log.lower() and "[I 2" not in log


def wait_for_run(folder, sweeping, other_than=None):
    """Returns the process of a run, once it has written a summary."""
    deadline = time.monotonic() + 240
    while True:
        try:
            pid = json.loads((folder / "owner.json").read_text())["pid"]
            if pid != other_than and (folder / "metrics.jsonl").read_text():
                return pid
        except (OSError, ValueError):
            pass
        assert time.monotonic() < deadline and sweeping.poll() is None
        time.sleep(0.02)


def test_a_candidate_that_ended_before_the_sweep_was_killed_is_not_repeated(tmp_path, monkeypatch):
    """The row of a candidate is stored a moment before the study knows that it has ended."""
    content = {**WEIGHTS, "settings": {"penalty_weight": [10, 1], "beta_2": [0.9]}}
    assert run(tmp_path, FakeProcesses(by_weight), content, folder="whole") is None
    tell = optuna.Study.tell
    calls = itertools.count()

    def killed(self, trial, *arguments):
        if next(calls) < 2:
            raise KeyboardInterrupt
        return tell(self, trial, *arguments)

    monkeypatch.setattr(optuna.Study, "tell", killed)
    jobs = []
    for _ in range(3):
        fake = FakeProcesses(by_weight)
        with contextlib.suppress(KeyboardInterrupt):
            run(tmp_path, fake, content)
        jobs += fake.jobs
    assert len(jobs) == len(set(jobs))
    assert results_of(tmp_path / "sweep")[1] == results_of(tmp_path / "whole")[1]
    assert {state for _, state in states_of(tmp_path / "sweep")} <= {"COMPLETE", "PRUNED"}
