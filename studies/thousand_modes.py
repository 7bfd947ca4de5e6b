"""Counts the modes that samples cover, of 1,000: three digits as the channels of one picture.

  python -m studies.thousand_modes                            both recipes
  python -m studies.thousand_modes --updates=1800 --recipes=wgan_gp

Each example has three of scikit-learn's digits, drawn independently, as its red, green and blue
channel, so each of the 1,000 triples of classes is equally frequent (as in Metz et al. 2016,
arXiv:1611.02163, with MNIST). A classifier of digits finds the triple of each of 25,600 samples.
The table has the number of different triples, and the Kullback-Leibler divergence of their
frequencies from equal frequencies. The row "data" has these figures for new examples.

Each run makes equally many updates of a network, so a recipe with five critic steps per generator
step has fewer iterations. --seeds runs are kept in --folder, and the same command continues after
an interruption.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import sklearn.datasets

import wgan_gp
from benchmarks import outcome
from benchmarks.sample_quality import fit_classifier

CHANNELS = 3
CLASSES = 10
EXAMPLES = 50_000
SAMPLES = 25_600
RECIPES: dict[str, dict[str, Any]] = {
    "wgan_gp": {"adversarial_loss": "wasserstein", "penalty": "two_sided", "n_critic": 5},
    # The losses and schedules of R3GAN (arXiv:2501.05441), with gamma = 1 as in its experiment with
    # 1,000 modes; the networks are those of the other recipe.
    "r3gan": {
        "adversarial_loss": "relativistic",
        "penalty": "r1,r2",
        "penalty_weight": 0.5,
        "n_critic": 1,
        "learning_rate_schedule": "r3gan",
        "generator_ema_decay": 0.999113,
    },
}


def make_examples(count: int, seed: int) -> np.ndarray:
    """Draws triples of digits, `[count, 8, 8, 3]` uint8 in 0 ... 16."""
    digits = sklearn.datasets.load_digits().images.astype(np.uint8)
    by_class = [np.flatnonzero(sklearn.datasets.load_digits().target == k) for k in range(CLASSES)]
    random = np.random.default_rng(seed)
    classes = random.integers(0, CLASSES, (count, CHANNELS))
    rows = np.empty_like(classes)
    for label, members in enumerate(by_class):
        chosen = classes == label
        rows[chosen] = random.choice(members, int(chosen.sum()))
    return np.moveaxis(digits[rows], 1, -1)


def find_modes(examples: np.ndarray) -> np.ndarray:
    """Returns the triple of classes of each example `[N, 8, 8, 3]`, as a number in 0 ... 999."""
    classifier = fit_classifier()
    digits = np.moveaxis(examples, -1, 1).reshape(-1, 64).astype(np.float64)
    classes = classifier.predict(digits).reshape(-1, CHANNELS)
    return classes @ CLASSES ** np.arange(CHANNELS)


def count_modes(modes: np.ndarray) -> dict[str, float]:
    """Returns the number of different modes `[N]`, and their divergence from equal frequencies."""
    total = CLASSES**CHANNELS
    shares = np.bincount(modes, minlength=total) / len(modes)
    found = shares[shares > 0]
    return {"modes": len(found), "divergence": float((found * np.log(found * total)).sum())}


def train(recipe: str, seed: int, arguments: argparse.Namespace) -> np.ndarray:
    """Trains a run, or continues it, and returns its samples."""
    folder = pathlib.Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "examples.npy"
    if not path.exists():
        np.save(path, make_examples(EXAMPLES, seed=0))
    config = wgan_gp.Config(
        dataset="array",
        data_dir=str(path),
        model_dir=str(folder / f"{recipe}-{seed}"),
        train_steps=arguments.updates // (RECIPES[recipe]["n_critic"] + 1),
        summary_interval=500,
        sample_interval=0,
        checkpoint_interval=1000,
        seed=seed,
        **RECIPES[recipe],
    )
    return wgan_gp.train(config).sample(SAMPLES)


def compare(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns a row for the data, and one for each recipe with means over the seeds."""
    rows: list[dict[str, Any]] = [
        {"recipe": "data", **count_modes(find_modes(make_examples(SAMPLES, seed=1)))}
    ]
    for recipe in arguments.recipes.split(","):
        found = [
            count_modes(find_modes(train(recipe, seed, arguments)))
            for seed in range(arguments.seeds)
        ]
        print(f"{recipe}: {found}", flush=True)
        row = {key: float(np.mean([each[key] for each in found])) for key in found[0]}
        rows.append({"recipe": recipe, **row, "fewest modes": min(each["modes"] for each in found)})
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipes", default=",".join(RECIPES), help="recipes to compare")
    parser.add_argument("--seeds", type=int, default=2, help="number of seeds")
    parser.add_argument(
        "--updates", type=int, default=36_000, help="updates of both networks together, of each run"
    )
    parser.add_argument("--folder", default="runs/thousand_modes", help="where the runs are kept")
    arguments = parser.parse_args(argv)
    if unknown := sorted(set(arguments.recipes.split(",")) - set(RECIPES)):
        parser.error(f"--recipes={unknown[0]} is unknown — use some of {','.join(RECIPES)}")
    rows = compare(arguments)
    print(outcome.table(rows))
    outcome.save("thousand_modes", rows, **vars(arguments))


if __name__ == "__main__":
    main()
