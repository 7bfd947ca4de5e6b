"""Inputs of labels or conditions, outputs of generators, and the heads of critics."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from .convolutions import Dense
from .design import LABELED_CRITICS, Design


def label_input(design: Design) -> list[tf.Tensor]:
    """Returns the input of labels, int32 `[B]`, or of conditions, float32 `[B, K]`, in a list.

    The list is empty for networks without either.
    """
    if design.condition_size:
        return [tf.keras.Input([design.condition_size], dtype="float32", name="conditions")]
    return [tf.keras.Input([], dtype="int32", name="labels")] if design.classes else []


def critic_labels(design: Design) -> list[tf.Tensor]:
    """Returns `label_input` for a critic that takes labels or conditions, otherwise []."""
    return label_input(design) if design.conditioning in LABELED_CRITICS else []


def label_vectors(design: Design, labels: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the one-hot encoding of labels, `[B, classes]`, or conditions as they are.

    Args:
      design: Specification of the networks.
      labels: A `label_input`, which is not empty.
    """
    (inputs,) = labels
    if not design.classes:
        return inputs
    return OneHot(design.classes, dtype="float32", name="one_hot")(inputs)


def with_conditions(design: Design, latents: tf.Tensor, labels: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns latents and conditions, concatenated; only the latents if there are no conditions.

    Args:
      design: Specification of the networks.
      latents: Latent vectors, `[B, latent_size]`.
      labels: The `label_input` of the generator.
    """
    if not design.condition_size:
        return latents
    concatenate = tf.keras.layers.Concatenate(dtype="float32", name="latents_and_conditions")
    return concatenate([latents, *labels])


def bounded(design: Design, x: tf.Tensor) -> tf.Tensor:
    """Returns the output of a generator in float32; in [-1, 1], by tanh, if Design.bounded."""
    if design.bounded:
        return tf.keras.layers.Activation("tanh", dtype="float32", name="tanh")(x)
    return tf.keras.layers.Activation("linear", dtype="float32", name="unbounded")(x)


def concatenated(design: Design, x: tf.Tensor, labels: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the first features of a critic, with labels if the conditioning is "concatenation".

    Args:
      design: Specification of the networks.
      x: The examples or their features, `[B, ..., C]`.
      labels: The `critic_labels`.

    Returns:
      `[B, ..., C + K]`, where K is the number of classes or the length of a condition; `x` for
      every other conditioning.
    """
    if design.conditioning != "concatenation":
        return x
    return AppendChannels(name="with_labels")([x, label_vectors(design, labels)])


def critic(
    design: Design, inputs: Sequence[tf.Tensor], features: tf.Tensor, *, name: str = "critic"
) -> tf.keras.Model:
    """Builds a critic from its input and its features, with the head of Design.conditioning.

    The heads are:
      "none": maps examples to scores `[B, 1]`, linear in the features.
      "acgan": maps examples to scores `[B, 1]` and class logits `[B, classes]` (Odena et al. 2017,
        arXiv:1610.09585).
      "projection": maps (examples, labels) to scores `[B, 1]`, to which the inner product of the
        features and an embedding of the label is added (Miyato and Koyama 2018,
        arXiv:1802.05637). The embedding of a condition is a linear function of it (compare Ding
        et al. 2021, arXiv:2011.07466).
      "concatenation": maps (examples, labels) to scores `[B, 1]`, linear in the features. The
        features depend on the labels, see `concatenated` (Mirza and Osindero 2014,
        arXiv:1411.1784).

    Args:
      design: Specification of the networks.
      inputs: Inputs of the network: examples of any shape, and the `critic_labels`.
      features: Features of the inputs, `[B, F]`.
      name: Name of the Keras model.
    """
    spectral = design.critic_normalization == "spectral"
    given = inputs[0] if len(inputs) == 1 else list(inputs)
    score = Dense(1, spectral=spectral, dtype="float32", name="score")(features)
    if design.conditioning == "acgan":
        logits = Dense(design.classes, spectral=spectral, dtype="float32", name="logits")(features)
        return tf.keras.Model(given, [score, logits], name=name)
    if design.conditioning == "projection":
        size = design.classes or design.condition_size
        projection = Projection(size, spectral=spectral, name="projection")
        added = tf.keras.layers.Add(dtype="float32", name="conditional_score")
        score = added([score, projection([features, inputs[1]])])
    return tf.keras.Model(given, score, name=name)


@tf.keras.utils.register_keras_serializable("wgan_gp")
class Projection(Dense):
    """Inner product of features `[B, F]` and the embedding of labels, shape `[B, 1]`.

    Labels are integers `[B]`, each of which has its own embedding. Conditions `[B, classes]` have
    the embedding condition @ kernel^T.
    """

    def __init__(self, classes: int, **kwargs):
        super().__init__(classes, use_bias=False, dtype="float32", **kwargs)

    def get_config(self) -> dict:
        config = super().get_config()
        return {
            "classes": config.pop("filters"),
            **{name: config[name] for name in config.keys() - {"use_bias", "dtype"}},
        }

    def build(self, input_shape):
        super().build(input_shape[0])

    def call(self, inputs, training: bool = False) -> tf.Tensor:
        features, labels = inputs
        # The products with all K embeddings, of which a label selects one: a gather of embeddings
        # would have a sparse gradient, and K is small compared with F.
        products = super().call(features, training)
        if labels.dtype.is_integer:
            labels = tf.one_hot(labels, self.filters)
        return tf.reduce_sum(products * labels, axis=1, keepdims=True)


@tf.keras.utils.register_keras_serializable("wgan_gp")
class OneHot(tf.keras.layers.Layer):
    """One-hot encoding of labels, `[B]` -> `[B, classes]`."""

    def __init__(self, classes: int, **kwargs):
        super().__init__(**kwargs)
        self.classes = classes

    def call(self, labels: tf.Tensor) -> tf.Tensor:
        return tf.one_hot(labels, self.classes)

    def get_config(self) -> dict:
        return {**super().get_config(), "classes": self.classes}


@tf.keras.utils.register_keras_serializable("wgan_gp")
class AppendChannels(tf.keras.layers.Layer):
    """Appends vectors to features as constant channels, [`[B, ..., C]`, `[B, K]`].

    The output is `[B, ..., C + K]` float32. Each pixel, or each time step, has the same K values.
    """

    def __init__(self, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})

    def call(self, inputs) -> tf.Tensor:
        x, vectors = inputs
        inner = [int(side) for side in x.shape[1:-1]]
        size = int(vectors.shape[-1])
        spread = tf.reshape(vectors, [-1, *[1] * len(inner), size])
        spread = tf.broadcast_to(spread, [tf.shape(x)[0], *inner, size])
        return tf.concat([x, spread], axis=-1)
