"""Self-attention between the pixels of features (Zhang et al. 2018, SAGAN, arXiv:1805.08318)."""

import math

import tensorflow as tf

from .convolutions import Conv2D
from .design import Design

# The queries, keys and values have an eighth of the channels: section 3, where k is 8.
_REDUCTION = 8


def with_attention(design: Design, x: tf.Tensor, *, spectral: bool) -> tf.Tensor:
    """Returns features with self-attention at the size Design.attention, otherwise as they are.

    Section 3: 1x1 convolutions without biases map the features to keys f, queries g and values h.
    Each pixel receives the mean of the values of all pixels of its example, weighted by the softmax
    of the products of its query with their keys (equations 1 and 2). A 1x1 convolution maps it to
    the channels of the features, to which it is added after multiplication by a trained scalar,
    which is initially zero (equation 3).

    Args:
      design: Specification of the networks.
      x: Features, `[B, H, W, C]`.
      spectral: Whether to divide the kernels by their largest singular value.
    """
    if min(x.shape[1:3]) != design.attention:
        return x

    def conv(inputs: tf.Tensor, filters: int, part: str) -> tf.Tensor:
        layer = Conv2D(
            filters,
            1,
            use_bias=False,
            spectral=spectral,
            dtype=design.precision,
            name=f"attention_{part}",
        )
        return layer(inputs)

    channels = x.shape[-1]
    parts = [
        conv(x, max(1, channels // _REDUCTION), part) for part in ("queries", "keys", "values")
    ]
    attended = Attention(dtype=design.precision, name="attention")(parts)
    attended = conv(attended, channels, "output")
    return AddScaled(dtype=design.precision, name="attention_add")([x, attended])


@tf.keras.utils.register_keras_serializable("wgan_gp")
class Attention(tf.keras.layers.Layer):
    """The mean of values weighted by attention, from queries, keys and values `[B, H, W, C]`.

    The softmax is computed in float32 for inputs of any dtype.
    """

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        pixels = math.prod(inputs[0].shape[1:3])
        queries, keys, values = (tf.reshape(x, [-1, pixels, x.shape[-1]]) for x in inputs)
        products = tf.matmul(queries, keys, transpose_b=True)
        weights = tf.cast(tf.nn.softmax(tf.cast(products, tf.float32)), values.dtype)
        return tf.reshape(tf.matmul(weights, values), [-1, *inputs[2].shape[1:]])


@tf.keras.utils.register_keras_serializable("wgan_gp")
class AddScaled(tf.keras.layers.Layer):
    """The sum x + scale * y of two tensors of one shape, whose scalar `scale` is initially zero."""

    def build(self, input_shape):
        self.scale = self.add_weight(name="scale", shape=[], initializer="zeros")
        super().build(input_shape)

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        x, y = inputs
        return x + tf.cast(tf.convert_to_tensor(self.scale), y.dtype) * y
