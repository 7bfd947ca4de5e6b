"""Training from Python with wgan_gp.train: results, writers, hooks and errors."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import wgan_gp
from tests.helpers.runs import TINY, train_tiny

EVERY_5 = {"summary_interval": 5, "sample_interval": 5, "checkpoint_interval": 5}


class Recorder(wgan_gp.Hook):
    """Records the calls of all methods."""

    def __init__(self):
        self.calls = []

    def begin(self, iteration):
        self.calls.append(("begin", iteration))

    def before_loop(self, iteration, count):
        self.calls.append(("before", iteration, count))

    def after_loop(self, loop):
        self.calls.append(("after", loop.before, loop.iteration, loop.is_last))

    def end(self, iteration):
        self.calls.append(("end", iteration))

    def close(self):
        self.calls.append(("close",))


SETTINGS = {**TINY, **EVERY_5, "train_steps": 12, "learning_rate_schedule": "constant"}


def config(path, **settings):
    return wgan_gp.Config(model_dir=str(path), **{**SETTINGS, **settings})


class Keep(wgan_gp.Hook):
    """Keeps the results of all loops."""

    def __init__(self):
        self.loops = []

    def after_loop(self, loop):
        self.loops.append(loop)


class Act(wgan_gp.IntervalHook):
    """Keeps the iterations at which it acts."""

    acted = ()

    def act(self, loop):
        self.acted = (*self.acted, loop.iteration)


INTERVALS = (0, 1, 7, 10, 100)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns the result of a training, its writer and its hooks."""
    path = tmp_path_factory.mktemp("api") / "run"
    writer, hooks = wgan_gp.MemoryWriter(), [Recorder(), Keep(), *map(Act, INTERVALS)]
    return wgan_gp.train(config(path), writers=[writer], hooks=hooks), writer, hooks


def test_importing_the_package_does_not_import_tensorflow():
    program = (
        "import sys, wgan_gp; wgan_gp.Config(); wgan_gp.UserError\n"
        "assert 'tensorflow' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
def test_cpu_replicas_after_tensorflow_was_used_are_a_one_line_error():
    program = (
        "import tensorflow as tf, wgan_gp\n"
        "tf.constant(1)\n"
        "try: wgan_gp.train(wgan_gp.Config(cpu_replicas=2, model_dir='ram://none'))\n"
        "except wgan_gp.UserError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("--cpu_replicas=2 cannot be set up after this process used")


def test_every_public_name_can_be_used():
    for name in (*wgan_gp.__all__, *wgan_gp._LAZY):
        assert getattr(wgan_gp, name) is not None
    with pytest.raises(AttributeError, match="'wgan_gp' has no attribute 'trian'"):
        _ = wgan_gp.trian


def test_train_trains_as_the_program_does_and_returns_the_networks(trained, tmp_path):
    """Numbers, files and weights equal those of the same run by other means."""
    result, writer, _ = trained
    run, expected = train_tiny(tmp_path / "other", **SETTINGS)
    assert (result.iteration, result.stopped_by) == (12, None)
    assert [step for step, _ in writer.summaries] == [5, 10, 12]
    for (_, ours), (_, theirs) in zip(writer.summaries, expected.summaries, strict=True):
        for tag in ("critic/loss", "critic/penalty", "generator/loss"):
            assert ours[tag] == theirs[tag]
    for name in ("generator", "critic"):
        pairs = zip(
            getattr(result.run.state, name).weights, getattr(run.state, name).weights, strict=True
        )
        for ours, theirs in pairs:
            np.testing.assert_array_equal(tf.convert_to_tensor(ours), tf.convert_to_tensor(theirs))
    files = {path.name for path in pathlib.Path(result.run.directory.path).iterdir()}
    assert files >= {"config.json", "data.json", "metrics.jsonl", "checkpoints", "samples", "train"}


@pytest.mark.slow
def test_train_resumes_a_run(trained, tmp_path):
    shutil.copytree(trained[0].run.directory.path, tmp_path / "run")
    hook = Recorder()
    assert wgan_gp.train(config(tmp_path / "run", train_steps=15), hooks=[hook]).iteration == 15
    assert hook.calls[0] == ("begin", 12)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, 10, 12, 15]


def test_hooks_are_called_around_every_loop(trained):
    hook, *_ = trained[2]
    assert hook.calls == [
        ("begin", 0),
        ("before", 0, 5),
        ("after", 0, 5, False),
        ("before", 5, 5),
        ("after", 5, 10, False),
        ("before", 10, 2),
        ("after", 10, 12, True),
        ("end", 12),
        ("close",),
    ]


def test_a_loop_reports_the_means_of_its_terms(trained):
    _, writer, (_, keep, *_) = trained
    for loop, (step, values) in zip(keep.loops, writer.summaries, strict=True):
        assert loop.iteration == step
        assert loop.images == (loop.iteration - loop.before) * 2 * TINY["batch_size"]
        assert loop.terms.items() <= values.items() and "critic/loss" in loop.terms
        assert 0 <= loop.waited <= loop.seconds


def test_an_interval_hook_acts_when_its_interval_is_crossed_and_at_the_end(trained):
    acted = [hook.acted for hook in trained[2][2:]]
    assert acted == [(12,), (5, 10, 12), (10, 12), (10, 12), (12,)]


@pytest.mark.slow
def test_a_hook_that_fails_ends_the_run_and_all_hooks_are_closed(tmp_path):
    class Fail(wgan_gp.Hook):
        def after_loop(self, loop):
            raise wgan_gp.UserError("the hook failed", "repair it")

    hook = Recorder()
    with pytest.raises(wgan_gp.UserError, match="the hook failed"):
        wgan_gp.train(config(tmp_path), hooks=[hook, Fail()])
    assert hook.calls[-2:] == [("after", 0, 5, False), ("close",)]
    assert not (tmp_path / "owner.json").exists()


@pytest.mark.slow
def test_a_signal_ends_training_after_the_loop_and_saves(tmp_path):
    class Stop(wgan_gp.Hook):
        def after_loop(self, loop):
            os.kill(os.getpid(), signal.SIGTERM)

    result = wgan_gp.train(config(tmp_path, checkpoint_interval=0), hooks=[Stop()])
    assert (result.iteration, result.stopped_by) == (5, signal.SIGTERM)
    assert (tmp_path / "checkpoints" / "ckpt-5.json").exists()


def test_a_configuration_that_cannot_be_trained_is_refused(tmp_path):
    with pytest.raises(wgan_gp.UserError, match="--model=gan is unknown — use one of mlp"):
        wgan_gp.train(config(tmp_path, model="gan"))
    assert list(tmp_path.iterdir()) == []
