"""The examples that --holdout sets aside, by a fixed rule."""

from __future__ import annotations

import math

import numpy as np

from ..errors import UserError


def is_held_out(size: int, share: float | None) -> np.ndarray:
    """Returns which examples of a dataset are held out: `[size]` bool.

    The rule depends on its arguments only, so that every start, every machine and every mode of the
    program sets the same examples aside, whatever --seed is. It is that of
    `sklearn.model_selection.train_test_split(range(size), test_size=share, random_state=0)`.

    Args:
      size: The number of examples.
      share: The share of them in [0, 1), rounded up to whole examples. None and 0 hold out none.

    Raises:
      UserError: If no example is left.
    """
    held_out = np.zeros([size], bool)
    order = np.random.RandomState(0).permutation(size)
    held_out[order[: math.ceil((share or 0.0) * size)]] = True
    if size and held_out.all():
        raise UserError(
            f"--holdout={share:g} leaves none of {size} examples for training",
            "give a smaller share",
        )
    return held_out
