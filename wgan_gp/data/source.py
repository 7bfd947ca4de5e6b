"""The two kinds of opened datasets: `Source`, in memory, and `Stream`, decoded as needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Source:
    """An endless sequence of shuffled examples from memory, addressed by position.

    A position always holds the same example, so the position is a function of the iteration and
    there is no reader state to save.

    Attributes:
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      read: (first, count) -> examples `[count, *example_shape]` float32, images in [-1, 1], and
        labels `[count]` int32, at the positions `first ... first + count - 1`. Without
        classes, all labels are 0. `first` is a scalar int64 tensor, `count` a Python integer.
        Runs inside tf.data, on the host.
      size: The number of examples in an epoch. None if the examples are generated.
    """

    example_shape: tuple[int, ...]
    read: Callable[[tf.Tensor, int], tuple[tf.Tensor, tf.Tensor]]
    size: int | None = None


@dataclasses.dataclass(frozen=True)
class Stream:
    """An endless sequence of shuffled images that are read and decoded as needed.

    As with `Source`, a position always holds the same image.

    Attributes:
      example_shape: `(H, W, C)`.
      size: The number of images in an epoch.
      encoded: (position, count) -> an endless dataset of batches of `count` encoded images,
        starting at that position. Batches are cheap to skip: a host drops those that other
        hosts decode.
      decode: A dataset of encoded batches -> a dataset of batches of any size: levels
        `[G, H, W, C]` uint8 and labels `[G]` int32, with one image for each encoded image.
      finish: (levels, position of the first image) -> `[B, H, W, C]` float32 in [-1, 1].
    """

    example_shape: tuple[int, ...]
    size: int
    encoded: Callable[[int, int], tf.data.Dataset]
    decode: Callable[[tf.data.Dataset], tf.data.Dataset]
    finish: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
