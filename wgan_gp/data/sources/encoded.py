"""Examples of slow files, such as pictures, which are decoded once into a store."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...config import DataSettings

NO_LABEL = -1  # the label of an example whose class is unknown, in a source with classes


class Example(NamedTuple):
    """An example of a source.

    Attributes:
      array: `Encoded.shape`, of `Encoded.dtype`.
      label: The number of its class or NO_LABEL; 0 in a source without classes.
    """

    array: np.ndarray
    label: int = 0


class Unreadable(Exception):  # noqa: N818
    """An example that cannot be read. It is named in a warning, and left out.

    Args:
      reason: The reason in a few words, such as "it has no pixels".
    """


class Encoded(abc.ABC):
    """Examples in files of one kind, in a fixed order.

    A source knows its properties after reading at most some headers. It does not start TensorFlow's
    runtime and builds no graphs; `tf.io.gfile` opens its files, which may be in a bucket.

    Attributes:
      origin: The flag and its value for messages, such as "--data_dir=photos".
      shape: The shape of an example, `(H, W, C)` for pictures.
      dtype: The dtype of an example; for pictures np.uint8 or np.uint16.
      class_names: The names of the classes in the order of their numbers; None without labels.
      size: The number of examples, including those that turn out to be unreadable.
      is_prepared: False for a dataset that must be downloaded first, whose `size` is unknown.
      square_side: The side of the default square of pictures, for networks that do not support
        rectangles.
      held_out_split: The name of a split, "test" or "validation", that is not the split of these
        examples; None if there is none.
    """

    origin: str
    shape: tuple[int, ...]
    dtype: np.dtype
    class_names: tuple[str, ...] | None
    size: int
    is_prepared: bool = True
    square_side: int | None = None
    held_out_split: str | None = None

    def prepare(self) -> None:  # noqa: B027
        """Downloads the data if `is_prepared` is False, after which its `size` is known."""

    @abc.abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Returns the fingerprint of the files, which is the same on every machine."""

    @abc.abstractmethod
    def identity(self) -> dict[str, Any]:
        """Returns a JSON object that changes if any example changes.

        It contains, for example, the names, sizes and times of files, and how they are decoded.
        """

    @abc.abstractmethod
    def items(self, first: int = 0) -> Iterator[Any]:
        """Yields what `read` needs for each example in order, from the index `first` on.

        An item is cheap in comparison with `read`: the path of a file, or an encoded record.
        """

    @abc.abstractmethod
    def read(self, item: Any) -> Example:
        """Reads and decodes an item. Several threads call it at the same time.

        Raises:
          Unreadable: If it cannot be read.
        """

    def fetch(self, item: Any) -> Any:
        """Returns an item with what `decoder` needs of it, such as the content of a remote file.

        Several threads call it at the same time.

        Raises:
          Unreadable: If it cannot be read.
        """
        return item

    def decoder(self) -> Callable[[Any], Example] | None:
        """Returns a function of a fetched item that does the same as `read`, for other processes.

        It is pickled, with the items. Its modules do not import TensorFlow, which would take
        seconds and hundreds of megabytes in each process. None: only threads call `read`.
        """
        return None

    @abc.abstractmethod
    def name(self, index: int) -> str:
        """Returns the name of an example for messages, such as the path of its file."""

    @abc.abstractmethod
    def resized(self, settings: DataSettings) -> Encoded:
        """Returns the same examples for another --image_size."""

    def of_split(self, split: str) -> Encoded:
        """Returns the examples of another split in the same form; see `held_out_split`."""
        raise NotImplementedError(f"{type(self).__name__} has no splits")
