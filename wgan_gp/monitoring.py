"""Where a run's figures and pictures go: TensorBoard, metrics.jsonl, PNG files, the terminal.

The trainer knows the Writer interface only.
"""

from __future__ import annotations

import json
import posixpath
import sys
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tqdm

from .files import replace_text


class Writer:
    """Receives what a run has to show, and ignores it: a writer overrides what concerns it.

    Steps are iterations done.
    """

    def begin(self, step: int) -> None:
        """The run starts, or resumes, after `step` iterations."""

    def progress(self, step: int) -> None:
        """Another loop is done."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """A summary: one number for each tag."""

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        """A picture, uint8 `[H, W, 1 or 3]`."""

    def close(self) -> None:
        """The run is over."""


class Writers(Writer):
    """Hands everything on to several writers, in order."""

    def __init__(self, *writers: Writer):
        self._writers = writers

    def begin(self, step: int) -> None:
        for writer in self._writers:
            writer.begin(step)

    def progress(self, step: int) -> None:
        for writer in self._writers:
            writer.progress(step)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for writer in self._writers:
            writer.scalars(step, values)

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        for writer in self._writers:
            writer.image(step, tag, image)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


class TensorBoardWriter(Writer):
    """Event files under `directory`, flushed at every summary."""

    def __init__(self, directory: str):
        self._directory = directory

    def begin(self, step: int) -> None:
        # As in metrics.jsonl: what is about to be computed again would stand there twice.
        for path in tf.io.gfile.glob(posixpath.join(self._directory, "events.*")):
            cut_events(path, step)
        self._events = tf.summary.create_file_writer(self._directory)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        with self._events.as_default(step=step):
            for tag, value in values.items():
                tf.summary.scalar(tag, value)
        self._events.flush()

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        with self._events.as_default(step=step):
            tf.summary.image(tag, image[None])
        self._events.flush()

    def close(self) -> None:
        self._events.close()


def cut_events(path: str, step: int) -> None:
    """Leaves out of an event file what is later than `step`, and a record torn by a crash."""
    # No name that TensorBoard would read.
    aside = posixpath.join(posixpath.dirname(path), "cut.new")
    whole = True
    with tf.io.TFRecordWriter(aside) as kept:
        try:
            for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
                if tf.compat.v1.Event.FromString(record).step <= step:
                    kept.write(record)
                else:
                    whole = False
        except tf.errors.DataLossError:
            whole = False
    if whole:
        tf.io.gfile.remove(aside)
    else:
        tf.io.gfile.rename(aside, path, overwrite=True)


class JsonlWriter(Writer):
    """One JSON object a summary: "step" and every scalar."""

    def __init__(self, path: str):
        self._path = path

    def begin(self, step: int) -> None:
        # What an earlier process wrote after its last checkpoint is about to be computed
        # again; a line it tore when it died is no summary.
        if tf.io.gfile.exists(self._path):
            with tf.io.gfile.GFile(self._path) as file:
                lines = list(file)
            kept = [line for line in lines if _step_of(line) <= step]
            if kept != lines:
                replace_text(self._path, "".join(kept))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        with tf.io.gfile.GFile(self._path, "a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")


def _step_of(line: str) -> float:
    try:
        return json.loads(line)["step"] if line.endswith("\n") else float("inf")
    except (ValueError, KeyError, TypeError):
        return float("inf")


class ImageFileWriter(Writer):
    """Pictures as `directory`/step_NNNNNNNN.png."""

    def __init__(self, directory: str):
        self._directory = directory

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        path = posixpath.join(self._directory, f"step_{step:08d}.png")
        # GFile, as everywhere: an op would write on the TPU's host, not on this one.
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(tf.io.encode_png(image).numpy())


class ConsoleWriter(Writer):
    """A progress bar on a terminal; a line per summary where the output is a file."""

    def __init__(self, total: int, file=sys.stderr):
        self._total = total
        self._file = file

    def begin(self, step: int) -> None:
        if step >= self._total:
            self._print(
                f"all {self._total} iterations are done: start afresh in another run directory"
            )
        elif step:
            self._print(f"resuming after {step} iterations")
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
        line = (
            f"wasserstein {values['critic/wasserstein']:.3f}, "
            f"gradient norm {values['critic/gradient_norm']:.3f}, "
            f"{values['throughput/images_per_second']:.0f} images/s, "
            f"{values['throughput/data_wait_share']:.0%} waiting for data, "
            f"{values['throughput/host_share']:.0%} between loops"
        )
        if self._bar.disable:
            self._print(f"{step}/{self._total}: {line}")
        else:
            self._bar.set_postfix_str(line)

    def close(self) -> None:
        self._bar.close()

    def _print(self, line: str) -> None:
        print(line, file=self._file, flush=True)


class MemoryWriter(Writer):
    """Keeps everything in lists, for tests and notebooks."""

    def __init__(self):
        self.summaries: list[tuple[int, dict[str, float]]] = []
        self.images: list[tuple[int, str, np.ndarray]] = []

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.summaries.append((step, dict(values)))

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        self.images.append((step, tag, image))
