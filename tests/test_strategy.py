"""Tests of the selection of devices, and of the connection to a TPU with fakes for its steps."""

import pathlib
import subprocess
import sys
import time

import pytest
import tensorflow as tf
from conftest import TINY, resolved, strategy_over, train_config

from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.runtime.cluster import SINGLE_PROCESS
from wgan_gp.runtime.deadline import deadline
from wgan_gp.runtime.devices import Devices, connect, connect_tpu, find_platform

ROOT = pathlib.Path(__file__).parent.parent


def devices_over(strategy, platform="CPU"):
    return Devices(strategy, SINGLE_PROCESS, platform)


def fake_steps(calls, failing=None):
    def step(name, result):
        def call(*args, **kwargs):
            calls.append((name, *args, *kwargs.values()))
            if name == failing:
                raise RuntimeError("first line\nsecond line")
            return result

        return call

    return {
        "end": calls.append,
        "resolver": step("resolver", "cluster"),
        "connect": step("connect", None),
        "initialize": step("initialize", None),
        "strategy": step("strategy", "the strategy"),
    }


@pytest.mark.parametrize(
    ("settings", "gpus", "expected"),
    [
        ({}, [], True),
        ({}, ["GPU:0"], False),
        ({"tpu": "my-tpu"}, ["GPU:0"], True),
        ({"mode": "compile"}, ["GPU:0"], True),
        ({"fused_resampling": "on"}, ["GPU:0"], True),
        ({"fused_resampling": "off"}, [], False),
    ],
)
def test_resampling_is_fused_where_fusing_is_faster(settings, gpus, expected, monkeypatch):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    config = Config(**settings)
    devices = devices_over(strategy_over(1), find_platform(config))
    assert devices.use_fused_resampling(config.fused_resampling) == expected


def test_tpu_is_resolved_connected_and_initialized_in_this_order():
    calls = []
    steps = fake_steps(calls)
    assert connect_tpu("my-tpu", zone="z", project="p", **steps) == "the strategy"
    assert calls == [
        ("resolver", "my-tpu", "z", "p"),
        ("connect", "cluster"),
        ("initialize", "cluster"),
        ("strategy", "cluster"),
    ]


@pytest.mark.parametrize("failing", ["resolver", "connect", "initialize", "strategy"])
def test_unreachable_tpu_is_a_one_line_error_with_a_remedy(failing):
    with pytest.raises(UserError) as caught:
        connect_tpu("my-tpu", **fake_steps([], failing))
    message = str(caught.value)
    assert message.startswith("--tpu=my-tpu cannot be reached (RuntimeError: first line)")
    assert "gcloud compute tpus" in message and "\n" not in message


def test_batch_must_divide_over_the_tpus_cores(monkeypatch):
    monkeypatch.setattr(
        "wgan_gp.runtime.devices.connect_tpu", lambda name, **options: strategy_over(4)
    )
    with pytest.raises(UserError, match="does not divide over 4 replicas — use 64 or 68"):
        connect(Config(tpu="my-tpu", batch_size=66))


@pytest.mark.parametrize("jit_compile", ["auto", "off"])
def test_jit_compile_is_never_used_on_a_tpu(jit_compile):
    assert not devices_over(strategy_over(1), "TPU").use_jit(jit_compile)


def test_jit_compile_on_with_a_tpu_is_refused():
    with pytest.raises(UserError, match="omit it"):
        Config(tpu="my-tpu", jit_compile="on")


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


@pytest.mark.parametrize(
    "error",
    [
        ValueError("Could not lookup TPU metadata from name 'my-tpu'"),
        RuntimeError('TPU "my-tpu" is not yet ready; state: "CREATING"'),
        OSError("<urlopen error [Errno -2] Name or service not known>"),
        ImportError("cloud-tpu-client is missing"),
    ],
    ids=["unknown", "not ready", "no metadata server", "no client"],
)
def test_an_error_of_the_resolver_is_reported_with_a_remedy(error):
    def resolver(tpu, zone, project):
        raise error

    with pytest.raises(UserError) as caught:
        connect_tpu("my-tpu", zone="us-z", **{**fake_steps([]), "resolver": resolver})
    message = str(caught.value)
    assert message.startswith("--tpu=my-tpu cannot be reached") and str(error) in message
    assert "tpu-vm list --zone=us-z" in message and "state is READY" in message
    assert "tpu-vm stop my-tpu --zone=us-z" in message


def test_a_tpu_that_does_not_respond_ends_the_program_with_one_line():
    program = (
        "import time\n"
        "from wgan_gp.runtime.devices import connect_tpu\n"
        "connect_tpu('my-tpu', timeout=0.5, resolver=lambda **given: time.sleep(600))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 2
    (line,) = (line for line in result.stderr.splitlines() if "error:" in line)
    assert line.startswith("error: --tpu=my-tpu did not answer within --start_timeout=0.5 seconds")
    assert "READY" in line


def test_only_a_missed_deadline_ends_the_program():
    ended = []
    with deadline(0.05, "late", "hurry", end=ended.append):
        pass
    time.sleep(0.2)
    assert ended == []
    with deadline(0.05, "late", "hurry", end=ended.append):
        time.sleep(0.5)
    assert ended == ["late — hurry"]


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        ({}, "--model_dir=runs/digits"),
        ({"model_dir": "/here"}, "--model_dir=/here"),
        ({"tpu": "grpc://10.0.0.2:8470"}, "--model_dir=runs/digits"),
        (
            {"model_dir": "gs://b/run", "dataset": "image_folder", "data_dir": "/pictures"},
            "--data_dir=/pictures",
        ),
        (
            {"model_dir": "gs://b/run", "dataset": "mnist"},
            "--data_dir=.the default folder of tensorflow-datasets",
        ),
    ],
)
def test_local_paths_are_refused_for_a_remote_tpu(settings, flag):
    with pytest.raises(UserError, match=rf"{flag}.* is on this machine.*gs://BUCKET"):
        resolved(Config(**{"tpu": "my-tpu", **settings}))


@pytest.mark.parametrize("tpu", ["local", None])
def test_padding_on_a_tpu_is_reported(tpu, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "wgan_gp.runtime.devices.connect_tpu", lambda name, **options: strategy_over(2)
    )
    settings = {**TINY, "model_width": 12, "batch_size": 6, "train_steps": 5}
    train_config(resolved(Config(tpu=tpu, model_dir=str(tmp_path), **settings)))
    errors = capsys.readouterr().err
    assert (
        "--batch_size gives each replica 3 examples, which are padded to 8: --batch_size=16"
        in errors
    ) == (tpu is not None)
    assert ("critic: channel counts are padded to multiples of 8" in errors) == (tpu is not None)
    assert "--generator_batch_size" not in errors


def test_paths_that_a_tpu_can_read_are_accepted():
    remote = resolved(Config(tpu="my-tpu", model_dir="gs://b/run"))
    assert remote.model_dir == "gs://b/run"
    assert resolved(Config(tpu="local")).model_dir == "runs/digits"


def test_a_zone_requires_a_tpu():
    with pytest.raises(UserError, match="--tpu_zone and --tpu_project require a TPU — add --tpu"):
        Config(tpu_zone="us-z")
