"""The output of --mode=evaluate: a table, a line in evaluation.jsonl and event files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ..run_directory.directory import RunDirectory
from ..writers.files import EvaluationFileWriter

# Explanations of the metrics, for the table.
_EXPLANATIONS = {
    "fid": "Frechet distance between the features; 0 is best",
    "kid": "kernel distance between the features; 0 is best",
    "kid_deviation": "standard deviation of KID over random subsets",
    "inception_score": "certainty and variety of the classes; higher is better",
    "inception_score_deviation": "standard deviation over ten parts of the samples",
    "precision": "share of samples that resemble the data",
    "recall": "share of the data that samples resemble",
    "density": "density of the data around the samples; 1 for the data itself",
    "coverage": "share of the data with a sample near it",
    "confidence": "mean of the classifier's largest probability",
    "smallest_class": "share of samples in the rarest class",
    "largest_class": "share of samples in the most common class",
    "classifier_accuracy": "accuracy of the classifier on held-out real images",
    "class_accuracy": "share of samples classified as the requested class",
    "modes_covered": "modes with a sample within 3 standard deviations",
    "high_quality_share": "share of samples within 3 standard deviations of a mode",
    "wasserstein": "exact distance to the data; the floor is the best value",
    "wasserstein_floor": "distance between two draws of the data",
}


def table(step: int, values: Mapping[str, float], metadata: Mapping[str, Any]) -> str:
    """Returns a table with a line per metric: its name, its value and an explanation.

    Args:
      step: The number of iterations done.
      values: The metrics, by tag.
      metadata: See `evaluator.Evaluator`.
    """
    extractor = f", features of {metadata['extractor']}" if metadata["extractor"] else ""
    lines = [f"after {step} iterations, {metadata['samples']} samples{extractor}:"]
    for tag, value in values.items():
        name = tag.partition("/")[2]
        lines.append(f"  {name.replace('_', ' '):<26}{value:>10.4g}  {_EXPLANATIONS[name]}")
    return "\n".join(lines)


def record(
    directory: RunDirectory, step: int, values: Mapping[str, float], metadata: Mapping[str, Any]
) -> None:
    """Appends an evaluation to evaluation.jsonl and to the event files of evaluations.

    Args:
      directory: The run directory.
      step: The number of iterations done.
      values: The metrics, by tag.
      metadata: See `evaluator.Evaluator`.
    """
    tf.io.gfile.makedirs(directory.evaluations)
    writer = EvaluationFileWriter(directory.evaluation, metadata)
    writer.terminate_last_line()
    writer.evaluation(step, values)
    events = tf.summary.create_file_writer(directory.evaluations)
    with events.as_default(step=step):
        for tag, value in values.items():
            tf.summary.scalar(tag, value)
    events.close()
