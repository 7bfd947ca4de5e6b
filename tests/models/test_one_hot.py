"""Generators of typed tables: one-hot groups that are drawn with the noise of the latents."""

import numpy as np
import scipy.stats
import tensorflow as tf

import models
from models.one_hot import TEMPERATURE, OneHotGroups, _gumbel

GROUPS = [(1, 3), (5, 2)]
SIZE = 8


def draw(logits, noise, **choices):
    return OneHotGroups(GROUPS, **choices)([tf.constant(logits), tf.constant(noise)])


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_categories_have_the_probabilities_of_the_softmax():
    logits = np.tile(normal(1, SIZE), [50_000, 1])
    found = draw(logits, normal(50_000, 5, seed=1)).numpy()
    for first, count in GROUPS:
        group = found[:, first : first + count]
        assert set(np.unique(group)) == {0.0, 1.0} and (group.sum(axis=1) == 1).all()
        expected = tf.nn.softmax(logits[0, first : first + count]).numpy() * len(found)
        assert scipy.stats.chisquare(group.sum(axis=0), expected, sum_check=False).pvalue > 1e-3
    others = [0, 4, 7]
    np.testing.assert_array_equal(found[:, others], logits[:, others])


def test_the_gradient_is_that_of_the_gumbel_softmax():
    logits, noise = tf.constant(normal(6, SIZE)), normal(6, 5, seed=1)
    weights = normal(6, SIZE, seed=2)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.reduce_sum(draw(logits, noise) * weights)
    found = tape.gradient(loss, logits).numpy()
    gumbel = -np.log(-scipy.stats.norm.logcdf(noise.astype(np.float64)))
    place = 0
    for first, count in GROUPS:
        part = slice(first, first + count)
        scores = (logits.numpy()[:, part] + gumbel[:, place : place + count]) / TEMPERATURE
        soft = np.exp(scores - scores.max(axis=1, keepdims=True))
        soft /= soft.sum(axis=1, keepdims=True)
        inner = (soft * weights[:, part]).sum(axis=1, keepdims=True)
        expected = soft * (weights[:, part] - inner) / TEMPERATURE
        np.testing.assert_allclose(found[:, part], expected, rtol=1e-3, atol=1e-5)
        place += count


def test_noise_is_exact_in_the_tails():
    noise = np.linspace(-12, 12, 2001).astype(np.float32)
    expected = -np.log(-scipy.stats.norm.logcdf(noise.astype(np.float64)))
    np.testing.assert_allclose(_gumbel(tf.constant(noise)), expected, rtol=2e-5, atol=2e-5)


def test_a_number_without_its_indicator_is_0():
    found = draw(normal(100, SIZE), normal(100, 5, seed=1), masked=[(0, 1), (7, 6)]).numpy()
    for feature, present in ((0, 1), (7, 6)):
        assert ((found[:, feature] == 0) == (found[:, present] == 0)).all()
        assert 0 < found[:, present].sum() < 100


def test_a_label_determines_its_group_and_no_other():
    logits, noise = normal(40, SIZE), normal(40, 5, seed=1)
    features = [1, 2, 3, 5, 6]
    labels = np.arange(40) % 5
    layer = OneHotGroups(GROUPS, label_features=features)
    with tf.GradientTape() as tape:
        inputs = tf.constant(logits)
        tape.watch(inputs)
        found = layer([inputs, tf.constant(noise), tf.constant(labels)])
    gradient = tape.gradient(found, inputs).numpy()
    plain = draw(logits, noise).numpy()
    for row, label in enumerate(labels):
        group = slice(1, 4) if label < 3 else slice(5, 7)
        other = slice(5, 7) if label < 3 else slice(1, 4)
        assert found[row, features[label]] == 1 and (gradient[row, group] == 0).all()
        np.testing.assert_array_equal(found[row, other], plain[row, other])


def test_generators_take_the_noise_at_the_end_of_the_latents(tmp_path):
    generator = models.MODELS.build_generator(
        "mlp",
        (SIZE,),
        latent_size=4 + 5,
        model_width=8,
        one_hot=tuple(GROUPS),
        masked=((0, 1),),
        bounded=False,
    )
    latents = normal(30, 9)
    found = generator(latents).numpy()
    assert ((found[:, 5:7] == 0) | (found[:, 5:7] == 1)).all()
    changed = generator(np.concatenate([latents[:, :4], normal(30, 5, seed=9)], axis=1)).numpy()
    np.testing.assert_array_equal(changed[:, [4, 7]], found[:, [4, 7]])  # numbers have no noise
    assert (changed != found).any()
    np.testing.assert_array_equal(generator(latents, training=True), found)
    generator.save(tmp_path / "generator.keras")
    loaded = models.load(str(tmp_path / "generator.keras"))
    np.testing.assert_array_equal(loaded(latents), found)
