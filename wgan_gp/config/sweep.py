"""The settings of --mode=sweep."""

from __future__ import annotations

import dataclasses

from ..errors import UserError
from .settings import Section, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepSettings(Section):
    """The file that describes a sweep, and the number of runs at a time."""

    sweep: str | None = setting(
        None,
        "JSON file of --mode=sweep: the settings, the seeds, and the metric that ranks them "
        "(docs/sweep.md).",
        path=True,
        affects="nothing",
    )
    sweep_parallel: int = setting(
        1,
        "Number of runs of --mode=sweep at a time, each in its own process.",
        minimum=1,
        maximum=1024,
        affects="nothing",
    )

    def check_parallel(self, tpu: str | None) -> None:
        """Raises UserError if several runs at a time would use a TPU, the value of --tpu."""
        if self.sweep_parallel > 1 and tpu is not None:
            raise UserError(
                f"--sweep_parallel={self.sweep_parallel} with --tpu={tpu}: only one process at a "
                "time can use a TPU",
                "omit --sweep_parallel",
            )
