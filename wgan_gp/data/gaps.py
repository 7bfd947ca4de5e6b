"""Replaces each unreadable image by the next readable one.

The position of an image determines its replica and its noise, so images must not move up when an
image before them is unreadable. `mark` attaches positions to the images before they are decoded.
`fill` finds the positions that are missing after unreadable images were dropped, and fills them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

NAMED = 20  # in a sequence of missing images, only the last NAMED are reported
NOT_ONE = "of many images in a row not one can be read"

# The position of an image; the indices of the NAMED images before it, which are reported if they
# are missing; and True if it is an image, False if it is the end of a batch.
Mark = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def mark(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Turns batches (indices, payloads) into batches (marks, payloads), one element longer.

    The extra element at the end is not an image and never fails to decode. Without it, `fill`
    would receive nothing when all images are unreadable, for example after the disk has failed.
    """

    def step(state: tuple, batch: tuple) -> tuple[tuple, tuple]:
        (first, last_indices), (indices, payloads) = state, batch
        count = tf.size(indices)
        rows = tf.range(count + 1)
        indices = tf.concat([last_indices, indices], axis=0)
        before = tf.gather(indices, rows[:, None] + tf.range(NAMED))
        payloads = tf.nest.map_structure(lambda part: tf.concat([part, part[-1:]], 0), payloads)
        state = (first + tf.cast(count, tf.int64), indices[-NAMED:])
        return state, ((first + tf.cast(rows, tf.int64), before, rows < count), payloads)

    nothing_yet = (tf.constant(0, tf.int64), tf.fill([NAMED], tf.constant(-1, tf.int64)))
    return batches.scan(nothing_yet, step)


def fill(
    batches: tf.data.Dataset,
    origin: str,
    most_missing: int,
    notice: Callable[[np.ndarray], None] | None,
) -> tf.data.Dataset:
    """Turns batches (marks, levels, labels) into batches (levels, labels) without gaps.

    Args:
      batches: The batches of `mark`, decoded and rebatched, without unreadable images.
      origin: The flag for messages.
      most_missing: The number of consecutive missing images that raises the error NOT_ONE.
      notice: Receives the indices of missing images, int64, with the last NAMED of each
        consecutive sequence. None reports nothing.
    """

    def step(expected: tf.Tensor, batch: tuple) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        """Fills all positions from `expected` on; a missing image is replaced by the next one."""
        (places, before, is_image), levels, labels = batch
        rows = tf.where(is_image)[:, 0]
        image_places = tf.concat([[expected - 1], tf.gather(places, rows)], axis=0)
        end = image_places[-1] + 1
        chosen = tf.gather(rows, tf.searchsorted(image_places[1:], tf.range(expected, end)))
        missing = places[-1] - end
        told = f"{origin}: {NOT_ONE}"
        checks = [tf.debugging.assert_less(missing, np.int64(most_missing), told)]
        if notice is not None:
            gaps = image_places[1:] - image_places[:-1] - 1
            checks.append(_tell(notice, gaps, tf.gather(before, rows)))
        with tf.control_dependencies(checks):
            return end, (tf.gather(levels, chosen), tf.gather(labels, chosen))

    return batches.scan(tf.constant(0, tf.int64), step)


def _tell(notice: Callable[[np.ndarray], None], gaps: tf.Tensor, before: tf.Tensor) -> tf.Tensor:
    """Calls `notice` if there are gaps; Python is not called otherwise."""

    def tell(gaps: np.ndarray, before: np.ndarray) -> np.int64:
        rows = zip(gaps, before, strict=True)
        notice(np.concatenate([row[NAMED - min(gap, NAMED) :] for gap, row in rows]))
        return np.int64(0)

    return tf.cond(
        tf.reduce_any(gaps > 0),
        lambda: tf.numpy_function(tell, [gaps, before], tf.int64),
        lambda: tf.constant(0, tf.int64),
    )
