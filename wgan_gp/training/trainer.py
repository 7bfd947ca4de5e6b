"""The trainer, which runs loops of iterations and calls the hooks between them."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf
from absl import logging

from ..config import OptimizationSettings
from ..errors import NotFiniteError
from ..runtime.signals import StopRequest
from .checkpointing import Checkpoints
from .hooks import Hook, LoopResult
from .loop import LoopOutput, TrainLoop

MOST_ROLLBACKS = 3


class Trainer:
    """Trains until `train_steps` iterations are done, or the loop that reaches `stop_step` ends.

    Args:
      settings: The schedule.
      train_loop: Runs a loop; see `loop.TrainLoop`.
      batches: (critic step) -> iterator over the input of `train_loop`, starting at that step.
      checkpoints: Holds the state that `train_loop` updates, and restores it for a rollback.
      hooks: The actions between loops, in this order. They are closed in reverse order.
      agree_to_stop: (signal or None, whether a hook has a reason to stop) -> the same for all
        processes together. Defaults to those of this process.
      diagnosis: Returns the last diagnosis of the run, if there is one.
    """

    def __init__(
        self,
        settings: OptimizationSettings,
        *,
        train_loop: TrainLoop,
        batches: Callable[[int], Iterator],
        checkpoints: Checkpoints,
        hooks: Sequence[Hook],
        agree_to_stop: Callable[[int | None, bool], tuple[int | None, bool]] | None = None,
        diagnosis: Callable[[], str | None] = lambda: None,
    ):
        self._settings = settings
        self._train_loop = train_loop
        self._batches = batches
        self._checkpoints = checkpoints
        self._hooks = tuple(hooks)
        self._agree_to_stop = agree_to_stop or (lambda signal, has_reason: (signal, has_reason))
        self._diagnosis = diagnosis
        self._reason: str | None = None  # of a hook that stopped training

    def run(self) -> int | None:
        """Trains to the end or until a signal arrives.

        Returns:
          The number of the signal that stopped training, or None.

        Raises:
          NotFiniteError: If a loss, a gradient or the state is not finite after MOST_ROLLBACKS
            rollbacks, or without a checkpoint.
          UserError: If a hook raises it.
        """
        with StopRequest() as stop, self._closing_hooks():
            iteration = self._checkpoints.iteration
            while True:
                for hook in self._hooks:
                    hook.begin(iteration)
                try:
                    stopped_by = self._train_from(iteration, stop)
                except NotFiniteError as error:
                    iteration = self._roll_back(error)
                else:
                    break
            if stopped_by is None:
                self._report_stop()
            return stopped_by

    def _train_from(self, iteration: int, stop: StopRequest) -> int | None:
        """Runs loops of iterations, and the hooks between them, until the end or a signal."""
        settings = self._settings
        stopped_by, is_done = self._stops(stop)
        if iteration < settings.last_step and not is_done:
            batches = self._batches(iteration * settings.n_critic)
        while iteration < settings.last_step and not is_done:
            count = min(settings.steps_per_loop, settings.train_steps - iteration)
            for hook in self._hooks:
                hook.before_loop(iteration, count)
            begin = time.perf_counter()
            output = self._train_loop(batches, tf.constant(count, tf.int64))
            loop = self._result(output, iteration, count, begin)
            for hook in self._hooks:
                hook.after_loop(loop)
            iteration = loop.iteration
            stopped_by, is_done = self._stops(stop)
        for hook in self._hooks:
            hook.end(iteration)
        return stopped_by

    def _stops(self, stop: StopRequest) -> tuple[int | None, bool]:
        """Returns the signal that stops all processes, and whether they stop."""
        reasons = [reason for hook in self._hooks if (reason := hook.reason_to_stop())]
        self._reason = reasons[0] if reasons else None
        signal, has_reason = self._agree_to_stop(stop.signal, bool(reasons))
        if has_reason and not reasons:
            self._reason = "another process has a reason to stop"
        return signal, signal is not None or has_reason

    def _result(self, output: LoopOutput, iteration: int, count: int, begin: float) -> LoopResult:
        """Waits for the end of a loop and returns its result.

        Args:
          output: The output of the loop.
          iteration, count: The numbers of iterations before the loop and in it.
          begin: The time at which it began, in seconds.

        Raises:
          NotFiniteError: If a loss or gradient was not finite.
        """
        settings, after = self._settings, iteration + count
        # This is the one host sync per loop; the device is idle until the next loop.
        terms = {tag: float(value) for tag, value in output.terms.items()}
        self._check_finite(terms, output.bad)
        # All sums are finite, so NaN is the mean of a term that no step computed.
        terms = {tag: value for tag, value in terms.items() if not math.isnan(value)}
        return LoopResult(
            before=iteration,
            iteration=after,
            is_last=after == settings.train_steps,
            stops=settings.last_step <= after < settings.train_steps,
            terms=terms,
            images=count * settings.n_critic * settings.batch_size,
            seconds=time.perf_counter() - begin,
            waited=float(output.waited),
        )

    @contextlib.contextmanager
    def _closing_hooks(self) -> Iterator[None]:
        """Closes all hooks at the end. An error in closing replaces no error that propagates."""
        try:
            yield
        finally:
            failing, errors = sys.exc_info()[0] is not None, []
            for hook in reversed(self._hooks):
                try:
                    hook.close()
                except Exception as error:
                    errors.append(error)
            if errors and not failing:
                raise errors[0]

    def _report_stop(self) -> None:
        """Logs why training stopped, if it is not complete."""
        done, settings = self._checkpoints.iteration, self._settings
        if done < settings.last_step:
            logging.info(
                f"stopped after {done} of {settings.train_steps} iterations: {self._reason}"
            )
        elif done < settings.train_steps:
            logging.info(
                f"stopped after {done} of {settings.train_steps} iterations because of "
                f"--stop_step={settings.stop_step}; a larger one continues"
            )

    def _roll_back(self, error: NotFiniteError) -> int:
        """Restores the last checkpoint and returns its iteration, or raises NotFiniteError."""
        checkpoints = self._checkpoints
        what, origin = error.what, ""
        if checkpoints.newest:
            if checkpoints.own_rollbacks < MOST_ROLLBACKS:
                iteration = checkpoints.roll_back()
                logging.warning(f"{what}; going back to iteration {iteration}, with other noise")
                return iteration
            what += f", and {MOST_ROLLBACKS} attempts with other noise failed"
            origin = f" and --restore_from={checkpoints.directory}"
        if diagnosis := self._diagnosis():
            what += f"; the last diagnosis is {diagnosis}"
        raise NotFiniteError(
            what,
            f"{error.remedy} or give --gradient_clip_norm, with another --model_dir{origin}, or "
            "look for such values in the data",
        ) from error

    def _check_finite(self, values: Mapping[str, float], bad: Mapping[str, tf.Tensor]) -> None:
        """Raises NotFiniteError if a loss or a gradient was not finite."""
        first = {network: int(index) for network, index in bad.items() if int(index) >= 0}
        if not first:
            return
        network = min(first, key=lambda each: (first[each], each))
        terms = [tag for tag, value in values.items() if not math.isfinite(value)]
        raise NotFiniteError(
            f"iteration {first[network] + 1}: the {network}'s loss or gradient is not finite "
            f"({', '.join(terms)})",
            f"lower --{network}_learning_rate",
        )
