"""Linear layers in forms that suit gradient penalties, spectral normalization and TPUs.

A convolution with resampling has two equivalent forms:

- plain: the convolution, with mean pooling after it or nearest-neighbor upsampling before it;
- fused: one strided convolution, whose kernel is the mean or the sum of the plain kernel shifted
  to four positions. A kernel of 3x3 becomes 4x4: 16 products at a quarter of the positions
  replace 9 at each of them, and no full-size intermediate result is written.

Both forms have the weights of the plain form, so checkpoints are interchangeable. The fused form
is faster on TPUs and CPUs (docs/performance.md).
"""

import tensorflow as tf

from .spectral import spectrally_normalized


def he_uniform() -> tf.keras.initializers.Initializer:
    """Returns a uniform initializer of variance 4 / (fan_in + fan_out).

    This is twice the variance of "glorot_uniform". Each layer needs its own initializer, because
    one that is shared returns the same numbers in every call.
    """
    return tf.keras.initializers.VarianceScaling(2.0, "fan_avg", "uniform")


class Linear(tf.keras.layers.Layer):
    """Base class of linear layers, product(x, kernel) + bias; subclasses define the product.

    Args:
      filters: Number of units or output channels.
      kernel_initializer: Initializer of the kernel; the bias is initialized to 0.
      use_bias: Whether to add a bias.
      bias_canceled: Whether the layer is followed by batch or instance normalization, which
        subtracts the bias again. The gradient of the bias is then zero and is not computed: its
        rounding errors would be noise, and its sum over all pixels is expensive.
      spectral: Whether to divide the kernel by its largest singular value, see spectral.
    """

    def __init__(
        self,
        filters: int,
        *,
        kernel_initializer: str | tf.keras.initializers.Initializer = "glorot_uniform",
        use_bias: bool = True,
        bias_canceled: bool = False,
        spectral: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.kernel_initializer = kernel_initializer
        self.use_bias = use_bias
        self.bias_canceled = bias_canceled
        self.spectral = spectral

    @property
    def window(self) -> list[int]:
        """The spatial shape of the kernel; [] for a matrix."""
        return []

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Computes the product of `[B, ..., I]` and the kernel `[*window, I, filters]`."""
        raise NotImplementedError

    def build(self, input_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=[*self.window, input_shape[-1], self.filters],
            initializer=self.kernel_initializer,
        )
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=[self.filters], initializer="zeros")
        if self.spectral:
            self.direction = self.add_weight(
                name="direction",
                shape=[self.filters, 1],
                initializer="random_normal",
                trainable=False,
            )
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        kernel = tf.convert_to_tensor(self.kernel)
        if self.spectral:
            kernel = spectrally_normalized(kernel, self.direction, update=training)
        outputs = self.product(inputs, tf.cast(kernel, inputs.dtype))
        if not self.use_bias:
            return outputs
        bias = tf.cast(tf.convert_to_tensor(self.bias), inputs.dtype)
        return outputs + (_without_gradient(bias) if self.bias_canceled else bias)

    def get_config(self) -> dict:
        initializer = tf.keras.initializers.get(self.kernel_initializer)
        own = {
            "filters": self.filters,
            "kernel_initializer": tf.keras.initializers.serialize(initializer),
            "use_bias": self.use_bias,
            "bias_canceled": self.bias_canceled,
            "spectral": self.spectral,
        }
        return {**super().get_config(), **own}


@tf.custom_gradient
def _without_gradient(value: tf.Tensor):
    """Returns `value` with a gradient of zeros, in place of the None of tf.stop_gradient."""
    return tf.identity(value), tf.zeros_like


@tf.keras.utils.register_keras_serializable("wgan_gp")
class Dense(Linear):
    """A fully connected layer, `[B, I]` -> `[B, filters]`."""

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return tf.matmul(inputs, kernel)


@tf.keras.utils.register_keras_serializable("wgan_gp")
class Conv2D(Linear):
    """A convolution with SAME padding, `[B, H, W, I]` -> `[B, H/strides, W/strides, filters]`."""

    def __init__(
        self,
        filters: int,
        kernel_size: int,
        *,
        strides: int = 1,
        **kwargs,
    ):
        super().__init__(filters, **kwargs)
        self.kernel_size = kernel_size
        self.strides = strides

    @property
    def window(self) -> list[int]:
        return [self.kernel_size] * 2

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if self.kernel_size == 1:
            # A 1x1 kernel ignores the pixels between its strides, so they can be dropped first.
            # The second derivative of a strided 1x1 convolution crashes TensorFlow on a CPU.
            inputs = inputs[:, :: self.strides, :: self.strides]
            return tf.nn.conv2d(inputs, kernel, 1, "SAME")
        return tf.nn.conv2d(inputs, kernel, self.strides, "SAME")

    def get_config(self) -> dict:
        own = {"kernel_size": self.kernel_size, "strides": self.strides}
        return {**super().get_config(), **own}


@tf.keras.utils.register_keras_serializable("wgan_gp")
class ConvMeanPool(Conv2D):
    """A convolution followed by `mean_pool`, `[B, H, W, I]` -> `[B, H/2, W/2, filters]`."""

    def __init__(self, filters: int, kernel_size: int, *, fused: bool, **kwargs):
        super().__init__(filters, kernel_size, **kwargs)
        self.fused = fused

    def get_config(self) -> dict:
        return {**super().get_config(), "fused": self.fused}

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if self.fused:
            return tf.nn.conv2d(inputs, four_shifts(kernel) / 4, 2, "SAME")
        if self.kernel_size == 1:  # they commute, and this order is a quarter of the work
            return tf.nn.conv2d(mean_pool(inputs), kernel, 1, "SAME")
        return mean_pool(tf.nn.conv2d(inputs, kernel, 1, "SAME"))


@tf.keras.utils.register_keras_serializable("wgan_gp")
class UpsampleConv(Conv2D):
    """A convolution after `upsample`, `[B, H, W, I]` -> `[B, 2H, 2W, filters]`."""

    def __init__(self, filters: int, kernel_size: int, *, fused: bool, **kwargs):
        super().__init__(filters, kernel_size, **kwargs)
        self.fused = fused

    def get_config(self) -> dict:
        return {**super().get_config(), "fused": self.fused}

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if self.fused:
            # This is the transpose of a convolution with the kernel `taps`.
            taps = tf.transpose(tf.reverse(four_shifts(kernel), [0, 1]), [0, 1, 3, 2])
            shape = [tf.shape(inputs)[0], 2 * inputs.shape[1], 2 * inputs.shape[2], self.filters]
            return tf.nn.conv2d_transpose(inputs, taps, shape, 2, "SAME")
        if self.kernel_size == 1:  # they commute, and this order is a quarter of the work
            return upsample(tf.nn.conv2d(inputs, kernel, 1, "SAME"))
        return tf.nn.conv2d(upsample(inputs), kernel, 1, "SAME")


def mean_pool(images: tf.Tensor) -> tf.Tensor:
    """Averages over blocks of 2x2 pixels, `[B, H, W, C]` -> `[B, H/2, W/2, C]`."""
    return tf.nn.avg_pool2d(images, 2, 2, "VALID")


def upsample(images: tf.Tensor) -> tf.Tensor:
    """Repeats each pixel in a block of 2x2, `[B, H, W, C]` -> `[B, 2H, 2W, C]`.

    Unlike TensorFlow's resize operations, it has a second derivative under XLA.
    """
    _, height, width, channels = images.shape
    spread = tf.broadcast_to(
        tf.expand_dims(tf.expand_dims(images, 2), 4),
        [tf.shape(images)[0], height, 2, width, 2, channels],
    )
    return tf.reshape(spread, [-1, 2 * height, 2 * width, channels])


def four_shifts(kernel: tf.Tensor) -> tf.Tensor:
    """Sums a kernel over its four positions in a larger one, `[k, k, I, O]` -> `[k+1, k+1, I, O]`.

    A TPU computes this single sum in one pass; summing rows first and columns next needs two.
    """
    places = [
        tf.pad(kernel, [[row, 1 - row], [column, 1 - column], [0, 0], [0, 0]])
        for row in (0, 1)
        for column in (0, 1)
    ]
    return tf.add_n(places)
