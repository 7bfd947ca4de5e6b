"""Kills a run at random moments and compares its result with that of an uninterrupted run.

  python -m tests.fuzz.kills             200 kills
  python -m tests.fuzz.kills --kills=20

Weights, optimizers, metrics.jsonl and TensorBoard's curves must be equal, bit for bit.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import tqdm

import train
from tests.helpers.forks import Fork

from .results import differences

# The run writes after every loop, so that many kills interrupt a write.
RUN = ["--model=mlp", "--model_width=4", "--model_depth=1", "--latent_size=8"]
RUN += ["--batch_size=16", "--n_critic=2", "--steps_per_loop=2", "--checkpoint_interval=2"]
RUN += ["--summary_interval=10", "--sample_interval=20"]
ITERATIONS = 60  # for each kill, which must not come after the end


def main() -> None:
    """Prints the differences and exits with status 1, or reports that there are none."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="number of kills; default: 200")
    parser.add_argument("--seed", type=int, default=0, help="of the moments; default: 0")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        signals = arguments.kills * [signal.SIGKILL]
        found = survive(pathlib.Path(folder), signals, random.Random(arguments.seed))
    print("\n".join(found) or f"{arguments.kills} kills: the runs are equal, bit for bit")
    sys.exit(bool(found))


def survive(
    folder: pathlib.Path, signals: Sequence[int], rng: random.Random, *arguments: str
) -> list[str]:
    """Returns the differences between a run that was ended repeatedly and one that was not.

    Args:
      folder: An empty folder for both runs.
      signals: The signals that end it, SIGKILL or SIGTERM.
      rng: Chooses the moments.
      *arguments: Further flags of both runs.
    """
    train_steps = ITERATIONS * len(signals)
    flags = [*RUN, f"--train_steps={train_steps}", *arguments]
    reference, killed = folder / "reference", folder / "killed"
    finish(reference, flags)
    for kill, number in enumerate(tqdm.tqdm(signals, unit="kill", disable=None)):
        before, run = newest(killed), start(killed, flags)
        # One kill in four may come before the process has saved anything.
        early = kill % 4 == 0 and number == signal.SIGKILL
        deadline = time.monotonic() + (rng.uniform(0, 4) if early else math.inf)
        while run.poll() is None and newest(killed) == before and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.1))
        run.send_signal(number)
        status = run.wait()
        expected = -number if number == signal.SIGKILL else 128 + number
        if status != expected:
            return [f"the run ended with status {status} after {kill} kills"]
    if not 0 < newest(killed) < train_steps:
        return [f"the run was killed last after {newest(killed)} of {train_steps} iterations"]
    finish(killed, flags)
    return differences(reference, killed, train_steps)


def start(model_dir: pathlib.Path, arguments: list[str]) -> Fork:
    """Starts the program in a process that has already imported TensorFlow."""
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return Fork(train.main, [f"--model_dir={model_dir}", *arguments], **silent)


def finish(model_dir: pathlib.Path, arguments: list[str]) -> None:
    """Runs the program to its end."""
    if status := start(model_dir, arguments).wait():
        raise RuntimeError(f"the run ended with status {status}")


def newest(model_dir: pathlib.Path) -> int:
    """Returns the number of the newest complete checkpoint, or 0 if there is none."""
    numbers = [int(path.stem[5:]) for path in (model_dir / "checkpoints").glob("ckpt-*.json")]
    return max(numbers, default=0)


if __name__ == "__main__":
    main()
