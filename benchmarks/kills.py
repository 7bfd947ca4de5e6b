"""Kills a run at random moments and compares its result with that of an uninterrupted run.

  python -m benchmarks.kills             200 kills
  python -m benchmarks.kills --kills=20

Weights, optimizers, metrics.jsonl and TensorBoard's curves must be equal, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import multiprocessing.process
import os
import pathlib
import random
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf
import tqdm

import train

# The run writes after every loop, so that many kills interrupt a write.
RUN = ["--model=mlp", "--model_width=4", "--model_depth=1", "--latent_size=8"]
RUN += ["--batch_size=16", "--n_critic=2", "--steps_per_loop=2", "--checkpoint_interval=2"]
RUN += ["--summary_interval=10", "--sample_interval=20"]


def main() -> None:
    """Prints the differences and exits with status 1, or reports that there are none."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="number of kills; default: 200")
    parser.add_argument("--seed", type=int, default=0, help="of the moments; default: 0")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = survive(pathlib.Path(folder), arguments.kills, random.Random(arguments.seed))
    print("\n".join(found) or f"{arguments.kills} kills: the runs are equal, bit for bit")
    sys.exit(bool(found))


def survive(folder: pathlib.Path, kills: int, rng: random.Random) -> list[str]:
    """Returns the differences between a run that was killed repeatedly and one that was not.

    Args:
      folder: An empty folder for both runs.
      kills: The number of kills.
      rng: Chooses the moments.
    """
    train_steps = 20 * kills
    flags = [*RUN, f"--train_steps={train_steps}"]
    reference, killed = folder / "reference", folder / "killed"
    finish(reference, flags)
    for kill in tqdm.trange(kills, unit="kill", disable=None):
        before, run = newest(killed), start(killed, flags)
        # One kill in four may come before the process has saved anything.
        deadline = time.monotonic() + (rng.uniform(0, 4) if kill % 4 == 0 else math.inf)
        while run.is_alive() and newest(killed) == before and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.1))
        run.kill()
        run.join()
        if run.exitcode != -9:
            return [f"the run ended with status {run.exitcode} after {kill} kills"]
    if not 0 < newest(killed) < train_steps:
        return [f"the run was killed last after {newest(killed)} of {train_steps} iterations"]
    finish(killed, flags)
    return differences(reference, killed, train_steps)


def start(model_dir: pathlib.Path, arguments: list[str]) -> multiprocessing.process.BaseProcess:
    """Starts the program in a process that has already imported TensorFlow."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks", "tensorflow", "train", "wgan_gp.app.training"])
    run = context.Process(target=_run, args=([f"--model_dir={model_dir}", *arguments],))
    run.start()
    return run


def finish(model_dir: pathlib.Path, arguments: list[str]) -> None:
    """Runs the program to its end."""
    run = start(model_dir, arguments)
    run.join()
    if run.exitcode:
        raise RuntimeError(f"the run ended with status {run.exitcode}")


def _run(arguments: list[str]) -> None:
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 1)
        os.dup2(null.fileno(), 2)
    sys.exit(train.main(["train.py", *arguments]))


def newest(model_dir: pathlib.Path) -> int:
    """Returns the number of the newest complete checkpoint, or 0 if there is none."""
    numbers = [int(path.stem[5:]) for path in (model_dir / "checkpoints").glob("ckpt-*.json")]
    return max(numbers, default=0)


def differences(one: pathlib.Path, other: pathlib.Path, step: int) -> list[str]:
    """Returns the names of values and files that differ in two runs after `step` iterations."""
    mine, theirs = (_values(run, step) for run in (one, other))
    found = sorted(mine.keys() ^ theirs.keys())
    found += [
        name
        for name in mine.keys() & theirs.keys()
        if not np.array_equal(mine[name], theirs[name], equal_nan=True)
    ]
    for name, read in (("metrics.jsonl", metrics), ("TensorBoard", curve)):
        if read(one) != read(other):
            found.append(name)
    return found


def _values(model_dir: pathlib.Path, step: int) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(model_dir / "checkpoints" / f"ckpt-{step}"))
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name != "_CHECKPOINTABLE_OBJECT_GRAPH"
    }


def metrics(model_dir: pathlib.Path) -> list[dict]:
    """Returns the lines of metrics.jsonl without the measurements of speed."""
    lines = (model_dir / "metrics.jsonl").read_text().splitlines()
    return [
        {tag: value for tag, value in json.loads(line).items() if "throughput" not in tag}
        for line in lines
    ]


def curve(model_dir: pathlib.Path) -> list[tuple[int, float]]:
    """Returns the critic's losses in TensorBoard in the order of writing: (step, value)."""
    return [
        (event.step, float(tf.make_ndarray(value.tensor)))
        for path in sorted((model_dir / "train").glob("events.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "critic/loss"
    ]


if __name__ == "__main__":
    main()
