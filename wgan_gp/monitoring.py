"""Writers of scalars and images to metrics.jsonl, PNG files, the terminal and memory.

The trainer depends on the `Writer` interface only. events.py has the writer for TensorBoard.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from .files import fsync, write_atomic
from .json_files import read_log

_NAMED = 10  # damaged lines named in a warning; the others are only counted


class Writer:
    """The interface of writers. All methods do nothing by default.

    The argument `step` is the number of iterations done.
    """

    def begin(self, step: int) -> None:
        """Prepares for the iterations after `step`, at a start, a resume or a rollback."""

    def progress(self, step: int) -> None:
        """Shows the progress after each device loop."""

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


class Writers(Writer):
    """Forwards each call to several writers, in order.

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
        self._hand_on("begin", step)

    def progress(self, step: int) -> None:
        self._hand_on("progress", step)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._hand_on("scalars", step, values)

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        self._hand_on("image", step, tag, image)

    def histogram(self, step: int, tag: str, values: np.ndarray) -> None:
        self._hand_on("histogram", step, tag, values)

    def text(self, step: int, tag: str, text: str) -> None:
        self._hand_on("text", step, tag, text)

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        self._hand_on("evaluation", step, values)

    def close(self) -> None:
        self._hand_on("close")

    def _hand_on(self, method: str, *args) -> None:
        with self._reporting():
            for writer in self._writers:
                getattr(writer, method)(*args)


class JsonlWriter(Writer):
    """Writes a file with one JSON object per summary: "step" and all scalars."""

    _ascending = True  # whether each line is of a later step than the one before

    def __init__(self, path: str):
        self._path = path

    def begin(self, step: int) -> None:
        """Removes lines later than `step` and an incomplete last line.

        Lines later than `step` are from an earlier process after its last checkpoint. They will
        be computed again. Damaged lines are moved to a file with the suffix .damaged, with a
        warning on stderr.
        """
        log = read_log(self._path, ascending=self._ascending)
        kept = b"".join(line for line_step, line in log.lines if line_step <= step)
        if log.damaged:
            aside = f"{self._path}.damaged"
            _append(aside, b"".join(line for _, line in log.damaged))
            numbers = ", ".join(str(number) for number, _ in log.damaged[:_NAMED])
            more = f" and {len(log.damaged) - _NAMED} more" if len(log.damaged) > _NAMED else ""
            print(
                f"warning: {self._path} has damaged lines ({numbers}{more}); they are moved to "
                f"{aside}",
                file=sys.stderr,
            )
        if kept != log.content:
            write_atomic(self._path, kept)

    def end_line(self) -> None:
        """Ends an incomplete last line, so that it does not spoil the next one."""
        log = read_log(self._path, ascending=False)
        if log.content and not log.content.endswith(b"\n"):
            _append(self._path, b"\n")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._append({"step": step, **values})

    def _append(self, content: Mapping[str, Any]) -> None:
        _append(self._path, json.dumps(content).encode() + b"\n")


class EvaluationFileWriter(JsonlWriter):
    """Writes a file with one JSON object per evaluation: "step", `about` and all scalars.

    Args:
      path: The path of the file.
      about: Entries that are the same for all evaluations of a process.
    """

    _ascending = False  # any checkpoint may be evaluated, also repeatedly

    def __init__(self, path: str, about: Mapping[str, Any]):
        super().__init__(path)
        self._about = dict(about)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        pass

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        self._append({"step": step, **self._about, **values})


def _append(path: str, content: bytes) -> None:
    with tf.io.gfile.GFile(path, "ab") as file:
        file.write(content)
    fsync(path)  # after the next checkpoint, this content will not be written again


class ImageFileWriter(Writer):
    """Writes the images of one tag as `directory`/step_NNNNNNNN.png."""

    def __init__(self, directory: str, tag: str = "samples"):
        self._directory = directory
        self._tag = tag

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        if tag != self._tag:
            return
        path = posixpath.join(self._directory, f"step_{step:08d}.png")
        # GFile writes on this machine; an op would write on the TPU's host.
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(tf.io.encode_png(image).numpy())


class ConsoleWriter(Writer):
    """Shows a progress bar on a terminal, or prints a line per summary to other outputs."""

    def __init__(self, total: int, file=sys.stderr, clock: Callable[[], float] = time.perf_counter):
        self._total = total
        self._file = file
        self._clock = clock
        self._bar = tqdm.tqdm(disable=True)

    def begin(self, step: int) -> None:
        self.close()
        if step >= self._total:
            self._print(
                f"all {self._total} iterations are done: start afresh in another run directory"
            )
        elif step:
            self._print(f"resuming after {step} iterations")
        self._mark = (step, self._clock())
        self._bar = tqdm.tqdm(
            total=self._total,
            initial=step,
            unit="it",
            file=self._file,
            disable=not self._file.isatty(),
            dynamic_ncols=True,
        )

    def progress(self, step: int) -> None:
        self._bar.update(step - self._bar.n)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        def term(tag: str, label: str) -> str:
            return f"{label} {values[tag]:.3f}, " if tag in values else ""

        line = (
            f"{term('critic/wasserstein', 'wasserstein')}"
            f"losses {values['critic/loss']:.3f} {values['generator/loss']:.3f}, "
            f"{term('critic/penalty', 'penalty')}"
            f"{term('critic/gradient_norm', 'gradient norm')}"
            f"{values['throughput/images_per_second']:.0f} images/s, "
            f"{values['throughput/data_wait_share']:.0%} waiting for data, "
            f"{values['throughput/host_share']:.0%} between loops"
        )
        if self._bar.disable:
            # The progress bar shows the remaining time itself.
            left = tqdm.tqdm.format_interval(self._seconds_left(step))
            self._print(f"{step}/{self._total}: {line}, {left} left")
        else:
            self._bar.set_postfix_str(line)

    def text(self, step: int, tag: str, text: str) -> None:
        self._above_the_bar(f"{step}/{self._total}: {tag}: {text}")

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        line = ", ".join(f"{tag.partition('/')[2]} {value:.4g}" for tag, value in values.items())
        self._above_the_bar(f"{step}/{self._total}: {line}".replace("_", " "))

    def _above_the_bar(self, line: str) -> None:
        if self._bar.disable:
            self._print(line)
        else:
            self._bar.write(line, file=self._file)

    def close(self) -> None:
        self._bar.close()

    def _seconds_left(self, step: int) -> float:
        """Returns the remaining time at the speed since the last summary.

        The first value includes the time for tracing.
        """
        (before, then), now = self._mark, self._clock()
        self._mark = (step, now)
        return (self._total - step) * (now - then) / max(1, step - before)

    def _print(self, line: str) -> None:
        print(line, file=self._file, flush=True)


class MemoryWriter(Writer):
    """Stores all calls in lists, for tests and notebooks."""

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
