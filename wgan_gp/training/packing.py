"""Losses of packs of examples (--pack), as in PacGAN."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .objective import ChangedObjective, Terms


@dataclasses.dataclass(frozen=True)
class PackedObjective(ChangedObjective):
    """An objective of packs of examples, for a critic that gives all of a pack the same score.

    A pack counts as one example: the penalty is on the norm of the gradient of its score in all of
    its examples together, and its interpolates have one alpha (Lin et al. 2018, arXiv:1712.04086).
    Each example of a pack has the terms of the pack, so that their mean over the batch is that over
    packs.

    Attributes:
      size: The number of examples in a pack.
    """

    size: int

    def critic_terms(
        self,
        critic: Callable,
        real: tf.Tensor,
        fake: tf.Tensor,
        **inputs: Any,
    ) -> Terms:
        inputs["alpha"] = inputs["alpha"][:: self.size]
        inputs["noise"] = self._packed(inputs["noise"])
        terms = self.objective.critic_terms(
            self._of_packs(critic), self._packed(real), self._packed(fake), **inputs
        )
        return self._of_examples(terms)

    def generator_terms(self, critic: Callable, fake: tf.Tensor, **inputs: Any) -> Terms:
        if "real" in inputs:
            inputs["real"] = self._packed(inputs["real"])
        packs = self._packed(fake)
        return self._of_examples(
            self.objective.generator_terms(self._of_packs(critic), packs, **inputs)
        )

    def _packed(self, examples: tf.Tensor) -> tf.Tensor:
        """Returns examples `[B, ...]` as packs, `[B / size, size, ...]`."""
        return tf.reshape(examples, [-1, self.size, *examples.shape[1:]])

    def _of_packs(self, critic: Callable) -> Callable:
        """Returns the critic as a function of packs, with a score for each."""

        def score(packs: tf.Tensor) -> tf.Tensor:
            return critic(tf.reshape(packs, [-1, *packs.shape[2:]]))[:: self.size]

        return score

    def _of_examples(self, terms: Terms) -> Terms:
        return {name: tf.repeat(value, self.size) for name, value in terms.items()}
