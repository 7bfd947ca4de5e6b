"""The result of a check of --mode=doctor."""

from __future__ import annotations

import dataclasses

from ...errors import UserError


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
      status: `OK`, `PROBLEM` or `NOT_CHECKED`.
      name: The subject of the check, such as "libtpu".
      detail: What was found; for a problem also what to do; else why it was not checked.
    """

    OK = "OK"
    PROBLEM = "problem"
    NOT_CHECKED = "not checked"

    status: str
    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.status:<{len(self.NOT_CHECKED)}}  {self.name}: {self.detail}"


def ok(name: str, detail: str) -> Finding:
    """Returns the finding of a check that found no problem."""
    return Finding(Finding.OK, name, detail)


def problem(name: str, what: str | UserError, remedy: str = "") -> Finding:
    """Returns the finding of a problem.

    Args:
      name: The subject of the check.
      what: What is wrong, or an error, which has a remedy.
      remedy: What to do.
    """
    error = what if isinstance(what, UserError) else UserError(what, remedy)
    return Finding(Finding.PROBLEM, name, str(error))


def not_checked(name: str, why: str) -> Finding:
    """Returns the finding of a check that is impossible or unnecessary."""
    return Finding(Finding.NOT_CHECKED, name, " ".join(why.split()))
