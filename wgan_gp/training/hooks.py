"""The interface of hooks: actions between loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class LoopResult:
    """The result of one loop.

    Attributes:
      before: The number of iterations done before the loop.
      iteration: The number of iterations done after the loop.
      is_last: Whether training is complete after the loop.
      terms: The mean of each term of the objective, by tag, over the steps of the loop that
        computed it. A term that none of them computed is absent.
      images: The number of real images in the critic steps of the loop.
      seconds: The duration of the loop, including compilation.
      waited: The seconds of the loop in which the device waited for data.
      stops: Whether training stops after the loop, before it is complete (--stop_step).
    """

    before: int
    iteration: int
    is_last: bool
    terms: Mapping[str, float]
    images: int
    seconds: float
    waited: float
    stops: bool = False

    def is_due(self, interval: int) -> bool:
        """Returns True if the loop crossed a multiple of `interval`, or was the last one."""
        return self.is_last or crossed(interval, self.before, self.iteration)


def crossed(interval: int, before: int, after: int) -> bool:
    """Returns True if (before, after] contains a multiple of `interval`; False for interval 0.

    The remainder of `after` would not do, because loops need not end on multiples.
    """
    return interval > 0 and after // interval > before // interval


class Hook:
    """The interface of actions between loops. All methods do nothing by default.

    `iteration` is the number of iterations done. When several processes train together, each of
    them must have the same hooks, except for hooks that only write.
    """

    def begin(self, iteration: int) -> None:
        """Prepares for the iterations after `iteration`: at the start and after each rollback."""

    def before_loop(self, iteration: int, count: int) -> None:
        """Acts before a loop of `count` iterations."""

    def after_loop(self, loop: LoopResult) -> None:
        """Acts after a loop."""

    def after_evaluation(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Acts after an evaluation of --evaluate_interval, before `after_loop` of later hooks.

        Args:
          iteration: The number of iterations done.
          metrics: The metrics by tag, such as "evaluation/fid".
        """

    def reason_to_stop(self) -> str | None:
        """Returns why training should stop now, or None to continue; called after each loop.

        Training then ends as after its last iteration, with a checkpoint and the exit status 0. The
        same command continues it, unless a hook still has a reason.
        """
        return None

    def reads_state(self, loop: LoopResult) -> bool:
        """Returns True if `after_loop` reads or changes the state of training.

        With --runtime=pjrt, the variables of TensorFlow have the state only if a hook reads it.
        In `before_loop` and `close`, they may have that of an earlier iteration.
        """
        return True

    def end(self, iteration: int) -> None:
        """Acts when training is complete or was stopped by a signal, but not after an error."""

    def close(self) -> None:
        """Releases resources at the end, also after an error."""


class IntervalHook(Hook):
    """The base class of hooks that act at an interval.

    Args:
      interval: The number of iterations between two actions. In any case the hook acts after the
        last iteration.
    """

    def __init__(self, interval: int):
        self._interval = interval

    def after_loop(self, loop: LoopResult) -> None:
        if loop.is_due(self._interval):
            self.act(loop)

    def reads_state(self, loop: LoopResult) -> bool:
        return loop.is_due(self._interval)

    def act(self, loop: LoopResult) -> None:
        """Performs the action of the hook."""
        raise NotImplementedError
