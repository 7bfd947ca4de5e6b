"""Tests of the moving average of the generator."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.runs import (
    DCGAN,
    TINY,
    make_replica_step,
    make_state,
    open_run,
    strategy_over,
    train_tiny,
    without_tracing,
)
from wgan_gp.app.saved_run import check_resume
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.run_directory.directory import RunDirectory
from wgan_gp.training.networks import update_ema
from wgan_gp.training.state import create_state

CONFIG = Config(**{**TINY, **DCGAN}, generator_ema_decay=0.3)


def values(model):
    return [np.array(tf.convert_to_tensor(weight)) for weight in model.weights]


def test_counters_are_copied():
    def network():
        model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Normalization()])
        model.layers[0].count.assign(3)
        return model

    average, generator = network(), network()
    generator.layers[0].count.assign(7)
    generator.layers[0].adapt_mean.assign([1.0, 2.0])
    update_ema(average, generator, tf.constant(0.25))
    np.testing.assert_allclose(average.layers[0].adapt_mean, [0.75, 1.5])
    assert int(average.layers[0].count) == 7


def test_an_average_needs_no_further_critic():
    built = []

    def generator():
        built.append("generator")
        return tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])

    def networks():
        built.append("both")
        return generator(), generator()

    for config, calls in ((CONFIG, 3), (dataclasses.replace(CONFIG, generator_ema_decay=0.0), 2)):
        built.clear()
        state = create_state(networks, generator, config, strategy_over(1))
        assert built == ["both"] + ["generator"] * calls
        assert (state.generator_average is not None) == (calls == 3)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_average_of_all_weights_and_statistics(replicas):
    """Tests decay * average + (1 - decay) * generator, with a lower decay at first."""
    strategy = strategy_over(replicas)
    state = make_state(CONFIG, strategy)
    expected = values(state.generator)
    for average, weight in zip(values(state.generator_average), expected, strict=True):
        np.testing.assert_array_equal(average, weight)
    step = make_replica_step(CONFIG, state)
    for done in range(5):
        strategy.run(step.generator_step, args=(tf.constant(done, tf.int64),))
        decay = min(0.3, (1 + done) / (10 + done))
        expected = [
            decay * average + (1 - decay) * weight
            for average, weight in zip(expected, values(state.generator), strict=True)
        ]
    moved = 0
    for average, target, initial in zip(
        state.generator_average.weights, expected, values(state.generator), strict=True
    ):
        copies = strategy.experimental_local_results(getattr(average, "_value", average))
        assert len(copies) == replicas
        for copy in copies:
            np.testing.assert_allclose(copy, target, rtol=1e-4, atol=1e-6)
        moved += (np.abs(target - initial) > 1e-6).any()
    assert moved > 5


@pytest.mark.slow
def test_samples_are_from_the_average_which_checkpoints_contain(tmp_path):
    run, _ = train_tiny(tmp_path, train_steps=10, generator_ema_decay=0.9)
    assert run.state.sampling_generator is run.state.generator_average
    samples = run.sampler.sample(4)
    run.state.generator_average.set_weights(run.state.generator.get_weights())
    assert np.abs(run.sampler.sample(4) - samples).max() > 1e-3
    again = open_run(run.config)
    assert again.checkpoints.restore_latest() == 10
    np.testing.assert_array_equal(again.sampler.sample(4), samples)


def test_without_an_average_samples_are_from_the_generator():
    run = open_run(Config(**TINY))
    assert run.state.generator_average is None
    assert run.state.sampling_generator is run.state.generator


@pytest.mark.slow
def test_a_run_cannot_be_resumed_without_its_average(tmp_path):
    with without_tracing():
        train_tiny(tmp_path, train_steps=1, generator_ema_decay=0.9)
    config = Config(model_dir=str(tmp_path), train_steps=1, **TINY)
    with pytest.raises(UserError, match=r"--generator_ema_decay: 0\.9 -> 0\.0"):
        check_resume(RunDirectory(str(tmp_path)), config)
