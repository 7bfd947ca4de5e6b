"""WGAN-GP as it is usually written with Keras.

The networks are those of `models/`, built from Keras's layers with the same names. The objective
calls the critic separately for real, fake and interpolated examples. A Keras model with a custom
`train_step` contains both, and `fit` trains it.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from wgan_gp.data.feed import without_autotune

from .initial_state import InitialState, Weights
from .work import Work

layers = tf.keras.layers


class Trainer:
    """A Keras model, trained by `fit`, as an `initial_state.Trainer`.

    Args:
      work: The workload.
      path: The file of the initial state.
      jit_compile: The argument of `compile`.
    """

    def __init__(self, work: Work, path: str, *, jit_compile: bool | str):
        self._initial = InitialState.read(path)
        self._model = WGANGP(work)
        set_weights(self._model.generator, self._initial.generator)
        set_weights(self._model.critic, self._initial.critic)
        self._model.compile(jit_compile=jit_compile)
        real = self._initial.real.reshape(-1, *work.example_shape)
        # Without autotuning, as in this project: with tf.data's tuner, `fit` would wait at its end.
        self._data = without_autotune(tf.data.Dataset.from_tensors(real).cache().repeat())

    def replay(self) -> list[tuple[float, float]]:
        initial = self._initial
        critic_step = tf.function(self._model.critic_step)
        generator_step = tf.function(self._model.generator_step)
        losses = []
        for *noise, latents in zip(
            initial.latents, initial.alpha, initial.generator_latents, strict=True
        ):
            critic = [critic_step(*each) for each in zip(initial.real, *noise, strict=True)]
            losses.append((float(np.mean(critic)), float(generator_step(latents))))
        return losses

    def run(self, iterations: int) -> None:
        self._model.fit(self._data, steps_per_epoch=iterations, epochs=1, verbose=0)


def networks(work: Work) -> tuple[tf.keras.Model, tf.keras.Model]:
    """Returns a generator and a critic with newly initialized weights."""
    build = {"dcgan": (dcgan_generator, dcgan_critic), "resnet": (resnet_generator, resnet_critic)}
    generator, critic = build[work.model]
    return generator(work), critic(work)


def set_weights(network: tf.keras.Model, weights: Weights) -> None:
    """Sets the weights of each layer by its name."""
    for layer in network.layers:
        if layer.weights:
            layer.set_weights(weights[layer.name])


def batch_norm(name: str) -> tf.keras.layers.Layer:
    """Returns Keras's batch-norm with this project's epsilon."""
    return layers.BatchNormalization(epsilon=1e-5, name=name)


def dcgan_generator(work: Work) -> tf.keras.Model:
    """Returns a generator of strided transposed convolutions, which starts from 4x4 pixels."""
    sizes = work.feature_sizes
    filters = [work.width * 2**index for index in range(len(sizes) - 1)]
    latents = tf.keras.Input([work.latent_size])
    x = layers.Dense(4 * 4 * filters[-1], name="dense")(latents)
    x = layers.Reshape([4, 4, filters[-1]])(x)
    x = layers.ReLU()(batch_norm("normalization_0")(x))
    for number, size in enumerate(sizes[-2:0:-1], start=1):
        x = layers.Conv2DTranspose(
            filters[-1 - number],
            5,
            strides=2,
            padding="same",
            use_bias=False,
            name=f"conv_{number}",
        )(x)
        if size % 2:  # 7 of 8 pixels
            x = layers.Cropping2D([[0, 1], [0, 1]])(x)
        x = layers.ReLU()(batch_norm(f"normalization_{number}")(x))
    x = layers.Conv2DTranspose(work.channels, 5, strides=2, padding="same", name="image")(x)
    return tf.keras.Model(latents, layers.Activation("tanh")(x), name="generator")


def dcgan_critic(work: Work) -> tf.keras.Model:
    """Returns a critic of strided convolutions, which reduce images to 4x4 pixels."""
    images = x = tf.keras.Input(work.example_shape)
    for index in range(len(work.feature_sizes) - 1):
        filters = work.width * 2**index
        x = layers.Conv2D(filters, 5, strides=2, padding="same", name=f"conv_{index + 1}")(x)
        x = layers.LeakyReLU(0.2)(x)
    scores = layers.Dense(1, name="score")(layers.Flatten()(x))
    return tf.keras.Model(images, scores, name="critic")


def resnet_generator(work: Work) -> tf.keras.Model:
    """Returns a generator of three blocks that double the size, which starts from 4x4 pixels."""
    latents = tf.keras.Input([work.latent_size])
    x = layers.Dense(4 * 4 * work.width, name="linear")(latents)
    x = layers.Reshape([4, 4, work.width])(x)
    for name in ("up_1", "up_2", "up_3"):
        h = layers.ReLU()(batch_norm(f"{name}_norm_1")(x))
        h = conv(work.width, 3, f"{name}_conv_1")(layers.UpSampling2D()(h))
        h = layers.ReLU()(batch_norm(f"{name}_norm_2")(h))
        h = conv(work.width, 3, f"{name}_conv_2")(h)
        x = layers.Add()([h, conv(work.width, 1, f"{name}_shortcut")(layers.UpSampling2D()(x))])
    x = layers.ReLU()(batch_norm("normalization")(x))
    x = conv(work.channels, 3, "image")(x)
    return tf.keras.Model(latents, layers.Activation("tanh")(x), name="generator")


def resnet_critic(work: Work) -> tf.keras.Model:
    """Returns a critic of two blocks that halve the size, two that keep it, and a mean."""
    images = tf.keras.Input(work.example_shape)
    h = layers.ReLU()(conv(work.width, 3, "down_1_conv_1")(images))
    h = layers.AveragePooling2D(2)(conv(work.width, 3, "down_1_conv_2")(h))
    shortcut = conv(work.width, 1, "down_1_shortcut")(layers.AveragePooling2D(2)(images))
    x = layers.Add()([h, shortcut])
    for name in ("down_2", "block_3", "block_4"):
        h = conv(work.width, 3, f"{name}_conv_1")(layers.ReLU()(x))
        h = conv(work.width, 3, f"{name}_conv_2")(layers.ReLU()(h))
        if name == "down_2":
            h = layers.AveragePooling2D(2)(h)
            x = layers.AveragePooling2D(2)(conv(work.width, 1, "down_2_shortcut")(x))
        x = layers.Add()([h, x])
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(x))
    return tf.keras.Model(images, layers.Dense(1, name="score")(x), name="critic")


def conv(filters: int, size: int, name: str) -> tf.keras.layers.Layer:
    """Returns Keras's convolution with zero padding."""
    return layers.Conv2D(filters, size, padding="same", name=name)


class WGANGP(tf.keras.Model):
    """A generator and a critic with their training step."""

    def __init__(self, work: Work):
        super().__init__()
        self.work = work
        self.generator, self.critic = networks(work)
        self.generator_optimizer, self.critic_optimizer = (
            tf.keras.optimizers.Adam(
                work.learning_rate, beta_1=work.beta_1, beta_2=work.beta_2, epsilon=1e-8
            )
            for _ in range(2)
        )
        self.generator_optimizer.build(self.generator.trainable_variables)
        self.critic_optimizer.build(self.critic.trainable_variables)

    def gradient_penalty(self, real: tf.Tensor, fake: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
        """Returns the mean of (|gradient| - 1)^2 at points between `real` and `fake`."""
        points = real + alpha[:, None, None, None] * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(points)
            scores = self.critic(points, training=True)
        gradients = tape.gradient(scores, points)
        norm = tf.sqrt(tf.reduce_sum(tf.square(gradients), axis=[1, 2, 3]))
        return tf.reduce_mean(tf.square(norm - 1.0))

    def critic_step(self, real: tf.Tensor, latents: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
        """Updates the critic; returns its loss before the update."""
        fake = self.generator(latents, training=True)
        with tf.GradientTape() as tape:
            real_scores = self.critic(real, training=True)
            fake_scores = self.critic(fake, training=True)
            loss = tf.reduce_mean(fake_scores) - tf.reduce_mean(real_scores)
            loss += 10.0 * self.gradient_penalty(real, fake, alpha)
        weights = self.critic.trainable_variables
        self.critic_optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        return loss

    def generator_step(self, latents: tf.Tensor) -> tf.Tensor:
        """Updates the generator; returns its loss before the update."""
        with tf.GradientTape() as tape:
            fake = self.generator(latents, training=True)
            loss = -tf.reduce_mean(self.critic(fake, training=True))
        weights = self.generator.trainable_variables
        self.generator_optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        return loss

    def train_step(self, data: tf.Tensor) -> dict[str, tf.Tensor]:
        """Trains one iteration, for `fit`; `data` contains real examples for each critic step."""
        work = self.work
        for real in tf.split(data, work.n_critic):
            latents = tf.random.normal([work.batch_size, work.latent_size])
            critic_loss = self.critic_step(real, latents, tf.random.uniform([work.batch_size]))
        latents = tf.random.normal([work.generator_batch_size, work.latent_size])
        return {"critic_loss": critic_loss, "generator_loss": self.generator_step(latents)}
