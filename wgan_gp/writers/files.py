"""Writers of metrics.jsonl, evaluation.jsonl and PNG files."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ..run_directory.files import check_regular, fsync, write_atomic
from ..run_directory.json_files import read_log
from .writer import Writer

_MAX_LINES_LISTED = 10  # damaged lines in a warning; the others are only counted


class JsonlWriter(Writer):
    """A writer of a file with one JSON object per summary: "step" and all scalars."""

    _ascending = True  # each line has a larger step than the previous one

    def __init__(self, path: str):
        self._path = path

    def begin(self, step: int) -> None:
        """Removes lines later than `step` and an incomplete last line.

        An earlier process wrote the lines later than `step` after its last checkpoint; they will
        be computed again. Damaged lines, and lines whose step is not larger than that of the line
        before, are moved to a file with the suffix .damaged, with a warning on stderr.
        """
        log = read_log(self._path, ascending=self._ascending, until=step)
        kept = b"".join(line for _, line in log.lines)
        if log.damaged:
            damaged_path = f"{self._path}.damaged"
            _append(damaged_path, b"".join(line for _, line in log.damaged))
            numbers = ", ".join(str(number) for number, _ in log.damaged[:_MAX_LINES_LISTED])
            others = len(log.damaged) - _MAX_LINES_LISTED
            more = f" and {others} more" if others > 0 else ""
            logging.warning(
                f"{self._path} has damaged lines ({numbers}{more}); they were moved to "
                f"{damaged_path}"
            )
        if kept != log.content:
            write_atomic(self._path, kept)

    def terminate_last_line(self) -> None:
        """Appends a line break if the last line has none, so that a new line starts after it."""
        if not tf.io.gfile.exists(self._path):
            return
        size = tf.io.gfile.stat(self._path).length
        if size == 0:
            return
        check_regular(self._path)
        with tf.io.gfile.GFile(self._path, "rb") as file:
            file.seek(size - 1)
            last = file.read(1)
        if last != b"\n":
            _append(self._path, b"\n")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._append({"step": step, **values})

    def _append(self, content: Mapping[str, Any]) -> None:
        _append(self._path, json.dumps(content).encode() + b"\n")


class EvaluationFileWriter(JsonlWriter):
    """A writer of a file with one JSON object per evaluation: "step", `metadata` and all metrics.

    Args:
      path: The path of the file.
      metadata: Entries in addition to the metrics; read at each evaluation.
    """

    _ascending = False  # any checkpoint may be evaluated, even repeatedly

    def __init__(self, path: str, metadata: Mapping[str, Any]):
        super().__init__(path)
        self._metadata = metadata

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        pass

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        self._append({"step": step, **self._metadata, **values})


def _append(path: str, content: bytes) -> None:
    with tf.io.gfile.GFile(path, "ab") as file:
        file.write(content)
    fsync(path)  # a resume from the next checkpoint would not write this content again


class ImageFileWriter(Writer):
    """A writer of the images of one tag, as `directory`/step_NNNNNNNN.png."""

    def __init__(self, directory: str, tag: str = "samples"):
        self._directory = directory
        self._tag = tag

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        if tag != self._tag:
            return
        path = posixpath.join(self._directory, f"step_{step:08d}.png")
        # GFile writes on this machine, but an op would write on the TPU's host.
        write_atomic(path, tf.io.encode_png(image).numpy())
