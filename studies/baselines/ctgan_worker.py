"""Trains CTGAN on a table for a number of seconds; ctgan_comparison runs it in another Python.

  python ctgan_worker.py TABLE.npz SAMPLES.npz SECONDS SEED

It imports nothing of this project, and prints the number of epochs as JSON.
"""

import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator

import ctgan
import ctgan.synthesizers.ctgan
import numpy as np
import pandas
import torch

LABEL = "label"


def limited_epochs(deadline: float, done: list[int]):
    """Returns a replacement of tqdm in CTGAN's `fit`, which ends the epochs at a time.

    Args:
      deadline: The time on the clock of time.perf_counter().
      done: Receives the number of each epoch.
    """

    def epochs(_: Iterable, **options: object) -> Iterator[int]:
        for epoch in itertools.count():
            if epoch and time.perf_counter() > deadline:
                return
            yield epoch
            done.append(epoch)

    return epochs


def main() -> None:
    """Writes as many samples as the table has rows."""
    source, target, seconds, seed = sys.argv[1:]
    with np.load(source) as arrays:
        table = pandas.DataFrame(arrays["examples"])
        table.columns = [f"feature_{place}" for place in table.columns]
        table[LABEL] = arrays["labels"]
    torch.manual_seed(int(seed))
    np.random.seed(int(seed))
    done: list[int] = []
    deadline = time.perf_counter() + float(seconds)
    ctgan.synthesizers.ctgan.tqdm = limited_epochs(deadline, done)
    model = ctgan.CTGAN(enable_gpu=False)  # its defaults, but for the number of epochs
    model.fit(table, discrete_columns=[LABEL])
    samples = model.sample(len(table))
    np.savez(
        target,
        examples=samples.drop(columns=LABEL).to_numpy(),
        labels=samples[LABEL].to_numpy().astype(int),
    )
    print(json.dumps({"epochs": len(done)}))


if __name__ == "__main__":
    main()
