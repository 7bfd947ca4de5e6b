"""WGAN-GP with the networks and settings of Keras's example, in its usual formulation.

The example (https://keras.io/examples/generative/wgan_gp) trains on Fashion-MNIST, whose images
have the shape of those of MNIST. This is another implementation of the same networks and steps.
"""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf

from .turns import Turns, to_levels

LATENTS = 128
BATCH = 512
CRITIC_STEPS = 3
PENALTY_WEIGHT = 10.0
SAMPLING_BATCH = 500

layers = tf.keras.layers


def make_generator() -> tf.keras.Model:
    """Returns a generator of three nearest-neighbor upsamplings, from 4x4 to 32x32, cropped."""
    latents = x = tf.keras.Input([LATENTS])
    x = layers.Dense(4 * 4 * 256, use_bias=False)(x)
    x = layers.LeakyReLU(0.2)(layers.BatchNormalization()(x))
    x = layers.Reshape([4, 4, 256])(x)
    for filters in (128, 64, 1):
        x = layers.UpSampling2D(2)(x)
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        x = layers.LeakyReLU(0.2)(x) if filters > 1 else layers.Activation("tanh")(x)
    return tf.keras.Model(latents, layers.Cropping2D(2)(x))


def make_critic() -> tf.keras.Model:
    """Returns a critic of four convolutions with stride 2, with dropout."""
    images = x = tf.keras.Input([28, 28, 1])
    x = layers.ZeroPadding2D(2)(x)
    for filters, dropout in ((64, 0.0), (128, 0.3), (256, 0.3), (512, 0.0)):
        x = layers.Conv2D(filters, 5, strides=2, padding="same")(x)
        x = layers.LeakyReLU(0.2)(x)
        if dropout:
            x = layers.Dropout(dropout)(x)
    x = layers.Dropout(0.2)(layers.Flatten()(x))
    return tf.keras.Model(images, layers.Dense(1)(x))


class Model:
    """Both networks, their optimizers and steps; see `turns.Model`."""

    def __init__(self, folder: str, images: np.ndarray):
        self._images = tf.constant(images)
        self.generator, self.critic = make_generator(), make_critic()
        self.optimizers = [tf.keras.optimizers.Adam(2e-4, beta_1=0.5, beta_2=0.9) for _ in range(2)]
        for optimizer, network in zip(self.optimizers, (self.generator, self.critic), strict=True):
            optimizer.build(network.trainable_variables)
        self.iterations = tf.Variable(0, dtype=tf.int64)
        checkpoint = tf.train.Checkpoint(
            generator=self.generator,
            critic=self.critic,
            generator_optimizer=self.optimizers[0],
            critic_optimizer=self.optimizers[1],
            iterations=self.iterations,
        )
        self._manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=1)
        checkpoint.restore(self._manager.latest_checkpoint)

    def save(self) -> None:
        self._manager.save()

    def sample(self, count: int) -> np.ndarray:
        random = np.random.default_rng(0)
        parts = [
            self.generator(tf.constant(random.normal(size=[size, LATENTS]), tf.float32))
            for size in np.diff([*range(0, count, SAMPLING_BATCH), count])
        ]
        return to_levels(np.concatenate(parts))

    @tf.function
    def train_step(self) -> None:
        """Trains one iteration on random images."""
        for _ in range(CRITIC_STEPS):
            rows = tf.random.uniform([BATCH], maxval=len(self._images), dtype=tf.int32)
            self._critic_step(tf.cast(tf.gather(self._images, rows), tf.float32) / 127.5 - 1)
        latents = tf.random.normal([BATCH, LATENTS])
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(
                self.critic(self.generator(latents, training=True), training=True)
            )
        self._apply(0, tape, loss, self.generator)
        self.iterations.assign_add(1)

    def _critic_step(self, real: tf.Tensor) -> None:
        fake = self.generator(tf.random.normal([BATCH, LATENTS]), training=True)
        with tf.GradientTape() as tape:
            fake_scores, real_scores = (self.critic(each, training=True) for each in (fake, real))
            loss = tf.reduce_mean(fake_scores) - tf.reduce_mean(real_scores)
            loss += PENALTY_WEIGHT * self._penalty(real, fake)
        self._apply(1, tape, loss, self.critic)

    def _penalty(self, real: tf.Tensor, fake: tf.Tensor) -> tf.Tensor:
        # From U[0, 1), as in the paper; some versions of the example draw from N(0, 1).
        points = real + tf.random.uniform([BATCH, 1, 1, 1]) * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(points)
            scores = self.critic(points, training=True)
        gradients = tape.gradient(scores, points)
        norms = tf.sqrt(tf.reduce_sum(gradients**2, axis=[1, 2, 3]))
        return tf.reduce_mean((norms - 1.0) ** 2)

    def _apply(
        self, index: int, tape: tf.GradientTape, loss: tf.Tensor, network: tf.keras.Model
    ) -> None:
        weights = network.trainable_variables
        self.optimizers[index].apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )


def train(turns: Turns, folder: str, data: str) -> None:
    """Trains until there are no more turns."""
    model = Model(folder, np.load(os.path.join(data, "images.npy")))
    while turns.wait(model, int(model.iterations)):
        model.train_step()
