"""Trains CTGAN or TVAE on a table for a number of seconds; studies.tables runs it.

  python ctgan_worker.py ctgan|tvae TABLE.csv SAMPLES.csv SECONDS SEED

It runs in another Python, imports nothing of this project, and prints the number of epochs and the
seconds as JSON.
"""

import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator

import ctgan
import ctgan.synthesizers.ctgan
import ctgan.synthesizers.tvae
import numpy as np
import pandas as pd
import torch

FEW = 10  # different numbers, which are categories
MISSING = "missing"


def limited_epochs(deadline: float, done: list[int]):
    """Returns a replacement of tqdm in `fit`, which ends the epochs at a time.

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


def without_missing(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a table whose missing values are a category or the median: they support none."""
    filled = {}
    for name, column in table.items():
        is_number = pd.api.types.is_numeric_dtype(column)
        filled[name] = column.fillna(column.median() if is_number else MISSING)
    return pd.DataFrame(filled)


def main() -> None:
    """Writes as many samples as the table has rows."""
    program, source, target, seconds, seed = sys.argv[1:]
    table = without_missing(pd.read_csv(source))
    discrete = [
        name
        for name, column in table.items()
        if not pd.api.types.is_numeric_dtype(column) or column.nunique() <= FEW
    ]
    torch.manual_seed(int(seed))
    np.random.seed(int(seed))
    # Their defaults, but for the number of epochs.
    model = {"ctgan": ctgan.CTGAN, "tvae": ctgan.TVAE}[program](enable_gpu=False)
    done: list[int] = []
    begin = time.perf_counter()
    deadline = begin + float(seconds)
    for module in (ctgan.synthesizers.ctgan, ctgan.synthesizers.tvae):
        module.tqdm = limited_epochs(deadline, done)
    model.fit(table, discrete)
    taken = time.perf_counter() - begin
    model.sample(len(table)).replace(MISSING, np.nan).to_csv(target, index=False)
    print(json.dumps({"epochs": len(done), "seconds": taken}))


if __name__ == "__main__":
    main()
