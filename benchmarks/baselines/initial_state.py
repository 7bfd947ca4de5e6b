"""The initial state that all implementations share, so that their losses can be compared."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

REPLAYED_ITERATIONS = 2  # in which all implementations train with the same noise

Weights = Mapping[str, Sequence[np.ndarray]]  # the weights of each layer, by its name


@dataclasses.dataclass(frozen=True)
class InitialState:
    """Weights, examples, and the noise of the replayed iterations.

    Attributes:
      generator: The generator's weights, in Keras's order.
      critic: The critic's weights, in Keras's order.
      real: Real examples `[n_critic, B, H, W, C]` in [-1, 1], the same in every iteration.
      latents: Latents of critic steps, `[REPLAYED_ITERATIONS, n_critic, B, latent_size]`.
      alpha: Interpolation factors of the penalty, `[REPLAYED_ITERATIONS, n_critic, B]`.
      generator_latents: Latents of generator steps,
        `[REPLAYED_ITERATIONS, generator_batch_size, latent_size]`.
    """

    generator: Weights
    critic: Weights
    real: np.ndarray
    latents: np.ndarray
    alpha: np.ndarray
    generator_latents: np.ndarray

    def write(self, path: str) -> None:
        """Writes the state to a file."""
        with open(path, "wb") as file:
            pickle.dump(self, file)

    @classmethod
    def read(cls, path: str) -> InitialState:
        """Reads the state that another process wrote."""
        with open(path, "rb") as file:
            return pickle.load(file)


class Trainer(Protocol):
    """An implementation of WGAN-GP."""

    def replay(self) -> list[tuple[float, float]]:
        """Trains the replayed iterations.

        Returns:
          The mean of the critic's losses and the generator's loss in each iteration.
        """

    def run(self, iterations: int) -> object:
        """Continues training with new noise."""
