"""The decisions of a sweep: which settings stop at a rung, and which is best.

Successive halving follows arXiv:1502.07943 (Jamieson and Talwalkar 2016), section 3.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from ...training.diagnosis import HEALTHY

MIN_DIAGNOSES = 5  # that must all be bad; many runs are bad for a moment early on


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The state of a trial after a number of iterations.

    Attributes:
      figure: The figure that ranks the trials; None if the trial failed.
      diagnosis: The last diagnosis; None after too few summaries.
      stays_bad: Whether the diagnosis stayed bad; see `stays_bad`.
      error: The error of a trial that failed, else None.
    """

    figure: float | None
    diagnosis: str | None = None
    stays_bad: bool = False
    error: str | None = None


def stays_bad(diagnoses: Sequence[tuple[int, str]], iterations: int) -> bool:
    """Returns True if all diagnoses in the second half of the iterations are bad.

    If there are fewer than MIN_DIAGNOSES of them, the result is False.

    Args:
      diagnoses: (iteration, name of the diagnosis) of each summary that has a diagnosis.
      iterations: The number of iterations done.
    """
    late = [name for step, name in diagnoses if iterations / 2 < step <= iterations]
    return len(late) >= MIN_DIAGNOSES and all(name != HEALTHY for name in late)


def figures(outcomes: Sequence[Outcome]) -> list[float]:
    """Returns the figures of the trials of a setting that did not fail."""
    return [each.figure for each in outcomes if each.figure is not None]


def ranking(outcomes: Mapping[str, Sequence[Outcome]], *, maximize: bool) -> list[str]:
    """Returns the settings, best first.

    A setting is ranked by the mean of its figure over its seeds. A setting of which more trials
    failed comes later, because the mean of the others would flatter it.

    Args:
      outcomes: The outcomes of the trials of each setting.
      maximize: Whether a larger figure is better.
    """

    def key(name: str) -> tuple[int, float]:
        values = figures(outcomes[name])
        mean = statistics.fmean(values) if values else math.inf
        return len(outcomes[name]) - len(values), -mean if maximize and values else mean

    return sorted(outcomes, key=key)


def stopped(
    outcomes: Mapping[str, Sequence[Outcome]], *, maximize: bool, keep: float
) -> dict[str, str]:
    """Returns the reason for each setting that stops at a rung, best setting first.

    First, settings stop whose trials all failed, or whose diagnoses all stay bad, unless this
    would stop all settings. Then the best settings are kept, at most the share `keep` of all,
    rounded up.

    Args:
      outcomes: The outcomes of the trials of each setting that reached the rung.
      maximize: Whether a larger figure is better.
      keep: The share of the settings to keep, above 0 and below 1.
    """
    ranked = ranking(outcomes, maximize=maximize)
    failed = [name for name in ranked if not _alive(outcomes[name])]
    alive = [name for name in ranked if name not in failed]
    bad = [name for name in alive if all(each.stays_bad for each in _alive(outcomes[name]))]
    if len(bad) == len(alive):
        bad = []
    good = [name for name in alive if name not in bad]
    # 0.07 * 100 is 7.000000000000001, which must not be rounded up to 8.
    kept = math.ceil(round(keep * len(outcomes), 9))
    return {
        **{
            name: f"rank {place} of {len(outcomes)}"
            for place, name in enumerate(good[kept:], kept + 1)
        },
        **{name: f"its diagnosis stays bad: {diagnosis(outcomes[name])}" for name in bad},
        **dict.fromkeys(failed, "all its trials failed"),
    }


def diagnosis(outcomes: Sequence[Outcome]) -> str:
    """Returns the last diagnoses of the trials of a setting, each once, as text."""
    names = dict.fromkeys(each.diagnosis or "none yet" for each in _alive(outcomes))
    return " or ".join(names)


def _alive(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.figure is not None]
