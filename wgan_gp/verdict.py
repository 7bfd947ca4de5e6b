"""Diagnoses the state of training by rules; docs/monitoring.md gives their reasons."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Mapping

SUMMARIES = 5  # the number of latest summaries that the rules consider
GROWTH = 10.0  # factor of a diverging loss from the first to the last of them
BEYOND = 1000.0  # larger than the losses of a critic with slopes near 1
ABSURD = 1e6  # a diverging loss, even without growth: float32 rounds it to multiples of 1/16
SLOPE = (0.5, 1.5)  # accepted range of gradient norm / target
DIVERSITY = 0.25  # least diversity of samples / diversity of real examples
STRENGTH = 0.25  # least estimated distance / distance between the means
MEMORISED = 0.5  # largest share of the negative critic loss that held-out examples may lack


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A diagnosis of the run.

    Attributes:
      name: The diagnosis, such as "generator collapsed".
      reason: The values on which it is based.
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class Judge:
    """Diagnoses a run from its last SUMMARIES summaries.

    Args:
      target: The gradient norm to which the penalty pulls the critic. 0 if the penalty has no
        target; the critic's estimate then has no unit.
      one_sided: True if only norms above the target are penalized.
    """

    def __init__(self, *, target: float, one_sided: bool = False):
        self._target = target
        self._one_sided = one_sided
        self._last: collections.deque[Mapping[str, float]] = collections.deque(maxlen=SUMMARIES)

    def forget(self) -> None:
        """Discards the earlier summaries, at the start of training and after a rollback."""
        self._last.clear()

    def judge(self, values: Mapping[str, float]) -> Verdict | None:
        """Returns the diagnosis after one more summary, or None after fewer than SUMMARIES.

        Args:
          values: The scalars of the summary, by tag.
        """
        self._last.append(values)
        if len(self._last) < SUMMARIES:
            return None
        for rule in (  # causes come before their consequences
            self._diverging,
            self._too_weak,
            self._constraint_violated,
            self._collapsed,
            self._overfitting,
        ):
            verdict = rule()
            if verdict is not None:
                return verdict
        return Verdict("healthy", self._figures())

    def _figures(self) -> str:
        figures = [f"diversity {self._mean('probe/diversity'):.0%} of the data's"]
        if self._all_have("probe/gradient_norm"):
            figures.insert(0, f"gradient norm {self._mean('probe/gradient_norm'):.2f}")
        if self._all_have("critic/wasserstein"):
            figures.insert(0, f"estimated distance {self._mean('critic/wasserstein'):.3g}")
        return ", ".join(figures)

    def _all_have(self, tag: str) -> bool:
        """Returns whether every summary has the tag: not every objective has every term."""
        return all(tag in values for values in self._last)

    def _mean(self, tag: str) -> float:
        return sum(values[tag] for values in self._last) / SUMMARIES

    def _diverging(self) -> Verdict | None:
        for network in ("critic", "generator"):
            losses = [abs(values[f"{network}/loss"]) for values in self._last]
            grows = all(after > before for before, after in itertools.pairwise(losses))
            if losses[-1] > ABSURD or (grows and losses[-1] > max(GROWTH * losses[0], BEYOND)):
                return Verdict(
                    "diverging",
                    f"the {network}'s loss went in {SUMMARIES} summaries from {losses[0]:.3g} to "
                    f"{losses[-1]:.3g}",
                )
        return None

    def _collapsed(self) -> Verdict | None:
        share = self._mean("probe/diversity")
        if share < DIVERSITY:
            return Verdict(
                "generator collapsed",
                f"samples are {share:.0%} as far from each other as real examples are",
            )
        return None

    def _constraint_violated(self) -> Verdict | None:
        if not self._all_have("probe/gradient_norm"):
            return None
        norm, (least, most) = self._mean("probe/gradient_norm"), SLOPE
        low = not self._one_sided and norm < least * self._target
        if self._target and (low or norm > most * self._target):
            return Verdict(
                "constraint violated",
                f"the gradient norm is {norm:.3g}, and {self._target:g} is asked for",
            )
        return None

    def _too_weak(self) -> Verdict | None:
        if not self._all_have("probe/wasserstein"):
            return None
        found = self._mean("probe/wasserstein")
        # Without a target the scores have no unit, and only their sign is meaningful.
        least = STRENGTH * self._target * self._mean("probe/distance_of_means")
        if found < least or found < 0:
            return Verdict(
                "critic too weak",
                f"it finds a distance of {found:.3g}, and a linear one would find "
                f"{least / STRENGTH:.3g}"
                if self._target
                else "it scores samples higher than real examples",
            )
        return None

    def _overfitting(self) -> Verdict | None:
        if not self._all_have("held_out/negative_critic_loss"):
            return None
        trained = self._mean("probe/negative_critic_loss")
        held_out = self._mean("held_out/negative_critic_loss")
        if trained > 0 and trained - held_out > MEMORISED * trained:
            return Verdict(
                "critic overfitting",
                f"its negative loss is {trained:.3g} on examples it was trained on, and "
                f"{held_out:.3g} on others",
            )
        return None
