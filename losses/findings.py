"""The results of the conformance checks."""

from typing import NamedTuple


class Finding(NamedTuple):
    """A mistake, or a probable mistake, that a conformance check found.

    Attributes:
      name: A stable identifier of the mistake, such as "norm_over_batch".
      message: One line that says what was measured, what it means and what to do.
      fatal: True if it is certainly a mistake; False if it may be intended or harmless.
    """

    name: str
    message: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"
