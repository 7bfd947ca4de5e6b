"""The networks and the objective as they are usually written, to compare with.

TensorFlow's and Keras's own layers, of the same mathematics and with the same weights: relu with
the gradient that TensorFlow gives it, Keras's batch-norm, convolutions and resampling apart, a
gradient for every bias, and a call of the critic each for real and for fake examples.
"""

from __future__ import annotations

import dataclasses
from unittest import mock

import tensorflow as tf

import losses
import models
import train
from models.convolutions import ConvMeanPool, UpsampleConv, mean_pool
from wgan_gp.config import Config
from wgan_gp.step import ReplicaStep


class PlainReLU(tf.keras.layers.Layer):
    """As TensorFlow differentiates it."""

    def __init__(self, slope: float = 0.0, *, after_few_channels: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.slope = slope

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.nn.leaky_relu(inputs, self.slope) if self.slope else tf.nn.relu(inputs)


class PlainBatchNormalization(tf.keras.layers.BatchNormalization):
    """Keras's own, with the arguments of ours."""

    def __init__(self, *, classes: int = 0, sampling_statistics: str = "", **kwargs):
        super().__init__(epsilon=1e-5, synchronized=True, **kwargs)


class PlainConvMeanPool(ConvMeanPool):
    """In the order of the specification, the 1x1 shortcut too."""

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return mean_pool(tf.nn.conv2d(inputs, kernel, 1, "SAME"))


class PlainUpsampleConv(UpsampleConv):
    """Likewise, with Keras's upsampling."""

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return tf.nn.conv2d(tf.keras.layers.UpSampling2D()(inputs), kernel, 1, "SAME")


class PlainObjective(losses.GanObjective):
    """Real and fake examples in a call each."""

    def critic_terms(self, critic, real, fake, *, alpha, noise, step, labels=None):
        real_scores, fake_scores = critic(real)[:, 0], critic(fake)[:, 0]
        norm = losses.gradient_norm(critic, losses.interpolate(real, fake, alpha))
        penalty = tf.square(norm - 1.0)
        return {
            "loss": fake_scores - real_scores + self.penalty_weight * penalty,
            "wasserstein": real_scores - fake_scores,
            "penalty": penalty,
            "gradient_norm": norm,
        }


def make_plain_step(config: Config, strategy: tf.distribute.Strategy) -> ReplicaStep:
    """The step of a run, with networks and an objective as usually written."""
    for module in ("dcgan", "resnet"):  # so that there is something to put the plain ones into
        __import__(f"{models.__name__}.{module}")
    with (
        mock.patch("models.activations.LeakyReLU", PlainReLU),
        mock.patch("models.normalization.BatchNormalization", PlainBatchNormalization),
        mock.patch("models.resnet.ConvMeanPool", PlainConvMeanPool),
        mock.patch("models.resnet.UpsampleConv", PlainUpsampleConv),
    ):
        step = train.make_step(config, train.make_state(config, strategy))
    for layer in step.state.generator.layers:
        layer.bias_cancelled = False
    return dataclasses.replace(step, objective=PlainObjective())
