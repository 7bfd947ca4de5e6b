"""Label inputs and critic heads of conditional and unconditional networks."""

import tensorflow as tf

from .convolutions import Dense
from .design import Design

CONDITIONINGS = ("none", "acgan", "projection", "concatenation")


def label_input(design: Design) -> list[tf.Tensor]:
    """Returns the input of labels, int32 `[B]`, or of conditions, float32 `[B, K]`, in a list.

    The list is empty for networks without either.
    """
    if design.condition_size:
        return [tf.keras.Input([design.condition_size], dtype="float32", name="conditions")]
    return [tf.keras.Input([], dtype="int32", name="labels")] if design.classes else []


def critic_labels(design: Design) -> list[tf.Tensor]:
    """Returns `label_input` for a critic that takes labels or conditions, otherwise []."""
    return label_input(design) if design.conditioning in ("projection", "concatenation") else []


def critic(
    design: Design, inputs: list[tf.Tensor], features: tf.Tensor, *, name: str = "critic"
) -> tf.keras.Model:
    """Builds a critic from its input and its features, with the head of Design.conditioning.

    The heads are:
      "none": maps images to scores `[B, 1]`, linear in the features.
      "acgan": maps images to scores `[B, 1]` and class logits `[B, classes]` (Odena et al. 2017,
        arXiv:1610.09585).
      "projection": maps (images, labels) to scores `[B, 1]`, to which the inner product of the
        features and an embedding of the label is added (Miyato and Koyama 2018,
        arXiv:1802.05637). The embedding of a condition is a linear function of it.
      "concatenation": maps (images, labels) to scores `[B, 1]`. The features depend on the labels
        (Mirza and Osindero 2014, arXiv:1411.1784).

    Args:
      design: Specification of the networks.
      inputs: Inputs of the network: images of any shape, and the `critic_labels`.
      features: Features of the inputs, `[B, F]`.
      name: Name of the Keras model.
    """
    spectral = design.critic_normalization == "spectral"
    given = inputs if len(inputs) > 1 else inputs[0]
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
    """Inner product of features `[B, F]` and the embedding of labels `[B]` or conditions."""

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
        if labels.dtype.is_integer:
            labels = tf.one_hot(labels, self.filters)
        return tf.reduce_sum(products * labels, axis=1, keepdims=True)
