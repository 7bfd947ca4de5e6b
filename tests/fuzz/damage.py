"""Damages run directories at random and checks how the program uses them.

  python -m tests.fuzz.damage                       300 seeds
  python -m tests.fuzz.damage --first=17 --seeds=1  seed 17 again

For each seed, one to three random corruptions damage a copy of a small run. The program then
resumes, samples, evaluates or exports it. It must either produce the result of the undamaged run,
or exit with status 2 and a one-line error.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import functools
import itertools
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
import unittest.mock
from collections.abc import Iterable, Sequence

import tensorflow as tf
import tqdm

import train
from tests.helpers.forks import Main, ProcessResult, run_in_fork

from .corruptions import corrupt
from .results import (
    READ_VALUES,
    SUMMARY_INTERVAL,
    TRAIN_STEPS,
    Values,
    check_appended,
    check_process,
    check_resumed,
    compare_values,
    printable,
)

DATASETS = ("gaussians_8", "gaussians_8", "digits")  # chosen at random
RUN = ["--model=mlp", "--model_width=4", "--model_depth=1", "--latent_size=4", "--batch_size=16"]
RUN += [f"--{name}={SUMMARY_INTERVAL}" for name in ("steps_per_loop", "summary_interval")]
RUN += [f"--checkpoint_interval={SUMMARY_INTERVAL}", "--n_critic=1"]
RUN += ["--sample_interval=10", "--evaluate_interval=10", "--evaluate_samples=64"]
RUN += [f"--train_steps={TRAIN_STEPS}"]
SAVED = (5, 10, 15, 20)  # checkpoints; the run is killed before it saves the next one
KILLED_STATUS = 99

USES: dict[str, list[str]] = {
    "resume": RUN,
    "sample": ["--mode=sample", "--sample_format=npz", "--num_samples=16"],
    "evaluate": ["--mode=evaluate"],
    "export": ["--mode=export", "--output=RUN/newly_exported"],
}


def main() -> None:
    """Prints the failures and a summary; exits with status 1 if there are failures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=300, help="number of seeds; default: 300")
    parser.add_argument("--first", type=int, default=0, help="first seed; default: 0")
    parser.add_argument(
        "--keep", type=pathlib.Path, help="folder for copies of directories that led to failures"
    )
    arguments = parser.parse_args()
    tf.get_logger().setLevel("ERROR")  # one of the readers is deprecated
    with tempfile.TemporaryDirectory() as folder:
        fuzz = Fuzz(pathlib.Path(folder), arguments.keep)
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        failures = 0
        for failure in tqdm.tqdm(fuzz.run(seeds), total=len(seeds), unit="seed", disable=None):
            if failure is not None:
                print(failure, flush=True)
                failures += 1
    print(f"{arguments.seeds} seeds, {failures} failures; {fuzz.summary()}")
    sys.exit(bool(failures))


def dataset_of(seed: int) -> str:
    """Returns the name of the dataset of a seed's run."""
    return _choose_dataset(random.Random(seed))


def _choose_dataset(rng: random.Random) -> str:
    return rng.choice(DATASETS)


class Fuzz:
    """A fuzz test that damages and uses copies of two runs, one of points and one of images.

    Args:
      folder: An empty directory for the copies.
      keep: The folder for directories that led to a failure. None keeps none.
    """

    def __init__(self, folder: pathlib.Path, keep: pathlib.Path | None = None):
        self._folder = folder
        self._keep = keep
        self._counts: collections.Counter[str] = collections.Counter()
        self._expected = functools.cache(self._compute_expected)

    def run(self, seeds: Sequence[int]) -> Iterable[str | None]:
        """Yields a description of the failure of each seed, or None."""
        for dataset in sorted(set(map(dataset_of, seeds))):
            self._prepare(dataset)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            yield from pool.map(self.check, seeds)

    def summary(self) -> str:
        """Returns the number of processes for each use and exit status."""
        counts = sorted(self._counts.items())
        return ", ".join(f"{name}: {count}" for name, count in counts)

    def check(self, seed: int) -> str | None:
        """Returns a description of the failure of one seed, or None."""
        rng = random.Random(seed)
        dataset, use = _choose_dataset(rng), rng.choice([*USES])
        undamaged, damaged = self._folder / dataset, self._folder / str(seed) / "run"
        shutil.copytree(undamaged, damaged)
        damage = "; ".join(corrupt(damaged, rng) for _ in range(rng.choice([1, 2, 3])))
        before = self._folder / str(seed) / "before"
        shutil.copytree(damaged, before)
        result = self._use(use, damaged, dataset)
        problems = check_process(result)
        if result.status == 0:
            try:
                problems += self._check_values(dataset, use, damaged, before, result)
            except Exception as error:  # any error in reading the result is a failure
                problems.append(f"the result cannot be read ({type(error).__name__}: {error})")
        self._counts[f"{use} {result.status}"] += 1
        if problems and self._keep is not None:
            shutil.copytree(before, self._keep / str(seed), dirs_exist_ok=True)
        shutil.rmtree(self._folder / str(seed))
        if not problems:
            return None
        last = "\n".join(f"    {printable(line)[:300]}" for line in result.err.splitlines()[-6:])
        return f"seed {seed}: {dataset}, {use}\n  {damage}\n  {'; '.join(problems)}\n{last}"

    def _use(
        self,
        use: str,
        path: pathlib.Path,
        dataset: str,
        *arguments: str,
        main: Main = train.main,
    ) -> ProcessResult:
        flags = [flag.replace("RUN", str(path)) for flag in (*USES[use], *arguments)]
        return run_in_fork([f"--model_dir={path}", f"--dataset={dataset}", *flags], main)

    def _prepare(self, dataset: str) -> None:
        """Trains a run that is killed, uses it in every way, and resumes a copy to its end."""
        original, resumed = self._folder / dataset, self._folder / f"{dataset}-resumed"
        result = self._use("resume", original, dataset, main=_train_until_killed)
        if result.status != KILLED_STATUS:
            raise RuntimeError(f"the run ended with status {result.status}: {result.err}")
        for use in USES:
            path = original
            if use == "resume":
                path = resumed
                shutil.copytree(original, resumed)
            result = self._use(use, path, dataset)
            if result.status != 0 or check_process(result):
                raise RuntimeError(f"{use} ended with status {result.status}: {result.err}")
        (original / "newly_exported").rename(original / "exported")  # an export replaces no file

    def _compute_expected(self, dataset: str, use: str, iteration: int) -> Values:
        """Returns the result of using a checkpoint of the undamaged run."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            copy = pathlib.Path(folder) / "run"
            shutil.copytree(self._folder / dataset, copy)
            checkpoint = copy / "checkpoints" / f"ckpt-{iteration}"
            result = self._use(use, copy, dataset, f"--restore_from={checkpoint}")
            return READ_VALUES[use](copy, result)

    def _check_values(
        self,
        dataset: str,
        use: str,
        path: pathlib.Path,
        before: pathlib.Path,
        result: ProcessResult,
    ) -> list[str]:
        if use == "resume":
            return check_resumed(path, before, self._folder / f"{dataset}-resumed", result)
        used = re.search(r"/ckpt-(\d+): \d+ iterations$", result.err, re.MULTILINE)
        if used is None:
            return ["the output does not name the checkpoint that was used"]
        problems = [
            f"ckpt-{newer} was skipped silently"
            for newer in SAVED
            if newer > int(used[1])
            and not re.search(rf"^warning: .*/ckpt-{newer}\b.* is skipped", result.err, re.M)
        ]
        found = READ_VALUES[use](path, result)
        problems += compare_values(found, self._expected(dataset, use, int(used[1])))
        if use == "evaluate":
            problems += check_appended(path / "evaluation.jsonl", before / "evaluation.jsonl")
        return problems


def _train_until_killed(arguments: list[str]) -> int:
    """Runs the program until it would save the first checkpoint that is not in SAVED."""
    from wgan_gp.training.checkpointing import Checkpoints  # noqa: PLC0415

    save, calls = Checkpoints.save, itertools.count()

    def save_or_exit(checkpoints: Checkpoints) -> None:
        if next(calls) == len(SAVED):
            os._exit(KILLED_STATUS)
        save(checkpoints)

    with unittest.mock.patch.object(Checkpoints, "save", save_or_exit):
        return train.main(arguments)


if __name__ == "__main__":
    main()
