"""Compares the loop of --mode=export --export=loop on a GPU with PyTorch, without TensorFlow.

  python -m benchmarks.gpu_loop BUNDLE...

Each BUNDLE is a folder that --mode=export --export=loop wrote for the ResNet (docs/performance.md
has the commands). PyTorch trains networks of the same sizes on the same number of examples: as
usually written, and with torch.compile. Each measurement is a process of its own, one after the
other. The figures are medians of real images per second; TensorFloat-32 is permitted everywhere.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

import numpy as np

from .baselines.work import Work

_LAUNCHES = 8
_SKIPPED = 3  # the first launches compile and choose algorithms
_SECONDS = 12.0


def measure_bundle(folder: str) -> float:
    """Returns the images per second of a bundle's own program."""
    command = [sys.executable, f"{folder}/run.py", str(_LAUNCHES + _SKIPPED)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    rates = [float(rate) for rate in re.findall(r"([0-9]+) images/s", result.stdout)]
    return statistics.median(rates[_SKIPPED:])


def measure_pytorch(work: Work, *, compiled: bool) -> float:
    """Returns the images per second of PyTorch in this process."""
    import torch  # noqa: PLC0415

    from .baselines.pytorch import WGANGP  # noqa: PLC0415

    torch.set_default_device("cuda")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    gan = WGANGP(work, compiled=compiled)
    random = np.random.default_rng(0)
    shape = (work.batch_size, *work.example_shape)
    reals = [
        gan.images(random.uniform(-1, 1, shape).astype(np.float32)).cuda()
        for _ in range(work.n_critic)
    ]
    for _ in range(3):
        gan.train_step(reals)
    torch.cuda.synchronize()
    rates, iterations, end = [], 10, time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(iterations):
            gan.train_step(reals)
        torch.cuda.synchronize()
        images = iterations * work.n_critic * work.batch_size
        rates.append(images / (time.perf_counter() - began))
    return statistics.median(rates)


def _in_process(batch_size: int, kind: str) -> str:
    command = [sys.executable, "-m", "benchmarks.gpu_loop", f"--batch_size={batch_size}", kind]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        return result.stderr.strip().splitlines()[-1]
    return f"{float(result.stdout.split()[-1]):,.0f}"


def main() -> None:
    """Prints a row for each bundle, or the figure of one process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle", nargs="+", help="folders, or in a process: eager, compiled")
    parser.add_argument("--batch_size", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batch_size:
        size = arguments.batch_size
        work = Work("resnet", 32, 3, 128, batch_size=size, generator_batch_size=2 * size)
        print(measure_pytorch(work, compiled=arguments.bundle == ["compiled"]))
        return
    print("images/s, batch size, loop, PyTorch, torch.compile", flush=True)
    seen: dict[int, list[str]] = {}
    for folder in arguments.bundle:
        size = json.loads(pathlib.Path(folder, "bundle.json").read_text())["batch_size"]
        ours = measure_bundle(folder)
        if size not in seen:
            seen[size] = [_in_process(size, kind) for kind in ("eager", "compiled")]
        print(f"{folder}, {size}, {ours:,.0f}, {', '.join(seen[size])}", flush=True)


if __name__ == "__main__":
    main()
