"""A profiler of a few iterations, for TensorBoard."""

from __future__ import annotations

import tensorflow as tf


class Profiler:
    """A profiler of the device loops that contain the iterations `first ... last`.

    Args:
      iterations: (first, last), counted from 1. None disables profiling.
      directory: The directory of TensorBoard's event files.
    """

    def __init__(self, iterations: tuple[int, int] | None, directory: str):
        self._iterations = iterations
        self._directory = directory
        self._running = False

    def before_loop(self, done: int, iterations: int) -> None:
        """Starts the profiler if the next loop contains an iteration to profile.

        Args:
          done: The number of iterations done before the loop.
          iterations: The number of iterations in the loop.
        """
        if self._iterations is None or self._running:
            return
        first, last = self._iterations
        if done < last and first <= done + iterations:
            tf.profiler.experimental.start(self._directory)
            self._running = True

    def after_loop(self, done: int) -> None:
        """Stops the profiler if the last iteration to profile is among the `done` iterations."""
        if self._iterations is not None and done >= self._iterations[1]:
            self.stop()

    def stop(self) -> None:
        """Writes the profile if the profiler is running."""
        if self._running:
            self._running = False
            tf.profiler.experimental.stop()
