"""Labels reach the networks that take them, whatever kind of Keras model these are."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import open_data, strategy_over

import losses
import models
from models.heads import CONDITIONINGS
from wgan_gp.config import Config
from wgan_gp.data.pipeline import distributed_batches
from wgan_gp.export import signatures
from wgan_gp.loop import make_train_loop
from wgan_gp.probe import Probe
from wgan_gp.sampling import Sampler
from wgan_gp.state import create_state
from wgan_gp.step import ReplicaStep

CLASSES, LATENTS = 8, 4
CONFIG = Config(dataset="gaussians_8", batch_size=16, latent_size=LATENTS, model_width=4)


class Generator(tf.keras.Model):
    """Has no `inputs`, as every subclass of Model: draws (10 * label, 10 * label)."""

    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(2, kernel_initializer="zeros", use_bias=False)

    def call(self, inputs, training=False):
        latents, labels = inputs
        return self.dense(latents) + 10.0 * tf.cast(labels, tf.float32)[:, None]


class Critic(tf.keras.Model):
    """Scores every example with its label."""

    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(1, kernel_initializer="zeros", use_bias=False)

    def call(self, inputs, training=False):
        examples, labels = inputs
        return self.dense(examples) + tf.cast(labels, tf.float32)[:, None]


def build_networks():
    generator, critic, labels = Generator(), Critic(), tf.zeros([2], tf.int32)
    generator([tf.zeros([2, LATENTS]), labels])  # makes the variables
    critic([tf.zeros([2, 2]), labels])
    return generator, critic


class SeenLabels:
    """Terms that are 0 where a network saw the label of each example. The networks do not train."""

    critic_term_names = ("loss", "fake", "real_score", "fake_score", "labels")
    generator_term_names = ("loss", "fake", "fake_score", "labels")

    def critic_terms(self, critic, real, fake, *, labels, **others):
        both = critic(tf.concat([real, fake], axis=0))[:, 0]
        real_score, fake_score = tf.split(both, 2)
        return {
            **self.generator_terms(critic, fake, labels=labels),
            "real_score": self._difference(real_score, labels),
            "fake_score": self._difference(fake_score, labels),
        }

    def generator_terms(self, critic, fake, *, labels):
        return {
            "loss": 0.0 * critic(fake)[:, 0],
            "fake": self._difference(fake[:, 0], 10 * labels),
            "fake_score": self._difference(critic(fake)[:, 0], labels),
            "labels": tf.cast(labels, tf.float32),
        }

    def constrain(self, weights): ...

    def _difference(self, values, labels):
        return tf.abs(values - tf.cast(labels, tf.float32))


def make_step(strategy):
    return ReplicaStep(
        state=create_state(build_networks, CONFIG, strategy),
        objective=SeenLabels(),
        global_mean=losses.global_mean,
        latent_size=LATENTS,
        batch_size=CONFIG.batch_size,
        generator_batch_size=CONFIG.generator_batch,
        seed=0,
        classes=CLASSES,
        critic_takes_labels=True,
    )


def real_batches(strategy):
    return distributed_batches(open_data(CONFIG), strategy, 0, batch_size=CONFIG.batch_size)


def assert_labels_were_seen(terms):
    """`terms`: means by name; a label other than 0 was drawn, and none was missed."""
    for name, value in terms.items():
        assert np.mean(value) > 0 if name.endswith("labels") else np.max(value) < 1e-4, name


def test_subclassed_networks_see_labels_in_both_steps():
    strategy = strategy_over(2)
    loop = make_train_loop(make_step(strategy), strategy, n_critic=2, jit_compile=False)
    terms, _, _ = loop(real_batches(strategy), tf.constant(2, tf.int64))
    assert len(terms) == 9
    assert_labels_were_seen(terms)


def test_subclassed_networks_see_labels_in_the_probe():
    strategy = strategy_over(1)
    look = Probe(make_step(strategy), strategy, batches=lambda: real_batches(strategy))()
    assert len(look.terms) == 5
    assert_labels_were_seen(look.terms)


@pytest.mark.parametrize("label", [None, 5])
def test_a_subclassed_generator_sees_labels_in_sampling_and_export(label):
    strategy = strategy_over(1)
    generator, _ = build_networks()
    sampler = Sampler(generator, strategy, latent_size=LATENTS, seed=0, classes=CLASSES)
    labels = np.arange(20) % CLASSES if label is None else np.full(20, label)
    expected = np.stack([10.0 * labels] * 2, axis=1)
    np.testing.assert_allclose(sampler.sample(20, label), expected)
    np.testing.assert_allclose(sampler.generate(*sampler.noise(20, label)), expected)
    seed, count = tf.constant(0, tf.int64), tf.constant(20)
    exported = signatures(generator, LATENTS, CLASSES)["seed"]
    drawn = exported(seed, count, tf.constant(-1 if label is None else label))
    np.testing.assert_allclose(drawn["samples"], expected)


@pytest.mark.parametrize("conditioning", CONDITIONINGS)
def test_the_registry_knows_which_critics_take_labels(conditioning):
    classes = 0 if conditioning == "none" else CLASSES
    _, critic = models.build("mlp", (2,), LATENTS, 4, classes=classes, conditioning=conditioning)
    assert (len(critic.inputs) == 2) == (conditioning in models.LABELED_CRITICS)
