"""The evaluator of typed tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.tables.table import Table
from ..inference.sampling import Sampler
from . import learned
from .arrays import TableEvaluator
from .examples import Examples


class TypedTableEvaluator(TableEvaluator):
    """An evaluator of typed tables; see `TableEvaluator`.

    Distances are those of the features of the networks. Classifiers see a number for each column,
    with NaN for a missing value.

    Args:
      count, sampler, examples: See `TableEvaluator`.
      table: The columns.
    """

    def __init__(self, count: int, sampler: Sampler, examples: Examples, table: Table):
        super().__init__(count, sampler, examples)
        self._table = table

    def compare(self, samples: np.ndarray, real: np.ndarray) -> dict[str, float]:
        """Returns the distances between two sets of equal size, `[N, D]`."""
        values = super().compare(samples, real)
        del values["correlation_error"]
        variations, missing = [], []
        means = [each.mean(axis=0, dtype=np.float64) for each in (samples, real)]
        errors = np.abs(means[0] - means[1])  # of one-hot features, those of their shares
        for begin, column in self._table.parts():
            difference = errors[begin : begin + column.size]
            if column.size and not column.is_number:
                variations.append(difference.sum() / 2)
            if column.size and column.has_missing:
                missing.append(difference[-1])
        if variations:
            values["total_variation"] = float(np.mean(variations))
            values["total_variation_largest"] = max(variations)
        if missing:
            values["missing_error"] = float(np.mean(missing))
        if len(self._table.columns) > 1:
            pairs = np.triu_indices(len(self._table.columns), 1)
            found = [self._table.associations(each)[pairs] for each in (samples, real)]
            values["association_error"] = float(np.abs(found[0] - found[1]).mean())
        return values

    def _classified(self, examples: np.ndarray) -> np.ndarray:
        return _classified(self._table.numbers(examples))

    def _closeness(self, samples: np.ndarray) -> dict[str, float]:
        return self._closeness_of_rows(samples, lambda sets: list(map(self._table.canonical, sets)))

    def _transfer(self, samples: np.ndarray, labels: np.ndarray | None) -> dict[str, float]:
        """Predicts the target column from the others; see `transfer`."""
        real = self._real.examples
        if self._table.target is None:
            return {}
        if self._held_out is not None:
            train, test = real, self._held_out.examples
        else:
            train, test = np.split(real, 2)
        found = {}
        for kind, source in (("synthetic", samples[: len(train)]), ("real", train)):
            name, value = transfer(self._table, source, test)
            found[f"{kind}_trained_{name}"] = value
        return found

    def _name(self, place: tuple[Any, ...]) -> str:
        begins = [begin for begin, _ in self._table.parts()]
        return self._table.names[int(np.searchsorted(begins, place[0], side="right")) - 1]


def _classified(numbers: np.ndarray) -> np.ndarray:
    """Returns rows as classifiers see them, `[N, K]` float64: a number for each column.

    The trees have a branch for missing values. The principal components of many columns, which are
    computed first then, do not; missing values are then the mean of their column, and further
    columns say where they are.
    """
    if numbers.shape[1] <= learned.MAX_FEATURES:
        return numbers
    missing = np.isnan(numbers)
    counts = np.maximum(1, (~missing).sum(axis=0))
    means = np.where(missing, 0.0, numbers).sum(axis=0) / counts
    return np.concatenate([np.where(missing, means, numbers), missing], axis=1)


def transfer(table: Table, train: np.ndarray, test: np.ndarray) -> tuple[str, float]:
    """Predicts the target of a table from its other columns.

    Args:
      table: The columns, which have a target.
      train, test: Examples `[N, D]` and `[M, D]`; rows without a target are left out.

    Returns:
      "accuracy" for a category or "r2" for a number, and its value; NaN if no row of a set has a
      target.
    """
    sets = []
    for examples in (train, test):
        values, place, is_number = table.target_of(examples)
        numbers, known = table.numbers(examples), np.isfinite(values)
        sets.append((np.delete(_classified(numbers[known]), place, axis=1), values[known]))
    (rows, truth), (test_rows, test_truth) = sets
    if not len(rows) or not len(test_rows):
        return "r2" if is_number else "accuracy", np.nan
    if is_number:
        truth, test_truth = truth[:, None], test_truth[:, None]
        return "r2", learned.transfer_accuracy(rows, truth, test_rows, test_truth)
    truth, test_truth = truth.astype(int), test_truth.astype(int)
    return "accuracy", learned.transfer_accuracy(rows, truth, test_rows, test_truth)
