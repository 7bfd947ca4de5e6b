"""The metrics of evaluations that have a best value, by which runs and checkpoints are ranked."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

# By the kind of data.
MINIMIZED = {
    "images": ("fid", "kid"),
    "points": ("wasserstein",),
    "tables": (
        *("association_error", "total_variation", "total_variation_largest", "missing_error"),
        *("feature_wasserstein", "feature_wasserstein_largest", "kolmogorov_smirnov"),
        *("kolmogorov_smirnov_largest", "value_wasserstein", "value_wasserstein_largest"),
    ),
    "arrays": (
        *("feature_wasserstein", "feature_wasserstein_largest", "kolmogorov_smirnov"),
        *("kolmogorov_smirnov_largest", "correlation_error", "spectrum_error"),
        "autocorrelation_error",
    ),
}
MAXIMIZED = {
    "images": (
        *("precision", "recall", "coverage", "inception_score", "confidence"),
        *("class_accuracy", "smallest_class"),
    ),
    "points": ("modes_covered", "high_quality_share"),
    "tables": ("synthetic_trained_accuracy", "synthetic_trained_r2"),
    "arrays": ("synthetic_trained_accuracy", "synthetic_trained_r2"),
}
_MAXIMIZED = [*dict.fromkeys(itertools.chain(*MAXIMIZED.values()))]
RANKING = [*dict.fromkeys(itertools.chain(*MINIMIZED.values())), *_MAXIMIZED]


def is_maximized(metric: str) -> bool:
    """Returns True if a larger value of a member of RANKING is better."""
    return metric in _MAXIMIZED


def kinds_of_data(
    rank: int, *, built_in: bool, feature_extractor: str | None, is_table: bool = False
) -> list[str]:
    """Returns the kinds of metrics that evaluations may contain, the most likely one first.

    Args:
      rank: The number of axes of an example.
      built_in: Whether the dataset is built in.
      feature_extractor: The value of --feature_extractor.
      is_table: Whether the data is a table.
    """
    if is_table:
        return ["tables"]
    if rank != 3 or feature_extractor == "none":
        return ["points" if rank == 1 and built_in else "arrays"]
    if feature_extractor or built_in:
        return ["images"]
    return ["images", "arrays"]  # measurements in the shape of images are evaluated as arrays


def usable_metrics(kinds: Iterable[str]) -> list[str]:
    """Returns the members of RANKING that evaluations of some kinds of data may contain."""
    return [name for kind in kinds for name in MINIMIZED[kind] + MAXIMIZED[kind]]


def listed(names: Iterable[str]) -> str:
    """Returns names as a message lists them: "a, b or c"."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
