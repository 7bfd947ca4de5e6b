"""Activations whose second-order gradients are efficient, for critics with a gradient penalty."""

import tensorflow as tf


@tf.keras.utils.register_keras_serializable("wgan_gp")
class LeakyReLU(tf.keras.layers.Layer):
    """Leaky ReLU without a second-order term: x where x > 0, slope * x elsewhere.

    The function is piecewise linear, so its second derivative is zero. TensorFlow's gradient of
    ReLU does not use this: in the backward pass of the penalty, it propagates a tensor of zeros
    through the whole critic. Expressed as `tf.where`, there is no such pass; values and gradients
    are the same.

    Args:
      slope: Slope for negative x, in [0, 1); 0 is ReLU.
      after_few_channels: Whether the input comes from a convolution with so few input channels
        that a TPU takes longer to write its output than to compute it. If so, the layer uses
        another form of the same function, which the compiler fuses into the operations that read
        it (docs/performance.md).
    """

    def __init__(self, slope: float = 0.0, *, after_few_channels: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.slope = slope
        self.after_few_channels = after_few_channels

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if self.after_few_channels:
            return _by_product(inputs, self.slope)
        if self.slope:
            return _leaky(inputs, self.slope)
        return tf.where(inputs > 0, inputs, tf.zeros_like(inputs))

    def get_config(self) -> dict:
        own = {"slope": self.slope, "after_few_channels": self.after_few_channels}
        return {**super().get_config(), **own}


def _leaky(inputs: tf.Tensor, slope: float) -> tf.Tensor:
    """Applies TensorFlow's leaky ReLU, which is a single pass over the data on a CPU.

    TensorFlow's second derivative flows through `features`, which is therefore a constant here.
    """

    @tf.custom_gradient
    def leaky(x: tf.Tensor):
        outputs = tf.nn.leaky_relu(x, slope)
        features = tf.stop_gradient(outputs)  # only the signs of x matter

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return tf.raw_ops.LeakyReluGrad(gradients=upstream, features=features, alpha=slope)

        return outputs, gradient

    return leaky(inputs)


def _by_product(inputs: tf.Tensor, slope: float) -> tf.Tensor:
    """Applies leaky ReLU, as a product in the forward pass and `tf.where` in the backward pass."""

    @tf.custom_gradient
    def product(x: tf.Tensor):
        positive = tf.stop_gradient(x) > 0
        # `tf.where` between two tensors in place of a cast of `positive`, because XLA rewrites a
        # product with such a cast as a selection.
        factor = tf.where(positive, tf.ones_like(x), _times(slope, tf.ones_like(x)))
        return x * factor, lambda upstream: tf.where(positive, upstream, _times(slope, upstream))

    return product(inputs)


def _times(slope: float, x: tf.Tensor) -> tf.Tensor:
    # A compiler cannot remove a product with 0, because 0 times infinity is not 0.
    return slope * x if slope else tf.zeros_like(x)


def generator_activation(activation: str, **kwargs) -> tf.keras.layers.Layer:
    """Returns the layer of a value of Design.activation, for a generator."""
    return tf.keras.layers.Activation(activation, **kwargs)


def critic_activation(
    activation: str, slope: float = 0.0, *, after_few_channels: bool = False, **kwargs
) -> tf.keras.layers.Layer:
    """Returns the layer of a value of Design.activation, for a critic.

    A gradient penalty differentiates critics twice, so "relu" is a `LeakyReLU` there.

    Args:
      activation: "relu" or "tanh".
      slope, after_few_channels: See `LeakyReLU`; ignored by other activations.
      kwargs: Arguments of the layer, such as its name.
    """
    if activation == "relu":
        return LeakyReLU(slope, after_few_channels=after_few_channels, **kwargs)
    return tf.keras.layers.Activation(activation, **kwargs)
