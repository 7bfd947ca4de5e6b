"""The trainer, which runs loops of iterations and calls the hooks between them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf
from absl import logging

from ..config import OptimizationSettings
from ..errors import NotFiniteError
from ..run_directory.directory import RunDirectory
from ..runtime import cluster
from ..runtime.signals import StopRequest
from ..writers.writer import Writer
from .checkpointing import Checkpoints
from .hooks import Hook, LoopResult
from .loop import DeviceStateLoop, LoopOutput, TrainLoop

MOST_ROLLBACKS = 3


@dataclasses.dataclass
class Trainer:
    """Trains until `train_steps` iterations are done, or the loop that reaches `stop_step` ends.

    Attributes:
      settings: The schedule.
      train_loop: Runs a loop; see `loop.TrainLoop`.
      batches: (critic step) -> iterator over the input of `train_loop`, starting at that step.
      checkpoints: Holds the state that `train_loop` updates, and restores it for a rollback.
      directory: The run directory, whose lock is checked at each beginning and released at the end.
      writer: Is told the beginning, the progress and the end.
      hooks: The actions between loops, in this order. They are closed in reverse order, and then
        the writer.
      peers: The other processes, which stop together; None for a process that trains alone.
      check_peers: (iteration) -> None; raises UserError if a process begins with another state.
      diagnosis: Returns the last diagnosis of the run, if there is one.
    """

    settings: OptimizationSettings
    train_loop: TrainLoop
    batches: Callable[[int], Iterator]
    checkpoints: Checkpoints
    directory: RunDirectory
    writer: Writer
    hooks: Sequence[Hook]
    peers: cluster.Peers | None = None
    check_peers: Callable[[int], None] = lambda iteration: None
    diagnosis: Callable[[], str | None] = lambda: None
    _reason: str | None = dataclasses.field(default=None, init=False)  # of a hook that stopped it

    def run(self) -> int | None:
        """Trains to the end or until a signal arrives.

        Returns:
          The number of the signal that stopped training, or None.

        Raises:
          NotFiniteError: If a loss, a gradient or the state is not finite after MOST_ROLLBACKS
            rollbacks, or without a checkpoint.
          UserError: If a hook raises it.
        """
        with StopRequest() as stop, self._closing():
            iteration = self.checkpoints.iteration
            while True:
                self._begin(iteration)
                try:
                    stopped_by = self._train_from(iteration, stop)
                except NotFiniteError as error:
                    iteration = self._roll_back(error)
                else:
                    break
            if stopped_by is None:
                self._report_stop()
            return stopped_by

    def _begin(self, iteration: int) -> None:
        self.check_peers(iteration)
        self.directory.check_lock()
        self.writer.begin(iteration)
        for hook in self.hooks:
            hook.begin(iteration)

    def _train_from(self, iteration: int, stop: StopRequest) -> int | None:
        """Runs loops of iterations, and the hooks between them, until the end or a signal."""
        settings = self.settings
        stopped_by, is_done = self._stops(stop)
        if iteration < settings.last_step and not is_done:
            batches = self.batches(iteration * settings.n_critic)
        while iteration < settings.last_step and not is_done:
            count = min(settings.steps_per_loop, settings.train_steps - iteration)
            for hook in self.hooks:
                hook.before_loop(iteration, count)
            begin = time.perf_counter()
            output = self.train_loop(batches, tf.constant(count, tf.int64))
            loop = self._result(output, iteration, count, begin)
            self._pull(loop)
            self.writer.progress(loop.iteration)
            for hook in self.hooks:
                hook.after_loop(loop)
            iteration = loop.iteration
            stopped_by, is_done = self._stops(stop)
        self._pull()
        if self.peers is not None:
            self.peers.end()
        for hook in self.hooks:
            hook.end(iteration)
        return stopped_by

    def _pull(self, loop: LoopResult | None = None) -> None:
        """Copies the state on devices to the variables, after a loop only if a hook reads it."""
        if not isinstance(self.train_loop, DeviceStateLoop):
            return
        if loop is None or any(hook.reads_state(loop) for hook in self.hooks):
            self.train_loop.pull()

    def _stops(self, stop: StopRequest) -> tuple[int | None, bool]:
        """Returns the signal that stops all processes, and whether they stop."""
        reasons = [reason for hook in self.hooks if (reason := hook.reason_to_stop())]
        self._reason = reasons[0] if reasons else None
        signal, has_reason = stop.signal, bool(reasons)
        if self.peers is not None:
            signal, has_reason = cluster.agree_to_stop(self.peers, signal, has_reason)
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
        settings, after = self.settings, iteration + count
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
    def _closing(self) -> Iterator[None]:
        """Closes the hooks and the writer and releases the lock; keeps an error that propagates."""
        try:
            yield
        finally:
            failing, errors = sys.exc_info()[0] is not None, []
            hooks = [hook.close for hook in reversed(self.hooks)]
            for close in [*hooks, self.writer.close, self.directory.release_lock]:
                try:
                    close()
                except Exception as error:
                    errors.append(error)
            if errors and not failing:
                raise errors[0]

    def _report_stop(self) -> None:
        """Logs why training stopped, if it is not complete."""
        done, settings = self.checkpoints.iteration, self.settings
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
        checkpoints = self.checkpoints
        what, origin = error.what, ""
        if checkpoints.newest:
            if checkpoints.own_rollbacks < MOST_ROLLBACKS:
                iteration = checkpoints.roll_back()
                logging.warning(f"{what}; going back to iteration {iteration}, with other noise")
                return iteration
            what += f", and {MOST_ROLLBACKS} attempts with other noise failed"
            origin = f" and --restore_from={checkpoints.directory}"
        if diagnosis := self.diagnosis():
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
