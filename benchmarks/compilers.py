"""Compares the speed of the programs that train on this machine's CPU: TensorFlow's and XLA's.

  python -m benchmarks.compilers

The programs are --jit_compile=off and on, and --runtime=pjrt. Each trains the same run with
train.py in a new process, and takes turns with the others. The speed is the median over the loops
after the first. The waiting time is that from the start of the process to the end of the first
loop, which includes compilation; jax's compilation cache is off.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from . import outcome

PROGRAMS = {
    "--jit_compile=off": ["--runtime=tensorflow", "--jit_compile=off"],
    "--jit_compile=on": ["--runtime=tensorflow", "--jit_compile=on"],
    "--runtime=pjrt": ["--runtime=pjrt"],
}
# Networks at sizes that a CPU trains; the digits are enlarged.
NETWORKS = {
    "mlp, 8 pixels, width 256": (["--model=mlp", "--model_width=256"], 1200),
    "mlp, 8 pixels, width 1024": (["--model=mlp", "--model_width=1024"], 120),
    "mlp, 32 pixels, width 256": (["--model=mlp", "--model_width=256", "--image_size=32"], 600),
    "conv1d, 64 values, width 32": (["--model=conv1d", "--model_width=32"], 30),
    "dcgan, 28 pixels, width 32": (["--model=dcgan", "--model_width=32", "--image_size=28"], 12),
    "resnet, 32 pixels, width 16": (["--model=resnet", "--model_width=16", "--image_size=32"], 6),
    "r3gan, 32 pixels, width 8": (["--model=r3gan", "--model_width=8", "--image_size=32"], 6),
}
_LOOPS = 6


def measure(flags: list[str], iterations: int) -> tuple[float, float]:
    """Returns the images per second of a run and the seconds to the end of its first loop."""
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder, "run")
        per_loop = max(1, iterations // _LOOPS)
        command = [
            *(sys.executable, "train.py", f"--model_dir={directory}", *flags),
            *(f"--train_steps={_LOOPS * per_loop}", f"--steps_per_loop={per_loop}"),
            *(f"--summary_interval={per_loop}", f"--sample_interval={_LOOPS * per_loop}"),
        ]
        start = time.perf_counter()
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"},
        ) as process:
            output = []
            for line in process.stdout or ():
                output.append(line)
                if line.startswith(f"{per_loop}/"):
                    first = time.perf_counter() - start
        if process.returncode:
            raise RuntimeError(f"{command} failed: {''.join(output)}")
        metrics = (directory / "metrics.jsonl").read_text().splitlines()
        speeds = [json.loads(line)["throughput/images_per_second"] for line in metrics]
    return statistics.median(speeds[1:]), first


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--networks", default="", help="only names that contain this text")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        signals = pathlib.Path(folder, "signals.npy")
        phase = np.random.default_rng(0).uniform(0, 6.28, [2000, 1, 1])
        np.save(signals, np.sin(np.arange(64)[:, None] / 4 + phase).astype(np.float32))
        for name, (flags, iterations) in NETWORKS.items():
            if arguments.networks not in name:
                continue
            is_signal = "conv1d" in name
            data = [f"--data_dir={signals}"] if is_signal else []
            data.append(f"--dataset={'array' if is_signal else 'digits'}")
            shared = [*flags, *data, "--n_critic=5", "--batch_size=64"]
            results: dict[str, list[tuple[float, float]]] = {each: [] for each in PROGRAMS}
            for _ in range(arguments.rounds):
                for program, chosen in PROGRAMS.items():
                    results[program].append(measure([*shared, *chosen], iterations))
            shown = [_row(name, program, results) for program in PROGRAMS]
            print(outcome.table(shown), flush=True)
            rows += shown
    outcome.save("compilers", rows)


def _row(name: str, program: str, results: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """Returns a row of the table, given the results of `measure` by program."""
    speeds = {each: [speed for speed, _ in pairs] for each, pairs in results.items()}
    return {
        "network": name,
        "program": program,
        "images/s": statistics.median(speeds[program]),
        "relative speed": outcome.ratio(speeds[program], speeds[next(iter(PROGRAMS))]),
        "seconds to the first loop": statistics.median(first for _, first in results[program]),
    }


if __name__ == "__main__":
    main()
