"""The writer of progress to a notebook."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from .console import evaluation_line, summary_line
from .writer import Writer

_MIN_WIDTH = 256  # pixels on the screen; a grid of small images would otherwise be tiny


class NotebookWriter(Writer):
    """A writer that shows a progress bar, the newest summary and the newest samples in a notebook.

    Each of these is updated in place. Texts and evaluations are printed below.

    Args:
      total: The number of iterations of the run.
      tag: The tag of the images to show.
      clock: () -> seconds.
    """

    def __init__(
        self, total: int, tag: str = "samples", clock: Callable[[], float] = time.perf_counter
    ):
        self._total = total
        self._tag = tag
        self._clock = clock
        self._displays: dict[str, Any] = {}
        self._line = ""

    def begin(self, step: int) -> None:
        self._first, self._start = step, self._clock()
        self._line = ""
        if step >= self._total:
            self._line = "all iterations are done; use another model_dir for a new run"
        elif step:
            self._line = f"resumed after {step} iterations"
        self.progress(step)

    def progress(self, step: int) -> None:
        self._step = step
        bar = tqdm.tqdm.format_meter(
            step,
            self._total,
            self._clock() - self._start,
            ncols=80,
            unit="it",
            initial=self._first,
        )
        self._show("progress", {"text/plain": f"{bar}\n{self._line}"})

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._line = summary_line(values)
        self.progress(step)

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        if tag != self._tag:
            return
        height, width = image.shape[:2]
        factor = max(1, -(-_MIN_WIDTH // width))
        size = {"image/png": {"width": width * factor, "height": height * factor}}
        content = {
            "image/png": tf.io.encode_png(image).numpy(),
            "text/plain": f"samples after {step} iterations",
        }
        self._show("samples", content, size)

    def text(self, step: int, tag: str, text: str) -> None:
        print(f"{step}/{self._total}: {tag}: {text}")

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        print(f"{step}/{self._total}: {evaluation_line(values)}")

    def _show(
        self, name: str, content: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Shows content in a new output, or in place of the previous content of this name."""
        from IPython.display import display  # noqa: PLC0415

        if name in self._displays:
            self._displays[name].update(content, raw=True, metadata=metadata)
        else:
            self._displays[name] = display(content, raw=True, metadata=metadata, display_id=True)
