"""Critics that score packs of examples, and the losses of packs."""

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
from wgan_gp.training.packing import PackedObjective

PACK, COUNT, SIZE = 4, 24, 3


def normal(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float32)


@pytest.fixture(scope="module")
def critic():
    tf.keras.utils.set_random_seed(0)
    return models.build("mlp", (SIZE,), 5, 8, pack=PACK, activation="tanh")[1]


def test_all_examples_of_a_pack_have_its_score(critic):
    examples = normal(COUNT, SIZE)
    scores = critic(examples).numpy().reshape(-1, PACK)
    assert (scores == scores[:, :1]).all() and len(np.unique(scores)) == COUNT // PACK
    changed = tf.tensor_scatter_nd_add(examples, [[5, 0]], [1.0])
    differs = critic(changed).numpy().reshape(-1, PACK) != scores
    assert differs[1].all() and not np.delete(differs, 1, axis=0).any()
    # Parts of a batch, as replicas have them, have the same scores.
    halves = [critic(part).numpy() for part in np.split(examples.numpy(), 2)]
    np.testing.assert_allclose(np.concatenate(halves), critic(examples), rtol=1e-6)
    assert critic(examples[:6]).shape == (6, 1)  # the last pack is completed


def test_the_terms_of_packs_are_those_of_examples_of_their_size(critic):
    """Compares with a critic of long examples, without packs, of the same weights."""
    tf.keras.utils.set_random_seed(0)
    plain = models.build("mlp", (PACK * SIZE,), 5, 8, activation="tanh")[1]
    for weight, value in zip(plain.weights, critic.weights, strict=True):
        weight.assign(value)
    objective = losses.GanObjective(penalty_weight=10.0)
    inputs = {"step": tf.constant(0, tf.int64)}
    real, fake, noise = (normal(COUNT, SIZE, seed=seed) for seed in (1, 2, 3))
    alpha = tf.repeat(tf.random.stateless_uniform([COUNT // PACK], [0, 0]), PACK)
    labels = tf.zeros([COUNT], tf.int32)
    found = PackedObjective(objective, PACK).critic_terms(
        critic, real, fake, alpha=alpha, noise=noise, labels=labels, **inputs
    )
    packs = [tf.reshape(each, [-1, PACK * SIZE]) for each in (real, fake, noise)]
    expected = objective.critic_terms(
        plain,
        *packs[:2],
        alpha=alpha[::PACK],
        noise=packs[2],
        labels=labels[::PACK],
        **inputs,
    )
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].shape == [COUNT]
        np.testing.assert_allclose(found[name][::PACK], value, rtol=1e-4, atol=1e-5, err_msg=name)
        assert float(tf.reduce_mean(found[name])) == pytest.approx(
            float(tf.reduce_mean(value)), rel=1e-4
        )
    found = PackedObjective(objective, PACK).generator_terms(critic, fake, labels=labels)
    expected = objective.generator_terms(plain, packs[1], labels=labels[::PACK])
    np.testing.assert_allclose(found["loss"][::PACK], expected["loss"], rtol=1e-4)


def test_a_packed_critic_passes_the_check_of_critics(critic):
    findings = losses.check_critic(critic, normal(COUNT, SIZE), group_size=PACK)
    assert not findings
    assert [finding.name for finding in losses.check_critic(critic, normal(COUNT, SIZE))] == [
        "coupled_examples"
    ]
