"""Shuffles datasets with a function from positions to examples, without state to save.

Position p is place p % N of epoch p // N, where N is the number of examples. The order of an epoch
is a Feistel network (Black and Rogaway 2002, "Ciphers with Arbitrary Finite Domains") over a grid
of about sqrt(N) x sqrt(N) cells. Its round functions are tables of random numbers. Cells beyond N
are skipped by applying the permutation again (cycle walking).

By chance, two epochs could have the same order, which is likely for a small dataset. To exclude
this, the order of the first 16 places of an epoch encodes (seed, epoch), both modulo 2^20. This is
possible because 16! > 2^44.
"""

import functools
import math
from collections.abc import Callable

import tensorflow as tf

from ..runtime.randomness import RngStream, bits

ORDER = 2  # version of the order, in data.json; 1 was TensorFlow's RandomIndexShuffle
_ROUNDS = 8
_KEY_BITS = 20  # low bits of seed and epoch that determine the order uniquely
_KEY_PLACES = 16  # the first places, whose order encodes the key
_CODES_PER_KEY = 19  # one is chosen at random; 19 * 2^40 < 16!


def shuffled(seed: int, positions: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the index of the example at each position of an endless, shuffled sequence.

    Each epoch of `size` positions contains every example once. With at least 16 examples, no two
    pairs (seed, epoch) of numbers below 2^20 have the same order.

    Args:
      seed: The seed in [0, 2^31).
      positions: `[B]` int64, B >= 1, counted from the start of training. The memory grows with
        the number of epochs from the first to the last position.
      size: The number of examples, >= 1.

    Returns:
      `[B]` int64, in [0, size).
    """
    return tf.ensure_shape(_traced_order(seed, size)(positions), positions.shape)


@functools.lru_cache(maxsize=16)
def _traced_order(seed: int, size: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns `shuffled` for a seed and a size, traced once in a process."""
    return tf.function(
        functools.partial(_shuffled, seed, size),
        input_signature=[tf.TensorSpec([None], tf.int64)],
        autograph=False,
    )


def _shuffled(seed: int, size: int, positions: tf.Tensor) -> tf.Tensor:
    epochs, places = positions // size, positions % size
    first = tf.reduce_min(epochs)
    count = tf.reduce_max(epochs) - first + 1
    rows = math.isqrt(size - 1) + 1
    words = bits(
        seed,
        RngStream.SHUFFLE,
        step=0,
        first=first,
        count=tf.cast(count, tf.int32),
        size=_ROUNDS * rows + 1,
    )
    words = tf.cast(words, tf.int64)
    permute = _feistel(words[:, :-1], rows, size)
    head = min(size, _KEY_PLACES)

    def with_key() -> tf.Tensor:
        """Reorders the first places of each epoch."""
        every_epoch = first + tf.range(count)
        chosen = permute(
            tf.tile(tf.range(head, dtype=tf.int64), [count]), tf.repeat(tf.range(count), head)
        )
        ascending = tf.sort(tf.reshape(chosen, [-1, head]), axis=1)
        reordered = tf.gather(
            ascending, _encode(seed, every_epoch, words[:, -1], head), batch_dims=1
        )
        row, column = epochs - first, tf.minimum(places, head - 1)
        return tf.where(
            places < head, tf.gather_nd(reordered, tf.stack([row, column], axis=1)), order
        )

    order = permute(places, epochs - first)
    return tf.cond(tf.reduce_any(places < head), with_key, lambda: order)


def _feistel(
    tables: tf.Tensor, rows: int, size: int
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns a permutation of the places of each epoch: (places, epochs) -> examples.

    Args:
      tables: `[E, _ROUNDS * rows]` int64, random numbers for each epoch.
      rows: The number of rows of the grid, the square root of `size` rounded up.
      size: The number of places in an epoch.
    """
    columns = -(-size // rows)
    flat = tf.reshape(tables, [-1])

    def once(cells: tf.Tensor, epochs: tf.Tensor) -> tf.Tensor:
        row, column = cells // columns, cells % columns
        table = epochs * (_ROUNDS * rows)
        for _ in range(_ROUNDS // 2):
            row = (row + tf.gather(flat, table + column)) % rows
            column = (column + tf.gather(flat, table + rows + row)) % columns
            table += 2 * rows
        return row * columns + column

    def permute(places: tf.Tensor, epochs: tf.Tensor) -> tf.Tensor:
        (cells,) = tf.while_loop(
            lambda cells: tf.reduce_any(cells >= size),
            lambda cells: [tf.where(cells >= size, once(cells, epochs), cells)],
            [once(places, epochs)],
        )
        return cells

    return permute


def _encode(seed: int, epochs: tf.Tensor, spare: tf.Tensor, head: int) -> tf.Tensor:
    """Returns an order of `head` places for each epoch; one-to-one in (seed, epoch) for 16 places.

    Args:
      seed: The seed in [0, 2^31).
      epochs: `[E]` int64.
      spare: `[E]` int64, random words that select one of the orders of a key.
      head: The number of places, <= 16.

    Returns:
      `[E, head]` int64, each row a permutation of 0 ... head - 1.
    """
    keys = _scramble((seed % 2**_KEY_BITS << _KEY_BITS) + epochs % 2**_KEY_BITS, seed, epochs)
    codes = (_CODES_PER_KEY * keys + spare % _CODES_PER_KEY) % math.factorial(head)
    # Digits in the factorial number system: the i-th counts the smaller numbers after place i.
    places = tf.constant([[math.factorial(head - 1 - i) for i in range(head)]], tf.int64)
    digits = codes[:, None] // places % tf.range(head, 0, -1, dtype=tf.int64)
    order = digits[:, -1:]
    for i in reversed(range(head - 1)):
        digit = digits[:, i : i + 1]
        order = tf.concat([digit, order + tf.cast(order >= digit, tf.int64)], axis=1)
    return order


def _scramble(keys: tf.Tensor, seed: int, epochs: tf.Tensor) -> tf.Tensor:
    """Scrambles 40-bit keys one-to-one, so that consecutive keys give unrelated orders.

    Each step has an inverse: adding a constant, multiplying by an odd number modulo 2^40, and
    XOR with the key's own upper half.
    """
    mask = tf.constant(2**40 - 1, tf.uint64)
    keys = tf.cast(keys + (seed >> _KEY_BITS) * 0x5DEECE66D, tf.uint64)
    keys += tf.cast(epochs // 2**_KEY_BITS, tf.uint64) * tf.constant(0x9E3779B97F4A7C15, tf.uint64)
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xFF51AFD7ED558CCD):
        keys = tf.bitwise.bitwise_and(keys * tf.constant(factor, tf.uint64), mask)
        keys = tf.bitwise.bitwise_xor(
            keys, tf.bitwise.right_shift(keys, tf.constant(20, tf.uint64))
        )
    return tf.cast(keys, tf.int64)
