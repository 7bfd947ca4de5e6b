"""Activations, in the form that suits a gradient penalty and a TPU."""

import tensorflow as tf


class LeakyReLU(tf.keras.layers.Layer):
    """x where x > 0, slope * x elsewhere, with no second-order part; slope 0: ReLU.

    The function is piecewise linear, so its second derivative is zero. TensorFlow's own
    gradients of ReLU do not know that, and send a tensor of zeros back through the whole
    critic in the penalty's backward pass. Written as a choice, that pass does not exist; values
    and gradients are the same.

    Args:
      slope: in [0, 1).
      after_few_channels: the layer before is a convolution of so few channels that writing
        its output costs a TPU more than computing it. Then the choice is better made by
        whoever reads it, which takes another form of the same function (docs/performance.md).
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
    """LeakyReLU by TensorFlow's own operations, each a single pass over the data on a CPU.

    Their second derivative goes back through `features`, which is therefore a constant here.
    """

    @tf.custom_gradient
    def leaky(x: tf.Tensor):
        outputs = tf.nn.leaky_relu(x, slope)
        features = tf.stop_gradient(outputs)  # of the signs of x

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return tf.raw_ops.LeakyReluGrad(gradients=upstream, features=features, alpha=slope)

        return outputs, gradient

    return leaky(inputs)


def _by_product(inputs: tf.Tensor, slope: float) -> tf.Tensor:
    """LeakyReLU with the product forwards and the choice backwards."""

    @tf.custom_gradient
    def product(x: tf.Tensor):
        positive = tf.stop_gradient(x) > 0
        # Two tensors to choose from, not a cast of `positive`: XLA turns that into the choice.
        factor = tf.where(positive, tf.ones_like(x), _times(slope, tf.ones_like(x)))
        return x * factor, lambda upstream: tf.where(positive, upstream, _times(slope, upstream))

    return product(inputs)


def _times(slope: float, x: tf.Tensor) -> tf.Tensor:
    # A product with 0 is not nothing to a compiler: of an infinity it is not 0.
    return slope * x if slope else tf.zeros_like(x)


def of_generator(activation: str, **kwargs) -> tf.keras.layers.Layer:
    """The layer for a name of Design.activation, in a network that is differentiated once."""
    return tf.keras.layers.Activation(activation, **kwargs)


def of_critic(
    activation: str, slope: float = 0.0, *, after_few_channels: bool = False, **kwargs
) -> tf.keras.layers.Layer:
    """The same where a penalty differentiates twice; `slope` is that of "relu"."""
    if activation == "relu":
        return LeakyReLU(slope, after_few_channels=after_few_channels, **kwargs)
    return tf.keras.layers.Activation(activation, **kwargs)
