"""How long a user waits: for --help, and for the first iteration of the default run.

python -m benchmarks.start

From the start of a process to its end, or to when the trainer says that a loop is done. Everything
but that word is train.py's own; the run directory is a new one every time.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time

from wgan_gp.config import Config

from . import outcome

# train.py, with a writer more that leaves when it hears of progress.
TO_FIRST_LOOP = """
import os, sys
import flags, train
from wgan_gp import monitoring

class Leave(monitoring.Writer):
    def progress(self, step):
        print(step, flush=True)
        os._exit(0)

make_trainer = train.make_trainer
train.make_trainer = lambda run: make_trainer(run, Leave())
sys.exit(train.main(["train.py", *sys.argv[1:]]))
"""


def seconds(command: list[str], expected: str) -> float:
    """That the command takes.

    Raises:
      RuntimeError: it does not print what it should.
    """
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    passed = time.perf_counter() - began
    if expected not in done.stdout:
        raise RuntimeError(f"{command} printed {done.stdout!r}, {done.stderr!r}")
    return passed


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    rounds = parser.parse_args().rounds
    python = sys.executable
    times: dict[str, list[float]] = {}

    def measure(name: str, command: list[str], expected: str) -> None:
        """Once; `expected` is what it prints when it is there."""
        times.setdefault(name, []).append(seconds(command, expected))

    for _ in range(rounds):
        measure("train.py --help", [python, "train.py", "--help"], "--model_dir")
        measure("import tensorflow", [python, "-c", "import tensorflow; print('done')"], "done")
        for name, iterations in (
            (f"first loop of {Config.steps_per_loop}, as by default", Config.steps_per_loop),
            ("first iteration", 1),
        ):
            with tempfile.TemporaryDirectory() as folder:
                flags = [f"--model_dir={folder}/run", f"--steps_per_loop={iterations}"]
                measure(name, [python, "-c", TO_FIRST_LOOP, *flags], f"{iterations}\n")
    rows = [
        {
            "from the start of the process": name,
            "seconds": statistics.median(values),
            "the slowest": max(values),
        }
        for name, values in times.items()
    ]
    print(outcome.table(rows))
    outcome.save("start", rows)


if __name__ == "__main__":
    main()
