"""Where all ways to train begin, so that they can be seen to compute the same."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

REPLAYED = 2  # iterations that all train with the same noise

Weights = Mapping[str, Sequence[np.ndarray]]  # of each layer, by its name


@dataclasses.dataclass(frozen=True)
class Start:
    """Weights, examples, and what is drawn in the iterations that are compared.

    Attributes:
      generator, critic: weights, as Keras orders them.
      real: `[n_critic, B, H, W, C]` in [-1, 1], the same in every iteration.
      latents: `[REPLAYED, n_critic, B, latent_size]`.
      alpha: `[REPLAYED, n_critic, B]`.
      generator_latents: `[REPLAYED, generator_batch_size, latent_size]`.
    """

    generator: Weights
    critic: Weights
    real: np.ndarray
    latents: np.ndarray
    alpha: np.ndarray
    generator_latents: np.ndarray

    def write(self, path: str) -> None:
        """To a file of its own."""
        with open(path, "wb") as file:
            pickle.dump(self, file)

    @classmethod
    def read(cls, path: str) -> Start:
        """What another process wrote."""
        with open(path, "rb") as file:
            return pickle.load(file)


class Trainer(Protocol):
    """A way to train."""

    def replay(self) -> list[tuple[float, float]]:
        """The critic's mean loss and the generator's loss in each of the REPLAYED iterations."""

    def run(self, iterations: int) -> object:
        """Trains on, with noise of its own."""
