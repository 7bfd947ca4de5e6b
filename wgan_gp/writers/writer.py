"""The interface of writers, and writers that forward calls or store them in memory.

The hooks of training depend on `Writer` only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Mapping

import numpy as np


class Writer:
    """The interface of writers. All methods do nothing by default.

    The argument `step` is the number of iterations done.
    """

    def begin(self, step: int) -> None:
        """Prepares for the iterations after `step`, at a start, a resume or a rollback."""

    def progress(self, step: int) -> None:
        """Shows the progress after each loop."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Writes a summary: one number per tag."""

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        """Writes an image, uint8 `[H, W, 1 or 3]`."""

    def histogram(self, step: int, tag: str, values: np.ndarray) -> None:
        """Writes a histogram of values `[N]`."""

    def text(self, step: int, tag: str, text: str) -> None:
        """Writes a line of text."""

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        """Writes an evaluation of the samples: one number per tag."""

    def close(self) -> None:
        """Closes files at the end of the run, also after an error."""


@dataclasses.dataclass(frozen=True)
class TrackedRun:
    """The content of wandb.json or mlflow.json.

    Attributes:
      run_id: The identifier of the run at the tracker, which is no path and no address.
    """

    run_id: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]{1,128}", self.run_id, re.ASCII):
            raise ValueError("run_id is not an identifier")


class Writers(Writer):
    """A writer that forwards each call to several writers, in order.

    Args:
      *writers: The writers.
      reporting: () -> a context in which the writers are called, for example to turn their
        errors into a UserError.
    """

    def __init__(
        self,
        *writers: Writer,
        reporting: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    ):
        self._writers = writers
        self._reporting = reporting

    def begin(self, step: int) -> None:
        self._forward("begin", step)

    def progress(self, step: int) -> None:
        self._forward("progress", step)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._forward("scalars", step, values)

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        self._forward("image", step, tag, image)

    def histogram(self, step: int, tag: str, values: np.ndarray) -> None:
        self._forward("histogram", step, tag, values)

    def text(self, step: int, tag: str, text: str) -> None:
        self._forward("text", step, tag, text)

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        self._forward("evaluation", step, values)

    def close(self) -> None:
        with self._reporting(), contextlib.ExitStack() as all_of_them:
            for writer in reversed(self._writers):  # closed also after an error of another one
                all_of_them.callback(writer.close)

    def _forward(self, method: str, *args) -> None:
        with self._reporting():
            for writer in self._writers:
                getattr(writer, method)(*args)


class MemoryWriter(Writer):
    """A writer that stores all calls in lists, for tests and notebooks."""

    def __init__(self):
        self.summaries: list[tuple[int, dict[str, float]]] = []
        self.images: list[tuple[int, str, np.ndarray]] = []
        self.texts: list[tuple[int, str, str]] = []
        self.evaluations: list[tuple[int, dict[str, float]]] = []

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.summaries.append((step, dict(values)))

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        self.images.append((step, tag, image))

    def text(self, step: int, tag: str, text: str) -> None:
        self.texts.append((step, tag, text))

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        self.evaluations.append((step, dict(values)))
