"""Normalization layers of generators, and those that suit a critic with a gradient penalty.

Batch normalization does not suit such a critic: the penalty is on the gradient of each score for
its own example, but batch normalization makes the score depend on the other examples (Gulrajani
et al. 2017, arXiv:1704.00028, section 4).
"""

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from .design import Design

EPSILON = 1e-5
MOMENTUM = 0.99  # of accumulated moments: the share that each update keeps, 0.01 in PyTorch's terms
GROUPS = 32  # as in the paper; fewer if a group would have fewer than four channels

# Maps (features, name of the layer) to normalized features.
Normalize = Callable[[tf.Tensor, str], tf.Tensor]


def generator_normalizer(design: Design, labels: Sequence[tf.Tensor] = ()) -> Normalize:
    """Returns the function that applies Design.generator_normalization.

    Args:
      design: Specification of the networks.
      labels: Input of labels or conditions, on which the scale and the offset then depend; empty
        for one scale and offset.

    Returns:
      A function that applies, by the value of Design.generator_normalization:
        "batch": `BatchNormalization`.
        "film": `FeatureModulation`; without labels, the features are unchanged.
        "none": the features are unchanged.
    """

    def normalize(x: tf.Tensor, name: str) -> tf.Tensor:
        sizes = {
            "classes": design.classes if labels else 0,
            "condition_size": design.condition_size if labels else 0,
        }
        if design.generator_normalization == "batch":
            layer = BatchNormalization(**sizes, name=name)
        elif design.generator_normalization == "film" and labels:
            layer = FeatureModulation(**sizes, name=name)
        else:
            return x
        return layer([x, *labels] if labels else x)

    return normalize


def critic_normalizer(design: Design) -> Normalize:
    """Returns the function that applies Design.critic_normalization.

    Each example is normalized on its own, to zero mean and unit variance over all pixels or time
    steps and some of the channels. Each channel then has a scale and an offset. The values are:
      "layer": over (H, W, C) or (T, C) together, as in the code of arXiv:1704.00028. By default,
        Keras's LayerNormalization normalizes the channels of each pixel instead.
      "group": over each of up to 32 groups of channels (Wu and He 2018, arXiv:1803.08494).
      "instance": over each channel (Ulyanov et al. 2016, arXiv:1607.08022).
      "none", "spectral": the features are unchanged. Spectral normalization is applied to the
        weights of the layers.
    """

    def normalize(x: tf.Tensor, name: str) -> tf.Tensor:
        channels = x.shape[-1]
        most = min(GROUPS, max(1, channels // 4))
        in_groups = max(count for count in range(1, most + 1) if channels % count == 0)
        groups = {"layer": 1, "group": in_groups, "instance": channels}
        if design.critic_normalization not in groups:
            return x
        # In float32, because means of squares are too inaccurate in half precision.
        return ExampleNormalization(
            groups=groups[design.critic_normalization],
            epsilon=EPSILON,
            dtype="float32",
            name=name,
        )(x)

    return normalize


@tf.keras.utils.register_keras_serializable("wgan_gp")
class ExampleNormalization(tf.keras.layers.GroupNormalization):
    """Group normalization (Wu and He 2018, arXiv:1803.08494) with an exact second derivative.

    Keras's layer calls tf.nn.moments, which stops the gradient of the mean in the variance. This
    leaves the first derivative as it is, but omits a term of the second, which the gradient of a
    penalty needs. The term is about the inverse of the number of values of a group.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        channels, space = inputs.shape[-1], math.prod(inputs.shape[1:-1])
        x = tf.reshape(inputs, [-1, space, self.groups, channels // self.groups])
        mean = tf.reduce_mean(x, [1, 3], keepdims=True)
        # The variance is the same for any center. Around the mean, the second term and its first
        # derivative are exactly 0, so they add no rounding error, and the second derivative is 2.
        center = tf.stop_gradient(mean)
        variance = tf.reduce_mean(tf.square(x - center), [1, 3], keepdims=True)
        variance -= tf.square(mean - center)
        normalized = (x - mean) * tf.math.rsqrt(variance + self.epsilon)
        return tf.reshape(normalized, [-1, *inputs.shape[1:]]) * self.gamma + self.beta


class ScaleAndOffset(tf.keras.layers.Layer):
    """Base class of layers with a scale and an offset for each channel.

    With `classes`, the input is a pair, x and labels `[B]`. Each class has its own scale and
    offset (Dumoulin et al. 2017, arXiv:1610.07629).

    With `condition_size`, the input is a pair, x and conditions `[B, K]`. The scale and the offset
    are gamma and beta plus linear functions of the condition, which are initially zero.

    The layer computes in float32 for inputs of any dtype and of any number of axes.

    Args:
      classes: Number of classes; 0 for a layer without labels.
      condition_size: The length K of a condition; 0 for a layer without conditions.
      kwargs: Arguments of the layer, such as its name.
    """

    def __init__(self, *, classes: int = 0, condition_size: int = 0, **kwargs):
        super().__init__(dtype="float32", **kwargs)
        self.classes = classes
        self.condition_size = condition_size

    def build(self, input_shape):
        channels = (input_shape[0] if self.classes or self.condition_size else input_shape)[-1]
        shape = [self.classes, channels] if self.classes else [channels]
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros")
        if self.condition_size:
            size = [self.condition_size, channels]
            self.gamma_kernel = self.add_weight(
                name="gamma_kernel", shape=size, initializer="zeros"
            )
            self.beta_kernel = self.add_weight(name="beta_kernel", shape=size, initializer="zeros")
        super().build(input_shape)

    def split(self, inputs) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns x and its scale and offset, in shapes that broadcast to that of x."""
        x, labels = inputs if self.classes or self.condition_size else (inputs, None)
        gamma, beta = tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta)
        if self.classes:
            gamma, beta = tf.gather(gamma, labels), tf.gather(beta, labels)
        elif self.condition_size:
            gamma += tf.matmul(labels, tf.convert_to_tensor(self.gamma_kernel))
            beta += tf.matmul(labels, tf.convert_to_tensor(self.beta_kernel))
        if labels is not None:
            shape = [-1, *[1] * (len(x.shape) - 2), x.shape[-1]]
            gamma, beta = tf.reshape(gamma, shape), tf.reshape(beta, shape)
        return x, gamma, beta

    def get_config(self) -> dict:
        config = super().get_config()
        del config["dtype"]  # not an argument of this layer
        return {**config, "classes": self.classes, "condition_size": self.condition_size}


@tf.keras.utils.register_keras_serializable("wgan_gp")
class FeatureModulation(ScaleAndOffset):
    """Feature-wise linear modulation, FiLM: gamma x + beta (Perez et al. 2017, arXiv:1709.07871).

    Labels or conditions select the scale and the offset, without any normalization.
    """

    def call(self, inputs) -> tf.Tensor:
        x, gamma, beta = self.split(inputs)
        return x * gamma + beta


@tf.keras.utils.register_keras_serializable("wgan_gp")
class BatchNormalization(ScaleAndOffset):
    """Batch normalization over the *global* batch, optionally with labels or conditions.

    Ioffe and Szegedy 2015, arXiv:1502.03167. The moments are those of the examples on all
    replicas, so that results do not depend on the number of replicas. They are computed in one
    pass over the data, as the means of x - c and (x - c)^2, where c is the accumulated mean. The
    variance is the same for any constant c, and is most accurate for a c near the mean.

    All classes and conditions share the moments. With training=False, they are those accumulated
    in training, so that no sample depends on another.
    """

    def build(self, input_shape):
        super().build(input_shape)
        channels = self.gamma.shape[-1]
        self.moving_mean = self.add_weight(
            name="moving_mean", shape=[channels], initializer="zeros", trainable=False
        )
        self.moving_variance = self.add_weight(
            name="moving_variance", shape=[channels], initializer="ones", trainable=False
        )

    def call(self, inputs, training: bool = False) -> tf.Tensor:
        x, gamma, beta = self.split(inputs)
        mean, variance = self._moments(x, training)
        scale = gamma * tf.math.rsqrt(variance + EPSILON)
        return x * scale + (beta - mean * scale)

    def _moments(self, x: tf.Tensor, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        moving = (self.moving_mean, self.moving_variance)
        accumulated_mean, accumulated_variance = map(tf.convert_to_tensor, moving)
        if not training:
            return accumulated_mean, accumulated_variance
        shifted = x - accumulated_mean
        mean, square = _means_over_replicas([shifted, tf.square(shifted)])
        variance = tf.nn.relu(square - tf.square(mean))  # rounding can make it negative
        # The values are equal on all replicas, so each writes its own copy.
        rate = 1.0 - MOMENTUM
        self.moving_mean.assign(accumulated_mean + rate * mean)
        self.moving_variance.assign(accumulated_variance + rate * (variance - accumulated_variance))
        return accumulated_mean + mean, variance


def _means_over_replicas(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the means of tensors of one shape over all axes but the last, and over all replicas.

    The sums are all-reduced as they are, and divided once. A TPU takes as long for an operation on
    a vector of channels as for thousands of channels, so stacking the vectors or scaling them
    twice costs more than it saves. Its compiler combines the all-reduces.
    """
    axes = list(range(len(tensors[0].shape) - 1))
    sums = [tf.reduce_sum(tensor, axes) for tensor in tensors]
    count = tf.cast(tf.size(tensors[0]) // tensors[0].shape[-1], sums[0].dtype)
    context = tf.distribute.get_replica_context()
    if context is not None and context.num_replicas_in_sync > 1:  # None while a network is built
        sums = list(_sum_over_replicas(*sums))
        count *= context.num_replicas_in_sync
    return [each / count for each in sums]


def _sum_over_replicas(*values: tf.Tensor) -> Sequence[tf.Tensor]:
    layer = tf.get_current_name_scope()

    def all_reduce(*values: tf.Tensor) -> Sequence[tf.Tensor]:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, list(values))

    @tf.custom_gradient
    def sum_and_gradient(*values: tf.Tensor):
        def gradient(*upstream: tf.Tensor) -> Sequence[tf.Tensor]:
            # TensorFlow's own gradient has the same value, but no name: a profile or a program
            # would not show which layer it belongs to.
            with tf.name_scope(f"gradient_tape/{layer}/"):
                return all_reduce(*upstream)

        return all_reduce(*values), gradient

    return sum_and_gradient(*values)
