"""Training in turns: a program trains for the seconds that it is given, and waits in between."""

from __future__ import annotations

import json
import sys
import time
from typing import IO, Any, Protocol

import numpy as np


class Model(Protocol):
    """The interface of a model that trains in turns."""

    def save(self) -> None:
        """Saves the state, from which a new process continues."""

    def sample(self, count: int) -> np.ndarray:
        """Returns samples `[count, 28, 28, 1]` uint8."""


class Turns:
    """Answers requests between turns; `mnist_quality.Program` sends them.

    A request is a line of JSON: {"train": seconds} or {"sample": [count, path]}. The answer is a
    line with the iterations done so far and the seconds of training in this turn. The state is
    saved at the end of each turn. Saving and sampling do not count as training.

    Args:
      answers: Where to answer; requests are read from standard input.
    """

    def __init__(self, answers: IO[str]):
        self._answers = answers
        self._begin = 0.0
        self._seconds = 0.0

    def wait(self, model: Model, iterations: int) -> bool:
        """Returns when the next iteration may begin: True, or False at the end of all turns.

        Args:
          model: The model that trains.
          iterations: The number of iterations done.
        """
        spent = time.perf_counter() - self._begin
        if self._begin and spent < self._seconds:
            return True
        if self._begin:
            model.save()
            self._answer(iterations=iterations, seconds=spent)
        else:
            self._answer(iterations=iterations, seconds=0.0)
        for line in sys.stdin:
            request = json.loads(line)
            if "train" in request:
                self._begin, self._seconds = time.perf_counter(), request["train"]
                return True
            count, path = request["sample"]
            np.save(path, model.sample(count))
            self._answer(iterations=iterations, seconds=0.0)
        return False

    def _answer(self, **content: Any) -> None:
        print(json.dumps(content), file=self._answers, flush=True)


def to_levels(images: np.ndarray) -> np.ndarray:
    """Returns images in [-1, 1] as uint8, rounded."""
    return np.clip(np.rint((np.asarray(images, np.float64) + 1) * 127.5), 0, 255).astype(np.uint8)
