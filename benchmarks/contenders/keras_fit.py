"""WGAN-GP as it is usually written in TensorFlow, to compare with.

The networks of `models/`, of Keras's own layers under the same names; the objective with a call of
the critic each for real, fake and interpolated examples; both in a Keras model with a train_step
of its own, to be trained by `fit`.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from wgan_gp.data.pipeline import without_autotune

from .start import Start, Weights
from .work import Work

layers = tf.keras.layers


class Trainer:
    """See start.Trainer."""

    def __init__(self, work: Work, path: str, *, jit_compile: bool | str):
        self._start = Start.read(path)
        self._model = WGANGP(work)
        set_weights(self._model.generator, self._start.generator)
        set_weights(self._model.critic, self._start.critic)
        self._model.compile(jit_compile=jit_compile)
        real = self._start.real.reshape(-1, *work.example_shape)
        # As here: tuned, fit waits at its end.
        self._data = without_autotune(tf.data.Dataset.from_tensors(real).cache().repeat())

    def replay(self) -> list[tuple[float, float]]:
        start = self._start
        critic_step = tf.function(self._model.critic_step)
        generator_step = tf.function(self._model.generator_step)
        losses = []
        for *noise, latents in zip(
            start.latents, start.alpha, start.generator_latents, strict=True
        ):
            critic = [critic_step(*each) for each in zip(start.real, *noise, strict=True)]
            losses.append((float(np.mean(critic)), float(generator_step(latents))))
        return losses

    def run(self, iterations: int) -> None:
        self._model.fit(self._data, steps_per_epoch=iterations, epochs=1, verbose=0)


def networks(work: Work) -> tuple[tf.keras.Model, tf.keras.Model]:
    """Generator and critic, with fresh weights."""
    build = {"dcgan": (dcgan_generator, dcgan_critic), "resnet": (resnet_generator, resnet_critic)}
    generator, critic = build[work.model]
    return generator(work), critic(work)


def set_weights(network: tf.keras.Model, weights: Weights) -> None:
    """Sets the weights of each layer, by its name."""
    for layer in network.layers:
        if layer.weights:
            layer.set_weights(weights[layer.name])


def batch_norm(name: str) -> tf.keras.layers.Layer:
    """Keras's own."""
    return layers.BatchNormalization(epsilon=1e-5, name=name)


def dcgan_generator(work: Work) -> tf.keras.Model:
    """Strided transposed convolutions from 4x4 pixels on."""
    sizes = work.halvings
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
        if size % 2:  # 7 pixels
            x = layers.Cropping2D([[0, 1], [0, 1]])(x)
        x = layers.ReLU()(batch_norm(f"normalization_{number}")(x))
    x = layers.Conv2DTranspose(work.channels, 5, strides=2, padding="same", name="image")(x)
    return tf.keras.Model(latents, layers.Activation("tanh")(x), name="generator")


def dcgan_critic(work: Work) -> tf.keras.Model:
    """Strided convolutions to 4x4 pixels."""
    images = x = tf.keras.Input(work.example_shape)
    for index in range(len(work.halvings) - 1):
        filters = work.width * 2**index
        x = layers.Conv2D(filters, 5, strides=2, padding="same", name=f"conv_{index + 1}")(x)
        x = layers.LeakyReLU(0.2)(x)
    scores = layers.Dense(1, name="score")(layers.Flatten()(x))
    return tf.keras.Model(images, scores, name="critic")


def resnet_generator(work: Work) -> tf.keras.Model:
    """Three blocks that double the size, from 4x4 pixels on."""
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
    """Two blocks that halve the size, two that do not, a mean over the pixels."""
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
    """Keras's own."""
    return layers.Conv2D(filters, size, padding="same", name=name)


class WGANGP(tf.keras.Model):
    """Both networks, and how they are trained."""

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
        """The mean of (|gradient| - 1)^2 between `real` and `fake`."""
        between = real + alpha[:, None, None, None] * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            scores = self.critic(between, training=True)
        gradients = tape.gradient(scores, between)
        norm = tf.sqrt(tf.reduce_sum(tf.square(gradients), axis=[1, 2, 3]))
        return tf.reduce_mean(tf.square(norm - 1.0))

    def critic_step(self, real: tf.Tensor, latents: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
        """An update of the critic; its loss before it."""
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
        """An update of the generator; its loss before it."""
        with tf.GradientTape() as tape:
            fake = self.generator(latents, training=True)
            loss = -tf.reduce_mean(self.critic(fake, training=True))
        weights = self.generator.trainable_variables
        self.generator_optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        return loss

    def train_step(self, data: tf.Tensor) -> dict[str, tf.Tensor]:
        """An iteration, as `fit` asks for it; `data` holds real examples for each critic step."""
        work = self.work
        for real in tf.split(data, work.n_critic):
            latents = tf.random.normal([work.batch_size, work.latent_size])
            critic_loss = self.critic_step(real, latents, tf.random.uniform([work.batch_size]))
        latents = tf.random.normal([work.generator_batch_size, work.latent_size])
        return {"critic_loss": critic_loss, "generator_loss": self.generator_step(latents)}
