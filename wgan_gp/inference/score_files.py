"""Writes the scores of examples as a CSV file (--mode=score)."""

from __future__ import annotations

import csv
import io
import posixpath
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from ..data.scored import ExampleBatch
from ..errors import UserError
from ..run_directory.files import convert_file_errors, write_atomic

REMEDY = "free disk space or check the permissions, or give another --output"


def check_output(path: str) -> None:
    """Raises UserError unless the value of --output is a new file whose name ends in .csv."""
    flag = f"--output={path}"
    if not path.endswith(".csv"):
        raise UserError(
            f"{flag} does not end in .csv, which --mode=score requires",
            "give a file name that ends in .csv",
        )
    with convert_file_errors(flag, "read", REMEDY):
        if tf.io.gfile.isdir(path):
            raise UserError(f"{flag} is a folder", "give the name of a file")
        if tf.io.gfile.exists(path):
            raise UserError(f"{flag} already exists", "give another file name, or delete the file")


def write(path: str, scored: Iterable[tuple[ExampleBatch, Mapping[str, np.ndarray]]]) -> None:
    """Writes a line for each example: its index, file and label, if known, and its scores.

    Args:
      path: The path of the file.
      scored: The examples and their scores by name; see `Scorer.score`.

    Raises:
      UserError: If the file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header: list[str] = []
    for batch, scores in scored:
        classes = batch.labels if batch.labels is not None and batch.labels.ndim == 1 else None
        columns = {"index": batch.indices, "file": batch.files, "label": classes}
        present = {name: column for name, column in columns.items() if column is not None}
        if not header:
            header = [*present, *scores]
            writer.writerow(header)
        values = [[f"{value:.9g}" for value in column] for column in scores.values()]
        writer.writerows(zip(*present.values(), *values, strict=True))
    with convert_file_errors(path, "written", REMEDY):
        if folder := posixpath.dirname(path):
            tf.io.gfile.makedirs(folder)
        write_atomic(path, text.getvalue())
