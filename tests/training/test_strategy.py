"""Tests of the selection of devices, and of the settings that they exclude."""

import dataclasses
import queue
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.runs import TINY, make_state, resolved, strategy_over, train_config
from wgan_gp.app import build
from wgan_gp.app.build import is_faster_with_xla
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.runtime import tpu_connection
from wgan_gp.runtime.cluster import SINGLE_PROCESS
from wgan_gp.runtime.devices import Devices, connect, find_platform
from wgan_gp.training.trainer import Trainer


def devices_over(strategy, platform="CPU"):
    return Devices(strategy, SINGLE_PROCESS, platform)


@pytest.mark.parametrize(
    ("settings", "gpus", "expected"),
    [
        ({}, [], True),
        ({}, ["GPU:0"], False),
        ({"tpu": "my-tpu"}, ["GPU:0"], True),
    ],
)
def test_resampling_is_fused_where_fusing_is_faster(settings, gpus, expected, monkeypatch):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    config = Config(**settings)
    devices = devices_over(strategy_over(1), find_platform(config))
    assert devices.fuses_resampling == expected


@pytest.mark.parametrize("jit_compile", ["auto", "off"])
def test_jit_compile_is_never_used_on_a_tpu(jit_compile):
    assert not devices_over(strategy_over(1), "TPU").use_jit(jit_compile)


def test_jit_compile_on_with_a_tpu_is_refused():
    with pytest.raises(UserError, match="omit it"):
        Config(tpu="my-tpu", jit_compile="on")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"train_steps": 999}, False),
        ({"model_width": 1024, "generator_width": 1024}, False),
        ({"model": "dcgan", "generator_model": "mlp"}, False),
        ({"objective": "my_objective.py:Objective"}, False),
    ],
)
def test_auto_compiles_small_dense_networks_in_long_runs_on_a_cpu(settings, expected):
    config = Config(dataset="digits", model="mlp", model_width=64, train_steps=1000)
    config = dataclasses.replace(config, **settings)
    state = make_state(dataclasses.replace(config, objective=None), strategy_over(1))
    assert is_faster_with_xla(config, state) == expected
    one = devices_over(strategy_over(1))
    assert one.use_jit("auto", is_faster_on_cpu=expected) == expected
    assert not one.use_jit("off", is_faster_on_cpu=True)
    assert not devices_over(strategy_over(2)).use_jit("auto", is_faster_on_cpu=True)


def test_auto_does_not_compile_without_a_compiler_for_the_cpu(monkeypatch):
    config = Config(dataset="digits", model="mlp", model_width=64, train_steps=1000)
    state = make_state(config, strategy_over(1))
    assert is_faster_with_xla(config, state)
    monkeypatch.setattr(build, "installed_versions", lambda names: dict.fromkeys(names, "2.20"))
    assert not is_faster_with_xla(config, state)


def test_jit_compile_on_other_devices():
    assert not devices_over(strategy_over(1)).use_jit("auto")
    assert devices_over(strategy_over(1)).use_jit("on")
    assert not devices_over(strategy_over(4)).use_jit("auto")
    with pytest.raises(UserError, match="across 4 replicas"):
        Config(jit_compile="on").check_replicas(4)


def test_devices_are_described():
    assert devices_over(strategy_over(1)).describe() == "1 CPU replica"
    assert devices_over(strategy_over(4)).describe() == "4 CPU replicas"


@pytest.mark.parametrize(
    ("gpus", "expected"), [(0, "one CPU:0"), (1, "one GPU:0"), (4, "mirrored over all")]
)
def test_all_visible_gpus_are_used(monkeypatch, gpus, expected):
    made = type("Made", (str,), {"num_replicas_in_sync": 1})
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["GPU"] * gpus)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda: made("mirrored over all"))
    monkeypatch.setattr(tf.distribute, "OneDeviceStrategy", lambda name: made(f"one {name}"))
    devices = connect(Config())
    assert devices.strategy == expected
    assert devices.platform == ("GPU" if gpus else "CPU")
    assert devices.cluster is SINGLE_PROCESS


def test_auto_compiles_on_one_gpu():
    one, four = (devices_over(strategy_over(replicas), "GPU") for replicas in (1, 4))
    assert one.use_jit("auto") and not four.use_jit("auto")
    assert not one.use_jit("off")


def test_cpu_replicas_mirror_over_logical_devices():
    devices = connect(Config(cpu_replicas=4))
    assert isinstance(devices.strategy, tf.distribute.MirroredStrategy)
    assert devices.replicas == devices.strategy.num_replicas_in_sync == 4


def test_fewer_devices_than_replicas_are_one_line():
    """A notebook may train with two replicas first, and with more later."""
    tf.zeros([])  # TensorFlow is in use
    with pytest.raises(UserError, match="--cpu_replicas=9 cannot be set up after this process"):
        connect(Config(cpu_replicas=9, batch_size=9))


def test_only_a_missed_deadline_ends_the_program(monkeypatch):
    ended, error = queue.Queue(), UserError("late", "hurry")
    monkeypatch.setattr(tpu_connection, "end_program", ended.put)
    before = set(threading.enumerate())
    with tpu_connection.deadline(60, error):
        (timer,) = set(threading.enumerate()) - before
    timer.join(10)
    assert not timer.is_alive() and ended.empty()
    with tpu_connection.deadline(0.05, error):
        assert ended.get(timeout=60) == error


@pytest.mark.parametrize("tpu", ["local", None])
def test_padding_on_a_tpu_is_reported(tpu, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("wgan_gp.runtime.devices.connect_tpu", lambda settings: strategy_over(2))
    monkeypatch.setattr(Trainer, "run", lambda trainer: None)
    settings = {**TINY, "model_width": 12, "batch_size": 6, "train_steps": 5}
    train_config(resolved(Config(tpu=tpu, model_dir=str(tmp_path), **settings)))
    errors = capsys.readouterr().err
    batch = "--batch_size gives each replica 3 examples, which are padded to a multiple of 8"
    assert (batch in errors) == (tpu is not None)
    assert ("channel counts are padded to multiples of 8: critic/" in errors) == (tpu is not None)
    assert "--generator_batch_size" not in errors


@pytest.mark.parametrize("tpu", ["my-tpu", "grpc://10.0.0.2:8470", "local"])
def test_the_run_directory_of_a_tpu_is_on_this_machine_by_default(tpu, tmp_path):
    assert resolved(Config(tpu=tpu)).model_dir == "runs/digits"
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=[32, 2]))
    local = {"dataset": "array", "data_dir": f"{tmp_path}/x.npy", "restore_from": "runs/digits"}
    assert resolved(Config(tpu=tpu, **local)).model_dir == "runs/array"
    assert resolved(Config(tpu=tpu, model_dir="gs://b/run")).model_dir == "gs://b/run"


@pytest.mark.parametrize("tpu", ["a/b/c/d", "z/", "/x", "p//x", "projects/p/locations/z/nodes/x"])
def test_a_tpu_has_at_most_a_project_a_zone_and_a_name(tpu):
    with pytest.raises(UserError, match=f"--tpu={tpu} is not a TPU — give its NAME, ZONE/NAME"):
        Config(tpu=tpu)
