"""Replaces each unreadable image by the next readable one.

The position of an image determines its replica and its noise, so images must not move up when an
image before them is unreadable. `mark` attaches positions to the images before they are decoded.
`fill` finds the positions that are missing after unreadable images were dropped, and fills them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ...errors import UserError
from ..feed.pipeline_errors import check

MAX_NAMED = 20  # in a sequence of missing images, only the last MAX_NAMED are reported

# The position of an image; the indices of the MAX_NAMED images before it, which are reported if
# they are missing; and True if it is an image, False if it is the end of a batch.
Mark = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def mark(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Turns batches (indices, payloads) into batches (marks, payloads), one element longer.

    The extra element at the end is not an image and never fails to decode. Without it, `fill`
    would receive nothing if all images are unreadable, for example after the disk has failed.
    """

    def step(state: tuple, batch: tuple) -> tuple[tuple, tuple]:
        (first, last_indices), (indices, payloads) = state, batch
        count = tf.size(indices)
        rows = tf.range(count + 1)
        indices = tf.concat([last_indices, indices], axis=0)
        before = tf.gather(indices, rows[:, None] + tf.range(MAX_NAMED))
        payloads = tf.nest.map_structure(lambda part: tf.concat([part, part[-1:]], 0), payloads)
        state = (first + tf.cast(count, tf.int64), indices[-MAX_NAMED:])
        return state, ((first + tf.cast(rows, tf.int64), before, rows < count), payloads)

    initial_state = (tf.constant(0, tf.int64), tf.fill([MAX_NAMED], tf.constant(-1, tf.int64)))
    return batches.scan(initial_state, step)


def fill(
    batches: tf.data.Dataset,
    origin: str,
    *,
    max_missing: int,
    on_missing: Callable[[np.ndarray], None] | None,
) -> tf.data.Dataset:
    """Turns batches (marks, images, labels) into batches (images, labels) without gaps.

    Args:
      batches: The batches of `mark`, decoded and rebatched, without unreadable images.
      origin: The flag for messages.
      max_missing: The number of consecutive missing images that is an error.
      on_missing: Receives the indices of missing images, int64, with the last MAX_NAMED of each
        consecutive sequence. None reports nothing.
    """

    def error_of(count: int) -> UserError:
        return UserError(
            f"{origin}: {count} consecutive images cannot be read",
            "check the disk or the network, delete the damaged files, and start again",
        )

    def step(expected: tf.Tensor, batch: tuple) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        """Fills all positions from `expected` on with the next image that is not missing."""
        (positions, before, is_image), images, labels = batch
        rows = tf.where(is_image)[:, 0]
        image_positions = tf.concat([[expected - 1], tf.gather(positions, rows)], axis=0)
        end = image_positions[-1] + 1
        chosen = tf.gather(rows, tf.searchsorted(image_positions[1:], tf.range(expected, end)))
        missing = positions[-1] - end
        checks = [check(missing < max_missing, error_of, missing)]
        if on_missing is not None:
            gaps = image_positions[1:] - image_positions[:-1] - 1
            checks.append(_report(on_missing, gaps, tf.gather(before, rows)))
        with tf.control_dependencies(checks):
            return end, (tf.gather(images, chosen), tf.gather(labels, chosen))

    return batches.scan(tf.constant(0, tf.int64), step)


def _report(
    on_missing: Callable[[np.ndarray], None], gaps: tf.Tensor, before: tf.Tensor
) -> tf.Tensor:
    """Calls `on_missing` if there are gaps; without gaps, Python is not called."""

    def report(gaps: np.ndarray, before: np.ndarray) -> np.int64:
        rows = zip(gaps, before, strict=True)
        on_missing(np.concatenate([row[MAX_NAMED - min(gap, MAX_NAMED) :] for gap, row in rows]))
        return np.int64(0)

    return tf.cond(
        tf.reduce_any(gaps > 0),
        lambda: tf.numpy_function(report, [gaps, before], tf.int64),
        lambda: tf.constant(0, tf.int64),
    )
