"""Layers that Keras lacks, or has in a form that does not suit a gradient penalty."""

import tensorflow as tf


def normalization_layers(kind: str) -> list[tf.keras.layers.Layer]:
    """What follows an inner layer of a critic, by the name of --critic_normalization.

    "none": nothing. "layer": zero mean and unit variance over all of an example's features,
    (H, W, C) together, then a scale and an offset for each channel; epsilon 1e-5. So does
    the code of Gulrajani et al. 2017 (arXiv:1704.00028); Keras's LayerNormalization takes
    the channels of each pixel alone unless told otherwise, which is another function.
    """
    if kind == "none":
        return []
    return [tf.keras.layers.GroupNormalization(groups=1, epsilon=1e-5)]


class LeakyReLU(tf.keras.layers.Layer):
    """x where x > 0, slope * x elsewhere, with no second-order part.

    The function is piecewise linear, so its second derivative is zero. TensorFlow's own
    LeakyReluGrad does not know that, and sends a tensor of zeros back through the whole
    critic in the penalty's backward pass. Written as a product with a constant mask, that
    pass does not exist; values and gradients are the same.
    """

    def __init__(self, slope: float, **kwargs):
        super().__init__(**kwargs)
        self.slope = slope

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        mask = tf.where(inputs > 0, tf.ones_like(inputs), self.slope * tf.ones_like(inputs))
        return inputs * tf.stop_gradient(mask)

    def get_config(self) -> dict:
        return {**super().get_config(), "slope": self.slope}
