"""The loop on devices of jax: resumes, hooks, errors and profiles. See also test_parity.py."""

import dataclasses
import threading

import jax
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.forks import start_program
from tests.helpers.runs import TINY, open_run, train_tiny
from wgan_gp.app.training import make_trainer
from wgan_gp.config import Config
from wgan_gp.data import loop_input
from wgan_gp.errors import NotFiniteError, UserError
from wgan_gp.pjrt import client
from wgan_gp.pjrt import loop as pjrt_loop
from wgan_gp.pjrt.client import Program
from wgan_gp.pjrt.loop import PjrtLoop
from wgan_gp.training.hooks import Hook

ITERATIONS = 10
COMMON = {"train_steps": ITERATIONS, "summary_interval": 5, "sample_interval": 0}
MLP = {"activation": "tanh", "batch_size": 32}


def state_of(run):
    """Returns all variables of the state by name, as in a checkpoint."""
    state, values = run.state, {}
    for field in dataclasses.fields(state):
        part = getattr(state, field.name)
        variables = getattr(part, "variables", None) or ([part] if part is not None else [])
        for index, variable in enumerate(variables):
            values[f"{field.name}/{index}"] = np.array(variable)
    return values


def assert_close(one, other, tolerance):
    """Compares the vectors of all values of each part of the state."""
    assert one.keys() == other.keys()
    for part in {name.partition("/")[0] for name in one}:
        ours, theirs = (
            np.concatenate([each[name].ravel() for name in one if name.startswith(f"{part}/")])
            for each in (one, other)
        )
        assert np.linalg.norm(theirs - ours) <= tolerance * np.linalg.norm(ours), part


@pytest.mark.slow
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path):
    schedules = {
        "learning_rate_schedule": "r3gan",
        "schedule_steps": 9,
        "generator_ema_decay": 0.9,
    }
    settings = COMMON | MLP | schedules | {"runtime": "pjrt", "cpu_replicas": 4}
    whole, _ = train_tiny(tmp_path / "whole", **settings)
    train_tiny(tmp_path / "resumed", **settings | {"stop_step": 3})
    resumed, _ = train_tiny(tmp_path / "resumed", **settings)
    for name, value in state_of(whole).items():
        np.testing.assert_array_equal(state_of(resumed)[name], value, name)


@pytest.mark.slow
def test_a_run_continues_in_the_other_runtime(tmp_path):
    settings = COMMON | MLP
    whole, _ = train_tiny(tmp_path / "whole", **settings)
    for first, second in (("pjrt", "tensorflow"), ("tensorflow", "pjrt")):
        train_tiny(tmp_path / first, **settings | {"stop_step": 5, "runtime": first})
        run, _ = train_tiny(tmp_path / first, **settings | {"runtime": second})
        assert_close(state_of(whole), state_of(run), 1e-5)


@pytest.mark.slow
def test_loops_of_several_launches_compute_the_same(tmp_path, monkeypatch):
    """12 iterations in a loop, of which the last loop has 8."""
    settings = MLP | {"runtime": "pjrt", "cpu_replicas": 2, "sample_interval": 0}
    settings |= {"train_steps": 20, "steps_per_loop": 12, "summary_interval": 12}
    whole, log = train_tiny(tmp_path / "whole", **settings)
    # Enough for five iterations of 2 x 16 points with labels, of which four divide the loop.
    monkeypatch.setattr(loop_input, "MAX_ELEMENT_BYTES", 5 * 2 * 16 * (2 * 4 + 4))
    run, counts = Program.run, []
    monkeypatch.setattr(
        Program,
        "run",
        lambda program, arguments: counts.append(int(arguments[3])) or run(program, arguments),
    )
    parts, other_log = train_tiny(tmp_path / "parts", **settings)
    assert counts == [4, 4, 4, 4, 4]
    assert_close(state_of(whole), state_of(parts), 1e-6)
    for (step, one), (other_step, other) in zip(log.summaries, other_log.summaries, strict=True):
        assert step == other_step
        assert other["critic/loss"] == pytest.approx(one["critic/loss"], rel=1e-5)
        assert other["generator/loss"] == pytest.approx(one["generator/loss"], rel=1e-5)


class Spoiler(Hook):
    """Makes a weight NaN once, after iteration 10."""

    def __init__(self, run):
        self.weight, self.done = run.state.critic.trainable_variables[0], False

    def after_loop(self, loop):
        if loop.iteration == 10 and not self.done:
            self.done = True
            self.weight.assign(tf.fill(self.weight.shape, float("nan")))


@pytest.mark.slow
@pytest.mark.parametrize("interval", [5, 0])
def test_a_loop_that_is_not_finite_goes_back_or_stops(tmp_path, interval):
    settings = TINY | COMMON | {"train_steps": 20, "checkpoint_interval": interval}
    run = open_run(Config(model_dir=str(tmp_path), runtime="pjrt", cpu_replicas=2, **settings))
    trainer = make_trainer(run, hooks=[Spoiler(run)])
    if not interval:
        with pytest.raises(NotFiniteError, match="iteration 11: the critic"):
            trainer.run()
        assert run.checkpoints.newest == 0
    else:
        trainer.run()
        assert (run.checkpoints.rollbacks, run.checkpoints.last_iteration) == (1, 20)
        assert not run.state.not_finite()


@pytest.mark.slow
def test_an_error_of_a_device_is_one_line(tmp_path, monkeypatch):
    def fail(program, arguments):
        raise client.RuntimeFailure("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(client.Program, "run", fail)
    with pytest.raises(UserError, match=r"devices cannot run the loop \(RESOURCE.*--batch_size"):
        train_tiny(tmp_path, runtime="pjrt", train_steps=5)


@pytest.mark.slow
def test_a_program_that_is_rejected_is_one_line(tmp_path, monkeypatch):
    def fail(*arguments):
        raise client.RuntimeFailure("INVALID_ARGUMENT: it is too large")

    monkeypatch.setattr(client, "Program", fail)
    with pytest.raises(UserError, match="XLA cannot compile the loop"):
        train_tiny(tmp_path, runtime="pjrt", train_steps=5)


@pytest.mark.slow
def test_state_that_differs_between_devices_is_named(tmp_path, monkeypatch, caplog):
    original = PjrtLoop._warn_of_differences

    def spoil(loop):
        (index,) = list(loop._loop.replaced.values())[:1]
        shards = [
            jax.device_put(np.asarray(shard.data) + number, shard.device)
            for number, shard in enumerate(loop._state[index].addressable_shards)
        ]
        loop._state[index] = jax.make_array_from_single_device_arrays(
            loop._state[index].shape, loop._same, shards
        )
        original(loop)

    settings = {"runtime": "pjrt", "train_steps": 10, "cpu_replicas": 2}
    train_tiny(tmp_path / "sound", **settings)
    assert "on all devices" not in caplog.text
    monkeypatch.setattr(PjrtLoop, "_warn_of_differences", spoil)
    train_tiny(tmp_path / "spoiled", **settings)
    assert caplog.text.count("is not the same on all devices") == 1


@pytest.mark.slow
def test_a_profile_is_written_for_tensorboard(tmp_path):
    """Trains in a process of its own: jax's profiler crashes where libtpu has compiled."""
    settings = {**TINY, "runtime": "pjrt", "train_steps": 10, "profile": True}
    flags = [f"--{name}={value}" for name, value in settings.items()]
    with start_program(*flags, f"--model_dir={tmp_path}") as program:
        _, error = program.communicate()
        assert program.returncode == 0, error
    (profile,) = tmp_path.glob("train/plugins/profile/*/*.xplane.pb")
    assert b"xla" in profile.read_bytes().lower()


class Recorder(Hook):
    """Records a weight after each loop, and sets it to zero after the second one."""

    def __init__(self, run, *, reads):
        self.weight = run.state.critic.trainable_variables[0]
        self.reads, self.values = reads, []

    def reads_state(self, loop):
        return self.reads

    def after_loop(self, loop):
        self.values.append(np.array(self.weight))
        if len(self.values) == 2 and self.reads:
            self.weight.assign(tf.zeros_like(self.weight))


@pytest.mark.slow
@pytest.mark.parametrize("reads", [True, False])
def test_hooks_see_and_change_the_state_if_they_say_so(tmp_path, reads):
    config = Config(
        model_dir=str(tmp_path),
        runtime="pjrt",
        critic_learning_rate=1e-30,
        **TINY | COMMON | {"train_steps": 20, "summary_interval": 0},
    )
    run = open_run(config)
    recorder = Recorder(run, reads=reads)
    make_trainer(run, hooks=[recorder]).run()
    first, *_, last = recorder.values
    assert len(recorder.values) == 4
    if reads:
        assert np.any(first) and not np.any(last)
    else:  # the last loop is read by other hooks; until then the variables have the first values
        assert np.array_equal(first, recorder.values[2]) and np.any(last)


def test_a_long_compilation_is_reported_from_time_to_time(monkeypatch):
    logged, waited = [], threading.Event()

    def log(line):
        logged.append(line)
        if line.startswith("still"):
            waited.set()

    monkeypatch.setattr(pjrt_loop.logging, "info", log)
    monkeypatch.setattr(pjrt_loop, "_REPORT_SECONDS", 0.01)
    with pjrt_loop._announcing("compiling the loop for 2 x chip"):
        assert waited.wait(60)
    assert logged[0] == "compiling the loop for 2 x chip"
    assert logged[1].startswith("still compiling the loop for 2 x chip after 0 s")
    assert logged[-1].startswith("ready after ")
