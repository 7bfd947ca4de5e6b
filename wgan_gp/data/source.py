"""A dataset as the pipeline reads it: by position."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Source:
    """An endless, shuffled reading of a dataset in memory, addressed by position.

    The same position always holds the same example, so the data's place in training is a
    number that follows from the iteration, and there is no reader's state to save.

    Attributes:
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      read: (first, count) -> examples `[count, *example_shape]` float32, images in [-1, 1], and
        labels `[count]` int32, at the positions `first ... first + count - 1`. Without
        classes, all labels are 0. `first` is a scalar int64 tensor, `count` a Python integer.
        Runs inside tf.data, on the host.
      size: examples in an epoch; None where each is drawn fresh.
    """

    example_shape: tuple[int, ...]
    read: Callable[[tf.Tensor, int], tuple[tf.Tensor, tf.Tensor]]
    size: int | None = None


@dataclasses.dataclass(frozen=True)
class Stream:
    """The same for images that are read and decoded as they are needed.

    Attributes:
      example_shape: `(H, W, C)`.
      size: images in an epoch.
      encoded: (position, count) -> an endless dataset of batches of `count` images still to be
        decoded, from that position on. Cheap to pass over: a host drops those that other
        hosts decode.
      decode: a dataset of such -> one of batches of any size: levels `[G, H, W, C]` uint8
        and labels `[G]` int32, an image for each that is to be decoded.
      finish: (levels, position of the first) -> `[B, H, W, C]` float32 in [-1, 1].
    """

    example_shape: tuple[int, ...]
    size: int
    encoded: Callable[[int, int], tf.data.Dataset]
    decode: Callable[[tf.data.Dataset], tf.data.Dataset]
    finish: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
