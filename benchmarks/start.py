"""Measures the time of --help, and the time to the first iteration of the default run.

python -m benchmarks.start

The time is measured from the start of a process to its end, or until the trainer reports the first
loop. The program is train.py with one more writer; each run has a new run directory.
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

# The program of train.py with a writer that ends the process at the first progress report.
TO_FIRST_LOOP = """
import os, sys
import flags, wgan_gp

flags.define()
config = flags.parse(sys.argv)

class ExitAtProgress(wgan_gp.Writer):
    def progress(self, step):
        print(step, flush=True)
        os._exit(0)

wgan_gp.train(config, writers=[ExitAtProgress()])
"""


def seconds(command: list[str], expected: str) -> float:
    """Returns the duration of a command.

    Args:
      command: The program and its arguments.
      expected: Text that the command must print.

    Raises:
      RuntimeError: If the command does not print the text.
    """
    start = time.perf_counter()
    result = subprocess.run(command, capture_output=True, text=True)
    duration = time.perf_counter() - start
    if expected not in result.stdout:
        raise RuntimeError(f"{command} printed {result.stdout!r}, {result.stderr!r}")
    return duration


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    rounds = parser.parse_args().rounds
    python = sys.executable
    times: dict[str, list[float]] = {}

    def measure(name: str, command: list[str], expected: str) -> None:
        """Runs a command once and records its duration."""
        times.setdefault(name, []).append(seconds(command, expected))

    for _ in range(rounds):
        measure("train.py --help", [python, "train.py", "--help"], "--model_dir")
        measure("import tensorflow", [python, "-c", "import tensorflow; print('done')"], "done")
        for name, iterations in (
            (f"first loop of {Config.steps_per_loop}, the default", Config.steps_per_loop),
            ("first iteration", 1),
        ):
            with tempfile.TemporaryDirectory() as folder:
                flags = [f"--model_dir={folder}/run", f"--steps_per_loop={iterations}"]
                measure(name, [python, "-c", TO_FIRST_LOOP, *flags], f"{iterations}\n")
    rows = [
        {
            "from the start of the process": name,
            "seconds": statistics.median(values),
            "slowest": max(values),
        }
        for name, values in times.items()
    ]
    print(outcome.table(rows))
    outcome.save("start", rows)


if __name__ == "__main__":
    main()
