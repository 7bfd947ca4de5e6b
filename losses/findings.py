"""What a conformance check reports."""

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that is wrong, or looks wrong.

    Attributes:
      name: of the mistake, a stable identifier such as "norm_over_batch".
      message: what was measured, what it means and what to do, in a sentence or two.
      fatal: wrong for certain; otherwise it may be meant, or do no harm.
    """

    name: str
    message: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"
