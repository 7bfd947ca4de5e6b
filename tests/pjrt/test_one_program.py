"""--mode=compile compiles the program that --runtime=pjrt runs."""

import dataclasses
import re

import pytest
import tensorflow as tf

from tests.helpers.runs import DCGAN, LIBRARY, TINY, train_tiny
from wgan_gp.app.compiling import make_program
from wgan_gp.app.resolve import resolve
from wgan_gp.config import Config
from wgan_gp.pjrt import client, devices
from wgan_gp.tpu import topologies

REPLICAS = 8


class NotExecutedError(Exception):
    """Ends a run in place of the compilation of its program."""


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """Returns a function that returns the program of a run on 8 devices."""

    def lower(**settings):
        programs = []

        def record(hlo, chips):
            programs.append(hlo)
            assert len(chips) == REPLICAS
            raise NotExecutedError

        monkeypatch.setattr(client, "Program", record)
        tf.keras.backend.clear_session()  # Keras numbers layers by process
        with pytest.raises(NotExecutedError):
            train_tiny(tmp_path, runtime="pjrt", cpu_replicas=REPLICAS, **settings)
        return text_of(*programs)

    return lower


def compiled(**settings):
    """Returns the program that the TPU's compiler gets for a slice of 8 cores."""
    tf.keras.backend.clear_session()
    topology = topologies.find("v5e-8")
    assert topology.replicas == REPLICAS
    config = Config(mode="compile", compile_topology="v5e-8", **{**TINY, **settings})
    config, dataset = resolve(config, LIBRARY.models)
    return text_of(make_program(config, dataset, LIBRARY, topology).lower().hlo)


def text_of(hlo):
    """Returns a program as text, without the numbers of TensorFlow's functions in its names."""
    return re.sub(r"(?<=[a-z])_[0-9]+", "", client.hlo_text(hlo)).splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cache", "settings"),
    [
        ("device", {"precision": "mixed_bfloat16"}),
        pytest.param(
            "device",
            {
                **DCGAN,
                "conditioning": "projection",
                "random_flips": True,
                "generator_ema_decay": 0.9,
                "augment": "diffaugment",
            },
            marks=pytest.mark.slow,
        ),
        pytest.param("off", {**DCGAN, "accumulate": 2, "penalty": "r1,r2"}, marks=pytest.mark.slow),
    ],
    indirect=["cache"],
    ids=["bfloat16", "resident", "sent"],
)
def test_the_slice_and_the_devices_get_the_same_operations(executed, cache, settings):
    ours, theirs = compiled(**settings), executed(**settings)
    assert len(ours) > 1000
    assert ours == theirs


@pytest.mark.slow
def test_only_a_gpu_gets_other_operations(executed, monkeypatch):
    """They do not fuse resampling; see `Devices.fuses_resampling`."""
    connect = devices.connect
    monkeypatch.setattr(
        devices, "connect", lambda config: dataclasses.replace(connect(config), platform="GPU")
    )
    settings = {"dataset": "digits", "image_size": "32", "model": "resnet"}
    on_gpu = executed(**settings)
    assert on_gpu != compiled(**settings)
    monkeypatch.setattr(devices.Devices, "fuses_resampling", False)
    assert on_gpu == compiled(**settings)
