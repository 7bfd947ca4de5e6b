"""Examples of slow files, such as pictures, which are decoded once into a store."""

from __future__ import annotations

import abc
import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...config import DataSettings
from ...errors import naming

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


class Item(NamedTuple):
    """An encoded example.

    Attributes:
      name: Its name for messages, such as the path of its file.
      label: The number of its class or NO_LABEL; 0 without classes.
      content: What `Encoded.decode` takes, or Unreadable if there is nothing to decode.
    """

    name: str
    label: int
    content: Any


class Unreadable(Exception):  # noqa: N818
    """An example that cannot be read. It is named in a warning, and left out.

    Args:
      reason: The reason in a few words, such as "it has no pixels".
    """


class Encoded(abc.ABC):
    """Examples in files of one kind, in a fixed order.

    Its properties are known after reading at most some headers. It does not start TensorFlow's
    runtime and builds no graphs; `tf.io.gfile` opens its files, which may be in a bucket.

    Attributes:
      origin: The flag and its value for messages, such as "--data_dir=photos".
      shape: The shape of an example, `(H, W, C)` for pictures.
      dtype: The dtype of an example; for pictures np.uint8 or np.uint16.
      class_names: The names of the classes in the order of their numbers; None without labels.
      size: The number of examples, including those that turn out to be unreadable.
      decode: Returns the example of the content of an item, or raises Unreadable. Threads call it
        at the same time, and other processes, for which it is pickled. Its module does not import
        TensorFlow, which would take seconds and hundreds of megabytes in each process.
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
    decode: Callable[[Any], np.ndarray]
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
    def items(self, first: int = 0) -> Iterator[Item]:
        """Yields the encoded examples in order, from the index `first` on."""

    def read(self, item: Item) -> np.ndarray:
        """Returns the example of an item; see `read_item`."""
        return read_item(item, self.decode, self.origin)

    @abc.abstractmethod
    def resized(self, settings: DataSettings) -> Encoded:
        """Returns the same examples for another --image_size."""

    def of_split(self, split: str) -> Encoded:
        """Returns the examples of another split in the same form; see `held_out_split`."""
        raise NotImplementedError(f"{type(self).__name__} has no splits")


def read_item(item: Item, decode: Callable[[Any], np.ndarray], origin: str) -> np.ndarray:
    """Returns the example of an item.

    Raises:
      Unreadable: If it cannot be read.
      UserError: A mistake of the user, with the name of the item.
    """
    if isinstance(item.content, Unreadable):
        raise item.content
    with naming(f"{origin}: {item.name}"):
        return decode(item.content)


def computed_ahead(
    function: Callable[[_Given], _Result], values: Iterable[_Given], threads: int, window: int
) -> Iterator[_Result]:
    """Yields the results of a function in order, of which threads compute `window` ahead.

    The end does not wait for threads that still compute.
    """
    pool, waiting = ThreadPoolExecutor(threads), collections.deque[Future[_Result]]()
    try:
        for value in values:
            waiting.append(pool.submit(function, value))
            if len(waiting) > window:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
