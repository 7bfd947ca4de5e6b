"""Checks the samples of finished runs independently of the run's own evaluation.

  python -m benchmarks.sample_quality                   every run under runs/
  python -m benchmarks.sample_quality runs/digits ...   these runs

Digits: scikit-learn's SVC, fitted to the real digits, classifies 1,000 samples. Good samples cover
every class, each with a share of about 10%, and are classified with high confidence. The same
figures for the real digits, to which it was fitted, are an upper bound. For a conditional run, the
program also classifies 100 samples of each class.

Mixtures of Gaussians: the program counts the modes covered by 10,000 samples, and the samples
within three standard deviations of a mode.
"""

from __future__ import annotations

import dataclasses
import glob
import os
import sys
from collections.abc import Callable

import numpy as np
import sklearn.datasets
import sklearn.svm

from wgan_gp.app.library import Library
from wgan_gp.app.resolve import resolve
from wgan_gp.app.run import Run, open_run
from wgan_gp.app.saved_run import read_config
from wgan_gp.config import Config
from wgan_gp.data.sources import toys
from wgan_gp.errors import UserError
from wgan_gp.evaluation.points import mode_coverage
from wgan_gp.run_directory.directory import RunDirectory


def draw_samples(run: Run, count: int) -> np.ndarray:
    """Draws samples from a run's newest checkpoint.

    Raises:
      UserError: If the run has no checkpoint.
    """
    iterations = run.checkpoints.restore_latest()
    if iterations == 0:
        raise UserError(f"{run.config.run_directory} has no checkpoint", "continue its training")
    print(f"{run.config.run_directory}: {iterations} iterations")
    return run.sampler.sample(count)


@dataclasses.dataclass(frozen=True)
class DigitFigures:
    """The predictions of the classifier for a set of images.

    Attributes:
      confidence: The mean probability of the most probable class.
      smallest_class: The share of the images in the rarest class, in percent.
      largest_class: The share of the images in the most common class, in percent.
    """

    confidence: float
    smallest_class: float
    largest_class: float


def classify_digits(images: np.ndarray) -> tuple[DigitFigures, DigitFigures]:
    """Returns the figures of images `[N, 8, 8, 1]` in [-1, 1], and those of the real digits."""
    real = sklearn.datasets.load_digits()
    classifier = fit_classifier()

    def classify(pixels: np.ndarray) -> DigitFigures:
        probabilities = classifier.predict_proba(pixels)
        shares = np.bincount(probabilities.argmax(axis=1), minlength=10) / len(pixels) * 100
        return DigitFigures(
            float(probabilities.max(axis=1).mean()), float(shares.min()), float(shares.max())
        )

    return classify(to_gray_levels(images)), classify(real.data)


def class_accuracies(samples_of_class: Callable[[int], np.ndarray]) -> list[float]:
    """Returns the share of each digit's samples that are classified as this digit, in percent.

    Args:
      samples_of_class: label -> images `[N, 8, 8, 1]` in [-1, 1].
    """
    classifier = fit_classifier()
    return [
        float((classifier.predict(to_gray_levels(samples_of_class(label))) == label).mean() * 100)
        for label in range(10)
    ]


def fit_classifier() -> sklearn.svm.SVC:
    """Returns a classifier fitted to the real digits."""
    real = sklearn.datasets.load_digits()
    classifier = sklearn.svm.SVC(gamma=0.001, C=10, probability=True, random_state=0)
    return classifier.fit(real.data, real.target)


def to_gray_levels(images: np.ndarray) -> np.ndarray:
    """Converts `[N, 8, 8, 1]` in [-1, 1] to `[N, 64]` in [0, 16], as in scikit-learn's digits."""
    return (images.reshape(len(images), -1) + 1) * 8


def check_run(path: str) -> None:
    """Prints the figures of one run.

    Raises:
      UserError: If there is no run, it has no checkpoint, or its dataset is not supported.
    """
    saved = read_config(RunDirectory(path))
    if saved is None:
        raise UserError(f"{path} contains no run", "train one, or give the path of a run")
    # The samples are drawn on one device of this machine, regardless of the devices of training.
    config = Config(**{**saved.of_run, "model_dir": path})
    library = Library()
    resolved, dataset = resolve(config, library.models)
    if config.dataset == "digits" and config.image_size == 8:
        print_digit_figures(open_run(resolved, dataset, library))
    elif config.dataset in toys.DEVIATIONS:
        samples = draw_samples(open_run(resolved, dataset, library), 10_000)
        coverage = mode_coverage(samples, config.dataset)
        print(
            f"  {coverage.covered} of {coverage.modes} modes covered, the rarest by "
            f"{100 * coverage.smallest_mode_share:.1f}% of the samples; "
            f"{100 * coverage.high_quality_share:.1f}% of the samples within three standard "
            "deviations of a mode"
        )
    else:
        raise UserError(
            f"{path} was trained on {config.dataset}, which this program cannot check",
            f"give a run of digits at 8 pixels, or of {' or '.join(toys.DEVIATIONS)}",
        )


def print_digit_figures(run: Run) -> None:
    """Prints the figures of 1,000 samples of digits and, for comparison, of the real digits."""
    samples, real = classify_digits(draw_samples(run, 1000))
    for name, figures in (("samples", samples), ("real digits", real)):
        print(
            f"  {name}: mean confidence {figures.confidence:.3f}, "
            f"classes {figures.smallest_class:.1f}% to {figures.largest_class:.1f}%"
        )
    if run.sampler.classes:
        shares = class_accuracies(lambda label: run.sampler.sample(100, label))
        print(
            f"  classified as the requested class: {np.mean(shares):.1f}%, by class "
            f"{min(shares):.0f}% to {max(shares):.0f}%"
        )


def main(paths: list[str]) -> int:
    """Checks each run; returns the exit status."""
    found = paths or sorted(map(os.path.dirname, glob.glob("runs/*/config.json")))
    if not found:
        print("error: there is no run under runs/ — train one with `make train`", file=sys.stderr)
    failed = not found
    for path in found:
        try:
            check_run(path)
        except UserError as error:
            # Only a run that was asked for must be one that this program can check.
            print(f"{'error' if paths else 'left out'}: {error}", file=sys.stderr)
            failed |= bool(paths)
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
