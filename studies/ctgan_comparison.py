"""Compares samples of tables with those of CTGAN, after equal time.

  python -m venv /tmp/ctgan && /tmp/ctgan/bin/pip install ctgan
  python -m studies.ctgan_comparison --ctgan_python=/tmp/ctgan/bin/python

CTGAN (Xu et al. 2019, arXiv:1907.00503) is the usual GAN for tables. Both programs learn half of
each of scikit-learn's tables breast_cancer and wine with its classes, on the same cores, one after
the other: this project for the settings below, and CTGAN, with its defaults, for as many epochs as
fit into the same time. Imports are not counted.

All figures are on the other half: the accuracy of a classifier that tells it from samples (0.5 is
best), and the accuracy on it of a classifier that was trained on samples. The row "data" has these
figures for the first half in place of samples, the best values that can be expected. The figures
are means over splits, with their standard deviations.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import subprocess
import tempfile
import time
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import sklearn.datasets
import sklearn.model_selection

import wgan_gp
from benchmarks import outcome
from wgan_gp.evaluation import learned

TABLES = {
    "breast_cancer": sklearn.datasets.load_breast_cancer,
    "wine": sklearn.datasets.load_wine,
}
SETTINGS: dict[str, Any] = {
    "model": "mlp",
    "conditioning": "concatenation",
    "scaling": "standard",
    "latent_size": 32,
    "batch_size": 64,
    "sample_interval": 0,
    "checkpoint_interval": 0,
    "summary_interval": 1000,
}
WORKER = pathlib.Path(__file__).parent / "baselines" / "ctgan_worker.py"


class Table(NamedTuple):
    """Rows of numbers `[N, F]` and their classes `[N]`."""

    examples: np.ndarray
    labels: np.ndarray


def split(name: str, seed: int) -> tuple[Table, Table]:
    """Returns two halves of a table, each with the same shares of all classes."""
    bunch = TABLES[name]()
    parts = sklearn.model_selection.train_test_split(
        bunch.data, bunch.target, test_size=0.5, random_state=seed, stratify=bunch.target
    )
    return Table(parts[0], parts[2]), Table(parts[1], parts[3])


def train_ours(table: Table, steps: int, seed: int, folder: str) -> tuple[Table, float]:
    """Trains this project, and returns a sample for each row of the table, and the seconds."""
    path = os.path.join(folder, "table.npz")
    np.savez(path, examples=table.examples, labels=table.labels)
    config = wgan_gp.Config(
        dataset="array",
        data_dir=path,
        model_dir=os.path.join(folder, "run"),
        train_steps=steps,
        seed=seed,
        **SETTINGS,
    )
    begin = time.perf_counter()
    result = wgan_gp.train(config)
    seconds = time.perf_counter() - begin
    samples = np.empty_like(table.examples)
    for label in np.unique(table.labels):
        rows = table.labels == label
        samples[rows] = result.sample(int(rows.sum()), int(label))
    return Table(samples, table.labels), seconds


def train_ctgan(
    table: Table, seconds: float, seed: int, folder: str, python: str
) -> tuple[Table, int]:
    """Trains CTGAN in its environment, and returns as many samples as the table has, and epochs."""
    source, target = os.path.join(folder, "ctgan.npz"), os.path.join(folder, "samples.npz")
    np.savez(source, examples=table.examples, labels=table.labels)
    done = subprocess.run(
        [python, str(WORKER), source, target, str(seconds), str(seed)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    with np.load(target) as samples:
        return Table(samples["examples"], samples["labels"]), json.loads(done.stdout)["epochs"]


def judge(samples: Table, test: Table) -> dict[str, float]:
    """Returns the figures of samples on the held-out half of a table."""
    order = np.random.default_rng(0).permutation(len(samples.labels))
    examples, labels = samples.examples[order], samples.labels[order]
    return {
        "two-sample accuracy": learned.two_sample_accuracy(examples, test.examples),
        "trained on it": learned.transfer_accuracy(examples, labels, test.examples, test.labels),
    }


def compare(name: str, steps: int, seed: int, python: str) -> dict[str, dict[str, float]]:
    """Returns the figures of the data, this project and CTGAN for one split of a table."""
    train, test = split(name, seed)
    with tempfile.TemporaryDirectory() as folder:
        ours, seconds = train_ours(train, steps, seed, folder)
        ctgan, epochs = train_ctgan(train, seconds, seed, folder, python)
    print(f"{name}, split {seed}: {seconds:.0f} s, {epochs} epochs of CTGAN", flush=True)
    found = {"data": train, "this project": ours, "CTGAN": ctgan}
    return {program: judge(samples, test) for program, samples in found.items()}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ctgan_python", required=True, help="Python that can import ctgan")
    parser.add_argument("--steps", type=int, default=3000, help="our iterations; default: 3000")
    parser.add_argument("--seeds", type=int, default=3, help="splits of each table; default: 3")
    arguments = parser.parse_args()
    rows = []
    for name in TABLES:
        one = functools.partial(compare, name, arguments.steps, python=arguments.ctgan_python)
        found = [one(seed=seed) for seed in range(arguments.seeds)]
        for program in found[0]:
            row: dict[str, object] = {"table": name, "samples of": program}
            for figure in found[0][program]:
                values = [each[program][figure] for each in found]
                row[figure] = f"{np.mean(values):.3f} +- {np.std(values):.3f}"
            rows.append(row)
    print(outcome.table(rows))
    outcome.save("ctgan_comparison", rows)


if __name__ == "__main__":
    main()
