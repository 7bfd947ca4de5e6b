"""Stateless random numbers keyed by (seed, stream, step, global example index).

A replica draws the numbers of its slice of the global batch, so one seed gives the same
noise on one CPU, on eight cores or on a pod, and again after a resume. There is no
generator state to save.

The numbers are Philox 4x32-10 blocks (Salmon et al. 2011, "Parallel Random Numbers: As
Easy as 1, 2, 3"), addressed directly: the key holds seed and stream, the counter's high
word the step, its low word the place of the example. Uniform and normal values are made
from the bits here rather than by TensorFlow, whose kernels convert bits differently on
CPU and under XLA.
"""

import enum
import math

import tensorflow as tf

_PHILOX = 1  # tf.random.Algorithm.PHILOX
_WORDS_PER_BLOCK = 4


class Stream(enum.IntEnum):
    """What numbers are for; each purpose has its own, whatever the others draw.

    Never renumber: a resumed run would draw other numbers.
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


def bits(
    seed: int | tf.Tensor,
    stream: Stream,
    *,
    step: tf.Tensor,
    first: tf.Tensor,
    count: int | tf.Tensor,
    size: int,
) -> tf.Tensor:
    """Random 32-bit words for the examples `first ... first + count - 1` of one step.

    Args:
      seed: in [0, 2^31); a scalar int64 where it is not known before the graph is.
      stream: what the numbers are for.
      step: scalar integer, which draw of the stream.
      first: scalar integer, global index of the first example.
      count: examples; a scalar int32 where it is not known before.
      size: words an example.

    Returns:
      `[count, size]`, uint32. Row i depends on (seed, stream, step, first + i) only.
    """
    blocks = -(-size // _WORDS_PER_BLOCK)
    place = tf.cast(first, tf.int64) * blocks
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack([count, blocks * _WORDS_PER_BLOCK]),
        key=tf.cast([seed * 2**32 + int(stream)], tf.uint64),  # the seed in its high word
        counter=tf.cast(tf.stack([place, tf.cast(step, tf.int64)]), tf.uint64),
        alg=_PHILOX,
        dtype=tf.uint32,
    )[:, :size]


def uniform(
    seed: int | tf.Tensor,
    stream: Stream,
    *,
    step: tf.Tensor,
    first: tf.Tensor,
    count: int | tf.Tensor,
    size: int,
) -> tf.Tensor:
    """Values uniform on [0, 1), `[count, size]` float32; arguments as in `bits`."""
    # 24 bits: as many as float32 holds below 1, so that 1 is never reached by rounding.
    words = bits(seed, stream, step=step, first=first, count=count, size=size)
    high = tf.bitwise.right_shift(words, tf.constant(8, tf.uint32))
    return tf.cast(tf.cast(high, tf.int32), tf.float32) * 2.0**-24


def uncorrelated_bits(
    seed: int, stream: Stream, *, first: tf.Tensor, count: int, size: int
) -> tf.Tensor:
    """As `bits`, for noise on whole images, where those would take most of the time.

    Multiply-add hashing (Carter and Wegman 1979): word p of an example is a x_p + b modulo 2^32,
    with a and b random for every example and the x_p random for the run. Each word is uniform
    and any two of an example are uncorrelated; a polynomial of more of them need not be.

    Args:
      seed, first, count, size: as in `bits`.
      stream: what the numbers are for; draws its steps 0 and 1.

    Returns:
      `[count, size]`, uint32. Row i depends on (seed, stream, first + i) only.
    """
    with tf.init_scope():  # once, not in every call of a dataset's function
        x = bits(seed, stream, step=1, first=0, count=1, size=size)
    a, b = tf.split(bits(seed, stream, step=0, first=first, count=count, size=2), 2, axis=1)
    return a * x + b


def normal(
    seed: int | tf.Tensor,
    stream: Stream,
    *,
    step: tf.Tensor,
    first: tf.Tensor,
    count: int | tf.Tensor,
    size: int,
) -> tf.Tensor:
    """Standard normal values, `[count, size]` float32; arguments as in `bits`.

    Box and Muller 1958: each pair of uniforms gives a pair of normals. 24 bits reach
    5.77 standard deviations.
    """
    pairs = -(-size // 2)
    u = uniform(seed, stream, step=step, first=first, count=count, size=2 * pairs)
    radius = tf.sqrt(-2.0 * tf.math.log(1.0 - u[:, :pairs]))  # 1 - u is in (0, 1]
    angle = 2.0 * math.pi * u[:, pairs:]
    return tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=1)[:, :size]
