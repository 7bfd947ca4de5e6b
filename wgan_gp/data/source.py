"""A source: what is known of some data, and how its examples are read; and choices among them."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..config import DeviceSettings
from ..errors import UserError
from .spec import DataSpec

if typing.TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

NO_LABEL = -1  # the label of an example whose class is unknown, in data with classes


class Span(NamedTuple):
    """Examples of equal size in a file, one after the other.

    Attributes:
      path: The file.
      begin: The place of the first example, in bytes.
      size: The number of examples, which end with the file.
    """

    path: str
    begin: int
    size: int


@dataclasses.dataclass(frozen=True)
class Source:
    """Examples of any kind, which were found but not read.

    The examples are numbered, and `read` returns any of them; or they are endless: `draw` computes
    those at any positions, or `stream` yields them in its own order.

    Attributes:
      origin: The flag and its value, or the name of the data, for messages.
      spec: The shape, the classes and the conditions of the data, and its units. It has classes and
        conditions also for an unconditional run.
      dtype: The dtype in which examples are stored: uint8 or uint16 for levels, else float32.
      size: The number of examples; None if they are endless, or not yet decoded.
      read: (indices `[B]` or a slice) -> stored examples `[B, *shape]`. Threads may share it.
      labels: `[size]` the numbers of classes, or NO_LABEL; or standardized conditions `[size, K]`.
        None without labels.
      draw: (first position, count) -> stored examples and labels, both tensors.
      stream: Yields pairs of a stored example and its label, and is repeated.
      decode: (devices) -> the same source with `read` and `labels`, for examples that are first
        decoded or loaded, such as pictures; see `store.opening`.
      count: (devices) -> their number, without decoding them.
      spans: The files of examples, for machines that run no Python.
      identity: () -> the fingerprint of the data for data.json, the same on every machine; None for
        data without files.
      notes: What was understood or guessed, in a few words each, for people.
      like: (spec) -> the same examples with the classes, the conditions and the units of other
        data: the training data, or the data at the beginning of a run.
      held_out: (spec) -> other examples that are not trained on, such as the split "test", like the
        training data; or None.
      resizable: Whether --image_size can change the size of examples.
      square_side: The side of the default square of pictures, for networks that do not support
        rectangles.
      balanced: (stored examples, seed) -> the indices and the labels on which a conditional run
        trains; None to train on each example once in an epoch.
      columns: The labels of the columns of a DataFrame that Python gave.
    """

    origin: str
    spec: DataSpec
    dtype: Any
    size: int | None = None
    read: Callable[[np.ndarray | slice], np.ndarray] | None = None
    labels: np.ndarray | None = None
    draw: Callable[[tf.Tensor, int], tuple[tf.Tensor, tf.Tensor]] | None = None
    stream: tf.data.Dataset | None = None
    decode: Callable[[DeviceSettings], Source] | None = None
    count: Callable[[DeviceSettings], int] | None = None
    spans: Sequence[Span] = ()
    identity: Callable[[], dict[str, Any] | None] = lambda: None
    notes: tuple[str, ...] = ()
    like: Callable[[DataSpec], Source] | None = None
    held_out: Callable[[DataSpec], Source | None] | None = None
    resizable: bool = False
    square_side: int | None = None
    balanced: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]] | None = None
    columns: Any = None

    @property
    def is_numbered(self) -> bool:
        """Is False for examples that are computed or streamed, which have no indices."""
        return self.draw is None and self.stream is None


def is_held_out(size: int, share: float | None) -> np.ndarray:
    """Returns which examples of a dataset are held out: `[size]` bool.

    The rule depends on its arguments only, so that every start, every machine and every mode of the
    program sets the same examples aside, whatever --seed is. It is that of
    `sklearn.model_selection.train_test_split(range(size), test_size=share, random_state=0)`.

    Args:
      size: The number of examples.
      share: The share of them in [0, 1), rounded up to whole examples. None and 0 hold out none.

    Raises:
      UserError: If no example is left.
    """
    import numpy as np  # noqa: PLC0415

    held_out = np.zeros([size], bool)
    order = np.random.RandomState(0).permutation(size)
    held_out[order[: math.ceil((share or 0.0) * size)]] = True
    if size and held_out.all():
        raise UserError(
            f"--holdout={share:g} leaves none of {size} examples for training",
            "give a smaller share",
        )
    return held_out


def balanced_size(size: int) -> int:
    """Returns the number of rows that a conditional run on a table draws from a number of rows."""
    return min(max(4 * size, 2**15), 2**20)
