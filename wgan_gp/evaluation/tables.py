"""The evaluator of typed tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.stats

from ..data.table import Table, aligned
from ..errors import shorten
from ..inference.sampling import Sampler
from . import learned
from .arrays import TableEvaluator
from .distances import standard_deviations
from .examples import Examples

_MOST_SHOWN = 20  # columns, whose distances are largest


class TypedTableEvaluator(TableEvaluator):
    """An evaluator of typed tables; see `TableEvaluator`.

    Distances are those of the features of the networks, which are ranks of numbers, and those of
    the values of numbers. Classifiers see a number for each column, with NaN for a missing value.

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
        if distances := self._value_distances(samples, real):
            values["value_wasserstein"] = float(np.mean(list(distances.values())))
            values["value_wasserstein_largest"] = max(distances.values())
        if len(self._table.columns) > 1:
            pairs = np.triu_indices(len(self._table.columns), 1)
            found = [self._table.associations(each)[pairs] for each in (samples, real)]
            values["association_error"] = float(np.abs(found[0] - found[1]).mean())
        return values

    def _value_distances(self, samples: np.ndarray, real: np.ndarray) -> dict[int, float]:
        """Returns the 1-Wasserstein distance of the values of each column of numbers, by place.

        It is in standard deviations of the real values; missing ones are left out.
        """
        found, sets = {}, [self._table.numbers(each) for each in (samples, real)]
        for place, column in enumerate(self._table.columns):
            present = [each[np.isfinite(each[:, place]), place] for each in sets]
            if column.is_number and all(map(len, present)):
                largest = max(np.abs(each).max() for each in present) or 1  # squares stay finite
                first, second = (each / largest for each in present)
                scale = standard_deviations(second[:, None])[0]
                found[place] = scipy.stats.wasserstein_distance(first, second) / scale
        return found

    def _details(self, samples: np.ndarray) -> dict[str, str]:
        """Returns a text with the means and the extremes of the columns of numbers."""
        distances = self._value_distances(samples, self._real.examples)
        sets = [self._table.numbers(each) for each in (samples, self._real.examples)]
        rows = [("column", "distance", *(f"{what}, data" for what in ("mean", "min", "max")))]
        for place in sorted(distances, key=lambda place: -distances[place])[:_MOST_SHOWN]:
            column, shown = self._table.columns[place], []
            for function in (np.nanmean, np.nanmin, np.nanmax):
                numbers = [float(function(each[:, place])) for each in sets]
                if function is np.nanmean and column.kind == "integer":
                    shown.append(", ".join(f"{number:.7g}" for number in numbers))
                else:
                    shown.append(", ".join(map(column.shown_at, numbers)))
            rows.append((shorten(column.name, 30), f"{distances[place]:.3g}", *shown))
        return {"columns": aligned(rows)} if distances else {}

    def _two_sample_accuracy(self, samples: np.ndarray) -> float:
        """Returns the accuracy for numbers with the distribution of the rows of other folds.

        Those of a perfect generator have the distribution of all rows to which the columns were
        fitted, also of those that a classifier is tested on; see `learned.two_sample_accuracy`.
        """
        real = self._real.examples

        def without(places: np.ndarray) -> np.ndarray:
            table = self._table.fitted_to(np.delete(real, places, axis=0))
            return _classified(table.numbers(samples))

        return learned.two_sample_accuracy(samples, self._classified(real), without)

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
