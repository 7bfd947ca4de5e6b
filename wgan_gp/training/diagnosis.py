"""The rules by which a run is diagnosed; docs/monitoring.md gives their reasons."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

HEALTHY = "healthy"  # the name of the diagnosis if no rule applies
SUMMARIES = 5  # the number of latest summaries that the rules consider
MIN_GROWTH = 10.0  # factor by which a diverging loss grows over these summaries
MIN_DIVERGING_LOSS = 1000.0  # larger than the losses of a critic with slopes near 1
MAX_LOSS = 1e6  # a larger loss diverges, even without growth: float32 resolves only 1/16 there
SLOPE_RANGE = (0.5, 1.5)  # accepted range of gradient norm / target
MIN_DIVERSITY = 0.25  # diversity of samples / diversity of real examples
MIN_STRENGTH = 0.25  # estimated distance / distance between the means
MAX_GENERALIZATION_GAP = 0.5  # share of the negative critic loss missing on held-out examples


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """A diagnosis of the run.

    Attributes:
      name: The diagnosis, such as "generator collapsed".
      reason: The values on which it is based.
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class DiagnosisMonitor:
    """A monitor that diagnoses a run from its last SUMMARIES summaries.

    Args:
      target: The gradient norm to which the penalty pulls the critic. 0 if the penalty has no
        target; the critic's estimate then has no unit.
      one_sided: True if only norms above the target are penalized.
      estimates_distance: False if the critic's scores are no estimate of a distance, because its
        loss is not that of WGANs. Only their sign is then judged.
      can_augment: True if --augment would apply to the run, which has none.
    """

    def __init__(
        self,
        *,
        target: float,
        one_sided: bool = False,
        estimates_distance: bool = True,
        can_augment: bool = True,
    ):
        self._target = target
        self._one_sided = one_sided
        self._unit = target if estimates_distance else 0.0
        self._can_augment = can_augment
        self._last: collections.deque[Mapping[str, float]] = collections.deque(maxlen=SUMMARIES)

    @classmethod
    def of_objective(cls, objective: Any, *, can_augment: bool) -> DiagnosisMonitor:
        """Returns the monitor of a run that is trained with an objective.

        Only if an objective of the user has the attributes of losses.GanObjective, the rules that
        depend on its penalty and its loss are applied.
        """
        parts: Any = getattr(objective, "penalties", None)
        if not (isinstance(parts, tuple) and hasattr(parts[0], "penalty")):
            return cls(target=0.0, estimates_distance=False, can_augment=can_augment)
        return cls(
            target=objective.penalty_target if parts[0].penalty.has_target else 0.0,
            one_sided=parts[0].name == "one_sided",
            estimates_distance=objective.adversarial_loss == "wasserstein",
            can_augment=can_augment,
        )

    def reset(self) -> None:
        """Discards the earlier summaries, at the start of training and after a rollback."""
        self._last.clear()

    def update(self, values: Mapping[str, float]) -> Diagnosis | None:
        """Adds a summary and returns the diagnosis, or None after fewer than SUMMARIES.

        Args:
          values: The scalars of the summary, by tag, among them both losses.
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
            diagnosis = rule()
            if diagnosis is not None:
                return diagnosis
        return Diagnosis(HEALTHY, self._key_metrics())

    def _key_metrics(self) -> str:
        metrics = []
        if self._all_have("probe/diversity"):
            metrics.append(f"diversity {self._mean('probe/diversity'):.0%} of the data's")
        if self._all_have("probe/gradient_norm"):
            metrics.insert(0, f"gradient norm {self._mean('probe/gradient_norm'):.2f}")
        if self._all_have("critic/wasserstein"):
            metrics.insert(0, f"estimated distance {self._mean('critic/wasserstein'):.3g}")
        return ", ".join(metrics) or "the losses are finite"

    def _all_have(self, *tags: str) -> bool:
        """Returns True if every summary has the tags, and none is NaN.

        Some objectives lack some terms, and the diversity is unknown if all examples are equal.
        """
        return not any(
            math.isnan(values.get(tag, math.nan)) for values in self._last for tag in tags
        )

    def _mean(self, tag: str) -> float:
        return sum(values[tag] for values in self._last) / SUMMARIES

    def _diverging(self) -> Diagnosis | None:
        for network in ("critic", "generator"):
            losses = [abs(values[f"{network}/loss"]) for values in self._last]
            grows = all(after > before for before, after in itertools.pairwise(losses))
            limit = max(MIN_GROWTH * losses[0], MIN_DIVERGING_LOSS)
            if not losses[-1] <= MAX_LOSS or (grows and losses[-1] > limit):
                return Diagnosis(
                    "diverging",
                    f"the absolute value of the {network}'s loss went from {losses[0]:.3g} to "
                    f"{losses[-1]:.3g} in {SUMMARIES} summaries",
                )
        return None

    def _collapsed(self) -> Diagnosis | None:
        if not self._all_have("probe/diversity"):
            return None
        ratio = self._mean("probe/diversity")
        if ratio < MIN_DIVERSITY:
            return Diagnosis(
                "generator collapsed",
                f"the mean distance between samples is {ratio:.0%} of that between real examples",
            )
        return None

    def _constraint_violated(self) -> Diagnosis | None:
        if not self._all_have("probe/gradient_norm"):
            return None
        norm, (low, high) = self._mean("probe/gradient_norm"), SLOPE_RANGE
        too_low = not self._one_sided and norm < low * self._target
        if self._target and (too_low or norm > high * self._target):
            return Diagnosis(
                "constraint violated",
                f"the gradient norm is {norm:.3g}, and the target is {self._target:g}",
            )
        return None

    def _too_weak(self) -> Diagnosis | None:
        if not self._all_have("probe/wasserstein", "probe/distance_of_means"):
            return None
        estimate = self._mean("probe/wasserstein")
        # Without a target the scores have no unit, and only their sign is meaningful.
        linear = self._unit * self._mean("probe/distance_of_means")
        if estimate < MIN_STRENGTH * linear or estimate < 0:
            return Diagnosis(
                "critic too weak",
                f"it estimates a distance of {estimate:.3g}, and a linear critic would find "
                f"{linear:.3g}"
                if self._unit
                else "it scores samples higher than real examples",
            )
        return None

    def _overfitting(self) -> Diagnosis | None:
        if not self._all_have("held_out/negative_critic_loss", "probe/negative_critic_loss"):
            return None
        training = self._mean("probe/negative_critic_loss")
        held_out = self._mean("held_out/negative_critic_loss")
        if training > 0 and training - held_out > MAX_GENERALIZATION_GAP * training:
            remedy = "more data or --augment=diffaugment" if self._can_augment else "more data"
            return Diagnosis(
                "critic overfitting",
                f"its negative loss is {training:.3g} on training examples and {held_out:.3g} on "
                f"held-out examples; {remedy} reduces this",
            )
        return None
