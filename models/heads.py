"""Label inputs and critic heads of conditional and unconditional networks."""

import tensorflow as tf

from .convolutions import Dense
from .design import Design

CONDITIONINGS = ("none", "acgan", "projection")


def label_input(design: Design) -> list[tf.Tensor]:
    """Returns a list of the label input, int32 `[B]`; an empty list for unconditional networks."""
    return [tf.keras.Input([], dtype="int32", name="labels")] if design.classes else []


def critic(
    design: Design, images: tf.Tensor, features: tf.Tensor, *, name: str = "critic"
) -> tf.keras.Model:
    """Builds a critic from its input and its features, with the head of Design.conditioning.

    The heads are:
      "none": maps images to scores `[B, 1]`, linear in the features.
      "acgan": maps images to scores `[B, 1]` and class logits `[B, classes]` (Odena et al. 2017,
        arXiv:1610.09585).
      "projection": maps (images, labels) to scores `[B, 1]`, to which the inner product of the
        features and an embedding of the label is added (Miyato and Koyama 2018,
        arXiv:1802.05637).

    Args:
      design: Specification of the networks.
      images: Input of the network, any shape.
      features: Features of `images`, `[B, F]`.
      name: Name of the Keras model.
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


@tf.keras.utils.register_keras_serializable("wgan_gp")
class Projection(Dense):
    """Inner product of features `[B, F]` and the embedding of labels `[B]`, shape `[B, 1]`."""

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
        # The products with all K embeddings, of which one is selected: a gather of embeddings
        # would have a sparse gradient, and K is small compared with F.
        products = super().call(features, training)
        return tf.reduce_sum(products * tf.one_hot(labels, self.filters), axis=1, keepdims=True)
