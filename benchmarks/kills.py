"""Kills a run at random moments, and compares its end with that of one left alone.

  python -m benchmarks.kills             200 times
  python -m benchmarks.kills --kills=20

Everything must be the same: weights and optimizers bit for bit, metrics.jsonl, TensorBoard.
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

# It writes after every loop, so that few moments are not in the midst of writing.
RUN = ["--model=mlp", "--model_width=4", "--model_depth=1", "--latent_size=8"]
RUN += ["--batch_size=16", "--n_critic=2", "--steps_per_loop=2", "--checkpoint_interval=2"]
RUN += ["--summary_interval=10", "--sample_interval=20"]


def main() -> None:
    """Prints what differs, and exits 1; or that nothing does."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = survive(pathlib.Path(folder), given.kills, random.Random(given.seed))
    print("\n".join(found) or f"{given.kills} kills: the same run, bit for bit")
    sys.exit(bool(found))


def survive(folder: pathlib.Path, kills: int, dice: random.Random) -> list[str]:
    """What distinguishes a run that was killed so many times from one that was not."""
    train_steps = 20 * kills
    arguments = [*RUN, f"--train_steps={train_steps}"]
    whole, killed = folder / "whole", folder / "killed"
    finish(whole, arguments)
    for kill in tqdm.trange(kills, unit="kill", disable=None):
        before, run = newest(killed), start(killed, arguments)
        # One in four before it has saved anything, if it comes to that.
        until = time.monotonic() + (dice.uniform(0, 4) if kill % 4 == 0 else math.inf)
        while run.is_alive() and newest(killed) == before and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(dice.uniform(0, 0.1))
        run.kill()
        run.join()
        if run.exitcode != -9:
            return [f"it ended by itself, after {kill} kills, with status {run.exitcode}"]
    if not 0 < newest(killed) < train_steps:
        return [f"it was killed after {newest(killed)} iterations of {train_steps}"]
    finish(killed, arguments)
    return differences(whole, killed, train_steps)


def start(model_dir: pathlib.Path, arguments: list[str]) -> multiprocessing.process.BaseProcess:
    """The program, as a process that need not import TensorFlow first."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tensorflow", "train"])
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
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    sys.exit(train.main(["train.py", *arguments]))


def newest(model_dir: pathlib.Path) -> int:
    """The number of the newest complete checkpoint; 0: there is none."""
    numbers = [int(path.stem[5:]) for path in (model_dir / "checkpoints").glob("ckpt-*.json")]
    return max(numbers, default=0)


def differences(one: pathlib.Path, other: pathlib.Path, step: int) -> list[str]:
    """What is not the same in two runs after `step` iterations."""
    mine, theirs = (_values(run, step) for run in (one, other))
    found = sorted(mine.keys() ^ theirs.keys())
    found += [
        name
        for name in mine.keys() & theirs.keys()
        if not np.array_equal(mine[name], theirs[name], equal_nan=True)
    ]
    for name, read in (("metrics.jsonl", figures), ("TensorBoard", curve)):
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


def figures(model_dir: pathlib.Path) -> list[dict]:
    """metrics.jsonl, without what depends on the machine."""
    lines = (model_dir / "metrics.jsonl").read_text().splitlines()
    return [
        {tag: value for tag, value in json.loads(line).items() if "throughput" not in tag}
        for line in lines
    ]


def curve(model_dir: pathlib.Path) -> list[tuple[int, float]]:
    """The critic's loss in TensorBoard, in the order it was written: pairs of step and value."""
    return [
        (event.step, float(tf.make_ndarray(value.tensor)))
        for path in sorted((model_dir / "train").glob("events.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "critic/loss"
    ]


if __name__ == "__main__":
    main()
