"""Outputs of generators of typed tables: numbers, and one-hot groups drawn with given noise."""

from __future__ import annotations

import math

import tensorflow as tf

from .design import Design

_NEVER = -1e9  # the logit of a category that does not exist
# The coefficients of log(erfc(x) / t) + x^2 as a polynomial of t = 1 / (1 + x / 2).
_ERFC = (
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806),
    *(0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277),
)
TEMPERATURE = 0.2  # of the softmax whose gradient is used, as in CTGAN (arXiv:1907.00503)


def split_noise(design: Design, latents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the latents of the network, and the noise of the one-hot groups.

    Args:
      design: Specification of the networks.
      latents: `[B, latent_size]`, of which the last numbers are the noise.
    """
    size = design.latent_size - design.noise_size
    split = Split([size, design.noise_size], dtype="float32", name="latents_and_noise")
    code, noise = split(latents)
    return code, noise


@tf.keras.utils.register_keras_serializable("wgan_gp")
class Split(tf.keras.layers.Layer):
    """Splits vectors `[B, sum(sizes)]` into parts `[B, size]`."""

    def __init__(self, sizes, **kwargs):
        super().__init__(**kwargs)
        self.sizes = list(sizes)

    def call(self, inputs):
        return tuple(tf.split(inputs, self.sizes, axis=-1))

    def compute_output_shape(self, input_shape):
        return tuple((*input_shape[:-1], size) for size in self.sizes)

    def get_config(self):
        return {**super().get_config(), "sizes": self.sizes}


@tf.keras.utils.register_keras_serializable("wgan_gp")
class OneHotGroups(tf.keras.layers.Layer):
    """Draws one-hot vectors for groups of features, and leaves the other features as they are.

    Each group is a sample of the categorical distribution whose logits are its inputs, drawn by the
    Gumbel-max trick from standard normal noise. The gradient is that of the softmax with
    TEMPERATURE (straight-through Gumbel-softmax, Jang et al. 2017, arXiv:1611.01144). With the same
    noise, the output is the same in training and in inference.

    Args:
      groups: Pairs of the first feature of a group and their number.
      masked: Pairs of a feature that is set to 0 unless another one is 1, and that other one.
      label_features: For each label, the feature that is 1. A third input, labels `[B]`, then
        determines what is drawn for the group of this feature.
    """

    def __init__(self, groups, masked=(), label_features=(), **kwargs):
        super().__init__(**kwargs)
        self.label_features = list(label_features)
        self.groups = [tuple(group) for group in groups]
        self.masked = [tuple(pair) for pair in masked]

    def call(self, inputs):
        features, noise, *labels = inputs
        size = features.shape[-1]
        # All groups at once, padded to the largest one, because a table may have hundreds.
        width = max(count for _, count in self.groups)
        places = [first + place for first, count in self.groups for place in range(count)]
        slots = [
            group * width + place
            for group, (_, count) in enumerate(self.groups)
            for place in range(count)
        ]
        logits = tf.gather(features, places, axis=-1) + _gumbel(noise)
        if self.label_features:
            # Nothing else in the group is drawn, and its logits get no gradient.
            group_of = [slot // width for slot in slots]
            place_of = [places.index(feature) for feature in self.label_features]
            place = tf.gather(place_of, labels[0])[:, None]
            is_given = tf.gather(group_of, place) == tf.constant(group_of)
            given = tf.where(tf.range(len(places)) == place, 0.0, _NEVER)
            logits = tf.where(is_given, given, logits)
        padded = tf.pad(logits, [[0, 0], [0, 1]], constant_values=_NEVER)
        padding = len(places)
        sources = [padding] * (len(self.groups) * width)
        for source, slot in enumerate(slots):
            sources[slot] = source
        padded = tf.reshape(tf.gather(padded, sources, axis=-1), [-1, len(self.groups), width])
        soft = tf.nn.softmax(padded / TEMPERATURE)
        hard = tf.one_hot(tf.argmax(padded, axis=-1), width, dtype=soft.dtype)
        drawn = soft + tf.stop_gradient(hard - soft)
        drawn = tf.gather(tf.reshape(drawn, [-1, len(self.groups) * width]), slots, axis=-1)
        # The features in their order: those of groups are the drawn ones, after all others.
        order = list(range(size))
        for number, place in enumerate(places):
            order[place] = size + number
        outputs = tf.gather(tf.concat([features, drawn], axis=-1), order, axis=-1)
        if not self.masked:
            return outputs
        shown, present = tf.ones_like(outputs[:, :1]), [size] * size
        for feature, other in self.masked:
            present[feature] = other
        return outputs * tf.gather(tf.concat([outputs, shown], axis=-1), present, axis=-1)

    def compute_output_shape(self, input_shape):
        return input_shape[0]

    def get_config(self):
        return {
            **super().get_config(),
            "groups": self.groups,
            "masked": self.masked,
            "label_features": self.label_features,
        }


def _gumbel(noise: tf.Tensor) -> tf.Tensor:
    """Returns standard Gumbel numbers for standard normal ones: -log(-log(F(noise)))."""
    # The logarithm of the smaller of F and 1 - F, by a polynomial with a relative error of 1.2e-7
    # (Press et al., Numerical Recipes, section 6.2). Formats of exports lack erfc and log1p.
    x = tf.abs(noise) / math.sqrt(2.0)
    t = 1.0 / (1.0 + 0.5 * x)
    polynomial = tf.zeros_like(t)
    for coefficient in reversed(_ERFC):
        polynomial = polynomial * t + coefficient
    log_tail = tf.math.log(0.5 * t) - x * x + polynomial
    tail = tf.exp(log_tail)
    series = tail * (1.0 + tail * (0.5 + tail * (1.0 / 3.0 + tail / 4.0)))  # of -log(1 - tail)
    upper = tf.where(tail < 0.01, series, -tf.math.log(1.0 - tail))
    return -tf.math.log(tf.where(noise < 0, -log_tail, upper))
