"""A generator that knows the form of its signals: a damped sine in each channel, and white noise.

A network maps latents to the parameters of the signal, and the last layer computes the signal

    x(t) = exp(-decay t) (a cos(2 pi frequency t) + b sin(2 pi frequency t)) + deviation noise(t),
    t = 0 ... T - 1,

so that training has to find only the distribution of the parameters. With more latents than values
of an example, which are T C for C channels, the last T C latents are the noise, whose deviation is
learned for each channel. With fewer, the signals have no noise. They are computed in float64 then,
because the rounding of float32 would tell them from the data (docs/evaluation.md), and TPUs do not
support it. The critic is one of the built-in networks:

    --generator_model=examples/signals/damped_sines.py --model=mlp --scaling=none --latent_size=8

Without --scaling=none, the generator would have to learn the offset and the scale of the data.
--precision has no effect on the generator. A program that loads an export as Keras files imports
this file first.
"""

from __future__ import annotations

import math

import tensorflow as tf

from models.design import Design, DesignError

layers = tf.keras.layers
FEWEST_LATENTS = 4  # that the parameters depend on


def generator(design: Design) -> tf.keras.Model:
    """Builds the generator, which maps latents to signals `[B, T, C]`.

    It has `model_depth` hidden layers of `generator_width` units.

    Raises:
      DesignError: If the examples are no signals, the run is conditional, or there are not enough
        latents for the parameters and the noise.
    """
    if len(design.example_shape) != 2 or design.classes or design.condition_size:
        raise DesignError("damped sines are signals (T, C)", "give --conditioning=none and signals")
    length, channels = design.example_shape
    values = length * channels
    if 0 <= design.latent_size - values < FEWEST_LATENTS:
        raise DesignError(
            f"--latent_size={design.latent_size} gives {values} latents for the noise and "
            f"{design.latent_size - values} for the parameters",
            f"give less than {values} for no noise, or at least {values + FEWEST_LATENTS}",
        )
    noise_size = values if design.latent_size > values else 0
    latents = tf.keras.Input([design.latent_size], name="latents")
    x = latents[:, : design.latent_size - noise_size]
    for _ in range(design.model_depth):
        x = layers.Dense(design.generator_width, design.activation, dtype="float32")(x)
    x = layers.Dense(4 * channels, dtype="float32", name="parameters")(x)
    computed_in = "float32" if noise_size else "float64"
    x = DampedSines(length, channels, computed_in, dtype="float32", name="signal")(x)
    if noise_size:
        noise = layers.Reshape([length, channels], dtype="float32")(latents[:, -noise_size:])
        noise = LearnedScale(dtype="float32", name="noise")(noise)
        x = layers.Add(dtype="float32", name="noisy_signal")([x, noise])
    return tf.keras.Model(latents, x, name="generator")


@tf.keras.utils.register_keras_serializable("examples.damped_sines")
class DampedSines(layers.Layer):
    """Computes damped sines of given parameters, `[B, 4 C]` float32 -> `[B, T, C]` float32.

    All frequencies below that of Nyquist and all positive decays are possible. The first ones of an
    untrained generator are near 0.1 cycles and 0.03 e-folds per time step.

    Args:
      length: T.
      channels: C.
      computed_in: The dtype of the computation, "float32" or "float64".
      kwargs: Further arguments of the layer.
    """

    def __init__(self, length: int, channels: int, computed_in: str, **kwargs):
        super().__init__(**kwargs)
        self.length = length
        self.channels = channels
        self.computed_in = computed_in

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        parameters = tf.reshape(tf.cast(inputs, self.computed_in), [-1, 1, 4, self.channels])
        frequency, decay, cosine, sine = tf.unstack(parameters, axis=2)
        times = tf.range(self.length, dtype=self.computed_in)[:, None]
        phase = math.pi * tf.sigmoid(frequency - 1.4) * times
        wave = cosine * tf.cos(phase) + sine * tf.sin(phase)
        return tf.cast(tf.exp(-tf.nn.softplus(decay - 3.5) * times) * wave, tf.float32)

    def get_config(self) -> dict:
        own = {"length": self.length, "channels": self.channels, "computed_in": self.computed_in}
        return {**super().get_config(), **own}


@tf.keras.utils.register_keras_serializable("examples.damped_sines")
class LearnedScale(layers.Layer):
    """Multiplies each channel by a positive number that is learned, at first 0.1."""

    def build(self, input_shape: tuple[int, ...]) -> None:
        start = tf.keras.initializers.Constant(math.log(0.1))
        self.log_scale = self.add_weight(
            shape=[input_shape[-1]], initializer=start, name="log_scale"
        )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs * tf.exp(self.log_scale)
