"""Tests of labels as inputs of subclassed Keras models, which have no attribute `inputs`."""

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
from models.design import CONDITIONINGS
from tests.helpers.runs import make_loop, open_data, strategy_over
from wgan_gp.config import Config
from wgan_gp.data.feed import distributed_batches
from wgan_gp.data.spec import DataSpec
from wgan_gp.inference.export import generator_signatures
from wgan_gp.inference.sampling import Sampler
from wgan_gp.training.probe import CriticProbe
from wgan_gp.training.state import create_state
from wgan_gp.training.step import ReplicaStep

CLASSES, LATENTS = 8, 4
CONFIG = Config(dataset="gaussians_8", batch_size=16, latent_size=LATENTS, model_width=4)


class LabelNetwork(tf.keras.Model):
    """A subclassed network whose outputs are all `scale` * label."""

    def __init__(self, outputs, scale):
        super().__init__()
        self.scale = scale
        self.dense = tf.keras.layers.Dense(outputs, kernel_initializer="zeros", use_bias=False)

    def call(self, inputs, training=False):
        values, labels = inputs
        return self.dense(values) + self.scale * tf.cast(labels, tf.float32)[:, None]


def build_networks():
    generator, critic, labels = LabelNetwork(2, 10.0), LabelNetwork(1, 1.0), tf.zeros([2], tf.int32)
    generator([tf.zeros([2, LATENTS]), labels])  # creates the variables
    critic([tf.zeros([2, 2]), labels])
    return generator, critic


class LabelErrors:
    """An objective whose terms are 0 if a network got the correct label of each example."""

    critic_term_names = ("loss", "fake", "real_score", "fake_score", "labels")
    generator_term_names = ("loss", "fake", "fake_score", "labels")

    def critic_terms(self, critic, real, fake, *, labels, **others):
        both = critic(tf.concat([real, fake], axis=0))[:, 0]
        real_score, fake_score = tf.split(both, 2)
        return {
            **self.generator_terms(critic, fake, labels=labels),
            "real_score": self._error(real_score, labels),
            "fake_score": self._error(fake_score, labels),
        }

    def generator_terms(self, critic, fake, *, labels):
        return {
            "loss": 0.0 * critic(fake)[:, 0],
            "fake": self._error(fake[:, 0], 10 * labels),
            "fake_score": self._error(critic(fake)[:, 0], labels),
            "labels": tf.cast(labels, tf.float32),
        }

    def constrain(self, weights): ...

    def _error(self, values, labels):
        return tf.abs(values - tf.cast(labels, tf.float32))


def make_step(strategy):
    return ReplicaStep(
        state=create_state(build_networks, lambda: build_networks()[0], CONFIG, strategy),
        objective=LabelErrors(),
        global_mean=losses.global_mean,
        regularization_share=losses.regularization_share,
        optimization=CONFIG,
        latent_size=LATENTS,
        classes=CLASSES,
        critic_takes_labels=True,
    )


def real_batches(strategy):
    return distributed_batches(open_data(CONFIG), strategy, 0, batch_size=CONFIG.batch_size)


def assert_labels_were_correct(terms):
    """Checks means of terms by name: some labels are not 0, and all errors are 0."""
    for name, value in terms.items():
        assert np.mean(value) > 0 if name.endswith("labels") else np.max(value) < 1e-4, name


@pytest.mark.slow
def test_subclassed_networks_get_labels_in_both_steps():
    strategy = strategy_over(2)
    loop = make_loop(make_step(strategy), strategy, n_critic=2)
    terms, _, _ = loop(real_batches(strategy), tf.constant(2, tf.int64))
    assert len(terms) == 9
    assert_labels_were_correct(terms)


def test_subclassed_networks_get_labels_in_the_probe():
    strategy = strategy_over(1)
    diagnostics = CriticProbe(
        make_step(strategy), strategy, batches=lambda: real_batches(strategy)
    )()
    assert len(diagnostics.terms) == 5
    assert_labels_were_correct(diagnostics.terms)


@pytest.mark.parametrize("label", [None, 5])
def test_a_subclassed_generator_gets_labels_in_sampling_and_export(label):
    strategy = strategy_over(1)
    generator, _ = build_networks()
    sampler = Sampler(generator, strategy, latent_size=LATENTS, seed=0, classes=CLASSES)
    labels = np.arange(20) % CLASSES if label is None else np.full(20, label)
    expected = np.stack([10.0 * labels] * 2, axis=1)
    np.testing.assert_allclose(sampler.sample(20, label), expected)
    np.testing.assert_allclose(sampler.generate(*sampler.noise(20, label)), expected)
    seed, count = tf.constant(0, tf.int64), tf.constant(20)
    exported = generator_signatures(generator, LATENTS, DataSpec((2,), CLASSES))["seed"]
    drawn = exported(seed, count, tf.constant(-1 if label is None else label))
    np.testing.assert_allclose(drawn["samples"], expected)


@pytest.mark.parametrize("conditioning", CONDITIONINGS)
def test_labeled_critics_are_those_with_two_inputs(conditioning):
    classes = 0 if conditioning == "none" else CLASSES
    _, critic = models.build("mlp", (2,), LATENTS, 4, classes=classes, conditioning=conditioning)
    assert (len(critic.inputs) == 2) == (conditioning in models.LABELED_CRITICS)
