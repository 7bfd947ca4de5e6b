"""Stateless random numbers keyed by (seed, stream, step, global example index).

Each replica draws the numbers for its slice of the global batch, so a seed gives the same noise on
one CPU, on eight cores or on a pod, and also after a resume. There is no generator state to save.

The numbers are Philox 4x32-10 blocks (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1,
2, 3"), addressed directly: the key contains the seed and the stream, the high word of the counter
is the step, and its low word is the position of the example. The bits are converted to uniform and
normal values here, because TensorFlow's kernels convert them differently on the CPU and under XLA.
"""

import enum
import math

import tensorflow as tf

_PHILOX = 1  # tf.random.Algorithm.PHILOX
_WORDS_PER_BLOCK = 4


class RngStream(enum.IntEnum):
    """The independent streams of random numbers, one for each purpose.

    Their numbers must not change, because a resumed run would then draw different numbers.
    """

    CRITIC_LATENTS = 0
    GENERATOR_LATENTS = 1
    INTERPOLATION = 2
    DATA = 3
    SHUFFLE = 4
    SAMPLES = 5
    PERTURBATION = 6
    GENERATOR_LABELS = 7
    DEQUANTIZATION = 8
    FLIPS = 9
    PROBE = 10
    CRITIC_AUGMENTATION = 11
    GENERATOR_AUGMENTATION = 12


def bits(
    seed: int | tf.Tensor,
    stream: RngStream,
    *,
    step: tf.Tensor,
    first: tf.Tensor,
    count: int | tf.Tensor,
    size: int,
) -> tf.Tensor:
    """Returns random 32-bit words for the examples `first ... first + count - 1` of one step.

    Args:
      seed: The seed in [0, 2^31), a Python integer or a scalar int64 tensor.
      stream: The stream of random numbers.
      step: The index of the draw from the stream, scalar integer.
      first: The global index of the first example, scalar integer.
      count: The number of examples, a Python integer or a scalar int32 tensor.
      size: The number of words per example.

    Returns:
      `[count, size]`, uint32. Row i depends on (seed, stream, step, first + i) only.
    """
    blocks = -(-size // _WORDS_PER_BLOCK)
    first_block = tf.cast(first, tf.int64) * blocks
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack([count, blocks * _WORDS_PER_BLOCK]),
        key=tf.cast([seed * 2**32 + int(stream)], tf.uint64),  # the high word is the seed
        counter=tf.cast(tf.stack([first_block, tf.cast(step, tf.int64)]), tf.uint64),
        alg=_PHILOX,
        dtype=tf.uint32,
    )[:, :size]


def uniform(
    seed: int | tf.Tensor,
    stream: RngStream,
    *,
    step: tf.Tensor,
    first: tf.Tensor,
    count: int | tf.Tensor,
    size: int,
) -> tf.Tensor:
    """Returns values uniform on [0, 1), `[count, size]` float32; see `bits` for the arguments."""
    # float32 represents all multiples of 2^-24 below 1, so no value is rounded to 1.
    words = bits(seed, stream, step=step, first=first, count=count, size=size)
    high = tf.bitwise.right_shift(words, tf.constant(8, tf.uint32))
    return tf.cast(tf.cast(high, tf.int32), tf.float32) * 2.0**-24


def uncorrelated_bits(
    seed: int, stream: RngStream, *, first: tf.Tensor, count: int, size: int
) -> tf.Tensor:
    """Returns random 32-bit words for noise on whole images, faster than `bits`.

    The words are multiply-add hashes (Carter and Wegman 1979): word p of an example is
    a x_p + b modulo 2^32, where a and b are random for each example and the x_p are random for
    the run. Each word is uniform, and any two words of an example are uncorrelated. Higher-order
    products of the words may be correlated.

    Args:
      seed: The seed, see `bits`.
      stream: The stream of random numbers, of which steps 0 and 1 are used.
      first: The global index of the first example, scalar integer.
      count: The number of examples.
      size: The number of words per example.

    Returns:
      `[count, size]`, uint32. Row i depends on (seed, stream, first + i) only.
    """
    with tf.init_scope():  # computed once, not in every call of a dataset's function
        # As an array, which becomes a constant of the program. The host would send a tensor to
        # the device with every launch.
        x = bits(seed, stream, step=1, first=0, count=1, size=size).numpy()
    a, b = tf.split(bits(seed, stream, step=0, first=first, count=count, size=2), 2, axis=1)
    return a * x + b


def normal(
    seed: int | tf.Tensor,
    stream: RngStream,
    *,
    step: tf.Tensor,
    first: tf.Tensor,
    count: int | tf.Tensor,
    size: int,
) -> tf.Tensor:
    """Returns standard normal values, `[count, size]` float32; see `bits` for the arguments.

    The Box-Muller transform (Box and Muller 1958) converts each pair of uniform values to a pair of
    normal values. With 24 bits, the largest magnitude is 5.77.
    """
    pairs = -(-size // 2)
    u = uniform(seed, stream, step=step, first=first, count=count, size=2 * pairs)
    radius = tf.sqrt(-2.0 * tf.math.log(1.0 - u[:, :pairs]))  # 1 - u is in (0, 1]
    angle = 2.0 * math.pi * u[:, pairs:]
    return tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=1)[:, :size]
