"""Labels of any kind as the numbers of classes, with the names of the classes."""

from __future__ import annotations

import numpy as np


def number_labels(values: np.ndarray, origin: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns labels as numbers from 0 to K - 1, and the names of the K classes.

    Classes are ordered by their values: numbers by size, texts in alphabetical order.

    Args:
      values: `[N]` or `[N, 1]` integers, real numbers that are integers, texts, bytes or booleans,
        or `[N, K]` rows with a single 1 (one-hot).
      origin: The flag and its value for messages, such as "--data_dir=FILE".

    Returns:
      `[N]` int64, and the names: the numbers or texts of the classes as text.

    Raises:
      UserError: If they are not labels.
    """
    raise NotImplementedError
