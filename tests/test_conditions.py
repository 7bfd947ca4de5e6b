"""Continuous conditions in the place of labels."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import TINY, call_main

import wgan_gp
from wgan_gp.app import saved_run
from wgan_gp.data.conditions import Conditions
from wgan_gp.errors import UserError

CONDITIONS = (1000 + 50 * np.random.default_rng(0).normal(size=(64, 2))).astype(np.float32)
POINTS = np.stack([CONDITIONS[:, 0] / 500, CONDITIONS[:, 1] / 900], axis=1).astype(np.float32)


def train(folder, data=(POINTS, CONDITIONS), **settings):
    settings = {**TINY, "conditioning": "projection", "model": "mlp", **settings}
    settings.pop("dataset", None)
    return wgan_gp.train(wgan_gp.Config(model_dir=str(folder), **settings), data=data, writers=[])


def weights(result):
    return [np.array(w) for w in result.run.state.generator.get_weights()]


def test_conditions_are_standardized_and_restored():
    conditions = Conditions.of(CONDITIONS)
    table = conditions.table
    np.testing.assert_allclose(table.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(table.std(0), 1, atol=1e-4)
    np.testing.assert_allclose(conditions.restore(table), CONDITIONS, rtol=1e-5)
    recorded = Conditions.from_dict(conditions.to_dict())
    np.testing.assert_array_equal(recorded.spread().table, conditions.spread().table)


@pytest.mark.parametrize(
    "conditioning", [pytest.param("projection", marks=pytest.mark.slow), "concatenation"]
)
def test_samples_follow_conditions_in_own_units_and_after_restoring(tmp_path, conditioning):
    result = train(tmp_path, conditioning=conditioning)
    low, high = (result.sample(8, conditions=[value, 1000]) for value in (900, 1100))
    assert np.abs(low - high).max() > 1e-4
    saved = saved_run.find_run(str(tmp_path), {}, result.run.library)
    assert saved.spec.condition_size == 2
    restored = saved_run.restore(
        saved, saved_run.find_checkpoint(saved), result.run.devices
    ).sampler
    np.testing.assert_array_equal(restored.sample(8), result.sample(8))
    output = str(tmp_path / "samples.npz")
    arguments = ["--mode=sample", f"--model_dir={tmp_path}", "--sample_format=npz"]
    assert call_main(*arguments, "--num_samples=8", f"--output={output}") == 0
    with np.load(output) as archive:
        np.testing.assert_array_equal(archive["samples"], result.sample(8))
        assert archive["conditions"].shape == (8, 2)
        np.testing.assert_allclose(archive["conditions"].mean(), 1000, atol=100)
    assert call_main("--mode=score", f"--model_dir={tmp_path}", "--score_data=x.npy") == 2
    with pytest.raises(UserError, match="takes 2 numbers"):
        result.sample(8, conditions=[1.0])


@pytest.mark.slow
@pytest.mark.parametrize("device_loop", ["off", "on"])
def test_resumed_training_is_exact(tmp_path, device_loop):
    choices = {
        "device_loop": device_loop,
        "steps_per_loop": 1,
        "learning_rate_schedule": "constant",
    }
    straight = train(tmp_path / "straight", train_steps=2, **choices)
    train(tmp_path / "resumed", train_steps=1, **choices)
    resumed = train(tmp_path / "resumed", train_steps=2, **choices)
    for one, other in zip(weights(straight), weights(resumed), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_replicas_do_not_change_training(tmp_path):
    one, two = (train(tmp_path / str(n), train_steps=1, cpu_replicas=n) for n in (1, 2))
    for a, b in zip(weights(one), weights(two), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_streamed_conditions_equal_conditions_in_memory(tmp_path):
    dataset = tf.data.Dataset.from_tensor_slices((POINTS, CONDITIONS))
    result = train(tmp_path, data=dataset, cache="off", train_steps=1)
    examples, conditions = (
        result.run.data.decode(result.run.data.encoded(0, 4)).as_numpy_iterator().next()
    )
    np.testing.assert_array_equal(examples, POINTS[:4])
    np.testing.assert_allclose(conditions, Conditions.of(CONDITIONS).table[:4], atol=1e-4)


def test_unconditional_run_ignores_conditions(tmp_path):
    result = train(tmp_path, conditioning="none", train_steps=1)
    assert result.run.dataset.spec.condition_size == 0


def test_export_takes_conditions_in_own_units(tmp_path):
    result = train(tmp_path / "run", train_steps=1)
    folder = result.export(str(tmp_path / "export"))
    loaded = tf.saved_model.load(folder + "/saved_model").signatures
    values = tf.constant(CONDITIONS[:4])
    seed = tf.constant(result.run.sampler.seed, tf.int64)
    samples = loaded["seed"](seed=seed, conditions=values)["samples"]
    np.testing.assert_allclose(samples, result.sample(4, conditions=CONDITIONS[:4]), atol=1e-5)
    scores = loaded["critic"](examples=tf.constant(POINTS[:4]), conditions=values)["scores"]
    assert scores.shape == (4,)


@pytest.mark.parametrize(
    ("conditions", "settings", "message"),
    [
        (np.full([64], np.nan), {}, "NaN or infinity in the conditions of 64"),
        (np.zeros([63]), {}, "for 64 examples"),
        (CONDITIONS, {"conditioning": "acgan"}, "not classes"),
    ],
)
def test_bad_conditions_give_one_line(tmp_path, conditions, settings, message):
    with pytest.raises(UserError, match=message):
        train(tmp_path, data=(POINTS, conditions), **settings)
