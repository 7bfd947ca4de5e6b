"""The exceptions that are the user's to mend."""

import re


class UserError(Exception):
    """A mistake in a flag or a file, shown as `error: <what> — <what to do>`, exit status 2.

    Args:
      what: the flag or file and what is wrong with it.
      remedy: what to do about it.
    """

    def __init__(self, what: str, remedy: str):
        # A library's message inside may have lines of its own; the user gets one.
        super().__init__(" ".join(f"{what} — {remedy}".split()))
        self.what = what
        self.remedy = remedy


class NotFiniteError(UserError):
    """The state, or what it was to be updated with, holds NaN or infinity."""


def reason(error: Exception) -> str:
    """The first line of another's error, without TensorFlow's names of its own operations."""
    first = str(getattr(error, "message", error)).partition("\n")[0]
    return re.sub(r"\{\{.*?\}\} ?", "", first)[:200]
