"""`wgan_gp.keras.WGANGP`: fit, predict, save and callbacks with the steps of train.py."""

import dataclasses
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from conftest import strategy_over

import wgan_gp
from wgan_gp.data.source import ExampleFormat, StoredData
from wgan_gp.keras import WGANGP

layers = tf.keras.layers
CONFIG = wgan_gp.Config(
    batch_size=8, n_critic=2, latent_size=4, learning_rate_schedule="constant", steps_per_loop=1
)
POINTS = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)


def generator(design=None):
    return tf.keras.Sequential([layers.Input([4]), layers.Dense(8, "relu"), layers.Dense(2)])


def critic(design=None):
    return tf.keras.Sequential([layers.Input([2]), layers.Dense(8, "tanh"), layers.Dense(1)])


def make_model(config=CONFIG, strategy=None, **arguments):
    with (strategy or strategy_over(1)).scope():
        tf.keras.utils.set_random_seed(config.seed)
        model = WGANGP(generator(), critic(), config)
        model.compile(**arguments)
    return model


def fit(model, points=POINTS, **arguments):
    return model.fit(points, shuffle=False, verbose=0, **arguments).history


def values(network):
    return [np.array(value) for value in network.get_weights()]


def test_fit_has_the_losses_of_train(tmp_path):
    """Both read the same batches: `train` in its own order, of which `fit` gets a copy."""
    config = dataclasses.replace(
        CONFIG, model_dir=str(tmp_path), train_steps=4, summary_interval=1, sample_interval=0
    )
    result = wgan_gp.train(config, generator=generator, critic=critic, data=POINTS)
    stored = ExampleFormat((2,), tf.float32, lambda points, _: points)
    data = StoredData(config.seed, stored, POINTS, np.zeros(64))
    in_order = data.read_stored(tf.constant(0, tf.int64), 4 * 2 * 8)[0].numpy()
    model = make_model(config)
    losses = {}
    for first in range(0, 64, 16):  # an epoch for each iteration
        for name, value in fit(model, in_order[first : first + 16]).items():
            losses.setdefault(name, []).extend(value)
    for name in ("critic/loss", "critic/penalty", "critic/gradient_norm", "generator/loss"):
        np.testing.assert_allclose(losses[name], result.history[name], rtol=1e-5, atol=1e-6)
    for a, b in zip(values(model.generator), values(result.generator), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_fit_on_two_replicas_is_fit_on_one():
    one, two = make_model(), make_model(strategy=strategy_over(2))
    held_out = POINTS[:16]
    a = fit(one, validation_data=held_out)
    b = fit(two, validation_data=held_out)
    assert a.keys() == b.keys() and "val_critic/loss" in a
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=1e-5)
    for x, y in zip(values(one.generator), values(two.generator), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


def test_several_steps_per_execution_are_equal_to_one():
    one, two = make_model(), make_model(steps_per_execution=2)
    a, b = fit(one, epochs=2), fit(two, epochs=2)
    np.testing.assert_allclose(a["critic/loss"], b["critic/loss"], rtol=1e-5)


def test_weights_are_saved_by_a_callback_and_fit_continues(tmp_path):
    path = str(tmp_path / "model.weights.h5")
    callback = tf.keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    model = make_model()
    fit(model, callbacks=[callback, tf.keras.callbacks.EarlyStopping("critic/loss", mode="min")])
    other = make_model()
    fit(other, POINTS[:16])  # creates the variables
    other.load_weights(path)
    a, b = fit(model), fit(other)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=1e-6)


def test_a_saved_model_predicts_the_same(tmp_path):
    model = make_model()
    fit(model)
    latents = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    expected = model.predict(latents, verbose=0)
    np.testing.assert_allclose(expected, np.array(model.generator(latents)), rtol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(latents, verbose=0), expected, rtol=1e-5)
    assert loaded.config == model.config
    loaded.compile()
    fit(loaded)


def test_labels_reach_a_conditional_generator_and_critic():
    config = dataclasses.replace(CONFIG, conditioning="projection")
    latents, label = tf.keras.Input([4]), tf.keras.Input([], dtype="int32")
    one_hot = layers.CategoryEncoding(3, output_mode="one_hot")
    joined = layers.Concatenate()([latents, one_hot(label)])
    conditional = tf.keras.Model([latents, label], layers.Dense(2)(joined))
    points, label = tf.keras.Input([2]), tf.keras.Input([], dtype="int32")
    joined = layers.Concatenate()([points, one_hot(label)])
    hidden = layers.Dense(8, "tanh")(joined)
    judge = tf.keras.Model([points, label], layers.Dense(1)(hidden))
    model = WGANGP(conditional, judge, config, classes=3)
    model.compile()
    labels = np.arange(64) % 3
    history = model.fit(POINTS, labels, verbose=0).history
    assert np.isfinite(history["critic/loss"]).all()
    assert model.predict([np.zeros([2, 4]), np.array([0, 2])], verbose=0).shape == (2, 2)
    with pytest.raises(wgan_gp.UserError, match="classes=3 requires labels"):
        model.fit(POINTS, verbose=0)


def test_mistakes_are_one_line_errors():
    with pytest.raises(wgan_gp.UserError, match="there are 8 examples, but one batch has 16"):
        make_model().fit(POINTS[:8])
    with pytest.raises(wgan_gp.UserError, match="batch_size"):
        make_model().fit(POINTS, batch_size=3)
    with pytest.raises(wgan_gp.UserError, match="jit_compile=True cannot compile for"):
        make_model(strategy=strategy_over(2), jit_compile=True)
    coupled = [layers.Dense(4), layers.BatchNormalization(), layers.Dense(1)]
    normalized = tf.keras.Sequential(coupled)
    model = WGANGP(generator(), normalized, CONFIG)
    model.compile()
    with pytest.raises(wgan_gp.UserError, match="the critic cannot be trained with penalty"):
        model.fit(POINTS, verbose=0)
    assert model.jit_compile is False


def test_the_program_of_the_documentation_prints_what_the_page_shows(capsys):
    page = (pathlib.Path(__file__).parent.parent / "docs" / "keras.md").read_text()
    (program,) = re.findall(r"```python\n([\s\S]*?)```", page)
    exec(program, {})
    printed = capsys.readouterr().out.strip().splitlines()[-1]
    assert f"It prints `{printed}`" in page
