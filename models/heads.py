"""Where labels enter a network, and what a critic returns."""

import tensorflow as tf

from .convolutions import Dense
from .design import Design

CONDITIONINGS = ("none", "acgan", "projection")


def label_input(design: Design) -> list[tf.Tensor]:
    """`[labels]`, int32 `[B]`, for a network that takes them."""
    return [tf.keras.Input([], dtype="int32", name="labels")] if design.classes else []


def critic(
    design: Design, images: tf.Tensor, features: tf.Tensor, *, name: str = "critic"
) -> tf.keras.Model:
    """The critic that scores `features` `[B, F]` of its input `images`.

    By Design.conditioning:
      "none": images -> scores `[B, 1]`, linear in the features.
      "acgan": images -> scores `[B, 1]` and class logits `[B, classes]` (Odena et al. 2017,
        arXiv:1610.09585).
      "projection": (images, labels) -> scores `[B, 1]`, with the inner product of the features
        and an embedding of the label added (Miyato and Koyama 2018, arXiv:1802.05637).
    """
    spectral = design.critic_normalization == "spectral"
    score = Dense(1, spectral=spectral, dtype="float32", name="score")(features)
    if design.conditioning == "acgan":
        logits = Dense(design.classes, spectral=spectral, dtype="float32", name="logits")(features)
        return tf.keras.Model(images, [score, logits], name=name)
    if design.conditioning == "projection":
        (labels,) = label_input(design)
        projection = Projection(design.classes, spectral=spectral, name="projection")
        added = tf.keras.layers.Add(dtype="float32", name="conditional_score")
        return tf.keras.Model(
            [images, labels], added([score, projection([features, labels])]), name=name
        )
    return tf.keras.Model(images, score, name=name)


class Projection(Dense):
    """Features `[B, F]` and labels `[B]` -> their inner product with the label's row, `[B, 1]`."""

    def __init__(self, classes: int, **kwargs):
        super().__init__(classes, use_bias=False, dtype="float32", **kwargs)

    def build(self, input_shape):
        super().build(input_shape[0])

    def call(self, inputs, training: bool = False) -> tf.Tensor:
        features, labels = inputs
        # All classes' products and then the label's own: a gather of rows has no dense
        # gradient, and K is small beside F.
        products = super().call(features, training)
        return tf.reduce_sum(products * tf.one_hot(labels, self.filters), axis=1, keepdims=True)
