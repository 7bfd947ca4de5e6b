"""Tests that a loss or gradient that is not finite changes no weight and stops the run."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.runs import (
    DCGAN,
    TINY,
    call_main,
    make_loop,
    make_replica_step,
    make_state,
    open_run,
    resolved,
    strategy_over,
    train_config,
)
from wgan_gp.app import training
from wgan_gp.config import Config
from wgan_gp.data.datasets import Dataset
from wgan_gp.data.feed import Examples
from wgan_gp.errors import NotFiniteError, UserError
from wgan_gp.run_directory.lock import Lock
from wgan_gp.training.checkpointing import Checkpoints
from wgan_gp.training.optimizer import GuardedAdam
from wgan_gp.training.state import TrainState
from wgan_gp.writers.writer import Writer

NAN = float("nan")


def test_guarded_adam_is_adam():
    start = np.random.default_rng(0).normal(size=[5, 3]).astype(np.float32)
    results = []
    for kind in (GuardedAdam, tf.keras.optimizers.Adam):
        weight = tf.Variable(start)
        optimizer = kind(0.01, beta_1=0.5, beta_2=0.9, epsilon=1e-8)
        optimizer.build([weight])
        for seed in range(5):
            gradient = np.random.default_rng(seed).normal(size=[5, 3]).astype(np.float32)
            optimizer.apply_gradients([(tf.constant(gradient), weight)])
        results.append(weight.numpy())
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("bad", [NAN, float("inf"), -float("inf"), 1e30])
def test_guarded_adam_keeps_a_weight_that_would_not_be_finite(bad):
    """The value 1e30 is finite, but its square is not, so the update is 0."""
    weight = tf.Variable([1.0, 2.0])
    optimizer = GuardedAdam(0.01, beta_1=0.5)
    optimizer.build([weight])
    for gradient in ([1.0, 1.0], [bad, 1.0], [1.0, 1.0]):
        before = weight.numpy()
        optimizer.apply_gradients([(tf.constant(gradient), weight)])
        kept, moved = weight.numpy() == before
        assert kept == (before[0] != 1.0) and not moved


def values_of(network):
    return [np.array(value) for value in network.get_weights()]


# XLA does not compile over mirrored replicas: see Devices.use_jit.
@pytest.mark.parametrize(
    ("replicas", "jit_compile", "where"),
    [
        (1, False, "data"),
        (1, False, "nowhere"),
        (2, False, "data"),
        pytest.param(1, False, "critic", marks=pytest.mark.slow),
        pytest.param(2, False, "generator", marks=pytest.mark.slow),
        pytest.param(1, True, "data", marks=pytest.mark.slow),
        pytest.param(1, True, "generator", marks=pytest.mark.slow),
    ],
)
def test_no_replica_updates_a_network_whose_loss_is_not_finite_on_one(replicas, jit_compile, where):
    config = resolved(Config(**{**TINY, "dataset": "digits"}))
    strategy = strategy_over(replicas)
    state = make_state(config, strategy)
    step = make_replica_step(config, state)
    loop = make_loop(step, strategy, n_critic=1, jit_compile=jit_compile)
    images = np.zeros([16, 8, 8, 1], np.float32)
    if where == "data":
        images[13, 2, 3] = NAN  # of the last replica
    elif where != "nowhere":
        network = {"critic": state.critic, "generator": state.generator}[where]
        weight = network.trainable_variables[-1]
        spoiled = np.array(tf.convert_to_tensor(weight))
        spoiled.flat[0] = NAN
        weight.assign(spoiled)
    batch = tf.data.Dataset.from_tensors((images, tf.zeros([16], tf.int32))).repeat()
    before = {name: values_of(getattr(state, name)) for name in ("critic", "generator")}
    _, _, bad = loop(
        iter(strategy.experimental_distribute_dataset(batch)), tf.constant(3, tf.int64)
    )
    # NaN in the data affects only the critic.
    affected = {"data": {"critic"}, "nowhere": set()}.get(where, {"critic", "generator"})
    assert {name: int(step) for name, step in bad.items()} == {
        name: 0 if name in affected else -1 for name in before
    }
    for name, values in before.items():
        same = [
            np.array_equal(*pair, equal_nan=True)
            for pair in zip(values_of(getattr(state, name)), values, strict=True)
        ]
        assert all(same) == (name in affected), name


def test_a_state_that_is_not_finite_is_never_saved(tmp_path):
    """A batch-norm statistic of the generator does not affect the losses."""
    run = open_run(Config(model_dir=str(tmp_path), **{**TINY, **DCGAN}))
    statistics = run.state.generator.non_trainable_variables[0]
    statistics.assign(tf.fill(statistics.shape, NAN))
    run.state.iteration.assign(6)
    with pytest.raises(
        NotFiniteError, match=r"state after iteration 6 is not saved, .* \(generator/\S"
    ):
        run.checkpoints.save()
    assert not list((tmp_path / "checkpoints").glob("ckpt-6*"))


def test_the_state_is_checked_in_one_function_call(monkeypatch):
    """After the first check, which traces the function, Python reads no variable."""
    state = make_state(resolved(Config(**TINY)), strategy_over(2))
    assert state.not_finite() == []
    weight = state.critic.trainable_variables[0]
    weight.assign(tf.fill(weight.shape, NAN))
    monkeypatch.setattr(tf, "convert_to_tensor", None)
    (name,) = state.not_finite()
    assert name.startswith("critic/")


@pytest.fixture
def spoiled(monkeypatch):
    """Makes the data of a critic step NaN the first `times` times that it is read."""
    monkeypatch.setattr(training, "check_critic", lambda run: None)  # it reads the data, too

    def spoil(critic_step, times):
        open_data = Dataset.open

        def open_spoiled(dataset, *, batch_size):
            whole, left = open_data(dataset, batch_size=batch_size), [times]

            def factor(first):
                if first != critic_step * batch_size or not left[0]:
                    return np.float32(1)
                left[0] -= 1
                return np.float32(NAN)

            def draw(first, count):
                examples, labels = whole.source.draw(first, count)
                spoiled = tf.numpy_function(factor, [first], tf.float32)
                return examples * tf.ensure_shape(spoiled, []), labels

            return Examples(dataclasses.replace(whole.source, draw=draw), dataset.settings)

        monkeypatch.setattr(Dataset, "open", open_spoiled)

    return spoil


EVERY_5 = {"summary_interval": 5, "checkpoint_interval": 5, "sample_interval": 0}
# The first critic step of iteration 14, whose loop has not saved a checkpoint yet.
CRITIC_STEP = 26


def config_of(path, **settings):
    settings = {**TINY, **EVERY_5, "train_steps": 20, **settings}
    return resolved(Config(model_dir=str(path), **settings))


@pytest.mark.slow
def test_the_run_stops_after_three_rollbacks(tmp_path, spoiled, capsys):
    spoiled(CRITIC_STEP + 20, times=99)
    config = config_of(tmp_path, summary_interval=1, steps_per_loop=1, train_steps=30)
    # A restarted run continues from there and fails in the same way, with fewer summaries.
    for diagnosis in (r"; the last diagnosis is \w.*:.*", ""):
        with pytest.raises(
            NotFiniteError,
            match=r"^iteration 24: the critic's loss or gradient is not finite \(critic/loss\), "
            rf"and 3 attempts with other noise failed{diagnosis} — lower --critic_learning_rate or "
            r"give --gradient_clip_norm, with another --model_dir and "
            r"--restore_from=\S+/checkpoints, or look for such values in the data$",
        ):
            train_config(config)
    assert capsys.readouterr().err.count("other noise") == 6
    steps = {path.stem for path in (tmp_path / "checkpoints").glob("*.json")}
    assert steps == {"ckpt-5", "ckpt-10", "ckpt-15", "ckpt-20"}
    reader = tf.train.load_checkpoint(f"{tmp_path}/checkpoints/ckpt-20")
    for name, dtype in reader.get_variable_to_dtype_map().items():
        assert dtype == tf.string or np.isfinite(reader.get_tensor(name)).all()
    assert not (tmp_path / "owner.json").exists()


@pytest.mark.parametrize("first", ["loop", "save"])
def test_a_run_without_a_checkpoint_stops_at_once(tmp_path, capsys, first, monkeypatch):
    flags = [f"--{name}={value}" for name, value in {**TINY, "train_steps": 5}.items()]
    if first == "loop":
        flags.append("--critic_learning_rate=1e25")
        message = "iteration 1: the critic's loss or gradient is not finite (critic/loss"
    else:
        monkeypatch.setattr(TrainState, "not_finite", lambda state: ["generator/x"])
        message = "the state after iteration 5 is not saved, because it is not finite (generator/x)"
    assert call_main(f"--model_dir={tmp_path}/run", *flags) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "rror" in line]
    assert error.startswith(f"error: {message}") and error.endswith(
        " or give --gradient_clip_norm, with another --model_dir, or look for such values in the "
        "data"
    )
    assert not (tmp_path / "run" / "owner.json").exists()
    assert not list((tmp_path / "run").glob("checkpoints/*"))


@pytest.mark.slow
def test_a_rollback_continues_from_the_last_checkpoint_with_different_noise(
    tmp_path, spoiled, capsys
):
    train_config(config_of(tmp_path / "sound"))
    spoiled(CRITIC_STEP, times=2)
    train_config(config_of(tmp_path / "spoiled"))
    warnings = [line for line in capsys.readouterr().err.splitlines() if "other noise" in line]
    assert len(warnings) == 2
    assert all("going back to iteration 10, with" in line for line in warnings)
    sound, rolled = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("sound", "spoiled")
    )
    assert [line["step"] for line in rolled] == [5, 10, 15, 20]
    for before, after in zip(sound, rolled, strict=True):
        assert np.isfinite(after["critic/loss"])
        assert (before["critic/loss"] == after["critic/loss"]) == (after["step"] <= 10)
    run = open_run(config_of(tmp_path / "spoiled"))
    assert run.checkpoints.restore_latest() == 20
    assert run.checkpoints.rollbacks == 2


@pytest.mark.slow
def test_a_run_that_lost_its_lock_does_not_roll_back(tmp_path, spoiled):
    spoiled(CRITIC_STEP + 10, times=1)
    newcomer, lines = Lock(f"{tmp_path}/owner.json"), []

    class Taking(Writer):
        def scalars(self, step, values):
            if step == 15:
                newcomer.acquire()
                lines.append((tmp_path / "metrics.jsonl").read_text())

    trainer = training.make_trainer(
        open_run(config_of(tmp_path, checkpoint_interval=10)),
        writers=[Taking()],
    )
    with pytest.raises(UserError, match=r"this process no longer holds the lock"):
        trainer.run()
    assert [(tmp_path / "metrics.jsonl").read_text()] == lines


def test_every_process_refuses_a_state_that_is_not_finite(tmp_path):
    """Only one of several processes writes, but all must roll back."""
    run = open_run(Config(model_dir=str(tmp_path), **TINY))
    run.state.generator.trainable_variables[0].assign_add([[NAN] * 4] * 8)
    checkpoints = Checkpoints(run.state, f"{tmp_path}/elsewhere", writes=False)
    with pytest.raises(NotFiniteError, match="is not saved, because it is not finite"):
        checkpoints.save()


@pytest.mark.slow
def test_rollbacks_of_an_earlier_run_do_not_count(tmp_path, spoiled, capsys):
    spoiled(CRITIC_STEP, times=3)
    train_config(config_of(tmp_path / "a"))
    spoiled(CRITIC_STEP + 30, times=99)
    settings = {"train_steps": 40, "restore_from": f"{tmp_path}/a"}
    for _ in range(2):  # a resume does not count them either
        with pytest.raises(NotFiniteError, match=r"iteration 29: .* and 3 attempts"):
            train_config(config_of(tmp_path / "b", **settings))
    assert capsys.readouterr().err.count("other noise") == 9
