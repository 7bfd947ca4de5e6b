"""The output of --mode=evaluate: a table, a line in evaluation.jsonl and event files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ..config import EXTRACTORS
from ..errors import printable, shorten
from ..run_directory.directory import RunDirectory
from ..run_directory.json_files import read_log
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
    "feature_wasserstein": "mean distance of a feature, in standard deviations of the data",
    "feature_wasserstein_largest": "largest distance of a feature",
    "kolmogorov_smirnov": "mean Kolmogorov-Smirnov statistic of a feature; 0 is best",
    "kolmogorov_smirnov_largest": "largest statistic of a feature",
    "correlation_error": "mean difference of the correlations of two features",
    "total_variation": "mean distance of the shares of a column's categories; 0 is best",
    "total_variation_largest": "largest distance of a column",
    "missing_error": "mean difference of the shares of missing values",
    "value_wasserstein": "mean distance of the values of a number, in standard deviations",
    "value_wasserstein_largest": "largest distance of a column",
    "association_error": "mean difference of the associations of two columns",
    "spectrum_error": "log-spectral distance of the power spectra, in decibels",
    "autocorrelation_error": "mean difference of the autocorrelations",
    "two_sample_accuracy": "accuracy of telling samples from data; 0.5 is best",
    "two_sample_floor": "accuracy of telling two halves of the data apart",
    "closest_distance_ratio": "distance to the data / that of other real examples; copies: 0",
    "closer_than_real": "share closer to the data than a real example; copies: 1, best: 0.5",
    "synthetic_trained_accuracy": "trained on samples, tested on real examples",
    "real_trained_accuracy": "trained on real examples, tested on real examples",
    "synthetic_trained_r2": "R^2 of conditions or a target: trained on samples, tested on real",
    "real_trained_r2": "R^2 of conditions or a target: trained on real, tested on real",
}


def recorded_table(directory: RunDirectory, step: int) -> str | None:
    """Returns the table of the last evaluation that is recorded, or None if there is none.

    An evaluation of `step` iterations is preferred to those of others. The name of an extractor
    that is a path is left out, and so are metrics that this version does not have.
    """
    evaluations = read_log(directory.evaluation, ascending=False).entries
    if not evaluations:
        return None
    of_step = [each for each in evaluations if each["step"] == step]
    chosen = (of_step or evaluations)[-1]
    values = {
        tag: value
        for tag, value in chosen.items()
        if tag.startswith("evaluation/") and _is_known(tag.partition("/")[2])
    }
    extractor, feature = chosen.get("extractor"), chosen.get("farthest_feature")
    metadata = {
        "samples": chosen.get("samples"),
        "extractor": extractor if extractor in (None, *EXTRACTORS) else "another network",
        "farthest_feature": feature and shorten(str(feature)),
    }
    return table(chosen["step"], values, metadata)


def _is_known(name: str) -> bool:
    return name in _EXPLANATIONS or name.removesuffix("_floor") in _EXPLANATIONS


def _explanation(name: str) -> str:
    if name.endswith("_floor") and name not in _EXPLANATIONS:
        return "the same between two halves of the data"
    return _EXPLANATIONS[name]


def table(step: int, values: Mapping[str, float], metadata: Mapping[str, Any]) -> str:
    """Returns a table with a line per metric: its name, its value and an explanation.

    Args:
      step: The number of iterations done.
      values: The metrics, by tag.
      metadata: See `evaluator.Evaluator`.
    """
    extractor = f", features of {metadata['extractor']}" if metadata["extractor"] else ""
    lines = [f"after {step} iterations, {metadata['samples']} samples{extractor}:"]
    width = max([26, *(len(tag.partition("/")[2]) for tag in values)])
    for tag, value in values.items():
        name = tag.partition("/")[2]
        lines.append(f"  {name.replace('_', ' '):<{width}}{value:>10.4g}  {_explanation(name)}")
    if farthest := metadata.get("farthest_feature"):
        lines.append(f"the feature with the largest distance: {printable(farthest)}")
    lines += (f"  {line}" for line in (metadata.get("columns") or "").splitlines())
    return "\n".join(lines)


def comparison(values: Mapping[str, float], count: int, reference: str, extractor: str) -> str:
    """Returns a table of the metrics of images that are not samples of a run, by name."""
    lines = [f"{count} images against {printable(reference)}, features of {extractor}:"]
    for name, value in values.items():
        lines.append(f"  {name.replace('_', ' '):<26}{value:>10.4g}  {_explanation(name)}")
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
    with tf.device(None):  # this machine has the files
        events = tf.summary.create_file_writer(directory.evaluations)
        with events.as_default(step=step):
            for tag, value in values.items():
                tf.summary.scalar(tag, value)
        events.close()
