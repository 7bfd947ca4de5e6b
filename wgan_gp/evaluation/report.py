"""The output of --mode=evaluate: a table, a line in evaluation.jsonl and event files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ..monitoring import EvaluationFileWriter
from ..run_directory import RunDirectory

# The explanation of each metric in the table.
_MEANING = {
    "fid": "Frechet distance of the features; 0 is best",
    "kid": "kernel distance of the features; 0 is best",
    "kid_deviation": "standard deviation of KID over random subsets",
    "inception_score": "classes sure and varied; more is better",
    "inception_score_deviation": "of it, over ten parts of the samples",
    "precision": "share of samples that look real",
    "recall": "share of the data that samples reach",
    "density": "how deep among the data samples lie; 1 is as the data",
    "coverage": "share of the data with a sample near it",
    "confidence": "the classifier's, mean",
    "smallest_class": "share of samples in the rarest class",
    "largest_class": "share of samples in the commonest class",
    "classifier_accuracy": "the classifier's own, on real images held back",
    "class_accuracy": "share of samples of the class asked for",
    "modes_covered": "modes with a sample within 3 deviations",
    "high_quality_share": "samples within 3 deviations of a mode",
    "wasserstein": "exact distance to the data; the floor is best",
    "wasserstein_floor": "the same between two draws of the data",
}


def table(step: int, values: Mapping[str, float], about: Mapping[str, Any]) -> str:
    """Returns a table with a line per metric: its name, its value and an explanation.

    Args:
      step: The number of iterations done.
      values: The metrics, by tag.
      about: See `evaluator.Evaluator`.
    """
    seen_by = f", seen by {about['extractor']}" if about["extractor"] else ""
    lines = [f"after {step} iterations, {about['samples']} samples{seen_by}:"]
    for tag, value in values.items():
        name = tag.partition("/")[2]
        lines.append(f"  {name.replace('_', ' '):<26}{value:>10.4g}  {_MEANING[name]}")
    return "\n".join(lines)


def record(
    directory: RunDirectory, step: int, values: Mapping[str, float], about: Mapping[str, Any]
) -> None:
    """Appends an evaluation to evaluation.jsonl and to the event files of evaluations.

    Args:
      directory: The run directory.
      step: The number of iterations done.
      values: The metrics, by tag.
      about: See `evaluator.Evaluator`.
    """
    tf.io.gfile.makedirs(directory.evaluations)
    writer = EvaluationFileWriter(directory.evaluation, about)
    writer.begin(sys.maxsize)  # keeps all evaluations, removes invalid lines
    writer.evaluation(step, values)
    events = tf.summary.create_file_writer(directory.evaluations)
    with events.as_default(step=step):
        for tag, value in values.items():
            tf.summary.scalar(tag, value)
    events.close()
