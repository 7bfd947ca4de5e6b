"""TensorBoard's profile of a few iterations."""

from __future__ import annotations

import tensorflow as tf


class Profiler:
    """Profiles the device loops that hold the iterations `first ... last`.

    Args:
      iterations: (first, last), counted from 1; None: none.
      directory: of TensorBoard's event files.
    """

    def __init__(self, iterations: tuple[int, int] | None, directory: str):
        self._iterations = iterations
        self._directory = directory
        self._running = False

    def before_loop(self, done: int, iterations: int) -> None:
        """A loop of so many iterations follows, after `done`."""
        if self._iterations is None or self._running:
            return
        first, last = self._iterations
        if done < last and first <= done + iterations:
            tf.profiler.experimental.start(self._directory)
            self._running = True

    def after_loop(self, done: int) -> None:
        """The loop is over; `done` iterations are done."""
        if self._iterations is not None and done >= self._iterations[1]:
            self.stop()

    def stop(self) -> None:
        """Writes what was profiled, if anything."""
        if self._running:
            self._running = False
            tf.profiler.experimental.stop()
