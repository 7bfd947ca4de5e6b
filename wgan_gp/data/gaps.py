"""What takes the place of an image that cannot be read: the next one that can.

An image's place decides which replica it goes to and with what noise, so none may move up when one
before it is missing. Places are written on images before they are decoded (`mark`), and those that
nobody came to are filled behind what leaves out the unreadable (`fill`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

NAMED = 20  # of those missing in a row, the last
NOT_ONE = "of many images in a row not one can be read"

# Of an image: its place; the indices of the NAMED before it, to name those that do not come; and
# whether it is one.
Mark = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def mark(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Batches (indices, payloads) -> batches (marks, payloads), longer by one.

    The one more at the end, which is no image, always comes: else no one would hear that no image
    comes any more, such as when the disk or the network is gone.
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
    """Batches (marks, levels, labels) of those that came -> batches (levels, labels) of all places.

    Args:
      batches: as `mark` made them, decoded and regrouped, without those that could not be.
      origin: of the images, as an error names it.
      most_missing: in a row; more are an error, NOT_ONE.
      notice: given the indices of those that are missing, int64, of each row of them the last
        NAMED; None: nobody asks.
    """

    def step(expected: tf.Tensor, batch: tuple) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        """Puts the next image at each place, from `expected` on, whose own did not come."""
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
    """Calls `notice`, if there are any gaps: Python is asked only where something is wrong."""

    def tell(gaps: np.ndarray, before: np.ndarray) -> np.int64:
        rows = zip(gaps, before, strict=True)
        notice(np.concatenate([row[NAMED - min(gap, NAMED) :] for gap, row in rows]))
        return np.int64(0)

    return tf.cond(
        tf.reduce_any(gaps > 0),
        lambda: tf.numpy_function(tell, [gaps, before], tf.int64),
        lambda: tf.constant(0, tf.int64),
    )
