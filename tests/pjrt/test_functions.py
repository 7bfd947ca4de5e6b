"""Everything outside the loop on a device of jax: the results are those of TensorFlow."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from absl import logging

import losses
from tests.helpers.runs import DCGAN, LIBRARY, TINY
from wgan_gp.app import run, training
from wgan_gp.app.resolve import resolve
from wgan_gp.config import Config
from wgan_gp.inference.sampling import Sampler
from wgan_gp.inference.scoring import Scorer
from wgan_gp.pjrt import devices as jax_devices
from wgan_gp.pjrt.functions import JaxStrategy
from wgan_gp.runtime.cluster import SINGLE_PROCESS
from wgan_gp.runtime.devices import Devices
from wgan_gp.runtime.functions import function_on
from wgan_gp.writers.writer import MemoryWriter


@pytest.fixture
def strategy():
    return JaxStrategy(jax.local_devices(backend="cpu")[0])


def train_on(strategy, model_dir):
    settings = {"conditioning": "acgan", "evaluate_interval": 2, "evaluate_samples": 20}
    config = Config(
        model_dir=str(model_dir), train_steps=2, sample_interval=2, **{**TINY, **DCGAN, **settings}
    )
    devices, writer = Devices(strategy, SINGLE_PROCESS, "CPU"), MemoryWriter()
    config, dataset = resolve(config, LIBRARY.models)
    opened = run.open_run(config, dataset, LIBRARY, devices=devices)
    training.make_trainer(opened, writers=[writer]).run()
    return writer


@pytest.mark.slow
def test_the_probe_the_samples_and_the_evaluation_are_the_same(tmp_path, strategy):
    mine = train_on(strategy, tmp_path / "jax")
    expected = train_on(tf.distribute.OneDeviceStrategy("CPU:0"), tmp_path / "tensorflow")
    ((_, found), (_, reference)) = mine.summaries[-1], expected.summaries[-1]
    probed = [name for name in reference if name.startswith("probe/")]
    assert len(probed) > 5
    for name in probed:
        np.testing.assert_allclose(found[name], reference[name], rtol=1e-4, err_msg=name)
    for (_, tag, one), (_, _, other) in zip(mine.images, expected.images, strict=True):
        difference = np.abs(one.astype(float) - other.astype(float))
        assert difference.max() <= 1, tag  # of 256 levels
    (_, metrics), (_, others) = mine.evaluations[-1], expected.evaluations[-1]
    assert "evaluation/fid" in metrics
    for name, value in others.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-3, atol=1e-6, err_msg=name)


def test_the_scores_are_the_same(strategy):
    def generator(latents, training):
        return latents * [[1.0, 0.0]]

    examples = np.array([[0.3, 2.0], [-1.0, 0.5], [2.0, 0.0]], np.float32)
    one, other = (
        Scorer(
            Sampler(generator, each, latent_size=2, seed=0),
            lambda inputs, training: inputs[:, :1],
            losses.score,
            labeled_critic=False,
            starts=2,
            steps=100,
        ).score(examples, None)
        for each in (strategy, tf.distribute.get_strategy())
    )
    for name in ("critic", "distance"):
        np.testing.assert_allclose(one[name], other[name], atol=1e-4)


def test_a_change_of_a_variable_is_seen(strategy):
    variable = tf.Variable([1.0, 2.0])
    function = function_on(strategy, lambda inputs: {"sum": [inputs + variable]})
    np.testing.assert_array_equal(function(tf.constant([1.0, 1.0]))["sum"][0], [2, 3])
    variable.assign([10.0, 20.0])
    np.testing.assert_array_equal(function(tf.constant([1.0, 1.0]))["sum"][0], [11, 21])


def test_a_function_that_xla_cannot_compile_runs_on_the_cpu_with_a_warning(strategy, monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "warning", logged.append)

    def extract_features(inputs):
        return tf.numpy_function(lambda array: array * 2, [inputs], tf.float32)

    function = function_on(strategy, extract_features)
    np.testing.assert_array_equal(function(tf.constant([1.0])), [2.0])
    (line,) = logged
    assert line.startswith("XLA cannot compile extract features, which runs on the CPU (")


def test_a_saved_run_is_used_on_the_first_accelerator_of_this_machine(monkeypatch):
    """The CPU takes the part of a GPU."""
    cpu = jax.local_devices(backend="cpu")
    monkeypatch.setattr(jax_devices, "_find", lambda config: ("GPU", cpu))
    monkeypatch.setattr(jax, "local_devices", lambda backend: cpu if backend == "gpu" else [])
    found = jax_devices.connect_for_inference(Config(runtime="pjrt"))
    assert isinstance(found.strategy, JaxStrategy)
    assert (found.platform, found.replicas, found.chips) == ("GPU", 1, ())
    found = jax_devices.connect_for_inference(Config(runtime="pjrt", cpu_replicas=2))
    assert found.platform == "CPU" and not isinstance(found.strategy, JaxStrategy)


def test_the_tpu_of_several_machines_is_left_by_one_that_uses_a_saved_run(monkeypatch):
    monkeypatch.setattr(jax_devices.client, "find_tpu_processes", lambda seconds: ("a:1", 2, 0))
    found = jax_devices.connect_for_inference(Config(runtime="pjrt", tpu="local"))
    assert found.platform == "CPU" and not isinstance(found.strategy, JaxStrategy)
