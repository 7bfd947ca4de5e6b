"""Trains CTGAN on a table for a number of seconds; ctgan_comparison runs it in another Python.

  python ctgan_worker.py TABLE.npz SAMPLES.npz SECONDS SEED

It imports nothing of this project, and prints the number of epochs as JSON.
"""

import json
import sys
import time

import ctgan
import numpy as np
import pandas
import torch

LABEL = "label"
TRIAL_EPOCHS = 20  # to measure the time of an epoch


def train(table: pandas.DataFrame, epochs: int, seed: int) -> ctgan.CTGAN:
    """Returns CTGAN with its defaults, trained on a table."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    model = ctgan.CTGAN(epochs=epochs, enable_gpu=False)
    model.fit(table, discrete_columns=[LABEL])
    return model


def main() -> None:
    """Writes as many samples as the table has rows."""
    source, target, seconds, seed = sys.argv[1:]
    with np.load(source) as arrays:
        table = pandas.DataFrame(arrays["examples"])
        table.columns = [f"feature_{place}" for place in table.columns]
        table[LABEL] = arrays["labels"]
    times = []
    for epochs in (1, 1 + TRIAL_EPOCHS):
        begin = time.perf_counter()
        train(table, epochs, int(seed))
        times.append(time.perf_counter() - begin)
    each = max((times[1] - times[0]) / TRIAL_EPOCHS, 1e-6)
    epochs = max(1, round((float(seconds) - times[0]) / each))
    samples = train(table, epochs, int(seed)).sample(len(table))
    np.savez(
        target,
        examples=samples.drop(columns=LABEL).to_numpy(),
        labels=samples[LABEL].to_numpy().astype(int),
    )
    print(json.dumps({"epochs": epochs}))


if __name__ == "__main__":
    main()
