"""Normalisations: batch-norm for a generator, and those that a penalised critic may have.

A critic has no batch-norm: the penalty is on the gradient of each example's own score, and
batch-norm makes that score depend on the other examples (Gulrajani et al. 2017,
arXiv:1704.00028, section 4).
"""

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from .design import Design

EPSILON = 1e-5
GROUPS = 32  # as in the paper, but no fewer than four channels in each

CRITIC_NORMALIZATIONS = ("none", "layer", "group", "instance", "spectral")


# (features, name of the layer) -> the features, normalised.
Normalize = Callable[[tf.Tensor, str], tf.Tensor]


def of_generator(design: Design, labels: Sequence[tf.Tensor] = ()) -> Normalize:
    """Batch-norm, or nothing, by Design.generator_normalization.

    Args:
      design: of the networks.
      labels: the network's input of labels, where each class is to have its own scale and offset.
    """

    def normalize(x: tf.Tensor, name: str) -> tf.Tensor:
        if design.generator_normalization == "none":
            return x
        layer = BatchNormalization(
            classes=design.classes if labels else 0,
            sampling_statistics=design.sampling_statistics,
            momentum=design.batch_norm_momentum,
            name=name,
        )
        return layer([x, *labels] if labels else x)

    return normalize


def of_critic(design: Design) -> Normalize:
    """What Design.critic_normalization asks for.

    Each takes an example's features by themselves to zero mean and unit variance, over the
    pixels and some of the channels, and gives each channel a scale and an offset: "layer" over
    all of an example, (H, W, C) together, as arXiv:1704.00028's code does (Keras's
    LayerNormalization takes each pixel's channels alone unless told otherwise); "group" over
    each of up to 32 groups of channels (Wu and He 2018, arXiv:1803.08494); "instance" over each
    channel (Ulyanov et al. 2016, arXiv:1607.08022). "none", and "spectral", which is of the
    weights, leave the features as they are.
    """

    def normalize(x: tf.Tensor, name: str) -> tf.Tensor:
        channels = x.shape[-1]
        in_groups = math.gcd(channels, min(GROUPS, max(1, channels // 4)))
        groups = {"layer": 1, "group": in_groups, "instance": channels}
        if design.critic_normalization not in groups:
            return x
        # In float32: means of half-precision squares would be of no use.
        return tf.keras.layers.GroupNormalization(
            groups=groups[design.critic_normalization],
            epsilon=EPSILON,
            dtype="float32",
            name=name,
        )(x)

    return normalize


@tf.keras.utils.register_keras_serializable("wgan_gp")
class BatchNormalization(tf.keras.layers.Layer):
    """Zero mean and unit variance over the *global* batch, then a scale and an offset.

    Ioffe and Szegedy 2015, arXiv:1502.03167. The moments are those of all replicas' examples,
    so a run does not depend on how many replicas there are. They are taken in one pass over
    the data, as the means of x - c and of its square with the mean accumulated so far as c: any
    constant gives the same variance, and one near the mean loses no digits.

    With `classes`, each class has a scale and an offset of its own, and all share the moments
    (Dumoulin et al. 2017, arXiv:1610.07629); the layer then takes a pair, x and labels `[B]`.

    Always in float32, whatever it is given.

    Args:
      classes: how many; 0: no labels.
      sampling_statistics: whose moments it takes with training=False. "accumulated": those
        accumulated in training, so that no sample depends on another. "batch": those of
        the batch at hand, as arXiv:1704.00028's code does.
      momentum: share of the accumulated moments that each batch keeps, 1 minus PyTorch's; only
        training=True changes them.
    """

    def __init__(
        self,
        *,
        classes: int = 0,
        sampling_statistics: str = "accumulated",
        momentum: float = 0.99,
        **kwargs,
    ):
        super().__init__(dtype="float32", **kwargs)
        self.classes = classes
        self.sampling_statistics = sampling_statistics
        self.momentum = momentum

    def build(self, input_shape):
        channels = (input_shape[0] if self.classes else input_shape)[-1]
        shape = [self.classes, channels] if self.classes else [channels]
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros")
        self.moving_mean = self.add_weight(
            name="moving_mean", shape=[channels], initializer="zeros", trainable=False
        )
        self.moving_variance = self.add_weight(
            name="moving_variance", shape=[channels], initializer="ones", trainable=False
        )
        super().build(input_shape)

    def call(self, inputs, training: bool = False) -> tf.Tensor:
        x, labels = inputs if self.classes else (inputs, None)
        gamma, beta = tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta)
        if labels is not None:
            shape = [-1, *[1] * (len(x.shape) - 2), x.shape[-1]]
            gamma, beta = (tf.reshape(tf.gather(each, labels), shape) for each in (gamma, beta))
        mean, variance = self._moments(x, training)
        scale = gamma * tf.math.rsqrt(variance + EPSILON)
        return x * scale + (beta - mean * scale)

    def get_config(self) -> dict:
        config = super().get_config()
        del config["dtype"]  # no choice of it
        own = {
            "classes": self.classes,
            "sampling_statistics": self.sampling_statistics,
            "momentum": self.momentum,
        }
        return {**config, **own}

    def _moments(self, x: tf.Tensor, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        accumulated_mean = tf.convert_to_tensor(self.moving_mean)
        accumulated_variance = tf.convert_to_tensor(self.moving_variance)
        if not training and self.sampling_statistics == "accumulated":
            return accumulated_mean, accumulated_variance
        shifted = x - accumulated_mean
        axes = list(range(len(x.shape) - 1))
        mean, square = tf.unstack(
            _mean_over_replicas(
                tf.stack([tf.reduce_mean(shifted, axes), tf.reduce_mean(tf.square(shifted), axes)])
            )
        )
        variance = tf.nn.relu(square - tf.square(mean))  # rounding may leave it below 0
        if training:
            # The same on every replica, so each writes its own copy.
            rate = 1.0 - self.momentum
            self.moving_mean.assign(accumulated_mean + rate * mean)
            self.moving_variance.assign(
                accumulated_variance + rate * (variance - accumulated_variance)
            )
        return accumulated_mean + mean, variance


def _mean_over_replicas(values: tf.Tensor) -> tf.Tensor:
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:  # None: a network is being made
        return values
    layer = tf.get_current_name_scope()

    def mean(values: tf.Tensor) -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, values)

    @tf.custom_gradient
    def mean_and_gradient(values: tf.Tensor):
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # TensorFlow's own gradient is the same, but nameless: nobody could tell which layer
            # it belongs to.
            with tf.name_scope(f"gradient_tape/{layer}/"):
                return mean(upstream)

        return mean(values), gradient

    return mean_and_gradient(values)
