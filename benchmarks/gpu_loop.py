"""Compares the loop of a run on a GPU with PyTorch, without TensorFlow.

  python -m benchmarks.gpu_loop BUNDLE...

Each BUNDLE is a folder that benchmarks.bundle wrote for the ResNet or R3GAN at 32 pixels
(docs/performance.md has the commands). PyTorch trains networks of the same sizes on the same number
of examples: as usually written, and with torch.compile. Each measurement is a process of its own,
one after the other. The figures are medians of real images per second; TensorFloat-32 is permitted
everywhere.

  python -m benchmarks.gpu_loop --check

This needs TensorFlow and PyTorch. It compares the results and gradients of R3GAN in both, on the
CPU with the same weights. It takes up to ten minutes, nearly all of them for torch.compile.
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
from typing import Any

import numpy as np

from .baselines.work import Work

_LAUNCHES = 8
_SKIPPED = 3  # the first launches compile and choose algorithms
_SECONDS = 12.0
_KINDS = ("eager", "compiled")


def measure_bundle(folder: str) -> float:
    """Returns the images per second of a bundle's own program."""
    command = [sys.executable, f"{folder}/run.py", str(_LAUNCHES + _SKIPPED)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    rates = [float(rate) for rate in re.findall(r"([0-9]+) images/s", result.stdout)]
    return statistics.median(rates[_SKIPPED:])


def read_facts(folder: str) -> dict[str, Any]:
    """Returns the content of bundle.json."""
    return json.loads(pathlib.Path(folder, "bundle.json").read_text())


def work_of(facts: dict[str, Any]) -> Work:
    """Returns the workload of a bundle, whose images have 32x32 pixels and 3 channels."""
    return Work(
        facts["model"],
        32,
        3,
        facts["model_width"],
        batch_size=facts["batch_size"],
        generator_batch_size=facts["generator_batch_size"],
        n_critic=facts["n_critic"],
        latent_size=facts["latent_size"],
    )


def check_parameters(gan: Any, facts: dict[str, Any]) -> None:
    """Raises ValueError unless PyTorch's networks have as many parameters as the bundle's."""
    for name in ("generator", "critic"):
        count = sum(each.numel() for each in getattr(gan, name).parameters())
        expected = facts[f"{name}_parameters"]
        if count != expected:
            raise ValueError(f"PyTorch's {name} has {count:,} parameters, not {expected:,}")


def measure_pytorch(facts: dict[str, Any], *, compiled: bool) -> float:
    """Returns the images per second of PyTorch in this process."""
    import torch  # noqa: PLC0415

    from .baselines.pytorch import WGANGP  # noqa: PLC0415
    from .baselines.pytorch_r3gan import R3GAN  # noqa: PLC0415

    torch.set_default_device("cuda")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    work = work_of(facts)
    gan = (R3GAN if work.model == "r3gan" else WGANGP)(work, compiled=compiled)
    check_parameters(gan, facts)
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


def _in_process(folder: str, kind: str) -> str:
    command = [sys.executable, "-m", "benchmarks.gpu_loop", f"--only={kind}", folder]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        return result.stderr.strip().splitlines()[-1]
    return f"{float(result.stdout.split()[-1]):,.0f}"


def main() -> None:
    """Prints a row for each bundle, the figure of one process, or the comparison of results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle", nargs="*", help="folders of benchmarks.bundle")
    parser.add_argument("--check", action="store_true", help="compare R3GAN with TensorFlow's")
    parser.add_argument("--only", choices=_KINDS, help=argparse.SUPPRESS)  # one process
    arguments = parser.parse_args()
    if arguments.check:
        from .baselines import r3gan_check  # noqa: PLC0415

        r3gan_check.check()
        return
    if arguments.only:
        facts = read_facts(arguments.bundle[0])
        print(measure_pytorch(facts, compiled=arguments.only == "compiled"))
        return
    print("images/s, batch size, loop, PyTorch, torch.compile", flush=True)
    seen: dict[Work, list[str]] = {}
    for folder in arguments.bundle:
        work = work_of(read_facts(folder))
        ours = measure_bundle(folder)
        if work not in seen:
            seen[work] = [_in_process(folder, kind) for kind in _KINDS]
        print(f"{folder}, {work.batch_size}, {ours:,.0f}, {', '.join(seen[work])}", flush=True)


if __name__ == "__main__":
    main()
