"""Linear layers: those of Keras, and what a penalised critic and a TPU want beside.

A convolution and the resampling beside it come in two forms of one function:

- plain: the convolution, and a mean-pool after it or a nearest-neighbour upsampling before it;
- fused: one strided convolution, whose kernel is the mean or the sum of the plain kernel's
  four shifts. It has 16 taps at a quarter of the places for 9 at all of them, and nothing of
  full size is written in between.

So does a convolution with strides of 2 of a picture's few channels, and its transpose:

- plain: as it is;
- by blocks: of 2x2 pixels, each one pixel of four times the channels. Without strides, and with
  more channels, it suits a CPU's vectors.

The weights are those of the plain form, so a checkpoint of one form is a checkpoint of the
other. The fused form is the faster, on a TPU and on a CPU; blocks are on a CPU alone:
docs/performance.md.
"""

from collections.abc import Sequence

import tensorflow as tf

from .spectral import spectrally_normalized

FEW_CHANNELS = 4  # or fewer: as a picture has


def he_uniform() -> tf.keras.initializers.Initializer:
    """Uniform with variance 4 / (fan_in + fan_out): twice that of "glorot_uniform".

    A new one for each layer: an initialiser draws the same numbers whenever it is asked.
    """
    return tf.keras.initializers.VarianceScaling(2.0, "fan_avg", "uniform")


class Linear(tf.keras.layers.Layer):
    """kernel * x + bias, whichever product that is; the base of the layers below.

    Args:
      filters: units or channels it gives.
      kernel_initializer: of the kernel; the bias starts at 0.
      use_bias: whether there is one.
      bias_cancelled: nothing but batch-norm over the batch comes of the bias, which takes it
        away again. Its gradient is then zero, and is not computed: what rounding would leave
        of it is no signal, and the sum over all pixels is dear.
      spectral: divide the kernel by its largest singular value, see spectral.
    """

    def __init__(
        self,
        filters: int,
        *,
        kernel_initializer: str | tf.keras.initializers.Initializer = "glorot_uniform",
        use_bias: bool = True,
        bias_cancelled: bool = False,
        spectral: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.kernel_initializer = kernel_initializer
        self.use_bias = use_bias
        self.bias_cancelled = bias_cancelled
        self.spectral = spectral

    @property
    def window(self) -> list[int]:
        """Sides of the kernel, before its channels."""
        return []

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Of `[B, ..., I]` and `[*window, I, filters]`."""
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
        return outputs + (_without_gradient(bias) if self.bias_cancelled else bias)

    def get_config(self) -> dict:
        initializer = tf.keras.initializers.get(self.kernel_initializer)
        own = {
            "filters": self.filters,
            "kernel_initializer": tf.keras.initializers.serialize(initializer),
            "use_bias": self.use_bias,
            "bias_cancelled": self.bias_cancelled,
            "spectral": self.spectral,
        }
        return {**super().get_config(), **own}


@tf.custom_gradient
def _without_gradient(value: tf.Tensor):
    """`value`; its gradient is zeros, where stop_gradient's would be none at all."""
    return tf.identity(value), tf.zeros_like


@tf.keras.utils.register_keras_serializable("wgan_gp")
class Dense(Linear):
    """`[B, I]` -> `[B, filters]`."""

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return tf.matmul(inputs, kernel)


@tf.keras.utils.register_keras_serializable("wgan_gp")
class Conv2D(Linear):
    """A convolution, SAME padding: `[B, H, W, I]` -> `[B, H/strides, W/strides, filters]`.

    With `by_blocks` in that form, where the strides are 2 and it applies.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int,
        *,
        strides: int = 1,
        by_blocks: bool = False,
        **kwargs,
    ):
        super().__init__(filters, **kwargs)
        self.kernel_size = kernel_size
        self.strides = strides
        self.by_blocks = by_blocks

    @property
    def window(self) -> list[int]:
        return [self.kernel_size] * 2

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if self.kernel_size == 1:
            # Between its strides such a kernel sees nothing. TensorFlow's CPU kernels crash
            # over it, where a penalty differentiates them twice.
            inputs = inputs[:, :: self.strides, :: self.strides]
            return tf.nn.conv2d(inputs, kernel, 1, "SAME")
        if self.by_blocks and self.strides == 2 and _has_blocks(inputs.shape, self.kernel_size):
            return conv_by_blocks(inputs, kernel)
        return tf.nn.conv2d(inputs, kernel, self.strides, "SAME")

    def get_config(self) -> dict:
        own = {
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "by_blocks": self.by_blocks,
        }
        return {**super().get_config(), **own}


@tf.keras.utils.register_keras_serializable("wgan_gp")
class ConvMeanPool(Conv2D):
    """A convolution, then `mean_pool`: `[B, H, W, I]` -> `[B, H/2, W/2, filters]`."""

    def __init__(self, filters: int, kernel_size: int, *, fused: bool, **kwargs):
        super().__init__(filters, kernel_size, **kwargs)
        self.fused = fused

    def get_config(self) -> dict:
        return {**super().get_config(), "fused": self.fused}

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if self.fused:
            return tf.nn.conv2d(inputs, four_shifts(kernel) / 4, 2, "SAME")
        if self.kernel_size == 1:  # the two commute: a quarter of the work
            return tf.nn.conv2d(mean_pool(inputs), kernel, 1, "SAME")
        return mean_pool(tf.nn.conv2d(inputs, kernel, 1, "SAME"))


@tf.keras.utils.register_keras_serializable("wgan_gp")
class UpsampleConv(Conv2D):
    """`upsample`, then a convolution: `[B, H, W, I]` -> `[B, 2H, 2W, filters]`."""

    def __init__(self, filters: int, kernel_size: int, *, fused: bool, **kwargs):
        super().__init__(filters, kernel_size, **kwargs)
        self.fused = fused

    def get_config(self) -> dict:
        return {**super().get_config(), "fused": self.fused}

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if self.fused:
            # The kernel of the convolution that this one is the transpose of.
            taps = tf.transpose(tf.reverse(four_shifts(kernel), [0, 1]), [0, 1, 3, 2])
            shape = [tf.shape(inputs)[0], 2 * inputs.shape[1], 2 * inputs.shape[2], self.filters]
            return tf.nn.conv2d_transpose(inputs, taps, shape, 2, "SAME")
        if self.kernel_size == 1:  # the two commute: a quarter of the work
            return upsample(tf.nn.conv2d(inputs, kernel, 1, "SAME"))
        return tf.nn.conv2d(upsample(inputs), kernel, 1, "SAME")


def _has_blocks(shape: Sequence[int], kernel_size: int) -> bool:
    """Whether a convolution of `[B, H, W, C]` is `conv_by_blocks`, and better done by it."""
    _, height, width, channels = shape
    even = height % 2 == width % 2 == 0
    return even and channels <= FEW_CHANNELS and kernel_size % 4 == 1


def conv_by_blocks(images: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """A convolution, strides 2, padding SAME: `[B, H, W, I]` -> `[B, H/2, W/2, O]`.

    Each block of 2x2 pixels becomes one of 4 I channels, with strides of 1 between them. The
    kernel's k, of `[k, k, I, O]`, is 5, 9, ...; H and W are even.
    """
    return tf.nn.conv2d(tf.nn.space_to_depth(images, 2), _over_blocks(kernel), 1, "SAME")


def transposed_conv_by_blocks(inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Its transpose, by a kernel of `[k, k, O, I]`: `[B, H, W, I]` -> `[B, 2H, 2W, O]`."""
    taps = tf.transpose(tf.reverse(_over_blocks(kernel), [0, 1]), [0, 1, 3, 2])
    return tf.nn.depth_to_space(tf.nn.conv2d(inputs, taps, 1, "SAME"), 2)


def _over_blocks(kernel: tf.Tensor) -> tf.Tensor:
    """`[k, k, I, O]` -> `[(k+1)/2, (k+1)/2, 4 I, O]`.

    SAME padding with strides of 2 begins an odd number of pixels before the image, in the middle
    of a block: the row and the column before are zeros.
    """
    size, _, inputs, outputs = kernel.shape
    half = (size + 1) // 2
    taps = tf.reshape(
        tf.pad(kernel, [[1, 0], [1, 0], [0, 0], [0, 0]]), [half, 2, half, 2, inputs, outputs]
    )
    return tf.reshape(tf.transpose(taps, [0, 2, 1, 3, 4, 5]), [half, half, 4 * inputs, outputs])


def mean_pool(images: tf.Tensor) -> tf.Tensor:
    """Means over 2x2 pixels, `[B, H, W, C]` -> `[B, H/2, W/2, C]`."""
    return tf.nn.avg_pool2d(images, 2, 2, "VALID")


def upsample(images: tf.Tensor) -> tf.Tensor:
    """Each pixel four times, `[B, H, W, C]` -> `[B, 2H, 2W, C]`; differentiable twice.

    TensorFlow's resize operations have no second gradient under XLA.
    """
    _, height, width, channels = images.shape
    spread = tf.broadcast_to(
        images[:, :, None, :, None], [tf.shape(images)[0], height, 2, width, 2, channels]
    )
    return tf.reshape(spread, [-1, 2 * height, 2 * width, channels])


def four_shifts(kernel: tf.Tensor) -> tf.Tensor:
    """`[k, k, I, O]` -> `[k+1, k+1, I, O]`: the sum of the kernel at the four places in there.

    In one sum, which a TPU does in one go: rows first and columns after would be two.
    """
    places = [
        tf.pad(kernel, [[row, 1 - row], [column, 1 - column], [0, 0], [0, 0]])
        for row in (0, 1)
        for column in (0, 1)
    ]
    return tf.add_n(places)
