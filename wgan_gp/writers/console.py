"""The writer of progress to the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO

import tqdm

from ..runtime.streams import is_terminal
from .writer import Writer


class ConsoleWriter(Writer):
    """A writer that shows a progress bar on a terminal, or prints a line per summary elsewhere.

    Args:
      total: The number of iterations of the run.
      file: The text file that it writes to. None stands for the current stderr.
      clock: Returns the time in seconds.
    """

    def __init__(
        self,
        total: int,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._total = total
        self._file = sys.stderr if file is None else file
        self._clock = clock
        self._bar = tqdm.tqdm(disable=True)

    def begin(self, step: int) -> None:
        self.close()
        if step >= self._total:
            self._print(
                f"all {self._total} iterations are done; use another --model_dir for a new run"
            )
        elif step:
            self._print(f"resuming after {step} iterations")
        self._mark = (step, self._clock())
        self._bar = tqdm.tqdm(
            total=self._total,
            initial=step,
            unit="it",
            file=self._file,
            disable=not is_terminal(self._file),
            dynamic_ncols=True,
        )

    def progress(self, step: int) -> None:
        self._bar.update(step - self._bar.n)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        line = summary_line(values)
        if self._bar.disable:
            # The progress bar shows the remaining time itself.
            left = tqdm.tqdm.format_interval(self._seconds_left(step))
            self._print(f"{step}/{self._total}: {line}, {left} left")
        else:
            self._bar.set_postfix_str(line)

    def text(self, step: int, tag: str, text: str) -> None:
        self._print_above_bar(f"{step}/{self._total}: {tag}: {text}")

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        self._print_above_bar(f"{step}/{self._total}: {evaluation_line(values)}")

    def _print_above_bar(self, line: str) -> None:
        if self._bar.disable:
            self._print(line)
        else:
            self._bar.write(line, file=self._file)

    def close(self) -> None:
        self._bar.close()

    def _seconds_left(self, step: int) -> float:
        """Returns the remaining time at the speed since the last summary.

        The first value includes the time for tracing.
        """
        (before, then), now = self._mark, self._clock()
        self._mark = (step, now)
        return (self._total - step) * (now - then) / max(1, step - before)

    def _print(self, line: str) -> None:
        if self._file is not None:  # a process may have no stderr
            print(line, file=self._file, flush=True)


def summary_line(values: Mapping[str, float]) -> str:
    """Returns the most important scalars of a summary in one line."""

    def term(tag: str, label: str) -> str:
        return f"{label} {values[tag]:.3f}, " if tag in values else ""

    return (
        f"{term('critic/wasserstein', 'wasserstein')}"
        f"losses {values['critic/loss']:.3f} {values['generator/loss']:.3f}, "
        f"{term('critic/penalty', 'penalty')}"
        f"{term('critic/gradient_norm', 'gradient norm')}"
        f"{values['throughput/images_per_second']:.0f} images/s, "
        f"{values['throughput/data_wait_share']:.0%} waiting for data, "
        f"{values['throughput/host_share']:.0%} between loops"
    )


def evaluation_line(values: Mapping[str, float]) -> str:
    """Returns the metrics of an evaluation in one line."""
    parts = (f"{tag.partition('/')[2]} {value:.4g}" for tag, value in values.items())
    return ", ".join(parts).replace("_", " ")
