"""Whole runs: what they leave behind, and that they go on exactly where they stood."""

import dataclasses
import itertools
import json
import os
import pathlib
import shutil
import signal
import sys
import time
import types

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
from tests.helpers.runs import (
    DCGAN,
    LIBRARY,
    TINY,
    library_with,
    make_loop,
    make_replica_step,
    make_state,
    open_run,
    resolved,
    train_tiny,
)
from wgan_gp.app import start_checks, training
from wgan_gp.app.run_hooks import IntervalTimer, ProfileHook
from wgan_gp.app.saved_run import check_resume
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.evaluation.examples import with_progress_bar
from wgan_gp.run_directory.directory import RunDirectory
from wgan_gp.training.checkpointing import Checkpoints
from wgan_gp.training.hooks import LoopResult, crossed
from wgan_gp.writers.console import ConsoleWriter
from wgan_gp.writers.files import JsonlWriter
from wgan_gp.writers.writer import Writer

TAGS = {
    "critic/loss",
    "critic/wasserstein",
    "critic/penalty",
    "critic/gradient_norm",
    "critic/learning_rate",
    "generator/loss",
    "generator/learning_rate",
    "throughput/images_per_second",
    "throughput/data_wait_share",
    "throughput/host_share",
    "probe/gradient_norm",
    "probe/gradient_norm_lower",
    "probe/gradient_norm_upper",
    "probe/wasserstein",
    "probe/negative_critic_loss",
    "probe/distance_of_means",
    "probe/diversity",
}
EVERY_5 = {"summary_interval": 5, "sample_interval": 5, "checkpoint_interval": 5}


def snapshot(run):
    checkpoint = tf.train.latest_checkpoint(run.checkpoints.directory)
    reader = tf.train.load_checkpoint(checkpoint)
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name not in ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter/.ATTRIBUTES/VARIABLE_VALUE")
    }


def read_events(directory):
    """{tag: [step, ...]} of all event files, and the first image, decoded."""
    steps, image = {}, None
    for path in sorted(tf.io.gfile.glob(f"{directory}/events.*")):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                steps.setdefault(value.tag, []).append(event.step)
                if value.tag == "samples" and image is None:
                    image = tf.io.decode_png(value.tensor.string_val[2]).numpy()
    return steps, image


def read_metrics(path):
    with tf.io.gfile.GFile(f"{path}/metrics.jsonl") as file:
        return [json.loads(line) for line in file]


@pytest.mark.slow
def test_run_directory(tmp_path):
    path = f"ram:/{tmp_path}/run"
    _, writer = train_tiny(path, train_steps=12, dataset="digits", **EVERY_5)

    with tf.io.gfile.GFile(f"{path}/config.json") as file:
        assert json.load(file)["batch_size"] == TINY["batch_size"]
    metrics = read_metrics(path)
    assert [line["step"] for line in metrics] == [5, 10, 12]
    assert all(set(line) == TAGS | {"step"} for line in metrics)
    assert metrics == [{"step": step, **values} for step, values in writer.summaries]
    steps, image = read_events(f"{path}/train")
    at_summaries = {*TAGS, "probe/gradient_norms", "samples", "interpolation"}
    assert all(steps[tag] == [5, 10, 12] for tag in at_summaries)
    # What does not change stands there once; see test_monitoring.py.
    assert {tuple(each) for tag, each in steps.items() if tag not in at_summaries} == {(0,)}
    names = sorted(tf.io.gfile.listdir(f"{path}/samples"))
    assert names == ["step_00000005.png", "step_00000010.png", "step_00000012.png"]
    picture = tf.io.decode_png(tf.io.read_file(f"{path}/samples/{names[0]}")).numpy()
    assert picture.shape == (272, 272, 1)  # 8x8 digits of 8x8 pixels, enlarged fourfold, and gaps
    np.testing.assert_array_equal(picture, image)
    checkpoints = {name.split(".")[0] for name in tf.io.gfile.listdir(f"{path}/checkpoints")}
    assert checkpoints == {"checkpoint", "ckpt-5", "ckpt-10", "ckpt-12"}


AVERAGE = {
    "generator_ema_decay": 0.9,
    "conditioning": "acgan",
    "critic_normalization": "spectral",
}
SCHEDULED = {
    "learning_rate_schedule": "r3gan",
    "beta_1": 0.5,
    "schedule_steps": 9,
    "generator_ema_decay": 0.9,
}
RECIPE = {
    "dataset": "digits",
    "augment": "diffaugment",
    "adversarial_loss": "relativistic",
    "penalty": "r1,r2",
    "penalty_weight": "5.0,0.5",
    "accumulate": 2,
    "minibatch_stddev": 4,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({**SCHEDULED, **RECIPE}, id="recipe"),
        pytest.param(
            {**AVERAGE, **DCGAN, "learning_rate_schedule": "constant", "augment": "diffaugment"},
            id="dcgan",
        ),
    ],
)
def test_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path, settings):
    intervals = {**EVERY_5, "sample_interval": 10}
    whole, writer = train_tiny(tmp_path / "whole", train_steps=10, **intervals, **settings)

    # Stopped as a preemption would stop it, then started again by the same command.
    config = dataclasses.replace(whole.config, model_dir=str(tmp_path / "halves"))
    first = open_run(config)
    assert training.make_trainer(first, writers=[StopAt(5)]).run() == signal.SIGTERM
    assert int(first.state.iteration) == 5
    second = open_run(config)
    assert training.make_trainer(second).run() is None

    expected, got = snapshot(whole), snapshot(second)
    assert set(expected) == set(got)
    assert any("optimizer" in name for name in expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)
    assert without_throughput(read_metrics(tmp_path / "halves")) == without_throughput(
        [{"step": step, **values} for step, values in writer.summaries]
    )
    last = "samples/step_00000010.png"
    assert (tmp_path / "halves" / last).read_bytes() == (tmp_path / "whole" / last).read_bytes()


@pytest.mark.slow
def test_a_run_that_stops_at_a_step_continues_bit_for_bit(tmp_path):
    """The schedule has the length of --train_steps, and loops and summaries stay the same."""
    settings = {**EVERY_5, **SCHEDULED, "train_steps": 15, "evaluate_samples": 20}
    settings |= {"summary_interval": 10, "checkpoint_interval": 0, "evaluate_interval": 15}
    settings["sample_interval"] = 0
    whole, _ = train_tiny(tmp_path / "whole", **settings)
    for stop_step, done in ((4, 5), (15, 15)):  # the loop that reaches it ends
        halves, _ = train_tiny(tmp_path / "halves", stop_step=stop_step, **settings)
        assert int(halves.state.iteration) == done
        saved = {path.stem for path in (tmp_path / "halves/checkpoints").glob("ckpt-*.json")}
        assert f"ckpt-{done}" in saved

    expected, got = snapshot(whole), snapshot(halves)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)
    logs = [read_metrics(tmp_path / name) for name in ("halves", "whole")]
    assert without_throughput(logs[0]) == without_throughput(logs[1])
    evaluated, (last,) = (
        (tmp_path / name / "evaluation.jsonl").read_text().splitlines()
        for name in ("halves", "whole")
    )
    assert [json.loads(line)["step"] for line in evaluated] == [5, 15]
    assert evaluated[-1] == last


def without_throughput(metrics):
    return [{k: v for k, v in line.items() if not k.startswith("throughput")} for line in metrics]


class StopAt(Writer):
    """Sends this process a signal once `step` iterations are done."""

    def __init__(self, step, number=signal.SIGTERM):
        self._step, self._number = step, number

    def progress(self, step):
        if step == self._step:
            os.kill(os.getpid(), self._number)


@pytest.mark.slow
def test_a_signal_stops_after_the_loop_and_saves(tmp_path):
    settings = {**TINY, "checkpoint_interval": 0, "summary_interval": 0, "sample_interval": 0}
    config = Config(model_dir=str(tmp_path), train_steps=50, **settings)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert training.make_trainer(open_run(config), writers=[StopAt(10, signal.SIGINT)]).run() == 2
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert tf.train.latest_checkpoint(f"{tmp_path}/checkpoints").endswith("ckpt-10")


FINISHED = {
    "train_steps": 10,
    "learning_rate_schedule": "linear",
    "critic_learning_rate": 1e-3,
    "generator_learning_rate": 1e-2,
    **EVERY_5,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run and its writer. A test that changes files copies the run directory."""
    return train_tiny(tmp_path_factory.mktemp("finished") / "run", **FINISHED)


@pytest.fixture
def copied(finished, tmp_path):
    """The directory of a copy of the finished run."""
    return shutil.copytree(finished[0].directory.path, tmp_path / "copied")


@pytest.mark.slow
def test_a_finished_run_stays_as_it_is(finished):
    path = pathlib.Path(finished[0].directory.path)
    before = snapshot_files(path)
    _, writer = train_tiny(path, **FINISHED)
    assert writer.summaries == []
    assert snapshot_files(path) == before


def snapshot_files(path):
    files = [file for file in path.rglob("*") if file.is_file() and "events" not in file.name]
    return {file: file.read_bytes() for file in files}


@pytest.mark.slow
def test_another_seed_gives_another_run(finished, tmp_path):
    """The tests of resumed runs show that the same seed gives the same run."""
    settings = {**FINISHED, "stop_step": 5, "sample_interval": 0}
    _, other = train_tiny(tmp_path, **settings, seed=1)
    loss = [writer.summaries[0][1]["critic/loss"] for writer in (finished[1], other)]
    assert loss[0] != loss[1]


def flat_weights(network):
    return np.concatenate([each.ravel() for each in network.get_weights()])


@pytest.mark.slow
def test_two_replicas_go_on_where_one_stood(tmp_path):
    """A checkpoint does not say how many replicas wrote it."""
    constant = {"learning_rate_schedule": "constant", "sample_interval": 0}  # it may grow longer
    train_tiny(tmp_path, train_steps=5, **constant)
    run, writer = train_tiny(tmp_path, train_steps=10, cpu_replicas=2, **constant)
    assert run.devices.strategy.num_replicas_in_sync == 2
    assert [step for step, _ in writer.summaries] == [10]
    one, _ = train_tiny(tmp_path / "one", train_steps=10, **constant)
    np.testing.assert_allclose(run.sampler.sample(300), one.sampler.sample(300), atol=1e-3)


def test_linear_schedule_falls_to_zero_for_both_networks(finished):
    rates = [
        (values["critic/learning_rate"], values["generator/learning_rate"])
        for _, values in finished[1].summaries
    ]
    # The rates of the iterations 5 and 10, counted from 1.
    np.testing.assert_allclose(rates, [(0.6e-3, 0.6e-2), (0.1e-3, 0.1e-2)])


def test_foreign_checkpoint_is_refused_by_name(finished):
    run, _ = finished
    other = open_run(dataclasses.replace(run.config, model_width=6))
    with pytest.raises(UserError, match=r"ckpt-10 cannot be restored"):
        Checkpoints(other.state, run.directory.checkpoints).restore_latest()


def test_newest_checkpoint_is_found_without_tensorflows_record(finished, copied):
    """A copy that left `checkpoints/checkpoint` behind must not start afresh."""
    run, _ = finished
    (copied / "checkpoints" / "checkpoint").unlink()
    again = open_run(dataclasses.replace(run.config, model_dir=str(copied)))
    assert again.checkpoints.restore_latest() == 10
    np.testing.assert_array_equal(again.sampler.sample(4), run.sampler.sample(4))


def test_the_newest_checkpoints_are_kept(tmp_path):
    run = open_run(Config(model_dir=str(tmp_path), **TINY))
    for step in range(5, 45, 5):
        run.state.iteration.assign(step)
        run.checkpoints.save()
    names = {path.stem for path in (tmp_path / "checkpoints").glob("*.index")}
    assert names == {f"ckpt-{step}" for step in (20, 25, 30, 35, 40)}


def test_checkpoints_without_their_configuration_are_refused(finished, copied):
    run, _ = finished
    (copied / "config.json").unlink()
    with pytest.raises(
        UserError, match=r"config\.json is missing, but \S+/checkpoints contains checkpoints"
    ):
        check_resume(RunDirectory(str(copied)), run.config)
    assert not (copied / "config.json").exists()


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe\x00"])
def test_a_broken_configuration_is_refused_and_kept(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=r"config\.json is damaged or was edited: it is not a JSON"):
        check_resume(RunDirectory(str(tmp_path)), Config())
    assert (tmp_path / "config.json").read_bytes() == content


def test_configurations_differ_where_the_result_would():
    config = Config(beta_1=0.5)
    assert config.differences(config) == {}
    other = {"steps_per_loop": 1, "cpu_replicas": 8}
    assert config.differences(dataclasses.replace(config, **other)) == {}
    assert config.differences(Config()) == {"beta_1": 0.0}
    # With a linear schedule the rate depends on train_steps; else a run may be made longer.
    longer = {"train_steps": 9000, "learning_rate_schedule": "linear"}
    assert Config(**longer).differences(Config()) == {"train_steps": 7500}
    constant = {"learning_rate_schedule": "constant"}
    assert Config(**{**longer, **constant}).differences(Config(**constant)) == {}


def test_a_librarys_message_of_many_lines_becomes_one():
    assert str(UserError('403: {\n  "error": 1\n}', "ask")) == '403: { "error": 1 } — ask'


def test_summary_lines_of_a_lost_stretch_and_torn_lines_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 5, "a": 1.0}\n{"step": 10, "a": 2.0}\n{"step": 15, "a"')
    writer = JsonlWriter(str(path))
    writer.begin(5)
    writer.scalars(10, {"a": 3.0})
    assert path.read_text() == '{"step": 5, "a": 1.0}\n{"step": 10, "a": 3.0}\n'


class Terminal:
    """A file that says what `isatty` should."""

    def __init__(self, tty):
        self.text, self._tty = "", tty

    def isatty(self):
        return self._tty

    def write(self, text):
        self.text += text

    def flush(self): ...


@pytest.mark.parametrize("tty", [True, False])
def test_console_shows_progress(tty):
    terminal = Terminal(tty)
    writer = ConsoleWriter(20, file=terminal)
    writer.begin(5)
    writer.progress(10)
    writer.scalars(10, dict.fromkeys(TAGS, 0.5))
    writer.close()
    assert ("10/20" in terminal.text) and ("wasserstein 0.500" in terminal.text)
    assert ("\r" in terminal.text) == tty


def test_console_writes_to_the_stderr_of_its_creation(capsys):
    """The one of the import of the module may have been replaced, or raises for lost output."""
    ConsoleWriter(20).begin(5)
    assert capsys.readouterr().err == "resuming after 5 iterations\n"


@pytest.mark.parametrize("stderr", [None, types.SimpleNamespace(write=len, flush=int)])
def test_a_process_without_a_terminal_or_stderr_trains(monkeypatch, capsys, stderr):
    monkeypatch.setattr(sys, "stderr", stderr)
    writer = ConsoleWriter(20)
    writer.begin(5)
    writer.progress(10)
    writer.scalars(10, dict.fromkeys(TAGS, 0.5))
    writer.close()
    assert list(with_progress_bar([1, 2], "title")) == [1, 2]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("step", "line"),
    [(0, ""), (5, "resuming after 5 iterations\n"), (20, "all 20 iterations are done")],
)
def test_console_says_where_it_begins(step, line):
    terminal = Terminal(tty=False)
    ConsoleWriter(20, file=terminal).begin(step)
    assert terminal.text.startswith(line)
    assert bool(terminal.text) == bool(line)


TOY = {"train_steps": 2, "steps_per_loop": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"penalty": "r1", "penalty_interval": 4},
        {"penalty": "dragan", "adversarial_loss": "logistic", "critic_normalization": "layer"},
        {"penalty": "weight_clipping"},
        {
            "penalty": "r1,r2",
            "penalty_weight": "5,0.5",
            "adversarial_loss": "relativistic",
            "generator_batch_size": None,
        },
        *(
            pytest.param(
                {"penalty": name, "adversarial_loss": adversarial_loss}, marks=pytest.mark.slow
            )
            for name, adversarial_loss in zip(
                losses.PENALTIES, itertools.cycle(losses.ADVERSARIAL_LOSSES), strict=False
            )
            if name not in ("dragan", "weight_clipping")  # above
        ),
    ],
    ids=str,
)
def test_every_objective_trains_and_logs_parts_that_add_up(tmp_path, settings, request):
    tf.config.run_functions_eagerly(True)  # an update takes less time than tracing
    request.addfinalizer(lambda: tf.config.run_functions_eagerly(False))
    run, writer = train_tiny(tmp_path, **TOY, sample_interval=0, **settings)
    ((_, logged),) = writer.summaries
    assert set(logged) >= TAGS and all(np.isfinite(value) for value in logged.values())
    penalty = 10 * logged["critic/penalty"]
    if "," in run.config.penalty:
        penalty = 5 * logged["critic/penalty_r1"] + 0.5 * logged["critic/penalty_r2"]
    np.testing.assert_allclose(
        logged["critic/loss"],
        logged.get("critic/adversarial", -logged["critic/wasserstein"]) + penalty,
        rtol=1e-4,
        atol=1e-5,
    )
    largest = max(np.abs(weight).max() for weight in run.state.critic.get_weights())
    assert (largest <= 0.01) == (run.config.penalty == "weight_clipping")


def batch_norm_critic(*arguments, **options):
    generator, _ = models.build(*arguments, **options)
    critic = tf.keras.Sequential(
        [
            tf.keras.Input([2]),
            tf.keras.layers.Dense(8),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.ReLU(),
            tf.keras.layers.Dense(1),
        ]
    )
    return generator, critic


def test_a_critic_that_the_penalty_cannot_use_is_refused(tmp_path):
    directory, library = tmp_path / "run", library_with(batch_norm_critic)
    with pytest.raises(UserError) as caught:
        train_tiny(directory, library, **TOY)
    assert str(caught.value).startswith("--model=mlp has a critic that --penalty=two_sided cannot")
    assert "coupled_examples: an example's score depends on the other examples" in str(caught.value)
    assert "\n" not in str(caught.value) and not directory.exists()
    # Nor does it suit weight clipping: real and fake examples share a call.
    with pytest.raises(UserError, match="--penalty=weight_clipping cannot train: coupled_examples"):
        train_tiny(directory, library, **TOY, penalty="weight_clipping")


def check_critic_of(library, **settings):
    """Checks the critic as at the start of training."""
    start_checks.check_critic(open_run(Config(**TINY, **settings), library))


@tf.custom_gradient
def without_second_derivative(x):
    return tf.tanh(x), lambda upstream: tf.stop_gradient(1 - tf.tanh(x) ** 2) * upstream


def test_a_missing_second_derivative_matters_to_a_penalty_only(capsys):
    class Critic(tf.keras.layers.Layer):
        def build(self, shape):
            self.shift = self.add_weight(name="shift", shape=shape[1:])

        def call(self, x):
            total = tf.reduce_sum(without_second_derivative(x), axis=1, keepdims=True)
            return total + tf.reduce_sum(self.shift)

    def build(*arguments, **options):
        generator, _ = models.build(*arguments, **options)
        return generator, tf.keras.Sequential([tf.keras.Input([2]), Critic()])

    library = library_with(build)
    with pytest.raises(UserError, match="no_second_derivative"):
        check_critic_of(library)
    check_critic_of(library, penalty="weight_clipping")
    assert "warning: --model=mlp, its critic: no_second_derivative" in capsys.readouterr().err


def test_a_critic_that_looks_odd_causes_a_warning(capsys):
    def linear_critic(*arguments, **options):
        generator, _ = models.build(*arguments, **options)
        return generator, tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])

    check_critic_of(library_with(linear_critic))
    assert "warning: --model=mlp, its critic: constant_gradient: " in capsys.readouterr().err


def test_a_sound_critic_is_not_mentioned(capsys):
    check_critic_of(LIBRARY)
    assert "warning" not in capsys.readouterr().err


def test_intervals_trigger_on_crossing():
    assert [step for step in range(7, 43, 7) if crossed(10, step - 7, step)] == [14, 21, 35, 42]
    assert not crossed(0, 0, 100)


@pytest.mark.slow
def test_a_profile_is_written(tmp_path):
    settings = {"sample_interval": 0, "summary_interval": 0}
    train_tiny(tmp_path, train_steps=15, profile=True, **settings)
    profiles = list((tmp_path / "train" / "plugins" / "profile").rglob("*.xplane.pb"))
    assert len(profiles) == 1 and profiles[0].stat().st_size > 0


@pytest.mark.parametrize(("last", "profiled"), [(40, 10), (10, 5), (5, 0)])
def test_the_third_or_the_last_loop_is_profiled(monkeypatch, caplog, last, profiled):
    calls = []
    monkeypatch.setattr(tf.profiler.experimental, "start", calls.append)
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: calls.append("stop"))
    hook = ProfileHook(last, "there")
    for done in range(0, last, 5):
        hook.before_loop(done, 5)
        calls.append(done)
        hook.after_loop(LoopResult(done, done + 5, False, {}, 0, 0.0, 0.0))
    place = calls.index("there")
    assert calls[place : place + 3] == ["there", profiled, "stop"] and len(calls) == last // 5 + 2
    (line,) = [line for line in caplog.messages if "wrote a profile to there" in line]
    assert "pip install tensorboard-plugin-profile" in line


def test_a_profile_survives_a_rollback(monkeypatch):
    """A loop that is not finite ends without the action after it."""
    calls = []
    monkeypatch.setattr(tf.profiler.experimental, "start", calls.append)
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: calls.append("stop"))
    hook = ProfileHook(10, "there")
    for done in (0, 5, 5):
        hook.before_loop(done, 5)
    hook.after_loop(LoopResult(5, 10, False, {}, 0, 0.0, 0.0))
    assert calls == ["there", "stop"]


def test_shares_of_the_time_add_up():
    timer = IntervalTimer(since=10.0)
    for images, seconds, waited in ((100, 1.0, 0.25), (200, 3.0, 0.75)):
        timer.add(LoopResult(0, 1, False, {}, images, seconds, waited))
    assert timer.scalars(15.0) == {
        "throughput/images_per_second": 60.0,
        "throughput/data_wait_share": pytest.approx(0.2),
        "throughput/host_share": pytest.approx(0.2),
    }


@pytest.mark.slow
def test_waiting_for_data_is_seen():
    """Every batch takes 50 ms to make, and is made before the next is asked for: no prefetch."""
    config = Config(**{**TINY, "dataset": "digits"})
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    step = make_replica_step(config, make_state(resolved(config), strategy))
    loop = make_loop(step, strategy, n_critic=2)

    def late(index):
        tf.numpy_function(lambda: time.sleep(0.05), [], [])
        return tf.zeros([16, 8, 8, 1]), tf.zeros([16], tf.int32)

    batches = iter(strategy.experimental_distribute_dataset(tf.data.Dataset.range(99).map(late)))
    loop(batches, tf.constant(1, tf.int64))
    _, waited, _ = loop(batches, tf.constant(5, tf.int64))
    # Ten batches; what the distributed iterator fetches ahead is made meanwhile.
    assert waited.dtype == tf.float64 and waited > 0.05


@pytest.mark.slow
def test_steps_depend_on_the_clock_that_is_read_when_their_batch_arrives():
    """Otherwise a single core reads it after the step, which then counts as waiting."""
    config = Config(**{**TINY, "dataset": "digits"})
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    step = make_replica_step(config, make_state(resolved(config), strategy))
    loop = make_loop(step, strategy, n_critic=2)
    batch = tf.zeros([16, 8, 8, 1]), tf.zeros([16], tf.int32)
    data = tf.data.Dataset.from_tensors(batch).repeat()
    batches = iter(strategy.experimental_distribute_dataset(data))
    traced = loop.get_concrete_function(batches, tf.constant(1, tf.int64))
    (body,) = (
        {node.name: node for node in function.node_def}
        for function in traced.graph.as_graph_def().library.function
        if any(node.op == "Timestamp" for node in function.node_def)
    )
    steps = [node for node in body.values() if node.op.endswith("PartitionedCall")]
    steps = [node for node in steps if "critic_step" in node.attr["f"].func.name]
    assert steps
    for node in steps:
        before, found = {node.name}, [node]
        for each in found:
            names = {name.lstrip("^").partition(":")[0] for name in each.input} - before
            before |= names
            found += [body[name] for name in names if name in body]
        assert sum(each.op == "Timestamp" for each in found) == 2


POINTS = {"dataset": "gaussians_25", "activation": "tanh", "batch_size": 64}
POINTS |= SCHEDULED
CLASSES = {"model_width": 8, "conditioning": "acgan", "generator_ema_decay": 0.9}


@pytest.mark.parametrize(
    ("settings", "several"),
    [
        pytest.param(POINTS, 4, id="points", marks=pytest.mark.slow),
        pytest.param({**DCGAN, **CLASSES}, 2, id="dcgan", marks=pytest.mark.slow),
    ],
)
def test_one_run_on_several_replicas(tmp_path, settings, several):
    """docs/numerics.md: equal to float rounding after 20 iterations of Adam."""
    weights, figures = {}, {}
    for replicas in (1, several):
        run, writer = train_tiny(
            tmp_path / str(replicas),
            train_steps=20,
            sample_interval=0,
            cpu_replicas=replicas,
            **settings,
        )
        networks = (run.state.generator, run.state.critic, run.state.generator_average)
        weights[replicas] = [flat_weights(network) for network in networks]
        ((_, values),) = writer.summaries
        figures[replicas] = {tag: each for tag, each in values.items() if "through" not in tag}
    for one, many in zip(weights[1], weights[several], strict=True):
        assert np.linalg.norm(many - one) < 1e-4 * np.linalg.norm(one)
    for tag, value in figures[1].items():
        tolerance = 0 if tag.endswith("learning_rate") else 1e-4
        assert figures[several][tag] == pytest.approx(value, rel=tolerance, abs=tolerance / 10), tag
