"""A dataset as a function of position."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Source:
    """An endless, shuffled reading of a dataset, addressed by position.

    The same position always holds the same example, so the data's place in training is a
    number that follows from the iteration, and there is no reader's state to save.

    Attributes:
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      read: (first, count) -> examples `[count, *example_shape]` float32, images in [-1, 1], and
        labels `[count]` int32, at the positions `first ... first + count - 1`. Without
        classes, all labels are 0. `first` is a scalar int64 tensor, `count` a Python integer.
        Runs inside tf.data, on the host.
    """

    example_shape: tuple[int, ...]
    read: Callable[[tf.Tensor, int], tuple[tf.Tensor, tf.Tensor]]
