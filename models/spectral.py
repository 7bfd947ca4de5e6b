"""Spectral normalization of a kernel."""

import tensorflow as tf


def spectrally_normalized(kernel: tf.Tensor, direction: tf.Variable, *, update: bool) -> tf.Tensor:
    """Divides a kernel by an estimate of its largest singular value.

    Each call performs one step of power iteration: Miyato et al. 2018 (arXiv:1802.05957),
    algorithm 1. The kernel is reshaped to a matrix `[K, O]`, which combines all axes but the last.

    Args:
      kernel: `[..., O]`.
      direction: `[O, 1]`, the current estimate of the singular vector, kept between calls.
      update: Whether to store the improved estimate in `direction`. It depends on the kernel
        only, so all replicas write equal values to their own copies.

    Returns:
      The normalized kernel, in the shape and dtype of `kernel`.
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
