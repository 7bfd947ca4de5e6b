"""Spectral normalisation of a kernel."""

import tensorflow as tf


def spectrally_normalized(kernel: tf.Tensor, direction: tf.Variable, *, update: bool) -> tf.Tensor:
    """The kernel over its largest singular value, as one step of power iteration knows it.

    Miyato et al. 2018 (arXiv:1802.05957), algorithm 1; the kernel is a matrix `[K, O]` of
    everything in front of its last axis.

    Args:
      kernel: `[..., O]`.
      direction: `[O, 1]`, the singular vector so far; kept from call to call.
      update: whether to keep the better one. It follows from the kernel alone, so every
        replica writes the same into its own copy.
    """
    matrix = tf.reshape(tf.cast(kernel, tf.float32), [-1, kernel.shape[-1]])
    constant = tf.stop_gradient(matrix)
    old = tf.cast(tf.convert_to_tensor(direction), tf.float32)
    left = tf.math.l2_normalize(constant @ old)
    right = tf.math.l2_normalize(tf.transpose(constant) @ left)
    if update:
        direction.assign(right)
    largest = tf.reduce_sum(left * (matrix @ right))
    return kernel / tf.cast(largest, kernel.dtype)
