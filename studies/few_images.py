"""Trains on 100 of scikit-learn's 1,797 digits with each augmentation, and compares the samples.

  python -m studies.few_images                          five seeds, all augmentations
  python -m studies.few_images --seeds=2 --steps=1500   a smaller comparison
  python -m studies.few_images --augment=none,diffaugment --policy=translation

Each seed trains on 100 other digits, with equal steps for all augmentations. The runs are kept in
--folder, so the same command continues after an interruption. For each run the program prints:

FID: the Frechet distance between features of 10,000 samples and of the other 1,697 digits, by a
classifier fitted to all digits. For comparison, the table has the 100 digits themselves.

held-out gap: the share of the critic's estimated distance that is missing on the other digits, over
the last five summaries. It is 0 without overfitting, and 1 if the critic scores other digits like
samples.

look augmented: the share of the samples that a second classifier takes for transformed digits. It
is fitted to other digits before and after the transformation. A generator that leaks
transformations has a larger share than the real digits and than training without augmentation.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sklearn.datasets
import sklearn.ensemble
import tensorflow as tf

import wgan_gp
from benchmarks import outcome
from wgan_gp.app.result import Result
from wgan_gp.config.augmentation import TRANSFORMATIONS
from wgan_gp.evaluation import classifier
from wgan_gp.evaluation.metrics import Moments, frechet_distance
from wgan_gp.runtime.randomness import RngStream, uniform
from wgan_gp.training.ada import missing_share
from wgan_gp.training.augmentation import DRAWS, Augmentation

FEW = 100
LEVELS = 16  # scikit-learn's digits have the gray levels 0 ... 16
SAMPLES = 10_000
SUMMARIES = 5


@dataclasses.dataclass(frozen=True)
class Split:
    """The digits of one seed, `[N, 8, 8, 1]` float32 in 0 ... 16.

    Attributes:
      few: The digits to train on.
      others: All other digits.
    """

    few: np.ndarray
    others: np.ndarray


def split_digits(seed: int, few: int = FEW) -> Split:
    """Returns the digits of a seed."""
    images = sklearn.datasets.load_digits().images[..., None].astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(images))
    return Split(images[order[:few]], images[order[few:]])


def make_features() -> Callable[[np.ndarray], Moments]:
    """Fits the classifier, and returns a function from images in 0 ... 16 to their moments."""
    digits = sklearn.datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))
    images = to_unit(digits.images[order, :, :, None])
    fitted = classifier.Classifier(classifier.fit(images, digits.target[order], 10))
    return lambda images: Moments.from_features(fitted(tf.constant(to_unit(images)))[0].numpy())


def make_leak_detector(
    split: Split, policy: Sequence[str] = TRANSFORMATIONS
) -> tuple[Callable[[np.ndarray], float], dict[str, float]]:
    """Fits a classifier of digits and transformed digits.

    Args:
      split: The digits; those that are not trained on are used.
      policy: The transformations.

    Returns:
      A function from images in 0 ... 16 to the share that looks transformed, and this share of
      digits, "real", and of transformed digits, "transformed", to which it was not fitted.
    """
    count = len(split.others)
    draws = uniform(0, RngStream.CRITIC_AUGMENTATION, step=0, first=0, count=count, size=DRAWS)
    (transformed,) = Augmentation(policy)(draws, tf.constant(to_unit(split.others)))
    kinds = {"real": split.others, "transformed": (transformed.numpy() + 1) * LEVELS / 2}
    rows = {name: to_levels(images) for name, images in kinds.items()}
    fitted = sklearn.ensemble.HistGradientBoostingClassifier(random_state=0)
    half = count // 2
    fitted.fit(
        np.concatenate([each[:half] for each in rows.values()]),
        np.repeat([0, 1], half),
    )

    def share(images: np.ndarray) -> float:
        return float(fitted.predict(to_levels(images)).mean())

    return share, {name: share(images[half:]) for name, images in kinds.items()}


def to_unit(images: np.ndarray) -> np.ndarray:
    """Converts gray levels 0 ... 16 to float32 in [-1, 1]."""
    return (images * 2 / LEVELS - 1).astype(np.float32)


def to_levels(images: np.ndarray) -> np.ndarray:
    """Returns images as rows `[N, 64]` of the levels 0 ... 16, which real digits have."""
    return np.clip(np.rint(images), 0, LEVELS).reshape(len(images), -1)


def train(augment: str, seed: int, arguments: argparse.Namespace) -> Result:
    """Trains a run, or continues it, and returns its result."""
    folder = pathlib.Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    split = split_digits(seed)
    paths = {}
    for name, images in (("few", split.few), ("others", split.others)):
        paths[name] = folder / f"{name}-{seed}.npy"
        np.save(paths[name], images.astype(np.uint8))
    return wgan_gp.train(
        wgan_gp.Config(
            dataset="array",
            data_dir=str(paths["few"]),
            test_data_dir=str(paths["others"]),
            model_dir=str(folder / f"{augment}-{seed}"),
            augment=augment,
            augment_policy=arguments.policy,
            train_steps=arguments.steps,
            summary_interval=max(50, arguments.steps // 20),
            sample_interval=0,
            checkpoint_interval=500,
            seed=seed,
        )
    )


def held_out_gap(history: dict[str, np.ndarray]) -> float:
    """Returns the share of the estimated distance that is missing on held-out digits."""
    tags = ("probe/wasserstein", "held_out/wasserstein")
    share = missing_share({tag: float(history[tag][-SUMMARIES:].mean()) for tag in tags})
    return float("nan") if share is None else share


def compare(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Trains all runs, and returns a row of mean figures for each augmentation."""
    features = make_features()
    figures: dict[str, list[dict[str, float]]] = {}
    for seed in range(arguments.seeds):
        split = split_digits(seed)
        moments = features(split.others)
        looks_augmented, shares = make_leak_detector(
            split, (arguments.policy or ",".join(TRANSFORMATIONS)).split(",")
        )
        for name, images in (("the 100 digits", split.few), ("transformed digits", None)):
            fid = {} if images is None else {"FID": frechet_distance(features(images), moments)}
            share = shares["real" if images is not None else "transformed"]
            figures.setdefault(name, []).append({**fid, "look augmented": share})
        for augment in arguments.augment.split(","):
            result = train(augment, seed, arguments)
            samples = result.sample(SAMPLES)
            values = {
                "FID": frechet_distance(features(samples), moments),
                "held-out gap": held_out_gap(result.history),
                "look augmented": looks_augmented(samples),
            }
            print(f"{augment}, seed {seed}: {values}", flush=True)
            figures.setdefault(augment, []).append(values)
    return [_row(name, each, figures.get("none")) for name, each in figures.items()]


def _row(
    name: str, runs: Sequence[dict[str, float]], plain: Sequence[dict[str, float]] | None
) -> dict[str, Any]:
    """Returns the means over the seeds, and the mean ratio of FID to that without augmentation."""
    columns = {key: [run[key] for run in runs] for key in runs[0]}
    row: dict[str, Any] = {"augment": name, "FID": None, "deviation": None, "ratio": None}
    row |= {"held-out gap": None}
    row |= {key: float(np.mean(values)) for key, values in columns.items()}
    if "FID" in columns and len(runs) > 1:
        row["deviation"] = float(np.std(columns["FID"], ddof=1))
    if plain and "held-out gap" in columns:
        pairs = zip(columns["FID"], plain, strict=True)
        row["ratio"] = float(np.mean([fid / other["FID"] for fid, other in pairs]))
    return row


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--steps", type=int, default=3000, help="iterations of each run")
    parser.add_argument("--augment", default="none,diffaugment,ada", help="the augmentations")
    parser.add_argument("--policy", help="--augment_policy of all runs and of the leak test")
    parser.add_argument("--folder", default="runs/few_images", help="where the runs are kept")
    arguments = parser.parse_args(argv)
    rows = compare(arguments)
    print(outcome.table(rows))
    outcome.save("few_images", rows, **vars(arguments))


if __name__ == "__main__":
    main()
