"""Trains CTGAN or TVAE on a table for a number of seconds; studies.tables runs it.

  python ctgan_worker.py ctgan|tvae TABLE.csv SAMPLES.csv SECONDS SEED

Its samples are handled as by SDV, the framework around both: numbers are rounded to the decimals of
the table and clipped to its range, and missing numbers are restored by an indicator column. It runs
in another Python, imports nothing of this project, and prints the number of epochs and the seconds
as JSON.
"""

import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

FEW = 10  # different numbers, which are categories
MISSING = "missing"
INDICATOR = "{} is missing"
MOST_DECIMALS = 6


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
    """Returns a table without missing values, which they do not support.

    They are a category or, among numbers, the median, next to a column that says where they were.
    """
    filled = {}
    for name, column in table.items():
        if not pd.api.types.is_numeric_dtype(column):
            filled[name] = column.fillna(MISSING)
            continue
        filled[name] = column.fillna(column.median())
        if column.isna().any():
            filled[INDICATOR.format(name)] = column.isna().map({True: "yes", False: "no"})
    return pd.DataFrame(filled)


def restored(samples: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Returns samples of `without_missing(table)` as rows of the table."""
    found = {}
    for name, column in table.items():
        if not pd.api.types.is_numeric_dtype(column):
            found[name] = samples[name].replace(MISSING, np.nan)
            continue
        values = pd.to_numeric(samples[name]).round(decimals(column))
        values = values.clip(column.min(), column.max())
        if INDICATOR.format(name) in samples:
            values = values.mask(samples[INDICATOR.format(name)] == "yes")
        found[name] = values.astype(column.dtype)
    return pd.DataFrame(found)


def decimals(column: pd.Series) -> int:
    """Returns the number of decimals of all numbers, at most MOST_DECIMALS."""
    present = column.dropna()
    for count in range(MOST_DECIMALS):
        if (present.round(count) == present).all():
            return count
    return MOST_DECIMALS


def main() -> None:
    """Writes as many samples as the table has rows."""
    import ctgan  # noqa: PLC0415
    import ctgan.synthesizers.ctgan  # noqa: PLC0415
    import ctgan.synthesizers.tvae  # noqa: PLC0415
    import torch  # noqa: PLC0415

    program, source, target, seconds, seed = sys.argv[1:]
    given = pd.read_csv(source)
    table = without_missing(given)
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
    restored(model.sample(len(table)), given).to_csv(target, index=False)
    print(json.dumps({"epochs": len(done), "seconds": taken}))


if __name__ == "__main__":
    main()
