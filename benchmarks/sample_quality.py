"""Judges the samples of finished runs, by means that are not the run's own.

  python -m benchmarks.sample_quality                   every run under runs/
  python -m benchmarks.sample_quality runs/digits ...   these runs

Digits: scikit-learn's SVC, fitted on the real digits (pixels 0 to 16), classifies 1,000
samples. Every class should be there, about 10% each, and the classifier sure of itself.
The same figures for the real digits, which it was fitted on, are the bound. Of a conditional run
it says how many of 100 samples of each class are of that class.

Grids and circles of Gaussians: of 10,000 samples, how many lie within three standard
deviations of a mode, and how many modes have such a sample.
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

import train
from wgan_gp.config import Config
from wgan_gp.data import toys
from wgan_gp.errors import UserError
from wgan_gp.run_directory import RunDirectory


def samples_of(run: train.Run, count: int) -> np.ndarray:
    """Samples of a run's newest checkpoint."""
    iterations = run.checkpoints.restore_latest()
    if iterations == 0:
        raise UserError(f"{run.config.run_directory} has no checkpoint yet", "let it train on")
    print(f"{run.config.run_directory}: {iterations} iterations")
    return run.sampler.sample(count)


@dataclasses.dataclass(frozen=True)
class DigitFigures:
    """What the classifier says of images.

    Attributes:
      confidence: mean probability of the likeliest class.
      smallest_class, largest_class: shares of the images, in percent.
    """

    confidence: float
    smallest_class: float
    largest_class: float


def judge_digits(images: np.ndarray) -> tuple[DigitFigures, DigitFigures]:
    """The figures of `images` `[N, 8, 8, 1]` in [-1, 1], and those of the real digits."""
    real = sklearn.datasets.load_digits()
    classifier = digit_classifier()

    def judge(pixels: np.ndarray) -> DigitFigures:
        probabilities = classifier.predict_proba(pixels)
        shares = np.bincount(probabilities.argmax(axis=1), minlength=10) / len(pixels) * 100
        return DigitFigures(
            float(probabilities.max(axis=1).mean()), float(shares.min()), float(shares.max())
        )

    return judge(grey_levels(images)), judge(real.data)


def judge_labels(samples_of_class: Callable[[int], np.ndarray]) -> list[float]:
    """For each of the ten digits, how many of its samples the classifier takes for it, in percent.

    Args:
      samples_of_class: label -> images `[N, 8, 8, 1]` in [-1, 1].
    """
    classifier = digit_classifier()
    return [
        float((classifier.predict(grey_levels(samples_of_class(label))) == label).mean() * 100)
        for label in range(10)
    ]


def digit_classifier() -> sklearn.svm.SVC:
    """Fitted on the real digits."""
    real = sklearn.datasets.load_digits()
    classifier = sklearn.svm.SVC(gamma=0.001, C=10, probability=True, random_state=0)
    return classifier.fit(real.data, real.target)


def grey_levels(images: np.ndarray) -> np.ndarray:
    """`[N, 8, 8, 1]` in [-1, 1] as scikit-learn's digits, `[N, 64]` in [0, 16]."""
    return (images.reshape(len(images), -1) + 1) * 8


@dataclasses.dataclass(frozen=True)
class ModeFigures:
    """How samples lie about the modes of a mixture of Gaussians.

    Attributes:
      modes_reached: modes with a sample within three standard deviations.
      modes: modes there are.
      within: samples within three standard deviations of a mode, in percent.
      smallest_mode: such samples at the rarest mode, in percent of all samples.
    """

    modes_reached: int
    modes: int
    within: float
    smallest_mode: float


def judge_modes(points: np.ndarray, centres: np.ndarray, deviation: float) -> ModeFigures:
    """The figures of `points` `[N, 2]` about `centres` `[M, 2]`."""
    distances = np.linalg.norm(points[:, None] - centres[None], axis=2)
    near = distances.min(axis=1) <= 3 * deviation
    counts = np.bincount(distances.argmin(axis=1)[near], minlength=len(centres))
    return ModeFigures(
        modes_reached=int((counts > 0).sum()),
        modes=len(centres),
        within=float(near.mean() * 100),
        smallest_mode=float(counts.min() / len(points) * 100),
    )


def judge(path: str) -> None:
    """Prints what there is to say of one run.

    Raises:
      UserError: there is no run, or none that can be judged.
    """
    saved = RunDirectory(path).saved_config()
    if saved is None:
        raise UserError(f"{path} holds no run", "train one, or give the path of one")
    # On this machine, whatever the run was trained on.
    config = Config.from_dict({**saved, "model_dir": path, "tpu": None, "cpu_replicas": 1})
    if config.dataset == "digits" and config.image_size == 8:
        run = train.open_run(config)
        samples, real = judge_digits(samples_of(run, 1000))
        for name, figures in (("samples", samples), ("real digits", real)):
            print(
                f"  {name}: mean confidence {figures.confidence:.3f}, "
                f"classes {figures.smallest_class:.1f}% to {figures.largest_class:.1f}%"
            )
        if run.sampler.classes:
            right = judge_labels(lambda label: run.sampler.sample(100, label))
            print(
                f"  of the class asked for: {np.mean(right):.1f}%, by class {min(right):.0f}% to "
                f"{max(right):.0f}%"
            )
    elif config.dataset in toys.DEVIATIONS:
        points = samples_of(train.open_run(config), 10_000)
        modes = judge_modes(
            points, toys.mode_centers(config.dataset), toys.DEVIATIONS[config.dataset]
        )
        print(
            f"  {modes.modes_reached} of {modes.modes} modes reached, the rarest by "
            f"{modes.smallest_mode:.1f}% of the samples; {modes.within:.1f}% of them within "
            "three standard deviations of a mode"
        )
    else:
        raise UserError(
            f"{path} has no judge",
            f"give a run of digits at 8 pixels, or of {' or '.join(toys.DEVIATIONS)}",
        )


def main(paths: list[str]) -> int:
    """Judges each run; returns the exit status."""
    paths = paths or sorted(map(os.path.dirname, glob.glob("runs/*/config.json")))
    if not paths:
        print("error: there is no run under runs/ — `make train` first", file=sys.stderr)
    failed = not paths
    for path in paths:
        try:
            judge(path)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            failed = True
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
