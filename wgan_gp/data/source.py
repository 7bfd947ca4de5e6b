"""The base classes of opened datasets: `InMemoryData`, and `StreamedData`, decoded as needed."""

from __future__ import annotations

import abc

import tensorflow as tf


class OpenedData(abc.ABC):
    """An endless sequence of shuffled examples, addressed by position.

    A position always holds the same example, and the position is a function of the iteration.
    Checkpoints therefore contain no reader state.

    Attributes:
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      size: The number of examples in an epoch. None if the examples are generated.
    """

    example_shape: tuple[int, ...]
    size: int | None


class InMemoryData(OpenedData):
    """Examples that are held in memory or generated."""

    @abc.abstractmethod
    def read(self, first: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the examples and labels at the positions `first` ... `first + count - 1`.

        It is called inside tf.data, on the host.

        Args:
          first: The first position, scalar int64.
          count: The number of examples.

        Returns:
          Examples `[count, *example_shape]` float32, images in [-1, 1], and labels `[count]`
          int32. Without classes, all labels are 0.
        """


class StreamedData(OpenedData):
    """Images that are read and decoded as needed."""

    size: int

    @abc.abstractmethod
    def encoded(self, first: int, count: int) -> tf.data.Dataset:
        """Returns an endless dataset of batches of `count` encoded images, from a position on.

        Batches are cheap to skip: a host drops the batches that other hosts decode.
        """

    @abc.abstractmethod
    def decode(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        """Decodes batches of `encoded`.

        Returns:
          A dataset of batches of any size: images `[B, H, W, C]` uint8 and labels `[B]` int32.
          It holds one image for each encoded image.
        """

    @abc.abstractmethod
    def normalize(self, uint8_images: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
        """Returns `[B, H, W, C]` float32 in [-1, 1] for uint8 images.

        Args:
          uint8_images: `[B, H, W, C]` uint8.
          first: The position of the first image, scalar int64.
        """
